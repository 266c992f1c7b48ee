"""Epochs: series of turns whose requests begin with the same head.

An `Epoch` says how each entry that existed when it began is sent. Later entries are sent unchanged, so within an epoch
each request begins with the whole previous one. The newest epoch is a record of the transcript; if there is none, all
entries are sent. `planning.py` decides when a new epoch begins.

The tokens of an entry are counted when it is added. An `Anchor` records how many tokens the provider reported for the
last request, so that only the entries after it have to be estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from longtalk._util import json_bytes
from longtalk.context.costs import CostReceipt, Meter
from longtalk.context.suffixes import TurnSuffix, list_kept_suffixes
from longtalk.errors import InputError
from longtalk.memory.summary import OldEntry, Summary
from longtalk.policies.base import Policy, fingerprint_policy
from longtalk.transcript.manifest import BRIEF, CARD, EXCLUDED, OUTLINE, PROMOTED, SUMMARY, Run
from longtalk.transcript.pack import ANSWERS
from longtalk.transcript.passages import KIND as PASSAGES
from longtalk.transcript.passages import RecalledPassages
from longtalk.transcript.ranges import SpanSet, merge_spans
from longtalk.transcript.transcript import Entry, Record, Transcript, now
from longtalk.usage import Usage
from longtalk.wires.entries import describe_entry

_DOUBT = 300
"""The weight of the local token count, in tokens, when it is averaged with the provider's report."""

MOST_WINDOW = 10**9


