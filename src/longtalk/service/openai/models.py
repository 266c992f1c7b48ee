"""The routes of the Models API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from longtalk.service.access import Caller
from longtalk.service.errors import not_found
from longtalk.service.http import json_response
from longtalk.service.openai.items import Item
from longtalk.service.service import Service


async def list_models(service: Service, caller: Caller, _: Request) -> Response:
    """Return the models that the caller can name."""
    names = [name for name in service.models.names if not caller.models or name in caller.models]
    return json_response({"object": "list", "data": [_make_model(name) for name in names]})


async def retrieve(service: Service, caller: Caller, request: Request) -> Response:
    """Return one model."""
    name = request.path_params["id"]
    if not name:
        raise not_found("The path '/v1/models/'")
    service.models.find(name, allowed=caller.models)
    return json_response(_make_model(name))


def _make_model(name: str) -> Item:
    return {"id": name, "object": "model", "created": 0, "owned_by": name.partition(":")[0]}


ENDPOINTS = (("GET", "/v1/models", list_models), ("GET", "/v1/models/{id:path}", retrieve))
