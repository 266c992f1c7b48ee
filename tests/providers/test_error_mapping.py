"""What providers say when they refuse, in their own words, and what it means."""

import email.utils
import json
import time
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.errors import (
    AuthFailed,
    ContextOverflow,
    Overloaded,
    ProviderError,
    RateLimited,
    RequestRefused,
)
from longtalk.providers.error_mapping import error_from_response, read_retry_after

LABEL = "groq:some-model"


def failed(status: int, body: bytes | str | Any, **headers: str) -> ProviderError:
    if not isinstance(body, bytes):
        body = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return error_from_response(LABEL, status, httpx2.Headers(named), body)


def openai(message: str, kind: str = "invalid_request_error", code: str | None = None, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code, **more}}


# Too long

OVERFLOWS: dict[str, tuple[int, Any, int | None, int | None]] = {
    "OpenAI": (
        400,
        openai(
            "This model's maximum context length is 8,192 tokens. However, your messages resulted in 8,227 tokens. "
            "Please reduce the length of the messages.",
            code="context_length_exceeded",
        ),
        8192,
        8227,
    ),
    "OpenAI, with the answer": (
        400,
        openai(
            "This model's maximum context length is 4097 tokens. However, you requested 4927 tokens "
            "(3927 in the messages, 1000 in the completion). Please reduce the length of the messages or completion."
        ),
        4097,
        4927,
    ),
    "OpenAI, without numbers": (
        400,
        openai(
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            code="context_length_exceeded",
        ),
        None,
        None,
    ),
    "OpenAI, more than a minute's tokens": (
        429,
        openai(
            "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested "
            "342389. "
            "The input or output tokens must be reduced in order to run successfully.",
            "tokens",
            "rate_limit_exceeded",
        ),
        30000,
        342389,
    ),
    "Azure": (
        400,
        {
            "error": {
                "message": "This model's maximum context length is 4096 tokens. However, your messages resulted in "
                "4231 tokens. Please reduce the length of the messages.",
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
            }
        },
        4096,
        4231,
    ),
    "Anthropic": (
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "prompt is too long: 205335 tokens > 200000 maximum"},
        },
        200000,
        205335,
    ),
    "Anthropic, with the answer": (
        400,
        openai("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length"),
        200000,
        188240,
    ),
    "Bedrock": (400, {"message": "Input is too long for requested model."}, None, None),
    "llama.cpp": (
        400,
        {
            "error": {
                "code": 400,
                "message": "request (5031 tokens) exceeds the available context size (4096 tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 5031,
                "n_ctx": 4096,
            }
        },
        4096,
        5031,
    ),
    "llama.cpp, in fields alone": (
        400,
        openai("too long", "exceed_context_size_error", n_prompt_tokens=5031, n_ctx=4096),
        4096,
        5031,
    ),
    "llama.cpp, older": (
        500,
        openai("the request exceeds the available context size. try increasing the context size", "server_error"),
        None,
        None,
    ),
    "llama-cpp-python": (400, openai("Requested tokens (5031) exceed context window of 4096"), 4096, 5031),
    "vLLM": (
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens "
            "(112946 in the messages, 10000 in the completion). Please reduce the length of the messages or "
            "completion.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        16384,
        122946,
    ),
    "vLLM, newer": (
        400,
        openai(
            "This model's maximum context length is 128000 tokens. However, you requested 65535 output tokens and your "
            "prompt contains at least 62466 input tokens, for a total of at least 128001 tokens."
        ),
        128000,
        128001,
    ),
    "vLLM, an answer that does not fit behind the prompt": (
        400,
        openai(
            "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 8192 "
            "tokens and your request has 5000 input tokens (4096 > 8192 - 5000)."
        ),
        8192,
        5000,
    ),
    "SGLang": (
        400,
        {
            "object": "error",
            "message": "The input (5031 tokens) is longer than the model's context length (4096 tokens).",
        },
        4096,
        5031,
    ),
    "LM Studio": (
        400,
        {
            "error": "Trying to keep the first 15857 tokens when context the overflows. However, the model is "
            "loaded with "
            "context length of only 4096 tokens, which is not enough. Try to load the model with a larger "
            "context length, "
            "or provide a shorter input"
        },
        4096,
        15857,
    ),
    "LM Studio, newer": (
        400,
        {
            "error": "The number of tokens to keep from the initial prompt is greater than the context length "
            "(n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context length"
        },
        4096,
        13055,
    ),
    "Ollama": (400, openai("the input length exceeds the context length"), None, None),
    "Groq": (
        400,
        openai("Please reduce the length of the messages or completion.", code="context_length_exceeded"),
        None,
        None,
    ),
    "Groq, more than a minute's tokens": (
        413,
        openai(
            "Request too large for model `llama-3.1-8b-instant` in organization `org_x` service tier `on_demand` "
            "on tokens "
            "per minute (TPM): Limit 6000, Requested 12328, please reduce your message size and try again. Need more "
            "tokens? Upgrade to Dev Tier today at https://console.groq.com/settings/billing",
            "tokens",
            "rate_limit_exceeded",
        ),
        6000,
        12328,
    ),
    "Cerebras": (
        400,
        openai(
            "Please reduce the length of the messages or completion. Current length is 8850 while limit is 8192",
            code="context_length_exceeded",
        ),
        8192,
        8850,
    ),
    "Mistral": (
        400,
        {
            "object": "error",
            "message": "Prompt contains 40116 tokens and 0 draft tokens, too large for model with 32768 maximum "
            "context length",
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        },
        32768,
        40116,
    ),
    "OpenRouter": (
        400,
        {
            "error": {
                "message": "This endpoint's maximum context length is 262000 tokens. However, you requested "
                "about 263390 "
                "tokens (658 of text input, 732 of tool input, 262000 in the output). Please reduce the length",
                "code": 400,
                "metadata": {"provider_name": None},
            }
        },
        262000,
        263390,
    ),
    "OpenRouter, an upstream provider": (
        400,
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {
                    "raw": '{"message":"Input length 131393 exceeds the maximum allowed input length of 131040"}',
                    "provider_name": "Poolside",
                },
            }
        },
        131040,
        131393,
    ),
    "DeepSeek": (
        400,
        openai(
            "This model's maximum context length is 65536 tokens. However, you requested 72059 tokens (70011 in the "
            "messages, 2048 in the completion). Please reduce the length of the messages or completion."
        ),
        65536,
        72059,
    ),
    "xAI": (
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "This model's maximum prompt length is 131072 but the request contains 180413 tokens.",
        },
        131072,
        180413,
    ),
    "Gemini": (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (1200293) exceeds the maximum number of tokens allowed "
                    "(1048576).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
        1048576,
        1200293,
    ),
    "Vertex": (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "Unable to submit request because the input token count is 32825 but model only "
                    "supports up "
                    "to 32768. Reduce the input token count and try again.",
                }
            }
        ],
        32768,
        32825,
    ),
    "Moonshot": (
        400,
        openai("Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)"),
        262144,
        291351,
    ),
    "Zhipu": (400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}, None, None),
    "DashScope": (400, openai("Range of input length should be [1, 98304]"), 98304, None),
    "Together": (
        422,
        openai(
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 8300 `inputs` tokens"
        ),
        8193,
        8300,
    ),
    "GitHub": (
        413,
        openai("Request body too large for gpt-4o model. Max size: 8000 tokens.", "", "tokens_limit_reached"),
        8000,
        None,
    ),
    "a proxy": (413, "<html><head><title>413 Request Entity Too Large</title></head></html>", None, None),
}


