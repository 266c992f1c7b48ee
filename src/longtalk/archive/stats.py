"""Statistics of conversations: entries, turns, tokens and cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from longtalk.models.call_cost import add_dollars
from longtalk.transcript.manifest import read_manifest
from longtalk.transcript.standing import read_record
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
    """The tokens of all model calls, as the providers reported them."""
    cost: float | None = None
    """The known costs of turns and summaries in US dollars, at the prices when they ran; None if no cost is known."""
    unpriced: int = 0
    """The number of turns and summaries whose cost is unknown; `cost` does not include them."""

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
        )


def count_conversation(export: ConversationExport, manifests: Mapping[str, bytes]) -> Stats:
    """Return the statistics of a conversation, given the manifests of its turns by turn id."""
    entries = [entry for part in export.branches for entry in part.entries]
    turns = {turn.id: turn for part in export.branches for turn in part.turns}
    wires = {entry.turn: entry.wire for entry in entries if entry.role == "assistant"}
    costs = {turn: read_manifest(manifests.get(turn, b"")).cost for turn in turns}
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
        usage=sum((read_usage(raw, wire) for raw, wire in reports), Usage()),
        cost=_add_known((*costs.values(), *[each.cost for each in summaries])),
        unpriced=sum(
            costs[turn.id] is None for turn in turns.values() if turn.usage or (turn.model and turn.id in wires)
        )
        + sum(each.cost is None for each in summaries),
    )


def _add_known(costs: Iterable[float | None]) -> float | None:
    """Return the sum of the costs that are known; None if none of them is."""
    known = [cost for cost in costs if cost is not None]
    return add_dollars(known) if known else None


def _count_values(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _add_counts(some: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return _count_values((Counter(some) + Counter(more)).elements())
