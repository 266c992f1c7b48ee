"""The store suite: correct stores pass, and a store that breaks a promise fails the case for it."""

import os
import pickle
import time
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import SkipTest

import msgspec
import pytest

from longtalk._util import json_bytes
from longtalk.errors import StoreError
from longtalk.memory.recall.protocol import Matches, SearchTerm
from longtalk.stores._paths import find_segment
from longtalk.stores._segments import find_path
from longtalk.stores.base import (
    MAIN,
    BranchHead,
    Commit,
    ConversationInfo,
    DeletionReceipt,
    HeadMoved,
    KeyedTurn,
    PlacedRecord,
    RequestKeyTaken,
    SearchHit,
    Store,
)
from longtalk.stores.in_memory import InMemory
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing.stores import concurrency
from longtalk.testing.stores.suite import CASES, Case, check_store
from longtalk.transcript.pack import EMPTY, Entry, Pack
from longtalk.transcript.record_kinds import kind_of
from longtalk.wires.card_tags import remove_cards

REOPENING = "everything_survives_reopening"
KILLING = "a_killed_writer_leaves_whole_commits_and_all_it_acknowledged"
INTERRUPTING = "an_interrupted_call_happens_entirely_or_not_at_all"


def find_case(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


class LosesCommits(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        head = self.head(owner, conversation, commit.branch)
        if head is not None and head.revision % 7 == 6 and not commit.turn:
            return head
        if head is not None and head.revision == 9:
            commit = msgspec.structs.replace(commit, entries=())
        return super().write(owner, conversation, commit)


class IgnoresExpect(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        head = self.head(owner, conversation, commit.branch)
        return super().write(owner, conversation, msgspec.structs.replace(commit, expect=head.revision if head else 0))


class ComparesOutsideTheLock(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        head = self.head(owner, conversation, commit.branch)
        if (head.revision if head else 0) != commit.expect:
            raise HeadMoved(head)
        time.sleep(0.0005)
        entries, now = commit.entries, self.head(owner, conversation, commit.branch)
        if entries and now:
            entries = (msgspec.structs.replace(entries[0], parent=now.entry), *entries[1:])
        changed = msgspec.structs.replace(commit, expect=now.revision if now else 0, entries=entries)
        return super().write(owner, conversation, changed)


class WritesEntriesOneByOne(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        if len(commit.entries) < 2:
            return super().write(owner, conversation, commit)
        first = msgspec.structs.replace(commit, entries=commit.entries[:1], records=())
        super().write(owner, conversation, first)
        time.sleep(0.001)
        with self._lock:
            tree = self._get_tree(owner, conversation)
            assert tree is not None
            tree._branches[commit.branch].revision -= 1
            rest = msgspec.structs.replace(commit, entries=commit.entries[1:], cut=None, source=None)
            if commit.expect:
                return super().write(owner, conversation, rest)
            tree._branches[commit.branch].revision += 1
            super().write(owner, conversation, msgspec.structs.replace(rest, expect=1))
            tree._branches[commit.branch].revision -= 1
            head = tree.head(commit.branch)
            assert head is not None
            return head


class KeepsMetadataOfRefusedCommits(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        if commit.meta is not None:
            self.describe(owner, conversation, commit.meta)
        return super().write(owner, conversation, commit)


class ChecksNoParents(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            if tree and commit.entries and commit.cut is None and commit.source is None:
                last = tree.find_end_after(msgspec.structs.replace(commit, entries=()))[0]
                first = msgspec.structs.replace(commit.entries[0], parent=last)
                commit = msgspec.structs.replace(commit, entries=(first, *commit.entries[1:]))
        return super().write(owner, conversation, commit)


class IgnoresOwnersInHead(InMemory):
    def head(self, owner: str, conversation: str, branch: str = MAIN) -> BranchHead | None:
        found = [super(IgnoresOwnersInHead, self).head(each, conversation, branch) for each in (owner, *self._owners)]
        return next((head for head in found if head), None)


class DeletesForAnyOwner(InMemory):
    def delete(self, owner: str, conversation: str) -> DeletionReceipt | None:
        receipts = [super(DeletesForAnyOwner, self).delete(each, conversation) for each in list(self._owners)]
        return next((receipt for receipt in receipts if receipt), None)


class RefusesOtherOwnersByName(InMemory):
    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        if any(conversation in owned for other, owned in self._owners.items() if other != owner):
            raise PermissionError("not yours")
        return super().read(owner, conversation, branch, start, stop)


class SearchesAllOwners(InMemory):
    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[SearchHit]:
        found = super().candidates
        return [hit for each in self._owners for hit in found(each, terms, limit, conversation=conversation)][:limit]


class ShowsRecordsOfSiblings(InMemory):
    def head(self, owner: str, conversation: str, branch: str = MAIN) -> BranchHead | None:
        head = super().head(owner, conversation, branch)
        with self._lock:
            tree = self._get_tree(owner, conversation)
            if head is None or tree is None:
                return head
            every = [super(ShowsRecordsOfSiblings, self).head(owner, conversation, b.branch) for b in tree.branches()]
        found = [placed for each in every if each for placed in each.records]
        return msgspec.structs.replace(head, records=tuple(dict.fromkeys((*head.records, *found))))


class KeepsTheOldestRecord(InMemory):
    def head(self, owner: str, conversation: str, branch: str = MAIN) -> BranchHead | None:
        head = super().head(owner, conversation, branch)
        return head and msgspec.structs.replace(head, records=head.records[:1])


class ReencodesJson(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        entries = []
        for entry in commit.entries:
            try:
                entries.append(msgspec.structs.replace(entry, native=json_bytes.encode(json_bytes.value(entry.native))))
            except ValueError:
                entries.append(entry)
        return super().write(owner, conversation, msgspec.structs.replace(commit, entries=tuple(entries)))


class DropsMarks(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        entries = tuple(msgspec.structs.replace(entry, mark="") for entry in commit.entries)
        return super().write(owner, conversation, msgspec.structs.replace(commit, entries=entries))


class ReadsOneTooMany(InMemory):
    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        return super().read(owner, conversation, branch, start, stop + 1)


class RaisesForMissingBranches(InMemory):
    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        if self.head(owner, conversation, branch) is None:
            raise KeyError(conversation)
        return super().read(owner, conversation, branch, start, stop)


class ReadsOnlyMain(InMemory):
    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        return super().read(owner, conversation, MAIN, start, stop)


class PicksOnlyFromMain(InMemory):
    def pick(self, owner: str, conversation: str, branch: str, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        return super().pick(owner, conversation, MAIN, ranges)


class PicksOnlyTheFirstRange(InMemory):
    def pick(self, owner: str, conversation: str, branch: str, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        return super().pick(owner, conversation, branch, ranges[:1])


class CountsOnlyReturnedPositions(InMemory):
    def matches(
        self, owner: str, conversation: str, branch: str, terms: Sequence[SearchTerm], most: int
    ) -> list[Matches]:
        found = super().matches(owner, conversation, branch, terms, most)
        return [Matches(each.positions, len(each.positions)) for each in found]


class CutsAllBranches(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        if commit.cut is not None and commit.branch == MAIN:
            for head in self.branches(owner, conversation):
                if head.branch != MAIN and head.size > commit.cut:
                    also = Commit(branch=head.branch, expect=head.revision, cut=commit.cut, at=commit.at)
                    super().write(owner, conversation, also)
        return super().write(owner, conversation, commit)


class KeepsOldTurns(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            known = tree and commit.turn and tree._turns.get(commit.turn.id)
        return super().write(owner, conversation, msgspec.structs.replace(commit, turn=known or commit.turn))


class RenewsWithAnyToken(InMemory):
    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        head = self.head(owner, conversation, branch)
        return head is not None and super().renew(owner, conversation, branch, head.token, until)


class AcceptsAKeyTwice(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        try:
            return super().write(owner, conversation, commit)
        except RequestKeyTaken:
            return super().write(owner, conversation, msgspec.structs.replace(commit, request=None))


class IgnoresCaseOfIds(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        return super().write(owner, conversation.casefold(), commit)

    def head(self, owner: str, conversation: str, branch: str = MAIN) -> BranchHead | None:
        return super().head(owner, conversation.casefold(), branch)

    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        return super().read(owner, conversation.casefold(), branch, start, stop)


class ListsInPages(InMemory):
    def conversations(
        self,
        owner: str,
        *,
        limit: int = 50,
        after: tuple[int, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> list[ConversationInfo]:
        every = super().conversations(owner, limit=1_000, meta=meta)
        return [each for each in every if self.is_after(each, after)][:limit]

    def is_after(self, each: ConversationInfo, after: tuple[int, str] | None) -> bool:
        return after is None or (-each.updated, each.id) > (-after[0], after[1])


class ListsTheOldestFirst(ListsInPages):
    def conversations(self, owner: str, **fields: Any) -> list[ConversationInfo]:
        return super().conversations(owner, **fields)[::-1]


class RepeatsTheLastOfAPage(ListsInPages):
    def is_after(self, each: ConversationInfo, after: tuple[int, str] | None) -> bool:
        return after is None or (-each.updated, each.id) >= (-after[0], after[1])


class SkipsEqualTimes(ListsInPages):
    def is_after(self, each: ConversationInfo, after: tuple[int, str] | None) -> bool:
        return after is None or each.updated < after[0]


class RepeatsEqualTimes(ListsInPages):
    def is_after(self, each: ConversationInfo, after: tuple[int, str] | None) -> bool:
        return after is None or (each.updated <= after[0] and each.id != after[1])


class ReversesEqualTimes(ListsInPages):
    def conversations(self, owner: str, **fields: Any) -> list[ConversationInfo]:
        found = super().conversations(owner, **fields)
        return sorted(sorted(found, key=lambda each: each.id, reverse=True), key=lambda each: -each.updated)


class FiltersLoosely(ListsInPages):
    def conversations(
        self, owner: str, *, meta: Mapping[str, Any] | None = None, **fields: Any
    ) -> list[ConversationInfo]:
        found = super().conversations(owner, **fields)
        return [each for each in found if all(each.meta.get(key) == value for key, value in (meta or {}).items())]


class ListsConversationsOfAllOwners(ListsInPages):
    def conversations(self, owner: str, **fields: Any) -> list[ConversationInfo]:
        return [each for owner in self._owners for each in super(ListsInPages, self).conversations(owner, **fields)]


class CountsEntriesOfOneBranch(InMemory):
    def info(self, owner: str, conversation: str) -> ConversationInfo | None:
        found, head = super().info(owner, conversation), self.head(owner, conversation)
        return found and msgspec.structs.replace(found, entries=head.size if head else 0)


class SearchesOnlyWholeWords(InMemory):
    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[SearchHit]:
        hits = super().candidates(owner, terms, limit, conversation=conversation)
        return [hit for hit in hits if set(hit.text.casefold().strip(".!").split()) & set(terms)]


class SearchesOnlyWholeTerms(InMemory):
    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[SearchHit]:
        return super().candidates(owner, [term.rstrip("*") for term in terms], limit, conversation=conversation)


class MatchesOnlyWholeWords(InMemory):
    def matches(
        self, owner: str, conversation: str, branch: str, terms: Sequence[SearchTerm], most: int
    ) -> list[Matches]:
        whole = [SearchTerm((*each.words, *each.beginnings)) for each in terms]
        return super().matches(owner, conversation, branch, whole, most)


class MatchesOtherBranches(InMemory):
    def matches(
        self, owner: str, conversation: str, branch: str, terms: Sequence[SearchTerm], most: int
    ) -> list[Matches]:
        names = [head.branch for head in self.branches(owner, conversation)]
        every = [super(MatchesOtherBranches, self).matches(owner, conversation, n, terms, most) for n in names]
        found = [
            sorted({position for match in matches for position in match.positions})
            for matches in zip(*every, strict=True)
        ]
        return [Matches(tuple(positions), len(positions)) for positions in found]


class HidesTheEndOfHits(InMemory):
    def candidates(self, *args: Any, **kwargs: Any) -> list[SearchHit]:
        return [
            msgspec.structs.replace(hit, text=remove_cards(hit.text)) for hit in super().candidates(*args, **kwargs)
        ]


class MatchesOnlyVisibleText(InMemory):
    def matches(
        self, owner: str, conversation: str, branch: str, terms: Sequence[SearchTerm], most: int
    ) -> list[Matches]:
        hits = [self.candidates(owner, each.words, most, conversation=conversation) for each in terms]
        return [Matches(tuple(sorted(hit.position for hit in some)), len(some)) for some in hits]


class OnlyReportsDeletions(InMemory):
    def delete(self, owner: str, conversation: str) -> DeletionReceipt | None:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            return tree.make_receipt(conversation) if tree else None


class KeepsKeysOfDeletedConversations(InMemory):
    def delete(self, owner: str, conversation: str) -> DeletionReceipt | None:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            receipt = super().delete(owner, conversation)
            if tree and receipt:
                keys, meta = tree._keys, tree.meta
                self._left = (owner, conversation, keys, meta)
        return receipt

    def keyed_turn(self, owner: str, conversation: str, key: str) -> Any:
        found = super().keyed_turn(owner, conversation, key)
        left = getattr(self, "_left", None)
        return found or (left[2].get(key) if left and left[:2] == (owner, conversation) else None)


class KeepsRecordsOfRedactedEntries(InMemory):
    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            records = list(tree._records) if tree else []
            done = super().redact(owner, conversation, entry, native)
            if tree:
                tree._records = records
            return done


class FindsRedactedText(InMemory):
    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            if tree is None:
                return False
            list(tree.iterate_hits(conversation))
            kept = [dict(segment.words) for segment in tree._segments]
            done = super().redact(owner, conversation, entry, native)
            for segment, texts in zip(tree._segments, kept, strict=True):
                segment.words = texts
            return done


class RedactsOnOneBranch(InMemory):
    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        kept: dict[str, Pack] = self.__dict__.setdefault("_kept", {})
        return kept[branch] if branch in kept else super().read(owner, conversation, branch, start, stop)

    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        head = self.head(owner, conversation, "fork")
        if head is not None:
            self.__dict__.setdefault("_kept", {})["fork"] = self.read(owner, conversation, "fork", 0, head.size)
        return super().redact(owner, conversation, entry, native)


class IgnoresSourceEntry(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        return super().write(owner, conversation, msgspec.structs.replace(commit, source_entry=None))


class OmitsTheSourceHead(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        try:
            return super().write(owner, conversation, commit)
        except HeadMoved as moved:
            raise HeadMoved(None if commit.source_entry else moved.head) from None


class RefusesForksWithACut(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        if commit.source and commit.source_entry and commit.cut is not None:
            raise HeadMoved(self.head(owner, conversation, commit.source[0]))
        return super().write(owner, conversation, commit)


class ReencodesManifests(InMemory):
    def manifest(self, owner: str, conversation: str, turn: str) -> bytes:
        found = super().manifest(owner, conversation, turn)
        return found and msgspec.json.encode(msgspec.json.decode(found))


class LosesManifests(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            if tree and commit.turn:
                tree._manifests.pop(commit.turn.id, None)
            return super().write(owner, conversation, commit)


class KeepsTheFirstManifest(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        if commit.turn and self.manifest(owner, conversation, commit.turn.id):
            commit = msgspec.structs.replace(commit, manifest=b"")
        return super().write(owner, conversation, commit)


class ReturnsAllManifests(InMemory):
    def manifests(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[str, bytes]:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            return dict(tree._manifests) if tree else {}


class ReturnsManifestsOfAllEntriesInTheRange(InMemory):
    def manifests(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[str, bytes]:
        turns = {entry.turn for entry in self.read(owner, conversation, branch, start, stop).entries()}
        return {turn: data for turn in turns if (data := self.manifest(owner, conversation, turn))}


class HidesKindsWithAnObsoleteRecord(InMemory):
    def head(self, owner: str, conversation: str, branch: str = MAIN) -> BranchHead | None:
        head = super().head(owner, conversation, branch)
        done: dict[str, set[str]] = self.__dict__.setdefault("_done", {})
        if head is None:
            return None
        shown = tuple(each for each in head.records if each.record.kind not in done.get(branch, ()))
        return msgspec.structs.replace(head, records=shown)

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        done = {record.kind for record in commit.obsolete}
        self.__dict__.setdefault("_done", {}).setdefault(commit.branch, set()).update(done)
        super().write(owner, conversation, commit)
        head = self.head(owner, conversation, commit.branch)
        assert head is not None
        return head


class RemovesObsoleteRecords(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            if tree:
                tree._records = [each for each in tree._records if each.record not in commit.obsolete]
            return super().write(owner, conversation, commit)


class ReturnsOnlyTheNewestRecord(InMemory):
    def records(self, owner: str, conversation: str, branch: str, kind: str | None = None) -> list[PlacedRecord]:
        head = self.head(owner, conversation, branch)
        return [each for each in head.records if each.record.kind == kind] if head else []


class SortsRecordsByPosition(InMemory):
    def records(self, owner: str, conversation: str, branch: str, kind: str | None = None) -> list[PlacedRecord]:
        return sorted(super().records(owner, conversation, branch, kind), key=lambda each: each.position)


class PutsNewRecordsInPlaceOfOldOnes(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        with self._lock:
            super().write(owner, conversation, commit)
            tree = self._owners[owner][conversation]
            first: dict[str, int] = {}
            for i in reversed(range(len(tree._records))):
                kind = tree._records[i].record.kind
                if kind_of(kind).may_discard_replaced and kind in first:
                    tree._records[i] = tree._records.pop(first[kind])
                    first = {each: position - (position > first[kind]) for each, position in first.items()}
                first[kind] = i
            head = tree.head(commit.branch)
            assert head is not None
            return head


class CountsMetadataFromTheStartOfTheRange(InMemory):
    def metas(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        found = super().metas(owner, conversation, branch, start, stop)
        return {position - start: meta for position, meta in found.items()}


class ReturnsMetadataBeforeTheRange(InMemory):
    def metas(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        return super().metas(owner, conversation, branch, 0, stop)


class ShowsMetadataOfCutEntries(InMemory):
    def metas(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        seen: dict[int, dict[str, Any]] = self.__dict__.setdefault("_seen", {})
        seen |= super().metas(owner, conversation, branch, start, stop)
        return {position: seen[position] for position in sorted(seen) if start <= position < stop}


class MergesMetadata(InMemory):
    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        old: dict[str, Any] = {}
        for position, each in self.metas(owner, conversation, MAIN, 0, 99).items():
            pack = self.read(owner, conversation, MAIN, position, position + 1)
            old |= each if pack.entry(0).id == entry else {}
        return super().describe(owner, conversation, old | dict(meta), entry=entry)


class CommitsWhenDescribing(InMemory):
    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        head = self.head(owner, conversation)
        if entry and head:
            self.write(owner, conversation, Commit(expect=head.revision, at=head.updated))
        return super().describe(owner, conversation, meta, entry=entry)


class ReportsMissingEntriesAsDescribed(InMemory):
    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        return super().describe(owner, conversation, meta, entry=entry) or entry is not None


class ReportsOnlyTheFirstBranchOfATurn(InMemory):
    def keyed_turn(self, owner: str, conversation: str, key: str) -> KeyedTurn | None:
        found = super().keyed_turn(owner, conversation, key)
        with self._lock:
            tree = self._get_tree(owner, conversation)
            made = tree and tree._keys.get(key)
        return KeyedTurn(found.request, made.branch, found.turn, made.position) if found and made else found


class ReportsBranchesInNameOrder(InMemory):
    def keyed_turn(self, owner: str, conversation: str, key: str) -> KeyedTurn | None:
        found = super().keyed_turn(owner, conversation, key)
        for head in self.branches(owner, conversation) if found else []:
            for position, turn in self.turns(owner, conversation, head.branch, 0, head.size):
                if found and turn == found.turn:
                    return KeyedTurn(found.request, head.branch, turn, position)
        return found


class ListsNoKeys(InMemory):
    def keyed_turns(self, owner: str, conversation: str) -> list[KeyedTurn]:
        return []


class ListsKeysOfAllOwners(InMemory):
    def keyed_turns(self, owner: str, conversation: str) -> list[KeyedTurn]:
        return [asked for each in list(self._owners) for asked in InMemory.keyed_turns(self, each, conversation)]


class RemembersOwnersForever(InMemory):
    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def owners(self) -> list[str]:
        self._seen.update(super().owners())
        return sorted(self._seen)


class FindsRecordsOfAllOwners(InMemory):
    def conversations_with(self, owner: str, kind: str) -> list[str]:
        return [name for each in list(self._owners) for name in InMemory.conversations_with(self, each, kind)]


class ReturnsHeadsWithoutRecords(InMemory):
    def heads(self, owner: str, conversations: Sequence[str], most: int) -> dict[str, list[BranchHead]]:
        found = super().heads(owner, conversations, most)
        return {
            name: [msgspec.structs.replace(head, records=()) for head in heads[:most]] for name, heads in found.items()
        }


class KeepsMetadataOfRedactedEntries(InMemory):
    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            if tree is None:
                return False
            kept = [dict(segment.metas) for segment in tree._segments]
            done = super().redact(owner, conversation, entry, native)
            for segment, metas in zip(tree._segments, kept, strict=True):
                segment.metas = metas
            return done


class KeepsErrorsThatQuoteRedactedEntries(InMemory):
    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            kept = dict(tree._turns) if tree else {}
            done = super().redact(owner, conversation, entry, native)
            if tree:
                tree._turns = kept | {entry.rpartition("-")[0]: tree._turns[entry.rpartition("-")[0]]} if done else kept
            return done


class KeepsResponsesThatQuoteRedactedEntries(InMemory):
    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            kept = dict(tree._turns) if tree else {}
            done = super().redact(owner, conversation, entry, native)
            for name, turn in kept.items():
                tree._turns[name] = msgspec.structs.replace(tree._turns[name], responses=turn.responses)
            return done


class KeepsDigestsOfRedactedRequests(InMemory):
    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            kept = dict(tree._keys) if tree else {}
            done = super().redact(owner, conversation, entry, native)
            if tree:
                tree._keys = kept
            return done


class ForgetsKeysOfRedactedRequests(InMemory):
    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            done = super().redact(owner, conversation, entry, native)
            if tree:
                tree._keys = {key: ref for key, ref in tree._keys.items() if ref.request.body}
            return done


class RemovesAllRecordsOnRedaction(InMemory):
    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            done = super().redact(owner, conversation, entry, native)
            if tree and done:
                tree._records = [each for each in tree._records if each.position < 1]
            return done


class RedactsWithoutNewRevision(InMemory):
    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            done = super().redact(owner, conversation, entry, native)
            if tree and done:
                tree._branches["fork"].revision -= 1
            return done


class ReportsProblemsInLongConversations(InMemory):
    def verify(self, owner: str, conversation: str) -> list[str]:
        return ["it is long"] if len(self.read(owner, conversation, MAIN, 0, 99)) > 9 else []


class SharesRecordsOfOneBranch(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        super().write(owner, conversation, commit)
        with self._lock:
            tree = self._get_tree(owner, conversation)
            assert tree is not None
            tree._records = [
                each._replace(segment=find_segment(find_path(each.segment, each.segment.stop), each.position))
                for each in tree._records
            ]
            head = tree.head(commit.branch)
            assert head is not None
            return head


class NormalizesNames(InMemory):
    def _use_tree(self, owner: str, conversation: str, *more: Any, **named: Any) -> Any:
        return super()._use_tree(owner, unicodedata.normalize("NFC", conversation), *more, **named)

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        return super().write(owner, unicodedata.normalize("NFC", conversation), commit)


class EncodesBranchNames(InMemory):
    def head(self, owner: str, conversation: str, branch: str = MAIN) -> BranchHead | None:
        branch.encode()
        return super().head(owner, conversation, branch)


class AcceptsAnyTime(InMemory):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        entries = tuple(msgspec.structs.replace(entry, at=max(0, entry.at)) for entry in commit.entries)
        return super().write(owner, conversation, msgspec.structs.replace(commit, entries=entries))


BROKEN: list[tuple[type[InMemory], str]] = [
    (LosesCommits, "concurrent_writers_lose_duplicate_or_mix_no_turns"),
    (IgnoresExpect, "a_commit_with_a_stale_revision_is_refused"),
    (ComparesOutsideTheLock, "concurrent_writers_lose_duplicate_or_mix_no_turns"),
    (WritesEntriesOneByOne, "readers_never_see_half_a_commit"),
    (KeepsMetadataOfRefusedCommits, "a_commit_with_a_stale_revision_is_refused"),
    (ChecksNoParents, "an_invalid_commit_is_refused_and_changes_nothing"),
    (IgnoresOwnersInHead, "another_owners_conversation_seems_not_to_exist"),
    (DeletesForAnyOwner, "another_owners_conversation_seems_not_to_exist"),
    (RefusesOtherOwnersByName, "another_owners_conversation_seems_not_to_exist"),
    (SearchesAllOwners, "another_owners_conversation_seems_not_to_exist"),
    (SearchesAllOwners, "search_finds_words"),
    (ListsConversationsOfAllOwners, "another_owners_conversation_seems_not_to_exist"),
    (ShowsRecordsOfSiblings, "a_record_is_visible_on_paths_with_its_entry"),
    (SharesRecordsOfOneBranch, "records_of_some_kinds_stay_on_their_branch"),
    (KeepsTheOldestRecord, "the_newest_record_replaces_older_ones_of_some_kinds"),
    (ReencodesJson, "bytes_are_returned_unchanged"),
    (DropsMarks, "a_commit_is_stored_completely"),
    (ReadsOneTooMany, "any_range_of_a_path_can_be_read"),
    (RaisesForMissingBranches, "reading_what_does_not_exist_returns_nothing"),
    (ReadsOnlyMain, "branches_share_common_entries"),
    (PicksOnlyFromMain, "several_ranges_can_be_read_in_one_call"),
    (PicksOnlyTheFirstRange, "several_ranges_can_be_read_in_one_call"),
    (CutsAllBranches, "a_cut_removes_entries_from_one_branch_only"),
    (CutsAllBranches, "many_random_commits_give_the_expected_tree"),
    (KeepsOldTurns, "a_turn_is_returned_in_its_newest_version"),
    (RenewsWithAnyToken, "a_lease_is_renewed_only_with_its_token"),
    (AcceptsAKeyTwice, "a_request_key_is_used_for_one_turn_only"),
    (AcceptsAKeyTwice, "of_concurrent_turns_with_one_key_one_succeeds"),
    (ComparesOutsideTheLock, "of_concurrent_first_commits_one_succeeds"),
    (IgnoresCaseOfIds, "names_may_be_any_text"),
    (ListsTheOldestFirst, "conversations_are_listed_newest_first"),
    (RepeatsTheLastOfAPage, "conversations_are_listed_newest_first"),
    (SkipsEqualTimes, "pages_skip_and_repeat_no_conversation"),
    (RepeatsEqualTimes, "pages_skip_and_repeat_no_conversation"),
    (ReversesEqualTimes, "pages_skip_and_repeat_no_conversation"),
    (CountsEntriesOfOneBranch, "info_matches_the_list"),
    (FiltersLoosely, "metadata_of_conversations_is_stored_and_filtered"),
    (SearchesOnlyWholeWords, "search_finds_words"),
    (SearchesOnlyWholeTerms, "search_finds_words_by_their_beginning"),
    (CountsOnlyReturnedPositions, "matches_are_returned_by_position"),
    (MatchesOnlyWholeWords, "matches_are_returned_by_position"),
    (MatchesOtherBranches, "matches_are_limited_to_one_path"),
    (MatchesOnlyVisibleText, "matches_include_memory_cards_but_not_tool_results"),
    (HidesTheEndOfHits, "hits_show_the_whole_text_of_a_verbatim_answer"),
    (KeepsKeysOfDeletedConversations, "a_deleted_conversation_is_gone"),
    (KeepsRecordsOfRedactedEntries, "a_redacted_entry_is_gone"),
    (FindsRedactedText, "a_redacted_entry_is_gone"),
    (RedactsOnOneBranch, "a_redacted_entry_is_gone"),
    (IgnoresSourceEntry, "a_fork_is_refused_if_its_source_entry_has_changed"),
    (OmitsTheSourceHead, "a_fork_is_refused_if_its_source_entry_has_changed"),
    (RefusesForksWithACut, "a_fork_with_a_cut_checks_the_entry_of_its_source"),
    (ReencodesManifests, "a_manifest_is_stored_with_its_turn"),
    (LosesManifests, "a_manifest_is_replaced_only_by_another_manifest"),
    (KeepsTheFirstManifest, "a_manifest_is_replaced_only_by_another_manifest"),
    (ReturnsAllManifests, "manifests_are_read_by_the_position_of_their_turn"),
    (ReturnsManifestsOfAllEntriesInTheRange, "manifests_are_read_by_the_position_of_their_turn"),
    (HidesKindsWithAnObsoleteRecord, "marking_a_record_obsolete_hides_no_other_record"),
    (RemovesObsoleteRecords, "an_obsolete_record_can_still_be_read"),
    (RemovesObsoleteRecords, "marking_a_record_obsolete_hides_no_other_record"),
    (ReturnsOnlyTheNewestRecord, "all_records_of_a_kind_can_be_read"),
    (SortsRecordsByPosition, "all_records_of_a_kind_can_be_read"),
    (SortsRecordsByPosition, "records_are_returned_in_creation_order"),
    (PutsNewRecordsInPlaceOfOldOnes, "records_are_returned_in_creation_order"),
    (PutsNewRecordsInPlaceOfOldOnes, "a_record_replaced_on_one_branch_stays_on_others"),
    (CountsMetadataFromTheStartOfTheRange, "metadata_of_entries_is_read_by_position"),
    (ReturnsMetadataBeforeTheRange, "metadata_of_entries_is_read_by_position"),
    (ShowsMetadataOfCutEntries, "metadata_of_entries_is_visible_on_paths_with_them"),
    (MergesMetadata, "metadata_of_an_entry_can_be_replaced"),
    (CommitsWhenDescribing, "metadata_of_an_entry_can_be_replaced"),
    (ReportsMissingEntriesAsDescribed, "metadata_of_an_entry_can_be_replaced"),
    (ReportsMissingEntriesAsDescribed, "reading_what_does_not_exist_returns_nothing"),
    (ReportsOnlyTheFirstBranchOfATurn, "a_request_key_reports_a_branch_that_has_its_turn"),
    (ReportsBranchesInNameOrder, "a_request_key_reports_a_branch_that_has_its_turn"),
    (ListsNoKeys, "a_request_key_is_used_for_one_turn_only"),
    (ListsKeysOfAllOwners, "another_owners_conversation_seems_not_to_exist"),
    (FindsRecordsOfAllOwners, "another_owners_conversation_seems_not_to_exist"),
    (FindsRecordsOfAllOwners, "conversations_are_found_by_the_kinds_of_their_records"),
    (KeepsMetadataOfRedactedEntries, "a_redaction_removes_the_metadata_of_its_entry"),
    (RemovesAllRecordsOnRedaction, "a_redaction_keeps_records_that_quote_no_entries"),
    (KeepsRecordsOfRedactedEntries, "a_redaction_keeps_records_that_quote_no_entries"),
    (RedactsWithoutNewRevision, "a_redaction_changes_the_revision"),
    (KeepsErrorsThatQuoteRedactedEntries, "a_redaction_removes_errors_that_may_quote_the_entry"),
    (KeepsResponsesThatQuoteRedactedEntries, "a_redaction_removes_responses_that_may_quote_the_entry"),
    (KeepsDigestsOfRedactedRequests, "a_redaction_removes_the_digest_of_the_request"),
    (ForgetsKeysOfRedactedRequests, "a_redaction_removes_the_digest_of_the_request"),
    (ReportsProblemsInLongConversations, "verify_finds_no_problems_after_normal_use"),
    (EncodesBranchNames, "names_with_half_a_surrogate_pair_are_stored_or_refused"),
    (RemembersOwnersForever, "owners_are_listed_while_they_have_a_conversation"),
    (AcceptsAnyTime, "times_before_1970_are_refused"),
    (NormalizesNames, "ids_that_look_alike_are_different"),
    (ReturnsHeadsWithoutRecords, "the_heads_of_several_conversations_are_read_at_once"),
    (OnlyReportsDeletions, "a_profile_has_the_lines_of_all_conversations_of_one_owner"),
    (KeepsRecordsOfRedactedEntries, "a_redaction_takes_lines_out_of_a_profile"),
    (SharesRecordsOfOneBranch, "a_private_conversation_contributes_nothing"),
    (ComparesOutsideTheLock, "lines_of_the_app_survive_concurrent_writers"),
]


@pytest.mark.parametrize(("broken", "case"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_a_store_that_breaks_a_promise_fails_its_case(broken: Callable[[], Store], case: str):
    with pytest.raises((AssertionError, LookupError, ValueError, PermissionError, HeadMoved)):
        find_case(case).run(broken)


def test_every_case_has_a_store_that_fails_it():
    assert {case.name for case in CASES if not case.reopens} == {case for _, case in BROKEN}
    assert [case.name for case in CASES if case.reopens] == [REOPENING, KILLING, INTERRUPTING]


def test_case_names_are_unique():
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize(
    "name",
    sorted(
        {name for name in vars(Store) if name[0] != "_"}
        - {"candidates", "close", "conversations", "conversations_with", "heads", "owners"}
    ),
)
def test_a_method_that_reveals_another_owners_conversation_fails(name: str):
    def reveal(self: InMemory, owner: str, conversation: str, *rest: Any, **fields: Any) -> Any:
        if any(conversation in owned for other, owned in self._owners.items() if other != owner):
            raise PermissionError("not yours")
        return getattr(InMemory, name)(self, owner, conversation, *rest, **fields)

    with pytest.raises(AssertionError, match=f"`{name}` reveals another owner's conversation"):
        find_case("another_owners_conversation_seems_not_to_exist").run(type("Reveals", (InMemory,), {name: reveal}))


def test_a_store_method_without_a_check_for_other_owners_is_reported(monkeypatch: pytest.MonkeyPatch):
    class More(Store):
        def more(self) -> None: ...

    monkeypatch.setattr(concurrency, "Store", type("Store", (), dict(vars(Store)) | {"more": More.more}))
    with pytest.raises(AssertionError, match="does not try"):
        find_case("another_owners_conversation_seems_not_to_exist").run(InMemory)


# Reopening, and killed processes


class SnapshotStore(InMemory):
    """An in-memory store that saves all its data in a file after each commit."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        if path.exists():
            self._owners = pickle.loads(path.read_bytes())

    def save(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_bytes(pickle.dumps(self._owners))
        new.replace(self.path)

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        with self._lock:
            head = super().write(owner, conversation, commit)
            self.save()
            return head


class SavesEveryThirdCommit(SnapshotStore):
    def save(self) -> None:
        self.__dict__["_waiting"] = self.__dict__.get("_waiting", 0) + 1
        if self.__dict__["_waiting"] % 3 == 0:
            super().save()


class SavesInTwoParts(SnapshotStore):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        if not commit.expect:
            return super().write(owner, conversation, commit)
        super().write(owner, conversation, msgspec.structs.replace(commit, records=()))
        time.sleep(0.005)
        self._owners[owner][conversation]._branches[commit.branch].revision -= 1
        return super().write(owner, conversation, msgspec.structs.replace(commit, entries=(), entry_meta={}))


class KeepsItsLockFile(SnapshotStore):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        lock = self.path.with_suffix(".lock")
        lock.touch(exist_ok=False)
        try:
            time.sleep(0.005)
            return super().write(owner, conversation, commit)
        finally:
            lock.unlink()


class WaitsForTheLease(SnapshotStore):
    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        head = self.head(owner, conversation, commit.branch)
        if head and head.lease and commit.lease is None:
            raise HeadMoved(head)
        return super().write(owner, conversation, commit)


def reopen_snapshots(store: Store) -> Store:
    assert isinstance(store, SnapshotStore)
    store.close()
    return type(store)(store.path)


def test_a_store_that_loses_nothing_when_killed_passes(tmp_path: Path):
    for number in range(3):
        path = tmp_path / str(number)
        find_case(KILLING).run(lambda path=path: SnapshotStore(path), reopen=reopen_snapshots)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (SavesEveryThirdCommit, r"commits were acknowledged, and|not found|after \d+ commits"),
        (SavesInTwoParts, "instead of"),
        (KeepsItsLockFile, "File exists"),
        (WaitsForTheLease, "not at the revision"),
    ],
)
def test_a_store_that_does_not_survive_being_killed_fails(broken: type[SnapshotStore], error: str, tmp_path: Path):
    with pytest.raises((AssertionError, FileExistsError, HeadMoved), match=error):
        find_case(KILLING).run(lambda: broken(tmp_path / "talks"), reopen=reopen_snapshots)


def test_an_error_in_the_forked_process_is_reported(tmp_path: Path):
    parent = os.getpid()

    def reopen(store: Store) -> Store:
        if os.getpid() != parent:
            raise RuntimeError("not here")
        return reopen_snapshots(store)

    with pytest.raises(AssertionError, match=r"(?s)a forked process can't write: .*RuntimeError: not here"):
        find_case(KILLING).run(lambda: SnapshotStore(tmp_path / "talks"), reopen=reopen)


def test_a_store_that_loses_everything_when_reopened_fails():
    report = check_store(InMemory, reopen=lambda _: InMemory())
    assert [failure.name for failure in report.failed] == [REOPENING, KILLING, INTERRUPTING]
    assert not report.skipped


def test_without_os_fork_the_killing_case_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delattr(os, "fork")
    report = check_store(InMemory, reopen=lambda _: InMemory())
    assert report.skipped == (KILLING,)
    with pytest.raises(SkipTest, match=r"no os\.fork"):
        find_case(KILLING).run(lambda: SnapshotStore(tmp_path / "talks"), reopen=reopen_snapshots)


class LeavesATransactionOpen(SQLite):
    """A store whose `describe` leaves a transaction open if it is interrupted."""

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        assert self._file.db is not None
        self._file.db.execute("BEGIN")
        self._file.db.execute("COMMIT")
        return super().describe(owner, conversation, meta, entry=entry)


def test_a_store_that_half_applies_an_interrupted_call_fails():
    with pytest.raises(AssertionError, match=r"interrupted at .*_tree\.py"):
        find_case(INTERRUPTING).run(InMemory, reopen=lambda _: InMemory())


def test_a_store_that_cannot_continue_after_an_interrupt_fails(tmp_path: Path):
    with pytest.raises(StoreError, match="within a transaction"):
        find_case(INTERRUPTING).run(
            lambda: LeavesATransactionOpen(tmp_path / "talks.db"), reopen=lambda _: SQLite(tmp_path / "talks.db")
        )


# Reports


def test_the_report_names_passed_skipped_and_failed_cases():
    report = check_store(ReencodesJson)
    assert "bytes_are_returned_unchanged" in [failure.name for failure in report.failed]
    assert "a_lease_is_renewed_only_with_its_token" in report.passed
    assert report.skipped == (REOPENING, KILLING, INTERRUPTING)
    with pytest.raises(AssertionError, match=r"bytes_are_returned_unchanged: .*branches\.py:\d+\)"):
        report.raise_for_failures()


def test_a_correct_store_passes():
    check_store(InMemory).raise_for_failures()


def test_reading_a_missing_conversation_returns_the_empty_pack():
    assert bytes(InMemory().read("o", "c", MAIN, 0, 9).array) == bytes(EMPTY.array)
