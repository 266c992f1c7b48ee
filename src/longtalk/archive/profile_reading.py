"""Make the profile of an owner from what the store has, and change what the app has written into it.

What the app has changed is the metadata of a conversation without messages, whose id is `PROFILE_ID`: so every store
keeps it with the owner's other data, replaces it as a whole, and writes it only if no other process has changed it in
the meantime. Copies of all conversations include it; deleting it deletes what the app has changed.

A turn looks at the `MAX_CONVERSATIONS` conversations of the owner that were changed last. Those that state lines are
noted in the owner's record, so that they are found however many conversations follow. A turn reads only what has
changed since this process last read it, and checks that a source of each line that it sends has not changed.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from longtalk._util.checks import PROFILE_ID, check_id
from longtalk.errors import NotFound
from longtalk.memory.brief.record import KIND as BRIEF
from longtalk.memory.brief.record import BriefRecord
from longtalk.memory.profile.config import Profile
from longtalk.memory.profile.lines import (
    OWNER_META,
    Contribution,
    OwnerRecord,
    ProfileLine,
    TurnProfile,
    fit_profile,
    is_private,
    list_newest,
    make_private_record,
    merge_lines,
    parse_owner_record,
)
from longtalk.stores.base import BranchHead, Commit, HeadMoved, PlacedRecord, Store
from longtalk.tokens import Counter
from longtalk.transcript.standing import read_record
from longtalk.transcript.transcript import now

MAX_CONVERSATIONS = 200
"""The number of conversations, those that were changed last, in which a turn looks for lines that are new."""
MAX_SOURCES = 1_000
"""The maximum number of conversations that contribute to a profile: those that have begun to do so last."""
_MAX_BRANCHES = 16
"""The maximum number of branches of a conversation that contribute, those that were changed last."""
_MAX_OWNERS = 64
"""The maximum number of owners of a store whose conversations this process remembers."""


class _Known(NamedTuple):
    """What a conversation contributes, and by what this process knows that it has not changed."""

    updated: int
    branches: tuple[str, ...]
    revisions: tuple[tuple[str, int], ...]
    contributions: tuple[Contribution, ...]


_NOTHING = _Known(0, (), (), ())


class _Merged(NamedTuple):
    """The lines of a profile, and what they were merged from."""

    contributions: tuple[Contribution, ...] = ()
    app: OwnerRecord = OwnerRecord()
    lines: tuple[ProfileLine, ...] = ()
    newest: tuple[ProfileLine, ...] = ()
    """The lines that a turn may send."""

    def update(self, known: Mapping[str, _Known], app: OwnerRecord) -> _Merged:
        """Return the lines of these conversations; the same ones if nothing has changed."""
        found = tuple([each for old in known.values() for each in old.contributions])
        if found == self.contributions and app == self.app:
            return self
        lines = merge_lines(found, app)
        return _Merged(found, app, tuple(lines), tuple(list_newest(lines)))


class _Cache:
    """What this process knows of the conversations and the profile of some owners. It is safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: OrderedDict[str, tuple[dict[str, _Known], _Merged]] = OrderedDict()

    def get(self, owner: str) -> tuple[dict[str, _Known], _Merged]:
        with self._lock:
            return self._owners.get(owner, ({}, _Merged()))

    def put(self, owner: str, known: dict[str, _Known], merged: _Merged) -> None:
        with self._lock:
            self._owners[owner] = known, merged
            self._owners.move_to_end(owner)
            while len(self._owners) > _MAX_OWNERS:
                self._owners.popitem(last=False)


_caches: WeakKeyDictionary[Store, _Cache] = WeakKeyDictionary()


def read_profile_lines(store: Store, owner: str) -> list[ProfileLine]:
    """Return all lines of an owner's profile, oldest first."""
    known, _, app = _read_known(store, owner, {})
    return list(_Merged().update(known, app).lines)


