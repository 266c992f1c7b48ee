"""Exclusions: exchanges that no request contains, until they are included again. The transcript keeps them."""

from __future__ import annotations

from longtalk._util import json_bytes
from longtalk.context.epochs import Epoch, Pin, find_place, remove_place
from longtalk.errors import InputError
from longtalk.transcript.manifest import EXCLUDED
from longtalk.transcript.transcript import Transcript


def exclude(transcript: Transcript, name: str) -> Transcript:
    """Return the transcript with the exchange of an entry or a turn excluded.

    Raise `InputError` if the exchange is not complete yet.
    """
    place = find_place(transcript, name, "excluded")
    places = read_exclusions(transcript)
    if place in places:
        return transcript
    first, stop = transcript.exchanges()[-1]
    if place.place >= transcript.position(first):
        if transcript.turns and transcript.turns[-1].status == "running":
            raise InputError(f"{name!r} can't be excluded before its turn has ended: wait for the end of the turn.")
        if all(transcript[i].kind == "event" for i in range(first, stop)):
            raise InputError(
                f"{name!r} can't be excluded yet, because it belongs to the exchange that the next message begins."
            )
    return transcript.add_record("excluded", json_bytes.encode([*places, place]), replace=True)


def include(transcript: Transcript, name: str) -> Transcript:
    """Return the transcript without the exclusion of this entry or turn."""
    left = remove_place(read_exclusions(transcript), name, "excluded", "included")
    return transcript.add_record("excluded", json_bytes.encode(left), replace=True)


def read_exclusions(transcript: Transcript) -> list[Pin]:
    """Return the exclusions of the transcript."""
    return transcript.records.read_latest("excluded", list[Pin]) or []


def list_excluded_positions(transcript: Transcript) -> tuple[int, ...]:
    """Return the positions of the entries whose exchanges are excluded, sorted."""
    found = transcript.records.read_latest("excluded", list[Pin])
    return tuple(sorted({each.place for each in found})) if found else ()


def list_excluded_spans(epoch: Epoch) -> list[tuple[int, int]]:
    """Return the spans of entries that an epoch excludes, in order."""
    return [(run.first, run.last + 1) for run in epoch.runs if run.reason == EXCLUDED]


def is_in_head(transcript: Transcript, epoch: Epoch, positions: tuple[int, ...]) -> bool:
    """Return True if the head of an epoch may quote or summarize an exchange with one of these entries."""
    covered = epoch.summary.covers if epoch.summary is not None else ()
    promoted = epoch.summary.promoted if epoch.summary is not None else ()
    exchanges = transcript.exchanges() if promoted else []
    spans = [(transcript.position(first), transcript.position(stop - 1) + 1) for first, stop in exchanges]
    quoted = [(first, stop) for first, stop in spans if any(first <= each.position < stop for each in promoted)]
    digested = [(run.first, run.last + 1) for run in epoch.runs if run.is_gone] if epoch.lines else []
    return any(first <= position < stop for first, stop in (*covered, *digested, *quoted) for position in positions)
