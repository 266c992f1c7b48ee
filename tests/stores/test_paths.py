"""Compare paths through segments with the plain lists of entries that they represent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from longtalk.stores._paths import Span, clip, find_base, find_segment, is_on_path, list_head_records, trace_path

Tree = dict[int, tuple[int, int | None]]


@st.composite
def trees(draw: st.DrawFn) -> tuple[Tree, dict[int, list[tuple[int, int]]]]:
    """Draw a tree of segments, and the path of each segment as (segment, position) pairs.

    The tree maps a segment to its start and to the segment that it continues.
    """
    tree: Tree = {}
    paths: dict[int, list[tuple[int, int]]] = {}
    for number in range(draw(st.integers(1, 6))):
        base = draw(st.sampled_from(sorted(tree))) if tree else None
        start = draw(st.integers(0, len(paths[base]))) if base is not None else 0
        if base is not None:
            base = find_base(trace_path(base, len(paths[base]), tree.__getitem__), start, lambda _: False)
        tree[number] = start, base
        own = [(number, position) for position in range(start, start + draw(st.integers(0, 4)))]
        paths[number] = [*(paths[base][:start] if base is not None else ()), *own]
    return tree, paths


@given(trees(), st.data())
def test_a_path_contains_its_entries(
    tree_and_paths: tuple[Tree, dict[int, list[tuple[int, int]]]], data: st.DataObject
) -> None:
    tree, paths = tree_and_paths
    tip = data.draw(st.sampled_from(sorted(tree)))
    entries = paths[tip]
    path = trace_path(tip, len(entries), tree.__getitem__)
    assert _entries(path) == entries
    start, stop = data.draw(st.integers(-2, 30)), data.draw(st.integers(-2, 30))
    clipped = clip(path, start, stop)
    assert _entries(clipped) == entries[max(0, start) : max(0, stop)]
    assert all(span.start < span.stop for span in clipped)
    for segment, position in {entry for each in paths.values() for entry in each}:
        assert is_on_path(path, segment, position) == ((segment, position) in entries)
    for segment, position in entries:
        assert find_segment(path, position) == segment
    assert find_segment(path, -1) == path[0].segment


def _entries(path: list[Span[int]]) -> list[tuple[int, int]]:
    return [(segment, position) for segment, start, stop in path for position in range(start, stop)]


def test_a_fork_skips_segments_without_entries_before_it_unless_they_have_own_records() -> None:
    path = [Span("a", 0, 3), Span("b", 3, 3), Span("c", 3, 5)]
    assert find_base(path, 4, lambda _: False) == "c"
    assert find_base(path, 3, lambda _: False) == "a"
    assert find_base(path, 3, lambda each: each == "b") == "b"
    assert find_base(path, 0, lambda _: False) == "a"


def test_a_head_has_the_newest_record_of_some_kinds_and_all_of_others() -> None:
    records = [("epoch", 1), ("quirks", 2), ("epoch", 3), ("unknown", 4), ("quirks", 5), ("pins", 6)]
    assert [number for _, number in list_head_records(records, lambda record: record[0])] == [2, 3, 4, 5, 6]