@pytest.mark.parametrize(("status", "body", "window", "tokens"), OVERFLOWS.values(), ids=OVERFLOWS)
def test_a_request_that_is_too_long_is_known_by_every_vendors_wording(
    status: int, body: Any, window: int | None, tokens: int | None
) -> None:
    error = failed(status, body)
    assert isinstance(error, ContextOverflow)
    assert (error.window, error.tokens) == (window, tokens)
    assert (error.status, error.retryable) == (status, False)
    assert LABEL in str(error)


def test_a_request_that_is_too_long_may_be_told_inside_a_stream() -> None:
    error = failed(0, openai("maximum context length is 10 tokens", code="context_length_exceeded")["error"])
    assert isinstance(error, ContextOverflow)
    assert (error.window, error.status) == (10, 400)
    assert failed(0, "maximum context length exceeded").status is None


# Refused

REFUSALS: dict[str, tuple[int, Any, str]] = {
    "OpenAI, an answer that is never so long": (
        400,
        openai(
            "max_tokens is too large: 20480. This model supports at most 16384 completion tokens, whereas you provided "
            "20480.",
            code="invalid_value",
        ),
        "at most 16384 completion tokens",
    ),
    "Groq, likewise": (
        400,
        openai(
            "`max_tokens` must be less than or equal to `16384`, the maximum value for `max_tokens` is less than the "
            "`context_window` for this model"
        ),
        "must be less than",
    ),
    "OpenAI, an option": (
        400,
        openai("Unsupported parameter: 'max_tokens' is not supported with this model.", code="unsupported_parameter"),
        "Unsupported parameter",
    ),
    "OpenAI, a text": (
        400,
        openai(
            "Invalid 'messages[0].content': string too long. Expected a string with maximum length 1048576, but got a "
            "string with length 1100000 instead.",
            code="string_above_max_length",
        ),
        "string too long",
    ),
    "OpenAI, no such model": (
        404,
        openai("The model `x` does not exist or you do not have access to it.", code="model_not_found"),
        "does not exist",
    ),
    "Azure, filtered": (
        400,
        {
            "error": {
                "message": "The response was filtered due to the prompt triggering Azure OpenAI's content "
                "management policy.",
                "type": None,
                "param": "prompt",
                "code": "content_filter",
                "status": 400,
                "innererror": {"code": "ResponsibleAIPolicyViolation"},
            }
        },
        "filtered",
    ),
    "Mistral": (
        422,
        {
            "object": "error",
            "message": {
                "detail": [
                    {
                        "type": "extra_forbidden",
                        "loc": ["body", "messages", 2, "assistant", "reasoning_content"],
                        "msg": "Extra inputs are not permitted",
                        "input": "hm",
                    }
                ]
            },
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        },
        "reasoning_content",
    ),
    "FastAPI": (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, "field required"),
    "DeepSeek, no balance": (402, openai("Insufficient Balance", "unknown_error"), "Insufficient Balance"),
    "OpenRouter, an upstream provider": (
        400,
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {"raw": "supports at most 1 image per prompt", "provider_name": "X"},
            }
        },
        "at most 1 image",
    ),
    "Ollama": (404, {"error": "model 'x' not found, try pulling it first"}, "try pulling it first"),
    "Flat": (400, {"error": True, "message": "No such lesson."}, "No such lesson."),
    "Cloudflare": (
        400,
        {"success": False, "errors": [{"code": 7009, "message": "Upstream failed"}]},
        "Upstream failed",
    ),
}


