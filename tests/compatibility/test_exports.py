"""Exports written by earlier versions are read, verified and continued.

For each fixture the tests promise: a JSON or JSONL export is loaded with all branches, entries byte for byte, brief and
pins, as the version that wrote it had them; `verify()` passes before and after the next turn, which sends the old
messages byte for byte. Markdown is written for people and never read back: today's says all that the old one said.

The fixtures are never written again. `make_fixtures.py` documents what they hold.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longtalk import Archive, Conversation
from longtalk.stores import open_store
from longtalk.testing import Scripted, says
from tests.compatibility.talks import FILES, OTHER_NAME, check_sent, read_store

FOLDER = FILES / "exports"
NAMES = {"tools": "tools", "branches": OTHER_NAME, "memory": "memory", "switched": "switched"}
"""Conversations by the names of their files."""
EXPORTED = ("history", "pins", "brief", "archived", "tally")
"""The parts of a branch that an export holds; manifests and costs stay in the store."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    made = open_store(str(tmp_path / "talks.db"))
    yield made
    made.close()


def exported(talk: dict[str, Any]) -> dict[str, Any]:
    branches = {
        name: {part: branch[part] for part in EXPORTED if part in branch} for name, branch in talk["branches"].items()
    }
    return {"meta": talk["meta"], "created": talk["created"], "entries": talk["entries"], "branches": branches}


@pytest.mark.parametrize("form", ["json", "jsonl"])
@pytest.mark.parametrize("file", NAMES)
def test_an_export_is_loaded_and_continues(store: Any, file: str, form: str) -> None:
    name = NAMES[file]
    archive = Archive(store, owner="ada")
    assert archive.load((FOLDER / f"{file}.{form}").read_bytes()) == [name]
    archive.verify(name)
    expected = json.loads(gzip.decompress((FILES / "stores.json.gz").read_bytes()))["ada"][name]
    assert exported(read_store(store)["ada"][name]) == exported(expected)

    model = Scripted(says("It goes on."))
    old = archive.history(name)
    talk = Conversation(name, model=model, owner="ada", store=store)
    assert talk.send("And now?").text == "It goes on."
    check_sent(model.requests[0], old, "openai-chat")
    archive.verify(name)


@pytest.mark.parametrize("file", NAMES)
def test_markdown_says_the_same(store: Any, file: str) -> None:
    archive = Archive(store, owner="ada")
    archive.load((FOLDER / f"{file}.json").read_bytes())
    said = {line for each in archive.history(NAMES[file]) for line in each.text.splitlines() if line.strip()}
    for page in ((FOLDER / f"{file}.md").read_text(), archive.export(NAMES[file])):
        assert not [line for line in said if line.strip() not in page]


def test_the_requests_of_an_export_are_still_shown(store: Any) -> None:
    # It was written before the usage of a summary counted the tokens of reasoning.
    archive = Archive(store)
    (name,) = archive.load(gzip.decompress((FOLDER / "sample.json.gz").read_bytes()))
    sent = [request for each in archive.metrics(name) for request in archive.request(name, each.turn)]
    assert len(sent) > 30
    assert [request.problem for request in sent if request.body is None] == []
