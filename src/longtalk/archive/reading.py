"""Read the stored conversations of one owner: history, turns, manifests, requests, figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec

from longtalk._util.checks import check_name
from longtalk._util.concurrency import call_store, run_in_thread
from longtalk.archive.cut_answers import is_cut
from longtalk.archive.history import HistoryEntry, StoredTurn, to_history
from longtalk.archive.line_sources import LineSource, find_line_sources
from longtalk.archive.metrics import Metrics, build_metrics
from longtalk.archive.tree import BranchPlace, read_tree
from longtalk.context.costs import CostReceipt, Meter, complete_receipts
from longtalk.context.epochs import Epoch
from longtalk.context.manifest import restore_runs
from longtalk.errors import InputError, NotFound
from longtalk.stores import open_default_store
from longtalk.stores.base import MAIN, BranchHead, ConversationInfo, PlacedRecord, Store
from longtalk.stores.checks import meta_matches
from longtalk.stores.leases import is_free
from longtalk.tokens import counter_for
from longtalk.transcript.manifest import Run, read_manifest
from longtalk.transcript.pack import Entry
from longtalk.transcript.standing import read_record
from longtalk.transcript.transcript import Turn, TurnStatus

if TYPE_CHECKING:
    from longtalk.archive.recalled import RecalledEntry
    from longtalk.branches.rebuild import SentRequest
    from longtalk.branches.settings import Settings, StoredSettings
    from longtalk.memory.brief.lines import Line
    from longtalk.memory.profile.config import Profile
    from longtalk.memory.profile.lines import TurnProfile
    from longtalk.memory.recall.topics import Topic

_STEP = 32
"""The number of entries of a turn that are read at once."""


class AsyncArchiveReading:
    """The methods of an archive that read one conversation."""

    def __init__(self, store: Store | None = None, *, owner: str = "") -> None:
        check_name(owner, "owner", empty=True)
        if store is not None and not hasattr(store, "candidates"):
            raise InputError(f"`store` must be a store such as SQLite('talks.db'), not {store!r}.")
        self.store = open_default_store() if store is None else store
        self.owner = owner

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.owner!r} in {self.store!r}>"

    async def history(
        self,
        conversation: str,
        *,
        branch: str = MAIN,
        meta: Mapping[str, Any] | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> list[HistoryEntry]:
        """Return the entries of a branch in readable form; with `meta`, only those whose metadata has these values.

        With `limit`, return only the last entries: at least this many, and no turn in parts. With `before`, only
        entries at lower positions. To read page by page, pass the position of the first entry as the next `before`.
        """
        head = await self._read_head(conversation, branch)
        stop = head.size if before is None else max(0, min(before, head.size))
        count = stop if limit is None else max(1, limit)
        while True:
            start = await self._find_turn_start(conversation, branch, max(0, stop - count))
            entries = await self._read_history(conversation, branch, start, stop)
            if not start or len(entries) >= max(1, limit or 0):
                break
            # Some entries are not shown, so that the page has too few.
            count = 2 * (stop - start)
        if (await self._read_head(conversation, branch)).revision != head.revision:
            # The branch changed between these reads, so a turn could look complete without its answer: read again.
            return await self.history(conversation, branch=branch, meta=meta, before=before, limit=limit)
        return [each for each in entries if meta_matches(each.meta, meta or {})]

    async def _read_history(self, conversation: str, branch: str, start: int, stop: int) -> list[HistoryEntry]:
        turns: list[tuple[int, Turn]] = await self._call(self.store.turns, conversation, branch, start, stop)
        pack = await self._call(self.store.read, conversation, branch, start, stop)
        metas = await self._call(self.store.metas, conversation, branch, start, stop)
        return to_history(pack.entries(), [turn for _, turn in turns], metas, start=start)

    async def turn(self, conversation: str, turn: str, *, branch: str = MAIN) -> StoredTurn:
        """Return a turn with its entries, from this branch if it is there, else from another one that has it."""
        heads = await self._list_heads(conversation)
        for head in sorted(heads, key=lambda each: (each.branch != branch, each.branch)):
            is_last = head.turn is not None and head.turn.id == turn
            if is_last and head.turn is not None:
                placed = [(await self._find_last_entry(conversation, head.branch, head.size, turn), head.turn)]
            else:
                placed = await self._call(self.store.turns, conversation, head.branch, 0, head.size)
            for position, each in placed:
                if each.id == turn:
                    status = each.status
                    if status == "running" and (not is_last or is_free(head, self.owner, conversation)):
                        status = "interrupted"
                    return await self._read_turn(conversation, head.branch, position, each, status)
        raise NotFound(f"Turn {turn!r} of conversation {conversation!r} not found.")

    async def topics(self, conversation: str, *, branch: str = MAIN) -> list[Topic]:
        """Return the topics of a branch in order. `first` is the position of the first entry of a topic."""
        from longtalk.memory.recall.topics import find_topics

        entries = [each for each in await self.history(conversation, branch=branch) if each.role != "event"]
        found = await run_in_thread(lambda: find_topics((each.at, each.role, each.text) for each in entries))
        return [msgspec.structs.replace(topic, first=entries[topic.first].position) for topic in found]

    async def line_sources(self, conversation: str, lines: Sequence[Line], *, branch: str = MAIN) -> list[LineSource]:
        """Return the messages that lines of the brief come from, for those that are on this branch."""
        entries = await self.history(conversation, branch=branch)
        found: list[LineSource] = await run_in_thread(lambda: find_line_sources(entries, lines))
        return found

    async def epochs(self, conversation: str, *, branch: str = MAIN) -> list[Epoch]:
        """Return how the context of a branch was compacted, oldest first: what each epoch replaced, and by what."""
        await self._read_head(conversation, branch)
        return [epoch for _, epoch in sorted((await self._read_epochs(conversation, branch)).items())]

    async def meta(self, conversation: str) -> dict[str, Any]:
        """Return the metadata of a conversation."""
        return (await self._read_info(conversation)).meta

    async def branches(self, conversation: str) -> list[str]:
        """Return the names of all branches of a conversation."""
        return [head.branch for head in await self._list_heads(conversation)]

    async def tree(self, conversation: str) -> list[BranchPlace]:
        """Return all branches with their heads and where each forks: main first, each branch after its source."""
        await self._list_heads(conversation)
        found: list[BranchPlace] = await self._call(lambda *whose: read_tree(self.store, *whose), conversation)
        return found

    async def manifest(self, conversation: str, turn: str, *, branch: str = MAIN) -> tuple[Run, ...]:
        """Return the manifest of a turn's last request: for each run of entries, how it was treated, and why.

        The result is empty if no manifest was stored.
        """
        data = await self._call(self.store.manifest, conversation, turn)
        return restore_runs(read_manifest(data), await self._read_epochs(conversation, branch)) if data else ()

    async def recalled(self, conversation: str, turn: str, *, branch: str = MAIN) -> list[RecalledEntry]:
        """Return the entries that were recalled for a turn's message, best first, with the words that led to them.

        The ranking is computed again from what is stored, by words only.
        """
        from longtalk.archive.recalled import explain_recalled
        from longtalk.memory.recall.config import Recall
        from longtalk.memory.recall.index_cache import IndexCache
        from longtalk.memory.recall.search import index_store

        found = await self.turn(conversation, turn, branch=branch)
        runs = await self.manifest(conversation, turn, branch=found.branch)
        positions = [i for run in runs if run.verdict == "recalled" for i in range(run.first, run.last + 1)]
        said = [each for each in found.entries if each.role == "user"]
        if not positions or not said:
            return []
        message, at, size = "\n".join(each.text for each in said), found.turn.started, found.entries[0].position

        def explain(owner: str, name: str) -> list[RecalledEntry]:
            # The next turn needs the index in the cache of this process, with all entries.
            names, own = (owner, name, found.branch), IndexCache()
            index = index_store(self.store, *names, size, message, Recall(), now=at, cache=own)
            return explain_recalled(index, message, positions, now=at)

        explained: list[RecalledEntry] = await self._call(explain, conversation)
        return explained

    async def settings(self, conversation: str, *, branch: str = MAIN, turn: str | None = None) -> Settings | None:
        """Return how a turn of a branch was held, by default the last: model, options, policy, system text and tools.

        The result is None if that is not stored, because the conversation was imported or made by an earlier version.
        """
        from longtalk.branches.rebuild import read_settings

        found: Settings | None = await self._call(
            lambda *whose: read_settings(self.store, *whose), conversation, branch, turn
        )
        return found

    async def request(self, conversation: str, turn: str, *, branch: str = MAIN) -> list[SentRequest]:
        """Return what a turn has sent, one request per model call: the exact bytes, or why they can't be rebuilt."""
        from longtalk.archive.profile_reading import read_turn_profile
        from longtalk.branches.rebuild import rebuild_turn

        def read_profile(config: Profile, label: str) -> TurnProfile:
            return read_turn_profile(self.store, self.owner, conversation, config, counter_for(label))

        found: list[SentRequest] = await self._call(
            lambda *whose: rebuild_turn(self.store, *whose, read_profile=read_profile), conversation, turn, branch
        )
        return found

    async def metrics(
        self, conversation: str, *, branch: str = MAIN, start: int = 0, stop: int | None = None
    ) -> list[Metrics]:
        """Return the tokens and the cost of each turn of a branch in which a model was called, oldest turn first.

        With `start` and `stop`, only of the turns that begin at positions `start` to `stop - 1`.
        """
        head = await self._read_head(conversation, branch)
        end = head.size if stop is None else min(stop, head.size)
        turns: list[tuple[int, Turn]] = await self._call(self.store.turns, conversation, branch, start, end)
        manifests = await self._call(self.store.manifests, conversation, branch, start, end)
        epochs = await self._read_epochs(conversation, branch)
        cut = [(position, turn.id) for position, turn in turns if is_cut(turn)]
        entries = {turn: await self._read_turn_entries(conversation, branch, at, turn) for at, turn in cut}
        settings = await self._read_all_settings(conversation, branch) if cut else []
        if (await self._read_head(conversation, branch)).revision != head.revision:
            # The branch changed between these reads, so a turn could look complete without its cost: read again.
            return await self.metrics(conversation, branch=branch, start=start, stop=stop)
        return [
            build_metrics(
                turn, manifests.get(turn.id, b""), epochs, entries=entries.get(turn.id, ()), settings=settings
            )
            for _, turn in turns
            if turn.model
        ]

    async def costs(self, conversation: str, branch: str, start: int, stop: int) -> dict[str, float | None]:
        """Return the cost in US dollars, or None if it is unknown, of the turns that begin in this range, by turn id.

        A turn in which no model was called is left out.
        """
        manifests = await self._call(self.store.manifests, conversation, branch, start, stop)
        return {turn: read_manifest(data).cost for turn, data in manifests.items()}

    async def receipts(self, conversation: str, *, branch: str = MAIN) -> list[CostReceipt]:
        """Return a cost receipt for each time the context was compacted to save money, oldest first.

        A receipt has the predicted cost, the actual cost and the savings so far.
        """
        head = await self._read_head(conversation, branch)
        records: list[PlacedRecord] = await self._call(self.store.records, conversation, branch, "receipt")
        found = [receipt for each in records if (receipt := read_record(each.record, CostReceipt))]
        meters = [read_record(each.record, Meter) for each in head.records if each.record.kind == "meter"]
        return complete_receipts(found, meters[-1] if meters else None)

    # Inside

    async def _call(self, method: Callable[..., Any], conversation: str, *args: Any) -> Any:
        return await call_store(self.store, lambda: method(self.owner, conversation, *args))

    async def _list_heads(self, conversation: str) -> list[BranchHead]:
        heads: list[BranchHead] = await self._call(self.store.branches, conversation)
        if not heads:
            raise not_found_error(conversation)
        return heads

    async def _read_info(self, conversation: str) -> ConversationInfo:
        found: ConversationInfo | None = await self._call(self.store.info, conversation)
        if found is None:
            raise not_found_error(conversation)
        return found

    async def _read_head(self, conversation: str, branch: str) -> BranchHead:
        head: BranchHead | None = await self._call(self.store.head, conversation, branch)
        if head is None:
            raise NotFound(f"Branch {branch!r} of conversation {conversation!r} not found.")
        return head

    async def _read_entries(self, conversation: str, branch: str) -> list[Entry]:
        head = await self._read_head(conversation, branch)
        pack = await self._call(self.store.read, conversation, branch, 0, head.size)
        return list(pack.entries())

    async def _read_turn(
        self, conversation: str, branch: str, position: int, turn: Turn, status: TurnStatus
    ) -> StoredTurn:
        start = await self._find_turn_start(conversation, branch, position)
        entries = await self._read_turn_entries(conversation, branch, start, turn.id)
        metas = await self._call(self.store.metas, conversation, branch, start, start + len(entries))
        manifest = read_manifest(await self._call(self.store.manifest, conversation, turn.id))
        history = to_history(entries, [turn], metas, start=start)
        return StoredTurn(turn=turn, branch=branch, status=status, entries=tuple(history), cost=manifest.cost)

    async def _read_turn_entries(self, conversation: str, branch: str, start: int, turn: str) -> list[Entry]:
        """Return the entries of the turn that begins at this position."""
        entries: list[Entry] = []
        more = True
        while more:
            stop = start + len(entries)
            pack = await self._call(self.store.read, conversation, branch, stop, stop + _STEP)
            new = list(takewhile(lambda entry: entry.turn == turn, pack.entries()))
            entries += new
            more = len(new) == _STEP
        return entries

    async def _read_all_settings(self, conversation: str, branch: str) -> list[StoredSettings]:
        """Return the settings under which the turns of a branch were made, oldest first."""
        from longtalk.branches.settings import KIND, StoredSettings

        placed: list[PlacedRecord] = await self._call(self.store.records, conversation, branch, KIND)
        return [found for each in placed if (found := read_record(each.record, StoredSettings))]

    async def _find_last_entry(self, conversation: str, branch: str, size: int, turn: str) -> int:
        """Return the position of the last entry of a turn, which only notes follow; 0 if it has none."""
        stop = size
        while stop > 0:
            start = max(0, stop - _STEP)
            entries = (await self._call(self.store.read, conversation, branch, start, stop)).entries()
            own = [i for i, entry in enumerate(entries) if entry.turn == turn]
            if own:
                return start + own[-1]
            stop = start
        return 0

    async def _find_turn_start(self, conversation: str, branch: str, position: int) -> int:
        """Return the position of the first entry of the turn that has an entry at this position."""
        found = (await self._call(self.store.read, conversation, branch, position, position + 1)).entries()
        more = bool(found)
        while more and position > 0:
            pack = await self._call(self.store.read, conversation, branch, max(0, position - _STEP), position)
            before = pack.entries()
            same = list(takewhile(lambda entry: entry.turn == found[0].turn, reversed(before)))
            position -= len(same)
            more = len(same) == len(before)
        return position

    async def _read_epochs(self, conversation: str, branch: str) -> dict[int, Epoch]:
        """Return the epochs of a branch by start position. If several have the same start, the newest counts."""
        found: list[PlacedRecord] = await self._call(self.store.records, conversation, branch, "epoch")
        epochs = [epoch for each in found if (epoch := read_record(each.record, Epoch))]
        return {epoch.start: epoch for epoch in epochs}


def not_found_error(conversation: str, entry: str | None = None) -> NotFound:
    """Return the error for a conversation or an entry that does not exist."""
    what = f"Conversation {conversation!r}" if entry is None else f"Entry {entry!r} of conversation {conversation!r}"
    return NotFound(f"{what} not found.")
