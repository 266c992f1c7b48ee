"""Similarity by meaning: how the embeddings are loaded, and what vectors texts get."""

import subprocess
import sys

import numpy as np
import pytest

from longtalk.memory.recall.embeddings import Vectors, load_model, multiply_rows

LOAD = """
import logging
from longtalk.memory.recall.embeddings import load_model
before = [*logging.root.handlers], logging.root.level, logging.root.manager.disable
load_model()
logging.getLogger("app").info("INFO OF THE APP")
assert ([*logging.root.handlers], logging.root.level, logging.root.manager.disable) == before
logging.basicConfig(format="FORMAT OF THE APP %(message)s", level=logging.WARNING)
logging.getLogger("app").warning("WARNING OF THE APP")
"""


def test_loading_the_embeddings_does_not_configure_the_programs_logging():
    pytest.importorskip("wordllama")
    load_model()  # downloads the vectors, which is said on standard error
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "FORMAT OF THE APP WARNING OF THE APP\n")


@pytest.mark.parametrize(
    ("text", "first_numbers"),
    [
        ("violin", [0.1401126, -0.0154413, -0.0885106, 0.0951137]),
        ("Violins and cellos play in Lisbon 3.5", [0.1606653, 0.0447904, -0.0514748, 0.0486576]),
        ("我喜欢琴 naïve café", [-0.0799097, -0.0851400, -0.1613747, -0.0124074]),
        ("\U0001f642 hello xyzzyq", [-0.2114708, -0.2666864, -0.2580110, -0.1158950]),
    ],
)
def test_vectors_of_texts_are_those_of_the_publishers_own_library(text: str, first_numbers: list[float]) -> None:
    vectors = Vectors()
    assert vectors.model == "potion-base-8M-f65d0f32"
    np.testing.assert_allclose(vectors.embed([text])[0, :4], first_numbers, atol=1e-6)


@pytest.mark.parametrize(("count", "vectors"), [(0, 3), (1, 1), (171, 6), (3_000, 7), (40, 2_000)])
def test_rows_are_multiplied_a_few_at_a_time(count: int, vectors: int) -> None:
    source = np.random.default_rng(count)
    rows, others = (source.integers(-9, 9, (each, 256)).astype(np.float32) for each in (count, vectors))
    assert np.array_equal(multiply_rows(rows, others), rows @ others.T)
