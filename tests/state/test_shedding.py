"""Shed parts can be joined again, and nothing else is accepted in their place."""

import random
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import InputError, Seal, join, peek
from longtalk.errors import BadState
from longtalk.state import codec as states
from longtalk.state import sealing as seals
from longtalk.state import shedding as sheds
from longtalk.state.shedding import encode_part, split
from longtalk.transcript.ranges import Ranges
from longtalk.transcript.transcript import Entry, Record, Transcript, Turn, link_entries
from tests.support.cpu_time import measure_cpu_time
from tests.support.strategies import WIRE, WIRES, add_linked, additions, transcripts

KEY = Seal.new_key()


@pytest.fixture(autouse=True, scope="module")
def _other_wires() -> Iterator[None]:
    """Allow the wire of the property tests' transcripts, which does not exist."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sheds, "NAMES", WIRES)
        yield


def read(state: bytes, **more: Any) -> Transcript:
    return states.decode(state, wires=WIRES, **more)


def said(text: str) -> Entry:
    return Entry(role="user", wire=WIRE, native=b'{"role":"user","content":"%s"}' % text.encode(), at=5, tokens=3)


def talk(*turns: str, on: Transcript | None = None) -> Transcript:
    """Return a conversation with two entries per turn."""
    transcript = Transcript(created=1) if on is None else on
    for name in turns:
        report = b'{"n":"%s"}' % name.encode()
        # Some turns have responses, others were made by a version that kept none.
        responses = (report,) * (ord(name[0]) % 3)
        turn = Turn(id=name, status="complete", model=f"m{name}", started=1, usage=(report,), responses=responses)
        transcript = transcript.add(
            link_entries(transcript.head, name, 0, [said(name), said(name * 2)]), turn=turn
        ).revise()
    return transcript


def carried(*turns: str) -> tuple[list[bytes], Transcript, Transcript]:
    """Return the shed parts, the remaining state and the whole of a conversation that sheds older turns as it goes."""
    small, whole, shed = Transcript(created=1), Transcript(created=1), []
    for name in turns:
        small, whole = talk(name, on=small), talk(name, on=whole)
        small, part = split(small, [(0, len(small) - 2)])
        if part.shed.number:
            shed.append(encode_part(part))
    small = read(states.encode(small))
    return shed, small, msgspec.structs.replace(whole, updated=small.updated)


def refused(*given: Any, **more: Any) -> BadState:
    with pytest.raises(BadState) as caught:
        join(*given, **more)
    assert any(caught.value.state is each for each in given)
    assert caught.value.reason in BadState.REASONS
    assert str(caught.value).endswith(".")
    return caught.value


def texts(transcript: Transcript) -> list[str]:
    return [entry.id for entry in transcript]


# Round trips


@given(st.data())
def test_whatever_has_left_at_any_time_comes_back_in_any_order(data: st.DataObject) -> None:
    small = whole = Transcript()
    shed: list[bytes] = []
    for number in range(data.draw(st.integers(1, 6))):
        (added, turn), first = data.draw(additions()), data.draw(st.integers(0, 3))
        more = [Record("k", "", at, b"{}") for at in range(2 * number, 2 * number + data.draw(st.integers(0, 2)))]
        small, whole = (
            msgspec.structs.replace(
                add_linked(each, added, turn, first), records=(*each.records, *more), revision=number, updated=number
            )
            for each in (small, whole)
        )
        if small.records and data.draw(st.booleans()):
            old, new = data.draw(st.sampled_from(small.records)), Record("k", "", 1_000 + number, b"")
            small, whole = (replaced(each, old, new) for each in (small, whole))
        if data.draw(st.booleans()):
            size = len(small)
            stays = data.draw(st.one_of(st.just(set()), st.sets(st.integers(0, size - 1)))) if size else set()
            stays |= {size - 1} if stays else set()
            before = list(small)
            small, part = split(small, [(i, i + 1) for i in range(size) if i not in stays])
            assert list(small) == [entry for i, entry in enumerate(before) if i in stays]
            assert list(part) == [entry for i, entry in enumerate(before) if i not in stays]
            assert (small.records, part.records) == (whole.records, ())
            assert [list(whole)[small.position(i)] for i in range(len(small))] == list(small)
            assert (small.size, small.head) == (len(whole), whole.head)
            assert [*small.turns][-1:] == [*whole.turns][-1:]
            if part.shed.number:
                shed.append(states.encode(part, part=True, compress_over=data.draw(st.sampled_from([0, 2**62]))))
                assert read(shed[-1], part=True) == part
        if data.draw(st.booleans()):
            small = read(states.encode(small))
    joined = read(join(*data.draw(st.permutations(shed)), states.encode(small)))
    assert joined == whole
    assert bytes(joined.pack.array) == b"[%s]" % b",".join(entry.native for entry in whole)


def replaced(transcript: Transcript, old: Record, new: Record) -> Transcript:
    records = (*[record for record in transcript.records if record != old], new)
    return transcript.with_records(records)


@given(transcripts(), st.data())
def test_the_columns_of_what_is_put_together_are_those_of_the_whole(whole: Transcript, data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.integers(0, len(whole) - 2))) if len(whole) > 1 else set()
    state = states.encode(whole)
    small, part = split(read(state), [(i, i + 1) for i in gone])
    shed = [encode_part(part)] if part.shed.number else []
    assert read(join(*shed, states.encode(small))).pack.index == read(state).pack.index


def test_a_conversation_that_sheds_every_turn_is_whole_again() -> None:
    shed, small, whole = carried("a", "b", "c", "d")
    assert texts(small) == ["d-0", "d-1"]
    assert small[0].parent == "c-1"
    assert [turn.id for turn in small.turns] == ["d"]
    assert small.shed.entries == ((0, 6),)
    assert small.shed.number == len(shed) == 3
    assert read(join(*shed, states.encode(small))) == whole


def test_what_stayed_in_the_middle_can_leave_later() -> None:
    whole = talk("a", "b", "c", "d")
    small, first = split(whole, [(0, 2), (4, 6)])
    assert texts(small) == ["b-0", "b-1", "d-0", "d-1"]
    assert [entry.parent for entry in small] == ["a-1", "b-0", "c-1", "d-0"]
    assert small.shed.entries == ((0, 2), (4, 2))
    assert (first.shed.number, first.shed.chain) == (1, "")
    small, second = split(read(states.encode(small)), [(0, 2)])
    assert texts(small) == ["d-0", "d-1"]
    assert small.shed.entries == ((0, 6),)
    assert second.shed.entries == ((2, 2),)
    assert second.shed.turns == ((1, 1),)
    assert read(join(encode_part(second), encode_part(first), states.encode(small))) == whole


def test_a_part_that_spans_what_left_before_names_only_what_it_holds() -> None:
    small, first = split(talk("a", "b", "c", "d"), [(2, 4)])
    small, second = split(small, [(0, 4)])
    assert second.shed.entries == ((0, 2), (4, 2))
    assert read(join(encode_part(first), encode_part(second), states.encode(small))) == talk_like(small, "abcd")


def talk_like(small: Transcript, names: str) -> Transcript:
    whole = talk(*names)
    return msgspec.structs.replace(whole, created=small.created, updated=small.updated)


def test_a_state_that_shed_goes_on_as_if_it_had_not() -> None:
    shed, small, whole = carried("a", "b")
    small, whole = (talk("c", on=each) for each in (small, whole))
    assert list(small)[-2:] == list(whole)[-2:]
    assert len(read(join(*shed, states.encode(small)))) == 6


def test_what_is_whole_again_can_shed_again() -> None:
    shed, small, _ = carried("a", "b", "c")
    again = read(join(*shed, states.encode(small)))
    assert again.shed == Ranges()
    small, part = split(again, [(0, 4)])
    assert part.shed.number == 1
    assert texts(read(join(encode_part(part), states.encode(small)))) == texts(again)


def test_all_entries_may_leave_and_the_next_goes_on_from_them() -> None:
    small, part = split(talk("a", "b"), [(0, 4)])
    assert len(small) == 0
    assert small.head == "b-1"
    assert [turn.id for turn in small.turns] == ["b"]
    small = talk("c", on=read(states.encode(small)))
    assert (small[0].parent, small.position(0)) == ("b-1", 4)
    assert texts(read(join(encode_part(part), states.encode(small)))) == ["a-0", "a-1", "b-0", "b-1", "c-0", "c-1"]


def test_when_nothing_leaves_nothing_changes() -> None:
    whole = talk("a", "b")
    small, part = split(whole, [(1, 1)])
    assert small is whole
    assert part.shed.number == 0


@pytest.mark.parametrize("gone", [[(-1, 1)], [(0, 5)], [(3, 4)], [(1, 4)]])
def test_what_is_not_here_and_the_last_entry_can_not_leave(gone: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match=r"out of range|last entry"):
        split(talk("a", "b"), gone)


def test_ranges_that_overlap_leave_once() -> None:
    small, part = split(talk("a", "b"), [(1, 3), (0, 2)])
    assert (texts(small), texts(part)) == (["b-1"], ["a-0", "a-1", "b-0"])


# Turns and records


def empty(transcript: Transcript, name: str) -> Transcript:
    """Return the transcript with a turn that has no entries."""
    return transcript.add(turn=Turn(id=name, status="failed", model="m", started=1))


def left(transcript: Transcript, *gone: tuple[int, int]) -> list[str]:
    return [turn.id for turn in split(transcript, gone)[1].turns]


def test_a_turn_leaves_when_all_of_its_entries_do() -> None:
    whole = talk("a", "b", "c")
    assert left(whole, (0, 2)) == ["a"]
    assert left(whole, (0, 3)) == ["a"]
    assert left(whole, (2, 4)) == ["b"]
    assert left(split(whole, [(0, 3)])[0], (0, 1)) == ["b"]


def test_the_last_turn_stays_whatever_leaves() -> None:
    assert left(talk("a", "b"), (0, 4)) == ["a"]
    assert left(empty(talk("a", "b"), "c"), (0, 4)) == ["a"]
    assert left(talk("a"), (0, 2)) == []


def test_a_turn_without_entries_leaves_with_those_before_the_first_that_stays() -> None:
    whole = talk("c", "d", on=empty(talk("b", on=empty(Transcript(), "a")), "x"))
    assert left(whole, (0, 2)) == ["a", "b", "x"]
    assert left(whole, (2, 4)) == ["a", "c"]
    assert left(empty(whole, "z"), (0, 4)) == ["a", "b", "x", "c"]


def test_records_stay_whatever_leaves() -> None:
    records = tuple(Record("k", entry, 1, b"") for entry in ("", "a-1", "b-1"))
    whole = talk("a", "b").with_records(records)
    small, part = split(whole, [(0, 4)])
    assert (small.records, part.records) == (records, ())
    assert split(whole, [])[0] is whole
    assert read(join(encode_part(part), states.encode(small))) == whole


def test_what_only_a_part_names_is_not_kept_in_the_state() -> None:
    turn = Turn(id="a", status="failed", model="m", started=1, error="long story" * 100)
    whole = talk("b", on=Transcript().add(link_entries(None, "a", 0, [said("x")]), turn=turn))
    small, part = split(whole, [(0, 1)])
    assert b"long story" not in states.encode(small)
    assert b"long story" in encode_part(part)


# Parts are not states


def test_a_part_is_refused_as_a_state_and_a_state_as_a_part() -> None:
    shed, small, _ = carried("a", "b")
    with pytest.raises(BadState, match="a part that a state has shed; use `join`") as caught:
        read(shed[0])
    assert (caught.value.reason, caught.value.state) == ("part", shed[0])
    for state in (states.encode(small), b'{"version":1,"provider":"openai","messages":[]}'):
        with pytest.raises(BadState, match="the value is a state") as caught:
            read(state, part=True)
        assert (caught.value.reason, caught.value.state) == ("wrong_part", state)


def test_a_peek_tells_a_part_from_a_state() -> None:
    shed, small, _ = carried("a", "b")
    assert peek(shed[0]).part
    assert (peek(shed[0]).entries, peek(shed[0]).revision) == (2, 2)
    assert not peek(states.encode(small)).part


# Parts that do not belong to the state


def test_nothing_to_join_is_a_mistake() -> None:
    with pytest.raises(InputError, match="join"):
        join()


@pytest.mark.parametrize("kind", [list, tuple])
def test_what_was_shed_in_a_list_is_told_with_the_asterisk(kind: Callable[[list[bytes]], Any]) -> None:
    shed, small, _ = carried("a", "b", "c")
    state = states.encode(small)
    for arguments in ((kind(shed), state), (kind([]), state), (kind([*shed, state]),), (state, kind(shed))):
        with pytest.raises(InputError, match=r"`join\(\*shed, state\)`, with an asterisk"):
            join(*arguments)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_any_kind_are_joined(kind: Callable[[bytes], bytes]) -> None:
    shed, small, whole = carried("a", "b", "c")
    assert read(join(*map(kind, shed), kind(states.encode(small)))) == whole


def test_a_state_that_misses_nothing_comes_back_as_it_is() -> None:
    for state in (states.encode(talk("a")), b'{"version":1,"provider":"openai","messages":[]}'):
        assert join(state) is state


@pytest.mark.parametrize("given", ["text", None, 5])
def test_only_bytes_are_joined(given: Any) -> None:
    state = states.encode(talk("a"))
    assert refused(given).reason == "type"
    assert "Argument 1" in str(refused(given, state))


@pytest.mark.parametrize(
    ("there", "named"),
    [("", "1 to 5"), ("2", "1, 3 to 5"), ("135", "2, 4"), ("1234", "number 5"), ("2345", "number 1")],
)
def test_what_is_missing_is_named(there: str, named: str) -> None:
    shed, small, _ = carried(*"abcdef")
    problem = refused(*[shed[int(n) - 1] for n in there], states.encode(small))
    assert problem.reason == "missing_part"
    assert f"{named} of 5." in str(problem)
    assert problem.state == states.encode(small)


def test_what_is_of_another_conversation_is_named() -> None:
    shed, small, _ = carried(*"abcd")
    others, _, _ = carried(*"wxyz")
    for n in range(3):
        problem = refused(*shed[:n], others[n], *shed[n + 1 :], states.encode(small))
        assert problem.reason == "wrong_part"
        assert f"Argument {n + 1} " in str(problem)
        assert problem.state is others[n]
        problem = refused(*shed, others[n], states.encode(small))
        assert (problem.reason, problem.state) == ("wrong_part", others[n])


def test_what_another_branch_has_shed_is_named() -> None:
    shed, _, _ = carried("a", "b", "c")
    before = msgspec.structs.replace(read(join(shed[0], states.encode(split_once("a", "b")))), updated=1)
    small, part = split(talk("x", on=before), [(0, 4)])
    problem = refused(shed[0], encode_part(part), states.encode(small))
    assert (problem.reason, problem.state) == ("wrong_part", shed[0])


def split_once(*names: str) -> Transcript:
    return carried(*names)[1]


def test_a_part_given_twice_is_named() -> None:
    shed, small, _ = carried("a", "b", "c")
    problem = refused(shed[0], shed[1], shed[0], states.encode(small))
    assert problem.reason == "wrong_part"
    assert "Argument 3" in str(problem)
    assert "twice" in str(problem)


def test_a_part_for_a_state_that_misses_nothing_is_refused() -> None:
    shed, _, whole = carried("a", "b")
    assert refused(shed[0], states.encode(whole)).reason == "wrong_part"


def test_a_part_that_a_later_state_has_shed_is_refused() -> None:
    shed, small, _ = carried("a", "b", "c")
    earlier = read(states.encode(split(talk("a", "b"), [(0, 2)])[0]))
    problem = refused(*shed, states.encode(earlier))
    assert (problem.reason, problem.state) == ("wrong_part", shed[1])
    assert "later state" in str(problem)
    assert small.shed.number == 2


def test_arguments_in_each_other_s_place_are_refused() -> None:
    shed, small, _ = carried("a", "b")
    state = states.encode(small)
    for arguments in ((state, shed[0]), (shed[0],), (shed[0], shed[0])):
        problem = refused(*arguments)
        assert (problem.reason, problem.state) == ("part", shed[0])
        assert str(problem) == "The last argument of `join` must be the state, not a shed part: `join(*shed, state)`."
    seal = Seal({"k": KEY})
    sealed_part = seal.close(shed[0])
    problem = refused(seal.close(state), sealed_part, seal=seal)
    assert (problem.reason, problem.state) == ("part", sealed_part)
    assert "The last argument of `join` must be the state" in str(problem)
    problem = refused(state, state)
    assert (problem.reason, problem.state) == ("wrong_part", state)
    assert "Argument 1" in str(problem)


def test_any_changed_byte_of_a_part_is_noticed() -> None:
    shed, small, _ = carried("a", "b", "c")
    state = states.encode(small)
    for i in range(len(shed[0])):
        changed = shed[0][:i] + bytes([shed[0][i] ^ 1]) + shed[0][i + 1 :]
        assert refused(changed, shed[1], state).state is changed


def test_a_part_changed_behind_right_checksums_is_noticed() -> None:
    shed, small, whole = carried("a", "b", "c")
    for n, old in enumerate(shed):
        part = read(old, part=True)
        for change in (
            {"shed": msgspec.structs.replace(part.shed, entries=((1, 2),))},
            {"shed": msgspec.structs.replace(part.shed, chain="0" * 64 if n else "")},
            {"pack": whole.add().pack, "fresh": tuple(whole)[:2]},
        ):
            changed = encode_part(msgspec.structs.replace(part, **change))
            if changed != old:
                given = [*shed[:n], changed, *shed[n + 1 :]]
                assert refused(*given, states.encode(small)).reason == "wrong_part"


def test_a_part_keeps_its_name_whichever_release_reads_it() -> None:
    """Compute the chain from the stored bytes, so that a field of a later release does not change old parts."""
    _, small, _ = carried("a")
    small, part = split(talk("b", on=small), [(0, 2)])
    body = [*msgspec.msgpack.decode(states._encode_content(part)[0][0]), "a field of a later release"]
    index, array = msgspec.msgpack.encode(body), b"".join(states._encode_content(part)[0][1:])
    data = forged(index, array, entries=2)
    link = sheds._next_link("", states.digest_encoded_part(data))
    small = msgspec.structs.replace(small, shed=msgspec.structs.replace(small.shed, chain=link))
    assert texts(read(join(data, states.encode(small)))) == ["a-0", "a-1", "b-0", "b-1"]


def forged(
    index: bytes, array: bytes, *, entries: int, flags: int = 2, content: bytes | None = None, size: int = -1
) -> bytes:
    """Return a part whose checksums are all right."""
    content = index + array if content is None else content
    size = len(array) if size < 0 else size
    prefix = struct.pack(
        *("<4sBBxxQqqQQQIII", b"\x89TLK", 2, flags, 1, 1, 1, len(content), len(index), size, entries),
        *(zlib.crc32(index), zlib.crc32(array[:-1])),
    )
    return prefix + struct.pack("<I", zlib.crc32(prefix)) + content


# Attacks by a client that can compute the chain


def chained(small: Transcript, *parts: Transcript) -> list[bytes]:
    """Return parts and a state that claim to belong together."""
    link, made = "", []
    for number, part in enumerate(parts, 1):
        shed = msgspec.structs.replace(part.shed, number=number, chain=link)
        part = msgspec.structs.replace(part, shed=shed)
        link = sheds._next_link(link, states.digest_part(part))
        made.append(encode_part(part))
    shed = msgspec.structs.replace(small.shed, number=len(parts), chain=link)
    return [*made, states.encode(msgspec.structs.replace(small, shed=shed))]


def test_a_chain_that_was_made_up_is_as_good_as_any_if_all_fits() -> None:
    """Accept a made-up but valid chain; otherwise the tests below would prove nothing."""
    small, part = split(talk("a", "b", "c"), [(0, 4)])
    assert texts(read(join(*chained(small, part)))) == texts(talk("a", "b", "c"))


@pytest.mark.parametrize(
    "missing",
    [
        {"entries": ((0, 5),)},
        {"entries": ((1, 4),)},
        {"entries": ((2, 4),)},
        {"entries": ((0, 4), (6, 1))},
        {"entries": ((0, 2**52),)},
        {"turns": ()},
        {"turns": ((0, 1),)},
    ],
)
def test_a_state_that_misses_something_else_than_its_parts_hold_is_refused(missing: dict[str, Any]) -> None:
    small, part = split(talk("a", "b", "c"), [(0, 4)])
    lies = msgspec.structs.replace(small, shed=msgspec.structs.replace(small.shed, **missing))
    problem = refused(*chained(lies, part))
    assert problem.reason == "corrupt"
    assert "the parts don't hold exactly the entries and turns" in str(problem)


@pytest.mark.parametrize(
    "says",
    [
        {"number": 0},
        {"number": 2},
        {"chain": "0" * 64},
        {"entries": ()},
        {"entries": ((0, 3),)},
        {"entries": ((0, 5),)},
        {"entries": ((0, 2), (2, 2))},
        {"entries": ((2**53 - 2, 4),)},
        {"turns": ()},
    ],
)
def test_a_part_that_names_something_else_than_it_holds_is_refused(says: dict[str, Any]) -> None:
    small, part = split(talk("a", "b", "c"), [(0, 4)])
    lies = encode_part(msgspec.structs.replace(part, shed=msgspec.structs.replace(part.shed, **says)))
    problem = refused(lies, states.encode(small))
    assert (problem.reason, problem.state) == ("corrupt", lies)


def test_a_part_that_holds_records_is_refused() -> None:
    small, part = split(talk("a", "b", "c"), [(0, 4)])
    given = chained(small, part.with_records([Record("k", "", 1, b"")]))
    problem = refused(*given)
    assert (problem.reason, problem.state) == ("corrupt", given[0])
    assert "records" in str(problem)


def test_parts_that_hold_the_same_are_refused() -> None:
    small, part = split(talk("a", "b", "c"), [(0, 4)])
    assert "hold the same" in str(refused(*chained(small, part, part)))


def test_a_state_that_says_it_shed_without_end_is_refused_at_once() -> None:
    small, part = split(talk("a", "b", "c"), [(0, 4)])
    shed = msgspec.structs.replace(small.shed, number=2**52, entries=((0, 2**52),))
    problem = refused(encode_part(part), states.encode(msgspec.structs.replace(small, shed=shed)))
    assert f"2 to {2**52}" in str(problem)


def test_more_kinds_of_entries_than_a_state_can_hold_are_refused() -> None:
    def kinds(name: str) -> Transcript:
        entries = [Entry(role=f"{name}{i}", wire=WIRE, native=b"{}", at=1) for i in range(100)]
        return Transcript(fresh=link_entries(None, name, 0, entries))

    several = [msgspec.structs.replace(kinds(n), shed=Ranges(entries=((i * 100, 100),))) for i, n in enumerate("abc")]
    small = msgspec.structs.replace(kinds("d"), shed=Ranges(entries=((0, 300),)))
    assert "more tokens than a state can hold" in str(refused(*chained(small, *several)))


def test_fuzzed_parts_with_a_right_chain_are_joined_or_refused() -> None:
    source, joined = random.Random(1), 0
    shed, small, _ = carried("a", "b", "c", "d", "e")
    parts = [read(part, part=True) for part in shed]
    for _ in range(2_000):
        chosen = [*parts]
        victim = source.randrange(len(chosen) + 1)
        old = small.shed if victim == len(chosen) else chosen[victim].shed
        kind = source.choice(["entries", "turns"])
        spans = [*getattr(old, kind), (source.randrange(10), source.randrange(3))]
        if source.random() < 0.5:
            spans = [
                (max(0, a + source.choice([-2, 0, 0, 2])), max(0, n + source.choice([-1, 0, 0, 1]))) for a, n in spans
            ]
        new = msgspec.structs.replace(old, **{kind: tuple(sorted(spans)[: source.choice([1, 2, 3])])})
        if victim == len(chosen):
            given = chained(msgspec.structs.replace(small, shed=new), *chosen)
        else:
            chosen[victim] = msgspec.structs.replace(chosen[victim], shed=new)
            given = chained(small, *chosen)
        try:
            whole = read(join(*given))
        except BadState as problem:
            assert problem.reason in ("corrupt", "wrong_part", "missing_part")
        else:
            joined += 1
            assert sorted(texts(whole)) == sorted(f"{n}-{i}" for n in "abcde" for i in (0, 1))
            assert sorted(turn.id for turn in whole.turns) == list("abcde")
    assert joined > 20


# Sizes


def test_a_whole_over_the_limit_is_refused() -> None:
    shed, small, whole = carried("a", "b", "c")
    given = [*shed, states.encode(small)]
    content = sum(peek(each).content for each in given)
    assert read(join(*given, max_state=content)) == whole
    problem = refused(*given, max_state=content - 1)
    assert problem.reason == "too_large"
    assert "max_state" in str(problem)


def test_a_part_over_the_limit_is_refused_before_it_is_unpacked() -> None:
    _, small, _ = carried("a", "b")
    zeros = states._compress(bytes(2**27))
    bomb = forged(b"", b"", entries=1, flags=3, content=zeros, size=2**27)
    problem = refused(bomb, states.encode(small))
    assert (problem.reason, problem.state) == ("too_large", bomb)
    lies = forged(b"", b"", entries=1, flags=3, content=zeros, size=2**20)
    assert refused(lies, states.encode(small)).reason == "corrupt"


def test_more_entries_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    shed, small, _ = carried("a", "b", "c")
    monkeypatch.setattr(sheds, "MAX_ENTRIES", 5)
    assert refused(*shed, states.encode(small)).reason == "too_large"


def test_to_split_a_long_transcript_is_little_more_than_to_copy_it() -> None:
    """Split without building each entry, which would take a hundred times as long."""
    turns = [str(i) for i in range(5_000)]
    whole = Transcript()
    fresh = [entry for turn in turns for entry in link_entries(None, turn, 0, [said("x" * 200), said("y" * 200)])]
    whole = read(states.encode(msgspec.structs.replace(whole, fresh=tuple(fresh))))
    one_by_one = measure_cpu_time(lambda: list(whole))
    assert any(measure_cpu_time(lambda: split(whole, [(0, 5_000), (5_002, 9_990)])) < one_by_one / 2 for _ in range(5))


# Sealed parts


def sealed(seal: Any, shed: Sequence[bytes], small: Transcript) -> list[bytes]:
    return [seal.close(each) for each in (*shed, states.encode(small))]


def test_sealed_parts_are_joined_to_a_sealed_state() -> None:
    shed, small, whole = carried("a", "b", "c")
    for seal in (Seal({"k": KEY}), Seal({"k": KEY}).to(owner="ada", conversation="7")):
        joined = join(*sealed(seal, shed, small), seal=seal)
        assert read(seal.open(joined)) == whole


def test_the_oldest_revision_that_is_taken_holds_for_the_state_only() -> None:
    shed, small, whole = carried("a", "b", "c")
    seal = Seal({"k": KEY})
    given = sealed(seal, shed, small)
    assert peek(given[0]).revision < small.revision
    assert read(seal.open(join(*given, seal=seal.to(min_revision=small.revision)))) == whole
    problem = refused(*given, seal=seal.to(min_revision=small.revision + 1))
    assert (problem.reason, problem.state) == ("rewound", given[-1])


def test_a_part_that_was_sealed_for_another_is_refused_by_name() -> None:
    shed, small, _ = carried("a", "b", "c")
    ada, bob = (Seal({"k": KEY}).to(owner=owner) for owner in ("ada", "bob"))
    given = [bob.close(shed[0]), ada.close(shed[1]), ada.close(states.encode(small))]
    problem = refused(*given, seal=ada)
    assert (problem.reason, problem.state) == ("wrong_owner", given[0])
    assert "Argument 1" in str(problem)


def test_a_sealed_part_needs_its_seal_and_a_seal_sealed_parts() -> None:
    shed, small, _ = carried("a", "b")
    seal = Seal({"k": KEY})
    given = sealed(seal, shed, small)
    assert refused(*given).reason == "unknown_key"
    assert refused(given[0], states.encode(small)).reason == "unknown_key"
    problem = refused(shed[0], given[1], seal=seal)
    assert (problem.reason, problem.state) == ("not_sealed", shed[0])


def test_a_part_expires_as_a_state_does(monkeypatch: pytest.MonkeyPatch) -> None:
    shed, small, _ = carried("a", "b")
    seal = Seal({"k": KEY}, expires_after=60)
    part = seal.close(shed[0])
    later = seals.now() + 61_000
    monkeypatch.setattr(seals, "now", lambda: later)
    problem = refused(part, seal.close(states.encode(small)), seal=seal)
    assert (problem.reason, problem.state) == ("expired", part)