def read_turn_profile(store: Store, owner: str, conversation: str, config: Profile, counter: Counter) -> TurnProfile:
    """Return the lines of an owner's profile that a turn of this conversation sends."""
    cache = _caches.setdefault(store, _Cache())
    before, merged = cache.get(owner)
    known, fresh, app = _read_known(store, owner, before)
    _note_sources(store, owner, known, app)
    while True:
        merged = merged.update(known, app)
        profile = fit_profile(merged.newest, config, counter, conversation)
        sent = {line.id for line in profile.lines}
        # One source is enough: a line stays while any conversation states it.
        sources = {line.sources[0].conversation for line in merged.newest if line.id in sent and line.sources}
        # A redaction changes no time.
        checked = _read_conversations(store, owner, sources - fresh)
        stale = [name for name, each in checked.items() if known[name].revisions != each.revisions]
        if not stale:
            cache.put(owner, known, merged)
            return profile
        known.update({name: checked[name] for name in stale})
        fresh.update(checked)


def read_owner_record(store: Store, owner: str) -> OwnerRecord:
    """Return what the app has changed in the profile of an owner."""
    info = store.info(owner, PROFILE_ID)
    return OwnerRecord() if info is None else parse_owner_record(info.meta)


def change_owner_record(store: Store, owner: str, change: Callable[[OwnerRecord], OwnerRecord]) -> None:
    """Replace what the app has changed in the profile of an owner, whatever other processes write meanwhile."""
    while True:
        head = store.head(owner, PROFILE_ID)
        before = read_owner_record(store, owner)
        after = change(before)
        if after == before:
            return
        commit = Commit(
            expect=head.revision if head is not None else 0, at=now(), meta={OWNER_META: msgspec.to_builtins(after)}
        )
        with contextlib.suppress(HeadMoved):
            store.write(owner, PROFILE_ID, commit)
            return


def forget_source(store: Store, owner: str, conversation: str) -> None:
    """Remove what the owner's record has of a conversation that was deleted or has lost entries.

    These are its id, and the app's texts for lines that no conversation states any more.
    """
    before = read_owner_record(store, owner)
    is_gone = conversation in before.sources and store.info(owner, conversation) is None
    if not is_gone and not before.edits:
        return
    stated = _list_stated_lines(store, owner, conversation, before.edits) if before.edits else set()

    def change(record: OwnerRecord) -> OwnerRecord:
        sources = tuple(name for name in record.sources if name != conversation) if is_gone else record.sources
        edits = {line: text for line, text in record.edits.items() if line in stated or line not in before.edits}
        return msgspec.structs.replace(record, edits=edits, sources=sources)

    change_owner_record(store, owner, change)


def _list_stated_lines(store: Store, owner: str, changed: str, wanted: Collection[str]) -> set[str]:
    """Return the ids of all lines of a profile.

    Only `changed` is read, what this process does not know, and what it knew to state a `wanted` line if that has
    changed.
    """
    cache = _caches.setdefault(store, _Cache())
    before, merged = cache.get(owner)
    known, fresh, app = _read_known(store, owner, {name: each for name, each in before.items() if name != changed})
    # A redaction changes no time.
    stating = [name for name, each in known.items() if name not in fresh and _states_any(each, wanted)]
    stale = [name for name in stating if not _has_revisions(store.branches(owner, name), known[name])]
    known.update(_read_conversations(store, owner, stale))
    merged = merged.update(known, app)
    cache.put(owner, known, merged)
    return {line.id for line in merged.lines}


def _states_any(known: _Known, wanted: Collection[str]) -> bool:
    return any(line.id in wanted for each in known.contributions for line in each.lines)


def _has_revisions(heads: Iterable[BranchHead], known: _Known) -> bool:
    """Return True if the branches that were read last are among these heads, at the same revisions."""
    return {(head.branch, head.revision) for head in heads}.issuperset(known.revisions)


def read_privacy(store: Store, owner: str, conversation: str) -> bool:
    """Return True if a conversation is private. Raises `NotFound` if there is none."""
    heads = list(_read_heads(store, owner, conversation))
    if not heads:
        raise NotFound(f"Conversation {conversation!r} not found.")
    return _is_any_private(heads)


