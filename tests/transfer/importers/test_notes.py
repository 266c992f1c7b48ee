"""Notes have a plural and a singular form."""

from __future__ import annotations

from longtalk.transfer.importers.notes import describe_unknown_kind, format_note
from longtalk.transfer.importers.tree import EMPTY


def test_one_and_many_have_their_own_words() -> None:
    assert format_note(EMPTY, 1) == "1 empty message was left out"
    assert format_note(EMPTY, 1200) == "1,200 empty messages were left out"
    many = "2 messages of the unknown type x became placeholders, with their content kept as metadata"
    assert format_note(describe_unknown_kind("x"), 2) == many


def test_a_kind_is_shown_short_and_on_one_line() -> None:
    assert format_note(describe_unknown_kind("a\n\x1b[2J" + "b" * 100), 1).startswith(
        "1 message of the unknown type a  [2Jbbb"
    )
    assert len(describe_unknown_kind("b" * 1000)) < 130
    assert "type unknown became" in describe_unknown_kind("")
