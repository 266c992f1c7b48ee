"""Epochs: the turns that share one request head.

An `Epoch` says what becomes of the entries that were there when it began; all that came since goes as it is. So
inside an epoch each request begins with the one before it. The newest epoch is a record of the transcript; without one,
everything is sent. When a new one begins, `plan.py` decides.

Lengths are counted when an entry is added. An `Anchor` remembers how many tokens the provider reported for the last
request, so that only what came since rests on our counting.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from longtalk._util import json_bytes
from longtalk.context.costs import CostReceipt, Meter
from longtalk.memory.summary import Summary
from longtalk.policies import Policy
from longtalk.transcript.manifest import Run
from longtalk.transcript.pack import ANSWERS
from longtalk.transcript.ranges import merge_spans
from longtalk.transcript.transcript import Record, Transcript
from longtalk.usage import Usage
from longtalk.wires.protocol import Wire

DATA = "memory"
"""What stands around what memory puts behind a message."""
_DOUBT = 300
"""So many tokens speak for our own count, however far off a report is."""

MOST_WINDOW = 10**9


class Epoch(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is sent of the entries before `start`. Positions are places in the whole conversation."""

    policy: str
    """A fingerprint: another policy begins anew from all that there is."""
    start: int = 0
    reason: str = ""
    runs: tuple[Run, ...] = ()
    """What becomes of each entry before `start`, in order."""
    lines: tuple[str, ...] = ()
    """What tools did in exchanges that are left out."""
    summary: Summary | None = None
    """What goes at the head, in place of the oldest exchanges."""
    raw: int = 0
    """Where the exchanges begin that are all there, up to the end."""
    current: int = 0
    """Where the exchange begins that was the last one at the start."""
    exchanges: int = 1
    """How many are sent of those before `start`, the current one included."""
    messages: int = 0
    """How many are sent of those before `start`."""
    tokens: int = 0
    """How long those are, as counted."""
    pinned: tuple[tuple[int, int], ...] = ()
    """Exchanges that stay although they stand before `raw`."""
    pins: tuple[int, ...] = ()
    """The entries that were pinned when it began."""
    way: str = ""
    """How cards come in it, if memory is kept: tools are a part of what is cached."""


class Pin(msgspec.Struct, frozen=True):
    """That an entry is pinned, with its exchange."""

    place: int
    entry: str
    turn: str


