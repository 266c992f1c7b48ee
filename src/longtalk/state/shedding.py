"""Move parts that are no longer needed out of a state (shed them) to keep it small, and join them again.

A state keeps what later turns can use. The rest is removed from it once, as a part that the caller stores: `split`
divides a transcript in two, `encode_part` returns the bytes of a part, and `join` restores the complete state. Both
states and parts identify the shed entries and turns by their positions in the whole conversation (`Ranges`): a state
lists those that it lacks, a part those that it holds.

The parts form a chain of digests, and the state holds the last link. `join` can therefore prove which parts belong to a
state, that they are unchanged and which are missing, although the state keeps nothing else of them.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec

from longtalk.errors import BadState, InputError
from longtalk.state import codec as states
from longtalk.state.sealing import BoundSeal, Seal
from longtalk.transcript.pack import EMPTY, Pack, join_slices
from longtalk.transcript.pack_index import MAX_ENTRIES, PackIndex, pack_column, read_column
from longtalk.transcript.ranges import Ranges, Span, merge_spans, to_positions
from longtalk.transcript.standing import Standing
from longtalk.transcript.transcript import Finish, Transcript, TurnIndex, Turns, TurnStatus
from longtalk.wires import NAMES

__all__ = ["encode_part", "join", "split"]

# Splitting


def split(transcript: Transcript, gone: Sequence[Span]) -> tuple[Transcript, Transcript]:
    """Return two transcripts: this one without the entries to shed, and the part with these entries.

    `gone` are the spans of the entries to shed. Turns are shed with their entries, except for the last turn; all
    records remain. `gone` may include the last entry only if it includes all entries; otherwise `ValueError` is raised.
    If there is nothing to shed, `shed.number` of the second transcript is 0.
    """
    pack, turns = _pack_all(transcript), transcript.turns.to_index()
    leaving = merge_spans(gone)
    staying = _complement(leaving, len(pack))
    if leaving and (leaving[0][0] < 0 or leaving[-1][1] > len(pack)):
        raise ValueError("a span of entries to shed is out of range")
    if leaving and staying and staying[-1][1] < len(pack):
        raise ValueError("the last entry can be shed only together with all others")
    stays, leaves = (join_slices([(pack, *span) for span in spans]) for spans in (staying, leaving))
    if not staying:
        stays = Pack(PackIndex(parent=transcript.head), EMPTY.array, EMPTY.crc)
    turns_leaving = _find_leaving_turns(turns.ids, set(stays.index.turns), set(leaves.index.turns))
    if not (leaving or turns_leaving):
        return transcript, Transcript()
    shed, missing = transcript.shed, _shed_spans(transcript.shed)
    held = [to_positions(*each) for each in zip((leaving, turns_leaving), missing, strict=True)]
    part = msgspec.structs.replace(
        transcript,
        pack=leaves,
        fresh=(),
        turns=_join_turns([(turns, *span) for span in turns_leaving]),
        records=Standing(),
        shed=_to_ranges(shed.number + 1, shed.chain, held),
    )
    missing = [merge_spans((*before, *now)) for before, now in zip(missing, held, strict=True)]
    rest = msgspec.structs.replace(
        transcript,
        pack=stays,
        fresh=(),
        turns=_join_turns([(turns, *span) for span in _complement(turns_leaving, len(turns.ids))]),
        shed=_to_ranges(shed.number + 1, _next_link(shed.chain, states.digest_part(part)), missing),
    )
    return rest, part


def encode_part(part: Transcript) -> bytes:
    """Return a shed part as bytes for the caller to keep."""
    return states.encode(part, part=True)


def _find_leaving_turns(ids: Sequence[str], staying: Collection[str], leaving: Collection[str]) -> list[Span]:
    """Return the spans of the turns to shed.

    A turn is shed with the last of its entries; a turn without entries is shed if no turn before it remains. `staying`
    has the ids of turns with entries that remain, `leaving` the ids of turns with entries that are shed. The last turn
    that has entries remains, together with all turns after it.
    """
    last = max((i for i, turn in enumerate(ids) if turn in staying or turn in leaving), default=0)
    first = next((i for i, turn in enumerate(ids) if turn in staying), last)
    return merge_spans(
        (i, i + 1) for i, turn in enumerate(ids[:last]) if turn not in staying and (turn in leaving or i < first)
    )


# Joining


def join(*parts: bytes, seal: Seal | BoundSeal | None = None, max_state: int = states.MAX_BYTES) -> bytes:
    """Return the state of the whole conversation, given its shed parts in any order and then its last state.

    All shed parts (`reply.shed`) are needed at once. Raises `BadState`, which says which part is the problem, if a part
    is missing, was changed or belongs to another conversation. With `seal`, all arguments are opened and the result is
    sealed. `max_state` limits the uncompressed size in bytes. A state that has shed nothing is returned unchanged.
    """
    if not parts:
        raise InputError("`join` needs the shed parts and then the state: `join(*shed, state)`.")
    if any(isinstance(part, list | tuple) for part in parts):
        raise InputError(
            "`join` takes each shed part as an argument of its own: write `join(*shed, state)`, with an asterisk."
        )
    *others, last = parts
    plain, state = _open_argument(last, seal, 0, max_state)
    if not others and not state.shed.number:
        return last
    # Parts are older than the state, so `min_revision` does not apply to them. The chain proves that they belong to it.
    lenient = msgspec.structs.replace(seal, min_revision=0) if isinstance(seal, BoundSeal) else seal
    size = states.peek(plain).content
    found = []
    for argument, data in enumerate(others, 1):
        plain, part = _open_argument(data, lenient, argument, max_state)
        size += states.peek(plain).content
        if size > max_state:
            raise _too_large(last, f"more than {max_state} bytes: raise `max_state`")
        found.append(_Part(argument, data, part, _next_link(part.shed.chain, states.digest_encoded_part(plain))))
    ordered = _verify_order(found, state, last)
    if any(sum(sizes) > MAX_ENTRIES for sizes in zip(*map(_sizes, (state, *ordered)), strict=True)):
        raise _too_large(last, f"more than {MAX_ENTRIES} entries")
    try:
        whole = states.encode(_join_transcripts(state, ordered))
    except ValueError as problem:
        raise BadState(f"This state can't be joined: {problem}.", reason="corrupt", state=last) from None
    return seal.close_encoded(whole) if seal else whole


class _Part(NamedTuple):
    argument: int
    data: bytes
    """The bytes as the caller passed them."""
    transcript: Transcript
    link: str
    """The link of the digest chain that follows this part."""


def _open_argument(
    data: bytes, seal: Seal | BoundSeal | None, argument: int, max_state: int
) -> tuple[bytes, Transcript]:
    """Return the plain bytes and the transcript in an argument of `join`. `argument` is its number, 0 for the state."""
    if not argument and states.is_empty(data):
        return b"", Transcript()
    try:
        plain = seal.open(data) if seal else data
        transcript = states.decode(plain, wires=NAMES, part=argument > 0, max_bytes=max_state)
    except BadState as problem:
        if not argument and problem.reason == "part":
            problem = BadState(
                "The last argument of `join` must be the state, not a shed part: `join(*shed, state)`.",
                reason="part",
                state=data,
            )
        what = f"Argument {argument} of `join` is invalid. {problem}" if argument else str(problem)
        raise BadState(what, reason=problem.reason, state=data) from None
    return bytes(plain), transcript


def _verify_order(found: Sequence[_Part], state: Transcript, data: bytes) -> list[Transcript]:
    """Return the parts, oldest first; raise `BadState` unless they are exactly the parts that the state has shed.

    Parts are verified from the newest to the oldest. Each part must match the link that the next part, or the state,
    continues from. Since that link is already verified, a part that does not match is itself wrong.
    """
    numbered: dict[int, list[_Part]] = {}
    for part in found:
        numbered.setdefault(part.transcript.shed.number, []).append(part)
    link, ordered = state.shed.chain, list[Transcript]()
    for number in sorted(numbered, reverse=True):
        part = numbered[number][0]
        if number > state.shed.number:
            raise _wrong_part(part, "the part belongs to another conversation, or to a later state of this one")
        if number != state.shed.number - len(ordered):
            break
        for part in numbered[number]:
            if part.link != link:
                raise _wrong_part(part, "the part belongs to another conversation or branch, or it was changed")
        if len(numbered[number]) > 1:
            raise _wrong_part(part, "the part was passed twice")
        ordered.append(part.transcript)
        link = part.transcript.shed.chain
    if len(ordered) < state.shed.number:
        borders = pairwise((0, *sorted(numbered), state.shed.number + 1))
        gaps = [f"{a + 1}" if a + 2 == b else f"{a + 1} to {b - 1}" for a, b in borders if a + 1 < b]
        what = f"{', '.join(gaps)} of {state.shed.number}"
        raise BadState(
            f"`join` needs all parts that this state has shed; missing: number {what}.",
            reason="missing_part",
            state=data,
        )
    return ordered[::-1]


def _wrong_part(part: _Part, what: str) -> BadState:
    text = f"Argument {part.argument} of `join` does not belong to this state: {what}."
    return BadState(text, reason="wrong_part", state=part.data)


def _too_large(state: bytes, what: str) -> BadState:
    return BadState(f"This state can't be joined: the whole conversation has {what}.", reason="too_large", state=state)


def _join_transcripts(state: Transcript, parts: Sequence[Transcript]) -> Transcript:
    """Return the state and its shed parts as one transcript; raise `ValueError` if their ranges don't fit together."""
    sources, missing = (state, *parts), _shed_spans(state.shed)
    there = [_shed_spans(part.shed) for part in parts]
    if missing != [merge_spans(span for spans in kind for span in spans) for kind in zip(*there, strict=True)]:
        raise ValueError("the parts don't hold exactly the entries and turns that the state has shed")
    here = [to_positions([(0, size)], spans) for size, spans in zip(_sizes(state), missing, strict=True)]
    entries, turns = (_order_pieces(held) for held in zip(here, *there, strict=True))
    indexes = [each.turns.to_index() for each in sources]
    return msgspec.structs.replace(
        state,
        pack=join_slices([(sources[source].pack, *span) for source, span in entries]) if entries else state.pack,
        turns=_join_turns([(indexes[source], *span) for source, span in turns]),
        shed=Ranges(),
    )


