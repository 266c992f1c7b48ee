"""Cases in which the server fails: each kind of failure must raise the matching error class."""

from __future__ import annotations

import base64
from dataclasses import replace
from functools import partial
from typing import TypeVar

from longtalk._util import json_bytes
from longtalk.errors import (
    AuthFailed,
    BadAnswer,
    ContextOverflow,
    Overloaded,
    ProviderError,
    RateLimited,
    RequestRefused,
    StreamCut,
    Unreachable,
)
from longtalk.testing.providers.byte_exactness import STORY, begin_story
from longtalk.testing.providers.harness import Case, Harness, ScriptedServer, add_to, list_stream_modes, run_turn
from longtalk.testing.providers.script import ScriptedResponse
from longtalk.testing.report import assert_equal, assert_raises, assert_true
from longtalk.testing.wires.validate import validate

E = TypeVar("E", bound=ProviderError)

ERROR_CASES: list[Case] = []

PAGE = ScriptedResponse(
    b"<html><body><h1>Log in to the hotel's network</h1></body></html>", headers={"content-type": "text/html"}
)
WINDOW, LENGTH = 8192, 9000


def _make_error_response(wire: str, status: int, kind: str, message: str, **headers: str) -> ScriptedResponse:
    """Return an error response in the format of this wire."""
    error: dict[str, object] = {"message": message, "type": kind, "code": kind, "param": None}
    if wire == "gemini":
        error = {"code": status, "message": message, "status": kind.upper()}
    body = {"type": "error", "error": {"type": kind, "message": message}} if wire == "anthropic" else {"error": error}
    extra = {name.replace("_", "-"): value for name, value in headers.items()}
    return ScriptedResponse(
        json_bytes.encode(body), status=status, headers={"content-type": "application/json", **extra}
    )


def _make_overflow_response(wire: str) -> ScriptedResponse:
    """Return the error with which this wire's provider answers a request that is too long."""
    messages = {
        "anthropic": f"prompt is too long: {LENGTH} tokens > {WINDOW} maximum",
        "gemini": f"The input token count ({LENGTH}) exceeds the maximum number of tokens allowed ({WINDOW}).",
    }
    usual = (
        f"This model's maximum context length is {WINDOW} tokens. However, your messages resulted in {LENGTH} tokens."
    )
    kinds = {"anthropic": "invalid_request_error", "gemini": "invalid_argument"}
    return _make_error_response(wire, 400, kinds.get(wire, "context_length_exceeded"), messages.get(wire, usual))


def _expect_error(server: ScriptedServer, harness: Harness, kind: type[E], label: str, *, stream: bool) -> E:
    """Run a turn that must raise an error of the class `kind`, and return the error."""
    chat = harness.chat(server.provider)
    return assert_raises(kind, lambda: run_turn(chat, "Hello.", stream=stream), label)


@add_to(ERROR_CASES, scripted=True)
def a_rejected_key_is_reported_and_not_retried(harness: Harness) -> None:
    server = harness.server()
    for status, kind in ((401, "authentication_error"), (403, "permission_error")):
        for stream in list_stream_modes(server.provider):
            server.script.requests.clear()
            response = _make_error_response(server.wire, status, kind, "Not with this key.")
            server.script.add(response)
            error = _expect_error(server, harness, AuthFailed, f"status {status}", stream=stream)
            assert_equal(error.status, status, "the status on the error")
            assert_equal(error.body, response.body, "the body on the error")
            assert_equal(len(server.script.requests), 1, "requests with a wrong key")


@add_to(ERROR_CASES, scripted=True)
def a_refused_request_is_not_retried(harness: Harness) -> None:
    server = harness.server()
    for status in (400, 404, 422):
        for stream in list_stream_modes(server.provider):
            server.script.requests.clear()
            server.script.add(_make_error_response(server.wire, status, "invalid_request_error", "No."))
            error = _expect_error(server, harness, RequestRefused, f"status {status}", stream=stream)
            assert_true(
                not isinstance(error, AuthFailed | ContextOverflow), f"status {status} is {type(error).__name__}"
            )
            assert_equal(error.status, status, "the status on the error")
            assert_equal(len(server.script.requests), 1, "requests that were refused")


@add_to(ERROR_CASES, scripted=True)
def a_redirect_is_reported_and_not_followed(harness: Harness) -> None:
    # Following the redirect would send the key to another address.
    server = harness.server()
    for stream in list_stream_modes(server.provider):
        server.script.add(ScriptedResponse(status=307, headers={"location": "http://127.0.0.1:9/elsewhere"}))
        error = _expect_error(server, harness, RequestRefused, "status 307", stream=stream)
        assert_equal(error.status, 307, "the status on the error")


