"""Commands that change conversations or check the service report in JSON, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from longtalk import Conversation
from longtalk.cli.service_flags import commands
from longtalk.testing import Scripted, says
from tests.cli.helpers import longtalk, store_at


def report(*arguments: str) -> Any:
    done = CliRunner().invoke(commands, [*arguments, "--json"])
    assert (done.exit_code, done.stderr) == (0, ""), done.exception
    return json.loads(done.stdout)


@pytest.fixture
def filled(tmp_path: Path) -> tuple[str, str]:
    """A store with the conversation `bows`, and the id of its first entry."""
    path = str(tmp_path / "talks.db")
    held = store_at(path)
    made = Conversation("bows", model=Scripted(says("Lightly.")), store=held)
    made.send("How?")
    entry = made.history()[0].id
    held.close()
    return path, entry


def test_a_new_title_is_reported(filled: tuple[str, str]) -> None:
    assert report("rename", "bows", "My", "bow", "--store", filled[0]) == {"conversation": "bows", "title": "My bow"}


def test_new_branches_are_reported(filled: tuple[str, str]) -> None:
    path, entry = filled
    made = report("fork", "bows", "--name", "aside", "--store", path)
    assert made == {"conversation": "bows", "branch": "aside"}
    cut = report("rewind", "bows", entry, "--store", path)
    assert cut["conversation"] == "bows"
    assert cut["branch"] not in ("main", "aside")


def test_a_redacted_entry_is_reported(filled: tuple[str, str]) -> None:
    path, entry = filled
    assert report("redact", "bows", entry, "--yes", "--store", path) == {"conversation": "bows", "entry": entry}


def test_a_deletion_is_reported_with_its_counts(filled: tuple[str, str]) -> None:
    receipt = report("delete", "bows", "--yes", "--store", filled[0])
    assert (receipt["conversation"], receipt["entries"], receipt["turns"]) == ("bows", 2, 1)


def test_a_new_access_key_is_reported(environment: dict[str, str]) -> None:
    made = json.loads(longtalk("keys", "add", "laptop", "--owner", "ada", "--json", environment=environment).stdout)
    listed = json.loads(longtalk("keys", "list", "--json", environment=environment).stdout)
    assert made.pop("key")
    assert (made, made["owner"]) == (listed, "ada")


def test_findings_of_the_doctor_have_level_subject_and_text(environment: dict[str, str]) -> None:
    done = longtalk("doctor", "--json", environment=environment)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found[0]["subject"] == "versions"
    assert {tuple(each) for each in found} == {("level", "subject", "text")}


def test_copied_and_imported_conversations_are_reported(filled: tuple[str, str], tmp_path: Path) -> None:
    copied = report("copy", filled[0], str(tmp_path / "other.db"))
    assert (copied["id"], copied["how"], copied["entries"]) == ("bows", "new", 2)
    CliRunner().invoke(commands, ["export", "bows", "--store", filled[0], "-o", str(tmp_path / "bows.json")])
    taken = report("import", str(tmp_path / "bows.json"), "--store", str(tmp_path / "third.db"))
    assert (taken["id"], taken["how"]) == ("bows", "new")


def test_counted_tokens_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"role": "user", "content": "Hello there"}]')
    found = report("tokens", str(tmp_path / "a.json"))
    assert found["tokens"] == sum(found["parts"].values()) > 0