def change_privacy(store: Store, owner: str, conversation: str, *, private: bool, create: bool = False) -> None:
    """Make a conversation private, or end that, on all of its branches. With `create`, begin it if there is none.

    Raises `NotFound` if there is none. A running turn is not disturbed.
    """
    check_id(conversation)
    record = PlacedRecord(make_private_record(now(), private=private), -1)
    heads = list(_read_heads(store, owner, conversation))
    if not heads and create:
        with contextlib.suppress(HeadMoved):
            store.write(owner, conversation, Commit(expect=0, at=now(), records=(record,)))
            return
        heads = list(_read_heads(store, owner, conversation))
    if not heads:
        raise NotFound(f"Conversation {conversation!r} not found.")
    for name in [head.branch for head in heads]:
        while (head := store.head(owner, conversation, name)) is not None:
            if is_private(each.record for each in head.records) == private:
                break
            commit = Commit(branch=name, expect=head.revision, records=(record,), lease=head.lease, at=now())
            with contextlib.suppress(HeadMoved):
                store.write(owner, conversation, commit)


def _read_known(
    store: Store, owner: str, before: Mapping[str, _Known]
) -> tuple[dict[str, _Known], set[str], OwnerRecord]:
    """Return what each conversation of an owner contributes, which of them were read, and what the app has changed.

    `before` is what was known so far. Conversations that have not changed since then are not read again.
    """
    infos = store.conversations(owner, limit=MAX_CONVERSATIONS)
    app = next((parse_owner_record(info.meta) for info in infos if info.id == PROFILE_ID), None) or read_owner_record(
        store, owner
    )
    known: dict[str, _Known] = {}
    for info in infos:
        old = before.get(info.id)
        is_known = old is not None and (old.updated, old.branches) == (info.updated, info.branches)
        known[info.id] = old if old is not None and is_known else _NOTHING
    missing = [name for name, each in known.items() if each is _NOTHING]
    if len(infos) == MAX_CONVERSATIONS:
        # If even the last of the list is new, others may have changed that are not in it.
        is_missed = not any(old.updated >= infos[-1].updated for old in before.values())
        for name in app.sources:
            if name not in known and name in before and not is_missed:
                known[name] = before[name]
            elif name not in known:
                missing.append(name)
    found = _read_conversations(store, owner, missing)
    listed = {info.id: (info.updated, info.branches) for info in infos}
    for name, each in found.items():
        updated, branches = listed.get(name, (each.updated, each.branches))
        known[name] = each._replace(updated=updated, branches=branches)
    return known, set(missing), app


def _note_sources(store: Store, owner: str, known: Mapping[str, _Known], app: OwnerRecord) -> None:
    """Note in the owner's record which conversations contribute, if it does not say so yet."""
    noted = frozenset(app.sources)
    # The last one of the list was changed first.
    new = [name for name, each in reversed(list(known.items())) if each.contributions and name not in noted]

    def change(record: OwnerRecord) -> OwnerRecord:
        sources = dict.fromkeys((*record.sources, *new))
        return msgspec.structs.replace(record, sources=tuple(sources)[-MAX_SOURCES:])

    if new:
        change_owner_record(store, owner, change)


def _read_conversations(store: Store, owner: str, names: Collection[str]) -> dict[str, _Known]:
    """Return what each of these conversations contributes: nothing if it is private or does not exist."""
    found = store.heads(owner, list(names), _MAX_BRANCHES) if names else {}
    return {name: _list_contributions(name, found.get(name, [])) for name in names}


def _list_contributions(conversation: str, heads: Sequence[BranchHead]) -> _Known:
    contributions: list[Contribution] = []
    if conversation != PROFILE_ID and not _is_any_private(heads):
        for head in heads:
            records = [each.record for each in head.records if each.record.kind == BRIEF]
            brief = read_record(records[-1], BriefRecord) if records else None
            if brief is not None and (brief.profile.lines or brief.replaced):
                contributions.append(Contribution(conversation, head.branch, brief.profile.lines, brief.replaced))
    updated = max((head.updated for head in heads), default=0)
    branches = tuple(sorted(head.branch for head in heads))
    revisions = tuple(sorted((head.branch, head.revision) for head in heads))
    return _Known(updated, branches, revisions, tuple(contributions))


def _read_heads(store: Store, owner: str, conversation: str) -> Iterable[BranchHead]:
    """Yield the heads of all branches of a conversation, with their records."""
    for each in store.branches(owner, conversation):
        head = store.head(owner, conversation, each.branch)
        if head is not None:
            yield head


def _is_any_private(heads: Iterable[BranchHead]) -> bool:
    return any(is_private(each.record for each in head.records) for head in heads)
