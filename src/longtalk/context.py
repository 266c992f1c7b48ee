"""What is sent this turn, and why: `compose` picks from a transcript under a policy.

The manifest says of every entry what became of it, as runs of neighbours with the same verdict and reason.

Some answers hold blocks that only their provider can read (a model's thinking), and that are valid only behind the
very bytes that stood before them when they were made, for the same account and model: `Context.bound` says where.
What is bound to another place goes without those blocks; inside an exchange that is still open, where a block must not
go alone, the rounds that are done go as a digest in words.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from typing import Literal

import msgspec

from longtalk import _json
from longtalk.policies import Policy
from longtalk.transcript import Entry, Transcript
from longtalk.wires.base import Preamble, Quirks, Wire, so_far

Verdict = Literal["sent", "digested", "left_out"]
Piece = bytes | memoryview


class Run(msgspec.Struct, frozen=True):
    """Neighbours that share a verdict: positions in the transcript, both included."""

    first: int
    last: int
    verdict: Verdict
    reason: str


class Context(msgspec.Struct, frozen=True):
    """What is sent: the JSON of messages, each piece one message or several joined by commas."""

    pieces: tuple[Piece, ...]
    manifest: tuple[Run, ...]
    mark: int
    """How many of the pieces the next request will begin with."""
    place: str
    """Who reads it, and behind which preamble."""

    def bound(self) -> str:
        """Where opaque blocks of the answer to this will be valid."""
        prefix = _Prefix(self.place)
        return prefix.behind(self.pieces)


class _Prefix:
    """A digest of all that stands before an answer, taken piece by piece."""

    def __init__(self, place: str) -> None:
        self._hash = hashlib.sha256(place.encode())
        self._seen = 0

    def behind(self, pieces: Sequence[Piece]) -> str:
        for piece in pieces[self._seen :]:
            self._hash.update(b",")
            self._hash.update(piece)
        self._seen = len(pieces)
        return self._hash.hexdigest()[:24]


def compose(
    transcript: Transcript,
    *,
    wire: Wire,
    policy: Policy,
    quirks: Quirks,
    preamble: Preamble,
    reader: str,
    instruction: str | None,
    tail: int,
) -> Context:
    """Choose and render what is sent to `reader`, an account and a model.

    An instruction goes behind the first `tail` entries: after the user's message.
    """
    first, end = policy.first(transcript), len(transcript)
    tail = max(first, min(tail, end))
    place = f"{wire.name} {reader} {preamble.digest()}"
    prefix = _Prefix(place)
    asides = _kept_asides(transcript) | ({tail: instruction} if instruction else {})
    pieces: list[Piece] = []
    verdicts: list[tuple[int, Verdict, str]] = []

    # A server with quirks may want any message in another form, so none can go unseen.
    odd = msgspec.structs.replace(quirks, void=0) != Quirks()

    def plain(role: str, other: str) -> bool:
        return other == wire.name and not odd and wire.is_plain(role)

    def render(i: int, entry: Entry) -> Piece | None:
        if entry.bound and (i < quirks.void or entry.bound != prefix.behind(pieces)):
            bare = wire.without_opaque(entry.native)
            return None if bare is None else wire.render(msgspec.structs.replace(entry, native=bare), quirks)
        return wire.render(entry, quirks)

    position, open_from = first, 0
    for stop in sorted({*(cut for cut in asides if first < cut <= end), tail, end}):
        for i, item in transcript.walk(position, stop, plain):
            piece = render(i, item) if isinstance(item, Entry) else item
            if isinstance(item, Entry) and item.bound and i >= tail and piece != item.native:
                # A block may not be left out alone here: the rounds that are done go in other words.
                done = [transcript[j].native for j in range(tail, end)]
                pieces[open_from:] = [so_far(wire, done)]
                verdicts += [(j, "digested", "bound to another place") for j in range(tail, end)]
                return Context(tuple(pieces), _manifest(first, end, verdicts), len(pieces), place)
            if piece is None:
                bound = isinstance(item, Entry) and item.bound
                verdicts.append((i, "left_out", "bound to another place" if bound else "empty answer"))
            else:
                pieces.append(piece)
        position = stop
        if stop in asides:
            pieces.append(wire.aside("instruction", asides[stop]))
        if stop <= tail:
            open_from = len(pieces)
    # The instruction of this turn will not be there next time, unless tools run behind it.
    mark = len(pieces) - 1 if instruction and tail == end else len(pieces)
    return Context(tuple(pieces), _manifest(first, end, verdicts), mark, place)


def _kept_asides(transcript: Transcript) -> dict[int, str]:
    """Instructions of earlier turns that must stay where they were, by the number of entries before them."""
    said = {}
    for record in transcript.records:
        if record.kind == "aside":
            with contextlib.suppress(ValueError, KeyError, TypeError):
                said[record.entry] = str(_json.value(record.data)["text"])
    return {position + 1: said[entry] for entry, position in transcript.positions(said).items()} if said else {}


def _manifest(first: int, end: int, verdicts: Sequence[tuple[int, Verdict, str]]) -> tuple[Run, ...]:
    """The verdicts as runs; what has none is sent."""
    runs = [Run(0, first - 1, "left_out", "policy")] if first else []
    position = first

    def add(start: int, stop: int, verdict: Verdict, reason: str) -> None:
        last = runs[-1] if runs else None
        if start > stop:
            return
        if last is not None and (last.verdict, last.reason) == (verdict, reason):
            runs[-1] = Run(last.first, stop, verdict, reason)
        else:
            runs.append(Run(start, stop, verdict, reason))

    for i, verdict, reason in verdicts:
        add(position, i - 1, "sent", "kept")
        add(i, i, verdict, reason)
        position = i + 1
    add(position, end - 1, "sent", "kept")
    return tuple(runs)
