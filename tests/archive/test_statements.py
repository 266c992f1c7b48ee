"""Test which messages are found to say what a line of a brief says, or said before it was corrected or forgotten."""

from __future__ import annotations

from longtalk.archive.history import HistoryEntry
from longtalk.archive.statements import LineStatements, find_statements
from longtalk.memory.brief.corrections import Correction
from longtalk.memory.brief.lines import Line

TEXTS = (
    "Is the Lindqvists' little girl here yet?",
    "Not that I know of.",
    "The strings cost me 62 euros, the Dominants.",
    "62 euros is a fair price.",
    "No, the Dominants were 68 euros.",
    "We need other strings soon.",
    "Let us practise scales.",
)
STRINGS = Line("a", "facts", "Dominant strings cost 62 euros", "t1-1", at=5)


def history(*texts: str) -> list[HistoryEntry]:
    roles = ("user", "assistant")
    return [
        HistoryEntry(f"t{i // 2}-{i % 2}", f"t{i // 2}", roles[i % 2], text, at=0, native=b"", position=i)
        for i, text in enumerate(texts)
    ]


def find(*lines: Line, removed: tuple[Line, ...] = (), corrections: tuple[Correction, ...] = ()) -> LineStatements:
    changed = {line.id: 7 for line in removed}
    return find_statements(history(*TEXTS), lines, removed, corrections, changed)[-1]


def test_a_message_says_a_line_by_the_word_that_tells_it_from_the_others_in_any_form() -> None:
    assert find(Line("b", "facts", "Lindqvist baby")).says == (0,)


def test_a_message_with_few_and_frequent_words_of_a_line_does_not_say_it() -> None:
    assert 5 not in find(Line("b", "facts", "strings cost 62 euros since May")).says


def test_messages_that_say_more_of_the_old_than_of_the_new_are_outdated() -> None:
    now = Line("n", "facts", "Dominant strings cost 68 euros")
    found = find(now, corrections=(Correction(STRINGS, now.text),))
    assert (found.outdated, found.changed) == ((2, 3), 0)
    found = find(now, removed=(STRINGS,), corrections=(Correction(STRINGS, now.text),))
    assert (found.outdated, found.now, found.changed, found.forgotten) == ((2, 3), now.text, 7, False)


def test_what_was_forgotten_is_found_in_all_messages_that_say_it() -> None:
    found = find(removed=(STRINGS,), corrections=(Correction(STRINGS),))
    assert set(found.outdated) >= {2, 3}
    assert (found.forgotten, found.now, found.says) == (True, "", ())
    assert not find(removed=(STRINGS,)).forgotten


def test_a_message_of_the_exchange_in_which_a_line_was_noted_says_it_with_one_of_its_words() -> None:
    text = "plays scales on the new strings, at a fair price, for the girl"
    assert 6 in find(Line("s", "facts", text, "t3-1")).says
    assert 6 not in find(Line("s", "facts", text)).says


def test_an_empty_line_is_said_by_no_message() -> None:
    assert find(Line("e", "facts", "the")).says == ()