@add_to(ERROR_CASES, scripted=True)
def a_rate_limit_is_waited_for(harness: Harness) -> None:
    server = harness.server()
    for stream in list_stream_modes(server.provider):
        server.script.requests.clear()
        server.script.add(
            _make_error_response(server.wire, 429, "rate_limit_error", "Too many requests.", retry_after="0")
        )
        server.add_answers(STORY, stream=stream)
        assert_equal(
            run_turn(harness.chat(server.provider), "Hello.", stream=stream).text,
            STORY,
            "the answer after a short wait",
        )
        assert_equal(server.script.requests[1], server.script.requests[0], "the retried request")
        server.script.add(
            _make_error_response(server.wire, 429, "rate_limit_error", "Too many requests.", retry_after="7200")
        )
        error = _expect_error(server, harness, RateLimited, "status 429", stream=stream)
        assert_equal(error.retry_after, 7200.0, "the seconds to wait on the error")


@add_to(ERROR_CASES, scripted=True)
def a_server_error_is_retried_then_reported(harness: Harness) -> None:
    server = harness.server()
    for status in (500, 503):
        for stream in list_stream_modes(server.provider):
            server.script.requests.clear()
            server.script.add(
                *[_make_error_response(server.wire, status, "api_error", "Internal error.", retry_after="0")] * 3
            )
            _expect_error(server, harness, Overloaded, f"status {status}", stream=stream)
            assert_equal(len(server.script.requests), 3, "tries")
            assert_equal(len(set(server.script.requests)), 1, "different requests among the tries")
    server.script.add(_make_error_response(server.wire, 503, "api_error", "Internal error.", retry_after="0"))
    server.add_answers(STORY, stream=False)
    assert_equal(harness.chat(server.provider).send("Hello.").text, STORY, "the answer at the second try")


@add_to(ERROR_CASES, scripted=True)
def an_html_page_is_a_bad_answer(harness: Harness) -> None:
    server = harness.server()
    for stream in list_stream_modes(server.provider):
        server.script.add(PAGE)
        _expect_error(server, harness, BadAnswer, "a page of HTML", stream=stream)


@add_to(ERROR_CASES, scripted=True)
def a_request_that_is_too_long_raises_context_overflow(harness: Harness) -> None:
    server = harness.server()
    for stream in list_stream_modes(server.provider):
        server.script.add(*[_make_overflow_response(server.wire)] * 2)
        error = _expect_error(server, harness, ContextOverflow, "a request that is too long", stream=stream)
        assert_true(error.window in (None, WINDOW), f"the window on the error is {error.window}")


@add_to(ERROR_CASES, scripted=True)
def a_missing_server_is_unreachable(harness: Harness) -> None:
    server = harness.server(absent=True)
    for stream in list_stream_modes(server.provider):
        assert_raises(Unreachable, partial(server.call, stream=stream), "no server")


@add_to(ERROR_CASES, scripted=True)
def a_connection_closed_before_an_answer_is_unreachable(harness: Harness) -> None:
    server = harness.server()
    for stream in list_stream_modes(server.provider):
        server.script.add(ScriptedResponse(cut=True))
        assert_raises(Unreachable, partial(server.call, stream=stream), "a closed connection")


@add_to(ERROR_CASES, scripted=True)
def half_a_body_is_an_error(harness: Harness) -> None:
    server = harness.server()
    server.script.add(ScriptedResponse(b'{"half":', cut=True))
    error = assert_raises(ProviderError, lambda: server.call(stream=False), "half a body")
    assert_true(not isinstance(error, RequestRefused), f"half a body is {type(error).__name__}")


@add_to(ERROR_CASES, scripted=True)
def a_broken_stream_keeps_its_text(harness: Harness) -> None:
    server = harness.server()
    begin_story(server, cut=True)
    server.add_answers("And then?", stream=False)
    error = _expect_error(server, harness, StreamCut, "a broken stream", stream=True)
    assert_equal(len(server.script.requests), 1, "requests for a stream that broke")
    text = error.partial.text if error.partial else ""
    assert_true(text and STORY.startswith(text), f"the text from before the break is lost: {text!r}")
    reply = harness.chat(server.provider).send("Go on.", state=error.state)
    assert_equal(reply.text, "And then?", "the next answer")
    assert_true(
        json_bytes.encode(text)[1:-1] in server.script.requests[-1], "the text from before the break is not sent back"
    )
    validate(server.script.requests[-1], wire=server.wire)


