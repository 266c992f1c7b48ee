"""Errors as clients see them: a status, and a body in OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from longtalk import errors
from longtalk.errors import (
    AuthFailed,
    BadOutput,
    BadState,
    Busy,
    ContextOverflow,
    Deleted,
    InputError,
    KeyReused,
    LongtalkError,
    MissingExtra,
    NotFound,
    Overloaded,
    ProviderError,
    RateLimited,
    RequestRefused,
    StoreError,
    Unreachable,
)
from longtalk.transcript.transcript import now

if TYPE_CHECKING:
    from starlette.responses import Response


_LONGEST_QUOTE = 100
_LONGEST_PARAM = 200
_LONGEST_MESSAGE = 1_000
_STORE_FAILED = "The store of the service failed, and this was not saved. Try again later; the service's log says more."


def quote(text: str) -> str:
    """Return a value of a request for a message: in quotes, and cut if it is long."""
    return repr(text) if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]!r}…"


def shorten(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """Return a text that has at most this many characters. What is too much is cut out of its middle."""
    half = longest // 2
    return text if len(text) <= longest else f"{text[: half - 1]}…{text[-half:]}"


class ApiError(Exception):
    """An error that the service responds with.

    `param` names the field of the request that is wrong, `code` is a word for programs. A message and a field that are
    too long, perhaps because they repeat a value of the request, are cut.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.message = shorten(message)
        super().__init__(self.message)
        self.status = status
        self.kind = kind
        self.param = param and shorten(param, _LONGEST_PARAM)
        self.code = code or ("invalid_value" if param and status == 400 else None)
        self.headers = dict(headers or {})

    def to_object(self) -> dict[str, Any]:
        """Return the value of `error` in the body of the answer."""
        return {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}

    def to_response(self) -> Response:
        """Return the HTTP response."""
        # `longtalk keys` needs no web framework.
        from starlette.responses import Response

        body = msgspec.json.encode({"error": self.to_object()})
        return Response(body, self.status, self.headers, media_type="application/json")


def not_found(what: str, param: str = "id") -> ApiError:
    """Return the error for an unknown id, the same for ids that are deleted, of another owner, or were never given."""
    return ApiError(404, f"{what} not found.", param=param, code="not_found")


def conversation_locked(seconds: int = 1) -> ApiError:
    """Return the error for a request that has to wait for a turn that runs."""
    message = "Another turn runs on this conversation. Try again when it has ended."
    return ApiError(409, message, code="conversation_locked", headers={"retry-after": str(seconds)})


def interrupted() -> ApiError:
    """Return the error for a turn whose process has died or was stopped. The same request continues the turn."""
    message = (
        "The process that ran this turn has stopped. Send the same request again, with the same Idempotency-Key if it "
        "had one, to continue it."
    )
    return ApiError(503, message, kind="server_error", code="interrupted", headers={"retry-after": "1"})


def describe_for_log(problem: BaseException) -> str:
    """Return an error for the log: its type, and of an error of the store the text, which has no content."""
    name = type(problem).__name__
    return f"{name}: {problem}" if isinstance(problem, StoreError) else name


def from_error(problem: Exception) -> ApiError:
    """Return the error that a client sees for an error of the library.

    The text of an internal error is not shown, nor that of an error of the store, which names files and servers.
    """
    if isinstance(problem, ApiError):
        return problem
    if isinstance(problem, Busy):
        return conversation_locked(max(1, min(30, (problem.until - now()) // 1000)) if problem.until else 1)
    headers = {}
    if isinstance(problem, ProviderError) and problem.retry_after is not None:
        headers["retry-after"] = str(max(1, round(problem.retry_after)))
    return _make_error(type(problem), str(problem), headers)


def from_stored_error(error: str) -> ApiError:
    """Return the error of a turn that has failed, from what is stored of it: the name of its type, and its text."""
    name, _, text = error.partition(": ")
    return _make_error(_BY_NAME.get(name, Exception), text, {})


def _make_error(kind: type[Exception], text: str, headers: Mapping[str, str]) -> ApiError:
    for each, status, code in _STATUSES:
        if issubclass(kind, each):
            text = _STORE_FAILED if each is StoreError else text
            error_type = "invalid_request_error" if status < 429 else _TYPES.get(status, "server_error")
            return ApiError(status, text, kind=error_type, code=code, headers=headers)
    if issubclass(kind, LongtalkError):
        return ApiError(500, text, kind="server_error", code="turn_failed")
    return ApiError(500, "The service failed. Its log has the details.", kind="server_error", code="internal_error")


_BY_NAME: Mapping[str, type[Exception]] = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, LongtalkError)
}
_STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (KeyReused, 422, "idempotency_key_reused"),
    (BadOutput, 422, "invalid_output"),
    (NotFound, 404, "not_found"),
    (MissingExtra, 500, "missing_extra"),
    (InputError, 400, "invalid_request"),
    (BadState, 400, "invalid_state"),
    (Deleted, 404, "not_found"),
    (ContextOverflow, 400, "context_length_exceeded"),
    (AuthFailed, 502, "provider_credentials"),
    (RequestRefused, 400, "provider_refused"),
    (RateLimited, 429, "rate_limit_exceeded"),
    (Overloaded, 503, "provider_overloaded"),
    (Unreachable, 503, "provider_unreachable"),
    (ProviderError, 502, "provider_error"),
    (StoreError, 503, "store_unavailable"),
)
_TYPES = {429: "rate_limit_error"}