def _order_pieces(held: Sequence[Sequence[Span]]) -> list[tuple[int, Span]]:
    """Return the pieces of the whole conversation in order.

    Each piece is the index of its source in `held`, and its span within that source. `held` lists, for each source, the
    spans of the whole conversation that the source holds.
    """
    pieces = []
    for source, spans in enumerate(held):
        position = 0
        for first, stop in spans:
            pieces.append((first, stop, source, position))
            position += stop - first
    pieces.sort()
    if any(stop > first for (_, stop, _, _), (first, _, _, _) in pairwise(pieces)):
        raise ValueError("two parts hold the same entries or turns")
    return [(source, (position, position + stop - first)) for first, stop, source, position in pieces]


# Spans


def _complement(spans: Sequence[Span], size: int) -> list[Span]:
    """Return the spans between 0 and `size` that `spans` does not cover."""
    edges = [0, *[edge for span in spans for edge in span], size]
    return [(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True) if start < stop]


def _shed_spans(shed: Ranges) -> list[list[Span]]:
    """Return two lists: the shed spans of entries, and the shed spans of turns."""
    return [[(first, first + count) for first, count in kind] for kind in (shed.entries, shed.turns)]


def _to_ranges(number: int, chain: str, kinds: Iterable[Sequence[Span]]) -> Ranges:
    return Ranges(number, chain, *[tuple((start, stop - start) for start, stop in spans) for spans in kinds])


