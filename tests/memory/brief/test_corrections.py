"""Test corrections: what a line said before is known, until it is said again."""

from __future__ import annotations

import msgspec
import pytest

from longtalk.memory.brief.corrections import make_correction_finder
from longtalk.memory.brief.edits import edit_brief, revoke_line
from longtalk.memory.brief.operations import Operation
from longtalk.memory.brief.record import BriefRecord, read_brief_record, redact_since
from longtalk.memory.brief.schema import Brief
from longtalk.memory.cards.capture import apply_cards
from longtalk.tokens import Estimator
from longtalk.transcript.transcript import Transcript

STRINGS, NEW_STRINGS = "Dominant strings since May, 62 euros", "Dominant strings since June, 68 euros"


def edit(*operations: Operation, before: Transcript | None = None) -> Transcript:
    return edit_brief(Transcript() if before is None else before, operations, Brief(), Estimator())


def replace(transcript: Transcript, text: str) -> Transcript:
    line = read_brief_record(transcript).content.lines[0]
    return edit(Operation.revoke(line.id), Operation.add(line.field, text), before=transcript)


def list_corrections(transcript: Transcript) -> list[tuple[str, str]]:
    return [(each.old.text, each.text) for each in read_brief_record(transcript).corrections]


def test_a_line_that_the_app_replaces_is_corrected_and_one_that_it_revokes_forgotten() -> None:
    noted = edit(Operation.add("facts", STRINGS))
    assert list_corrections(replace(noted, NEW_STRINGS)) == [(STRINGS, NEW_STRINGS)]
    line = read_brief_record(noted).content.lines[0]
    assert list_corrections(revoke_line(noted, line.id, Brief(), Estimator(), [])) == [(STRINGS, "")]
    assert list_corrections(edit(Operation.remove("facts", line.id), before=noted)) == []


def test_a_correction_follows_what_is_corrected_again_and_ends_when_the_old_text_is_said_again() -> None:
    twice = replace(replace(edit(Operation.add("facts", STRINGS)), NEW_STRINGS), "Steel strings")
    assert list_corrections(twice) == [(STRINGS, "Steel strings"), (NEW_STRINGS, "Steel strings")]
    line = read_brief_record(twice).content.lines[0]
    gone = revoke_line(twice, line.id, Brief(), Estimator(), [])
    assert {text for _, text in list_corrections(gone)} == {""}
    back = edit(Operation.add("facts", STRINGS), before=gone)
    assert [old for old, _ in list_corrections(back)] == [NEW_STRINGS, "Steel strings"]


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ('{"-facts":["birthday is"],"+facts":["birthday is 19 September"]}', ["birthday is 26 September"]),
        ('{"-facts":["birthday is"],"+facts":["owns a 1740 violin"]}', []),
        ('{"-facts":["birthday is"]}', []),
    ],
)
def test_a_line_that_the_model_replaces_by_one_like_it_is_corrected(card: str, expected: list[str]) -> None:
    noted = edit(Operation.add("facts", "birthday is 26 September"))
    changed, is_usable = apply_cards(noted, [card], Brief(), Estimator(), requested="small", at=1)
    assert is_usable
    assert [old for old, _ in list_corrections(changed)] == expected


def test_a_redaction_takes_what_may_quote_the_entry_out_of_the_corrections() -> None:
    record = read_brief_record(replace(edit(Operation.add("facts", STRINGS)), NEW_STRINGS))
    (own,) = record.corrections
    by_model = msgspec.structs.replace(own, old=msgspec.structs.replace(own.old, entry="t-1"))
    assert redact_since(record, 0, 0).corrections == (own,)
    assert redact_since(BriefRecord(corrections=(by_model,)), 0, 0).corrections == ()


def test_a_redaction_takes_a_correction_out_whose_new_text_may_quote_the_entry() -> None:
    record = read_brief_record(replace(edit(Operation.add("facts", STRINGS)), NEW_STRINGS))
    assert len(record.corrections) == 1
    lines = tuple(msgspec.structs.replace(line, entry="t-1", at=1) for line in record.content.lines)
    by_model = msgspec.structs.replace(record, content=msgspec.structs.replace(record.content, lines=lines))
    assert redact_since(by_model, 1, 0).corrections == ()
    assert redact_since(by_model, 2, 0).corrections == record.corrections


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("I ordered Dominants. They cost me 62 euros.", True),
        ("Dominant strings are 62 euros.", True),
        ("I have had Dominant strings since June, for 68 euros, not since May for 62.", False),
        ("Dominant strings are good.", False),
        ("What is 62 times 4?", False),
    ],
)
def test_a_text_says_the_old_thing_if_it_has_most_of_its_words_and_more_of_the_old_than_of_the_new(
    text: str, is_found: bool
) -> None:
    corrections = read_brief_record(replace(edit(Operation.add("facts", STRINGS)), NEW_STRINGS)).corrections
    assert (make_correction_finder(corrections)(text) is not None) == is_found
