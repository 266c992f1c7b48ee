"""The OpenAPI 3.1 document of the service, made from the declarations of its routes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

import longtalk
from longtalk.service.native.routes import Nothing, Route
from longtalk.service.native.turn_events import ErrorDetails, TurnEvent

_REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"{(\w+)(:\w+)?}")
_COMMON = (400, 401, 403, 429, 503)
_EVENT = {
    "description": "One server-sent event; `id` is its number.",
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string"},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"$ref": _REFERENCE.format(name="TurnEvent")},
        },
    },
    "required": ["id", "event", "data"],
}
_OPENAI_QUERIES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("GET", "/v1/responses/{id}"): ("stream", "starting_after", "include", "include_obfuscation"),
    ("GET", "/v1/responses/{id}/input_items"): ("limit", "order", "after", "include"),
    ("GET", "/v1/conversations/{id}/items"): ("limit", "order", "after", "include"),
}
"""Parameters of OpenAI's routes, whose values are those of OpenAI's own document."""


class ErrorObject(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is an error."""

    error: ErrorDetails


def make_document(
    routes: Iterable[Route[Any, Any]],
    openai: Iterable[tuple[str, str, Any]],
    sockets: Iterable[tuple[str, Any]] = (),
) -> dict[str, Any]:
    """Return the document. `routes` are those of our surface; `openai` are method, path and function of the others.

    `sockets` are path and function of each WebSocket, whose path must also have a GET in `openai`.
    """
    listed = list(routes)
    kinds = [kind for route in listed for kind in (route.query, route.body, route.answer) if _is_struct(kind)]
    schemas, components = msgspec.json.schema_components([*kinds, ErrorObject, TurnEvent], ref_template=_REFERENCE)
    references = dict(zip(map(repr, kinds), schemas, strict=False))
    paths: dict[str, dict[str, Any]] = {}
    for route in listed:
        operation = _describe(route, references, components)
        paths.setdefault(route.full_path, {})[route.method.lower()] = operation
    for method, path, endpoint in openai:
        plain = _PARAMETER.sub(r"{\1}", path)
        paths.setdefault(plain, {})[method.lower()] = _describe_openai(method, path, endpoint)
    for path, endpoint in sockets:
        _add_socket(paths[path]["get"], endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Longtalk",
            "version": longtalk.__version__,
            "description": "Conversations that last, over any provider.",
        },
        "security": [{"key": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {**components, "TurnEvent": schemas[-1]},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not Nothing


def _describe(
    route: Route[Any, Any], references: Mapping[str, dict[str, Any]], components: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the operation of a route of our surface."""
    parameters = [_make_path_parameter(name) for name in route.names]
    if route.query is not Nothing:
        schema = components[references[repr(route.query)]["$ref"].rpartition("/")[2]]
        for name, each in schema["properties"].items():
            required = name in schema.get("required", ())
            parameters.append({"name": name, "in": "query", "required": required, "schema": each})
    content: dict[str, Any] = {}
    if route.answer is not None:
        content["application/json"] = {"schema": references[repr(route.answer)]}
    for media in route.media:
        content.setdefault(media, {"schema": _EVENT if media == "text/event-stream" else {"type": "string"}})
    if "application/json" in route.media:
        content["application/json"] = {"schema": {}}
    operation: dict[str, Any] = {
        "operationId": _make_id(route.method, route.path),
        **_make_summary(route.handle),
        "tags": [route.path.strip("/").split("/")[-1 if route.path.count("/") == 1 else 0]],
        "parameters": parameters,
        "responses": {str(route.status): {"description": _get_phrase(route.status), "content": content}},
    }
    if route.method == "POST":
        header = {"type": "string", "maxLength": 255}
        operation["parameters"].append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": header})
    if route.body is bytes:
        binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": True, "content": binary}
    elif route.has_body:
        required = bool(components[references[repr(route.body)]["$ref"].rpartition("/")[2]].get("required"))
        sent = {"application/json": {"schema": references[repr(route.body)]}}
        operation["requestBody"] = {"required": required, "content": sent}
    errors = {*_COMMON, *route.errors}
    errors |= {404} if route.names or route.has_body else set()
    errors |= {413} if route.method in ("POST", "PUT", "PATCH") else set()
    errors |= {409, 422} if route.method == "POST" else set()
    for status in sorted(errors):
        operation["responses"][str(status)] = _make_error(status)
    return operation


def _describe_openai(method: str, path: str, endpoint: Any) -> dict[str, Any]:
    """Return the operation of a route of OpenAI's surface. Its bodies are those of OpenAI's document."""
    parameters = [_make_path_parameter(name) for name, _ in _PARAMETER.findall(path)]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}}
        for name in _OPENAI_QUERIES.get((method, path), ())
    ]
    media: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}}
    operation: dict[str, Any] = {
        "operationId": _make_id(method, path),
        **_make_summary(endpoint),
        "tags": ["openai"],
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": media}},
    }
    if method == "POST":
        sent = {"application/json": {"schema": {"type": "object"}}}
        operation["requestBody"] = {"required": False, "content": sent}
    for status in (*_COMMON, 404, 409, 413, 422, 500, 502):
        operation["responses"][str(status)] = _make_error(status)
    return operation


def _add_socket(operation: dict[str, Any], endpoint: Any) -> None:
    """Describe in the GET operation of a path that it opens a WebSocket. OpenAPI itself has no words for messages."""
    del operation["responses"]["200"]
    operation["responses"]["101"] = {"description": _get_phrase(101)}
    operation["responses"]["426"] = _make_error(426)
    operation["x-websocket"] = {
        "description": inspect.cleandoc(endpoint.__doc__ or ""),
        "client": "One JSON object for each response: the body of `POST` on this path, with `type: response.create`.",
        "server": "The events of the stream of `POST` on this path, as JSON objects, or one with `type: error`, "
        "`status` and `error`.",
    }


def _make_path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _make_error(status: int) -> dict[str, Any]:
    schema = {"$ref": _REFERENCE.format(name="ErrorObject")}
    return {"description": _get_phrase(status), "content": {"application/json": {"schema": schema}}}


def _make_summary(function: Callable[..., Any]) -> dict[str, str]:
    """Return the summary and the description of an operation, from the docstring of its function."""
    first, _, rest = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
    return {"summary": first.replace("\n", " "), **({"description": rest.replace("\n", " ")} if rest else {})}


def _make_id(method: str, path: str) -> str:
    words = re.sub(r"[{}:]", "", path).replace("/", " ").replace("-", " ").split()
    return "_".join([method.lower(), *words])


def _get_phrase(status: int) -> str:
    return HTTPStatus(status).phrase
