"""Test recall from a store and from a state: only this branch, within the budget, and as harmless text."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from longtalk._util import json_bytes
from longtalk._util.lookalikes import neutralize
from longtalk.errors import InputError
from longtalk.memory.brief.corrections import Correction
from longtalk.memory.brief.lines import Line
from longtalk.memory.recall import candidates, embeddings, index_cache
from longtalk.memory.recall import search as module
from longtalk.memory.recall.gain import Allowance
from longtalk.memory.recall.index import RecallIndex, Unit
from longtalk.memory.recall.index_cache import CachedIndex, IndexCache
from longtalk.memory.recall.labels import read_card_labels
from longtalk.memory.recall.reranking import rank
from longtalk.memory.recall.search import Recall, Recalled, index_store, index_transcript, render_recalled
from longtalk.memory.recall.units import to_unit
from longtalk.stores.base import MAIN, Commit, Store
from longtalk.stores.in_memory import InMemory
from longtalk.stores.sqlite.store import SQLite
from longtalk.tokens import Estimator
from longtalk.transcript.pack import EMPTY, Entry, Pack
from longtalk.transcript.ranges import Ranges
from longtalk.transcript.transcript import Transcript, link_entries
from longtalk.wires.neutral import event, system
from longtalk.wires.text import wrap_in_tag
from tests.support.properties import holds

DAY = 86_400_000
START = 1_700_000_000_000  # 14 November 2023
FILLER = ("The tram was late again.", "We talked about tax forms.", "Bread needs salt.", "The printer is out of paper.")
FREE = Recall(gate=False)


class Letters:
    """Counts letters."""

    def count(self, text: str) -> int:
        return len(text)


def make_entry(text: str, role: str = "user", *, at: int = START, **more: Any) -> Entry:
    native = json_bytes.encode({"role": role, **more, "content": text})
    return Entry(role=role, wire="openai-chat", native=native, at=at)


def make_long_talk(*special: Entry, size: int = 400) -> list[Entry]:
    """Return a conversation over months with filler messages, and special entries in the middle."""
    entries = [
        make_entry(FILLER[i % 4] + f" Number {i}.", ("user", "assistant")[i % 2], at=START + i * DAY // 4)
        for i in range(size)
    ]
    entries[size // 2 : size // 2] = special
    return entries


def store_entries(entries: list[Entry], store: Store | None = None) -> Store:
    store = store or InMemory()
    store.write("ada", "talk", Commit(expect=0, entries=link_entries(None, "t", 0, entries), at=1))
    return store


def make_transcript(entries: list[Entry], *, fresh: int = 0) -> Transcript:
    made = link_entries(None, "t", 0, entries)
    kept = made[: len(made) - fresh]
    index, more, crc = EMPTY.grow(kept)
    return Transcript(pack=Pack(index, b"[" + more if kept else b"[]", crc), fresh=made[len(kept) :])


def recall_from_store(entries: list[Entry], message: str, config: Recall = FREE, **more: Any) -> Recalled:
    index = index_store(
        store_entries(entries), "ada", "talk", MAIN, len(entries), message, config, now=more.get("now", 0)
    )
    return render_recalled(index, message, config, Estimator(), **{"now": 0, **more})


def recall_from_state(entries: list[Entry], message: str, config: Recall = FREE, **more: Any) -> Recalled:
    index = index_transcript(make_transcript(entries, fresh=3), message, config, now=more.get("now", 0))
    return render_recalled(index, message, config, Estimator(), **{"now": 0, **more})


def from_candidates(ask: Callable[..., Recalled]) -> Callable[..., Recalled]:
    def ask_candidates(*arguments: Any, **more: Any) -> Recalled:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "MAX_WHOLE", 0)
            return ask(*arguments, **more)

    return ask_candidates


both = pytest.mark.parametrize("ask", [recall_from_store, recall_from_state])
"""Where all entries are indexed: from a store and from a state."""
each = pytest.mark.parametrize(
    "ask",
    [
        *(recall_from_store, recall_from_state),
        *(from_candidates(recall_from_store), from_candidates(recall_from_state)),
    ],
    ids=["store", "state", "candidates from a store", "candidates from a state"],
)
"""Also where only candidates are."""


# What is configured


def test_recall_is_checked_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    assert repr(Recall()) == "Recall(budget=1000, gate=True, meaning=False)"
    for wrong in ({"budget": -1}, {"budget": True}, {"gate": 1}, {"meaning": "yes"}):
        with pytest.raises(InputError):
            Recall(**wrong)  # type: ignore[arg-type]
    embeddings.load_model.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "wordllama", None)
    with pytest.raises(InputError, match=r"longtalk\[recall\]"):
        Recall(meaning=True)


# What is found


@each
@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("Which city did I move to?", "I have moved to Lisbon, of all cities."),
        ("What did my sister buy?", "My sister bought a violin."),
        ("Where is the corriander?", "The coriander is in the top drawer."),
        ("Où est le café?", "Das Café heißt Zum Löwen, in der Hauptstraße."),
        ("東京はどうですか", "私は東京に住んでいます"),
        ("Was ist in der Hauptstraße?", "Das Café heißt Zum Löwen, in der Hauptstraße."),
    ],
)
def test_a_message_finds_what_it_is_about(ask: Callable[..., Recalled], message: str, text: str) -> None:
    found = ask(make_long_talk(make_entry(text)), message)
    assert f"User: {text}\n" in found.text
    assert 200 in found.positions


@each
def test_what_follows_a_question_is_found_by_the_question(ask: Callable[..., Recalled]) -> None:
    talk = make_long_talk(
        make_entry("Where does Clara rehearse?", "assistant"), make_entry("In an old factory, every Tuesday.")
    )
    assert "old factory" in ask(talk, "Where does Clara rehearse?").text


@each
def test_what_was_said_on_a_day_is_found(ask: Callable[..., Recalled]) -> None:
    at = START + 50 * DAY
    talk = make_long_talk(make_entry("Nothing special.", at=at))
    assert "Nothing special." in ask(talk, "What did I say on 2024-01-03?").text
    assert "Nothing special." in ask(talk, "What was it 3 days ago?", now=at + 3 * DAY).text


@each
def test_what_is_recalled_is_dated_and_in_order(ask: Callable[..., Recalled]) -> None:
    harps = [make_entry(f"The harp costs {price} francs.", at=START + (110 + price) * DAY) for price in (5, 7)]
    found = ask(
        [*make_long_talk(), *harps, make_entry("Good.", at=START + 120 * DAY)],
        "How many francs is the harp?",
        Recall(50, gate=False),
    )
    assert found.text == (
        "[Fri 8 Mar 2024]\nUser: The harp costs 5 francs.\n[Sun 10 Mar]\nUser: The harp costs 7 francs.\n"
    )
    assert found.positions == (400, 401)
    assert found.tokens == Estimator().count(wrap_in_tag("recalled", found.text)) <= 50


@each
def test_an_event_is_found_and_what_tools_and_the_app_said_is_not(ask: Callable[..., Recalled]) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    special = [
        event("The piano tuner rang.", source="door", at=START),
        system("The piano is out of bounds.", at=START),
        make_entry("A moment.", "assistant", tool_calls=[call]),
        make_entry("A piano weighs 300 kilos.", "tool", tool_call_id="c"),
        make_entry("It is heavy, that piano.", "assistant"),
    ]
    found = ask(make_long_talk(*special), "What about the piano?")
    assert "Event: The piano tuner rang.\n" in found.text
    assert "heavy" in found.text
    assert "bounds" not in found.text
    assert "300" not in found.text


@each
def test_the_lines_of_a_card_find_its_answer_and_never_show(ask: Callable[..., Recalled]) -> None:
    card = '<MEMORY_CARD>{"+facts": ["plays the bandoneon"], "~open": "x"}</MEMORY_CARD>'
    found = ask(
        make_long_talk(make_entry("That is a fine instrument. " * 20 + card, "assistant")), "Who plays the bandoneon?"
    )
    assert 200 in found.positions
    assert "fine instrument" in found.text
    assert "bandoneon" not in found.text


def test_a_label_weighs_as_much_as_what_a_user_said() -> None:
    labelled = [Unit(0, "assistant", "Well then.", labels="bandoneon"), Unit(1, "assistant", "The bandoneon is old.")]
    assert rank(RecallIndex(labelled), "bandoneon").hits[0].position == 0


@each
def test_someone_who_is_named_is_heard_first(ask: Callable[..., Recalled]) -> None:
    special = [make_entry("I like figs.", name="Ada"), make_entry("I like figs, too.", name="Bo <b>\n")]
    found = ask(make_long_talk(*special), "Does Bo like figs?", Recall(30, gate=False))
    assert found.text.endswith("Bo <b>: I like figs, too.\n")


@each
def test_what_is_excluded_is_not_recalled(ask: Callable[..., Recalled]) -> None:
    talk = make_long_talk(make_entry("My violin is red."))
    assert 200 not in ask(talk, "Which colour is my violin?", exclude=range(100, 300)).positions
    assert ask(talk, "Which colour is my violin?", Recall(), exclude=range(500)).text == ""


@each
@pytest.mark.parametrize(
    "message",
    [
        *("thanks, that helps!", "write me a haiku about rain", "what's 17*23?", "", "…", "and the printer?"),
        "Please write a cover letter for a marine biologist at an aquarium, who likes cold water and bread.",
    ],
)
def test_a_message_that_does_not_refer_back_is_given_nothing(ask: Callable[..., Recalled], message: str) -> None:
    assert ask(make_long_talk(make_entry("The rain in Porto is warm.")), message, Recall()).text == ""


@each
def test_a_message_that_refers_back_opens_the_gate(ask: Callable[..., Recalled]) -> None:
    assert (
        "Porto"
        in ask(make_long_talk(make_entry("The rain in Porto is warm.")), "What did I say about rain?", Recall()).text
    )


@each
def test_nothing_is_recalled_without_a_budget(ask: Callable[..., Recalled]) -> None:
    talk = make_long_talk(make_entry("My violin is red."))
    assert ask(talk, "Which colour is my violin?", Recall(0)).text == ""
    assert ask(talk, "Which colour is my violin?", allowed=Allowance(room=0)).text == ""
    assert ask(talk, "Which colour is my violin?", allowed=Allowance(room=3)).text == ""
    assert ask([], "Which colour is my violin?").text == ""


@each
def test_what_was_recalled_before_and_is_still_sent_is_not_recalled_again(ask: Callable[..., Recalled]) -> None:
    talk = make_long_talk(make_entry("My violin <b>is</b> red."), make_entry("My violin was made in Cremona."))
    first = ask(talk, "Which colour is my violin?").text
    assert "red" in first
    assert "Cremona" in first
    again = ask(talk, "Which colour is my violin?", sent=first.replace("My violin was made in Cremona.", ""))
    assert "red" not in again.text
    assert "Cremona" in again.text
    assert ask(talk, "Which colour is my violin?", Recall(), sent=first).text == ""


@each
def test_recall_says_why_it_has_its_length(ask: Callable[..., Recalled]) -> None:
    talk = make_long_talk(make_entry("The rain in Porto is warm."))
    assert "of 1,000 tokens" in ask(talk, "What did I say about the rain in Porto?", Recall()).why
    assert "up to 0 of" in ask(talk, "thanks, that helps!", Recall()).why
    assert ask(talk, "What did I say about the rain in Porto?", FREE).why == "the whole budget of 1,000 tokens"


# Where it is found


def test_another_branch_is_never_recalled(tmp_path: Path) -> None:
    for store in (InMemory(), SQLite(tmp_path / "talks.db")):
        talk = make_long_talk(make_entry("My violin is red."))
        store_entries(talk, store)
        begun = store.read("ada", "talk", MAIN, 200, 201).entry(0)
        fork = link_entries(begun.parent, "f", 0, [make_entry("My violin is blue.")])
        store.write("ada", "talk", Commit(branch="fork", expect=0, source=(MAIN, 200), entries=fork, at=2))
        for branch, colour, size in ((MAIN, "red", len(talk)), ("fork", "blue", 201)):
            index = index_store(store, "ada", "talk", branch, size, "my violin", FREE)
            text = render_recalled(index, "my violin", FREE, Estimator(), now=0).text
            assert [each for each in ("red", "blue") if each in text] == [colour]
        store.close()


def test_what_is_behind_the_size_is_not_recalled() -> None:
    talk = [*make_long_talk(), make_entry("My violin is red.")]
    index = index_store(store_entries(talk), "ada", "talk", MAIN, len(talk) - 1, "my violin", FREE)
    assert "red" not in render_recalled(index, "my violin", FREE, Estimator(), now=0).text


def test_places_are_those_of_the_whole_conversation() -> None:
    transcript = make_transcript([make_entry("My violin is red.")])
    transcript = Transcript(pack=transcript.pack, shed=Ranges(entries=((0, 40),)))
    index = index_transcript(transcript, "my violin", FREE)
    assert render_recalled(index, "my violin", FREE, Estimator(), now=0).positions == (40,)


def test_a_bounded_number_of_entries_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    talk = [make_entry(f"violin {i} " + "violin " * (i % 7), at=START + i) for i in range(3_000)]
    store = store_entries(talk)
    plain = store.read
    monkeypatch.setattr(store, "read", lambda *names: read.append(names[-1] - names[-2]) or plain(*names))
    monkeypatch.setattr(candidates, "_FREQUENT", 100)
    monkeypatch.setattr(module, "MAX_WHOLE", 2_000)
    index = index_store(store, "ada", "talk", MAIN, len(talk), "violin 17 and violin number", Recall(300))
    assert sum(read) < 400
    assert len(index) < 400
    assert 17 in [hit.position for hit in rank(index, "violin 17").hits[:3]]
    assert index.compute_rarities(np.array([index.vocabulary.numbers["violin"]])) < 0.1


def test_of_a_long_message_the_beginning_and_the_end_count() -> None:
    talk = make_long_talk(make_entry("My violin is red."))
    words = " ".join(f"word{i}" for i in range(500))
    assert "red" in recall_from_store(talk, f"{words} my violin").text
    assert "red" in recall_from_store(talk, f"my violin {words}").text
    assert "red" not in recall_from_store(talk, f"{words} my violin {words[::-1]}").text


def test_words_are_found_in_json_however_it_is_written() -> None:
    natives = (
        b'{"role":"user","content":"one\\nviolin"}',
        b'{"role":"user","content":"\\u0412\\u0438\\u043e\\u043b\\u0430"}',
        '{"role":"user","content":"ВИОЛА"}'.encode(),
        b'{"role":"user","content":"violins"}',
        b'{"role":"user","content":"nonviolin"}',
    )
    talk = [Entry(role="user", wire="openai-chat", native=native, at=START) for native in natives]
    for fresh in range(6):
        transcript = make_transcript(talk, fresh=fresh)
        terms = [
            candidates.SearchTerm((), ("violin",)),
            *(candidates.SearchTerm((word,)) for word in ("violin", "виола")),
        ]
        held = module.TranscriptScan(transcript).matches(terms, 9)
        assert [each.positions for each in held] == [(0, 3), (0,), (1, 2)]
        assert module.TranscriptScan(transcript).matches([candidates.SearchTerm((), ("violin",))], 1)[0].positions == (
            3,
        )


def test_a_word_that_is_everywhere_counts_where_rarer_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_FREQUENT", 50)
    monkeypatch.setattr(module, "MAX_WHOLE", 0)
    talk = make_long_talk(make_entry("The tram is red."), size=400)
    for i in range(0, 150, 5):
        talk[i] = make_entry("Red, I said.")
    index = index_store(store_entries(talk), "ada", "talk", MAIN, len(talk), "red tram", Recall(0))
    assert 200 in [hit.position for hit in rank(index, "red tram").hits]
    assert not set(index.positions.values.tolist()) & set(range(210, 400))


def test_of_a_long_answer_the_parts_that_fit_are_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WHOLE", 0)
    lines = [f"Item {i} is about {FILLER[i % 4]}" for i in range(100)]
    lines[70] = "The violin hangs on the wall."
    talk = make_long_talk(make_entry("\n".join(lines), "assistant"))
    index = index_store(store_entries(talk), "ada", "talk", MAIN, len(talk), "Where is my violin?", FREE)
    assert index.skipped_parts > 10
    found = render_recalled(index, "Where is my violin?", Recall(120, gate=False), Estimator(), now=0)
    assert "violin hangs" in found.text
    assert "… " in found.text


def test_a_counter_that_counts_a_whole_higher_than_its_lines_is_obeyed() -> None:
    class Odd:
        def count(self, text: str) -> int:
            return len(text) + 40 * max(0, text.count("\n") - 4)

    talk = [make_entry(f"My violin is red, {i} times.", at=START) for i in range(30)]
    index = index_store(store_entries(talk), "ada", "talk", MAIN, 30, "my violin", FREE)
    found = render_recalled(index, "my violin", Recall(500, gate=False), Odd(), now=0)
    assert 0 < found.tokens <= 500


def test_what_cant_be_read_is_no_unit() -> None:
    odd = Entry(role="user", wire="openai-chat", native=b'{"name"', at=START)
    unknown = Entry(role="assistant", wire="elsewhere", native=b'{"text":"violin <MEMORY_CARD>"}', at=START)
    assert to_unit(0, odd) is None
    assert to_unit(0, unknown) is None
    assert read_card_labels(unknown) == ""
    nameless = Entry(role="user", wire="openai-chat", native=b'{"role":"user","content":"\\"name\\"","name":7}', at=0)
    assert to_unit(0, nameless) == Unit(0, "user", '"name"')


# What comes out is data

ANY = st.text(st.characters(exclude_categories=()), max_size=40) | st.sampled_from(
    ["</recalled>", "< / RECALLED >", "<MEMORY_CARD>{}</MEMORY_CARD>", "a <", "MEMORY_CARD> violin", "violin violin"]
)
TALKS = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), ANY, ANY), max_size=8)


@holds(TALKS, ANY, st.integers(0, 120), st.booleans())
def test_whatever_is_said_the_budget_and_the_tag_hold(
    talk: list[tuple[str, str, str]], message: str, budget: int, letters: bool
) -> None:
    entries = [make_entry(text, role, name=name) for role, text, name in talk]
    counter = Letters() if letters else Estimator()
    message = f"{message} violin"
    for index in (
        index_store(store_entries(entries), "ada", "talk", MAIN, len(entries), message, FREE),
        index_transcript(make_transcript(entries), message, FREE),
    ):
        found = render_recalled(index, message, Recall(budget, gate=False), counter, now=0)
        assert found.tokens <= budget
        assert bool(found.text) == bool(found.positions) == bool(found.tokens)
        if found.text:
            assert found.tokens == counter.count(wrap_in_tag("recalled", found.text))
        assert neutralize(found.text) == found.text
        assert wrap_in_tag("recalled", found.text) == f"<recalled>\n{found.text}\n</recalled>"
        assert list(found.positions) == sorted(set(found.positions))


# By meaning

MEANT = Recall(gate=False, meaning=True)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> IndexCache:
    made = IndexCache()
    monkeypatch.setattr(module, "_INDEX_CACHE", made)
    return made


@pytest.mark.parametrize("ask", [recall_from_store, recall_from_state])
def test_meaning_finds_what_shares_no_word(ask: Callable[..., Recalled], cache: IndexCache) -> None:
    found = ask(make_long_talk(make_entry("Our puppy chewed the carpet."), size=60), "dog", MEANT)
    assert "puppy" in found.text


def test_an_index_is_kept_and_goes_on_with_what_is_new(cache: IndexCache) -> None:
    talk = make_long_talk(make_entry("Our puppy chewed the carpet."), size=40)
    store = store_entries(talk)

    def ask(size: int) -> tuple[RecallIndex, str]:
        index = index_store(store, "ada", "talk", MAIN, size, "dog or cat", MEANT)
        return index, render_recalled(index, "dog or cat", MEANT, Estimator(), now=0).text

    first, text = ask(len(talk))
    last = store.read("ada", "talk", MAIN, 0, 99).entry(40)
    more = link_entries(last.id, "u", 0, [make_entry("A kitten!")])
    assert "kitten" not in text
    store.write("ada", "talk", Commit(expect=1, entries=more, at=2))
    second, text = ask(len(talk) + 1)
    assert second is first
    assert "puppy" in text
    assert "kitten" in text
    store.redact("ada", "talk", "t-20", b'{"role":"user","content":"-"}')
    _, text = ask(len(talk) + 1)
    assert "kitten" in text
    assert "puppy" not in text
    _, text = ask(len(talk))
    assert "kitten" not in text


def test_a_branch_goes_on_with_the_index_of_the_one_that_it_left(cache: IndexCache) -> None:
    talk = make_long_talk(make_entry("Our puppy chewed the carpet."), size=40)
    store = store_entries(talk)

    def ask(branch: str, size: int) -> tuple[RecallIndex, str]:
        index = index_store(store, "ada", "talk", branch, size, "dog or cat", MEANT)
        return index, render_recalled(index, "dog or cat", MEANT, Estimator(), now=0).text

    main, _ = ask(MAIN, len(talk))
    last = store.read("ada", "talk", MAIN, 0, 99).entry(len(talk) - 1)
    for name, text in (("fork", "A kitten!"), ("other", "A parrot!")):
        entries = link_entries(last.id, name, 0, [make_entry(text)])
        store.write("ada", "talk", Commit(branch=name, expect=0, source=(MAIN, len(talk)), entries=entries, at=2))
    fork, text = ask("fork", len(talk) + 1)
    assert fork is main
    assert "kitten" in text
    other, text = ask("other", len(talk) + 1)
    assert other is main
    assert "parrot" in text
    assert "kitten" not in text


def test_two_at_once_never_share_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_entries(make_long_talk(size=20))
    seen: list[int] = []
    gate = threading.Barrier(4)

    class Watched(IndexCache):
        def take(self, *arguments: Any, **more: Any) -> CachedIndex:
            index = super().take(*arguments, **more)
            assert id(index) not in seen
            seen.append(id(index))
            return index

        def put(self, index: CachedIndex) -> None:
            seen.remove(id(index))
            super().put(index)

    monkeypatch.setattr(module, "_INDEX_CACHE", Watched())

    def ask() -> None:
        gate.wait()
        for _ in range(5):
            index = index_store(store, "ada", "talk", MAIN, 20, "tram", MEANT)
            assert render_recalled(index, "tram", MEANT, Estimator(), now=0).text

    workers = [threading.Thread(target=ask) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert seen == []


def test_the_cache_keeps_what_was_used_last_within_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = IndexCache()
    monkeypatch.setattr(index_cache, "_MAX_BYTES", 4 * CachedIndex(("", "")).nbytes)
    for number in range(10):
        cache.put(CachedIndex((number, "")))
    assert [number for number in range(10) if (number, "") in cache._indexes] == [6, 7, 8, 9]


def test_the_cache_keeps_a_bounded_number_of_small_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = IndexCache()
    monkeypatch.setattr(index_cache, "_MAX_INDEXES", 3)
    for number in range(5):
        cache.put(CachedIndex((number, "")))
        cache.put(cache.take((2, "")))
    assert set(cache._indexes) == {(2, ""), (3, ""), (4, "")}


def test_texts_are_read_again_when_they_are_quoted(monkeypatch: pytest.MonkeyPatch, cache: IndexCache) -> None:
    monkeypatch.setattr(index_cache, "_MAX_TEXT", 0)
    talk = make_long_talk(make_entry("My violin is red."))
    transcript, store = make_transcript(talk), store_entries(talk)
    for _ in range(3):
        for index in (
            index_store(store, "ada", "talk", MAIN, len(talk), "my violin", FREE),
            index_transcript(transcript, "my violin", FREE),
        ):
            assert "violin is red" in render_recalled(index, "my violin", FREE, Estimator(), now=0).text
            assert index.text_size == 0


def test_a_long_state_is_indexed_when_it_is_seen_again(cache: IndexCache) -> None:
    talk = make_long_talk(make_entry("My violin is red."), size=1_200)
    sizes = []
    for more in (0, 0, 1, 2, 1):
        index = index_transcript(make_transcript([*talk, *[make_entry(f"Good {more}.")] * more]), "my violin", FREE)
        assert "violin is red" in render_recalled(index, "my violin", FREE, Estimator(), now=0).text
        sizes.append(len(index))
    assert sizes[0] < 300
    assert sizes[1:] == [1_201, 1_202, 1_203, 1_202]


def test_a_state_that_was_changed_is_indexed_as_it_is(cache: IndexCache) -> None:
    talk = make_long_talk(make_entry("My violin is red."), size=100)
    for colour in ("red", "blue", "red"):
        talk[50] = make_entry(f"My violin is {colour}.")
        index = index_transcript(make_transcript(talk), "my violin", FREE)
        text = render_recalled(index, "my violin", FREE, Estimator(), now=0).text
        assert [each for each in ("red", "blue") if each in text] == [colour]


def test_lines_of_the_app_are_in_the_index_for_one_turn_only(cache: IndexCache) -> None:
    talk = make_long_talk(size=20)
    index = index_transcript(make_transcript(talk), "violin", FREE)
    assert isinstance(index, CachedIndex)
    index.add(Unit(-1, "brief", "My violin is red."), follows=False)
    index.extra = 1
    assert "red" in render_recalled(index, "my violin", FREE, Estimator(), now=0).text
    index = index_transcript(make_transcript(talk), "violin", FREE)
    assert "red" not in render_recalled(index, "my violin", FREE, Estimator(), now=0).text


def test_an_index_goes_back_into_the_cache_if_there_is_no_room_for_quotes(cache: IndexCache) -> None:
    talk = make_long_talk(size=20)
    index = index_store(store_entries(talk), "ada", "talk", MAIN, len(talk), "violin", FREE)
    assert not cache._indexes
    assert not render_recalled(index, "violin", FREE, Estimator(), now=0, allowed=Allowance(room=0)).text
    assert list(cache._indexes.values()) == [index]


# What was corrected


def test_a_passage_that_says_what_was_corrected_is_quoted_with_what_holds_now() -> None:
    entries = make_long_talk(make_entry("I ordered Dominant strings. They cost me 62 euros."))
    correction = Correction(Line("a", "facts", "Dominant strings, 62 euros"), "Dominant strings, 68 euros")
    for ask in (recall_from_store, recall_from_state):
        found = ask(entries, "What did the Dominant strings cost?", corrections=[correction])
        assert "cost me 62 euros. [corrected later: Dominant strings, 68 euros]\n" in found.text
        assert "corrected" not in ask(entries, "What did the Dominant strings cost?").text


def test_a_passage_that_says_what_was_forgotten_is_not_quoted() -> None:
    entries = make_long_talk(make_entry("The neighbour has a baby."), make_entry("I play at the wedding in June."))
    correction = Correction(Line("a", "facts", "the neighbour has a baby"))
    found = recall_from_store(entries, "Did I say that the neighbour has a baby, and the wedding in June?")
    assert "baby" in found.text
    found = recall_from_store(
        entries, "Did I say that the neighbour has a baby, and the wedding in June?", corrections=[correction]
    )
    assert "baby" not in found.text
    assert "wedding" in found.text


def test_each_quoted_message_has_its_own_number_of_tokens() -> None:
    violin = make_entry("A violin, an old one that was made in Mittenwald in 1740.")
    entries = make_long_talk(violin, make_entry("A viola."))
    found = recall_from_store(entries, "Which violin, which viola?")
    assert len(found.sizes) == len(found.positions) > 1
    assert len(set(found.sizes)) > 1
    assert abs(sum(found.sizes) - found.tokens) < len(found.sizes) + 10
