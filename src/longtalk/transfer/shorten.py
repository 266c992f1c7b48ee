"""A transcript reduced to what the requests of an epoch contain."""

from __future__ import annotations

from longtalk.context.compacted import list_kept_entries
from longtalk.context.epochs import Epoch
from longtalk.tokens import Counter
from longtalk.transcript.transcript import Transcript
from longtalk.transfer.append import append_messages


def shorten(transcript: Transcript, epoch: Epoch, counter: Counter) -> Transcript:
    """Return a transcript with a note of what the epoch's summary says, and the entries that requests still contain."""
    return append_messages(Transcript(), list_kept_entries(transcript, epoch), counter)
