"""Exchanges: a person's message with its answer and the tool calls between them, as `longtalk show -n` counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from longtalk._sync.archive.archive import Archive
from longtalk.archive.history import HistoryEntry
from longtalk.archive.metrics import Metrics
from longtalk.cli.answers import describe_usage
from longtalk.cli.store import choose_branch
from longtalk.transcript.pack import ANSWERS


class Exchange(NamedTuple):
    """An exchange of a conversation."""

    conversation: str
    branch: str
    entries: Sequence[HistoryEntry]

    @property
    def at(self) -> int:
        """When its last entry was made, in milliseconds since 1970."""
        return self.entries[-1].at


def find_exchanges(entries: Sequence[HistoryEntry]) -> list[int]:
    """Return the index of the first entry of each exchange. Events belong to the message after them."""
    starts: list[int] = []
    has_message, turn = True, ""
    for i, entry in enumerate(entries):
        if not starts or (has_message and entry.role not in ANSWERS and entry.turn != turn):
            starts.append(i)
            has_message = False
        has_message, turn = has_message or entry.role != "event", entry.turn
    return starts


def read_last_exchanges(archive: Archive, count: int) -> list[Exchange]:
    """Return the last exchanges of all conversations of the owner, oldest first, each on the branch that goes on."""
    found: list[Exchange] = []
    for summary in archive.every():
        if len(found) == count and summary.updated < found[0].at:
            continue
        branch = choose_branch(archive, summary, None)
        entries = archive.history(summary.id, branch=branch)
        starts = [*find_exchanges(entries), len(entries)]
        own = [Exchange(summary.id, branch, entries[start:stop]) for start, stop in pairwise(starts)]
        found = sorted((*found, *own), key=lambda each: (each.at, each.conversation))[-count:]
    return found


def read_usage(archive: Archive, conversation: str, branch: str) -> dict[str, Metrics]:
    """Return what each turn of a branch has used, by its id."""
    return {each.turn: each for each in archive.metrics(conversation, branch=branch)}


def format_turn_usage(turn: str, turns: Mapping[str, Metrics]) -> str:
    """Return the tokens and the cost of a turn in words, and why there is no cost."""
    used = turns[turn]
    parts = describe_usage(used.usage, used.cost)
    if parts and not used.cost:
        parts.append("price unknown" if used.cost is None else "free")
    about = "about " if used.estimated else ""
    return about + "; ".join(parts) if parts else "no usage reported"
