"""The store in memory: the conformance suite, and tests of its own."""

import contextlib
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longtalk.errors import InputError
from longtalk.stores import in_memory
from longtalk.stores._tree import ConversationTree
from longtalk.stores._words import normalize_words
from longtalk.stores.base import MAIN, Commit, KeyedRequest, PlacedRecord
from longtalk.stores.in_memory import InMemory
from longtalk.testing.interrupts import Interrupts
from longtalk.testing.stores.harness import Harness, make_message
from longtalk.testing.stores.suite import CASES, Case
from longtalk.transcript.transcript import Record, Turn, link_entries


@pytest.mark.parametrize("case", [case for case in CASES if not case.reopens], ids=str)
def test_the_store_in_memory_keeps_the_contract(case: Case):
    case.run(InMemory)


def test_a_redaction_changes_the_revision_of_each_branch_with_the_entry():
    talk = Harness(InMemory()).conversation()
    talk.say("secret", "answer")
    talk.say("else", branch="other", source=(MAIN, 0))
    main, other = talk.head(), talk.head("other")
    talk.store.redact(talk.owner, talk.id, talk.entries()[0].id, b"{}")
    assert talk.head() == msgspec.structs.replace(main, revision=main.revision + 1)
    assert talk.head("other") == other


def test_a_search_skips_unreadable_entries():
    talk = Harness(InMemory()).conversation()
    for number, (wire, native) in enumerate(
        [("later", b'{"content":"lisbon"}'), ("openai-chat", b"lisbon"), ("longtalk", b'{"says":"lisbon"}')]
    ):
        odd = msgspec.structs.replace(make_message("x"), wire=wire, native=native)
        talk.write(entries=link_entries(talk.find_parent(), f"t{number}", 0, [odd]))
    assert talk.store.candidates(talk.owner, ["lisbon"], 9) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Hello, World!", " hello world "),
        ("東京タワー, okay", " 東 京 タ ワ ー okay "),
        ("abc東京def", " abc 東 京 def "),
        ("한국어", " 한 국 어 "),
        ("…。!", "  "),
    ],
)
def test_normalized_words_are_between_spaces(text: str, found: str):
    assert normalize_words(text) == found


@pytest.mark.parametrize("name", ["", "t", "t-", "t-01", "t-x", "u-0", "t0", "t-+1"])
def test_the_id_of_an_entry_is_its_turn_and_a_number(name: str):
    entry = msgspec.structs.replace(make_message("x"), id=name, turn="t")
    with pytest.raises(ValueError, match=r"entry id .* must be"):
        ConversationTree().apply(Commit(expect=0, at=0, entries=(entry,)))


def test_a_turn_without_entries_is_refused():
    with pytest.raises(ValueError, match="has no entries"):
        ConversationTree().apply(Commit(expect=0, at=0, turn=Turn("t", "running", "m", 0)))


def test_a_turn_that_continues_on_another_branch_keeps_its_start():
    talk = Harness(InMemory()).conversation()
    begun = talk.make_turn(None, "hello", status="running")
    talk.write(**begun)
    turn = begun["turn"]
    answer = link_entries(talk.find_parent(), turn.id, 1, [make_message("late", role="assistant")])
    talk.write("aside", entries=answer, turn=turn, source=(MAIN, 1))
    assert talk.store.turns(talk.owner, talk.id, "aside", 0, 9) == [(0, turn)]


def test_many_cuts_do_not_make_the_path_longer():
    talk = Harness(InMemory()).conversation()
    for i in range(2_000):
        talk.say(str(i), cut=min(i, 1) if i else None)
    assert talk.texts() == ["0", "1999"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"request": KeyedRequest("k", "b")}, "needs a turn"),
        ({"manifest": b"{}"}, "needs a turn"),
        ({"entry_meta": {0: {"a": 1}}}, "only indexes of the commit's entries"),
        ({"records": (PlacedRecord(Record("brief", "t-0", 0, b"{}"), 0),)}, "can't attach a record at position"),
        ({"records": (PlacedRecord(Record("brief", "", 0, b"{}"), -2),)}, "can't attach a record at position"),
    ],
)
def test_commits_that_refer_to_missing_parts_are_refused(fields: dict[str, Any], message: str):
    tree = ConversationTree()
    with pytest.raises(ValueError, match=message):
        tree.apply(Commit(expect=0, at=0, **fields))
    assert not tree


def test_metadata_that_is_not_json_is_refused_and_nothing_is_stored():
    store, entries = InMemory(), link_entries(None, "t", 0, [make_message("x")])
    for fields in ({"meta": {"a": object()}}, {"entries": entries, "entry_meta": {0: {"a": object()}}}):
        with pytest.raises(InputError):
            store.write("ann", "talk", Commit(expect=0, at=0, **fields))  # type: ignore[arg-type]
        assert store.head("ann", "talk") is None
    store.write("ann", "talk", Commit(expect=0, at=0, entries=entries, entry_meta={0: {"a": 1}}))
    with pytest.raises(InputError):
        store.describe("ann", "talk", {"a": object()}, entry="t-0")
    assert store.metas("ann", "talk", MAIN, 0, 9) == {0: {"a": 1}}


def test_verify_names_an_entry_with_a_wrong_parent():
    store = InMemory()
    store.write(
        "ann",
        "talk",
        Commit(expect=0, at=0, entries=link_entries(None, "t", 0, [make_message("x"), make_message("y")])),
    )
    assert store.verify("ann", "talk") == []
    entries = store._owners["ann"]["talk"]._segments[0].entries
    entries[1] = msgspec.structs.replace(entries[1], parent="elsewhere-0")
    assert [problem for problem in store.verify("ann", "talk") if "t-1" in problem]


def test_ctrl_c_anywhere_in_a_reading_method_blocks_no_other_thread():
    talk = Harness(InMemory()).conversation()
    talk.say("one")
    blocked: list[str] = []

    def read_in_another_thread() -> None:
        thread = threading.Thread(target=talk.texts, daemon=True)
        thread.start()
        thread.join(30)
        if thread.is_alive():
            blocked.append(struck.points[-1])

    struck = Interrupts(Path(in_memory.__file__), Path(contextlib.__file__))
    while not blocked and struck.during(lambda: talk.store.head(talk.owner, talk.id), then=read_in_another_thread):
        pass
    assert blocked == []
    assert struck.points
