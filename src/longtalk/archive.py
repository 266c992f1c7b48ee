"""Archive: the conversations of one owner in a store, to find, read, hand out, take in and remove. No model is asked.

archive = Archive(SQLite("talks.db"), owner="ada")
for each in archive.conversations():
    print(each.id, archive.history(each.id)[0].text)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from longtalk._io import in_store, in_thread
from longtalk.epochs import Epoch
from longtalk.errors import InputError
from longtalk.manifest import read as read_manifest
from longtalk.manifest import whole
from longtalk.metrics import Metrics, measured
from longtalk.pack import Entry
from longtalk.policies.view import Run
from longtalk.receipts import CostReceipt, Meter, told
from longtalk.records import read_record
from longtalk.said import Said, check_meta, check_name, check_pairs, read, terms_of
from longtalk.stored import AsyncStored
from longtalk.stores import default
from longtalk.stores.base import MAIN, Head, Hit, Placed, Receipt, Store, Summary, has, linked
from longtalk.transcript import Turn
from longtalk.wires import redacted

if TYPE_CHECKING:
    from longtalk.imports import Source
    from longtalk.intake import Intake, Progress
    from longtalk.portable import Talk
    from longtalk.stats import Stats

Format: TypeAlias = Literal["md", "json", "jsonl"]
_REDACTED = "[redacted]"


class AsyncArchive:
    """The conversations of `owner` in `store`; without one, in the SQLite file in the user's data folder."""

    def __init__(self, store: Store | None = None, *, owner: str = "") -> None:
        check_name(owner, "owner", empty=True)
        if store is not None and not hasattr(store, "candidates"):
            raise InputError(f"`store` is a store such as SQLite('talks.db'), not {store!r}.")
        self.store = default() if store is None else store
        self.owner = owner

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.owner!r} in {self.store!r}>"

    # Finding

    async def conversations(
        self, *, limit: int = 50, after: Summary | None = None, meta: Mapping[str, Any] | None = None
    ) -> list[Summary]:
        """Those changed last come first; with `after`, the next ones behind that; with `meta`, those that have it."""
        cursor = None if after is None else (after.updated, after.id)
        found: list[Summary] = await in_store(
            self.store, lambda: self.store.conversations(self.owner, limit=limit, after=cursor, meta=meta)
        )
        return found

    async def every(self, *, meta: Mapping[str, Any] | None = None) -> list[Summary]:
        """All of them, also those that move to the front while they are read page by page."""
        found: dict[str, Summary] = {}
        more = True
        while more:
            more, last = False, None
            while page := await self.conversations(limit=500, after=last, meta=meta):
                more = more or any(each.id not in found for each in page)
                found |= {each.id: each for each in page if each.id not in found}
                last = page[-1]
        return list(found.values())

    async def search(self, text: str, *, limit: int = 20, conversation: str | None = None) -> list[Hit]:
        """Entries that hold some of the words, the best first. What stands in double quotes is one phrase."""
        terms = terms_of(text)
        found: list[Hit] = await in_store(
            self.store, lambda: self.store.candidates(self.owner, terms, limit, conversation=conversation)
        )
        return found

    # Reading

    async def history(
        self, conversation: str, *, branch: str = MAIN, meta: Mapping[str, Any] | None = None
    ) -> list[Said]:
        """All that was said on a branch; with `meta`, the entries that have these values among the app's own data."""
        head = await self._head(conversation, branch)
        pack = await self._call(self.store.read, conversation, branch, 0, head.size)
        turns: list[tuple[int, Turn]] = await self._call(self.store.turns, conversation, branch, 0, head.size)
        metas = await self._call(self.store.metas, conversation, branch, 0, head.size)
        if (await self._head(conversation, branch)).revision != head.revision:
            # What was read is not of one moment: a turn could look complete without its answer.
            return await self.history(conversation, branch=branch, meta=meta)
        said = read(pack.entries(), [turn for _, turn in turns], metas)
        return [each for each in said if has(each.meta, meta or {})]

    async def meta(self, conversation: str) -> dict[str, Any]:
        """The app's own data on a conversation."""
        return (await self._summary(conversation)).meta

    async def branches(self, conversation: str) -> list[str]:
        """The names of all branches."""
        return [head.branch for head in await self._heads(conversation)]

    async def manifest(self, conversation: str, turn: str, *, branch: str = MAIN) -> tuple[Run, ...]:
        """What a turn has sent last: what became of each entry, and why. Nothing if that was not kept."""
        data = await self._call(self.store.manifest, conversation, turn)
        return whole(read_manifest(data), await self._epochs(conversation, branch)) if data else ()

    async def metrics(self, conversation: str, *, branch: str = MAIN) -> list[Metrics]:
        """What each turn of a branch has sent, received and cost, the first one first."""
        head = await self._head(conversation, branch)
        turns: list[tuple[int, Turn]] = await self._call(self.store.turns, conversation, branch, 0, head.size)
        manifests = await self._call(self.store.manifests, conversation, branch, 0, head.size)
        epochs = await self._epochs(conversation, branch)
        if (await self._head(conversation, branch)).revision != head.revision:
            # What was read is not of one moment: a turn could look complete without its cost.
            return await self.metrics(conversation, branch=branch)
        return [measured(turn, manifests.get(turn.id, b""), epochs) for _, turn in turns]

    async def receipts(self, conversation: str, *, branch: str = MAIN) -> list[CostReceipt]:
        """What each epoch that began to save money was expected to cost, what it did, and what it has saved so far."""
        head = await self._head(conversation, branch)
        held: list[Placed] = await self._call(self.store.records, conversation, branch, "receipt")
        found = [receipt for each in held if (receipt := read_record(each.record, CostReceipt))]
        meters = [read_record(each.record, Meter) for each in head.records if each.record.kind == "meter"]
        return told(found, meters[-1] if meters else None)

    async def stats(self, conversation: str | None = None) -> Stats:
        """A conversation, or all of them, in numbers."""
        from longtalk.stats import Stats, counted

        total = Stats()
        for name in [each.id for each in await self.every()] if conversation is None else [conversation]:
            talk = await self.talk(name)
            manifests: dict[str, bytes] = {}
            for limb in talk.limbs:
                manifests |= await self._call(self.store.manifests, name, limb.name, limb.start, limb.stop)
            total += counted(talk, manifests)
        return total

    async def verify(self, conversation: str) -> None:
        """Raise `InputError` unless all is as it was written: checksums, parents, calls and their results."""
        wrong: list[str] = await self._call(self.store.verify, conversation)
        # What can't be read can't be looked at more closely.
        for head in [] if wrong else await self._heads(conversation):
            try:
                entries = await self._entries(conversation, head.branch)
                linked(None, entries)
                check_pairs(entries)
            except ValueError as problem:
                wrong.append(f"on the branch {head.branch!r} {problem}")
        if wrong:
            raise InputError(f"The conversation {conversation!r} is damaged: {'; '.join(dict.fromkeys(wrong))}.")

    # Handing out and taking in

    async def talk(self, conversation: str) -> Talk:
        """A conversation as a value, with all branches."""
        from longtalk.whole import read_whole, to_keep

        found = await self._call(lambda *whose: read_whole(self.store, *whose), conversation)
        if found is None:
            raise _missing(conversation)
        return to_keep(found)

    async def export(self, conversation: str, format: Format = "md", *, branch: str = MAIN) -> str:  # noqa: A002
        """A conversation as a file: Markdown of one branch to read, JSON or JSONL of all of it to keep."""
        if format not in ("md", "json", "jsonl"):
            raise InputError(f"An export is 'md', 'json' or 'jsonl', not {format!r}.")
        talk = await self.talk(conversation)
        if all(limb.name != branch for limb in talk.limbs):
            raise InputError(f"The conversation {conversation!r} has no branch {branch!r}.")
        if format == "md":
            from longtalk.markdown import to_markdown

            return to_markdown(talk, branch)
        from longtalk.portable import to_json, to_jsonl

        return (to_json if format == "json" else to_jsonl)([talk]).decode()

    async def load(self, data: Source, *, id: str | None = None) -> list[str]:  # noqa: A002
        """Take in what a file holds, as `take` does. Returns the ids of those that are here now."""
        return (await self.take(data, id=id)).ids

    async def take(self, data: Source, *, id: str | None = None, progress: Progress | None = None) -> Intake:  # noqa: A002
        """Take in what a file holds, by its content or its path, and tell what became of it.

        Exports of ours, states, OpenAI chat messages and session logs are taken in whole or not at all, and one that is
        here already is refused unless it is the same. What other tools keep (see `longtalk.imports`) comes one by one,
        and may come again: what has grown since is added to. `progress` is told how many are done.
        """
        from longtalk.imports import taken_from

        # Turns do not wait for all of it.
        done: Intake = await in_thread(lambda: taken_from(data, self.store, self.owner, id=id, progress=progress))
        return done

    async def copy_to(
        self,
        store: Store,
        ids: Sequence[str] = (),
        *,
        since: int | str | None = None,
        progress: Progress | None = None,
    ) -> Intake:
        """Copy conversations to another store, all or these, byte for byte, and read back what was written.

        With `since`, those changed at that time (in milliseconds since 1970) or later, or not before that conversation.
        May be done again: what is there and the same is passed over, and what has grown since is added to.
        """
        from longtalk.copying import copied

        done: Intake = await in_thread(
            lambda: copied(self.store, store, self.owner, ids=ids, since=since, progress=progress)
        )
        return done

    # Changing

    async def describe(self, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> None:
        """Replace the app's own data on a conversation, or on one of its entries. It is never sent to a model."""
        check_meta(meta)
        found = await in_store(self.store, lambda: self.store.describe(self.owner, conversation, meta, entry=entry))
        if not found:
            raise _missing(conversation, entry)

    async def redact(self, conversation: str, entry: str) -> None:
        """Remove what an entry says, for good: from the conversation, the index of words, and what may quote it.

        Of the brief that is all that a model has noted since; of what came later, cards in answers and what a model has
        recalled, where they share words with it.
        """
        from longtalk.memory.book import KIND, Book, kept, without_since
        from longtalk.memory.labels import quoting
        from longtalk.policies import KeepAll

        books: dict[str, Book] = {}
        gone: dict[str, bytes] = {}
        for head in await self._heads(conversation):
            entries = await self._entries(conversation, head.branch)
            place = next((i for i, held in enumerate(entries) if held.id == entry), None)
            if place is None:
                continue
            gone[entry] = _without(entries[place], _REDACTED)
            also = quoting(entries[place], entries[place + 1 :])
            gone |= {held.id: _without(held, rest or _REDACTED) for held, rest in also}
            records = (await self._head(conversation, head.branch)).records
            found = [read_record(each.record, Book) for each in records if each.record.kind == KIND]
            if found and found[-1] is not None:
                books[head.branch] = without_since(found[-1], entries[place].at, place)
        if not gone:
            raise _missing(conversation, entry)
        for name, native in gone.items():
            await self._call(self.store.redact, conversation, name, native)
        for branch, book in books.items():
            stored = AsyncStored(self.store, self.owner, conversation, branch, KeepAll())
            await in_store(self.store, partial(stored.attach, partial(kept, book=book)))

    async def delete(self, conversation: str) -> Receipt:
        """Remove a conversation and all that stems from it. The receipt says what that was."""
        receipt: Receipt | None = await self._call(self.store.delete, conversation)
        if receipt is None:
            raise _missing(conversation)
        return receipt

    async def _call(self, method: Callable[..., Any], conversation: str, *args: Any) -> Any:
        return await in_store(self.store, lambda: method(self.owner, conversation, *args))

    async def _heads(self, conversation: str) -> list[Head]:
        heads: list[Head] = await self._call(self.store.branches, conversation)
        if not heads:
            raise _missing(conversation)
        return heads

    async def _summary(self, conversation: str) -> Summary:
        found: Summary | None = await self._call(self.store.summary, conversation)
        if found is None:
            raise _missing(conversation)
        return found

    async def _head(self, conversation: str, branch: str) -> Head:
        head: Head | None = await self._call(self.store.head, conversation, branch)
        if head is None:
            raise InputError(f"There is no branch {branch!r} of a conversation {conversation!r} here.")
        return head

    async def _entries(self, conversation: str, branch: str) -> list[Entry]:
        head = await self._head(conversation, branch)
        pack = await self._call(self.store.read, conversation, branch, 0, head.size)
        return list(pack.entries())

    async def _epochs(self, conversation: str, branch: str) -> dict[int, Epoch]:
        """The epochs on a branch by where they began; of those that began at one place the newest."""
        found: list[Placed] = await self._call(self.store.records, conversation, branch, "epoch")
        epochs = [epoch for each in found if (epoch := read_record(each.record, Epoch))]
        return {epoch.start: epoch for epoch in epochs}


def _without(entry: Entry, text: str) -> bytes:
    """An entry's JSON that says this instead."""
    try:
        return redacted(entry, text)
    except (LookupError, ValueError):
        # Nobody here can read it, so nobody here sends it either.
        return b"{}"


def _missing(conversation: str, entry: str | None = None) -> InputError:
    what = f"conversation {conversation!r}" if entry is None else f"entry {entry!r} in a conversation {conversation!r}"
    return InputError(f"There is no {what} here.")
