"""Test the stored recall index: it never disagrees with the transcript, and losing it costs one rebuild."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Conversation, Memory
from longtalk._util import json_bytes
from longtalk.memory.recall import search, whole
from longtalk.memory.recall.columns import Column
from longtalk.memory.recall.index import UNKNOWN, RecallIndex, Unit
from longtalk.memory.recall.index_cache import CachedIndex, IndexCache
from longtalk.memory.recall.meaning import complete_norms
from longtalk.memory.recall.reranking import rank
from longtalk.memory.recall.search import Recall, index_store, list_new_segments
from longtalk.memory.recall.segments import KIND, append_segments, decode_segment, encode_segment
from longtalk.memory.recall.units import to_unit
from longtalk.state.codec import decode
from longtalk.stores.base import MAIN, BranchHead, Commit, HeadMoved, PlacedRecord, Store
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, says
from longtalk.transcript.pack import Entry
from longtalk.transcript.transcript import Record, link_entries, new_id
from longtalk.transfer.snapshot import read_snapshot
from longtalk.wires import WIRES
from tests.memory.recall.test_index import TEXTS, UNITS
from tests.stores.test_many_writers import open_store, use_redis
from tests.support.properties import examples

QUERY = "Did Ada always play the violin in Lisbon, by the river, yesterday?"
WORDS = ("violin", "Lisbon", "river", "我喜欢琴", "always Ada", "yesterday", "soup", "\ud800 violins", "the")
FREE = Recall(gate=False)
VERSION_2 = (
    b'{"version":2,"start":0,"stop":3,"data":"eJy7wyB4RKIsMz8nM48rJ7M4KT+PqyizLLWIqzi/tACPjAADIxMzAxI4wnCEByiG4EsAiY8fPwYHB'
    b'6empqKoZOZjZjrC8x8JHOFh42FBKOBhZGRE4qHIMUMUMCEpwHQLD4RuaGjYv38/jAdzJwDfhjYL"}'
)
"""A segment of "violin", "Lisbon river" and "soup", as an earlier version stored it."""


@contextmanager
def small_segments(entries: int = 3) -> Iterator[None]:
    """Let segments have few entries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole, "_SEGMENT_ENTRIES", entries)
        yield


def get_columns(index: RecallIndex) -> dict[str, Any]:
    """Return what an index consists of, except texts."""
    columns = {name: each.values.tolist() for name, each in vars(index).items() if isinstance(each, Column)}
    for name in ("terms", "starts"):
        columns[f"postings.{name}"] = getattr(index.postings, name).values.tolist()
    return {**columns, "names": index.names, "terms": index.vocabulary.terms, "words": index.words.terms}


@examples(35, 400)
@given(UNITS, TEXTS, st.data())
def test_an_index_that_was_stored_in_segments_is_the_same(units: list[Unit], query: str, data: st.DataObject) -> None:
    units = [msgspec.structs.replace(unit, labels="soup Ada" if unit.position % 2 else "") for unit in units]
    whole_index, read = RecallIndex(units), RecallIndex()
    size = units[-1].position + 1 if units else 1
    cuts = sorted(data.draw(st.sets(st.integers(1, size), max_size=4)))
    segments = []
    read.read_units = lambda positions: [unit for unit in units if unit.position in positions]
    for start, stop in zip([0, *cuts], [*cuts, size], strict=True):
        if start < stop:
            segment = decode_segment(encode_segment(whole_index, start, stop))
            assert segment is not None
            segments.append(segment)
    broken = data.draw(st.integers(0, len(segments)))
    damaged = [msgspec.structs.replace(each, data=b"") if i == broken else each for i, each in enumerate(segments)]
    assert append_segments(read, damaged) == broken
    assert append_segments(read, segments[broken:]) == len(segments) - broken
    read.restore_topic()
    assert get_columns(read) == get_columns(whole_index)
    assert rank(read, query) == rank(whole_index, query)
    more = Unit(size + 3, "user", "And the violin?", units[-1].at if units else 0)
    read.add(more)
    whole_index.add(more)
    assert get_columns(read) == get_columns(whole_index)


