"""What the next turn would send and cost, before it is started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from longtalk.archive.metrics import Metrics, estimate_metrics
from longtalk.context.measure import find_answer_room
from longtalk.context.token_limit import find_compaction_point, find_history_limit
from longtalk.models import registry
from longtalk.policies.notation import format_policy
from longtalk.service.native.conversations import find_info
from longtalk.service.native.inspection import ManifestObject, RequestObject
from longtalk.service.native.routes import ApiCall, Nothing, Route
from longtalk.service.native.start_turn import StartTurn, make_order
from longtalk.service.native.talks import find_model
from longtalk.service.turns import prepare_request, read_state
from longtalk.tokens import count_message, counter_for
from longtalk.transcript.manifest import Run
from longtalk.wires.options import answer_token_limit


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The size of the first request of a turn."""

    model: str
    tokens: int
    window: int | None
    """The tokens that the model accepts, with its answer; null if unknown."""
    limit: int | None
    """The number of tokens above which the policy shortens a request, whatever it costs; null for none."""
    history_limit: int | None
    """The part of `limit` that is for the history, where the policy counts the history alone; null if it does not."""
    cost: float | None
    """US dollars for these tokens if the provider has none of them in its cache; null if unknown."""
    policy: str
    """The policy that the turn would have."""
    lacks_key: str
    """The provider, if it has no API key, so that the turn can't be started; else empty."""


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The request that a turn would send first, in the form in which past turns are inspected."""

    manifest: ManifestObject
    requests: list[RequestObject]


async def estimate(call: ApiCall[Nothing, StartTurn]) -> Estimate:
    """Estimate the first request that a turn would send. Nothing is sent or stored."""
    manifest, metrics, _ = await _prepare(call)
    return Estimate(
        model=metrics.model,
        tokens=metrics.total,
        window=manifest.window,
        limit=manifest.limit,
        history_limit=manifest.history_limit,
        cost=metrics.cost,
        policy=manifest.policy,
        lacks_key=manifest.lacks_key,
    )


async def preview(call: ApiCall[Nothing, StartTurn]) -> Preview:
    """Return the first request that a turn would send. Nothing is sent or stored, and no summary is written."""
    manifest, metrics, body = await _prepare(call)
    request = RequestObject(
        model=metrics.model,
        body=body.decode("utf-8", "replace"),
        is_streamed=True,
        problem="",
        usage=None,
        cached_until=None,
    )
    return Preview(manifest=manifest, requests=[request])


async def _prepare(call: ApiCall[Nothing, StartTurn]) -> tuple[ManifestObject, Metrics, bytes]:
    """Return the manifest, the figures and the JSON of the first request that a turn would send."""
    given, info = call.body, await find_info(call)
    settings = await call.archive.settings(info.id, branch=given.branch)
    model = find_model(call, given.model, settings, given.policy, sends=False)
    at = given.after or given.edits or given.regenerates
    state = await read_state(call.service.store, call.caller.owner, info.id, given.branch, at)
    order = make_order(call, given, model)
    order = msgspec.structs.replace(order, conversation=info.id, branch=given.branch, state=state)
    context, body, size = await prepare_request(order, call.service.store)
    label = model.provider.label
    known = registry.find(label)
    window = call.service.models.find_window(label)
    prices = model.provider.capabilities.prices or (known.prices if known else None)
    metrics = estimate_metrics(context, label, prices)
    message = sum(count_message(each, counter_for(label)) for each in order.messages)
    answer = answer_token_limit({**model.provider.defaults, **model.options, **order.options})
    outside = max(0, metrics.total - metrics.history - metrics.summary + message)
    manifest = ManifestObject(
        turn="",
        branch=given.branch,
        runs=cut_runs(context.manifest, size, message),
        metrics=metrics,
        message=message,
        window=window,
        reserved=None if window is None else find_answer_room(window, answer),
        limit=find_compaction_point(model.policy, window, outside),
        history_limit=find_history_limit(model.policy, window, outside),
        policy=format_policy(model.policy),
        rules=[str(each.over) for each in model.policy.compactors],
        system=model.system if given.system is None else given.system,
        tools=[each.name for each in given.tools],
        lacks_key=model.lacks_key,
    )
    return manifest, metrics, body


def cut_runs(runs: Sequence[Run], size: int, message: int) -> list[Run]:
    """Return the runs of the first `size` entries. `message` is the number of tokens of those after them."""
    found = [run for run in runs if run.first < size]
    if found and found[-1].last >= size:
        found[-1] = msgspec.structs.replace(found[-1], last=size - 1, tokens=max(0, found[-1].tokens - message))
    return found


ROUTES: tuple[Route[Any, Any], ...] = (
    Route("POST", "/conversations/{conversation}/estimate", estimate, body=StartTurn, answer=Estimate),
    Route("POST", "/conversations/{conversation}/preview", preview, body=StartTurn, answer=Preview),
)
