"""Estimate the tokens and the cost of an answer that was cut off before the provider had reported its usage.

The estimate comes from what was stored with the turn: the size of its last request, and the tokens of the answer so
far. It is never stored itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from longtalk.transcript.manifest import StoredManifest
from longtalk.transcript.pack import Entry
from longtalk.transcript.responses import read_responses
from longtalk.transcript.transcript import Turn
from longtalk.usage import Usage

if TYPE_CHECKING:
    from longtalk.branches.settings import StoredSettings
    from longtalk.models.call_cost import Prices


def is_cut(turn: Turn) -> bool:
    """Return True if a turn was stopped or has failed, so that its last answer may lack a usage report."""
    return bool(turn.model) and turn.status in ("interrupted", "failed")


def estimate_cut_call(turn: Turn, manifest: StoredManifest, entries: Iterable[Entry]) -> Usage | None:
    """Return the estimated usage of a turn's last call; None if no answer was cut off or its usage was reported.

    A request of which no piece of an answer came is not counted: it may have been refused. `entries` may have those of
    other turns.
    """
    answers = [entry for entry in entries if entry.role == "assistant" and entry.turn == turn.id]
    if not is_cut(turn) or not manifest.tokens or not answers or answers[-1].condition != "interrupted":
        return None
    last = answers[-1]
    responses = {each.entry: each for each in read_responses(turn)}
    # Turns of earlier versions have no responses.
    found = responses.get(last.id)
    is_reported = len(turn.usage) >= len(answers) if found is None else found.usage is not None
    return None if is_reported else Usage(input=manifest.tokens, output=last.tokens)


def estimate_cut_cost(
    turn: Turn,
    manifest: StoredManifest,
    entries: Iterable[Entry],
    settings: Iterable[StoredSettings],
    usages: Sequence[Usage],
) -> float | None:
    """Return what all calls of a turn have cost, at the prices of today; None if that is unknown.

    `usages` are those of all its calls, with the estimate. The cost is also unknown if the settings of the turn are not
    stored, or lead to an address with prices of its own.
    """
    answers = sum(entry.role == "assistant" and entry.turn == turn.id for entry in entries)
    held = next((each for each in settings if each.digest() == manifest.settings), None)
    models = {turn.model, *(each.model for each in read_responses(turn))}
    if held is None or held.own_address or models != {held.label} or len(usages) < answers:
        return None
    from longtalk.models import call_cost

    prices = _find_prices(held)
    spent = call_cost.add_costs(call_cost.cost(usage, prices) for usage in usages)
    return None if spent is None else spent.total


def _find_prices(held: StoredSettings) -> Prices | None:
    from longtalk.models import call_cost, registry
    from longtalk.providers.registry import PROVIDERS

    known = PROVIDERS.get(held.label.partition(":")[0])
    if known is not None and known.base_url_variable and os.environ.get(known.base_url_variable):
        # The environment leads to another address than the provider's own.
        return None
    found = registry.find(held.label)
    options = {**held.defaults, **held.options}
    return None if found is None else call_cost.adjust_prices(found.prices, options)
