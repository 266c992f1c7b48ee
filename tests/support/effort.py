"""How much work something is, where only the time can tell: by CPU time, compared with itself, never in seconds."""

from __future__ import annotations

import time
from collections.abc import Callable


def spent(call: Callable[[], object]) -> float:
    """The CPU time that a call takes."""
    start = time.process_time()
    call()
    return time.process_time() - start


def is_linear(run: Callable[[int], object], size: int) -> bool:
    """Whether four times the size takes about four times the work, and not sixteen times.

    Tried a few times, since others may disturb it.
    """
    return any(spent(lambda: run(4 * size)) < 8 * spent(lambda: run(size)) + 0.02 for _ in range(5))
