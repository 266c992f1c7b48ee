"""Find how many tokens a request may have, so that what memory adds to it exceeds no limit.

A plan decides about exchanges. What memory adds after the plan is optional, and is left out where it does not fit.
"""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from longtalk.context.measure import UNKNOWN_WINDOW, Terms
from longtalk.policies.base import Policy

_MOST = 2**31


def find_compaction_point(policy: Policy, window: int | None, outside: int) -> int | None:
    """Return the number of tokens above which a policy shortens a request, whatever it costs; None if none is set.

    `outside` is the number of tokens that are not history, such as the preamble and the new message.
    """
    window = window or UNKNOWN_WINDOW
    triggers = [each.over for each in policy.compactors]

    def is_exceeded(tokens: int) -> bool:
        total = _Total(tokens, window, droppable=1, history=max(0, tokens - outside))
        return any(trigger.fires(total) for trigger in triggers)

    return bisect_left(range(_MOST), True, key=is_exceeded) - 1 if is_exceeded(_MOST) else None


def find_history_limit(policy: Policy, window: int | None, outside: int) -> int | None:
    """Return the tokens of history alone above which a policy shortens a request; None if other tokens count too.

    `outside` is the number of tokens that are not history.
    """
    outside = max(1, outside)
    alone, whole = (find_compaction_point(policy, window, each) for each in (0, outside))
    return alone if alone is not None and whole == alone + outside else None


class _Total(msgspec.Struct):
    """The size of a request of which only the number of tokens counts."""

    tokens: int
    window: int
    exchanges: int = 1
    droppable: int = 0
    messages: int = 1
    history: int = 0

    def brief_pays(self, recent: int, length: int) -> bool:  # noqa: ARG002
        return False

    def summary_pays(self, keep: int, length: int) -> bool:  # noqa: ARG002
        return False


def find_token_limit(policy: Policy, terms: Terms) -> int | None:
    """Return the largest number of tokens within the window and the limits of a policy; None if nothing limits it.

    A limit at which a summary is written does not count: it may be exceeded until the summary exists.
    """
    window = terms.window or UNKNOWN_WINDOW
    triggers = [
        each.over
        for each in policy.compactors
        if not any(hasattr(strategy, "background") for strategy in each.strategies)
    ]

    def is_exceeded(tokens: int) -> bool:
        if terms.window is not None and tokens > terms.window:
            return True
        return any(trigger.fires(_Total(tokens, window)) for trigger in triggers)

    return bisect_left(range(_MOST), True, key=is_exceeded) - 1 if is_exceeded(_MOST) else None
