"""Passages that recall has quoted, and the record that counts them."""

from __future__ import annotations

from longtalk.transcript.passages import Passage, RecalledPassages


def test_passages_that_overlap_are_counted_as_the_newest_of_them() -> None:
    counted = RecalledPassages(0)
    for new in (Passage(4, 0, 60, text="a"), Passage(4, 40, 90, text="b"), Passage(4, 0, 60, text="c")):
        counted = counted.add([new], least=2.0)
    assert counted.list_promoted(2.0) == [Passage(4, 0, 60, turns=3, text="c")]
    assert len(counted.passages) == 1


def test_of_passages_that_overlap_in_one_turn_the_best_is_counted_once() -> None:
    best, worse = Passage(4, 0, 60), Passage(4, 40, 90)
    counted = RecalledPassages(0).add([best, worse], least=2.0).add([best, worse], least=2.0)
    assert counted.passages == (Passage(4, 0, 60, turns=2),)


def test_passages_that_only_touch_are_counted_apart() -> None:
    first, second, other = Passage(4, 0, 60), Passage(4, 60, 90), Passage(5, 0, 60)
    counted = RecalledPassages(0).add([first, second, other], least=2.0)
    assert counted.passages == (first, second, other)
