"""The validators of wires that packages bring along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from longtalk.wires import WIRES


def find_validator(name: str) -> Callable[[Any], None]:
    """Return the validator that a wire from outside the library has; without one, every request is valid."""
    wire = WIRES.get(name)
    if wire is None:
        raise KeyError(f"Unknown wire {name!r}. Known: {', '.join(WIRES.list_names())}.")
    own: Callable[[Any], None] = getattr(wire, "check_request", lambda _: None)
    return own
