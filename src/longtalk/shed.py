"""What a state has shed, and how it is put back.

A state that stays small keeps what later turns can reach. The rest leaves it, once, as a part: `split` makes two
transcripts of one, `encode_part` the bytes to hand out, `join` the whole again. Both name what left by its place in
the whole conversation (`Ranges`): a state says what it misses, a part what it holds.

A chain of digests runs through the parts, and the state holds its last link. A state can therefore tell which parts
are its own, that nobody changed them and which are missing, and needs to keep nothing else of them.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec

from longtalk import state as states
from longtalk.errors import BadState, InputError
from longtalk.pack import EMPTY, MAX_ENTRIES, Index, Pack, column, packed, woven
from longtalk.ranges import Ranges, Span, merged, places
from longtalk.seal import BoundSeal, Seal
from longtalk.transcript import Finish, Transcript, TurnIndex, Turns, TurnStatus
from longtalk.wires import NAMES

__all__ = ["encode_part", "join", "split"]

# Taking apart


def split(transcript: Transcript, gone: Sequence[Span]) -> tuple[Transcript, Transcript]:
    """What stays and what leaves. When nothing does, the `shed.number` of the second is 0.

    `gone` are entries, by their positions here. Turns follow their entries, records all stay. So does the last turn,
    and the last entry unless all of them leave: what is added next goes on from them.
    """
    pack, turns = _packed(transcript), transcript.turns.packed()
    leaving = merged(gone)
    staying = _rest(leaving, len(pack))
    if leaving and (leaving[0][0] < 0 or leaving[-1][1] > len(pack)):
        raise ValueError("what should leave is not here")
    if leaving and staying and staying[-1][1] < len(pack):
        raise ValueError("the last entry stays, unless all of them leave")
    stays, leaves = (woven([(pack, *span) for span in spans]) for spans in (staying, leaving))
    if not staying:
        stays = Pack(Index(parent=transcript.head), EMPTY.array, EMPTY.crc)
    turns_leaving = _turns_leaving(turns.ids, set(stays.index.turns), set(leaves.index.turns))
    if not (leaving or turns_leaving):
        return transcript, Transcript()
    shed, missing = transcript.shed, _spans(transcript.shed)
    held = [places(*each) for each in zip((leaving, turns_leaving), missing, strict=True)]
    part = msgspec.structs.replace(
        transcript,
        pack=leaves,
        fresh=(),
        turns=_woven_turns([(turns, *span) for span in turns_leaving]),
        records=(),
        shed=_ranges(shed.number + 1, shed.chain, held),
    )
    missing = [merged((*before, *now)) for before, now in zip(missing, held, strict=True)]
    rest = msgspec.structs.replace(
        transcript,
        pack=stays,
        fresh=(),
        turns=_woven_turns([(turns, *span) for span in _rest(turns_leaving, len(turns.ids))]),
        shed=_ranges(shed.number + 1, _link(shed.chain, states.digest(part)), missing),
    )
    return rest, part


def encode_part(part: Transcript) -> bytes:
    """What left a transcript, as bytes to hand out."""
    return states.encode(part, part=True)


def _turns_leaving(ids: Sequence[str], staying: Collection[str], leaving: Collection[str]) -> list[Span]:
    """The turns of which all entries leave, and those without entries that then have no other before them.

    `staying` and `leaving` are the turns of the entries that do. The last turn that has any stays, with all behind it.
    """
    last = max((i for i, turn in enumerate(ids) if turn in staying or turn in leaving), default=0)
    first = next((i for i, turn in enumerate(ids) if turn in staying), last)
    return merged(
        (i, i + 1) for i, turn in enumerate(ids[:last]) if turn not in staying and (turn in leaving or i < first)
    )


# Putting together


def join(*parts: bytes, seal: Seal | BoundSeal | None = None, max_state: int = states.MAX_BYTES) -> bytes:
    """The state of the whole conversation. Give it all that was shed (`reply.shed`), in any order, and last the state.

    All that the state misses is needed at once. What is missing, changed or of another conversation is a `BadState`
    that says which it is, with its bytes as `state`. With `seal` all of them are opened, and the result is sealed.
    A state that misses nothing comes back as it is.
    """
    if not parts:
        raise InputError("`join` takes what was shed and then the state: `join(*shed, state)`.")
    if any(isinstance(part, list | tuple) for part in parts):
        raise InputError("`join` takes what was shed one by one: `join(*shed, state)`, with an asterisk.")
    *others, given = parts
    plain, state = _opened(given, seal, 0, max_state)
    if not others and not state.shed.number:
        return given
    # A part is older than the state, and may be: the chain proves that it is of this very state.
    lenient = msgspec.structs.replace(seal, min_revision=0) if isinstance(seal, BoundSeal) else seal
    size = states.peek(plain).content
    found = []
    for argument, data in enumerate(others, 1):
        plain, part = _opened(data, lenient, argument, max_state)
        size += states.peek(plain).content
        if size > max_state:
            raise _too_large(given, f"more than {max_state} bytes: raise `max_state`")
        found.append(_Part(argument, data, part, _link(part.shed.chain, states.digest_of(plain))))
    ordered = _in_order(found, state, given)
    if any(sum(sizes) > MAX_ENTRIES for sizes in zip(*map(_sizes, (state, *ordered)), strict=True)):
        raise _too_large(given, f"more than {MAX_ENTRIES} entries")
    try:
        whole = states.encode(_whole(state, ordered))
    except ValueError as problem:
        raise BadState(f"This state can't be joined: {problem}.", reason="corrupt", state=given) from None
    return seal.close(whole) if seal else whole


class _Part(NamedTuple):
    argument: int
    data: bytes
    """As it was handed in."""
    transcript: Transcript
    link: str
    """The chain behind it."""


def _opened(data: bytes, seal: Seal | BoundSeal | None, argument: int, max_state: int) -> tuple[bytes, Transcript]:
    """The plain bytes of an argument of `join` and what they hold. Argument 0 is the state."""
    try:
        plain = seal.open(data) if seal else data
        transcript = states.decode(plain, wires=NAMES, part=argument > 0, max_bytes=max_state)
    except BadState as problem:
        if not argument and problem.reason == "part":
            problem = BadState(
                "The last argument of `join` is the state: `join(*shed, state)`.", reason="part", state=data
            )
        what = f"Argument {argument} of `join` is refused. {problem}" if argument else str(problem)
        raise BadState(what, reason=problem.reason, state=data) from None
    return bytes(plain), transcript


def _in_order(found: Sequence[_Part], state: Transcript, given: bytes) -> list[Transcript]:
    """The parts, oldest first, if they are all that the state misses.

    They are looked at from the newest back. Each has to be what the next one, or the state, goes on from, and that
    one is known to be right: so whatever does not fit is wrong itself.
    """
    numbered: dict[int, list[_Part]] = {}
    for part in found:
        numbered.setdefault(part.transcript.shed.number, []).append(part)
    link, ordered = state.shed.chain, list[Transcript]()
    for number in sorted(numbered, reverse=True):
        part = numbered[number][0]
        if number > state.shed.number:
            raise _wrong(part, "it is of another conversation, or of a later state of this one")
        if number != state.shed.number - len(ordered):
            break
        for part in numbered[number]:
            if part.link != link:
                raise _wrong(part, "it is of another conversation or another branch of this one, or it was changed")
        if len(numbered[number]) > 1:
            raise _wrong(part, "it is there twice")
        ordered.append(part.transcript)
        link = part.transcript.shed.chain
    if len(ordered) < state.shed.number:
        borders = pairwise((0, *sorted(numbered), state.shed.number + 1))
        gaps = [f"{a + 1}" if a + 2 == b else f"{a + 1} to {b - 1}" for a, b in borders if a + 1 < b]
        what = f"of the {state.shed.number} parts that this state has shed, number {', '.join(gaps)}"
        raise BadState(f"Something is missing: {what}. Give all of them.", reason="missing_part", state=given)
    return ordered[::-1]


def _wrong(part: _Part, what: str) -> BadState:
    text = f"Argument {part.argument} of `join` does not belong to this state: {what}."
    return BadState(text, reason="wrong_part", state=part.data)


def _too_large(state: bytes, what: str) -> BadState:
    return BadState(f"This state can't be joined: the whole has {what}.", reason="too_large", state=state)


def _whole(state: Transcript, parts: Sequence[Transcript]) -> Transcript:
    """All of them as one. Raises `ValueError` if their ranges don't fit together."""
    sources, missing = (state, *parts), _spans(state.shed)
    there = [_spans(part.shed) for part in parts]
    if missing != [merged(span for spans in kind for span in spans) for kind in zip(*there, strict=True)]:
        raise ValueError("what it misses is not what its parts hold")
    here = [places([(0, size)], spans) for size, spans in zip(_sizes(state), missing, strict=True)]
    entries, turns = (_pieces(held) for held in zip(here, *there, strict=True))
    indexes = [each.turns.packed() for each in sources]
    return msgspec.structs.replace(
        state,
        pack=woven([(sources[source].pack, *span) for source, span in entries]) if entries else state.pack,
        turns=_woven_turns([(indexes[source], *span) for source, span in turns]),
        shed=Ranges(),
    )


