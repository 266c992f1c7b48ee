"""Fit the weights of `longtalk.tokens.families` to real tokenizers, and print them as its table.

    python -m bench.fit_tokens [name=tokenizer.json …] texts/english/*.txt texts/code/* …

Each file is one text; a folder is a class, and all classes weigh the same. The fit minimizes the relative error of
each text, so that a short text counts as much as a long one. A tokenizer that the extra `[tokens]` lacks is given as
its Hugging Face file, such as `smollm2=tokenizer.json`.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from longtalk.tokens import EXACT, Exact
from longtalk.tokens.features import FEATURES, count_features, split_blocks

RIDGE = 2e-5


def sum_features(text: str) -> list[float]:
    """Return the features of a text, summed over its blocks."""
    total = [0.0] * len(FEATURES)
    for block in split_blocks(text):
        for start, values in count_features(block):
            for i, value in enumerate(values, start):
                total[i] += value
    return total


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve a linear system by Gaussian elimination. Its matrix is positive definite, so no pivot is zero."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(size):
        for j in range(i + 1, size):
            factor = rows[j][i] / rows[i][i]
            if factor:
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (rows[i][size] - sum(rows[i][j] * found[j] for j in range(i + 1, size))) / rows[i][i]
    return found


def fit(vectors: list[list[float]], tokens: list[int], weights: list[float]) -> list[float]:
    """Return the weights that minimize the squared relative error, with a small ridge."""
    size = len(FEATURES)
    matrix = [[0.0] * size for _ in range(size)]
    right = [0.0] * size
    for values, count, weight in zip(vectors, tokens, weights, strict=True):
        row = [(i, value / count) for i, value in enumerate(values) if value]
        for i, a in row:
            right[i] += weight * a
            line = matrix[i]
            for j, b in row:
                line[j] += weight * a * b
    scale = [(matrix[i][i] or 1.0) ** 0.5 for i in range(size)]
    for i in range(size):
        for j in range(size):
            matrix[i][j] /= scale[i] * scale[j]
        right[i] /= scale[i]
        matrix[i][i] += RIDGE
    return [value / scale[i] for i, value in enumerate(solve(matrix, right))]


def main() -> None:
    """Fit the weights of each tokenizer and print them."""
    counters: dict[str, Any] = {name: Exact(name) for name in EXACT}
    texts: list[tuple[str, str]] = []
    for argument in sys.argv[1:]:
        name, equals, path = argument.partition("=")
        if equals:
            import splintr

            tokenizer = splintr.from_json(path)
            counters[name] = type("Given", (), {"count": lambda _, text, t=tokenizer: len(t.encode_ordinary(text))})()
        elif text := Path(argument).read_text(errors="replace"):
            texts.append((Path(argument).parent.name, text))
    sizes = Counter(kind for kind, _ in texts)
    weights = [1 / sizes[kind] for kind, _ in texts]
    vectors = [sum_features(text) for _, text in texts]
    for name, counter in counters.items():
        tokens = [counter.count(text) for _, text in texts]
        found = fit(vectors, tokens, weights)
        errors: Counter[str] = Counter()
        for (kind, _), values, count in zip(texts, vectors, tokens, strict=True):
            errors[kind] += abs(sum(a * b for a, b in zip(values, found, strict=True)) / count - 1) / sizes[kind]  # type: ignore[assignment]
        print(f"{name}: {sum(errors.values()) / len(errors):.2%}", file=sys.stderr)
        print(f'    "{name}": """')
        line = ""
        for value in (f"{round(1000 * value)}" for value in found):
            if len(line) + len(value) > 110:
                print(f"        {line}")
                line = ""
            line += f"{' ' if line else ''}{value}"
        print(f'        {line}\n    """,')


if __name__ == "__main__":
    main()
