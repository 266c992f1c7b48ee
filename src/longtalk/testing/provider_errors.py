"""Cases with a server that has trouble: each kind is the error that says what to do about it."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from longtalk import _json
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
from longtalk.testing.provider_bytes import STORY, told
from longtalk.testing.provider_cases import Case, Desk, Stage, into, turn, ways
from longtalk.testing.provider_script import Act
from longtalk.testing.report import holds, raises, same
from longtalk.testing.validate import validate

E = TypeVar("E", bound=ProviderError)

ERRORS: list[Case] = []

PAGE = Act(b"<html><body><h1>Log in to the hotel's network</h1></body></html>", headers={"content-type": "text/html"})
WINDOW, LENGTH = 8192, 9000


def _refusal(wire: str, status: int, kind: str, message: str, **headers: str) -> Act:
    """An error in the form of a wire."""
    error: dict[str, object] = {"message": message, "type": kind, "code": kind, "param": None}
    if wire == "gemini":
        error = {"code": status, "message": message, "status": kind.upper()}
    body = {"type": "error", "error": {"type": kind, "message": message}} if wire == "anthropic" else {"error": error}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Act(_json.encode(body), status=status, headers={"content-type": "application/json", **named})


def _too_long(wire: str) -> Act:
    words = {
        "anthropic": f"prompt is too long: {LENGTH} tokens > {WINDOW} maximum",
        "gemini": f"The input token count ({LENGTH}) exceeds the maximum number of tokens allowed ({WINDOW}).",
    }
    usual = (
        f"This model's maximum context length is {WINDOW} tokens. However, your messages resulted in {LENGTH} tokens."
    )
    kinds = {"anthropic": "invalid_request_error", "gemini": "invalid_argument"}
    return _refusal(wire, 400, kinds.get(wire, "context_length_exceeded"), words.get(wire, usual))


def _fails(stage: Stage, desk: Desk, kind: type[E], what: str, *, stream: bool) -> E:
    """A turn that raises this error."""
    chat = desk.chat(stage.provider)
    return raises(kind, lambda: turn(chat, "Hello.", stream=stream), what)


@into(ERRORS, scripted=True)
def a_key_that_is_not_taken_is_told_and_not_tried_again(desk: Desk) -> None:
    stage = desk.stage()
    for status, kind in ((401, "authentication_error"), (403, "permission_error")):
        for stream in ways(stage.provider):
            stage.script.requests.clear()
            act = _refusal(stage.wire, status, kind, "Not with this key.")
            stage.script.add(act)
            error = _fails(stage, desk, AuthFailed, f"status {status}", stream=stream)
            same(error.status, status, "the status on the error")
            same(error.body, act.body, "what the server said, on the error")
            same(len(stage.script.requests), 1, "requests with a wrong key")


@into(ERRORS, scripted=True)
def a_request_that_is_refused_is_not_tried_again(desk: Desk) -> None:
    stage = desk.stage()
    for status in (400, 404, 422):
        for stream in ways(stage.provider):
            stage.script.requests.clear()
            stage.script.add(_refusal(stage.wire, status, "invalid_request_error", "No."))
            error = _fails(stage, desk, RequestRefused, f"status {status}", stream=stream)
            holds(not isinstance(error, AuthFailed | ContextOverflow), f"status {status} is {type(error).__name__}")
            same(error.status, status, "the status on the error")
            same(len(stage.script.requests), 1, "requests that were refused")


@into(ERRORS, scripted=True)
def another_address_is_told_and_not_gone_to(desk: Desk) -> None:
    # Whoever goes there takes the key along.
    stage = desk.stage()
    for stream in ways(stage.provider):
        stage.script.add(Act(status=307, headers={"location": "http://127.0.0.1:9/elsewhere"}))
        error = _fails(stage, desk, RequestRefused, "status 307", stream=stream)
        same(error.status, 307, "the status on the error")


@into(ERRORS, scripted=True)
def a_limit_of_requests_is_waited_for(desk: Desk) -> None:
    stage = desk.stage()
    for stream in ways(stage.provider):
        stage.script.requests.clear()
        stage.script.add(_refusal(stage.wire, 429, "rate_limit_error", "Too many requests.", retry_after="0"))
        stage.says(STORY, stream=stream)
        same(turn(desk.chat(stage.provider), "Hello.", stream=stream).text, STORY, "the answer after a short wait")
        same(stage.script.requests[1], stage.script.requests[0], "the request that was made again")
        stage.script.add(_refusal(stage.wire, 429, "rate_limit_error", "Too many requests.", retry_after="7200"))
        error = _fails(stage, desk, RateLimited, "status 429", stream=stream)
        same(error.retry_after, 7200.0, "seconds to wait, as the server says")


@into(ERRORS, scripted=True)
def trouble_of_the_server_is_tried_again_and_then_told(desk: Desk) -> None:
    stage = desk.stage()
    for status in (500, 503):
        for stream in ways(stage.provider):
            stage.script.requests.clear()
            stage.script.add(*[_refusal(stage.wire, status, "api_error", "Oh.", retry_after="0")] * 3)
            _fails(stage, desk, Overloaded, f"status {status}", stream=stream)
            same(len(stage.script.requests), 3, "tries")
            same(len(set(stage.script.requests)), 1, "different requests among them")
    stage.script.add(_refusal(stage.wire, 503, "api_error", "Oh.", retry_after="0"))
    stage.says(STORY, stream=False)
    same(desk.chat(stage.provider).send("Hello.").text, STORY, "the answer at the second try")


@into(ERRORS, scripted=True)
def a_page_is_no_answer(desk: Desk) -> None:
    stage = desk.stage()
    for stream in ways(stage.provider):
        stage.script.add(PAGE)
        _fails(stage, desk, BadAnswer, "a page of HTML", stream=stream)


@into(ERRORS, scripted=True)
def a_request_that_is_too_long_is_told_with_the_window(desk: Desk) -> None:
    stage = desk.stage()
    for stream in ways(stage.provider):
        stage.script.add(*[_too_long(stage.wire)] * 2)
        error = _fails(stage, desk, ContextOverflow, "a request that is too long", stream=stream)
        holds(error.window in (None, WINDOW), f"the window on the error is {error.window}")


@into(ERRORS, scripted=True)
def nobody_there_is_unreachable(desk: Desk) -> None:
    stage = desk.stage(absent=True)
    for stream in ways(stage.provider):
        raises(Unreachable, partial(stage.call, stream=stream), "no server")


@into(ERRORS, scripted=True)
def a_line_that_breaks_before_an_answer_is_unreachable(desk: Desk) -> None:
    stage = desk.stage()
    for stream in ways(stage.provider):
        stage.script.add(Act(cut=True))
        raises(Unreachable, partial(stage.call, stream=stream), "a broken line")


@into(ERRORS, scripted=True)
def half_a_body_is_no_answer(desk: Desk) -> None:
    stage = desk.stage()
    stage.script.add(Act(b'{"half":', cut=True))
    error = raises(ProviderError, lambda: stage.call(stream=False), "half a body")
    holds(not isinstance(error, RequestRefused), f"half a body is {type(error).__name__}")


@into(ERRORS, scripted=True)
def a_stream_that_is_cut_keeps_what_came(desk: Desk) -> None:
    stage = desk.stage()
    told(stage, cut=True)
    stage.says("And then?", stream=False)
    error = _fails(stage, desk, StreamCut, "a stream that is cut", stream=True)
    same(len(stage.script.requests), 1, "requests for a stream that has begun")
    text = error.partial.text if error.partial else ""
    holds(text and STORY.startswith(text), f"what came before is lost: {text!r}")
    reply = desk.chat(stage.provider).send("Go on.", state=error.state)
    same(reply.text, "And then?", "the next answer")
    holds(_json.encode(text)[1:-1] in stage.script.requests[-1], "what came before is not sent back")
    validate(stage.script.requests[-1], wire=stage.wire)


@into(ERRORS, scripted=True)
def after_any_error_the_next_turn_is_answered(desk: Desk) -> None:
    stage = desk.stage()
    for stream in ways(stage.provider):
        for trouble in (PAGE, _refusal(stage.wire, 401, "authentication_error", "No."), _too_long(stage.wire)):
            stage.script.add(trouble, trouble)
            _fails(stage, desk, ProviderError, "trouble", stream=stream)
            stage.script.clear()
            stage.says(STORY, stream=stream)
            same(turn(desk.chat(stage.provider), "Hello.", stream=stream).text, STORY, "the answer after an error")


@into(ERRORS, scripted=True)
def a_key_is_never_shown(desk: Desk) -> None:
    stage, absent = desk.stage(), desk.stage(absent=True)
    errors: list[ProviderError] = []
    for stream in ways(stage.provider):
        stage.script.add(_refusal(stage.wire, 401, "authentication_error", "No."), PAGE, Act(cut=True))
        errors.append(_fails(stage, desk, ProviderError, "a wrong key", stream=stream))
        errors.append(_fails(stage, desk, ProviderError, "a page of HTML", stream=stream))
        for each, what in ((stage, "a broken line"), (absent, "no server")):
            call = partial(each.call, stream=stream)
            errors.append(raises(ProviderError, call, what))
    for each in (stage, absent):
        holds(each.script.key not in f"{each.provider.account} {each.provider.label}", "the account names the key")
        for error in errors:
            holds(each.script.key not in _all_of(error), f"{type(error).__name__} names the key")
    holds(stage.provider.account != absent.provider.account, "two keys at two addresses are one account")


def _all_of(error: BaseException | None) -> str:
    """What is printed of an error and of what it comes from."""
    return f"{error!r} {error} {vars(error)} {_all_of(error.__cause__ or error.__context__)}" if error else ""
