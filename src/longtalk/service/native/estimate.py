"""What the next turn would send and cost, before it is started."""

from __future__ import annotations

from typing import Any

import msgspec

from longtalk.context.token_limit import find_compaction_point
from longtalk.models import registry
from longtalk.models.call_cost import cost
from longtalk.service.native.conversations import find_info
from longtalk.service.native.routes import ApiCall, Nothing, Route
from longtalk.service.native.start_turn import StartTurn, make_order
from longtalk.service.native.talks import find_model
from longtalk.service.turns import count_tokens, read_state
from longtalk.usage import Usage


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The size of the first request of a turn."""

    model: str
    tokens: int
    window: int | None
    """The tokens that the model accepts, with its answer; null if unknown."""
    limit: int | None
    """The number of tokens above which the policy shortens a request, whatever it costs; null for none."""
    cost: float | None
    """US dollars for these tokens if the provider has none of them in its cache; null if unknown."""


async def estimate(call: ApiCall[Nothing, StartTurn]) -> Estimate:
    """Estimate the first request that a turn would send. Nothing is sent or stored."""
    given, info = call.body, await find_info(call)
    settings = await call.archive.settings(info.id, branch=given.branch)
    model = find_model(call, given.model, settings, given.policy)
    at = given.after or given.edits or given.regenerates
    state = await read_state(call.service.store, call.caller.owner, info.id, given.branch, at)
    order = make_order(call, given, model)
    tokens = await count_tokens(msgspec.structs.replace(order, state=state))
    outside = tokens if state is None else await count_tokens(order) if given.message is not None else 0
    known = registry.find(model.provider.label)
    spent = cost(Usage(input=tokens), model.provider.capabilities.prices or (known.prices if known else None))
    window = model.provider.capabilities.window or (known.window if known else None)
    return Estimate(
        model=model.provider.label,
        tokens=tokens,
        window=window,
        limit=find_compaction_point(model.policy, window, outside),
        cost=None if spent is None else spent.total,
    )


ROUTES: tuple[Route[Any, Any], ...] = (
    Route("POST", "/conversations/{conversation}/estimate", estimate, body=StartTurn, answer=Estimate),
)
