"""What a provider's refusal means: a status, headers and a body, as a typed error.

Providers word the same thing differently. What can be told by a status or a code is; a request that is too long
is known by its wording alone on many servers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from longtalk import _json
from longtalk.errors import (
    AuthFailed,
    ContextOverflow,
    Overloaded,
    ProviderError,
    RateLimited,
    RequestRefused,
)

_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|maximum prompt length|context window"
    r"|prompt is too long|too many tokens|reduce the length of the (messages|input)|exceeds the (available )?context"
    r"|input token count .* exceeds|too large for model with",
    re.IGNORECASE,
)
# The window comes behind these words …
_WINDOW = re.compile(
    r"(?:maximum context length (?:is|of)|context length (?:is|of)(?: only)?|maximum prompt length is|context size \(|"
    r"tokens allowed \(|tokens > )\s*(\d+)|with (\d+) maximum",
    re.IGNORECASE,
)
# … and the request's own length before or behind these.
_TOKENS = re.compile(
    r"(?:resulted in|requested(?: about)?|request contains|request \(|prompt is too long:|token count \("
    r"|prompt contains)\s*(\d+)",
    re.IGNORECASE,
)


def failure(label: str, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """The error for an answer with this status; an error inside a stream has status 0."""
    code, message = _said(body)
    status = status or _status_of(code)
    what = f"{label} answered {status or 'with an error'}: {message}"
    hint = retry_after(headers)
    kind: type[ProviderError]
    if _OVERFLOW.search(f"{code} {message}") and status not in (401, 403, 429):
        error = ContextOverflow(f"The request is longer than {label} takes: {message}", status=status, body=body)
        error.window, error.tokens = _number(_WINDOW, message), _number(_TOKENS, message)
        _from_fields(error, body)
        return error
    if status in (401, 403):
        return AuthFailed(f"{what} Check the key (api_key= or its environment variable).", status=status, body=body)
    if status == 429:
        # A used-up balance does not come back by waiting.
        empty = re.search(r"insufficient_quota|billing|credit", f"{code} {message}", re.IGNORECASE)
        return RateLimited(what, status=status, body=body, retry_after=hint, retryable=not empty)
    kind = Overloaded if status >= 500 or status in (0, 408, 409, 425) else RequestRefused
    should = headers.get("x-should-retry")
    return kind(
        what,
        status=status or None,
        body=body,
        retry_after=hint,
        retryable={"true": True, "false": False}.get(should or "", kind.retryable),
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider asks to wait."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        said = headers.get("retry-after", "")
        if re.fullmatch(r"\s*[\d.]+\s*", said):
            return float(said)
        if said:
            import email.utils
            import time

            return max(0.0, email.utils.parsedate_to_datetime(said).timestamp() - time.time())
    except (ValueError, OverflowError):
        pass
    return None


def _said(body: bytes) -> tuple[str, str]:
    """The code and the message of an error body: `{"error":{…}}`, `{"message":…}`, or whatever text it is."""
    try:
        error = _json.value(body)
    except ValueError:
        error = body.decode("utf-8", "replace")
    if isinstance(error, dict) and error.get("error"):
        error = error["error"]
    if not isinstance(error, dict):
        text = re.sub(r"<[^>]*>", " ", str(error))
        return "", " ".join(text.split())[:500] or "no further word."
    message = error.get("message") or error.get("detail") or error
    return f"{error.get('code', '')} {error.get('type', '')}", " ".join(str(message).split())[:500]


def _status_of(code: str) -> int:
    """Errors inside a stream have no status of their own, but their code may be one or mean one."""
    found = re.search(r"\b([45]\d\d)\b", code)
    if found:
        return int(found[1])
    meanings = {"rate_limit": 429, "overloaded": 529, "authentication": 401, "permission": 403, "invalid_request": 400}
    return next((status for word, status in meanings.items() if word in code), 0)


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text.replace(",", ""))
    return int(next(group for group in found.groups() if group)) if found else None


def _from_fields(error: ContextOverflow, body: bytes) -> None:
    """llama.cpp says it in fields of their own."""
    try:
        said = _json.value(body)["error"]
        error.window, error.tokens = int(said["n_ctx"]), int(said["n_prompt_tokens"])
    except (ValueError, KeyError, TypeError):
        pass
