"""Parameters of tests that run on several stores, wires or event loops.

`make test` runs the quick values, `make test-all` also the rest. The generated sync twins run only the quick values:
they test that the same code works without async, and the rest tests stores and wires.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from longtalk.wires import HTTP_WIRES


def thin(values: Iterable[Any], *quick: Any) -> list[Any]:
    """Return these values as parameters, of which `make test` runs only the quick ones."""
    return [value if value in quick else pytest.param(value, marks=pytest.mark.rest) for value in values]


# Conversations are tested on SQLite, the most common store. The conformance suite in tests/stores shows that all stores
# behave alike.
STORES = thin(["memory", "jsonl", "sqlite"], "sqlite")

EVERY_WIRE = thin(sorted(HTTP_WIRES), "anthropic")
"""All HTTP wires, for slow tests. The quick one is the wire with the most rules."""
