"""The routes about the context of a response: how long a request would be, and a shorter one."""

from __future__ import annotations

from collections.abc import Collection

from starlette.requests import Request
from starlette.responses import Response

from longtalk._util import json_bytes
from longtalk.service.access import Caller
from longtalk.service.errors import ApiError
from longtalk.service.http import decode, json_response, read_body
from longtalk.service.openai.compactions import COMPACTION, make_compaction
from longtalk.service.openai.create_response import CreateResponse
from longtalk.service.openai.response_object import to_usage
from longtalk.service.openai.response_turns import find_target, make_order
from longtalk.service.service import Service
from longtalk.service.turns import TurnOrder, count_tokens
from longtalk.transcript.transcript import new_id, now

PATH = "/v1/responses"
_COUNTED = {
    *("conversation", "input", "instructions", "model", "parallel_tool_calls", "previous_response_id", "reasoning"),
    *("text", "tool_choice", "tools", "truncation"),
}
_COMPACTED = {
    *("input", "instructions", "model", "previous_response_id", "prompt_cache_key", "prompt_cache_options"),
    *("prompt_cache_retention", "service_tier"),
}


async def count_input(service: Service, caller: Caller, request: Request) -> Response:
    """Count the tokens of the request that a response would be made from. Nothing is sent or kept."""
    order = await _read_order(service, caller, request, _COUNTED)
    return json_response({"object": "response.input_tokens", "input_tokens": await count_tokens(order)})


async def compact(service: Service, caller: Caller, request: Request) -> Response:
    """Shorten a chain or a list of items by the model's policy, to one item that a later input begins with."""
    order = await _read_order(service, caller, request, _COMPACTED)
    done = await service.compact(order)
    name = new_id()
    content = await service.sealer.close(done.state, caller.owner, COMPACTION)
    item = make_compaction(f"cmp_{name}", content)
    return json_response(
        {
            "id": f"resp_{name}",
            "object": "response.compaction",
            "created_at": now() // 1000,
            "output": [item],
            "usage": to_usage(done.usage),
        }
    )


async def _read_order(service: Service, caller: Caller, request: Request, fields: Collection[str]) -> TurnOrder:
    """Return the turn that a body with these fields asks for. Nothing of it is stored."""
    body = await read_body(request, service.settings.limits)
    given = decode(body, CreateResponse, service.settings.limits)
    other = next((name for name in json_bytes.fields(body or b"{}") if name not in fields), None)
    if other is not None:
        raise ApiError(400, f"`{other}` is not a field of this request.", param=other, code="unknown_parameter")
    given.store = False
    given.check()
    return await make_order(service, caller, given, await find_target(service, caller, given))


ENDPOINTS = (("POST", PATH + "/input_tokens", count_input), ("POST", PATH + "/compact", compact))