def _pieces(held: Sequence[Sequence[Span]]) -> list[tuple[int, Span]]:
    """In the order of the whole: which source has the next piece, and where. `held` are the places of each."""
    pieces = []
    for source, spans in enumerate(held):
        position = 0
        for first, stop in spans:
            pieces.append((first, stop, source, position))
            position += stop - first
    pieces.sort()
    if any(stop > first for (_, stop, _, _), (first, _, _, _) in pairwise(pieces)):
        raise ValueError("two of its parts hold the same")
    return [(source, (position, position + stop - first)) for first, stop, source, position in pieces]


# Spans


def _rest(spans: Sequence[Span], size: int) -> list[Span]:
    """All up to `size` that these leave out."""
    edges = [0, *[edge for span in spans for edge in span], size]
    return [(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True) if start < stop]


def _spans(shed: Ranges) -> list[list[Span]]:
    """Of entries and of turns."""
    return [[(first, first + count) for first, count in kind] for kind in (shed.entries, shed.turns)]


def _ranges(number: int, chain: str, kinds: Iterable[Sequence[Span]]) -> Ranges:
    return Ranges(number, chain, *[tuple((start, stop - start) for start, stop in spans) for spans in kinds])


# Content


def _link(chain: str, digest: bytes) -> str:
    """The chain with one more link."""
    return hashlib.sha256(chain.encode() + digest).hexdigest()


