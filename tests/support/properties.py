"""The number of examples in property tests: few with `make test`, many with `make test-all`.

Plain `@given` tests use the number of the loaded profile (`QUICK` or `THOROUGH`, registered by conftest.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy

QUICK = 25
THOROUGH = 150


def examples(few: int, many: int) -> settings:
    """Return settings for a test whose examples cost more, or find less, than most."""
    # `pytest --hypothesis-profile thorough` has loaded the profile before it imports any test.
    thorough = settings.get_current_profile_name().startswith("thorough")
    return settings(max_examples=many if thorough else few)


def holds(*values: SearchStrategy[Any], few: int = 20, many: int = 600) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that runs a check with arbitrary values of these strategies."""

    def decorate(check: Callable[..., None]) -> Any:
        return examples(few, many)(given(*values)(check))

    return decorate
