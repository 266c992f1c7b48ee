"""Archive: the conversations of one owner in a store, to find, read, hand out, take in and remove. No model is asked.

archive = Archive(SQLite("talks.db"), owner="ada")
for each in archive.conversations():
    print(each.id, archive.history(each.id)[0].text)
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from longtalk._io import in_store
from longtalk.epochs import Epoch
from longtalk.errors import InputError
from longtalk.manifest import whole
from longtalk.pack import Entry
from longtalk.policies.view import Run
from longtalk.said import Said, check_pairs, is_meta, is_name, read
from longtalk.stores.base import BRIEF, MAIN, Commit, Head, Hit, Placed, Receipt, Store, Summary, linked
from longtalk.transcript import Turn, now
from longtalk.wires import redacted, reported
from longtalk.wires.base import Usage

if TYPE_CHECKING:
    from longtalk.portable import Limb, Talk

Format: TypeAlias = Literal["md", "json", "jsonl"]
REDACTED = "[redacted]"
_IMPORTING = "longtalk importing"
"""Among the app's own data on a conversation while it is taken in: one that was cut off is no conversation yet."""


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What there is, in numbers. Entries and turns that branches share count once."""

    conversations: int = 0
    branches: int = 0
    entries: int = 0
    bytes: int = 0
    """Of the JSON of all entries."""
    turns: Mapping[str, int] = {}
    """By status."""
    models: Mapping[str, int] = {}
    """Turns by who answered."""
    usage: Usage = Usage()
    """Tokens of all model calls, as reported."""

    def __add__(self, other: Stats) -> Stats:
        return Stats(
            conversations=self.conversations + other.conversations,
            branches=self.branches + other.branches,
            entries=self.entries + other.entries,
            bytes=self.bytes + other.bytes,
            turns=_added(self.turns, other.turns),
            models=_added(self.models, other.models),
            usage=self.usage + other.usage,
        )


class AsyncArchive:
    """The conversations of `owner` in `store`; without one, in the SQLite file in the user's data folder."""

    def __init__(self, store: Store | None = None, *, owner: str = "") -> None:
        is_name(owner, "owner", empty=True)
        self.store = store_or_default(store)
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

    async def search(self, text: str, *, limit: int = 20, conversation: str | None = None) -> list[Hit]:
        """Entries that hold some of the words, the best first. What stands in double quotes is one phrase."""
        terms = ["".join(pair) for pair in re.findall(r'"([^"]+)"|([^\s"]+)', text)]
        found: list[Hit] = await in_store(
            self.store, lambda: self.store.candidates(self.owner, terms, limit, conversation=conversation)
        )
        return found

    # Reading

    async def history(
        self, conversation: str, *, branch: str = MAIN, meta: Mapping[str, Any] | None = None
    ) -> list[Said]:
        """All that was said on a branch; with `meta`, the entries that have these values among the app's own data."""
        entries = await self._entries(conversation, branch)
        turns: list[tuple[int, Turn]] = await self._call(self.store.turns, conversation, branch, 0, len(entries))
        metas = await self._call(self.store.metas, conversation, branch, 0, len(entries))
        said = read(entries, [turn for _, turn in turns], metas)
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
        epochs = await self._call(self.store.records, conversation, branch, "epoch") if data else []
        return whole(data, [msgspec.json.decode(each.record.data, type=Epoch) for each in epochs]) if data else ()

    async def stats(self, conversation: str | None = None) -> Stats:
        """A conversation, or all of them, in numbers."""
        if conversation is not None:
            return _counted(await self.talk(conversation))
        total, last = Stats(), None
        while page := await self.conversations(after=last):
            for each in page:
                total += _counted(await self.talk(each.id))
            last = page[-1]
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
        from longtalk.portable import Talk, limbs

        heads = await self._heads(conversation)
        known = await self._summary(conversation)
        # Main first, then those that are long: what another one shares with them is theirs.
        heads = sorted(heads, key=lambda head: (head.branch != MAIN, -head.size, head.branch))
        paths = [await self._path(conversation, head) for head in heads]
        return Talk(id=conversation, created=known.created, updated=known.updated, meta=known.meta, limbs=limbs(paths))

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

    async def load(self, data: bytes | str, *, id: str | None = None) -> list[str]:  # noqa: A002
        """Take in what a file holds: exports of ours, states, OpenAI chat messages, session logs. Returns the ids.

        One that is here already is refused, and then nothing is taken in.
        """
        from longtalk.portable_read import read as read_file

        if not isinstance(data, str | bytes | bytearray | memoryview):
            raise InputError(f"What is taken in is the content of a file, not {type(data).__name__}.")
        data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
        talks = read_file(data) if id is None else read_file(data, name=id)
        if id is not None and len(talks) == 1:
            talks = [msgspec.structs.replace(talks[0], id=id)]
        names = [talk.id for talk in talks]
        for name in names:
            is_name(name, "id")
            if names.count(name) > 1:
                raise InputError(f"The file holds two conversations {name!r}.")
            there: Summary | None = await self._call(self.store.summary, name)
            if there is not None and _IMPORTING not in there.meta:
                raise InputError(f"There is a conversation {name!r} already. Name another id, or delete it first.")
        await in_store(self.store, lambda: _write(self.store, self.owner, talks))
        return names

    # Changing

    async def describe(self, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> None:
        """Replace the app's own data on a conversation, or on one of its entries. It is never sent to a model."""
        is_meta(meta)
        found = await in_store(self.store, lambda: self.store.describe(self.owner, conversation, meta, entry=entry))
        if not found:
            raise _missing(conversation, entry)

    async def redact(self, conversation: str, entry: str) -> None:
        """Remove what an entry says, for good: from the conversation, the index of words, and what may quote it."""
        for head in await self._heads(conversation):
            for held in await self._entries(conversation, head.branch):
                if held.id == entry:
                    try:
                        native = redacted(held, REDACTED)
                    except (LookupError, ValueError):
                        # Nobody here can read it, so nobody here sends it either.
                        native = b"{}"
                    await self._call(self.store.redact, conversation, entry, native)
                    return
        raise _missing(conversation, entry)

    async def delete(self, conversation: str) -> Receipt:
        """Remove a conversation and all that stems from it. The receipt says what that was."""
        receipt: Receipt | None = await self._call(self.store.delete, conversation)
        if receipt is None:
            raise _missing(conversation, None)
        return receipt

    async def _call(self, method: Callable[..., Any], conversation: str, *args: Any) -> Any:
        return await in_store(self.store, lambda: method(self.owner, conversation, *args))

    async def _heads(self, conversation: str) -> list[Head]:
        heads: list[Head] = await self._call(self.store.branches, conversation)
        if not heads:
            raise _missing(conversation, None)
        return heads

    async def _summary(self, conversation: str) -> Summary:
        found: Summary | None = await self._call(self.store.summary, conversation)
        if found is None:
            raise _missing(conversation, None)
        return found

    async def _entries(self, conversation: str, branch: str) -> list[Entry]:
        head: Head | None = await self._call(self.store.head, conversation, branch)
        if head is None:
            raise InputError(f"There is no branch {branch!r} of a conversation {conversation!r} here.")
        pack = await self._call(self.store.read, conversation, branch, 0, head.size)
        return [pack.entry(i) for i in range(len(pack))]

    async def _path(self, conversation: str, head: Head) -> Limb:
        """A branch with all that is on its path."""
        from longtalk.portable import Limb

        branch, size = head.branch, head.size
        pack = await self._call(self.store.read, conversation, branch, 0, size)
        turns: list[tuple[int, Turn]] = await self._call(self.store.turns, conversation, branch, 0, size)
        records: list[Placed] = await self._call(self.store.records, conversation, branch)
        return Limb(
            name=branch,
            entries=tuple(pack.entry(i) for i in range(len(pack))),
            turns=tuple(turn for _, turn in turns),
            records=tuple(each for each in records if each.place < size and each.record.kind not in BRIEF),
            metas=await self._call(self.store.metas, conversation, branch, 0, size),
        )


def store_or_default(store: Store | None) -> Store:
    from longtalk.stores import default

    if store is not None and not hasattr(store, "candidates"):
        raise InputError(f"`store` is a store such as SQLite('talks.db'), not {store!r}.")
    return default() if store is None else store


def _missing(conversation: str, entry: str | None) -> InputError:
    what = f"There is no conversation {conversation!r} here."
    return InputError(
        what if entry is None else f"There is no entry {entry!r} in a conversation {conversation!r} here."
    )


def _counted(talk: Talk) -> Stats:
    entries = [entry for limb in talk.limbs for entry in limb.entries]
    turns = {turn.id: turn for limb in talk.limbs for turn in limb.turns}
    wires = {entry.turn: entry.wire for entry in entries if entry.role == "assistant"}
    reports = [(raw, wires.get(turn.id, "")) for turn in turns.values() for raw in turn.usage]
    return Stats(
        conversations=1,
        branches=len(talk.limbs),
        entries=len(entries),
        bytes=sum(len(entry.native) for entry in entries),
        turns=_tally(turn.status for turn in turns.values()),
        models=_tally(turn.model for turn in turns.values()),
        usage=sum((reported(raw, wire) for raw, wire in reports), Usage()),
    )


def _tally(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _added(some: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return _tally((Counter(some) + Counter(more)).elements())


def has(meta: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether an app's own data has all of these values."""
    return all(key in meta and json.dumps(meta[key]) == json.dumps(value) for key, value in wanted.items())


def _write(store: Store, owner: str, talks: Sequence[Talk]) -> None:
    """Take in conversations, all or none of them."""
    begun: list[str] = []
    try:
        for talk in talks:
            begun.append(talk.id)
            _write_one(store, owner, talk)
    except BaseException:
        for name in begun:
            store.delete(owner, name)
        raise


def _write_one(store: Store, owner: str, talk: Talk) -> None:
    """Take in a conversation, turn by turn. Until it is whole it is marked, and a later try begins anew."""
    store.delete(owner, talk.id)
    for limb in talk.limbs:
        turns = {turn.id: turn for turn in limb.turns}
        place = limb.start
        begun = Commit(
            branch=limb.name, expect=0, source=limb.source, at=talk.created or now(), meta={_IMPORTING: True}
        )
        revision = store.write(owner, talk.id, begun).revision
        for turn, part in groupby(limb.entries, key=lambda entry: entry.turn):
            entries = tuple(part)
            last = place + len(entries) == limb.stop
            commit = Commit(
                branch=limb.name,
                expect=revision,
                entries=entries,
                turn=turns.get(turn),
                records=limb.records if last else (),
                at=(talk.updated if last else entries[-1].at) or now(),
                entry_meta={i: limb.metas[place + i] for i in range(len(entries)) if place + i in limb.metas},
            )
            revision = store.write(owner, talk.id, commit).revision
            place += len(entries)
    store.describe(owner, talk.id, talk.meta)
