"""The declaration of a route: method, path, types and statuses. It drives the routing, the checks and the document.

A handler gets an `ApiCall` with the parameters and the body as values of their declared types, and returns a value of
the declared type. What does not match is refused before the handler is called.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from longtalk._util.concurrency import call_store
from longtalk.archive.archive import AsyncArchive
from longtalk.service.access import Caller
from longtalk.service.errors import ApiError, quote
from longtalk.service.http import decode, json_response, read_body
from longtalk.service.idempotency import Idempotency
from longtalk.service.json_errors import describe
from longtalk.service.run import Run, RunName
from longtalk.service.service import Service
from longtalk.transcript.transcript import new_id, now

PREFIX = "/longtalk/v1"
_RESULT = "idempotent_result"
_RESULT_LIFETIME = 24 * 3_600_000
_NAMES = re.compile(r"{(\w+)}")

Q = TypeVar("Q")
B = TypeVar("B")


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query or the body of a route that takes none."""


class ApiCall(msgspec.Struct, Generic[Q, B], frozen=True):
    """One call of a route."""

    service: Service
    caller: Caller
    request: Request
    path: Mapping[str, str]
    query: Q
    body: B
    data: bytes
    """The body as it was sent."""

    @property
    def archive(self) -> AsyncArchive:
        """The conversations of the caller."""
        return self.service.open_archive(self.caller.owner)


class Route(msgspec.Struct, Generic[Q, B], frozen=True):
    """One route of the surface."""

    method: str
    path: str
    """The path after `/longtalk/v1`, with the names of its parameters in braces."""
    handle: Callable[[ApiCall[Q, B]], Awaitable[Any]]
    query: type[Q] = Nothing  # type: ignore[assignment]
    body: type[B] = Nothing  # type: ignore[assignment]
    """The type of the body; `bytes` for a file of any kind."""
    answer: Any = None
    """The type of the JSON in the answer; None if the answer is not JSON."""
    media: tuple[str, ...] = ()
    """The media types of the answer besides JSON."""
    status: int = 200
    errors: tuple[int, ...] = ()
    """Statuses of errors besides those that any route of its form has."""
    is_keyed: bool = False
    """Whether the handler itself takes care of the header `Idempotency-Key`."""

    @property
    def full_path(self) -> str:
        """The path of the route, with the prefix of all our own routes."""
        return PREFIX + self.path

    @property
    def names(self) -> list[str]:
        """The names of the parameters in the path."""
        return _NAMES.findall(self.path)

    @property
    def has_body(self) -> bool:
        """Whether the route takes a body."""
        return self.body is not Nothing

    async def __call__(self, service: Service, caller: Caller, request: Request) -> Response:
        """Check a request, and answer it."""
        query = _read_query(request, self.query)
        data = b""
        if self.method in ("POST", "PATCH", "PUT"):
            data = await read_body(request, service.settings.limits)
        body: Any = data if self.body is bytes else decode(data, self.body, service.settings.limits)
        call = ApiCall(service, caller, request, request.path_params, query, body, data)
        key = request.headers.get("idempotency-key")
        if key and self.method == "POST" and not self.is_keyed:
            return await self._answer_once(call)
        return await self._answer(call)

    async def _answer(self, call: ApiCall[Q, B]) -> Response:
        value = await self.handle(call)
        return value if isinstance(value, Response) else json_response(value, self.status)

    async def _answer_once(self, call: ApiCall[Q, B]) -> Response:
        """Answer a request with an idempotency key: a repeated one gets the answer of the first."""
        service, owner, storage = call.service, call.caller.owner, call.service.storage
        url = call.request.url
        path = f"{self.method} {url.path}?{url.query}"
        claim = await Idempotency(storage).claim(owner, path, call.data, call.request.headers, new_id())
        name = RunName(owner, f"post/{claim.response}")

        async def play(_: Run) -> Response:
            found = await call_store(storage, lambda: storage.get(_RESULT, claim.response))
            if found is not None:
                return Response(found.value, self.status, media_type="application/json")
            answer = await self._answer(call)
            expires, body = now() + _RESULT_LIFETIME, bytes(answer.body)
            await call_store(storage, lambda: storage.put(_RESULT, claim.response, body, expires=expires))
            return answer

        running = None if claim.is_new else service.runs.find(name)
        response: Response = await (running or await service.runs.start(name, play, logs=False)).wait_for_end()
        return response


def _read_query(request: Request, kind: type[Q]) -> Q:
    """Return the parameters in the query of a request."""
    given = request.query_params
    twice = next((name for name in given if len(given.getlist(name)) > 1), None)
    if twice is not None:
        raise ApiError(400, f"The parameter {quote(twice)} is given twice.", param=twice, code="invalid_value")
    try:
        return msgspec.convert(dict(given), kind, strict=False)
    except msgspec.ValidationError as problem:
        message, param, code = describe(str(problem))
        raise ApiError(400, message, param=param, code=code) from None
