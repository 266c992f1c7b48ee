"""LiteLLM itself: how it is loaded, and what its errors mean.

It loads quietly: its list of prices comes from the package and not over the network, and it reports to nobody.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from longtalk import _json
from longtalk.errors import BadAnswer, InputError, ProviderError, StreamCut, Unreachable
from longtalk.providers.failures import failure


def require_extra() -> None:
    """Raise `InputError` unless LiteLLM is installed."""
    import importlib.util

    if importlib.util.find_spec("litellm") is None:
        raise InputError(
            "'litellm:' needs the extra: pip install 'longtalk[litellm]'. LiteLLM takes no openai of version 3 or "
            "newer: where you have that, give it an environment of its own."
        )


def library() -> Any:
    """The module. Takes some seconds the first time."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.telemetry = False
    # It prints advice beside its errors.
    litellm.suppress_debug_info = True
    return litellm


def error_of(problem: Exception, label: str, *, begun: bool) -> ProviderError:
    """What went wrong, as an error of ours: by what the server said, else by what broke on the way."""
    why = " ".join(str(getattr(problem, "message", None) or problem).split())[:500].rstrip(".")
    if begun:
        return StreamCut(f"The answer of {label} broke off: {why}.")
    said = _json.encode({"error": {"message": why}})
    for each in _behind(problem):
        names = {kind.__name__ for kind in type(each).__mro__}
        if "HTTPStatusError" in names:
            return failure(label, each.response.status_code, each.response.headers, _body(each.response) or said)
        if names & {"TimeoutException", "APITimeoutError", "TimeoutError"}:
            return Unreachable(f"No answer from {label} within the time limit ({why}).", retryable=False)
        # LiteLLM has an error of this name for much else.
        if names & {"TransportError", "APIConnectionError", "ConnectionError"} and each is not problem:
            return Unreachable(f"Can't reach the server of {label}: {why}.")
    status = getattr(problem, "status_code", 500)
    if status == 500:
        # Nobody has answered so: it is what LiteLLM says of all that it can't read.
        return BadAnswer(f"LiteLLM can't read what {label} sent: {why}.")
    return failure(label, status, getattr(problem, "litellm_response_headers", None) or {}, said)


def _behind(problem: BaseException | None) -> Iterator[Any]:
    """An error, what it comes from, and so on."""
    seen: list[BaseException] = []
    while problem is not None and problem not in seen:
        seen.append(problem)
        yield problem
        problem = problem.__cause__ or problem.__context__


def _body(response: Any) -> bytes:
    """What the server said; nothing of a stream that nobody has read."""
    try:
        return bytes(response.content)
    except RuntimeError:
        return b""
