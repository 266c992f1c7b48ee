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
    r"context_length_exceeded|exceed_context_size|tokens_limit_reached|(?:maximum|model's) (?:context|prompt) length"
    r"|context (?:window|limit)|(?:exceeds?|greater than|longer than) the (?:available )?context|context length of only"
    r"|(?:prompt|input) is too long|prompt exceeds max length|model max length exceeded|exceeded model token limit"
    r"|too many tokens|too large for model with|reduce the length of the (?:messages|input)|input token count"
    r"|input_too_large|maximum allowed input length|range of input length|`inputs` tokens",
    re.IGNORECASE,
)
# The window comes behind these words …
_WINDOW = re.compile(
    r"(?:context (?:length|size|window)|prompt length|allowed input length|max length|n_ctx|token limit|tokens allowed"
    r"|max size|up to|limit is|must be <=)(?: is| of| only)*\s?[:(]?\s?(\d+)"
    r"|with (\d+) maximum|\(TPM\): Limit (\d+)|should be \[\d+ (\d+)\]|> (\d+)",
    re.IGNORECASE,
)
# … and the request's own length before or behind these.
_TOKENS = re.compile(
    r"(?:resulted in|requested|requested about|requested tokens|total of|total of at least|request contains|request has"
    r"|request|input|input length|prompt is too long|prompt contains|token count|token count is|current length is|given"
    r"|keep the first|n_keep|context limit):? \(?(\d+)\b(?! output)",
    re.IGNORECASE,
)
# Not by the word billing: some point there in every answer of this kind.
_USED_UP = re.compile(
    r"insufficient_quota|exceeded_current_quota|insufficient balance|credit balance|available credits|spending limit",
    re.IGNORECASE,
)

_BLOCKED = "blocked"
# Google says in the body how long to wait.
_DELAY = re.compile(rb'"retryDelay"\s*:\s*"(\d{1,6}(?:\.\d{1,9})?)s"')


def failure(label: str, status: int, headers: Mapping[str, str], body: bytes, *, by_sdk: bool = False) -> ProviderError:
    """The error for an answer with this status; an error inside a stream has status 0.

    Where the client of an SDK has asked (`by_sdk`), key and address are set there.
    """
    code, message = _said(body)
    if code == _BLOCKED:
        return RequestRefused(f"{label} blocked what it was sent: {message}", status=status or None, body=body)
    status = status or _status_of(code)
    what = f"{label} answered {status or 'with an error'}: {message}"
    hint = retry_after(headers)
    if hint is None and (delay := _DELAY.search(body)):
        hint = float(delay[1])
    kind: type[ProviderError]
    if _is_too_long(status, f"{code} {message}"):
        what = f"The request is longer than {label} takes: {message}"
        error = ContextOverflow(what, status=status or None, body=body)
        error.window, error.tokens = _number(_WINDOW, message), _number(_TOKENS, message)
        _from_fields(error, body)
        return error
    if status in (401, 403) or (status == 400 and "API key not valid" in message):
        key = "client's key" if by_sdk else "key (api_key= or its environment variable)"
        return AuthFailed(f"{what.rstrip('.')}. Check the {key}.", status=status, body=body)
    if status == 429:
        # A used-up balance does not come back by waiting.
        empty = _USED_UP.search(f"{code} {message}")
        return RateLimited(what, status=status, body=body, retry_after=hint, retryable=not empty)
    if 300 <= status < 400:
        what = f"{label} answered {status}: it is now at {headers.get('location', 'another address')[:300]}."
        setting = "the client's address" if by_sdk else "base_url="
        return RequestRefused(f"{what} Set {setting} to where it is.", status=status, body=body)
    kind = Overloaded if status >= 500 or status in (0, 408, 409, 425) else RequestRefused
    should = headers.get("x-should-retry")
    return kind(
        what,
        status=status or None,
        body=body,
        retry_after=hint,
        retryable={"true": True, "false": False}.get(should or "", kind.retryable),
    )


def _is_too_long(status: int, said: str) -> bool:
    if status in (401, 403, 429):
        # A limit of tokens a minute that this one request exceeds: waiting does not help, a shorter one does.
        return status == 429 and "request too large for" in said.lower()
    return status == 413 or bool(_OVERFLOW.search(said))


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
    if isinstance(error, list) and error:
        error = error[0]
    feedback = error.get("promptFeedback") if isinstance(error, dict) else None
    if isinstance(feedback, dict) and feedback.get("blockReason"):
        why = (feedback.get("blockReason"), feedback.get("blockReasonMessage"))
        return _BLOCKED, " ".join(_plain(": ".join(str(each) for each in why if each)).split())[:500]
    if isinstance(error, dict) and isinstance(error.get("error"), dict):
        error = error["error"]
    if not isinstance(error, dict):
        text = re.sub(r"<[^<>]*>", " ", str(error)[:10_000])
        return "", " ".join(text.split())[:500] or "no further word."
    message = error.get("message") or error.get("detail") or error.get("error") or error
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and metadata.get("raw"):
        # A router's own message says only that somebody behind it refused.
        message = f"{message}: {metadata['raw']}"
    return f"{error.get('code', '')} {error.get('type', '')}", " ".join(_plain(message).split())[:500]


def _plain(message: object) -> str:
    try:
        return str(message)[:10_000]
    except RecursionError:
        return "nested too deeply to be shown."


def _status_of(code: str) -> int:
    """Errors inside a stream have no status of their own, but their code may be one or mean one."""
    found = re.search(r"\b([45]\d\d)\b", code)
    if found:
        return int(found[1])
    meanings = {"rate_limit": 429, "overloaded": 529, "authentication": 401, "permission": 403}
    meanings |= {"invalid_": 400, "_policy": 400, "unknown_parameter": 400}
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
