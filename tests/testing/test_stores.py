"""The suite for stores: stores that break the contract fail the right case."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
import pytest

from longtalk import _json
from longtalk.pack import EMPTY, Pack
from longtalk.stores.base import MAIN, Commit, Head, Hit, KeyTaken, Moved, Receipt, Store, Summary
from longtalk.stores.memory import Memory
from longtalk.testing import stores
from longtalk.testing.stores import CASES, check_store


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


class ListsTheOldestFirst(Memory):
    def conversations(
        self, owner: str, *, limit: int = 50, before: int | None = None, meta: Mapping[str, Any] | None = None
    ) -> list[Summary]:
        return super().conversations(owner, limit=limit, before=before, meta=meta)[::-1]


class GivesAPageTwice(Memory):
    def conversations(
        self, owner: str, *, limit: int = 50, before: int | None = None, meta: Mapping[str, Any] | None = None
    ) -> list[Summary]:
        return super().conversations(owner, limit=limit, before=before and before + 1, meta=meta)


class FiltersLoosely(Memory):
    def conversations(
        self, owner: str, *, limit: int = 50, before: int | None = None, meta: Mapping[str, Any] | None = None
    ) -> list[Summary]:
        found = super().conversations(owner, limit=limit, before=before)
        return [each for each in found if all(each.meta.get(key) == value for key, value in (meta or {}).items())]


class FindsWholeWordsAlone(Memory):
    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[Hit]:
        hits = super().candidates(owner, terms, limit, conversation=conversation)
        return [hit for hit in hits if set(hit.text.casefold().strip(".!").split()) & set(terms)]


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
    (ShowsRecordsOfSiblings, "records_are_seen_on_paths_that_have_their_entry"),
    (KeepsTheOldestRecord, "of_some_kinds_the_newest_record_counts"),
    (WritesJsonAnew, "bytes_come_back_as_they_went_in"),
    (DropsMarks, "a_commit_is_there_as_it_was_made"),
    (ReadsOneTooMany, "any_part_of_a_path_can_be_read"),
    (RaisesForWhatIsNotThere, "what_is_not_there_reads_as_nothing"),
    (ReadsMainAlone, "branches_share_what_they_have_in_common"),
    (CutsForAll, "a_cut_takes_entries_off_a_branch_alone"),
    (CutsForAll, "a_tree_of_many_commits_is_as_it_was_made"),
    (KeepsOldTurns, "a_turn_has_its_newest_version"),
    (RenewsForAnybody, "a_lease_is_held_by_its_token"),
    (TakesAKeyTwice, "a_key_makes_one_turn"),
    (TakesAKeyTwice, "of_many_turns_with_one_key_one_is_made"),
    (ComparesOutsideOfTheLock, "of_many_first_commits_one_wins"),
    (MixesUpTwins, "names_mean_nothing"),
    (ListsTheOldestFirst, "the_newest_conversation_comes_first"),
    (GivesAPageTwice, "the_newest_conversation_comes_first"),
    (FiltersLoosely, "the_apps_own_data_is_kept_and_filtered"),
    (FindsWholeWordsAlone, "words_are_found"),
    (ForgetsHalfOfADeletion, "what_is_deleted_is_gone"),
    (KeepsRecordsOfWhatIsRedacted, "what_is_redacted_is_gone"),
    (FindsWhatIsRedacted, "what_is_redacted_is_gone"),
    (RedactsOnOneBranch, "what_is_redacted_is_gone"),
]


@pytest.mark.parametrize(("broken", "case"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_a_store_that_breaks_a_promise_fails_its_case(broken: Callable[[], Store], case: str):
    found = next(each for each in CASES if each.name == case)
    with pytest.raises((AssertionError, LookupError, ValueError, PermissionError)):
        found.run(broken)


def test_every_case_has_a_store_that_fails_it():
    assert {case.name for case in CASES if not case.reopens} == {case for _, case in BROKEN}


def test_a_store_that_forgets_fails_when_it_is_opened_again():
    report = check_store(Memory, reopen=lambda _: Memory())
    assert [failure.name for failure in report.failed] == ["all_is_there_when_it_is_opened_again"]
    assert not report.skipped


def test_the_report_says_what_was_passed_left_out_and_failed_and_where():
    report = check_store(WritesJsonAnew)
    assert "bytes_come_back_as_they_went_in" in [failure.name for failure in report.failed]
    assert "a_lease_is_held_by_its_token" in report.passed
    assert report.skipped == ("all_is_there_when_it_is_opened_again",)
    with pytest.raises(AssertionError, match=r"bytes_come_back_as_they_went_in: .*store_cases.py:\d+\)"):
        report.raise_for_failures()


def test_a_good_store_passes():
    check_store(Memory).raise_for_failures()


def test_a_method_that_the_suite_does_not_try_on_what_others_own_is_noticed(monkeypatch: pytest.MonkeyPatch):
    class More(Store):
        def more(self) -> None: ...

    monkeypatch.setattr(stores, "Store", type("Store", (), dict(vars(Store)) | {"more": More.more}))
    found = next(each for each in CASES if each.name == "what_others_own_is_as_if_it_did_not_exist")
    with pytest.raises(AssertionError, match="does not try"):
        found.run(Memory)


def test_the_empty_pack_is_what_nothing_reads_as():
    assert bytes(Memory().read("o", "c", MAIN, 0, 9).array) == bytes(EMPTY.array)
