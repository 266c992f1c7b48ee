"""Pins: entries whose exchanges are part of every request as long as they fit."""

from __future__ import annotations

from longtalk._util import json_bytes
from longtalk.context.compaction import list_compactors
from longtalk.context.epochs import Epoch, Pin, find_place, remove_place
from longtalk.context.measure import RequestEstimate, Terms, make_view, read_pins
from longtalk.errors import PinRefused
from longtalk.memory.brief.lines import shorten
from longtalk.policies import Block, Policy
from longtalk.transcript.transcript import Transcript
from longtalk.wires.entries import text_if_readable

_QUOTED = 60
"""How many characters of a message are quoted in an error."""


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
    full = list(dict.fromkeys(str(each.to) for each in list_compactors(policy, terms) if each.to.fires(view)))
    if full:
        pinned = round(view.scale * sum(block.tokens for block in view.blocks[:-1]))
        others = "Unpin another message, or raise the policy's limit" if len(pins) > 1 else "Raise the policy's limit"
        raise PinRefused(
            f"{_quote(transcript, pin)} can't be pinned: together, the pinned exchanges and the current one would be "
            f"{' and '.join(full)}, which is the size that the policy cuts to. "
            f"The pinned ones have {pinned:,} tokens. {others}."
        )
    return transcript.add_record("pins", json_bytes.encode(pins), replace=True)


def _quote(transcript: Transcript, pin: Pin) -> str:
    """Return the beginning of the text of a pinned entry in quotation marks; its id if it has no text."""
    entry = transcript[transcript.index_of(pin.place)]
    text = " ".join(text_if_readable(entry).split())
    return repr(shorten(text, _QUOTED)) if text else repr(pin.entry)


def unpin(transcript: Transcript, name: str) -> Transcript:
    """Return the transcript without the pins of an entry or a turn, given its id."""
    left = remove_place(read_pins(transcript), name, "pinned", "unpinned")
    return transcript.add_record("pins", json_bytes.encode(left), replace=True)
