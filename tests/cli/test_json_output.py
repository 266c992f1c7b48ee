"""Every command that prints a result prints it as JSON, too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from longtalk import Archive, Conversation, Memory
from longtalk.cli.service_flags import commands
from longtalk.testing import Scripted, says
from tests.cli.helpers import longtalk, store_at, to_iso

WITHOUT_JSON = {
    "chat": "people talk in it; `ask --json` is for programs",
    "completion": "prints a script",
    "demo": "plays scenes for people",
    "export": "prints conversations in a format that -f chooses",
    "serve": "runs until it is stopped; `doctor --json` checks the same",
}
"""The commands that print no result, and why."""


def list_commands(group: click.Group, *names: str) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands of a group and of the groups in it, each with its names."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from list_commands(command, *names, name)
        else:
            yield " ".join((*names, name)), command


def report(*arguments: str, said: str | None = None) -> Any:
    done = CliRunner().invoke(commands, [*arguments, "--json"], input=said)
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


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder with the settings and the stored keys, which there are not yet."""
    monkeypatch.setenv("LONGTALK_SETTINGS", str(tmp_path / "config" / "settings.toml"))
    return tmp_path / "config"


def test_each_command_that_prints_a_result_has_the_option() -> None:
    without = {
        name for name, command in list_commands(commands) if all("--json" not in each.opts for each in command.params)
    }
    assert without == set(WITHOUT_JSON)


def test_times_are_written_in_utc_and_taken_back_as_filters(filled: tuple[str, str]) -> None:
    path = filled[0]
    with closing(store_at(path)) as held:
        held.describe("", "bows", {"created": 7})
        (info,) = held.conversations("")
        answer = Archive(held).history("bows")[-1]
    listed = report("list", "--store", path)
    assert (listed["created"], listed["updated"], listed["meta"]["created"]) == (
        to_iso(info.created),
        to_iso(info.updated),
        7,
    )
    assert report("branches", "--store", path)["updated"] == to_iso(info.updated)
    assert report("show", "--last", "--store", path)["at"] == to_iso(answer.at)
    assert report("list", "--since", listed["updated"], "--until", listed["updated"], "--store", path) == listed


def test_a_time_that_is_not_known_is_null(filled: tuple[str, str]) -> None:
    assert report("keys", "add", "laptop", "--store", filled[0])["expires"] is None


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


def test_a_revoked_access_key_is_reported(filled: tuple[str, str]) -> None:
    made = report("keys", "add", "laptop", "--store", filled[0])
    assert report("keys", "revoke", made["id"], "--store", filled[0]) == {"id": made["id"]}


def test_changed_lines_of_a_brief_are_reported_as_they_are_shown(tmp_path: Path) -> None:
    path = str(tmp_path / "talks.db")
    held = store_at(path)
    Conversation("bows", model=Scripted(says("Lightly.")), store=held, policy=Memory()).send("How?")
    held.close()
    added = report("brief", "add", "bows", "facts", "Ada", "plays.", "--store", path)
    assert added == report("brief", "show", "bows", "--store", path)
    edited = report("brief", "edit", "bows", added["id"], "Ada rests.", "--store", path)
    assert (edited, edited["text"]) == (report("brief", "show", "bows", "--store", path), "Ada rests.")
    assert report("brief", "revoke", "bows", edited["id"], "--store", path) == {"id": edited["id"]}


def test_changed_lines_of_a_profile_are_reported_as_they_are_listed(tmp_path: Path) -> None:
    path = str(tmp_path / "talks.db")
    added = report("profile", "add", "preferences", "Short answers", "--store", path)
    assert added == report("profile", "list", "--store", path)
    edited = report("profile", "edit", added["id"], "Long answers", "--store", path)
    assert (edited, edited["text"]) == (report("profile", "list", "--store", path), "Long answers")
    assert report("profile", "revoke", added["id"], "--store", path) == {"id": added["id"]}


def test_a_private_conversation_is_reported(filled: tuple[str, str]) -> None:
    for more, private in (([], False), (["--on"], True), ([], True)):
        found = report("profile", "private", "bows", *more, "--store", filled[0])
        assert found == {"conversation": "bows", "private": private}


def test_a_migrated_and_a_copied_store_are_reported(filled: tuple[str, str], tmp_path: Path) -> None:
    path, copy = filled[0], str(tmp_path / "copy.db")
    assert report("migrate", "--store", path) == {"store": path}
    assert report("backup", copy, "--store", path) == {"store": path, "backup": copy}


def test_a_changed_setting_is_reported_with_the_value_in_force(files: Path) -> None:
    port = {"name": "port", "value": 9000}
    assert report("config", "set", "port", "9000") == {**port, "file": str(files / "settings.toml")}
    assert report("config", "show", "port") == report("config", "get", "port") == port
    assert report("config", "show")["port"] == 9000
    assert report("config", "set", "port") == port
    assert report("config", "unset", "port") == {"name": "port", "file": str(files / "settings.toml")}
    assert report("config", "show", "port")["value"] == 8086


def test_the_default_model_is_reported_as_a_setting(files: Path) -> None:
    model = {"name": "default_model", "value": "ollama:x"}
    assert report("models", "default", "ollama:x") == {**model, "file": str(files / "settings.toml")}
    assert report("models", "default") == model


def test_an_alias_is_reported_as_it_is_listed(files: Path) -> None:
    made = report("config", "alias", "tutor", "ollama:x", "-s", "Teach.")
    assert made.pop("file") == str(files / "settings.toml")
    assert made == report("config", "alias")
    assert (made["name"], made["model"], made["system"]) == ("tutor", "ollama:x", "Teach.")
    assert made == report("config", "alias", "tutor")


def test_a_stored_key_of_a_provider_is_reported_without_the_key(files: Path) -> None:
    found = report("config", "set-key", "anthropic", said="sk-1\n")
    assert found == {"provider": "anthropic", "stored": True, "file": str(files / "credentials.toml")}
    assert report("config", "unset", "anthropic") == {"name": "anthropic", "file": str(files / "credentials.toml")}


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