@pytest.mark.parametrize("stored_by_meaning", [True, False])
def test_an_index_by_meaning_is_the_same_from_segments_of_either_kind(*, stored_by_meaning: bool) -> None:
    units = [Unit(i, "user", f"{text} {WORDS[i // 2]}", labels="soups") for i, text in enumerate(WORDS)]
    whole_index, stored = RecallIndex(units, meaning=True), RecallIndex(units, meaning=stored_by_meaning)
    for index in (whole_index, stored):
        complete_norms(index)
    read = RecallIndex(meaning=True)
    for start, stop in pairwise((0, 4, len(units))):
        segment = decode_segment(encode_segment(stored, start, stop))
        assert segment is not None
        assert append_segments(read, [segment]) == 1
    assert (UNKNOWN in read.norms.values) is not stored_by_meaning
    read.restore_topic()
    assert rank(read, "fiddles and broth") == rank(whole_index, "fiddles and broth")
    assert get_columns(read) == get_columns(whole_index)
    for index in (read, whole_index):
        index.truncate(5)
        index.add(Unit(20, "user", "A new fiddle."))
    assert rank(read, "violas") == rank(whole_index, "violas")


@examples(50, 500)
@given(st.binary(max_size=40), st.data())
def test_data_that_was_changed_is_refused_or_read_and_never_breaks_the_index(noise: bytes, data: st.DataObject) -> None:
    index = RecallIndex([Unit(i, "user", text) for i, text in enumerate(WORDS)])
    segment = decode_segment(encode_segment(index, 0, len(WORDS)))
    assert segment is not None
    plain = bytearray(zlib.decompress(segment.data))
    at = data.draw(st.integers(0, len(plain)))
    plain[at : at + len(noise)] = noise
    changed = msgspec.structs.replace(segment, data=zlib.compress(bytes(plain)))
    read = RecallIndex()
    assert append_segments(read, [changed]) == bool(len(read))
    rank(read, QUERY)
    for broken in (segment.data[:-5], noise, b""):
        assert not append_segments(RecallIndex(), [msgspec.structs.replace(segment, data=broken)])
    assert decode_segment(noise) is None
    later = json_bytes.encode(msgspec.structs.replace(segment, version=99))
    assert decode_segment(later) is None


def test_vectors_that_do_not_fit_or_are_of_other_embeddings_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    index = RecallIndex([Unit(i, "user", text) for i, text in enumerate(WORDS)], meaning=True)
    complete_norms(index)
    segment = decode_segment(encode_segment(index, 0, len(WORDS)))
    assert segment is not None
    columns = msgspec.msgpack.decode(zlib.decompress(segment.data))
    *_, (model, norms, pieces, counts, lengths) = columns

    def append(*meaning: object) -> tuple[int, RecallIndex]:
        changed = zlib.compress(msgspec.msgpack.encode([*columns[:-1], meaning]))
        read = RecallIndex(meaning=True)
        return append_segments(read, [msgspec.structs.replace(segment, data=changed)]), read

    for wrong in (
        (model, norms[4:], pieces, counts, lengths),
        (model, norms[:-4] + b"\0\0\xc0\x7f", pieces, counts, lengths),
        (model, norms, b"\x02" + b"\xff" * (len(pieces) - 1), counts, lengths),
        (model, norms, pieces[:-2], counts, lengths),
        (model, norms, pieces, counts[:-1], lengths),
        (model, norms, pieces, counts, lengths + b"\0\0\0\0"),
    ):
        assert append(*wrong)[0] == 0
    count, read = append("others", norms, b"", b"", b"")
    assert (count, set(read.norms.values.tolist())) == (1, {UNKNOWN})
    assert rank(read, "fiddles and broth") == rank(index, "fiddles and broth")
    monkeypatch.setattr(type(read.vectors), "_split", None)
    count, read = append(model, norms, pieces, counts, lengths)
    assert (count, get_columns(read)) == (1, get_columns(index))


# In a store


