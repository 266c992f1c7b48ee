"""Pins: entries whose exchanges stay in every request while they fit."""

from __future__ import annotations

from longtalk._util import json_bytes
from longtalk.context.epochs import Epoch, Pin
from longtalk.context.measure import RequestEstimate, Terms, make_view, read_pins
from longtalk.context.planning import list_compactors
from longtalk.errors import InputError, PinRefused
from longtalk.policies import Block, Policy
from longtalk.transcript.transcript import Transcript


def pin(transcript: Transcript, name: str, policy: Policy, terms: Terms) -> Transcript:
    """A transcript in which an entry is pinned, by its id or its turn's.

    The exchanges that are pinned must leave room: together they may take no more than what a cut leaves.
    """
    if not isinstance(name, str):
        raise InputError(f"What is pinned is named by the id of an entry or a turn, not by {type(name).__name__}.")
    found = next((i for i, entry in enumerate(transcript) if name in (entry.id, entry.turn)), None)
    if found is None:
        shed = " It may have left this state: `join` puts that back." if transcript.shed.number else ""
        raise InputError(
            f"There is no entry or turn {name!r} here: give the id of one of `reply.entries`, or `reply.id`.{shed}"
        )
    pin = Pin(transcript.position(found), transcript[found].id, transcript[found].turn)
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
            f"{name!r} can't be pinned: all that is pinned and the current exchange would be {' and '.join(full)}, "
            "which is what a cut leaves. Unpin something, or raise the policy's limit."
        )
    return transcript.add_record("pins", json_bytes.encode(pins), replace=True)


def unpin(transcript: Transcript, name: str) -> Transcript:
    """A transcript in which an entry is not pinned any more, nor any other of its turn."""
    pins = read_pins(transcript)
    if not isinstance(name, str):
        raise InputError(f"What is unpinned is named by the id of an entry or a turn, not by {type(name).__name__}.")
    left = [pin for pin in pins if name not in (pin.entry, pin.turn) and name.rpartition("-")[0] != pin.turn]
    if len(left) == len(pins):
        raise InputError(f"{name!r} is not pinned.")
    return transcript.add_record("pins", json_bytes.encode(left), replace=True)
