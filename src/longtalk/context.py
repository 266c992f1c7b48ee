"""What is sent this turn, and why: `compose` picks from a transcript under a policy.

The manifest says of every entry what became of it, as runs of neighbours with the same verdict and reason.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from longtalk.policies import Policy
from longtalk.transcript import Entry, Transcript
from longtalk.wires.base import Quirks, Wire

Verdict = Literal["sent", "left_out"]


class Run(msgspec.Struct, frozen=True):
    """Neighbours that share a verdict: positions in the transcript, both included."""

    first: int
    last: int
    verdict: Verdict
    reason: str


class Context(msgspec.Struct, frozen=True):
    """What is sent: the JSON of messages, each piece one message or several joined by commas."""

    pieces: tuple[bytes | memoryview, ...]
    manifest: tuple[Run, ...]


def compose(
    transcript: Transcript, *, wire: Wire, policy: Policy, quirks: Quirks, instruction: str | None, tail: int
) -> Context:
    """Choose and render what is sent. An instruction goes behind the first `tail` entries: after the user's message."""
    first, end = policy.first(transcript), len(transcript)
    left_out: list[Entry] = []

    def render(entry: Entry) -> bytes | None:
        piece = wire.render(entry, quirks)
        if piece is None:
            left_out.append(entry)
        return piece

    # A server with quirks may want any message in another form, so none can go unseen.
    native = "" if quirks != Quirks() else wire.name
    pieces = transcript.splice(first, min(tail, end), native, render)
    if instruction:
        pieces.append(wire.instruction(instruction))
    pieces += transcript.splice(max(first, min(tail, end)), end, native, render)
    return Context(pieces=tuple(pieces), manifest=_manifest(transcript, first, left_out))


def _manifest(transcript: Transcript, first: int, left_out: list[Entry]) -> tuple[Run, ...]:
    runs = [Run(0, first - 1, "left_out", "policy")] if first else []
    start = first
    missing = {entry.id for entry in left_out}
    if missing:
        for i in range(first, len(transcript)):
            if transcript[i].id in missing:
                if start < i:
                    runs.append(Run(start, i - 1, "sent", "kept"))
                if runs and runs[-1].last == i - 1 and runs[-1].reason == "empty answer":
                    runs[-1] = msgspec.structs.replace(runs[-1], last=i)
                else:
                    runs.append(Run(i, i, "left_out", "empty answer"))
                start = i + 1
    if start < len(transcript):
        runs.append(Run(start, len(transcript) - 1, "sent", "kept"))
    return tuple(runs)