class Talk:
    """A stored conversation, and caches as two processes have them."""

    def __init__(self, store: Store, name: str = "talk") -> None:
        self.store = store
        self.name = name
        self.caches = [IndexCache(), IndexCache()]
        self.number = 0
        self.say(MAIN, ["violin"])

    def head(self, branch: str) -> BranchHead:
        head = self.store.head("ada", self.name, branch)
        assert head is not None
        return head

    def say(self, branch: str, texts: list[str]) -> None:
        self.number += 1
        head = self.store.head("ada", self.name, branch)
        entries = [make_entry(text, ("user", "assistant")[i % 2]) for i, text in enumerate(texts)]
        linked = link_entries(head.entry if head else None, f"{self.name}-{self.number}", 0, entries)
        self.store.write(
            "ada", self.name, Commit(branch=branch, expect=head.revision if head else 0, entries=linked, at=1)
        )

    def fork(self, branch: str, size: int) -> str:
        self.number += 1
        name = f"b{self.number}"
        self.store.write("ada", self.name, Commit(branch=name, expect=0, source=(branch, size), at=1))
        return name

    def index(self, branch: str, process: int) -> CachedIndex:
        """Return the index as one process makes it, with what it would store."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(search, "_INDEX_CACHE", self.caches[process])
            found = index_store(self.store, "ada", self.name, branch, self.head(branch).size, QUERY, FREE)
        assert isinstance(found, CachedIndex)
        return found

    def save(self, branch: str, revision: int, index: CachedIndex) -> None:
        records = tuple(PlacedRecord(*each) for each in list_new_segments(index))
        with suppress(HeadMoved):
            self.store.write("ada", self.name, Commit(branch=branch, expect=revision, records=records, at=1))

    def check(self, branch: str, index: CachedIndex) -> None:
        """Check that an index is equal to one made of what is in the store."""
        entries = self.store.read("ada", self.name, branch, 0, self.head(branch).size).entries()
        fresh = RecallIndex(unit for i, entry in enumerate(entries) if (unit := to_unit(i, entry)) is not None)
        assert get_columns(index) == get_columns(fresh)
        for position in index.positions.values.tolist():
            assert index.get_unit(position) == fresh.get_unit(position)


def make_entry(text: str, role: str = "user") -> Entry:
    native = json_bytes.encode({"role": role, "content": text})
    return Entry(role=role, wire="openai-chat", native=native, at=1_700_000_000_000)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "fork", "cut", "redact", "ask", "ask", "ask", "race", "crash", "lose"]),
        st.integers(0, 9),
        st.integers(0, 30),
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=5),
    ),
    max_size=25,
)


def play(store: Store, steps: list[tuple[str, int, int, list[str]]], name: str = "talk") -> None:
    """Play steps in a conversation of a store, and check each index that is made."""
    talk, branches = Talk(store, name), [MAIN]
    with small_segments():
        for step, i, n, words in steps:
            branch, process = branches[i % len(branches)], n % 2
            head = talk.head(branch)
            if step == "say":
                talk.say(branch, words)
            elif step == "fork":
                branches.append(talk.fork(branch, n % (head.size + 1)))
            elif step == "cut":
                cut = min(head.size, n)
                store.write("ada", name, Commit(branch=branch, expect=head.revision, cut=cut, at=1))
            elif step == "redact" and head.size:
                entry = store.read("ada", name, branch, n % head.size, n % head.size + 1).entry(0)
                store.redact("ada", name, entry.id, make_entry("[redacted]").native)
            elif step == "lose":
                talk.caches[process] = IndexCache()
            elif step in ("ask", "race", "crash"):
                index = talk.index(branch, process)
                talk.check(branch, index)
                if step == "crash":
                    talk.caches[process] = IndexCache()  # the process dies before the segments are stored
                    continue
                if step == "race":
                    talk.say(branch, words)  # another process writes first, so the segments are not stored
                talk.save(branch, head.revision, index)
                talk.caches[process].put(index)
        for branch in branches:
            for process in range(2):
                index = talk.index(branch, process)
                talk.check(branch, index)
                talk.caches[process].put(index)


@examples(60, 600)
@given(STEPS)
def test_whatever_happens_the_index_agrees_with_the_transcript(
    steps: list[tuple[str, int, int, list[str]]],
) -> None:
    play(InMemory(), steps)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "postgres", "redis"])
def test_whatever_happens_the_index_agrees_with_what_is_stored(kind: str, tmp_path: Path) -> None:
    if kind == "redis":
        use_redis(tmp_path)
    with closing(open_store(kind, tmp_path / "talks.db")) as store:

        @examples(25, 150)
        @given(STEPS)
        def check(steps: list[tuple[str, int, int, list[str]]]) -> None:
            play(store, steps, new_id())

        check()


def test_segments_are_read_instead_of_entries() -> None:
    talk = Talk(InMemory())
    talk.say(MAIN, [f"violin {i}" for i in range(49)])
    read: list[int] = []
    plain = talk.store.read
    with small_segments(10), pytest.MonkeyPatch.context() as patch:
        index = talk.index(MAIN, 0)
        assert [position for _, position in index.new_segments] == [9, 19, 29, 39, 49]
        talk.save(MAIN, 1 + 1, index)
        talk.say(MAIN, ["Good.", "Yes."])
        talk.caches[0].put(index)
        patch.setattr(talk.store, "read", lambda *names: read.append(names[-1] - names[-2]) or plain(*names))
        for process in (0, 1):
            index = talk.index(MAIN, process)
            assert (len(index), index.new_segments) == (52, ())
        fork = talk.fork(MAIN, 25)
        assert len(talk.index(fork, 1)) == 25
    assert read == [2, 2, 5]


def test_losing_the_stored_index_costs_one_rebuild() -> None:
    talk = Talk(InMemory())
    talk.say(MAIN, [f"violin {i}" for i in range(49)])
    read: list[int] = []
    plain = talk.store.read

    def ask() -> CachedIndex:
        """Ask in a new process, which stores what the index lacks."""
        talk.caches[0] = IndexCache()
        index = talk.index(MAIN, 0)
        talk.save(MAIN, talk.head(MAIN).revision, index)
        return index

    with small_segments(10), pytest.MonkeyPatch.context() as patch:
        patch.setattr(talk.store, "read", lambda *names: read.append(names[-1] - names[-2]) or plain(*names))
        ask()
        talk.store.redact("ada", "talk", "talk-2-0", make_entry("[redacted]").native)
        assert not talk.store.records("ada", "talk", MAIN, KIND)
        index = ask()
        ask()
    assert read == [50, 50, 0]
    talk.check(MAIN, index)


def test_a_long_branch_is_ranked_whole_if_its_index_is_stored_and_not_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = Talk(InMemory())
    talk.say(MAIN, [f"violin {i}" for i in range(49)])

    def is_whole(cache: IndexCache) -> bool:
        found = index_store(talk.store, "ada", "talk", MAIN, 50, "violin", FREE, cache=cache)
        return isinstance(found, CachedIndex)

    with small_segments(10):
        monkeypatch.setattr(search, "MAX_WHOLE", 49)
        assert not is_whole(IndexCache())
        monkeypatch.setattr(search, "MAX_WHOLE", 50)
        index = talk.index(MAIN, 0)
        talk.save(MAIN, 2, index)
        monkeypatch.setattr(search, "MAX_WHOLE", 49)
        assert is_whole(IndexCache())
        monkeypatch.setattr(search, "MAX_TERMS", len(index.postings.terms) - 1)
        assert not is_whole(IndexCache())


def test_segments_of_an_earlier_version_are_left_alone_and_their_entries_indexed_again() -> None:
    talk = Talk(InMemory())
    talk.say(MAIN, ["Lisbon river", "soup"])
    entry = talk.head(MAIN).entry
    assert entry is not None
    earlier = PlacedRecord(Record(kind=KIND, entry=entry, at=1, data=VERSION_2), 2)
    talk.store.write("ada", "talk", Commit(expect=2, records=(earlier,), at=1))
    with small_segments():
        for stored, expected in (([earlier.record], [2]), ([earlier.record], [])):
            index = talk.index(MAIN, 1)
            talk.check(MAIN, index)
            assert [position for _, position in index.new_segments] == expected
            talk.save(MAIN, 3, index)
            talk.caches[1] = IndexCache()
            records = [placed.record for placed in talk.store.records("ada", "talk", MAIN, KIND)]
            assert records[: len(stored)] == stored
    assert len(records) == 2


def test_a_turn_stores_its_segments_and_exports_and_states_leave_them_out() -> None:
    store = InMemory()
    talk = Conversation("talk", model=Scripted(*[says("Well, well.")] * 9), store=store, policy=Memory())
    with small_segments(4):
        for i in range(8):
            talk.send(f"My violin {i} is red, what about yours?")
        placed = store.records("", "talk", MAIN, KIND)
        assert [each.position for each in placed] == [3, 7, 11]
        assert [each.record.kind for each in talk_records(store)].count(KIND) == 1
        snapshot = read_snapshot(store, "", "talk")
        assert snapshot is not None
        assert KIND not in {each.record.kind for path in snapshot.paths.values() for each in path.records}
        assert KIND not in [record.kind for record in decode(talk.state(), wires=WIRES).records]


def talk_records(store: Store) -> tuple[PlacedRecord, ...]:
    head = store.head("", "talk", MAIN)
    assert head is not None
    return head.records
