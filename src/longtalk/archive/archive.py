"""List, search, read, export, import, redact and delete the stored conversations of one owner, without a model.

    archive = Archive(SQLite("talks.db"), owner="ada")
    for each in archive.conversations():
        print(each.id, archive.history(each.id)[0].text)

Methods that take the id of a conversation raise `NotFound` if the conversation does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from longtalk._util.checks import PROFILE_ID, check_meta
from longtalk._util.concurrency import call_store, run_in_thread
from longtalk.archive.history import parse_terms
from longtalk.archive.owner_profile import AsyncOwnerProfile
from longtalk.archive.profile_reading import change_privacy, forget_source, read_privacy
from longtalk.archive.reading import AsyncArchiveReading, not_found_error
from longtalk.archive.redaction import REDACTED, replace_content
from longtalk.archive.tree import select_on_branch
from longtalk.branches.branch import AsyncBranch
from longtalk.branches.expire import expire
from longtalk.errors import CorruptStore, InputError, NotFound
from longtalk.memory.brief.record import KIND as BRIEF
from longtalk.memory.profile.config import Profile
from longtalk.stores.base import MAIN, ConversationInfo, DeletionReceipt, SearchHit, Store
from longtalk.stores.checks import check_parents
from longtalk.transcript.manifest import read_manifest as read_manifest
from longtalk.transcript.pack import Entry
from longtalk.transcript.standing import read_record
from longtalk.wires.pairing import check_pairs

if TYPE_CHECKING:
    from longtalk.archive.daily import DayStats
    from longtalk.archive.stats import Stats
    from longtalk.transfer.conversation_export import ConversationExport
    from longtalk.transfer.importers import Source
    from longtalk.transfer.importers.mapping import TableMapping
    from longtalk.transfer.load import ImportResult, Progress
    from longtalk.transfer.owners import Owners

Format: TypeAlias = Literal["md", "json", "jsonl"]
_MORE = 4
"""How many times as many hits are read if too few of them are on the branch that is wanted."""


class AsyncArchive(AsyncArchiveReading):
    """The conversations of one owner in a store. The default store is a SQLite file in the user's data folder."""

    # Finding

    async def conversations(
        self,
        *,
        limit: int = 50,
        after: ConversationInfo | tuple[int, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> list[ConversationInfo]:
        """Return at most `limit` conversations, most recently changed first.

        To get the next page, pass the last conversation of the previous page as `after`, or its `updated` time and id.
        With `meta`, return only conversations whose metadata has these values.
        """
        cursor = (after.updated, after.id) if isinstance(after, ConversationInfo) else after

        def read(count: int) -> list[ConversationInfo]:
            found = self.store.conversations(self.owner, limit=count, after=cursor, meta=meta)
            return [each for each in found if each.id != PROFILE_ID] if limit > 0 else []

        # What the app has changed in the profile is stored as a conversation, but is none.
        listed: list[ConversationInfo] = await call_store(self.store, lambda: read(limit + 1))
        return listed[:limit]

    async def every(self, *, meta: Mapping[str, Any] | None = None) -> list[ConversationInfo]:
        """Return all conversations. None is missed, even if conversations change while the list is read page by page.

        With `meta`, return only conversations whose metadata has these values.
        """
        found: dict[str, ConversationInfo] = {}
        more = True
        while more:
            more, last = False, None
            while page := await self.conversations(limit=500, after=last, meta=meta):
                more = more or any(each.id not in found for each in page)
                found |= {each.id: each for each in page if each.id not in found}
                last = page[-1]
        return list(found.values())

    async def search(
        self, text: str, *, limit: int = 20, conversation: str | None = None, branch: str | None = None
    ) -> list[SearchHit]:
        """Return at most `limit` entries that contain any of the words in `text`, best matches first.

        Text in double quotes is searched as a phrase, and `viol*` finds all words that begin so. With `conversation`,
        only that conversation is searched; with `branch` too, only what is on that branch.
        The entries are followed by lines that the app wrote into a brief and that are no longer there, with the role
        "brief".
        """
        if branch is not None and conversation is None:
            raise InputError("`branch` names a branch of a conversation: pass `conversation` too.")
        terms, most = parse_terms(text), limit
        while True:
            search = partial(self.store.candidates, self.owner, terms, most, conversation=conversation)
            found: list[SearchHit] = await call_store(self.store, search)
            if branch is None or conversation is None:
                break
            is_all = len(found) < most
            found = (await self._call(partial(select_on_branch, self.store), conversation, branch, found))[:limit]
            if is_all or len(found) >= limit:
                break
            most *= _MORE
        if not terms or len(found) >= limit:
            return found
        from longtalk.archive.brief_lines import find_app_lines

        lines: list[SearchHit] = await call_store(
            self.store, lambda: find_app_lines(self.store, self.owner, terms, limit - len(found), conversation, branch)
        )
        return [*found, *lines]

    # Across conversations

    def profile(self, config: Profile | None = None) -> AsyncOwnerProfile:
        """Return the owner's profile, to be read and changed. `config` is the one of the policy, or the default."""
        return AsyncOwnerProfile(self.store, self.owner, config or Profile())

    async def private(self, conversation: str) -> bool:
        """Return True if a conversation is private: it adds nothing to the owner's profile and uses none of it."""
        found: bool = await self._call(partial(read_privacy, self.store), conversation)
        return found

    async def set_private(self, conversation: str, private: bool = True, *, create: bool = False) -> None:
        """Make a conversation private, or end that. What it has added to the owner's profile is no longer there.

        With `create`, a conversation that does not exist is begun.
        """
        await self._call(partial(change_privacy, self.store, private=private, create=create), conversation)

    # Figures and checks

    async def stats(self, conversation: str | None = None) -> Stats:
        """Return statistics of one conversation or, if none is given, of all the owner's conversations together."""
        from longtalk.archive.stats import Stats, count_conversation

        total = Stats()
        for name in [each.id for each in await self.every()] if conversation is None else [conversation]:
            talk = await self.talk(name)
            manifests: dict[str, bytes] = {}
            for part in talk.branches:
                manifests |= await self._call(self.store.manifests, name, part.name, part.start, part.stop)
            total += count_conversation(talk, manifests)
        return total

    async def daily(self, conversation: str | None = None) -> list[DayStats]:
        """Return tokens and cost by day, oldest first, of one conversation or of all the owner's conversations."""
        from longtalk.archive.daily import count_days

        found = []
        for name in [each.id for each in await self.every()] if conversation is None else [conversation]:
            for branch in await self.branches(name):
                found += await self.metrics(name, branch=branch)
        return count_days(found)

    async def verify(self, conversation: str) -> list[str]:
        """Check a stored conversation; if anything is damaged, raise `CorruptStore` with a list of all problems.

        The check covers checksums, the links between entries, and whether every tool result has its call. Returns a
        description of each part whose checksum is missing; the list is empty unless an earlier version stored it.
        """
        damage: list[str] = await self._call(self.store.verify, conversation)
        # If the store reports damage, the entries may be unreadable, so they are not checked.
        for head in [] if damage else await self._list_heads(conversation):
            try:
                entries = await self._read_entries(conversation, head.branch)
                check_parents(None, entries)
                check_pairs(entries)
            except ValueError as problem:
                damage.append(f"on branch {head.branch!r}, {problem}")
        if damage:
            raise CorruptStore(
                f"Conversation {conversation!r} is damaged: {'; '.join(dict.fromkeys(damage))}. Restore it from a "
                "backup."
            )
        find_uncovered = getattr(self.store, "uncovered", None)
        return await self._call(find_uncovered, conversation) if find_uncovered else []

    # Exporting and importing

    async def talk(self, conversation: str) -> ConversationExport:
        """Return a conversation with all its branches as a value that is independent of the store."""
        from longtalk.transfer.snapshot import read_snapshot, to_export

        found = await self._call(lambda *whose: read_snapshot(self.store, *whose), conversation)
        if found is None:
            raise not_found_error(conversation)
        return to_export(found)

    async def export(self, conversation: str, format: Format = "md", *, branch: str = MAIN) -> str:  # noqa: A002
        """Return a conversation as text: the given branch as Markdown, or all branches as JSON or JSONL."""
        if format not in ("md", "json", "jsonl"):
            raise InputError(f"`format` must be 'md', 'json' or 'jsonl', not {format!r}.")
        talk = await self.talk(conversation)
        if all(part.name != branch for part in talk.branches):
            raise NotFound(f"Conversation {conversation!r} has no branch {branch!r}: `branches` lists its branches.")
        if format == "md":
            from longtalk.transfer.markdown import to_markdown

            held = await self.settings(conversation, branch=branch)
            return to_markdown(talk, branch, system=held.system if held is not None else None)
        from longtalk.transfer.json_export import to_json, to_jsonl

        return (to_json if format == "json" else to_jsonl)([talk]).decode()

    async def load(self, data: Source, *, id: str | None = None) -> list[str]:  # noqa: A002
        """Import a file as `import_conversations` does, and return the ids of the conversations that are now stored."""
        return (await self.import_conversations(data, id=id)).ids

    async def import_conversations(
        self,
        data: Source,
        *,
        id: str | None = None,  # noqa: A002
        mapping: TableMapping | Mapping[str, Any] | Path | None = None,
        owners: Owners = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> ImportResult:
        """Import the conversations in a file, given its content or its path, and return an outcome for each.

        Longtalk's exports, states, OpenAI chat messages and KSI session logs are imported completely or not at all; the
        import is rejected if the store has a different conversation with the same id. Files of other tools
        (`transfer.importers`) are imported one conversation at a time, and can be imported again to add what is new.
        If the file has only one conversation, `id` replaces its id. `progress` is called with the number of
        conversations processed so far. With `dry_run`, nothing is written.

        A `DatabaseAddress` (from `longtalk.transfer.importers`) names a PostgreSQL database to read. With `mapping`, an
        app's own tables are read as it describes. If the conversations have owners in the source, those of the
        archive's owner are imported, or those of all owners with `owners="all"` or with a mapping from old to new
        names; where they have none, a mapping gives the owner of each conversation by its id.
        """
        from longtalk.transfer.importers import import_source

        # Import in a separate thread, so that turns can run at the same time.
        done: ImportResult = await run_in_thread(
            lambda: import_source(
                data,
                self.store,
                self.owner,
                id=id,
                mapping=mapping,
                owners=owners,
                dry_run=dry_run,
                progress=progress,
            )
        )
        return done

    async def copy_to(
        self,
        store: Store,
        ids: Sequence[str] = (),
        *,
        since: int | str | None = None,
        owners: Owners = None,
        progress: Progress | None = None,
    ) -> ImportResult:
        """Copy all conversations, or those in `ids`, to another store byte for byte, and verify the copies.

        With `since`, copy only conversations changed at or after that time, in milliseconds since 1970. `since` may
        also be the id of a conversation; then the time of its last change is used. Copying again skips unchanged
        conversations and adds what is new. `progress` is called with the number of conversations processed so far.
        With `owners="all"`, copy the conversations of all owners; with a mapping, the owners get the names in it.
        """
        from longtalk.transfer.copy import copy_conversations

        done: ImportResult = await run_in_thread(
            lambda: copy_conversations(
                self.store, store, self.owner, ids=ids, since=since, owners=owners, progress=progress
            )
        )
        return done

    # Changing

    async def set_metadata(self, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> None:
        """Replace the metadata of a conversation or, with `entry`, of one entry. Metadata is never sent to a model."""
        check_meta(meta)
        if conversation == PROFILE_ID:
            raise not_found_error(conversation)
        found = await call_store(self.store, lambda: self.store.describe(self.owner, conversation, meta, entry=entry))
        if not found:
            raise not_found_error(conversation, entry)

    async def redact(self, conversation: str, entry: str) -> None:
        """Erase the content of an entry from the conversation, the search index and all derived data that may quote it.

        Derived data includes the lines that a model has added to the brief since the entry was made, and later memory
        cards and recalled passages that share words with the entry. System texts and tools that were first given with
        this entry's turn or a later one are removed too.
        """
        from longtalk.branches.rebuild import strip_settings
        from longtalk.branches.settings import StoredSettings, find_settings
        from longtalk.memory.brief.record import BriefRecord, redact_since, with_brief_record
        from longtalk.memory.recall.labels import find_quotes
        from longtalk.policies import KeepAll

        original: Entry | None = None
        is_erased = False
        briefs: dict[str, BriefRecord] = {}
        settings: dict[str, StoredSettings] = {}
        while True:
            # A turn that was running meanwhile may have quoted the entry, so this ends when nothing is left to erase.
            found: dict[str, bytes] = {}
            for head in await self._list_heads(conversation):
                entries = await self._read_entries(conversation, head.branch)
                position = next((i for i, each in enumerate(entries) if each.id == entry), None)
                if position is None:
                    continue
                original = original or entries[position]
                # What the store erases with the entry is read before: the changes of the app must stay.
                records = () if is_erased else (await self._read_head(conversation, head.branch)).records
                brief = next((each.record for each in reversed(records) if each.record.kind == BRIEF), None)
                if brief is not None and (read := read_record(brief, BriefRecord)) is not None:
                    briefs[head.branch] = redact_since(read, entries[position].at, position)
                held = find_settings(each.record for each in records if each.position >= position)
                if held is not None:
                    settings[head.branch] = held
                found |= _select_changed(
                    (other, rest or REDACTED) for other, rest in find_quotes(original, entries[position + 1 :])
                )
            if original is None:
                raise not_found_error(conversation, entry)
            if not is_erased:
                found[entry] = replace_content(original, REDACTED)
                is_erased = True
            elif not found:
                break
            for name, native in found.items():
                await self._call(self.store.redact, conversation, name, native)
        for branch, record in briefs.items():
            stored = AsyncBranch(self.store, self.owner, conversation, branch, KeepAll())
            await call_store(self.store, partial(stored.attach, partial(with_brief_record, record=record)))
        # The system text that was given with a later turn may quote the entry, so it is not stored again.
        for branch, held in settings.items():
            stored = AsyncBranch(self.store, self.owner, conversation, branch, KeepAll())
            await call_store(self.store, partial(stored.attach, partial(strip_settings, stored=held)))
        await call_store(self.store, lambda: forget_source(self.store, self.owner, conversation))

    async def delete(self, conversation: str) -> DeletionReceipt:
        """Delete a conversation and all data derived from it, and return a receipt that counts what was deleted."""
        receipt: DeletionReceipt | None = await self._call(self.store.delete, conversation)
        if receipt is None:
            raise not_found_error(conversation)
        await call_store(self.store, lambda: forget_source(self.store, self.owner, conversation))
        return receipt

    async def delete_branch(self, conversation: str, branch: str) -> DeletionReceipt:
        """Delete a branch with all that no other branch shares, and return a receipt that counts what was deleted.

        The main branch and the one on which the conversation goes on are refused with `InputError`. Stores can't delete
        a part, so the conversation is written again: this takes as long as copying it.
        """
        from longtalk.archive.branch_removal import delete_branch

        receipt: DeletionReceipt = await self._call(partial(delete_branch, self.store), conversation, branch)
        return receipt

    async def expire(self, conversation: str, *, before: int) -> DeletionReceipt | None:
        """Delete a conversation, unless it was changed at or after `before` (ms since 1970) or a turn is running."""
        receipt: DeletionReceipt | None = await self._call(partial(expire, self.store), conversation, before)
        if receipt is not None:
            await call_store(self.store, lambda: forget_source(self.store, self.owner, conversation))
        return receipt


def _select_changed(wanted: Iterable[tuple[Entry, str]]) -> dict[str, bytes]:
    """Return the JSON of those entries that do not have the wanted text as all of their content yet, by their ids."""
    replaced = [(entry, replace_content(entry, text)) for entry, text in wanted]
    return {entry.id: native for entry, native in replaced if native != entry.native}
