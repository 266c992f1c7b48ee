"""Checks of how the CPU time of a call grows with its input, without limits in seconds."""

from __future__ import annotations

import time
from collections.abc import Callable


def measure_cpu_time(call: Callable[[], object]) -> float:
    """Return the CPU time of a call in seconds."""
    start = time.process_time()
    call()
    return time.process_time() - start


def is_linear(run: Callable[[int], object], size: int) -> bool:
    """Return whether the CPU time grows about linearly: four times the size takes less than eight times as long.

    Measures several times, since other processes may disturb a measurement.
    """
    return any(
        measure_cpu_time(lambda: run(4 * size)) < 8 * measure_cpu_time(lambda: run(size)) + 0.02 for _ in range(5)
    )
