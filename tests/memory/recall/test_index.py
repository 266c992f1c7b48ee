"""Test the recall index: it finds what a message refers to, within the budget, in order and deterministically."""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.errors import InputError
from longtalk.memory.recall import columns, embeddings
from longtalk.memory.recall.excerpt import render_date, render_hits, select_hits
from longtalk.memory.recall.gain import choose_share
from longtalk.memory.recall.index import Hit, RecallIndex, Unit
from longtalk.memory.recall.parts import split_parts
from longtalk.memory.recall.query import find_days, parse_query
from longtalk.memory.recall.ranking import Ranking
from longtalk.memory.recall.reranking import rank
from longtalk.transcript.ranges import SpanSet
from tests.memory.recall.plain_index import PlainIndex, PlainRanking
from tests.support.properties import examples

DAY = 86_400
START = 1_700_000_000  # 14 November 2023

TALK = (
    ("user", "I have moved to Lisbon and found a flat near the river.", 0),
    ("assistant", "Lovely! How do you like it there?", 0),
    ("user", "The hills are hard on my knees, but the light is wonderful.", 0),
    ("user", "My sister Clara plays the violin in an orchestra.", 5),
    ("assistant", "Where does she rehearse?", 5),
    ("user", "In an old factory, every Tuesday.", 5),
    ("user", "Always answer me in metric units.", 9),
    ("assistant", "I will.\n" + "Metric units are used nearly everywhere. " * 30 + "\nA furlong is 201 metres.", 9),
    ("user", "We had soup with coriander for dinner.", 20),
    ("assistant", "Sounds good.", 20),
)


def index_talk() -> RecallIndex:
    return RecallIndex(Unit(place, role, text, START + day * DAY) for place, (role, text, day) in enumerate(TALK))


def find_best(index: RecallIndex, query: str, **more: int) -> int:
    return rank(index, query, **more).hits[0].position


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("Which city did I move to?", 0),
        ("What does my sister play?", 3),
        ("Where does my sister rehearse?", 5),
        ("what instrument does Clara plya? the violins?", 3),
        ("What did we eat for diner, with corriander?", 8),
        ("How long is a furlong, did you say?", 7),
    ],
)
def test_a_question_finds_what_answers_it(query: str, place: int) -> None:
    assert place in [hit.position for hit in rank(index_talk(), query).hits[:2]]


def test_a_term_that_is_not_sought_is_as_rare_as_it_is_here() -> None:
    index = index_talk()
    terms = np.array([index.vocabulary.numbers[term] for term in ("violin", "soup")])
    _, rare = index.compute_rarities(terms)
    index.size, index.shares = 100 * len(index), {"violin": 1.0}
    violin, soup = index.compute_rarities(terms)
    assert soup == rare < violin


def test_an_answer_borrows_the_words_of_its_question() -> None:
    hits = rank(index_talk(), "Where does she rehearse?").hits
    assert 5 in [hit.position for hit in hits]


def test_a_long_answer_comes_in_parts() -> None:
    hit = next(hit for hit in rank(index_talk(), "how many metres is a furlong").hits if hit.position == 7)
    assert "furlong" in TALK[7][1][hit.start : hit.stop]
    assert hit.stop - hit.start < len(TALK[7][1]) / 2


def test_a_day_that_is_named_is_favoured() -> None:
    index = index_talk()
    assert find_best(index, "What did I tell you on 4 December?") == 8
    assert find_best(index, "What did I say on 2023-11-19?") in (3, 4, 5)
    assert find_best(index, "what was it 2 days ago?", now=START + 22 * DAY) in (8, 9)


def test_a_participant_who_is_named_is_favoured() -> None:
    said = [("Ada", "I love hiking."), ("Bo", "I love hiking too."), ("Ada", "Good."), ("Bo", "And you?")]
    index = RecallIndex(Unit(place, "user", text, START, name) for place, (name, text) in enumerate(said))
    assert find_best(index, "Does Bo love hiking?") == 1
    assert find_best(index, "Does Ada love hiking?") == 0
    assert [hit.position for hit in rank(index, "Ada").hits] == []


def test_a_standing_wish_comes_before_what_is_like_it() -> None:
    said = ("Tell me about units of length.", "Always tell me about units of length.")
    index = RecallIndex(
        [*(Unit(place, "user", text) for place, text in enumerate(said)), Unit(2, "assistant", "Fine.")]
    )
    assert find_best(index, "units of length") == 1


def test_what_the_context_holds_is_not_recalled() -> None:
    index = index_talk()
    assert 3 not in [hit.position for hit in rank(index, "my sister's violin", exclude={3}).hits]
    assert rank(index, "my sister's violin orchestra", exclude=range(len(TALK))).need == 0


