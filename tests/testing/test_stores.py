"""The suite for stores: stores that break the contract fail the right case."""

import os
import pickle
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import SkipTest

import msgspec
import pytest

from longtalk import _json
from longtalk.errors import StoreError
from longtalk.pack import EMPTY, Entry, Pack
from longtalk.stores.base import (
    BRIEF,
    MAIN,
    Asked,
    Commit,
    Head,
    Hit,
    Holding,
    KeyTaken,
    Moved,
    Placed,
    Receipt,
    Sought,
    Store,
    Summary,
)
from longtalk.stores.ledger import _holder
from longtalk.stores.memory import Memory
from longtalk.stores.sqlite import SQLite
from longtalk.testing import store_many
from longtalk.testing.stores import CASES, Case, check_store

REOPENED = "all_is_there_when_it_is_opened_again"
KILLED = "a_writer_that_is_killed_leaves_what_it_acknowledged_and_nothing_half"
STOPPED = "a_call_that_is_interrupted_is_done_whole_or_not_at_all"


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


class LosesCommits(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        head = self.head(owner, conversation, commit.branch)
        if head is not None and head.revision % 7 == 6 and not commit.turn:
            return head
        if head is not None and head.revision == 9:
            commit = msgspec.structs.replace(commit, entries=())
        return super().write(owner, conversation, commit)


class IgnoresExpect(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        head = self.head(owner, conversation, commit.branch)
        return super().write(owner, conversation, msgspec.structs.replace(commit, expect=head.revision if head else 0))


class ComparesOutsideOfTheLock(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        head = self.head(owner, conversation, commit.branch)
        if (head.revision if head else 0) != commit.expect:
            raise Moved(head)
        time.sleep(0.0005)
        entries, now = commit.entries, self.head(owner, conversation, commit.branch)
        if entries and now:
            entries = (msgspec.structs.replace(entries[0], parent=now.entry), *entries[1:])
        changed = msgspec.structs.replace(commit, expect=now.revision if now else 0, entries=entries)
        return super().write(owner, conversation, changed)


class WritesEntriesOneByOne(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        if len(commit.entries) < 2:
            return super().write(owner, conversation, commit)
        first = msgspec.structs.replace(commit, entries=commit.entries[:1], records=())
        super().write(owner, conversation, first)
        time.sleep(0.001)
        with self._reading(owner, conversation) as ledger:
            assert ledger is not None
            ledger._branches[commit.branch].revision -= 1
            rest = msgspec.structs.replace(commit, entries=commit.entries[1:], cut=None, source=None)
            if commit.expect:
                return super().write(owner, conversation, rest)
            ledger._branches[commit.branch].revision += 1
            super().write(owner, conversation, msgspec.structs.replace(rest, expect=1))
            ledger._branches[commit.branch].revision -= 1
            head = ledger.head(commit.branch)
            assert head is not None
            return head


class KeepsPartOfWhatItRefuses(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        if commit.meta is not None:
            self.describe(owner, conversation, commit.meta)
        return super().write(owner, conversation, commit)


class ChecksNoParents(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        with self._reading(owner, conversation) as ledger:
            if ledger and commit.entries and commit.cut is None and commit.source is None:
                last = ledger.after(msgspec.structs.replace(commit, entries=()))[0]
                first = msgspec.structs.replace(commit.entries[0], parent=last)
                commit = msgspec.structs.replace(commit, entries=(first, *commit.entries[1:]))
        return super().write(owner, conversation, commit)


class KnowsOneOwner(Memory):
    def head(self, owner: str, conversation: str, branch: str = MAIN) -> Head | None:
        found = [super(KnowsOneOwner, self).head(each, conversation, branch) for each in (owner, *self._owners)]
        return next((head for head in found if head), None)


class DeletesForAnybody(Memory):
    def delete(self, owner: str, conversation: str) -> Receipt | None:
        receipts = [super(DeletesForAnybody, self).delete(each, conversation) for each in list(self._owners)]
        return next((receipt for receipt in receipts if receipt), None)


class SaysThatItIsNotYours(Memory):
    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        if any(conversation in owned for other, owned in self._owners.items() if other != owner):
            raise PermissionError("not yours")
        return super().read(owner, conversation, branch, start, stop)


class FindsWhatOthersSaid(Memory):
    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[Hit]:
        found = super().candidates
        return [hit for each in self._owners for hit in found(each, terms, limit, conversation=conversation)][:limit]


class ShowsRecordsOfSiblings(Memory):
    def head(self, owner: str, conversation: str, branch: str = MAIN) -> Head | None:
        head = super().head(owner, conversation, branch)
        with self._reading(owner, conversation) as ledger:
            if head is None or ledger is None:
                return head
            every = [super(ShowsRecordsOfSiblings, self).head(owner, conversation, b.branch) for b in ledger.branches()]
        found = [placed for each in every if each for placed in each.records]
        return msgspec.structs.replace(head, records=tuple(dict.fromkeys((*head.records, *found))))


class KeepsTheOldestRecord(Memory):
    def head(self, owner: str, conversation: str, branch: str = MAIN) -> Head | None:
        head = super().head(owner, conversation, branch)
        return head and msgspec.structs.replace(head, records=head.records[:1])


class WritesJsonAnew(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        entries = []
        for entry in commit.entries:
            try:
                entries.append(msgspec.structs.replace(entry, native=_json.encode(_json.value(entry.native))))
            except ValueError:
                entries.append(entry)
        return super().write(owner, conversation, msgspec.structs.replace(commit, entries=tuple(entries)))


class DropsMarks(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        entries = tuple(msgspec.structs.replace(entry, mark="") for entry in commit.entries)
        return super().write(owner, conversation, msgspec.structs.replace(commit, entries=entries))


class ReadsOneTooMany(Memory):
    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        return super().read(owner, conversation, branch, start, stop + 1)


class RaisesForWhatIsNotThere(Memory):
    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        if self.head(owner, conversation, branch) is None:
            raise KeyError(conversation)
        return super().read(owner, conversation, branch, start, stop)


class ReadsMainAlone(Memory):
    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        return super().read(owner, conversation, MAIN, start, stop)


class PicksMainAlone(Memory):
    def pick(self, owner: str, conversation: str, branch: str, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        return super().pick(owner, conversation, MAIN, ranges)


class PicksWhatIsAskedForFirst(Memory):
    def pick(self, owner: str, conversation: str, branch: str, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        return super().pick(owner, conversation, branch, ranges[:1])


class CountsThePlacesAlone(Memory):
    def holding(self, owner: str, conversation: str, branch: str, sought: Sequence[Sought], most: int) -> list[Holding]:
        found = super().holding(owner, conversation, branch, sought, most)
        return [Holding(each.places, len(each.places)) for each in found]


class CutsForAll(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        if commit.cut is not None and commit.branch == MAIN:
            for head in self.branches(owner, conversation):
                if head.branch != MAIN and head.size > commit.cut:
                    also = Commit(branch=head.branch, expect=head.revision, cut=commit.cut, at=commit.at)
                    super().write(owner, conversation, also)
        return super().write(owner, conversation, commit)


class KeepsOldTurns(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        with self._reading(owner, conversation) as ledger:
            known = ledger and commit.turn and ledger._turns.get(commit.turn.id)
        return super().write(owner, conversation, msgspec.structs.replace(commit, turn=known or commit.turn))


class RenewsForAnybody(Memory):
    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        head = self.head(owner, conversation, branch)
        return head is not None and super().renew(owner, conversation, branch, head.token, until)


class TakesAKeyTwice(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        try:
            return super().write(owner, conversation, commit)
        except KeyTaken:
            return super().write(owner, conversation, msgspec.structs.replace(commit, request=None))


class MixesUpTwins(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        return super().write(owner, conversation.casefold(), commit)

    def head(self, owner: str, conversation: str, branch: str = MAIN) -> Head | None:
        return super().head(owner, conversation.casefold(), branch)

    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        return super().read(owner, conversation.casefold(), branch, start, stop)


class Lists(Memory):
    def conversations(
        self,
        owner: str,
        *,
        limit: int = 50,
        after: tuple[int, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> list[Summary]:
        every = super().conversations(owner, limit=1_000, meta=meta)
        return [each for each in every if self.is_behind(each, after)][:limit]

    def is_behind(self, each: Summary, after: tuple[int, str] | None) -> bool:
        return after is None or (-each.updated, each.id) > (-after[0], after[1])


class ListsTheOldestFirst(Lists):
    def conversations(self, owner: str, **fields: Any) -> list[Summary]:
        return super().conversations(owner, **fields)[::-1]


class GivesOneTwice(Lists):
    def is_behind(self, each: Summary, after: tuple[int, str] | None) -> bool:
        return after is None or (-each.updated, each.id) >= (-after[0], after[1])


class SkipsThoseOfOneTime(Lists):
    def is_behind(self, each: Summary, after: tuple[int, str] | None) -> bool:
        return after is None or each.updated < after[0]


class RepeatsThoseOfOneTime(Lists):
    def is_behind(self, each: Summary, after: tuple[int, str] | None) -> bool:
        return after is None or (each.updated <= after[0] and each.id != after[1])


class ListsThoseOfOneTimeBackwards(Lists):
    def conversations(self, owner: str, **fields: Any) -> list[Summary]:
        found = super().conversations(owner, **fields)
        return sorted(sorted(found, key=lambda each: each.id, reverse=True), key=lambda each: -each.updated)


class FiltersLoosely(Lists):
    def conversations(self, owner: str, *, meta: Mapping[str, Any] | None = None, **fields: Any) -> list[Summary]:
        found = super().conversations(owner, **fields)
        return [each for each in found if all(each.meta.get(key) == value for key, value in (meta or {}).items())]


class ListsWhatOthersHave(Lists):
    def conversations(self, owner: str, **fields: Any) -> list[Summary]:
        return [each for owner in self._owners for each in super(Lists, self).conversations(owner, **fields)]


class CountsThePathOfOneBranch(Memory):
    def summary(self, owner: str, conversation: str) -> Summary | None:
        found, head = super().summary(owner, conversation), self.head(owner, conversation)
        return found and msgspec.structs.replace(found, entries=head.size if head else 0)


class FindsWholeWordsAlone(Memory):
    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[Hit]:
        hits = super().candidates(owner, terms, limit, conversation=conversation)
        return [hit for hit in hits if set(hit.text.casefold().strip(".!").split()) & set(terms)]


class HoldsWholeWordsAlone(Memory):
    def holding(self, owner: str, conversation: str, branch: str, sought: Sequence[Sought], most: int) -> list[Holding]:
        whole = [Sought((*each.words, *each.beginnings)) for each in sought]
        return super().holding(owner, conversation, branch, whole, most)


class HoldsWhatOtherBranchesSay(Memory):
    def holding(self, owner: str, conversation: str, branch: str, sought: Sequence[Sought], most: int) -> list[Holding]:
        names = [head.branch for head in self.branches(owner, conversation)]
        every = [super(HoldsWhatOtherBranchesSay, self).holding(owner, conversation, n, sought, most) for n in names]
        found = [sorted({place for held in some for place in held.places}) for some in zip(*every, strict=True)]
        return [Holding(tuple(places), len(places)) for places in found]


class HoldsWhatShows(Memory):
    def holding(self, owner: str, conversation: str, branch: str, sought: Sequence[Sought], most: int) -> list[Holding]:
        hits = [self.candidates(owner, each.words, most, conversation=conversation) for each in sought]
        return [Holding(tuple(sorted(hit.place for hit in some)), len(some)) for some in hits]


class ForgetsHalfOfADeletion(Memory):
    def delete(self, owner: str, conversation: str) -> Receipt | None:
        with self._reading(owner, conversation) as ledger:
            receipt = super().delete(owner, conversation)
            if ledger and receipt:
                keys, meta = ledger._keys, ledger.meta
                self._left = (owner, conversation, keys, meta)
        return receipt

    def asked(self, owner: str, conversation: str, key: str) -> Any:
        found = super().asked(owner, conversation, key)
        left = getattr(self, "_left", None)
        return found or (left[2].get(key) if left and left[:2] == (owner, conversation) else None)


class KeepsRecordsOfWhatIsRedacted(Memory):
    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        with self._reading(owner, conversation) as ledger:
            records = list(ledger._records) if ledger else []
            done = super().redact(owner, conversation, entry, native)
            if ledger:
                ledger._records = records
            return done


class FindsWhatIsRedacted(Memory):
    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        with self._reading(owner, conversation) as ledger:
            if ledger is None:
                return False
            list(ledger.found(conversation))
            kept = [dict(segment.words) for segment in ledger._segments]
            done = super().redact(owner, conversation, entry, native)
            for segment, texts in zip(ledger._segments, kept, strict=True):
                segment.words = texts
            return done


class RedactsOnOneBranch(Memory):
    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        kept: dict[str, Pack] = self.__dict__.setdefault("_kept", {})
        return kept[branch] if branch in kept else super().read(owner, conversation, branch, start, stop)

    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        head = self.head(owner, conversation, "fork")
        if head is not None:
            self.__dict__.setdefault("_kept", {})["fork"] = self.read(owner, conversation, "fork", 0, head.size)
        return super().redact(owner, conversation, entry, native)


class ForksBehindWhatever(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        return super().write(owner, conversation, msgspec.structs.replace(commit, behind=None))


class SaysNotWhereTheSourceIs(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        try:
            return super().write(owner, conversation, commit)
        except Moved as moved:
            raise Moved(None if commit.behind else moved.head) from None


class MeansTheEntryBeforeTheCut(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        if commit.source and commit.behind and commit.cut is not None:
            raise Moved(self.head(owner, conversation, commit.source[0]))
        return super().write(owner, conversation, commit)


class WritesManifestsAnew(Memory):
    def manifest(self, owner: str, conversation: str, turn: str) -> bytes:
        found = super().manifest(owner, conversation, turn)
        return found and msgspec.json.encode(msgspec.json.decode(found))


class LosesManifests(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        with self._reading(owner, conversation) as ledger:
            if ledger and commit.turn:
                ledger._manifests.pop(commit.turn.id, None)
            return super().write(owner, conversation, commit)


class KeepsTheFirstManifest(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        if commit.turn and self.manifest(owner, conversation, commit.turn.id):
            commit = msgspec.structs.replace(commit, manifest=b"")
        return super().write(owner, conversation, commit)


class GivesAllManifests(Memory):
    def manifests(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[str, bytes]:
        with self._reading(owner, conversation) as ledger:
            return dict(ledger._manifests) if ledger else {}


class GivesManifestsOfAllThatHaveAnEntryThere(Memory):
    def manifests(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[str, bytes]:
        turns = {entry.turn for entry in self.read(owner, conversation, branch, start, stop).entries()}
        return {turn: data for turn in turns if (data := self.manifest(owner, conversation, turn))}


class ForgetsKindsThatAreDone(Memory):
    def head(self, owner: str, conversation: str, branch: str = MAIN) -> Head | None:
        head = super().head(owner, conversation, branch)
        done: dict[str, set[str]] = self.__dict__.setdefault("_done", {})
        if head is None:
            return None
        shown = tuple(each for each in head.records if each.record.kind not in done.get(branch, ()))
        return msgspec.structs.replace(head, records=shown)

    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        done = {record.kind for record in commit.done}
        self.__dict__.setdefault("_done", {}).setdefault(commit.branch, set()).update(done)
        super().write(owner, conversation, commit)
        head = self.head(owner, conversation, commit.branch)
        assert head is not None
        return head


class RemovesWhatIsDone(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        with self._reading(owner, conversation) as ledger:
            if ledger:
                ledger._records = [each for each in ledger._records if each.record not in commit.done]
            return super().write(owner, conversation, commit)


class GivesTheNewestOfAKind(Memory):
    def records(self, owner: str, conversation: str, branch: str, kind: str | None = None) -> list[Placed]:
        head = self.head(owner, conversation, branch)
        return [each for each in head.records if each.record.kind == kind] if head else []


class GivesRecordsByPlace(Memory):
    def records(self, owner: str, conversation: str, branch: str, kind: str | None = None) -> list[Placed]:
        return sorted(super().records(owner, conversation, branch, kind), key=lambda each: each.place)


class PutsTheNewWhereTheOldWas(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        with self._lock:
            super().write(owner, conversation, commit)
            ledger = self._owners[owner][conversation]
            first: dict[str, int] = {}
            for i in reversed(range(len(ledger._records))):
                kind = ledger._records[i].record.kind
                if kind in BRIEF and kind in first:
                    ledger._records[i] = ledger._records.pop(first[kind])
                    first = {each: place - (place > first[kind]) for each, place in first.items()}
                first[kind] = i
            head = ledger.head(commit.branch)
            assert head is not None
            return head


class CountsDataFromTheFirstThatIsRead(Memory):
    def metas(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        found = super().metas(owner, conversation, branch, start, stop)
        return {place - start: meta for place, meta in found.items()}


class GivesDataOnOtherEntriesToo(Memory):
    def metas(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        return super().metas(owner, conversation, branch, 0, stop)


class ShowsDataOnWhatWasCutOff(Memory):
    def metas(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        seen: dict[int, dict[str, Any]] = self.__dict__.setdefault("_seen", {})
        seen |= super().metas(owner, conversation, branch, start, stop)
        return {place: seen[place] for place in sorted(seen) if start <= place < stop}


class AddsToData(Memory):
    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        old: dict[str, Any] = {}
        for place, each in self.metas(owner, conversation, MAIN, 0, 99).items():
            pack = self.read(owner, conversation, MAIN, place, place + 1)
            old |= each if pack.entry(0).id == entry else {}
        return super().describe(owner, conversation, old | dict(meta), entry=entry)


class MovesWhatItDescribes(Memory):
    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        head = self.head(owner, conversation)
        if entry and head:
            self.write(owner, conversation, Commit(expect=head.revision, at=head.updated))
        return super().describe(owner, conversation, meta, entry=entry)


class SaysThatAllIsDescribed(Memory):
    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        return super().describe(owner, conversation, meta, entry=entry) or entry is not None


class TellsWhereATurnWasMade(Memory):
    def asked(self, owner: str, conversation: str, key: str) -> Asked | None:
        found = super().asked(owner, conversation, key)
        with self._reading(owner, conversation) as ledger:
            made = ledger and ledger._keys.get(key)
        return Asked(found.request, made.branch, found.turn, made.place) if found and made else found


class TellsTheFirstBranchByName(Memory):
    def asked(self, owner: str, conversation: str, key: str) -> Asked | None:
        found = super().asked(owner, conversation, key)
        for head in self.branches(owner, conversation) if found else []:
            for place, turn in self.turns(owner, conversation, head.branch, 0, head.size):
                if found and turn == found.turn:
                    return Asked(found.request, head.branch, turn, place)
        return found


class ListsNoKeys(Memory):
    def requests(self, owner: str, conversation: str) -> list[Asked]:
        return []


class ListsTheKeysOfOthers(Memory):
    def requests(self, owner: str, conversation: str) -> list[Asked]:
        return [asked for each in list(self._owners) for asked in Memory.requests(self, each, conversation)]


class KeepsDataOnWhatIsRedacted(Memory):
    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        with self._reading(owner, conversation) as ledger:
            if ledger is None:
                return False
            kept = [dict(segment.metas) for segment in ledger._segments]
            done = super().redact(owner, conversation, entry, native)
            for segment, metas in zip(ledger._segments, kept, strict=True):
                segment.metas = metas
            return done


class RedactsAllRecords(Memory):
    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        with self._reading(owner, conversation) as ledger:
            done = super().redact(owner, conversation, entry, native)
            if ledger and done:
                ledger._records = [each for each in ledger._records if each.place < 1]
            return done


class RedactsQuietly(Memory):
    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        with self._reading(owner, conversation) as ledger:
            done = super().redact(owner, conversation, entry, native)
            if ledger and done:
                ledger._branches["fork"].revision -= 1
            return done


class FindsFault(Memory):
    def verify(self, owner: str, conversation: str) -> list[str]:
        return ["it is long"] if len(self.read(owner, conversation, MAIN, 0, 99)) > 9 else []


class SharesWhatIsOwn(Memory):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        super().write(owner, conversation, commit)
        with self._reading(owner, conversation) as ledger:
            assert ledger is not None
            ledger._records = [each._replace(segment=_holder(each.segment, each.place)) for each in ledger._records]
            head = ledger.head(commit.branch)
            assert head is not None
            return head


BROKEN: list[tuple[type[Memory], str]] = [
    (LosesCommits, "of_many_writers_none_is_lost_doubled_or_mixed"),
    (IgnoresExpect, "a_commit_that_expects_another_revision_is_refused"),
    (ComparesOutsideOfTheLock, "of_many_writers_none_is_lost_doubled_or_mixed"),
    (WritesEntriesOneByOne, "nobody_sees_half_a_commit"),
    (KeepsPartOfWhatItRefuses, "a_commit_that_expects_another_revision_is_refused"),
    (ChecksNoParents, "a_commit_that_makes_no_sense_is_refused_whole"),
    (KnowsOneOwner, "what_others_own_is_as_if_it_did_not_exist"),
    (DeletesForAnybody, "what_others_own_is_as_if_it_did_not_exist"),
    (SaysThatItIsNotYours, "what_others_own_is_as_if_it_did_not_exist"),
    (FindsWhatOthersSaid, "what_others_own_is_as_if_it_did_not_exist"),
    (FindsWhatOthersSaid, "words_are_found"),
    (ListsWhatOthersHave, "what_others_own_is_as_if_it_did_not_exist"),
    (ShowsRecordsOfSiblings, "records_are_seen_on_paths_that_have_their_entry"),
    (SharesWhatIsOwn, "a_branch_keeps_records_of_some_kinds_to_itself"),
    (KeepsTheOldestRecord, "of_some_kinds_the_newest_record_counts"),
    (WritesJsonAnew, "bytes_come_back_as_they_went_in"),
    (DropsMarks, "a_commit_is_there_as_it_was_made"),
    (ReadsOneTooMany, "any_part_of_a_path_can_be_read"),
    (RaisesForWhatIsNotThere, "what_is_not_there_reads_as_nothing"),
    (ReadsMainAlone, "branches_share_what_they_have_in_common"),
    (PicksMainAlone, "several_parts_of_a_path_can_be_read_at_once"),
    (PicksWhatIsAskedForFirst, "several_parts_of_a_path_can_be_read_at_once"),
    (CutsForAll, "a_cut_takes_entries_off_a_branch_alone"),
    (CutsForAll, "a_tree_of_many_commits_is_as_it_was_made"),
    (KeepsOldTurns, "a_turn_has_its_newest_version"),
    (RenewsForAnybody, "a_lease_is_held_by_its_token"),
    (TakesAKeyTwice, "a_key_makes_one_turn"),
    (TakesAKeyTwice, "of_many_turns_with_one_key_one_is_made"),
    (ComparesOutsideOfTheLock, "of_many_first_commits_one_wins"),
    (MixesUpTwins, "names_mean_nothing"),
    (ListsTheOldestFirst, "the_newest_conversation_comes_first"),
    (GivesOneTwice, "the_newest_conversation_comes_first"),
    (SkipsThoseOfOneTime, "pages_skip_and_repeat_no_conversation"),
    (RepeatsThoseOfOneTime, "pages_skip_and_repeat_no_conversation"),
    (ListsThoseOfOneTimeBackwards, "pages_skip_and_repeat_no_conversation"),
    (CountsThePathOfOneBranch, "a_summary_is_what_a_list_says"),
    (FiltersLoosely, "the_apps_own_data_is_kept_and_filtered"),
    (FindsWholeWordsAlone, "words_are_found"),
    (CountsThePlacesAlone, "what_is_sought_is_told_by_its_places"),
    (HoldsWholeWordsAlone, "what_is_sought_is_told_by_its_places"),
    (HoldsWhatOtherBranchesSay, "what_is_sought_is_on_one_path"),
    (HoldsWhatShows, "cards_are_found_and_results_of_tools_are_not"),
    (ForgetsHalfOfADeletion, "what_is_deleted_is_gone"),
    (KeepsRecordsOfWhatIsRedacted, "what_is_redacted_is_gone"),
    (FindsWhatIsRedacted, "what_is_redacted_is_gone"),
    (RedactsOnOneBranch, "what_is_redacted_is_gone"),
    (ForksBehindWhatever, "a_branch_begins_behind_the_entry_that_was_meant"),
    (SaysNotWhereTheSourceIs, "a_branch_begins_behind_the_entry_that_was_meant"),
    (MeansTheEntryBeforeTheCut, "what_was_meant_is_the_sources_entry_also_with_a_cut"),
    (WritesManifestsAnew, "a_manifest_is_kept_with_its_turn"),
    (LosesManifests, "a_manifest_is_replaced_by_another_one_alone"),
    (KeepsTheFirstManifest, "a_manifest_is_replaced_by_another_one_alone"),
    (GivesAllManifests, "manifests_are_read_by_where_their_turns_begin"),
    (GivesManifestsOfAllThatHaveAnEntryThere, "manifests_are_read_by_where_their_turns_begin"),
    (ForgetsKindsThatAreDone, "what_is_done_takes_nothing_else_off_a_head"),
    (RemovesWhatIsDone, "what_is_done_is_still_a_record"),
    (RemovesWhatIsDone, "what_is_done_takes_nothing_else_off_a_head"),
    (GivesTheNewestOfAKind, "all_records_of_a_kind_can_be_read"),
    (GivesRecordsByPlace, "all_records_of_a_kind_can_be_read"),
    (GivesRecordsByPlace, "records_come_in_the_order_in_which_they_were_made"),
    (PutsTheNewWhereTheOldWas, "records_come_in_the_order_in_which_they_were_made"),
    (PutsTheNewWhereTheOldWas, "what_is_replaced_on_one_branch_holds_on_another"),
    (CountsDataFromTheFirstThatIsRead, "the_apps_own_data_on_entries_is_read_by_place"),
    (GivesDataOnOtherEntriesToo, "the_apps_own_data_on_entries_is_read_by_place"),
    (ShowsDataOnWhatWasCutOff, "the_apps_own_data_on_entries_is_seen_on_paths_that_have_them"),
    (AddsToData, "the_apps_own_data_on_an_entry_is_replaced"),
    (MovesWhatItDescribes, "the_apps_own_data_on_an_entry_is_replaced"),
    (SaysThatAllIsDescribed, "the_apps_own_data_on_an_entry_is_replaced"),
    (SaysThatAllIsDescribed, "what_is_not_there_reads_as_nothing"),
    (TellsWhereATurnWasMade, "the_turn_of_a_key_is_on_the_branch_that_is_told"),
    (TellsTheFirstBranchByName, "the_turn_of_a_key_is_on_the_branch_that_is_told"),
    (ListsNoKeys, "a_key_makes_one_turn"),
    (ListsTheKeysOfOthers, "what_others_own_is_as_if_it_did_not_exist"),
    (KeepsDataOnWhatIsRedacted, "what_the_app_has_kept_on_a_redacted_entry_is_gone"),
    (RedactsAllRecords, "a_redaction_keeps_records_that_quote_nothing"),
    (KeepsRecordsOfWhatIsRedacted, "a_redaction_keeps_records_that_quote_nothing"),
    (RedactsQuietly, "who_remembers_what_is_redacted_is_told"),
    (FindsFault, "nothing_is_wrong_with_what_was_just_written"),
]


@pytest.mark.parametrize(("broken", "case"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_a_store_that_breaks_a_promise_fails_its_case(broken: Callable[[], Store], case: str):
    with pytest.raises((AssertionError, LookupError, ValueError, PermissionError, Moved)):
        case_of(case).run(broken)


def test_every_case_has_a_store_that_fails_it():
    assert {case.name for case in CASES if not case.reopens} == {case for _, case in BROKEN}
    assert [case.name for case in CASES if case.reopens] == [REOPENED, KILLED, STOPPED]


def test_no_two_cases_have_one_name():
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize(
    "name", sorted({name for name in vars(Store) if name[0] != "_"} - {"candidates", "close", "conversations"})
)
def test_no_method_may_tell_that_others_have_a_conversation(name: str):
    def tells(self: Memory, owner: str, conversation: str, *rest: Any, **fields: Any) -> Any:
        if any(conversation in owned for other, owned in self._owners.items() if other != owner):
            raise PermissionError("not yours")
        return getattr(Memory, name)(self, owner, conversation, *rest, **fields)

    with pytest.raises(AssertionError, match=f"`{name}` tells what somebody else owns"):
        case_of("what_others_own_is_as_if_it_did_not_exist").run(type("Tells", (Memory,), {name: tells}))


def test_a_method_that_the_suite_does_not_try_on_what_others_own_is_noticed(monkeypatch: pytest.MonkeyPatch):
    class More(Store):
        def more(self) -> None: ...

    monkeypatch.setattr(store_many, "Store", type("Store", (), dict(vars(Store)) | {"more": More.more}))
    with pytest.raises(AssertionError, match="does not try"):
        case_of("what_others_own_is_as_if_it_did_not_exist").run(Memory)


# Opening again, and being killed


class Snapshots(Memory):
    """In a file, whole after each write: good enough for the suite."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        if path.exists():
            self._owners = pickle.loads(path.read_bytes())

    def save(self) -> None:
        made = self.path.with_suffix(".new")
        made.write_bytes(pickle.dumps(self._owners))
        made.replace(self.path)

    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        with self._lock:
            head = super().write(owner, conversation, commit)
            self.save()
            return head


class SavesLater(Snapshots):
    def save(self) -> None:
        self.__dict__["_waiting"] = self.__dict__.get("_waiting", 0) + 1
        if self.__dict__["_waiting"] % 3 == 0:
            super().save()


class SavesInTwoParts(Snapshots):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        if not commit.expect:
            return super().write(owner, conversation, commit)
        super().write(owner, conversation, msgspec.structs.replace(commit, records=()))
        time.sleep(0.005)
        self._owners[owner][conversation]._branches[commit.branch].revision -= 1
        return super().write(owner, conversation, msgspec.structs.replace(commit, entries=(), entry_meta={}))


class StaysLocked(Snapshots):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        lock = self.path.with_suffix(".lock")
        lock.touch(exist_ok=False)
        try:
            time.sleep(0.005)
            return super().write(owner, conversation, commit)
        finally:
            lock.unlink()


class WaitsForTheLease(Snapshots):
    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        head = self.head(owner, conversation, commit.branch)
        if head and head.lease and commit.lease is None:
            raise Moved(head)
        return super().write(owner, conversation, commit)


def again(store: Store) -> Store:
    assert isinstance(store, Snapshots)
    store.close()
    return type(store)(store.path)


def test_a_store_that_is_killed_and_loses_nothing_passes(tmp_path: Path):
    for number in range(3):
        path = tmp_path / str(number)
        case_of(KILLED).run(lambda path=path: Snapshots(path), reopen=again)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        (SavesLater, r"commits were acknowledged, and|is not there|after \d+ commits"),
        (SavesInTwoParts, "instead of"),
        (StaysLocked, "File exists"),
        (WaitsForTheLease, "moved on"),
    ],
)
def test_a_store_that_is_not_made_to_be_killed_fails(broken: type[Snapshots], what: str, tmp_path: Path):
    with pytest.raises((AssertionError, FileExistsError, Moved), match=what):
        case_of(KILLED).run(lambda: broken(tmp_path / "talks"), reopen=again)


def test_what_goes_wrong_in_the_process_that_is_to_be_killed_is_told(tmp_path: Path):
    parent = os.getpid()

    def reopen(store: Store) -> Store:
        if os.getpid() != parent:
            raise RuntimeError("not here")
        return again(store)

    with pytest.raises(AssertionError, match=r"(?s)a forked process can't write: .*RuntimeError: not here"):
        case_of(KILLED).run(lambda: Snapshots(tmp_path / "talks"), reopen=reopen)


def test_a_store_that_forgets_fails_when_it_is_opened_again():
    report = check_store(Memory, reopen=lambda _: Memory())
    assert [failure.name for failure in report.failed] == [REOPENED, KILLED, STOPPED]
    assert not report.skipped


def test_without_fork_no_process_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delattr(os, "fork")
    report = check_store(Memory, reopen=lambda _: Memory())
    assert report.skipped == (KILLED,)
    with pytest.raises(SkipTest, match="no fork"):
        case_of(KILLED).run(lambda: Snapshots(tmp_path / "talks"), reopen=again)


class StaysOpen(SQLite):
    """Begins what it does not always end."""

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        assert self._file.db is not None
        self._file.db.execute("BEGIN")
        self._file.db.execute("COMMIT")
        return super().describe(owner, conversation, meta, entry=entry)


def test_a_store_that_does_half_of_what_is_interrupted_fails():
    with pytest.raises(AssertionError, match=r"interrupted at .*ledger\.py"):
        case_of(STOPPED).run(Memory, reopen=lambda _: Memory())


def test_a_store_that_does_not_go_on_after_an_interruption_fails(tmp_path: Path):
    with pytest.raises(StoreError, match="within a transaction"):
        case_of(STOPPED).run(lambda: StaysOpen(tmp_path / "talks.db"), reopen=lambda _: SQLite(tmp_path / "talks.db"))


# Reports


def test_the_report_says_what_was_passed_left_out_and_failed_and_where():
    report = check_store(WritesJsonAnew)
    assert "bytes_come_back_as_they_went_in" in [failure.name for failure in report.failed]
    assert "a_lease_is_held_by_its_token" in report.passed
    assert report.skipped == (REOPENED, KILLED, STOPPED)
    with pytest.raises(AssertionError, match=r"bytes_come_back_as_they_went_in: .*store_tree.py:\d+\)"):
        report.raise_for_failures()


def test_a_good_store_passes():
    check_store(Memory).raise_for_failures()


def test_the_empty_pack_is_what_nothing_reads_as():
    assert bytes(Memory().read("o", "c", MAIN, 0, 9).array) == bytes(EMPTY.array)
