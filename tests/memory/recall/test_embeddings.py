"""Similarity by meaning: how the embedding library is loaded."""

import subprocess
import sys

import pytest

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
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "FORMAT OF THE APP WARNING OF THE APP\n")
