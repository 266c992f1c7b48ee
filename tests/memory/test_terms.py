"""Test terms: forms of a word share a term, in any script, and every string is accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.memory import terms as module
from longtalk.memory.recall.vocabulary import Vocabulary
from longtalk.memory.terms import (
    extract_terms,
    extract_terms_with_words,
    list_spellings,
    split_char_pairs,
    split_words,
    stem,
)


@pytest.mark.parametrize(
    "family",
    [
        "adopt adopts adopted adopting adoption",
        "run runs running ran",
        "buy buys buying bought",
        "study studies studied studying",
        "motivate motivated motivation motivating",
        "counsel counseling counselor counselors",
        "box boxes",
        "child children",
        "miss missed missing misses",
        "recent recently",
        "write writes wrote written writing",
    ],
)
def test_forms_of_a_word_are_one_term(family: str) -> None:
    assert len({stem(word) for word in family.split()}) == 1


@pytest.mark.parametrize("pair", ["business busy", "news new", "this thing", "class clas", "letter let", "king k"])
def test_other_words_stay_apart(pair: str) -> None:
    one, other = pair.split()
    assert stem(one) != stem(other)


def test_case_accents_and_stop_words_do_not_count() -> None:
    assert extract_terms("The CAFÉ is on the Straße") == extract_terms("cafe strasse")


def test_numbers_stay_whole() -> None:
    assert extract_terms("It costs 12,000.50 or 3.5") == ["cost", "12,000.50", "3.5"]


def test_scripts_without_spaces_give_pairs_and_others_words() -> None:
    assert extract_terms("我喜欢琴") == ["我喜", "喜欢", "欢琴"]
    assert extract_terms("バイオリン")[0] == "バイ"
    assert set(extract_terms("바이올린을")) & set(extract_terms("바이올린이"))
    assert extract_terms("हिन्दी भाषा।") == ["हिन्दी", "भाषा"]
    assert split_char_pairs("琴") == ["琴"]


def test_other_alphabets_find_their_inflections() -> None:
    assert extract_terms("скрипками") == extract_terms("скрипкам")


def test_a_term_knows_its_word() -> None:
    assert extract_terms_with_words("She was adopting cats") == [("adopt", "adopting"), ("cat", "cats")]


@given(st.text(st.characters(exclude_categories=())))
def test_any_string_has_terms(text: str) -> None:
    found = extract_terms(text)
    assert all(found)
    assert found == [term for term, _ in extract_terms_with_words(text)]
    assert split_words(text) == split_words(text)


def test_similar_spellings_replace_a_term_that_does_not_occur() -> None:
    known = Vocabulary()
    numbers = {term: known.add(term) for term in ("violin", "viola", "kitchen", "go")}
    assert [number for number, _ in known.find_similar("voilin")] == []
    assert known.find_similar("violinn")[0][0] == numbers["violin"]
    assert known.find_similar("kichen")[0][0] == numbers["kitchen"]
    assert known.find_similar("goo") == []
    assert known.add("viola") == numbers["viola"]


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        *(("cities", "city"), ("city", "cities"), ("buy", "bought"), ("bought", "buying"), ("running", "ran")),
        *(
            ("movies", "movie"),
            ("Straße", "straße"),
            ("happily", "happiness"),
            ("библиотеками", "библиотека"),
            ("go", "went"),
        ),
        *(("parties", "party"), ("2023", "2023"), ("東京", "東京"), ("better", "good"), ("tries", "trying")),
    ],
)
def test_a_term_is_spelt_as_its_words_are_written(asked: str, written: str) -> None:
    ((term, word),) = extract_terms_with_words(asked)
    whole, beginnings = list_spellings(term, word)
    assert written in whole or any(written.startswith(beginning) for beginning in beginnings)


def test_short_terms_are_spelt_out_and_no_more() -> None:
    whole, beginnings = list_spellings("art", "art")
    assert "arts" in whole
    assert "article" not in whole
    assert beginnings == []


def test_terms_of_many_words_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_CACHED_WORDS", 3)
    monkeypatch.setattr(module, "_term_cache", made := module._TermCache())
    assert extract_terms("one thing and another thing and violins") == ["thing", "anoth", "thing", "violin"]
    assert len(made) <= 3
