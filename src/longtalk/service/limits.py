"""Limits for each owner: requests per minute, and turns at the same time. `quotas.py` limits tokens and cost."""

from __future__ import annotations

import time
from collections.abc import Callable

from longtalk.service.errors import ApiError
from longtalk.service.settings import Limits

_MOST_OWNERS = 10_000
_LONGEST_RETRY = 60


class RateLimiter:
    """Counts the requests of each owner: a bucket that holds a minute's worth and fills steadily.

    `clock` returns seconds. The counts are those of this process.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def count_request(self, owner: str) -> None:
        """Count a request. Raises `ApiError` if the owner has none left for now."""
        most = self._limits.requests_per_minute
        if not most:
            return
        at = self._clock()
        left, since = self._buckets.get(owner, (float(most), at))
        left = min(float(most), left + (at - since) * most / 60)
        if left < 1:
            wait = (1 - left) * 60 / most
            self._buckets[owner] = (left, at)
            raise make_limit_error(f"Too many requests: the limit is {most} per minute.", wait)
        self._buckets[owner] = (left - 1, at)
        if len(self._buckets) > _MOST_OWNERS:
            self._forget_full_buckets(most, at)

    def check_turns(self, running: int) -> None:
        """Raise `ApiError` if an owner already runs as many turns as allowed."""
        most = self._limits.concurrent_turns
        if most and running >= most:
            raise make_limit_error(f"Too many turns are running: the limit is {most} at the same time.", 1)

    def _forget_full_buckets(self, most: int, at: float) -> None:
        """Forget owners whose bucket is full again: they count as new ones."""
        self._buckets = {
            owner: (left, since)
            for owner, (left, since) in self._buckets.items()
            if left + (at - since) * most / 60 < most
        }


def make_limit_error(message: str, wait: float, code: str = "rate_limit_exceeded") -> ApiError:
    """Return the error for a limit that was reached, which asks the client to retry after `wait` seconds."""
    headers = {"retry-after": str(max(1, round(wait + 0.5)))}
    if wait > _LONGEST_RETRY:
        # OpenAI's clients would try again within seconds.
        headers["x-should-retry"] = "false"
    return ApiError(429, message, kind="rate_limit_error", code=code, headers=headers)
