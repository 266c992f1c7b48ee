"""Pins: entries whose exchanges are part of every request as long as they fit."""

from __future__ import annotations

from longtalk._util import json_bytes
from longtalk.context.compaction import list_compactors
from longtalk.context.epochs import Epoch, find_place, remove_place
from longtalk.context.measure import RequestEstimate, Terms, make_view, read_pins
from longtalk.errors import PinRefused
from longtalk.policies import Block, Policy
from longtalk.transcript.transcript import Transcript


def pin(transcript: Transcript, name: str, policy: Policy, terms: Terms) -> Transcript:
    """Return the transcript with an entry pinned, given the id of the entry or of its turn.

    Raise `PinRefused` if all pinned exchanges together would exceed the size that a cut leaves.
    """
    pin = find_place(transcript, name, "pinned")
    if pin in read_pins(transcript):
        return transcript
    pins = (*read_pins(transcript), pin)
    nothing = Epoch("", raw=transcript.size, current=transcript.size)
    view = make_view(RequestEstimate(transcript, nothing, terms), tuple(sorted(pin.place for pin in pins)))
    new = Block(transcript.size, transcript.size + 1, messages=1, tokens=1)
    view = view.with_blocks((*[block for block in view.blocks if block.pinned], new))
    full = [str(each.to) for each in list_compactors(policy, terms) if each.to.fires(view)]
    if full:
        raise PinRefused(
            f"{name!r} can't be pinned: together, the pinned exchanges and the current one would be "
            f"{' and '.join(full)}, "
            "which is the size that the policy cuts to. Unpin another entry, or raise the policy's limit."
        )
    return transcript.add_record("pins", json_bytes.encode(pins), replace=True)


def unpin(transcript: Transcript, name: str) -> Transcript:
    """Return the transcript without the pins of an entry or a turn, given its id."""
    left = remove_place(read_pins(transcript), name, "pinned", "unpinned")
    return transcript.add_record("pins", json_bytes.encode(left), replace=True)