# Content


def _next_link(chain: str, digest: bytes) -> str:
    """Return the next link of the digest chain, computed from the previous link and the digest of a part."""
    return hashlib.sha256(chain.encode() + digest).hexdigest()


def _sizes(transcript: Transcript) -> tuple[int, int]:
    return len(transcript), len(transcript.turns)


def _pack_all(transcript: Transcript) -> Pack:
    """Return all entries of a transcript as one pack."""
    if not transcript.fresh:
        return transcript.pack
    index, tail, crc = transcript.pack.grow(transcript.fresh)
    return Pack(index, b"".join((memoryview(transcript.pack.array)[:-1], tail)), crc)


def _join_turns(slices: Sequence[tuple[TurnIndex, int, int]]) -> Turns:
    """Return the turns of several slices, in this order.

    Each slice is an index of turns with the positions where the slice starts and stops.
    """
    ids: list[str] = []
    reports: list[bytes] = []
    responses: list[bytes] = []
    codes: dict[tuple[TurnStatus, str, Finish, str, str], int] = {}
    shape, counts, response_counts = array("I"), bytearray(), bytearray()
    started, ended = bytearray(), bytearray()
    ends: dict[int, list[int]] = {}
    response_ends: dict[int, list[int]] = {}
    for index, start, stop in slices:
        if id(index) not in ends:
            ends[id(index)] = list(accumulate(read_column("I", index.counts), initial=0))
            per_turn = read_column("I", index.response_counts) or [0] * len(index.ids)
            response_ends[id(index)] = list(accumulate(per_turn, initial=0))
        ids += index.ids[start:stop]
        reports += index.reports[ends[id(index)][start] : ends[id(index)][stop]]
        responses += index.responses[response_ends[id(index)][start] : response_ends[id(index)][stop]]
        numbers = read_column("I", index.shape[4 * start : 4 * stop])
        shape.extend([codes.setdefault(index.shapes[number], len(codes)) for number in numbers])
        counts += index.counts[4 * start : 4 * stop]
        response_counts += index.response_counts[4 * start : 4 * stop] or bytes(4 * (stop - start))
        started += index.started[8 * start : 8 * stop]
        ended += index.ended[8 * start : 8 * stop]
    return Turns(
        TurnIndex(
            ids=tuple(ids),
            shapes=tuple(codes),
            shape=pack_column(shape),
            started=bytes(started),
            ended=bytes(ended),
            reports=tuple(reports),
            counts=bytes(counts),
            responses=tuple(responses),
            response_counts=bytes(response_counts) if responses else b"",
        )
    )
