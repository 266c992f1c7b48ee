"""Matrices of stores, wires and places in a stream: `make test` tries a part of the values, `make test-all` the rest.

The generated sync twins try that part only: what they test is that the same code works without async, and the rest of a
matrix is about stores and wires.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from longtalk.wires import HTTP_WIRES


def thin(values: Iterable[Any], *quick: Any) -> list[Any]:
    """Return parameters of which `make test` tries only the quick ones."""
    return [value if value in quick else pytest.param(value, marks=pytest.mark.rest) for value in values]


# Conversations are tested on SQLite, the store that most of them are in: that all stores behave alike is shown by the
# contract suite, which each of them passes in tests/stores.
STORES = thin(["memory", "jsonl", "sqlite"], "sqlite")

EVERY_WIRE = thin(sorted(HTTP_WIRES), "anthropic")
"""For what takes long: the one quick wire is the one that has most rules."""