class Epoch(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the entries before `start` are sent.

    All positions are counted from the beginning of the whole conversation.
    """

    policy: str
    """A fingerprint of the policy. A different policy ignores this epoch and starts from the whole conversation."""
    start: int = 0
    reason: str = ""
    runs: tuple[Run, ...] = ()
    """How each entry before `start` is sent, as consecutive runs."""
    lines: tuple[str, ...] = ()
    """Digest lines about tool calls in exchanges that are left out."""
    summary: Summary | None = None
    """The summary or brief at the head, which replaces the oldest exchanges; None if there is none."""
    raw: int = 0
    """The position from which all exchanges are sent unchanged."""
    current: int = 0
    """The position of the exchange that was the last one when the epoch began."""
    exchanges: int = 1
    """The number of exchanges before `start` that are sent, including the current one."""
    messages: int = 0
    """The number of entries before `start` that are sent."""
    tokens: int = 0
    """The number of tokens of everything that is sent before `start`, as counted locally."""
    pinned: tuple[tuple[int, int], ...] = ()
    """The spans of pinned exchanges before `raw`, which are sent too."""
    pins: tuple[int, ...] = ()
    """The positions of the entries that were pinned when the epoch began."""
    excluded: tuple[int, ...] = ()
    """The sorted positions of the entries whose exchanges were excluded when the epoch began. Their runs say so too."""
    checked: bool = False
    """Whether all entries with a look-alike of a tag are marked, so that none of the others has to be searched."""
    way: str = ""
    """How the model reports lines for the brief in this epoch; empty without memory.

    It does not change within an epoch, because tools are part of the cached prefix.
    """


class Pin(msgspec.Struct, frozen=True):
    """A pinned or excluded entry. Its exchange is kept in, or left out of, every request."""

    place: int
    entry: str
    turn: str


def find_place(transcript: Transcript, name: str, what: str) -> Pin:
    """Return the position of the entry with this id, or of the first entry of the turn with this id.

    `what` is a participle for error messages, such as "pinned".
    """
    if not isinstance(name, str):
        raise InputError(
            f"The exchange to be {what} must be named by the id of an entry or a turn, not by {type(name).__name__}."
        )
    found = next((i for i, entry in enumerate(transcript) if name in (entry.id, entry.turn)), None)
    if found is None:
        shed = " It may have left this state: `join` puts shed entries back." if transcript.shed.number else ""
        raise InputError(
            f"No entry or turn {name!r} was found: pass the id of one of `reply.entries`, or `reply.turn_id`.{shed}"
        )
    return Pin(transcript.position(found), transcript[found].id, transcript[found].turn)


def remove_place(places: Sequence[Pin], name: str, what: str, undone: str) -> list[Pin]:
    """Return the places without those of the entry or turn with this id.

    `what` and `undone` are participles for error messages, such as "pinned" and "unpinned".
    """
    if not isinstance(name, str):
        raise InputError(
            f"The exchange to be {undone} must be named by the id of an entry or a turn, not by {type(name).__name__}."
        )
    left = [pin for pin in places if name not in (pin.entry, pin.turn) and name.rpartition("-")[0] != pin.turn]
    if len(left) == len(places):
        raise InputError(f"{name!r} is not {what}: pass the id of an entry or a turn that is.")
    return left


class Anchor(msgspec.Struct, frozen=True):
    """The length of a request as reported by the provider, together with the local count."""

    epoch: int
    """The start of the epoch that the request belongs to."""
    model: str
    preamble: str
    counted: int
    reported: int
    refused: bool = False
    """Whether the provider refused the request as too long.

    Such a report is used however much the local count differs.
    """

    @property
    def scale(self) -> float:
        """The number of reported tokens for each counted token, weighted toward 1 for short requests."""
        return min(max((self.reported + _DOUBT) / (self.counted + _DOUBT), 0.5), 2.0)

    @property
    def is_plausible(self) -> bool:
        """Whether the report is plausible. Some servers report zeros, only uncached tokens, or sums over all turns."""
        return 0 < self.counted <= 2 * self.reported <= 2 * (4 * self.counted + 4_000)


def merge_runs(runs: Iterable[Run]) -> list[Run]:
    """Return the runs with adjacent runs of the same verdict and reason merged."""
    merged: list[Run] = []
    for run in runs:
        last = merged[-1] if merged else None
        if last and not run.keep and (last.verdict, last.reason, last.keep) == (run.verdict, run.reason, 0):
            run = msgspec.structs.replace(last, last=run.last, tokens=last.tokens + run.tokens)
            merged.pop()
        merged.append(run)
    return merged


def mark_recalled(runs: Iterable[Run], sizes: Mapping[int, int], reason: str) -> Iterator[Run]:
    """Yield the runs, with the recalled entries that are not sent otherwise in runs of their own.

    `sizes` has the number of tokens that are quoted of each of them, by its position, in order.
    """
    for run in runs:
        inside = [position for position in sizes if run.first <= position <= run.last and run.is_gone]
        size = run.last + 1 - run.first
        first = run.first
        for position in (*inside, run.last + 1):
            if first < position:
                tokens = run.tokens * (position - first) // size
                yield msgspec.structs.replace(run, first=first, last=position - 1, tokens=tokens)
            if position <= run.last:
                yield Run(position, position, "recalled", reason, tokens=sizes[position])
            first = position + 1


def list_runs(epoch: Epoch) -> tuple[Run, ...]:
    """Return the runs of an epoch, with the entries that its head outlines or quotes in runs of their own."""
    head = epoch.summary
    runs = tuple(name_substitutes(epoch.runs, head))
    if head is None or not head.promoted:
        return runs
    positions = sorted({each.position for each in head.promoted})
    sizes = dict.fromkeys(positions, head.recalled // len(positions))
    return tuple(merge_runs(mark_recalled(runs, sizes, PROMOTED)))


def name_substitutes(runs: Iterable[Run], head: Summary | None) -> Iterator[Run]:
    """Yield the runs of a request with this head. The reason of what memory replaced is the part that stands for it."""
    for run in runs:
        if head is None or not head.is_brief or (run.verdict, run.reason) != ("summarised", BRIEF):
            yield run
            continue
        size, first = run.last + 1 - run.first, run.first
        rest = BRIEF if head.brief else SUMMARY
        spans = [(max(start, run.first), min(stop, run.last + 1)) for start, stop in sorted(head.outlined)]
        for start, stop in [*[span for span in spans if span[0] < span[1]], (run.last + 1, run.last + 1)]:
            start = max(start, first)
            for begin, end, reason in ((first, start, rest), (start, stop, OUTLINE)):
                if begin < end:
                    tokens = run.tokens * (end - begin) // size
                    yield msgspec.structs.replace(run, first=begin, last=end - 1, reason=reason, tokens=tokens)
            first = max(first, stop)


def find_epoch(transcript: Transcript, policy: str) -> Epoch:
    """Return the newest epoch if it belongs to this policy and is consistent, else an epoch that sends all entries."""
    epoch = transcript.records.read_latest("epoch", Epoch)
    if epoch is None or epoch.policy != policy or not _is_sound(epoch, transcript):
        return Epoch(policy)
    return epoch


def _is_sound(epoch: Epoch, transcript: Transcript) -> bool:
    """Return True if the runs of an epoch cover each entry before its start exactly once, in order."""
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
    """Return True if an epoch separates no answer from its message, and no tool result from its call."""

    def role(position: int) -> str:
        return transcript.role(transcript.index_of(position))

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
    # The first entries of a conversation may be answers without a question.
    return all(role(position) not in ANSWERS for position in borders if position > 0)


def _is_cut(run: Run, role: str) -> bool:
    roles = ("assistant",) if run.reason == CARD else ("tool", "event")
    return run.verdict == "sent" and run.keep > 0 and run.first == run.last and role in roles


def begin_epoch(
    transcript: Transcript, epoch: Epoch, shorten: Callable[[TurnSuffix], TurnSuffix] | None = None
) -> Transcript:
    """Return the transcript with a new epoch recorded, and without the kept suffixes of the previous epoch.

    Suffixes of the current exchange are kept, unless they may quote an exchange that is excluded now. `shorten` makes
    them shorter.
    """
    epoch = msgspec.structs.replace(epoch, checked=is_checked(transcript))
    standing = transcript.records
    last = standing.read_latest("epoch", Epoch)
    goes_on = epoch.excluded == (last.excluded if last is not None else ())
    records = [
        record
        for record in standing
        if record.kind != "aside"
        or (goes_on and (suffix := standing.read(record, TurnSuffix)) and suffix.place > epoch.current)
    ]
    if shorten is not None:
        shorter = {suffix.place: shorten(suffix) for suffix in list_kept_suffixes(transcript, epoch.current)}
        for i, record in enumerate(records):
            suffix = standing.read(record, TurnSuffix) if record.kind == "aside" else None
            if suffix is not None and suffix.place in shorter:
                data = json_bytes.encode(shorter[suffix.place])
                records[i] = msgspec.structs.replace(record, at=now(), data=data)
    return transcript.with_records(records).add_record("epoch", json_bytes.encode(epoch), replace=True)


def is_checked(transcript: Transcript) -> bool:
    """Return True if all entries of a conversation with a look-alike of a tag are marked.

    Its first entry says so. If that is not here, the newest epoch does.
    """
    if transcript.is_checked or not transcript.position(0):
        return transcript.is_checked
    epoch = transcript.records.read_latest("epoch", Epoch)
    return epoch is not None and epoch.checked


class NotRecalled(SpanSet):
    """The positions of entries that must not be recalled, because the request contains them or they are excluded."""

    def __init__(self, epoch: Epoch, size: int) -> None:
        spans = [(run.first, run.last + 1) for run in epoch.runs if not run.is_gone or run.reason == EXCLUDED]
        super().__init__([*spans, (epoch.start, size)])


def list_unreachable(transcript: Transcript, policy: Policy) -> list[tuple[int, int]]:
    """Return the spans of whole exchanges that no later turn will send, as pairs of indexes (first, stop).

    Excluded exchanges are not among them, because they can be included again.
    """
    epoch = find_epoch(transcript, fingerprint_policy(policy))
    gone = [run for run in epoch.runs if run.is_gone and run.reason != EXCLUDED]
    spans = [(transcript.index_of(run.first), transcript.index_of(run.last + 1)) for run in gone]
    return [span for span in spans if span[0] < span[1]]


def record_anchor(transcript: Transcript, anchor: Anchor) -> Transcript:
    """Return the transcript with the reported length of its last request recorded."""
    return transcript.add_record("anchor", json_bytes.encode(anchor), replace=True)


def record_meter(transcript: Transcript, meter: Meter, usage: Usage, *, at: int, recalled: int = 0) -> Transcript:
    """Return the transcript with the cost of a model call recorded, also in the epoch's receipt if it has one.

    `recalled` is the number of tokens that were recalled for this call.
    """
    meter = msgspec.structs.replace(meter.add_call(usage, recalled), at=at)
    transcript = transcript.add_record("meter", json_bytes.encode(meter), replace=True)
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


def record_passages(transcript: Transcript, passages: RecalledPassages) -> Transcript:
    """Return the transcript with the passages recorded that were recalled in its epoch."""
    return transcript.add_record(PASSAGES, json_bytes.encode(passages), replace=True)


def list_covered(epoch: Epoch, stop: int) -> tuple[tuple[int, int], ...]:
    """Return the spans that a summary of everything that an epoch sends before position `stop` would cover."""
    sent = [(run.first, min(run.last + 1, stop)) for run in epoch.runs if not run.is_gone]
    summarised = epoch.summary.covers if epoch.summary else ()
    return tuple(merge_spans((*summarised, *sent, (epoch.start, stop))))


def list_replaced(transcript: Transcript, epoch: Epoch, stop: int) -> list[Entry]:
    """Return the entries that a summary up to position `stop` would replace, besides the present summary."""
    summary = epoch.summary
    positions = [position for span in list_covered(epoch, stop) for position in range(*span)]
    new = [each for each in positions if summary is None or not summary.covers_range(each, each + 1)]
    return [transcript[transcript.index_of(position)] for position in new]


def to_old_entries(entries: Iterable[Entry]) -> list[OldEntry]:
    """Return entries in the form in which the app's summary function receives them."""
    return [OldEntry(entry.id, entry.role, describe_entry(entry)[0], entry.at) for entry in entries]


def record_summary(transcript: Transcript, summary: Summary, last: str) -> Transcript:
    """Return the transcript with a summary recorded, attached to the last entry that it covers."""
    before = transcript.records.read_latest("summary", Summary)
    usual = summary.tokens if before is None else (2 * before.usual + summary.tokens) // 3
    summary = msgspec.structs.replace(summary, usual=usual)
    record = Record("summary", last, summary.at, json_bytes.encode(summary))
    older = [record for record in transcript.records if record.kind != "summary"]
    return transcript.with_records((*older, record))


def read_windows(transcript: Transcript) -> dict[str, int]:
    """Return the windows that this conversation has learned from refused requests, in tokens, by model."""
    learned = transcript.records.read_latest("window", dict[str, int])
    return {model: window for model, window in learned.items() if 0 < window <= MOST_WINDOW} if learned else {}
