"""The public names: all there, all with help that can be shown, and each kind of chat with its own."""

from __future__ import annotations

import json
import pydoc
from pathlib import Path
from typing import Any

import msgspec
import pytest

import longtalk
from longtalk import AsyncChat, Chat, Conversation, InputError, errors, tool
from longtalk.stores.in_memory import InMemory
from longtalk.stores.jsonl.store import JSONL
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, Scripted, says
from longtalk.usage import Usage


@pytest.mark.parametrize("name", longtalk.__all__)
def test_a_public_name_can_be_looked_at(name: str) -> None:
    thing = getattr(longtalk, name)
    assert pydoc.render_doc(thing)
    assert thing.__doc__


def test_the_root_has_few_names() -> None:
    assert len(longtalk.__all__) <= 30
    assert longtalk.__all__ == sorted(set(longtalk.__all__))


def test_a_name_that_is_elsewhere_is_not_at_the_root() -> None:
    assert not {"Text", "Schema", "WindowShare", "BadState"} & set(dir(longtalk))


@pytest.mark.parametrize("name", ["Stream", "AsyncStream"])
def test_a_stream_can_be_named_in_an_annotation(name: str) -> None:
    assert getattr(longtalk, name).__name__ == name


def test_objects_say_what_they_are() -> None:
    @tool
    def look(word: str) -> str:
        """Look a word up."""
        return word

    assert repr(look) == "<Tool look(word): 'Look a word up.'>"
    assert repr(Chat(Scripted(), tools=[look])) == "<Chat with scripted:model under KeepAll(), tools look>"
    assert repr(Usage(3, 2)) == "Usage(input=3, output=2, cached=0, written=0, written_1h=0, reasoning=0)"


def test_usage_is_written_as_json() -> None:
    usage = Usage(input=3, output=2)
    assert json.loads(json.dumps(usage.to_dict())) == json.loads(msgspec.json.encode(usage)) == usage.to_dict()


@pytest.mark.parametrize("open_store", [InMemory, lambda path: JSONL(path), lambda path: SQLite(path / "talks.db")])
def test_a_store_is_closed_at_the_end_of_a_block(open_store: Any, tmp_path: Path) -> None:
    closed = []
    with open_store(*([tmp_path] if open_store is not InMemory else [])) as store:
        Conversation("c", model=Scripted(says("Hi.")), store=store).send("Hello!")
        store.close = lambda: closed.append(store)
    assert closed == [store]


def test_errors_have_parents_that_earlier_clauses_catch() -> None:
    assert issubclass(errors.NotFound, InputError)
    assert issubclass(errors.MissingExtra, InputError)
    assert issubclass(errors.CorruptStore, errors.StoreError)


def test_sync_and_async_do_not_mix() -> None:
    for kind, provider in ((Chat, AsyncScripted()), (AsyncChat, Scripted())):
        with pytest.raises(InputError, match="does not fit this chat"):
            kind(provider)  # type: ignore[arg-type,operator]
