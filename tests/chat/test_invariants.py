"""What must hold for any conversation: tools, events, errors and cancellation at any step, for ever.

Hypothesis writes the story: what the user, the model, the tools, the network and the app do, and which policy
leaves what out. After every step the state is loaded again, and the validator checks every request that was sent.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Chat, LongtalkError, System, peek, tool
from longtalk.errors import Overloaded, RequestRefused, StreamCut
from longtalk.events import Checkpoint
from longtalk.state.codec import decode, encode
from longtalk.testing import Scripted, Step, says, validate
from longtalk.wires import NAMES, WIRES
from tests.policies.drawn import policies
from tests.support.properties import examples

words = st.text(min_size=1, max_size=30).filter(lambda text: text.strip() != "")


@tool(idempotent=True)
def lookup(q: str) -> str:
    """Look something up."""
    return q


def fail(q: str) -> str:
    """Always fails."""
    raise ValueError(q)


class Killed(BaseException):
    """The process dies here."""


def die() -> str:
    """Takes the process with it."""
    raise Killed


call_names = st.sampled_from(["lookup", "fail", "die", "unknown"])
arguments = st.one_of(st.fixed_dictionaries({"q": words}), st.just("{broken"), st.just({}))


@st.composite
def steps(draw: st.DrawFn, wire: str, number: int) -> Any:
    """An answer of a model, or trouble instead of it, or in the middle of it."""
    calls = draw(st.lists(st.tuples(call_names, arguments), max_size=3))
    text = draw(st.none() | words)
    if wire == "anthropic":
        fields = {"thinking": draw(st.lists(words, max_size=1))}
        finish = draw(st.sampled_from([None, "max_tokens", "refusal"]))
    elif wire == "gemini":
        fields = {"thinking": draw(st.lists(words, max_size=1))}
        finish = draw(st.sampled_from([None, "MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL"]))
    elif wire == "openai-responses":
        fields = {"reasoning": draw(st.lists(words, max_size=2)), **draw(st.sampled_from([{}, {"odd": 1}]))}
        finish = draw(st.sampled_from([None, "max_output_tokens", "content_filter"]))
    else:
        fields = draw(st.dictionaries(st.sampled_from(["reasoning_content", "odd"]), words, max_size=2))
        finish = draw(st.sampled_from([None, "length", "content_filter"]))
    # Gemini's models may call without an id.
    named = wire != "gemini" or draw(st.booleans())
    written = [(f"call_{number:03}_{i}" if named else "", name, args) for i, (name, args) in enumerate(calls)]
    step = says(text, calls=written, fields=fields, finish=finish, pieces=draw(st.integers(1, 5)), wire=wire)
    match draw(st.sampled_from(["fine", "fine", "fine", "refused", "busy", "cut", "error", "garbage"])):
        case "refused":
            return RequestRefused("no", status=400, body=b"property 'odd' is unsupported")
        case "busy":
            return Overloaded("busy")
        case "cut":
            kept = step.events[: draw(st.integers(0, len(step.events)))]
            return Step(body=step.body[: draw(st.integers(0, len(step.body)))], events=(*kept, StreamCut("cut")))
        case "error":
            kept = step.events[: draw(st.integers(0, len(step.events)))]
            return Step(body=b'{"error":{"message":"no"}}', events=(*kept, b'{"error":{"message":"no"}}'))
        case "garbage":
            return Step(body=b"<html>", events=(b"<html>",))
    return step


doings = st.one_of(
    st.tuples(st.just("note"), words),
    st.tuples(st.just("send"), words),
    st.tuples(st.just("system"), words),
    st.tuples(st.just("stream"), words),
    st.tuples(st.just("stop"), words, st.integers(0, 30)),
    st.tuples(st.just("crash"), words, st.integers(0, 6)),
    st.tuples(st.just("resume"), words),
)


def do(chat: Chat, doing: tuple[Any, ...], state: bytes | None) -> bytes | None:
    """One thing that an app does; the state that it holds afterwards."""
    kind, text, *rest = doing
    if kind == "note":
        return chat.note(text, state=state)
    if kind == "send":
        return chat.send(text, state=state, system=text[:1], instruction=text).state
    if kind == "system":
        return chat.send([System(text), text], state=state).state
    if kind == "resume":
        return chat.send(None, state=state).state
    held = state
    with chat.stream(text, state=state) as stream:
        for i, event in enumerate(stream):
            if kind == "crash" and isinstance(event, Checkpoint):
                held = event.state
                if rest[0] == 0:
                    return held
                rest[0] -= 1
            if kind == "stop" and i == rest[0]:
                break
    return stream.reply.state


@st.composite
def scripts(draw: st.DrawFn, wire: str) -> list[Any]:
    return [draw(steps(wire, number)) for number in range(draw(st.integers(8, 30)))]


stories = st.lists(doings, min_size=1, max_size=8)


@examples(30, 130)
@given(scripts("openai-chat"), stories, policies)
def test_every_request_of_every_conversation_is_valid_and_nothing_is_lost(
    script: list[Any], story: list[tuple[Any, ...]], policy: Any
) -> None:
    play("openai-chat", script, story, policy)


@examples(30, 130)
@given(scripts("anthropic"), stories, policies)
def test_every_request_of_a_conversation_with_thinking_is_valid(
    script: list[Any], story: list[tuple[Any, ...]], policy: Any
) -> None:
    play("anthropic", script, story, policy)


@pytest.mark.slow
@examples(30, 130)
@given(scripts("gemini"), stories, policies)
def test_every_request_of_a_conversation_with_signatures_is_valid(
    script: list[Any], story: list[tuple[Any, ...]], policy: Any
) -> None:
    play("gemini", script, story, policy)


@pytest.mark.slow
@examples(30, 130)
@given(scripts("openai-responses"), stories, policies)
def test_every_request_of_a_conversation_with_encrypted_reasoning_is_valid(
    script: list[Any], story: list[tuple[Any, ...]], policy: Any
) -> None:
    play("openai-responses", script, story, policy)


def play(wire: str, script: list[Any], story: list[tuple[Any, ...]], policy: Any) -> None:
    enough = [says("enough", wire=wire) for _ in range(30)]
    provider = Scripted(*script, *enough, wire=WIRES[wire])
    chat = Chat(provider, policy=policy, tools=[lookup, fail, die])
    state: bytes | None = None
    known: list[bytes] = []
    for doing in story:
        before = len(provider.requests)
        try:
            state = do(chat, doing, state)
        except (LongtalkError, Killed) as problem:
            state = getattr(problem, "state", state)
        for request in provider.requests[before:]:
            validate(request, wire=wire)
        if state is not None:
            transcript = decode(state, wires=NAMES)
            natives = [entry.native for entry in transcript]
            # What was said stays said: an old state's entries are the beginning of the new one's.
            assert natives[: len(known)] == known
            known = natives
            assert decode(encode(transcript), wires=NAMES) == transcript
            assert peek(state).entries == len(transcript)
            parents = [entry.parent for entry in transcript]
            assert parents == [None, *(entry.id for entry in transcript)][:-1]
            ends = [stop for _, stop in transcript.exchanges()]
            assert ends[-1:] == [len(transcript)]
    last = Scripted(says("Good night.", wire=wire), wire=WIRES[wire])
    Chat(last, tools=[lookup]).send("the end", state=state)
    validate(last.requests[0], wire=wire)
    body = json.loads(last.requests[0])
    listed = next(body[name] for name in ("messages", "input", "contents") if name in body)
    assert b"the end" in json.dumps(listed[-1]).encode()
