"""A conversation reduced to what an epoch sends: the entries it keeps, after a note of what stands for the rest."""

from __future__ import annotations

from longtalk.context.epochs import Epoch
from longtalk.transcript.transcript import Entry, Transcript, now
from longtalk.wires.neutral import event

SOURCE = "summary of the conversation so far"
"""The source that the note names."""


def list_kept_entries(transcript: Transcript, epoch: Epoch) -> list[Entry]:
    """Return the entries that requests of an epoch contain, after an event with the summary and the digest lines.

    An entry that requests contain shortened is returned whole.
    """
    gone = {position for run in epoch.runs if run.is_gone for position in range(run.first, run.last + 1)}
    kept = [entry for i, entry in enumerate(transcript) if transcript.position(i) not in gone]
    head = epoch.summary.text if epoch.summary is not None else ""
    text = "\n\n".join(part for part in (head, "\n".join(epoch.lines)) if part.strip())
    return [event(text, source=SOURCE, at=now()), *kept] if text else kept