@add_to(ERROR_CASES, scripted=True)
def the_next_turn_works_after_any_error(harness: Harness) -> None:
    server = harness.server()
    for stream in list_stream_modes(server.provider):
        for failure in (
            PAGE,
            _make_error_response(server.wire, 401, "authentication_error", "No."),
            _make_overflow_response(server.wire),
        ):
            server.script.add(failure, failure)
            _expect_error(server, harness, ProviderError, "a failure", stream=stream)
            server.script.clear()
            server.add_answers(STORY, stream=stream)
            assert_equal(
                run_turn(harness.chat(server.provider), "Hello.", stream=stream).text,
                STORY,
                "the answer after an error",
            )


@add_to(ERROR_CASES, scripted=True)
def errors_never_contain_the_key(harness: Harness) -> None:
    server, absent = harness.server(), harness.server(absent=True)
    errors: list[ProviderError] = []
    for stream in list_stream_modes(server.provider):
        server.script.add(
            _make_error_response(server.wire, 401, "authentication_error", "No."), PAGE, ScriptedResponse(cut=True)
        )
        errors.append(_expect_error(server, harness, ProviderError, "a wrong key", stream=stream))
        errors.append(_expect_error(server, harness, ProviderError, "a page of HTML", stream=stream))
        for each, label in ((server, "a closed connection"), (absent, "no server")):
            call = partial(each.call, stream=stream)
            errors.append(assert_raises(ProviderError, call, label))
    for each in (server, absent):
        assert_true(
            each.script.key not in f"{each.provider.account} {each.provider.label}",
            "the account or the label contains the key",
        )
        for error in errors:
            assert_true(each.script.key not in _collect_text(error), f"{type(error).__name__} contains the key")
    assert_true(server.provider.account != absent.provider.account, "two keys at two addresses have the same account")


@add_to(ERROR_CASES, scripted=True)
def a_key_that_the_server_quotes_is_redacted(harness: Harness) -> None:
    server = harness.server()
    for stream in list_stream_modes(server.provider):
        for form, quoted in _quote_key(server.script.key).items():
            for label, response in _make_quoting_responses(server.wire, quoted, stream=stream).items():
                server.script.clear()
                server.script.add(*[response] * 3)
                error = _expect_error(server, harness, ProviderError, f"{label} that quotes the key", stream=stream)
                text = _collect_text(error).replace("\\", "")
                quote = quoted.replace("\\", "")
                assert_true(
                    quote not in text and server.script.key not in text,
                    f"{type(error).__name__} of {label} contains the key {form}",
                )


def _quote_key(key: str) -> dict[str, str]:
    """Return the forms in which a server may quote the API key in a JSON string, by description."""
    return {
        "as it is": key,
        "with JSON escapes": "".join(f"\\u{ord(each):04x}" for each in key),
        "in a URL": "".join(f"%{ord(each):02X}" for each in key),
        "in Base64": base64.b64encode(f"user:{key}".encode()).decode(),
    }


def _make_quoting_responses(wire: str, quoted: str, *, stream: bool) -> dict[str, ScriptedResponse]:
    """Return error responses that quote a key, by description. `quoted` is inserted into them without escaping."""
    filled = _make_error_response(wire, 401, "QUOTE", f"{'x' * 480} QUOTE {'x' * 480}", retry_after="0")
    in_json = filled.body.replace(b"QUOTE", quoted.encode())
    found = {
        "a JSON error": replace(filled, body=in_json),
        "a JSON error of another form": replace(filled, status=500, body=b'{"a":["%s"]}' % quoted.encode()),
        "a text": replace(filled, body=f"No: {quoted}".encode()),
        "a page": replace(PAGE, body=f"<html>{quoted}</html>".encode()),
        "a redirect": ScriptedResponse(status=307, headers={"location": f"http://127.0.0.1:9/?key={quoted}"}),
    }
    if stream:
        found["an error in a stream"] = ScriptedResponse(events=(in_json,))
        found["a broken event"] = ScriptedResponse(events=(b'{"%s' % quoted.encode(),))
    return found


def _collect_text(error: BaseException | None) -> str:
    """Return all text that can be printed about an error and its causes."""
    return f"{error!r} {error} {vars(error)} {_collect_text(error.__cause__ or error.__context__)}" if error else ""
