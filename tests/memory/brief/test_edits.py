"""Test an app's edits of a brief: removing lines makes a new edition, dropping them for the budget does not."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from longtalk.errors import InputError
from longtalk.memory.brief.apply import list_line_ids
from longtalk.memory.brief.edits import edit_brief, list_removed_lines, render_record, restore_line, revoke_line
from longtalk.memory.brief.lines import Line, parse_brief_lines
from longtalk.memory.brief.operations import Operation
from longtalk.memory.brief.record import BriefRecord, read_brief_record, read_brief_record_at
from longtalk.memory.brief.schema import Brief, Field, Schema
from longtalk.tokens import Estimator
from longtalk.transcript.transcript import Transcript
from tests.support.properties import holds

FEW = Brief(schema=Schema((Field("goal", "text"), Field("facts", cap=2))))
COUNTER = Estimator()


def apply_edits(*changes: Operation, config: Brief = FEW, before: Transcript | None = None) -> Transcript:
    """Return a transcript after these changes, applied one by one."""
    transcript = Transcript() if before is None else before
    for change in changes:
        transcript = edit_brief(transcript, [change], config, COUNTER)
    return transcript


def count_editions(*changes: Operation) -> int:
    return read_brief_record(apply_edits(*changes)).edition


def test_what_is_added_or_pushed_out_is_no_new_edition() -> None:
    facts = [Operation.add("facts", f"fact {i}") for i in range(4)]
    assert count_editions(Operation.set("goal", "Play Bach"), *facts, Operation.set("goal", "play bach")) == 0
    assert [line.text for line in read_brief_record(apply_edits(*facts)).dropped] == ["fact 1"]


def test_each_call_that_takes_something_away_is_a_new_edition() -> None:
    goal, facts = Operation.set("goal", "Play Bach"), Operation.add("facts", "one", "two")
    line = read_brief_record(apply_edits(goal)).content.lines[0].id
    for change in (Operation.clear("goal"), Operation.set("goal", "Play Reger"), Operation.revoke(line)):
        assert count_editions(goal, facts, change) == 1
    for change in (Operation.remove("facts", "one", "two"), Operation.resolve("facts", "one")):
        assert count_editions(goal, facts, change, Operation.clear("goal")) == 2


def test_a_line_that_fell_out_is_revoked_with_its_text() -> None:
    transcript = apply_edits(*[Operation.add("facts", f"fact {i}") for i in range(3)])
    (old,) = list_removed_lines([read_brief_record(transcript)])
    record = read_brief_record(revoke_line(transcript, old.id, FEW, COUNTER, [old]))
    assert (record.edition, record.content.revoked) == (1, tuple(dict.fromkeys(list_line_ids(old))))
    assert [line.text for line in record.content.lines] == ["fact 1", "fact 2"]


def test_a_line_is_restored_in_its_place_and_a_single_text_replaced() -> None:
    goal = apply_edits(Operation.set("goal", "Play Bach"))
    (old,) = read_brief_record(goal).content.lines
    changed = apply_edits(Operation.revoke(old.id), Operation.set("goal", "Play Reger"), before=goal)
    record = read_brief_record(restore_line(changed, old, FEW, COUNTER))
    assert (record.content.lines, record.content.revoked) == ((old,), ())
    assert [line.text for line in record.dropped] == ["Play Reger"]
    assert record.edition > read_brief_record(changed).edition
    assert all(each.old.text != "Play Bach" for each in record.corrections)


def test_a_restored_line_of_a_full_field_counts_as_the_newest() -> None:
    facts = apply_edits(*[Operation.add("facts", f"fact {i}") for i in range(3)])
    (old,) = list_removed_lines([read_brief_record(facts)])
    record = read_brief_record(restore_line(facts, old, FEW, COUNTER))
    assert [line.text for line in record.content.lines] == ["fact 0", "fact 2"]
    assert record.content.lines[0].at == old.at


def test_a_line_of_a_field_that_the_brief_has_no_more_is_not_restored() -> None:
    with pytest.raises(InputError, match="no field 'gone'"):
        restore_line(Transcript(), Line("a", "gone", "One"), FEW, COUNTER)


def test_a_book_that_is_carried_on_lets_its_lines_go_once() -> None:
    one, two = (Line(name, "facts", name) for name in ("one", "two"))
    records = [
        BriefRecord(dropped=(one,)),
        BriefRecord(dropped=(one,), asks=1),
        BriefRecord(dropped=(two,)),
        BriefRecord(dropped=(one, two)),
    ]
    assert list_removed_lines(records) == (one, two)
    assert list_removed_lines([*records, BriefRecord(dropped=(one,))]) == (two, one)


def test_a_brief_is_read_from_its_records_alone() -> None:
    transcript = apply_edits(Operation.set("goal", "Play Bach"))
    for size in (0, 7):
        assert read_brief_record_at(transcript.records, size) == read_brief_record(transcript)
    assert read_brief_record_at((), 0) == BriefRecord()


@holds(st.lists(st.tuples(st.sampled_from(["goal", "facts"]), st.text(max_size=60)), max_size=6))
def test_the_lines_that_are_told_are_those_of_the_brief(given: list[tuple[str, str]]) -> None:
    transcript = Transcript()
    for field, text in given:
        transcript = apply_edits(Operation.add(field, f"that {text}"), before=transcript)
    record = read_brief_record(transcript)
    text = render_record(record, FEW, COUNTER)
    assert parse_brief_lines([f"<recalled>\nx\n</recalled>\n{text}", ""]) == set(text.splitlines()[1:-1])
    assert len(parse_brief_lines([text])) == len(record.content.lines)
