"""Statistics of conversations: entries, turns, tokens and cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from longtalk.archive.cut_answers import estimate_cut_call, estimate_cut_cost, is_cut
from longtalk.branches.settings import KIND, StoredSettings
from longtalk.models.call_cost import add_dollars
from longtalk.transcript.manifest import read_manifest
from longtalk.transcript.pack import Entry
from longtalk.transcript.standing import read_record
from longtalk.transcript.transcript import Turn
from longtalk.transfer.conversation_export import ConversationExport
from longtalk.turn.summary_claims import SummaryClaim
from longtalk.usage import Usage
from longtalk.wires import read_usage


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of one or more conversations. Entries and turns that several branches share are counted once."""

    conversations: int = 0
    branches: int = 0
    entries: int = 0
    bytes: int = 0
    """The total size of the JSON of all entries, in bytes."""
    turns: Mapping[str, int] = {}
    """The number of turns by status."""
    models: Mapping[str, int] = {}
    """The number of turns by model. Turns that were added without a model call have none."""
    usage: Usage = Usage()
    """The tokens of all model calls, as the providers reported them; see `estimated`."""
    cost: float | None = None
    """The known costs of turns and summaries in US dollars, at the prices when they ran; None if no cost is known."""
    unpriced: int = 0
    """The number of turns and summaries whose cost is unknown; `cost` does not include them."""
    estimated: int = 0
    """The number of turns whose last answer was cut off before its usage was reported, so that it is an estimate."""

    def __add__(self, other: Stats) -> Stats:
        return Stats(
            conversations=self.conversations + other.conversations,
            branches=self.branches + other.branches,
            entries=self.entries + other.entries,
            bytes=self.bytes + other.bytes,
            turns=_add_counts(self.turns, other.turns),
            models=_add_counts(self.models, other.models),
            usage=self.usage + other.usage,
            cost=_add_known((self.cost, other.cost)),
            unpriced=self.unpriced + other.unpriced,
            estimated=self.estimated + other.estimated,
        )


def count_conversation(export: ConversationExport, manifests: Mapping[str, bytes]) -> Stats:
    """Return the statistics of a conversation, given the manifests of its turns by turn id."""
    entries = [entry for part in export.branches for entry in part.entries]
    turns = {turn.id: turn for part in export.branches for turn in part.turns}
    wires = {entry.turn: entry.wire for entry in entries if entry.role == "assistant"}
    costs = {turn: read_manifest(manifests.get(turn, b"")).cost for turn in turns}
    cut = _estimate_cut(export, turns, manifests, wires)
    costs |= {turn: cost for turn, (_, cost) in cut.items() if costs[turn] is None}
    reports = [(raw, wires.get(turn.id, "")) for turn in turns.values() for raw in turn.usage]
    # Summaries made in the background belong to no turn, so their usage is stored in records.
    records = [each.record for part in export.branches for each in part.records if each.record.kind == "attempt"]
    summaries = [
        each for each in (read_record(record, SummaryClaim) for record in records) if each is not None and each.usage
    ]
    reports += [(raw.encode(), "") for each in summaries for raw in each.usage]
    return Stats(
        conversations=1,
        branches=len(export.branches),
        entries=len(entries),
        bytes=sum(len(entry.native) for entry in entries),
        turns=_count_values(turn.status for turn in turns.values()),
        models=_count_values(turn.model for turn in turns.values() if turn.model),
        usage=sum((*(read_usage(raw, wire) for raw, wire in reports), *(usage for usage, _ in cut.values())), Usage()),
        cost=_add_known((*costs.values(), *[each.cost for each in summaries])),
        unpriced=sum(
            costs[turn.id] is None for turn in turns.values() if turn.usage or (turn.model and turn.id in wires)
        )
        + sum(each.cost is None for each in summaries),
        estimated=len(cut),
    )


def _estimate_cut(
    export: ConversationExport, turns: Mapping[str, Turn], manifests: Mapping[str, bytes], wires: Mapping[str, str]
) -> dict[str, tuple[Usage, float | None]]:
    """Return the estimated usage of answers that were cut off, and what their turns have cost, by turn."""
    wanted = {name for name, turn in turns.items() if is_cut(turn)}
    own: dict[str, list[Entry]] = {name: [] for name in wanted}
    for part in export.branches if wanted else ():
        for entry in part.entries:
            if entry.turn in wanted:
                own[entry.turn].append(entry)
    placed = [each.record for part in export.branches for each in part.records if wanted and each.record.kind == KIND]
    settings = [found for each in placed if (found := read_record(each, StoredSettings))]
    cut = {}
    for name, entries in own.items():
        turn, stored = turns[name], read_manifest(manifests.get(name, b""))
        usage = estimate_cut_call(turn, stored, entries)
        if usage is not None:
            usages = [*(read_usage(raw, wires.get(name, "")) for raw in turn.usage), usage]
            cut[name] = (usage, estimate_cut_cost(turn, stored, entries, settings, usages))
    return cut


def _add_known(costs: Iterable[float | None]) -> float | None:
    """Return the sum of the costs that are known; None if none of them is."""
    known = [cost for cost in costs if cost is not None]
    return add_dollars(known) if known else None


def _count_values(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _add_counts(some: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return _count_values((Counter(some) + Counter(more)).elements())
