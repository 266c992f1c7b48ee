"""Apply the compactors of a policy to a view, until every limit is met."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from longtalk.context.measure import (
    Terms,
)
from longtalk.errors import InputError
from longtalk.policies.base import Compactor, Policy, Size, Trigger
from longtalk.policies.limits import OverTokens
from longtalk.policies.token_budget import make_limit_compactor
from longtalk.policies.view import View

_ROUNDS = 8
"""The maximum number of times that the limits are checked again, because one compactor may undo the work of another."""


def compares_costs(trigger: Trigger) -> bool:
    """Return True if a trigger fires when a new epoch saves money."""
    return getattr(trigger, "compares_costs", False)


class _Due(msgspec.Struct, frozen=True):
    """A trigger in place of another one, which fires until the target of its compactor is met."""

    to: Trigger
    compares_costs: bool

    def fires(self, size: Size) -> bool:
        return self.to.fires(size)

    def __str__(self) -> str:
        return "it was asked for"


def make_due(compactors: Sequence[Compactor]) -> list[Compactor]:
    """Return the compactors with those due now that have strategies of their own; others just repeat these."""
    found: list[Compactor] = []
    for each in compactors:
        is_repeated = any(each.strategies == other.strategies for other in found)
        over = each.over if is_repeated else _Due(each.to, compares_costs(each.over))
        found.append(Compactor(over, each.strategies, each.to))
    return found


class _OverWindow(OverTokens, frozen=True):
    """A trigger that fires when the request leaves no room in the model's window for an answer."""

    def __str__(self) -> str:
        return "more than fits into the window"


def list_compactors(policy: Policy, terms: Terms, *, settled: bool = False) -> list[Compactor]:
    """Return the compactors of the policy, and one for the model's window, which limits every policy."""
    found = [*policy.compactors]
    if terms.window is None and not found:
        return found
    # What a summary can still stand for before the next call is not left out after the answer.
    waits = settled and any(can_summarise(each, background=False) for each in found)
    waits = waits or any(getattr(s, "refuses_overflow", False) for each in found for s in each.strategies)
    if terms.room is not None and not waits:
        found.append(make_limit_compactor(_OverWindow(terms.room), OverTokens(max(1, terms.room // 2))))
    if settled:
        kept = [(each, [s for s in each.strategies if not getattr(s, "cuts_current", False)]) for each in found]
        return [Compactor(each.over, tuple(strategies), each.to) for each, strategies in kept if strategies]
    return found


def can_summarise(compactor: Compactor, *, background: bool | None = None) -> bool:
    """Return True if a compactor can request a summary, so that its limit may be exceeded until the summary exists."""
    how = [getattr(strategy, "background", None) for strategy in compactor.strategies]
    return any(each is not None and background in (None, each) for each in how)


def find_outgrown_window(whole: View, view: View, compactors: Sequence[Compactor]) -> _OverWindow | None:
    """Return the window's trigger if the window, and not the policy, is why more exchanges are left out; else None."""
    full = next(
        (each.over for each in compactors if isinstance(each.over, _OverWindow) and each.over.fires(whole)), None
    )
    if full is None:
        return None
    own = compact_view(whole, [each for each in compactors if not isinstance(each.over, _OverWindow)])
    return full if len(own.blocks) > len(view.blocks) else None


def check_exchanges(whole: View, view: View) -> None:
    """Raise `InputError` unless a view consists of whole exchanges, in order, with the current one last."""
    there = iter([(block.first, block.stop) for block in whole.blocks])
    kept = [(block.first, block.stop) for block in view.blocks]
    last = whole.blocks[-1]
    if not all(pair in there for pair in kept) or not kept or kept[-1] != (last.first, last.stop):
        raise InputError(
            "A strategy of the policy returned a view with new or reordered exchanges: it may only leave exchanges out."
        )


def compact_view(view: View, compactors: Sequence[Compactor]) -> View:
    """Return the view after applying the compactors until every limit is met or nothing changes."""
    for _ in range(_ROUNDS):
        before = view
        for each in compactors:
            if each.over.fires(view):
                view = each.apply(view)
        if view.summary_request or (view.blocks, tuple(view.lines)) == (before.blocks, tuple(before.lines)):
            break
    return view if view.summary_request else _drop_lines(view, compactors)


def _drop_lines(view: View, compactors: Sequence[Compactor]) -> View:
    """Return the view with as many of the newest digest lines as the limits have room for.

    The compactor whose limit is exceeded need not be the one that added the lines.
    """

    def with_lines(number: int) -> View:
        return msgspec.structs.replace(view, lines=view.lines[len(view.lines) - number :])

    def is_exceeded(number: int) -> bool:
        return any(each.over.fires(with_lines(number)) for each in binding)

    # A limit may be exceeded until a summary has been written.
    binding = [each for each in compactors if not (view.droppable and can_summarise(each))]
    return with_lines(bisect_left(range(len(view.lines)), True, key=lambda number: is_exceeded(number + 1)))
