"""Load LiteLLM, and map its errors to Longtalk's errors.

LiteLLM is loaded with the price list in its package instead of one from the network, and with telemetry switched off.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from longtalk._util import json_bytes
from longtalk.errors import BadAnswer, InputError, MissingExtra, ProviderError, StreamCut, Unreachable
from longtalk.providers.error_mapping import error_from_response
from longtalk.providers.redaction import Redactor


def require_extra() -> None:
    """Raise `MissingExtra` unless LiteLLM is installed."""
    import importlib.util

    if importlib.util.find_spec("litellm") is None:
        raise MissingExtra(
            "'litellm:' needs LiteLLM: pip install 'longtalk[litellm]'. LiteLLM does not work with openai 3 or newer: "
            "if you need both, use two environments."
        )


def load_litellm() -> Any:
    """Import and return the `litellm` module. The first import takes several seconds."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    try:
        import litellm
    except ImportError as problem:
        raise _make_missing_error(problem) from problem
    litellm.telemetry = False
    # Otherwise it prints advice whenever it raises an error.
    litellm.suppress_debug_info = True
    return litellm


def _make_missing_error(problem: ImportError) -> MissingExtra:
    """Return the error for a package that LiteLLM needs, and imports only when it is used."""
    return MissingExtra(
        f"LiteLLM needs a package that is not installed: {str(problem).rstrip('.')}. Run pip install "
        "'longtalk[litellm]', which installs LiteLLM with its extra [mcp]. If that is done, install the named package."
    )


def map_error(problem: Exception, label: str, *, begun: bool, redactor: Redactor) -> ProviderError | InputError:
    """Return Longtalk's error for an error that LiteLLM raised.

    If part of the answer has arrived (`begun`), it is a `StreamCut`. Otherwise its type follows from the server's
    response or, if there is none, from the connection error. It is an `InputError` if LiteLLM lacks a package.
    """
    cause = redactor.redact(str(getattr(problem, "message", None) or problem))
    cause = " ".join(cause.split())[:500].rstrip(".")
    if begun:
        return StreamCut(f"The answer of {label} ended early: {cause}.")
    body = json_bytes.encode({"error": {"message": cause}})
    for each in _iter_causes(problem):
        names = {kind.__name__ for kind in type(each).__mro__}
        if "HTTPStatusError" in names:
            found = _read_body(each.response) or body
            return error_from_response(
                label, each.response.status_code, each.response.headers, found, redactor=redactor
            )
        if names & {"TimeoutException", "APITimeoutError", "TimeoutError"}:
            return Unreachable(f"No answer from {label} within the time limit ({cause}).", retryable=False)
        # LiteLLM's own APIConnectionError covers many other problems.
        if names & {"TransportError", "APIConnectionError", "ConnectionError"} and each is not problem:
            return Unreachable(f"Can't reach the server of {label}: {cause}.")
    status = getattr(problem, "status_code", 500)
    if status == 500:
        for each in _iter_causes(problem):
            if isinstance(each, ImportError):
                return _make_missing_error(each)
        # No server sent this status: LiteLLM uses it for every answer that it can't read.
        return BadAnswer(f"LiteLLM can't read the answer of {label}: {cause}.")
    headers = getattr(problem, "litellm_response_headers", None) or {}
    return error_from_response(label, status, headers, body, redactor=redactor)


def _iter_causes(problem: BaseException | None) -> Iterator[Any]:
    """Yield an exception, the exception that caused it, and so on."""
    seen: list[BaseException] = []
    while problem is not None and problem not in seen:
        seen.append(problem)
        yield problem
        problem = problem.__cause__ or problem.__context__


def _read_body(response: Any) -> bytes:
    """Return the body of a response, or an empty body if the response is a stream that was not read."""
    try:
        return bytes(response.content)
    except RuntimeError:
        return b""