def _sizes(transcript: Transcript) -> tuple[int, int]:
    return len(transcript), len(transcript.turns)


def _packed(transcript: Transcript) -> Pack:
    """All entries at rest."""
    if not transcript.fresh:
        return transcript.pack
    index, tail, crc = transcript.pack.grow(transcript.fresh)
    return Pack(index, b"".join((memoryview(transcript.pack.array)[:-1], tail)), crc)


def _woven_turns(slices: Sequence[tuple[TurnIndex, int, int]]) -> Turns:
    """The turns start … stop of others, in this order."""
    ids: list[str] = []
    reports: list[bytes] = []
    codes: dict[tuple[TurnStatus, str, Finish, str, str], int] = {}
    shape, counts = array("I"), bytearray()
    started, ended = bytearray(), bytearray()
    ends: dict[int, list[int]] = {}
    for index, start, stop in slices:
        if id(index) not in ends:
            ends[id(index)] = list(accumulate(column("I", index.counts), initial=0))
        ids += index.ids[start:stop]
        reports += index.reports[ends[id(index)][start] : ends[id(index)][stop]]
        numbers = column("I", index.shape[4 * start : 4 * stop])
        shape.extend([codes.setdefault(index.shapes[number], len(codes)) for number in numbers])
        counts += index.counts[4 * start : 4 * stop]
        started += index.started[8 * start : 8 * stop]
        ended += index.ended[8 * start : 8 * stop]
    return Turns(
        TurnIndex(
            ids=tuple(ids),
            shapes=tuple(codes),
            shape=packed(shape),
            started=bytes(started),
            ended=bytes(ended),
            reports=tuple(reports),
            counts=bytes(counts),
        )
    )