class TurnSuffix(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went with one turn and stays where it was: what follows is bound to it, or cached behind it."""

    text: str
    place: int
    """How many entries of the conversation stand before it."""
    tokens: int = 0
    """How long it is, as counted."""
    data: str = ""
    """What memory had put before the instruction."""

    def pieces(self, wire: Wire) -> list[bytes]:
        """As it is sent."""
        data = [wire.quote(DATA, self.data)] if self.data else []
        return [*data, wire.write_instruction(self.text)] if self.text else data


class Anchor(msgspec.Struct, frozen=True):
    """A request whose length is known."""

    epoch: int
    """Where the epoch began that it belongs to."""
    model: str
    preamble: str
    counted: int
    reported: int
    refused: bool = False
    """Whether the provider said that it is too long: that is believed, however far off our count."""

    @property
    def scale(self) -> float:
        """How many tokens are reported for each counted one, with some doubt where few were."""
        return min(max((self.reported + _DOUBT) / (self.counted + _DOUBT), 0.5), 2.0)

    @property
    def is_plausible(self) -> bool:
        """Some servers report what they like: all zeros, only what was not cached, the sum of all turns."""
        return 0 < self.counted <= 2 * self.reported <= 2 * (4 * self.counted + 4_000)


def fingerprint_policy(policy: Policy) -> str:
    return hashlib.sha256(repr(policy).encode("utf-8", "replace")).hexdigest()[:16]


def merge_runs(runs: Iterable[Run]) -> list[Run]:
    """Runs of which neighbours that say the same are one."""
    merged: list[Run] = []
    for run in runs:
        last = merged[-1] if merged else None
        if last and not run.keep and (last.verdict, last.reason, last.keep) == (run.verdict, run.reason, 0):
            run = msgspec.structs.replace(last, last=run.last, tokens=last.tokens + run.tokens)
            merged.pop()
        merged.append(run)
    return merged


def find_epoch(transcript: Transcript, policy: str) -> Epoch:
    """The newest epoch of this policy; without one, that of everything there is."""
    epoch = transcript.records.read_latest("epoch", Epoch)
    if epoch is None or epoch.policy != policy or not _is_sound(epoch, transcript):
        return Epoch(policy)
    return epoch


def _is_sound(epoch: Epoch, transcript: Transcript) -> bool:
    """Whether an epoch speaks of each entry once, in order, and of none that is not there."""
    ends = [0, *(run.last + 1 for run in epoch.runs)]
    follows = all(run.first == end <= run.last for run, end in zip(epoch.runs, ends[:-1], strict=True))
    stays = [0, *(position for pair in epoch.pinned for position in pair), epoch.raw, epoch.current, epoch.start]
    return (
        follows
        and ends[-1] == epoch.start <= transcript.size
        and stays == sorted(stays)
        and epoch.tokens >= 0
        and (epoch.summary is None or epoch.summary.is_consistent_with(epoch.start))
        and _is_whole(epoch, transcript)
    )


def _is_whole(epoch: Epoch, transcript: Transcript) -> bool:
    """Whether an epoch takes no answer from its question, and no result from its call."""

    def role(position: int) -> str:
        i = transcript.index_of(position)
        return transcript[i].role if 0 <= i < len(transcript) else ""

    borders = {epoch.raw, epoch.current, *(position for pair in epoch.pinned for position in pair)}
    for run in epoch.runs:
        if run.verdict in ("handed_out", "held", "recalled") or (run.keep and not _is_cut(run, role(run.first))):
            return False
        if run.is_gone:
            borders |= {run.first, run.last + 1}
            is_covered = epoch.summary is not None and epoch.summary.covers_range(run.first, run.last + 1)
            if run.verdict == "summarised" and not is_covered:
                return False
        elif run.verdict == "summarised":
            if (role(run.first), role(run.last), role(run.last + 1) == "tool") != ("assistant", "tool", False):
                return False
        elif run.verdict == "left_out":
            borders |= {run.first, run.last + 1}
    # What a conversation begins with has no question before it.
    return all(role(position) not in ANSWERS for position in borders if position > 0)


def _is_cut(run: Run, role: str) -> bool:
    return run.verdict == "sent" and run.keep > 0 and run.first == run.last and role in ("tool", "event")


def begin_epoch(transcript: Transcript, epoch: Epoch) -> Transcript:
    """A transcript on which a new epoch begins. Instructions that had to stay in the last one end with it."""
    standing = transcript.records
    records = [
        record
        for record in standing
        if record.kind != "aside" or ((suffix := standing.read(record, TurnSuffix)) and suffix.place > epoch.current)
    ]
    return transcript.with_records(records).add_record("epoch", json_bytes.encode(epoch), replace=True)


def map_kept_suffixes(transcript: Transcript, epoch: Epoch) -> dict[int, TurnSuffix]:
    """The instructions that stay in this epoch, by the number of entries before them here."""
    suffixes = {
        transcript.index_of(suffix.place - 1) + 1: suffix for suffix in list_kept_suffixes(transcript, epoch.current)
    }
    # Nothing may stand between a call and its results.
    return {at: suffix for at, suffix in suffixes.items() if at >= len(transcript) or transcript[at].role != "tool"}


def list_kept_suffixes(transcript: Transcript, current: int) -> list[TurnSuffix]:
    """The instructions that stay behind this place."""
    return [suffix for suffix in transcript.records.read_all("aside", TurnSuffix) if suffix.place > current]


class SentPositions:
    """The places of the entries that a request has, of a conversation of so many."""

    def __init__(self, epoch: Epoch, size: int) -> None:
        spans = [(run.first, run.last + 1) for run in epoch.runs if not run.is_gone]
        self._spans = [*spans, (epoch.start, size)]

    def __contains__(self, position: object) -> bool:
        return isinstance(position, int) and any(first <= position < stop for first, stop in self._spans)


def list_unreachable(transcript: Transcript, policy: Policy) -> list[tuple[int, int]]:
    """The entries here that no later turn will send, as (first, past the last): whole exchanges."""
    epoch = find_epoch(transcript, fingerprint_policy(policy))
    spans = [(transcript.index_of(run.first), transcript.index_of(run.last + 1)) for run in epoch.runs if run.is_gone]
    return [span for span in spans if span[0] < span[1]]


def record_anchor(transcript: Transcript, anchor: Anchor) -> Transcript:
    """A transcript that knows how long its last request was."""
    return transcript.add_record("anchor", json_bytes.encode(anchor), replace=True)


def record_meter(transcript: Transcript, meter: Meter, usage: Usage, *, at: int) -> Transcript:
    """A transcript that knows what a model call has cost: on what it carried, and on the epoch if it began one."""
    transcript = transcript.add_record("meter", json_bytes.encode(msgspec.structs.replace(meter, at=at)), replace=True)
    receipt = transcript.records.read_latest("receipt", CostReceipt)
    if receipt is None or receipt.actual is not None or receipt.epoch != meter.epoch or not usage.input:
        return transcript
    summary = transcript.records.read_latest("summary", Summary)
    sent = msgspec.structs.replace(usage, output=0)
    epoch = transcript.records.read_latest("epoch", Epoch)
    if epoch is not None and epoch.summary is not None and epoch.summary.is_brief:
        summary = epoch.summary
    actual = receipt.ratios.weigh(sent) + (receipt.ratios.weigh(summary.usage) if summary else 0.0)
    return transcript.add_record(
        "receipt", json_bytes.encode(msgspec.structs.replace(receipt, actual=actual)), replace=True
    )


def list_covered(epoch: Epoch, stop: int) -> tuple[tuple[int, int], ...]:
    """What a summary covers that is made of all that an epoch sends before a place."""
    sent = [(run.first, min(run.last + 1, stop)) for run in epoch.runs if not run.is_gone]
    summarised = epoch.summary.covers if epoch.summary else ()
    return tuple(merge_spans((*summarised, *sent, (epoch.start, stop))))


def record_summary(transcript: Transcript, summary: Summary, last: str) -> Transcript:
    """A transcript with a summary, which holds up to the entry of this id."""
    before = transcript.records.read_latest("summary", Summary)
    usual = summary.tokens if before is None else (2 * before.usual + summary.tokens) // 3
    summary = msgspec.structs.replace(summary, usual=usual)
    record = Record("summary", last, summary.at, json_bytes.encode(summary))
    older = [record for record in transcript.records if record.kind != "summary"]
    return transcript.with_records((*older, record))


def read_windows(transcript: Transcript) -> dict[str, int]:
    """The windows that this conversation has learnt from refusals, by model."""
    learned = transcript.records.read_latest("window", dict[str, int])
    return {model: window for model, window in (learned or {}).items() if 0 < window <= MOST_WINDOW}