@pytest.mark.parametrize(("status", "body", "part"), REFUSALS.values(), ids=REFUSALS)
def test_an_ordinary_refusal_is_not_tried_again_and_says_what_the_provider_said(
    status: int, body: Any, part: str
) -> None:
    error = failed(status, body)
    assert type(error) is RequestRefused
    assert (error.status, error.retryable) == (status, False)
    assert str(error).startswith(f"{LABEL} answered {status}: ")
    assert part in str(error)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, openai("Incorrect API key provided: sk-x.", code="invalid_api_key")),
        (401, {"message": "Unauthorized", "request_id": "1"}),
        (401, b""),
        (403, [{"error": {"code": 403, "message": "API key not valid", "status": "PERMISSION_DENIED"}}]),
        (400, {"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}}),
        (403, {"code": "personal-team-blocked:spending-limit", "error": "You have run out of credits"}),
        (0, {"type": "authentication_error", "message": "invalid x-api-key"}),
    ],
)
def test_a_key_that_is_refused_says_where_the_key_comes_from(status: int, body: Any) -> None:
    error = failed(status, body)
    assert isinstance(error, AuthFailed)
    assert not error.retryable
    assert "api_key=" in str(error)
    assert "environment variable" in str(error)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_server_that_has_moved_is_refused_with_its_new_address(status: int) -> None:
    error = failed(status, b"", location="https://new.example/v1/chat/completions")
    assert type(error) is RequestRefused
    assert (error.status, error.retryable) == (status, False)
    assert "https://new.example/v1" in str(error)
    assert "base_url=" in str(error)


