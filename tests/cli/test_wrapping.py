"""On a terminal, the lines of an answer are broken between words while it arrives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.cli.tables import measure
from longtalk.cli.wrapping import WordWrap
from tests.cli.helpers import Terminal, streamed
from tests.support.loopback import Loopback

CODE = "```python\nprint('" + "a long line of code " * 4 + "')\n```\n"


def wrap(pieces: list[str], columns: int) -> str:
    """What a terminal of this width gets of a text that arrives in pieces."""
    wrapped = WordWrap(columns)
    return "".join([*map(wrapped.add, pieces), wrapped.end()])


def test_a_word_that_does_not_fit_begins_the_next_line() -> None:
    assert wrap(["All of them a pirate would like."], 20) == "All of them a pirate\nwould like."


@given(st.text("ab cd\n", max_size=200), st.integers(1, 9), st.integers(25, 60))
def test_however_a_text_arrives_it_is_broken_at_the_same_words(text: str, size: int, columns: int) -> None:
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    shown = wrap(pieces, columns)
    assert shown.split() == text.split() or max(map(len, text.split())) > 20
    assert "".join(shown.split()) == "".join(text.split())
    if max(map(len, text.split()), default=0) <= 20:
        assert max(map(measure, shown.split("\n"))) <= columns


@pytest.mark.parametrize("letter", ["x", "e\u0301", "\u0301"])
def test_little_of_a_long_word_that_arrives_in_pieces_is_held_back(letter: str) -> None:
    wrapped = WordWrap(60)
    given = shown = 0
    for piece in ["Here: ", *[letter] * 2_000]:
        given, shown = given + len(piece), shown + len(wrapped.add(piece))
        assert given - shown <= 510
    assert shown + len(wrapped.end()) == given


def test_no_more_blanks_than_fill_a_line_are_kept() -> None:
    assert wrap(["a", *[" "] * 2_000, "b"], 60) == "a\nb"
    assert len(wrap([*[" "] * 2_000, "b"], 60)) == 61


def test_the_lines_of_a_text_stay_as_they_are_where_they_fit() -> None:
    text = "- one\n  - two\n\n    three  \nfour"
    assert wrap(list(text), 40) == text.replace("three  ", "three")


def test_code_is_not_broken_so_that_it_can_be_copied() -> None:
    text = f"Use this:\n{CODE}{'word ' * 10}"
    shown = wrap(list(text), 30)
    assert CODE in shown
    assert max(map(len, shown.partition(CODE)[2].split("\n"))) <= 30


def test_text_without_spaces_is_broken_where_its_script_allows_it() -> None:
    assert wrap(["弓をどう持てばいいですか"], 10) == "弓をどう持\nてばいいで\nすか"


def test_most_words_are_shown_as_soon_as_they_begin() -> None:
    assert WordWrap(60).add("Hel") == "Hel"


def test_an_answer_at_a_terminal_has_whole_words_at_the_ends_of_its_lines(
    loopback: Loopback, environment: dict[str, str]
) -> None:
    loopback.say(streamed("lightly " * 20))
    question = ["ask", "-n", "-m", "compatible:m", "--base-url", loopback.url, "How?"]
    person = Terminal(question, environment | {"TERM": "xterm", "COLUMNS": "50"})
    shown = person.rest().replace("\r", "")
    assert person.exit_code() == 0
    person.close()
    lines = [line.split() for line in shown.split("\n") if "lightly" in line]
    assert len(lines) == 4
    assert {word for line in lines for word in line} == {"lightly"}
