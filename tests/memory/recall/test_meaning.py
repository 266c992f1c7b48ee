"""Test nearness in meaning: it is that of the mean vectors of the texts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longtalk.memory.recall.embeddings import load_model
from longtalk.memory.recall.index import RecallIndex, Unit
from longtalk.memory.recall.meaning import Meaning, compare
from longtalk.memory.terms import extract_terms_with_words
from tests.support.properties import examples

TEXTS = st.lists(
    st.sampled_from(("violin", "Violins", "played", "Lisbon 3.5", "我喜欢琴", "naïve", "xyzzyq", "the", "🙂"))
)


def embed(text: str) -> np.ndarray:
    """Return the mean of the vectors of a text's pieces, scaled to length 1."""
    model = load_model()
    pieces = model.tokenizer.encode(text, add_special_tokens=False).ids
    mean: np.ndarray = model.embedding[pieces].mean(axis=0) if pieces else np.zeros(256)
    return mean / max(1e-9, float(np.linalg.norm(mean)))


@examples(40, 400)
@given(st.lists(TEXTS, max_size=6), st.integers(0, 6), TEXTS)
def test_similarities_are_those_of_mean_vectors_of_the_words(
    texts: list[list[str]], kept: int, query: list[str]
) -> None:
    index = RecallIndex((Unit(i, "user", " ".join(words)) for i, words in enumerate(texts)), meaning=True)
    compare(index, ["violin"])
    index.truncate(kept)
    index.add(Unit(9, "user", " ".join(query)))
    said = [" ".join(words) for words in [*texts[:kept], query]]
    expected = [embed(" ".join(word for _, word in extract_terms_with_words(text))) @ embed("fiddle") for text in said]
    if (meaning := compare(index, ["fiddle"])) is not None:
        np.testing.assert_allclose(meaning.similarities, expected, atol=2e-4)
    else:
        assert not any(expected)


def compare_with(index: RecallIndex, word: str) -> Meaning:
    assert index.vectors is not None
    return Meaning(index, index.vectors, [word])


def test_related_terms_have_the_similarity_of_their_first_words() -> None:
    index = RecallIndex([Unit(0, "user", "violins violin river"), Unit(1, "user", "fiddle")], meaning=True)
    [found] = compare_with(index, "fiddle").find_related_terms(-1)
    for term, similarity in found:
        word = index.words.terms[index.word_terms.values.tolist().index(term)]
        np.testing.assert_allclose(similarity, embed(word) @ embed("fiddle"), atol=2e-4)
    assert len(found) == 3
    assert compare_with(index, "fiddle").find_related_terms(0.9) == [[found[0]]]