# Too many, too busy


@pytest.mark.parametrize(
    "body",
    [
        openai("Rate limit reached for gpt-4o in organization org-x on requests per min (RPM)", "requests"),
        openai(
            "Rate limit reached for model `x` on tokens per minute (TPM): Limit 6000, Used 5034, Requested 1443. "
            "Please try "
            "again in 4.77s. Need more tokens? Upgrade to Dev Tier today at https://console.groq.com/settings/billing",
            "tokens",
            "rate_limit_exceeded",
        ),
        {"error": {"code": "429", "message": "Requests have exceeded token rate limit of your current tier."}},
        [
            {
                "error": {
                    "code": 429,
                    "message": "You exceeded your current quota, please check your plan and billing details",
                }
            }
        ],
        {"message": "Too many tokens, please wait before trying again."},
        {
            "error": {
                "message": "Provider returned error",
                "code": 429,
                "metadata": {"raw": "x is rate-limited upstream"},
            }
        },
        b"",
        "<html>429</html>",
    ],
)
def test_too_many_requests_may_be_tried_again(body: Any) -> None:
    error = failed(429, body, retry_after="7")
    assert isinstance(error, RateLimited)
    assert (error.retryable, error.retry_after, error.status) == (True, 7.0, 429)


@pytest.mark.parametrize(
    "body",
    [
        openai(
            "You exceeded your current quota, please check your plan and billing details.",
            "insufficient_quota",
            "insufficient_quota",
        ),
        openai("Your account is suspended, please check your plan and billing details", "exceeded_current_quota_error"),
        {"error": {"code": "1113", "message": "Insufficient balance or no resource package. Please recharge."}},
        {"error": "Your team has either used all available credits or reached its monthly spending limit."},
    ],
)
def test_a_balance_that_is_used_up_does_not_come_back_by_waiting(body: Any) -> None:
    error = failed(429, body)
    assert isinstance(error, RateLimited)
    assert not error.retryable


@pytest.mark.parametrize("status", [500, 502, 503, 504, 520, 529, 408, 409, 425])
def test_a_provider_with_trouble_of_its_own_may_be_asked_again(status: int) -> None:
    error = failed(status, "<html><body><h1>Bad  Gateway</h1></body></html>", retry_after="1")
    assert isinstance(error, Overloaded)
    assert (error.retryable, error.retry_after, error.status) == (True, 1.0, status)
    assert str(error) == f"{LABEL} answered {status}: Bad Gateway"


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, Overloaded, 529),
        ({"code": 502, "message": "Upstream"}, Overloaded, 502),
        ({"code": "rate_limit_exceeded", "message": "x"}, RateLimited, 429),
        ({"type": "invalid_request_error", "message": "x"}, RequestRefused, 400),
        ({"type": "permission_error", "message": "x"}, AuthFailed, 403),
        ({"code": "server_error", "message": "x"}, Overloaded, None),
        ({"code": "invalid_prompt", "message": "x"}, RequestRefused, 400),
        ({"code": "invalid_encrypted_content", "message": "x"}, RequestRefused, 400),
        ({"code": "bio_policy", "message": "x"}, RequestRefused, 400),
        (
            {"code": "context_length_exceeded", "message": "Your input exceeds the context window"},
            ContextOverflow,
            None,
        ),
        ("boom", Overloaded, None),
    ],
)
def test_an_error_inside_a_stream_has_the_status_that_its_code_means(
    error: Any, kind: type[ProviderError], status: int | None
) -> None:
    found = failed(0, json.dumps(error).encode())
    assert isinstance(found, kind)
    assert found.status == status