@pytest.mark.parametrize("query", ["", "Thanks!", "ok", "How do vaccines train immunity?", "Who?", "!?", "👍"])
def test_a_message_that_does_not_refer_back_needs_nothing(query: str) -> None:
    assert choose_share(rank(index_talk(), query).need) == 0


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("What does my sister play?", True),
        ("¿Qué toca mi hermana", True),
        ("妹は何を弾きますか？", True),
        ("Please remind me of the recipe.", True),
        ("soup with coriander", True),
        ("My sister plays the cello in an orchestra.", False),
        ("I'll make the soup with coriander tonight", False),
        ("Thanks, great!", False),
    ],
)
def test_questions_and_searches_are_told_from_statements(text: str, asks: bool) -> None:
    assert parse_query(text).is_question is asks


def test_a_statement_gets_less_of_the_budget_than_a_question_about_the_same() -> None:
    index = index_talk()
    question = choose_share(rank(index, "Did I make the soup with coriander?").need)
    statement = choose_share(rank(index, "I made the soup with coriander today.").need)
    assert 0 <= statement <= 0.3 < question


@pytest.mark.parametrize(
    "query",
    ["Which instrument does my sister play in the orchestra?", "soup with coriander", "And on 4 December 2023?"],
)
def test_a_message_that_refers_back_needs_its_budget(query: str) -> None:
    assert choose_share(rank(index_talk(), query).need) > 0.9


def test_an_empty_index_finds_nothing() -> None:
    assert rank(RecallIndex(), "violin").hits == ()
    assert rank(RecallIndex([Unit(0, "user", "")]), "violin").hits == ()


def test_days_are_read_from_a_message() -> None:
    def first(text: str) -> list[tuple[int, int]]:
        return find_days(text, years=range(2023, 2024))

    day = 737_999  # 28 July 2021
    assert (
        find_days("on 2021-07-28")
        == find_days("on July 28th, 2021")
        == find_days("the 28th of July 2021")
        == [(day, day)]
    )
    assert first("in May 2023") == first("it was May 2023") == [(738_641, 738_671)]
    assert first("may I ask") == []
    assert first("on 31 February 2023") == first("on 2023-99-99") == []
    assert len(first("in March or April")) == 2
    assert find_days("yesterday", now=DAY) == [(719_163, 719_163)]
    assert not parse_query("ſept", years=range(2023, 2024)).days


# What is rendered


def test_excerpts_have_dates_speakers_and_marks() -> None:
    index = index_talk()
    hits = [Hit(8, 1, 0, len(TALK[8][1])), Hit(0, 1, 0, 25), Hit(3, 1, 3, 9), Hit(3, 1, 9, 16), Hit(4, 1, 0, 24)]
    assert render_hits(index, hits) == (
        "[Tue 14 Nov 2023]\nUser: I have moved to Lisbon an …\n"
        "[Sun 19 Nov]\nUser: … sister Clara …\nAssistant: Where does she rehearse?\n"
        "[Mon 4 Dec]\nUser: We had soup with coriander for dinner.\n"
    )


def test_a_speaker_is_named_once_for_consecutive_excerpts() -> None:
    index = index_talk()
    hits = [Hit(place, 1, start, len(TALK[place][1])) for place, start in ((3, 0), (5, 0), (6, 7), (8, 0))]
    assert render_hits(index, hits) == (
        "[Sun 19 Nov 2023]\nUser: My sister Clara plays the violin in an orchestra.\n"
        "… In an old factory, every Tuesday.\n"
        "[Thu 23 Nov]\nUser: … answer me in metric units.\n"
        "[Mon 4 Dec]\nUser: We had soup with coriander for dinner.\n"
    )


def test_another_year_is_told() -> None:
    index = RecallIndex(Unit(place, "user", "Tea.", START + days * DAY) for place, days in enumerate((0, 60, 61)))
    text = render_hits(index, [Hit(place, 1, 0, 4) for place in range(3)])
    assert text == "[Tue 14 Nov 2023]\nUser: Tea.\n[Sat 13 Jan 2024]\nUser: Tea.\n[Sun 14 Jan]\nUser: Tea.\n"


def test_a_day_that_is_unknown_has_no_line() -> None:
    assert render_date(0) == render_date(-1) == render_date(10**15) == render_date(START, START) == ""
    assert render_date(START, 10**15) == render_date(START, -1) == render_date(START)
    index = RecallIndex([Unit(0, "user", "Tea, please."), Unit(1, "user", "And milk.", START)])
    assert render_hits(index, [Hit(0, 1, 0, 12)]) == "User: Tea, please.\n"


def test_what_is_left_over_is_filled_with_smaller_ones_and_a_cut() -> None:
    index = index_talk()
    hits = rank(index, "my sister plays the violin in Lisbon, and rehearses metric units").hits
    for budget in range(60, 400, 20):
        text = render_hits(index, select_hits(index, hits, budget, len))
        assert budget * 0.5 < len(text) <= budget
    assert select_hits(index, hits, 0, len) == ()


# Whatever is said

