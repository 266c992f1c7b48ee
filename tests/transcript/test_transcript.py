"""A transcript only grows: chained entries, turns that are added and replaced, records attached to a head."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.state import codec as state
from longtalk.transcript import turns as turns_module
from longtalk.transcript.pack_index import read_column
from longtalk.transcript.ranges import Ranges
from longtalk.transcript.transcript import Entry, Transcript, Turn, TurnIndex, Turns, link_entries, new_id, now
from longtalk.wires.neutral import event
from tests.support.strategies import OTHER, WIRE, WIRES, add_linked, additions, transcripts
from tests.support.strategies import turns as any_turn


def said(text: str, role: str = "user", wire: str = WIRE, mark: str = "") -> Entry:
    return Entry(
        role=role, wire=wire, native=b'{"role":"%s","content":"%s"}' % (role.encode(), text.encode()), mark=mark, at=1
    )


def turn(name: str, status: str = "complete", **more: object) -> Turn:
    return Turn(id=name, status=status, model="m", started=1, **more)  # type: ignore[arg-type]


def stored(transcript: Transcript) -> Transcript:
    """Return the same transcript, packed."""
    return state.decode(state.encode(transcript), wires=WIRES)


def exchange(transcript: Transcript, name: str, *entries: Entry) -> Transcript:
    return transcript.add(link_entries(transcript.head, name, 0, entries), turn=turn(name))


def note(transcript: Transcript, name: str) -> Transcript:
    return transcript.add(link_entries(transcript.head, name, 0, [event("it rains", source="app", at=1)]))


@st.composite
def half_packed(draw: st.DrawFn) -> Transcript:
    """Draw a transcript whose first part came from a state, with more entries added since."""
    transcript = stored(draw(transcripts()))
    for added, made_by in draw(st.lists(additions(), max_size=3)):
        transcript = add_linked(transcript, added, made_by, first=draw(st.integers(0, 3)))
    return transcript


# Entries


def test_entries_of_a_turn_are_numbered_and_each_is_the_parent_of_the_next() -> None:
    linked = link_entries("before-7", "t", 3, [said("a"), said("b"), said("c")])
    assert [entry.id for entry in linked] == ["t-3", "t-4", "t-5"]
    assert [entry.parent for entry in linked] == ["before-7", "t-3", "t-4"]
    assert {entry.turn for entry in linked} == {"t"}


@given(half_packed())
def test_every_entry_is_the_child_of_the_one_before(transcript: Transcript) -> None:
    entries = list(transcript)
    assert all(after.parent == before.id for before, after in pairwise(entries))
    assert transcript.head == (entries[-1].id if entries else None)
    assert len(transcript) == len(entries)


@given(transcripts())
def test_packing_changes_no_entry(transcript: Transcript) -> None:
    assert list(stored(transcript)) == list(transcript.fresh)


def test_entries_are_found_by_position_from_either_end() -> None:
    transcript = exchange(stored(exchange(Transcript(), "t", said("a"), said("b"))), "u", said("c"))
    assert [transcript[i].id for i in (0, 1, 2, -1, -2, -3)] == ["t-0", "t-1", "u-0", "u-0", "t-1", "t-0"]


@pytest.mark.parametrize("position", [2, -3])
def test_a_position_outside_is_an_index_error(position: int) -> None:
    with pytest.raises(IndexError):
        exchange(Transcript(), "t", said("a"), said("b"))[position]


def test_adding_leaves_the_transcript_as_it_was() -> None:
    before = exchange(Transcript(), "t", said("a"))
    after = exchange(before, "u", said("b"))
    assert (len(before), len(before.turns)) == (1, 1)
    assert (len(after), len(after.turns)) == (2, 2)


def test_an_empty_transcript_has_no_head() -> None:
    assert Transcript().head is None


def test_an_empty_transcript_that_goes_on_from_another_keeps_the_head() -> None:
    first = exchange(Transcript(), "t", said("a"))
    pack = stored(exchange(first, "u", said("b"))).pack
    index = type(pack.index)(parent="t-0")
    assert Transcript(pack=type(pack)(index, b"[]", 0)).head == "t-0"


# Equality


def test_transcripts_that_say_the_same_are_equal_packed_or_not() -> None:
    transcript = exchange(Transcript(), "t", said("a"))
    assert stored(transcript) == transcript
    assert (stored(transcript) != transcript) is False
    assert transcript != exchange(Transcript(), "t", said("b"))
    assert transcript != transcript.revise()
    assert transcript != transcript.add_record("brief", b"{}")
    assert transcript != "a transcript"


def test_transcripts_and_turns_have_no_hash() -> None:
    for value in (Transcript(), Turns()):
        with pytest.raises(TypeError, match="unhashable"):
            hash(value)


# Turns


def test_a_turn_is_replaced_by_its_next_version() -> None:
    begun = Transcript().add(turn=turn("t", "running"))
    assert list(begun.add(turn=turn("t")).turns) == [turn("t")]


def test_a_turn_from_a_state_is_replaced_by_its_next_version() -> None:
    begun = stored(Transcript().add(turn=turn("t")).add(turn=turn("u", "running", usage=(b"1", b"2"))))
    ended = begun.add(turn=turn("u", usage=(b"3",)))
    expected = [turn("t"), turn("u", usage=(b"3",))]
    assert list(ended.turns) == expected
    assert list(stored(ended).turns) == expected
    assert list(stored(stored(ended).add(turn=turn("v"))).turns) == [*expected, turn("v")]


def test_another_turn_is_added_behind() -> None:
    assert [t.id for t in Transcript().add(turn=turn("t")).add(turn=turn("u")).add(turn=turn("t")).turns] == [*"tut"]


@given(st.lists(any_turn, max_size=6), st.integers(0, 6))
def test_turns_are_a_sequence_wherever_they_come_from(made: list[Turn], packed: int) -> None:
    turns = Turns(TurnIndex().grow(0, made[:packed]), tuple(made[packed:]))
    assert len(turns) == len(made)
    assert list(turns) == made
    assert turns[1:-1] == tuple(made[1:-1])
    assert turns[::-1] == tuple(made[::-1])
    assert turns == Turns(fresh=tuple(made))
    assert Turns(turns.to_index()) == turns
    for i in range(-len(made), len(made)):
        assert turns[i] == made[i]


@pytest.mark.parametrize("position", [1, -2])
def test_a_turn_outside_is_an_index_error(position: int) -> None:
    with pytest.raises(IndexError):
        Turns(fresh=(turn("t"),))[position]


def test_turns_are_not_equal_to_something_else() -> None:
    assert Turns() != ()
    assert Turns(fresh=(turn("t"),)) != Turns(fresh=(turn("u"),))


def test_an_error_that_quotes_no_unicode_can_be_stored() -> None:
    failed = Transcript().add(turn=turn("t", "failed", error="no such file: \udcff.txt"))
    assert stored(failed).turns[0].error == "no such file: \\udcff.txt"


# Records and revisions


def test_a_record_holds_up_to_the_head() -> None:
    transcript = exchange(Transcript(), "t", said("a"), said("b")).add_record("brief", b"{}")
    (record,) = transcript.records
    assert (record.kind, record.entry, record.data) == ("brief", "t-1", b"{}")
    assert record.at > 0


def test_a_record_on_nothing_names_no_entry() -> None:
    assert Transcript().add_record("brief", b"{}").records[0].entry == ""


def test_a_revision_counts_up_and_is_stamped() -> None:
    first = Transcript().revise()
    second = first.revise()
    assert (first.revision, second.revision) == (1, 2)
    assert first.created == first.updated > 0
    assert second.created == first.created <= second.updated


def test_ids_differ_and_can_be_read_aloud() -> None:
    made = {new_id() for _ in range(1_000)}
    assert len(made) == 1_000
    assert all(len(name) == 12 and not set(name) & set("lo01") for name in made)


def test_now_is_in_milliseconds() -> None:
    assert 1_600_000_000_000 < now() < 4_000_000_000_000


# Exchanges


@pytest.mark.parametrize("packed", [False, True])
def test_an_exchange_is_a_turn_with_the_events_before_it(packed: bool) -> None:
    transcript = exchange(Transcript(), "t", said("a"), said("b", "assistant"))
    transcript = note(note(transcript, "n1"), "n2")
    transcript = exchange(transcript, "u", said("c"), said("d", "assistant"), said("e", "tool"), said("f", "assistant"))
    transcript = note(transcript, "n3")
    transcript = stored(transcript) if packed else transcript
    assert transcript.exchanges() == [(0, 2), (2, 8), (8, 9)]


def test_a_turn_that_goes_on_after_a_state_is_one_exchange() -> None:
    transcript = stored(exchange(Transcript(), "t", said("a")))
    transcript = transcript.add(link_entries(transcript.head, "t", 1, [said("b", "assistant")]))
    assert transcript.exchanges() == [(0, 2)]


def test_a_turn_that_ends_with_an_event_is_one_exchange() -> None:
    transcript = exchange(Transcript(), "t", said("a"), event("stopped", source="app", at=1))
    assert transcript.exchanges() == [(0, 2)]


def test_nothing_said_has_no_exchanges() -> None:
    assert Transcript().exchanges() == []


@given(half_packed())
def test_exchanges_cover_everything_once_and_cut_no_turn(transcript: Transcript) -> None:
    found = transcript.exchanges()
    assert [i for start, stop in found for i in range(start, stop)] == list(range(len(transcript)))
    entries = list(transcript)
    assert all(entries[stop - 1].turn != entries[stop].turn for _, stop in found[:-1])
    assert all(any(entry.kind == "message" for entry in entries[start:stop]) for start, stop in found[:-1])
    assert all(entries[stop].role not in ("assistant", "tool") for _, stop in found[:-1])


def test_an_answer_that_came_in_a_turn_of_its_own_belongs_to_the_message_before() -> None:
    transcript = exchange(exchange(Transcript(), "a", said("hi")), "b", said("hello", role="assistant"))
    assert transcript.exchanges() == [(0, 2)]
    assert exchange(transcript, "c", said("more")).exchanges(2) == [(2, 3)]


@given(half_packed())
def test_tokens_of_a_range_are_those_of_its_entries(transcript: Transcript) -> None:
    for start in range(len(transcript)):
        counted = sum(entry.tokens for entry in list(transcript)[start:])
        assert transcript.tokens(start, len(transcript)) == counted


# Splicing


def spliced(
    transcript: Transcript, start: int, stop: int, wire: str, render: Callable[[Entry], bytes | None]
) -> list[bytes | memoryview]:
    walk = transcript.walk(start, stop, lambda _, other: other == wire)
    pieces = [render(item) if isinstance(item, Entry) else item for _, item in walk]
    return [piece for piece in pieces if piece is not None]


def rendered(entry: Entry) -> bytes | None:
    return (
        None
        if entry.condition == "empty"
        else b'{"rendered":"%s"}' % entry.id.encode("utf-8", "backslashreplace").hex().encode()
    )


@given(half_packed(), st.sampled_from([WIRE, OTHER, ""]), st.data())
def test_any_range_splices_to_what_its_entries_say_one_by_one(
    transcript: Transcript, wire: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(transcript)))
    stop = data.draw(st.integers(0, len(transcript)))
    one_by_one = [
        entry.native if entry.wire == wire and entry.mark in ("", "checked") and not entry.bound else rendered(entry)
        for entry in list(transcript)[start:stop]
    ]
    expected = b",".join(piece for piece in one_by_one if piece is not None)
    assert b",".join(spliced(transcript, start, stop, wire, rendered)) == expected


def test_neighbours_of_one_wire_go_as_one_piece() -> None:
    transcript = stored(exchange(Transcript(), "t", *[said(str(i)) for i in range(50)]))
    (piece,) = spliced(transcript, 10, 40, WIRE, rendered)
    assert bytes(piece) == b",".join(entry.native for entry in list(transcript)[10:40])


def test_what_carries_a_mark_is_rendered() -> None:
    transcript = exchange(Transcript(), "t", said("a"), said("b", mark="length"), said("c", mark="empty"), said("d"))
    seen: list[str] = []

    def render(entry: Entry) -> bytes | None:
        seen.append(entry.id)
        return rendered(entry)

    for either in (transcript, stored(transcript)):
        assert len(spliced(either, 0, 4, WIRE, render)) == 3
    assert seen == ["t-1", "t-2"] * 2


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=8), st.integers(0, 60))
def test_positions_and_indexes_agree_whatever_was_shed(gaps: list[tuple[int, int]], i: int) -> None:
    ranges, at = [], 0
    for gap, count in gaps:
        ranges.append((at + gap, count))
        at += gap + count
    shed = {position for first, count in ranges for position in range(first, first + count)}
    kept = [position for position in range(200) if position not in shed]
    transcript = Transcript(shed=Ranges(entries=tuple(ranges)))
    assert transcript.position(i) == kept[i]
    assert transcript.index_of(i) == sum(position < i for position in kept)


class Counted(tuple):  # type: ignore[type-arg]
    """A tuple that counts how often it is walked through."""

    walks = 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        Counted.walks += 1
        return super().__iter__()


def test_finding_positions_does_not_walk_through_all_ranges_each_time() -> None:
    transcript = Transcript(shed=Ranges(entries=Counted((2 * i + 1, 1) for i in range(1_000))))
    Counted.walks = 0
    assert [transcript.index_of(transcript.position(i)) for i in range(1_000)] == list(range(1_000))
    assert Counted.walks < 10


def test_listing_the_turns_of_a_state_reads_each_column_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 1_000
    turns = Turns(fresh=tuple(turn(f"t{i}", usage=(b"{}",) * (i % 3)) for i in range(count)))
    packed, size = Turns(turns.to_index()), 0

    def counting(code: str, data: bytes) -> object:
        nonlocal size
        size += len(data)
        return read_column(code, data)

    monkeypatch.setattr(turns_module, "read_column", counting)
    assert list(packed) == list(turns)
    assert size <= 32 * count


def test_a_clock_before_1970_counts_as_1970(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: -86_400 * 10**9)
    assert now() == 0
    revised = exchange(Transcript(), "t", said("a")).revise()
    assert stored(revised).updated == 0