@pytest.mark.parametrize(
    ("status", "said", "retryable"),
    [(400, "true", True), (503, "false", False), (503, "nonsense", True), (400, "", False)],
)
def test_a_provider_that_says_whether_to_try_again_is_believed(status: int, said: str, retryable: bool) -> None:
    assert failed(status, b"{}", x_should_retry=said).retryable is retryable


# Hints


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"Retry-After": " 0.5 "}, 0.5),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after-ms": "-5"}, 0.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "1.2.3"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after-ms": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 99 Oct 2015 07:28:00 GMT"}, None),
    ],
)
def test_a_hint_is_seconds_milliseconds_or_a_date_and_nonsense_is_none(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert read_retry_after(httpx2.Headers(headers)) == seconds


def test_a_date_to_come_is_so_many_seconds_away() -> None:
    said = email.utils.formatdate(time.time() + 30, usegmt=True)
    seconds = read_retry_after({"retry-after": said})
    assert seconds is not None
    assert 25 < seconds <= 30


@given(st.sampled_from(["retry-after", "retry-after-ms"]), st.text())
def test_no_hint_whatever_it_says_is_an_error(name: str, said: str) -> None:
    seconds = read_retry_after({name: said})
    assert seconds is None or seconds >= 0


# Whatever it is


@given(st.sampled_from([0, 302, 400, 401, 413, 422, 429, 500, 503]), st.binary())
def test_any_body_is_an_error_that_keeps_it(status: int, body: bytes) -> None:
    error = failed(status, body)
    assert error.body == body
    assert LABEL in str(error)


@pytest.mark.parametrize("status", [0, 400, 401, 413, 429, 500])
@pytest.mark.parametrize(
    "body",
    [
        b"<html>" + b"<p>word</p> " * 5000,
        json.dumps(openai("x" * 5000)).encode(),
        json.dumps({"detail": [{"msg": "x" * 200}] * 50}).encode(),
        json.dumps([1] * 5000).encode(),
        b"\xff" * 5000,
    ],
)
def test_a_message_is_short_and_names_the_provider(status: int, body: bytes) -> None:
    said = str(failed(status, body))
    assert LABEL in said
    assert len(said) <= 600
    assert "\n" not in said


@pytest.mark.parametrize("body", [b"", b" \n", b"<html></html>"])
def test_an_answer_without_a_word_says_so(body: bytes) -> None:
    assert str(failed(500, body)) == f"{LABEL} answered 500: no error message."


@pytest.mark.parametrize("body", [b"null", b"[]", b"{}", b'""', b"0", b'{"error":null}', b'{"error":{}}'])
def test_json_without_a_word_is_an_error_too(body: bytes) -> None:
    assert str(failed(500, body)).startswith(f"{LABEL} answered 500: ")


def test_a_blocked_prompt_is_refused_with_its_reason() -> None:
    error = failed(0, {"promptFeedback": {"blockReason": "OTHER", "blockReasonMessage": "So it is."}})
    assert isinstance(error, RequestRefused)
    assert (error.retryable, error.status) == (False, None)
    assert str(error) == f"{LABEL} blocked the request: OTHER: So it is."
    assert "blocked" not in str(failed(400, {"promptFeedback": {"safetyRatings": []}})).partition("{")[0]


def test_google_says_in_the_body_how_long_to_wait() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    error = failed(429, {"error": {"code": 429, "message": "You exceeded your quota.", "details": details}})
    assert isinstance(error, RateLimited)
    assert (error.retryable, error.retry_after) == (True, 34.5)