ANY = st.text(st.characters(exclude_categories=()), max_size=60)
WORDS = st.lists(
    st.sampled_from(
        ["violin", "Lisbon", "我喜欢琴", "river", "12 May", "always", "👩‍👩‍👧", "\ud800", "yesterday", "Ada", "\n\n"]
    ),
    max_size=60,
).map(" ".join)
TEXTS = ANY | WORDS
UNITS = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "tool", ""]),
        TEXTS,
        st.integers(-(10**13), 10**13) | st.integers(START, START + 30 * DAY),
        st.sampled_from(["", "Ada", "Bo Li", "\ud800"]),
    ),
    max_size=12,
).map(lambda said: [Unit(3 * place, *each) for place, each in enumerate(said)])
COUNTS: tuple[Callable[[str], int], ...] = (len, lambda text: len(text.encode("utf-8", "surrogatepass")))


@examples(35, 225)
@given(UNITS, TEXTS, st.integers(-5, 300), st.sampled_from(COUNTS))
def test_the_budget_is_never_exceeded_and_the_order_is_kept(
    units: list[Unit], query: str, budget: int, count: Callable[[str], int]
) -> None:
    index = RecallIndex(units)
    ranked = rank(index, query, now=START)
    chosen = select_hits(index, ranked.hits, budget, count)
    assert count(render_hits(index, chosen)) <= max(0, budget)
    assert [(hit.position, hit.start) for hit in chosen] == sorted({(hit.position, hit.start) for hit in chosen})
    assert all(0 <= hit.start <= hit.stop <= len(index.get_unit(hit.position).text) for hit in chosen)
    assert 0 <= ranked.need <= 1


@examples(25, 150)
@given(UNITS, UNITS, TEXTS, st.data())
def test_an_index_that_grew_and_shrank_ranks_like_one_of_the_same_units(
    units: list[Unit], others: list[Unit], query: str, data: st.DataObject
) -> None:
    exclude = data.draw(st.sets(st.sampled_from([unit.position for unit in units] or [0])))
    kept = data.draw(st.integers(0, len(units)))
    grown = RecallIndex(units[:kept])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_MIN_TAIL", data.draw(st.sampled_from([0, 4, 8_192])))
        rank(grown, query)
        for unit in others:
            grown.add(msgspec.structs.replace(unit, position=unit.position + 3 * kept))
        rank(grown, query)
        grown.truncate(kept)
        for unit in units[kept:]:
            rank(grown, query)
            grown.add(unit)
        ranked = rank(grown, query, exclude=exclude)
    assert ranked == rank(RecallIndex(units), query, exclude=exclude)
    spans = SpanSet((position, position + 1) for position in exclude)
    assert ranked == rank(grown, query, exclude=spans)
    assert grown.text_size == sum(len(unit.text) for unit in units)
    assert not exclude & {hit.position for hit in ranked.hits}
    if len(exclude) == len(units):
        assert ranked.need == 0


@examples(35, 400)
@given(UNITS, TEXTS, st.integers(0, START + 40 * DAY))
def test_the_arrays_rank_like_plain_loops(units: list[Unit], query: str, now: int) -> None:
    labelled = [msgspec.structs.replace(unit, labels="violin Ada" if unit.position % 2 else "") for unit in units]
    index, plain = RecallIndex(labelled), PlainIndex(labelled)
    if not plain.term_count:
        return
    ranking, plain_ranking = Ranking(index, query, now), PlainRanking(plain, query, now)
    parts, scores = ranking.compute_final_scores()
    assert dict(zip(parts.tolist(), scores.tolist(), strict=True)) == pytest.approx(
        dict(plain_ranking.compute_final_scores())
    )
    assert ranking.estimate_need(()) == pytest.approx(plain_ranking.estimate_need(()))


@given(TEXTS, st.integers(1, 50))
def test_parts_are_the_whole_text_in_order(text: str, size: int) -> None:
    found = split_parts(text, size)
    assert "".join(text[start:stop] for start, stop in found) == text
    assert all(stop - start <= 2 * size for start, stop in found)


def test_huge_messages_are_taken() -> None:
    index = RecallIndex([Unit(0, "user", "violin " * 50_000, START), Unit(1, "assistant", "x" * 200_000, START)])
    hits = rank(index, "violin").hits
    assert hits[0].position == 0
    assert 90 < len(render_hits(index, select_hits(index, hits, 100, len))) <= 100


# By meaning


def test_meaning_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings.load_model.cache_clear()
    monkeypatch.setitem(sys.modules, "wordllama", None)
    with pytest.raises(InputError, match=r"longtalk\[recall\]"):
        RecallIndex(meaning=True)


def test_meaning_finds_what_shares_no_word() -> None:
    said = ("Our puppy chewed the carpet.", "The invoice is due on Friday.", "", "\ud800")
    index = RecallIndex((Unit(place, "user", text) for place, text in enumerate(said)), meaning=True)
    assert find_best(index, "dog") == 0
    index.add(Unit(9, "user", "We adopted a kitten."))
    assert find_best(index, "cat") == 9
    assert rank(index, "").hits == ()
