"""Map a provider's error response to a typed error, by its status, headers and body.

Providers word the same error differently, so the status or the error code decides where there is one. Many servers,
however, say only in the text of the message that a request is too long.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from longtalk._util import json_bytes
from longtalk.errors import (
    AuthFailed,
    ContextOverflow,
    Overloaded,
    ProviderError,
    RateLimited,
    RequestRefused,
)
from longtalk.providers.redaction import Redactor

_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|tokens_limit_reached|(?:maximum|model's) (?:context|prompt) length"
    r"|context (?:window|limit)|(?:exceeds?|greater than|longer than) the (?:available )?context|context length of only"
    r"|(?:prompt|input) is too long|prompt exceeds max length|model max length exceeded|exceeded model token limit"
    r"|too many tokens|too large for model with|reduce the length of the (?:messages|input)|input token count"
    r"|input_too_large|maximum allowed input length|range of input length|`inputs` tokens",
    re.IGNORECASE,
)
# The context window follows these words.
_WINDOW = re.compile(
    r"(?:context (?:length|size|window)|prompt length|allowed input length|max length|n_ctx|token limit|tokens allowed"
    r"|max size|up to|limit is|must be <=)(?: is| of| only)*\s?[:(]?\s?(\d+)"
    r"|with (\d+) maximum|\(TPM\): Limit (\d+)|should be \[\d+ (\d+)\]|> (\d+)",
    re.IGNORECASE,
)
# The length of the request follows these words.
_TOKENS = re.compile(
    r"(?:resulted in|requested|requested about|requested tokens|total of|total of at least|request contains|request has"
    r"|request|input|input length|prompt is too long|prompt contains|token count|token count is|current length is|given"
    r"|keep the first|n_keep|context limit):? \(?(\d+)\b(?! output)",
    re.IGNORECASE,
)
# The word "billing" is not in this list: some providers mention it in every rate limit error.
_NO_CREDIT = re.compile(
    r"insufficient_quota|exceeded_current_quota|insufficient balance|credit balance|available credits|spending limit",
    re.IGNORECASE,
)

_NO_SECRETS = Redactor()
_BLOCKED = "blocked"
# Google reports the delay in the body.
_RETRY_DELAY = re.compile(rb'"retryDelay"\s*:\s*"(\d{1,6}(?:\.\d{1,9})?)s"')


def error_from_response(
    label: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    by_sdk: bool = False,
    redactor: Redactor = _NO_SECRETS,
) -> ProviderError:
    """Return the error for a response with this status. For an error inside a stream, pass status 0.

    `by_sdk` is True if an SDK client sent the request. Messages then refer to the client's key and address. `redactor`
    removes the provider's secrets.
    """
    # Redact before anything is cut: half a secret would not be recognized.
    body = redactor.redact_bytes(body)
    code, message = _read_error(body)
    if code == _BLOCKED:
        return RequestRefused(f"{label} blocked the request: {message}", status=status or None, body=body)
    status = status or _infer_status(code)
    text = f"{label} answered {status or 'with an error'}: {message}"
    delay = read_retry_after(headers)
    if delay is None and (found := _RETRY_DELAY.search(body)):
        delay = float(found[1])
    kind: type[ProviderError]
    if _is_too_long(status, f"{code} {message}"):
        error = ContextOverflow(f"The request is too long for {label}: {message}", status=status or None, body=body)
        error.window, error.tokens = _find_number(_WINDOW, message), _find_number(_TOKENS, message)
        _set_llamacpp_numbers(error, body)
        return error
    if status in (401, 403) or (status == 400 and "API key not valid" in message):
        key = "client's key" if by_sdk else "key (api_key= or its environment variable)"
        return AuthFailed(f"{text.rstrip('.')}. Check the {key}.", status=status, body=body)
    if status == 429:
        # Waiting does not restore a used-up balance.
        no_credit = _NO_CREDIT.search(f"{code} {message}")
        return RateLimited(text, status=status, body=body, retry_after=delay, retryable=not no_credit)
    if 300 <= status < 400:
        target = redactor.redact(headers.get("location", "another address"))[:300]
        setting = "the client's address" if by_sdk else "base_url="
        return RequestRefused(
            f"{label} answered {status}: it redirects to {target}. Set {setting} to the new address.",
            status=status,
            body=body,
        )
    kind = Overloaded if status >= 500 or status in (0, 408, 409, 425) else RequestRefused
    advice = headers.get("x-should-retry")
    return kind(
        text,
        status=status or None,
        body=body,
        retry_after=delay,
        retryable={"true": True, "false": False}.get(advice or "", kind.retryable),
    )


def _is_too_long(status: int, message: str) -> bool:
    if status in (401, 403, 429):
        # This one request exceeds the limit of tokens per minute: a shorter request helps, waiting does not.
        return status == 429 and "request too large for" in message.lower()
    return status == 413 or bool(_OVERFLOW.search(message))


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the number of seconds that the provider asks the caller to wait, or None if its headers don't say."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        value = headers.get("retry-after", "")
        if re.fullmatch(r"\s*[\d.]+\s*", value):
            return float(value)
        if value:
            import email.utils
            import time

            return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        pass
    return None


def _read_error(body: bytes) -> tuple[str, str]:
    """Return the code and the message of an error body: `{"error":{…}}`, `{"message":…}`, or any other text."""
    try:
        error = json_bytes.value(body)
    except ValueError:
        error = body.decode("utf-8", "replace")
    if isinstance(error, list) and error:
        error = error[0]
    feedback = error.get("promptFeedback") if isinstance(error, dict) else None
    if isinstance(feedback, dict) and feedback.get("blockReason"):
        reasons = (feedback.get("blockReason"), feedback.get("blockReasonMessage"))
        return _BLOCKED, " ".join(_to_text(": ".join(str(each) for each in reasons if each)).split())[:500]
    if isinstance(error, dict) and isinstance(error.get("error"), dict):
        error = error["error"]
    if not isinstance(error, dict):
        text = re.sub(r"<[^<>]*>", " ", str(error)[:10_000])
        return "", " ".join(text.split())[:500] or "no error message."
    message = error.get("message") or error.get("detail") or error.get("error") or error
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and metadata.get("raw"):
        # A router's own message only says that its upstream provider failed.
        message = f"{message}: {metadata['raw']}"
    return f"{error.get('code', '')} {error.get('type', '')}", " ".join(_to_text(message).split())[:500]


def _to_text(message: object) -> str:
    try:
        return str(message)[:10_000]
    except RecursionError:
        return "the error body is nested too deeply to show."


def _infer_status(code: str) -> int:
    """Return the HTTP status that an error code contains or implies, or 0 if there is none."""
    found = re.search(r"\b([45]\d\d)\b", code)
    if found:
        return int(found[1])
    meanings = {"rate_limit": 429, "overloaded": 529, "authentication": 401, "permission": 403}
    meanings |= {"invalid_": 400, "_policy": 400, "unknown_parameter": 400}
    return next((status for word, status in meanings.items() if word in code), 0)


def _find_number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text.replace(",", ""))
    return int(next(group for group in found.groups() if group)) if found else None


def _set_llamacpp_numbers(error: ContextOverflow, body: bytes) -> None:
    """Set the window and the tokens of an error from the fields in which llama.cpp reports them."""
    try:
        fields = json_bytes.value(body)["error"]
        error.window, error.tokens = int(fields["n_ctx"]), int(fields["n_prompt_tokens"])
    except (ValueError, KeyError, TypeError):
        pass
