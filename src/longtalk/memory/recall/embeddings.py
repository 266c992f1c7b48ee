"""Similarity by meaning, from static embeddings: no model is called, and no data leaves the process.

This needs the extra `[recall]`. The embeddings are potion-base-8M, which is downloaded once (`vector_files.py`), or
those of the installed package WordLlama where it can't be. Both have a vector of 256 numbers for each of some 30,000
word pieces. The vector of a text is the mean of the vectors of its pieces, so it has the direction of their sum.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longtalk.errors import MissingExtra
from longtalk.memory.recall.columns import Array, Column

__all__ = ["Vectors", "load_model", "measure_lengths", "sum_groups"]

_WORDLLAMA = "l2_supercat_256"
_UNKNOWN = "[UNK]"
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_SINGLE = 100  # texts that are split one by one, without starting threads for them
_MAX_UNTHREADED = 2**18  # multiplications for which NumPy's libraries start no threads
_MAX_CHARS = 4_000  # of a query; the rest is ignored


class Vectors:
    """The embedding vectors of words, in the order in which the words were added.

    The vector of a word is the sum of the vectors of its pieces. Only the numbers of the pieces are held.
    """

    def __init__(self) -> None:
        self._model = load_model()
        self._pieces = Column(np.int32)
        self._sizes = Column(np.int32)
        """For each word, the number of its pieces."""
        self._lengths = Column(np.float32)
        self._pending: list[str] = []
        """The last words, whose pieces have not been determined yet."""

    @property
    def model(self) -> str:
        """The name of the embeddings, which is stored with everything that was computed from them."""
        return self._model.name

    @property
    def piece_count(self) -> int:
        """The number of pieces that have vectors."""
        return len(self._model.embedding)

    def extend(self, words: Iterable[str]) -> None:
        """Add words. Their pieces are determined when they are first needed."""
        self._pending += words

    def extend_pieces(self, pieces: Array, sizes: Array, lengths: Array) -> None:
        """Add words, given as their pieces, the number of pieces of each, and the lengths of their vectors."""
        self._complete()
        self._pieces.extend(pieces)
        self._sizes.extend(sizes)
        self._lengths.extend(lengths)

    def truncate(self, count: int) -> None:
        """Keep only the first `count` words."""
        known = len(self._sizes)
        del self._pending[max(0, count - known) :]
        if count < known:
            self._pieces.truncate(int(self._sizes.values[:count].sum()))
            self._sizes.truncate(count)
            self._lengths.truncate(count)

    @property
    def nbytes(self) -> int:
        """The number of bytes of memory that the vectors use, without those of the embeddings."""
        return self._pieces.nbytes + self._sizes.nbytes + self._lengths.nbytes

    @property
    def lengths(self) -> Array:
        """The length of the vector of each word."""
        self._complete()
        return self._lengths.values

    def get_pieces(self, start: int, stop: int) -> tuple[Array, Array]:
        """Return the pieces of the words from `start` up to `stop`, and the number of pieces of each."""
        self._complete()
        sizes = self._sizes.values
        first = int(sizes[:start].sum())
        return self._pieces.values[first : first + int(sizes[start:stop].sum())], sizes[start:stop]

    def multiply(self, vectors: Array) -> Array:
        """Return the products of the vector of each word with each of these vectors: a row for each word."""
        self._complete()
        pieces = self._pieces.values
        is_used = np.zeros(len(self._model.embedding), np.bool_)
        is_used[pieces] = True
        used = np.flatnonzero(is_used)
        products = multiply_rows(np.take(self._model.embedding, used, axis=0), vectors)
        numbers = np.take(np.cumsum(is_used) - 1, pieces)
        return sum_groups(np.take(products, numbers, axis=0), self._sizes.values)

    def add_up(self, words: Array) -> Array:
        """Return the vectors of the words with these numbers."""
        self._complete()
        sizes = self._sizes.values
        counts = sizes[words]
        shifts = (np.cumsum(sizes) - sizes)[words] - (np.cumsum(counts) - counts)
        return self._add_up_pieces(self._pieces.values[np.repeat(shifts, counts) + np.arange(counts.sum())], counts)

    def embed(self, texts: list[str]) -> Array:
        """Return the vectors of texts, scaled to length 1. The vector of an empty text is all zeros."""
        vectors = self._add_up_pieces(*self._split([text[:_MAX_CHARS] for text in texts]))
        vectors /= measure_lengths(vectors)[:, None].clip(min=1e-9)
        return vectors

    def _complete(self) -> None:
        """Determine the pieces of the pending words, and the lengths of their vectors."""
        if self._pending:
            pieces, sizes = self._split(self._pending)
            self._pending = []
            self.extend_pieces(pieces, sizes, measure_lengths(self._add_up_pieces(pieces, sizes)))

    def _split(self, texts: list[str]) -> tuple[Array, Array]:
        """Return the pieces of texts, one text after the other, and the number of pieces of each."""
        cleaned = [_SURROGATE.sub("\ufffd", text) for text in texts]
        tokenizer = self._model.tokenizer
        if len(cleaned) <= _MAX_SINGLE:
            found = [tokenizer.encode(text, add_special_tokens=False) for text in cleaned]
        else:
            found = tokenizer.encode_batch_fast(cleaned, add_special_tokens=False)
        pieces = [each.ids for each in found]
        return np.fromiter(chain.from_iterable(pieces), np.int32), np.array([len(each) for each in pieces], np.int32)

    def _add_up_pieces(self, pieces: Array, sizes: Array) -> Array:
        """Return the sum of the vectors of each group of pieces. `sizes` are the sizes of the groups."""
        return sum_groups(self._model.embedding[pieces], sizes)


def multiply_rows(rows: Array, vectors: Array) -> Array:
    """Return the product of each row with each of these vectors: a row for each row.

    Few rows are multiplied at a time, so that NumPy starts no threads for them: on a busy machine, threads that wait
    for each other use several times the CPU time of the product.
    """
    count, at_once = len(rows), max(1, _MAX_UNTHREADED // max(1, vectors.size))
    whole = count - count % at_once
    found: Array = np.empty((count, len(vectors)), np.result_type(rows, vectors))
    np.matmul(
        rows[:whole].reshape(-1, at_once, rows.shape[1]),
        vectors.T,
        out=found[:whole].reshape(-1, at_once, len(vectors)),
    )
    np.matmul(rows[whole:], vectors.T, out=found[whole:])
    return found


def sum_groups(values: Array, sizes: Array) -> Array:
    """Return the sums of consecutive groups of values or rows with these sizes, which may be 0."""
    sums: Array = np.zeros((len(sizes), *values.shape[1:]), values.dtype)
    filled = np.flatnonzero(sizes)
    if len(filled):
        sums[filled] = np.add.reduceat(values, (np.cumsum(sizes) - sizes)[filled], axis=0)
    return sums


def measure_lengths(vectors: Array) -> Array:
    """Return the length of each vector."""
    lengths: Array = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    return lengths


class Model(NamedTuple):
    """Static embeddings: a vector for each word piece, and what splits a text into pieces."""

    name: str
    """The name. It differs from that of all other embeddings, also of other versions."""
    embedding: Array
    tokenizer: Any


@lru_cache(maxsize=1)
def load_model() -> Model:
    """Return the embeddings, which are downloaded if they are not there; else those in the installed package.

    Raises `MissingExtra` if the package is not installed.
    """
    package = importlib.util.find_spec("wordllama")
    if package is None or package.origin is None:
        raise MissingExtra("Recall(meaning=True) needs an extra: pip install 'longtalk[recall]'.")
    from longtalk.memory.recall.vector_files import NAME, TOKENIZER, VECTORS, find_files

    folder = find_files()
    if folder is None:
        return load_wordllama(Path(package.origin).parent)
    tokenizer = _read_tokenizer(Path(folder) / TOKENIZER.name)
    embedding = _open_safetensors(Path(folder) / VECTORS.name, "embeddings", "F32", "<f4")
    # What is in no piece says nothing. Changes of the mapped file stay in memory.
    embedding[tokenizer.token_to_id(_UNKNOWN)] = 0
    return Model(f"{NAME}-{VECTORS.sha256[:8]}", embedding, tokenizer)


def load_wordllama(folder: Path) -> Model:
    """Return the embeddings in the folder of WordLlama's package. Importing it would take longer than reading them."""
    tokenizer = _read_tokenizer(folder / "tokenizers" / "l2_supercat_tokenizer_config.json")
    path = folder / "weights" / f"{_WORDLLAMA}.safetensors"
    embedding = _open_safetensors(path, "embedding.weight", "F16", "<f2").astype(np.float32)
    return Model(_WORDLLAMA, embedding, tokenizer)


def _read_tokenizer(path: Path) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _open_safetensors(path: Path, name: str, type_name: str, dtype: str) -> Array:
    """Return a matrix of numbers in a safetensors file, mapped into memory. Changes do not reach the file."""
    with path.open("rb") as file:
        tensor = json.loads(file.read(int.from_bytes(file.read(8), "little")))[name]
        data_start = file.tell()
    if tensor["dtype"] != type_name:
        raise ValueError(f"{path.name} has numbers of type {tensor['dtype']!r}, not {type_name!r}.")
    start = data_start + tensor["data_offsets"][0]
    return np.asarray(np.memmap(path, np.dtype(dtype), "c", start, tuple(tensor["shape"])))
