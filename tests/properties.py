"""Properties, tried with few examples each time and with many by the slow tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy


def holds(*values: SearchStrategy[Any], few: int = 20, many: int = 500) -> Callable[[Callable[..., None]], Any]:
    """Makes a test of a check that holds for any such values."""

    def decorate(check: Callable[..., None]) -> Any:
        @pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.slow)])
        def test(examples: int) -> None:
            settings(max_examples=examples)(given(*values)(check))()

        return test

    return decorate
