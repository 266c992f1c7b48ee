"""Notes have a plural and a singular form."""

from __future__ import annotations

from longtalk.transfer.importers.notes import counted, of_kind
from longtalk.transfer.importers.tree import EMPTY


def test_one_and_many_have_their_own_words() -> None:
    assert counted(EMPTY, 1) == "1 message says nothing, and was left out"
    assert counted(EMPTY, 1200) == "1,200 messages say nothing, and were left out"
    assert counted(of_kind("x"), 2) == "2 messages of the kind x are kept beside their places, and not sent"


def test_a_kind_is_shown_short_and_on_one_line() -> None:
    assert counted(of_kind("a\n\x1b[2J" + "b" * 100), 1).startswith("1 message of the kind a  [2Jbbb")
    assert len(of_kind("b" * 1000)) < 120
    assert "kind unknown are" in of_kind("")
