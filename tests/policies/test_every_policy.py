"""Test every policy: requests are valid, limits hold, and the cache is used within an epoch."""

from __future__ import annotations

import contextlib
import json
import re
from itertools import groupby
from typing import Any

import msgspec
import pytest
from hypothesis import event as noticed
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Chat, LongtalkError, System
from longtalk.context.compose import Context
from longtalk.context.epochs import begin_epoch
from longtalk.context.measure import Terms
from longtalk.context.planning import make_plan
from longtalk.errors import ContextOverflow, Overloaded, RequestRefused
from longtalk.memory.brief.schema import Brief
from longtalk.policies import (
    Combine,
    Compactor,
    DigestTools,
    DropOldest,
    KeepLast,
    KeepMessages,
    Memory,
    OverExchanges,
    TokenBudget,
)
from longtalk.policies.view import NOTE_TOKENS
from longtalk.state.codec import decode
from longtalk.testing import Scripted, Step, says, validate
from longtalk.testing.policies import check_policy, transcript_of
from longtalk.tokens import Estimator
from longtalk.transcript.transcript import Transcript
from longtalk.wires import HTTP_WIRES, NAMES, WIRES
from tests.policies.drawn import policies, traces
from tests.support.matrix import EVERY_WIRE
from tests.support.properties import examples

_MARKS = re.compile(rb',"cache_control":\{"type":"ephemeral"\}')
_LIST = re.compile(rb'[,{]"(?:messages|input|contents)":\[')
_SHORTEST = 60 + NOTE_TOKENS
"""A result or an event is never cut to less than this."""


@pytest.mark.parametrize("wire", EVERY_WIRE)
@examples(35, 160)
@given(st.data(), policies)
def test_any_policy_on_any_conversation_sends_what_is_right(wire: str, data: st.DataObject, policy: Any) -> None:
    played = check_policy(policy, data.draw(traces(wire)), wire=wire)
    noticed(f"epochs: {min(played.epochs, 5)}")


@pytest.mark.slow
@pytest.mark.parametrize("wire", sorted(HTTP_WIRES))
@examples(35, 160)
@given(st.data(), policies, st.sampled_from([100, 300, 600, 1_000, 2_000]))
def test_any_policy_sends_valid_requests_in_a_small_window_unless_the_message_is_too_long(
    wire: str, data: st.DataObject, policy: Any, window: int
) -> None:
    transcript = data.draw(traces(wire))
    try:
        check_policy(policy, transcript, wire=wire, window=window)
        noticed("fits")
    except ContextOverflow as problem:
        noticed("too long")
        assert problem.window == window
        assert problem.tokens is not None
        assert problem.tokens > window
        asked = [i for i, entry in enumerate(transcript) if i and entry.role == "assistant"]
        assert any(least(transcript, i) > window for i in asked)


def echoed(*texts: str) -> Transcript:
    """Return a conversation in which each of these messages is answered with itself."""
    return transcript_of([{"role": role, "content": text} for text in texts for role in ("user", "assistant")])


def test_memory_keeps_fewer_recent_exchanges_than_configured_if_the_window_requires_it() -> None:
    policy = Memory(brief=Brief(20), outline=0, recent=50, recall=0, limit=100)
    assert check_policy(policy, echoed("word", "word", "word", "word " * 230), window=300).epochs


def test_a_brief_replaces_what_another_policy_leaves_out_whether_the_state_sheds_it_or_not() -> None:
    policy = Combine(TokenBudget(20), Memory(brief=Brief(20), outline=0, recent=0, recall=0, limit=0))
    assert check_policy(policy, echoed(*["word " * 6] * 3), window=100).epochs


def test_digest_lines_that_one_policy_leaves_give_way_to_a_limit_of_another() -> None:
    digesting = Compactor(OverExchanges(1), (DigestTools(keep=1, longest=5), DropOldest()), OverExchanges(1))
    policy = Combine(digesting, Memory(brief=Brief(20), outline=0, recent=0, recall=0, limit=0))
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q":"word"}'}}
    transcript = transcript_of(
        [
            {"role": "user", "content": "word"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "word"},
            {"role": "assistant", "content": "word"},
            {"role": "user", "content": "word " * 130},
            {"role": "assistant", "content": "word"},
        ]
    )
    assert check_policy(policy, transcript, window=200).epochs


def least(transcript: Transcript, stop: int) -> int:
    """How short the current exchange of the first `stop` entries can be made: what was said and called stays."""
    so_far = Transcript().add([transcript[i] for i in range(stop)])
    first, _ = so_far.exchanges()[-1]
    total = 0
    for is_event, group in groupby(
        [transcript[i] for i in range(first, stop)], key=lambda entry: entry.kind == "event"
    ):
        entries = list(group)
        if is_event and len(entries) > 3:
            entries = [entries[0], entries[-1]]
            total += NOTE_TOKENS
        for entry in entries:
            can_be_cut = (is_event or entry.role == "tool") and entry.tokens > _SHORTEST - NOTE_TOKENS
            total += _SHORTEST if can_be_cut else entry.tokens
    return total


# Whole conversations


class Reporting(Scripted):
    """Reports how long requests are: rightly, or as if tokens were shorter or longer than we think."""

    def __init__(self, *steps: Step | BaseException, times: float, wire: str, window: int | None) -> None:
        super().__init__(*steps, wire=WIRES[wire], window=window)
        self.times = times

    def send(self, body: bytes) -> bytes:
        answer = json.loads(super().send(body))
        tokens = round(self.times * len(body) / 4)
        name = {"openai-chat": "prompt_tokens", "gemini": "promptTokenCount"}.get(self.wire.name, "input_tokens")
        usage = "usageMetadata" if self.wire.name == "gemini" else "usage"
        return json.dumps({**answer, usage: {name: tokens} if tokens else {}}).encode()


def look(q: str) -> str:
    """Look something up."""
    return f"found {q} " * len(q)


_words = st.builds(lambda n: "word " * n, st.sampled_from([1, 1, 2, 5, 10, 100]))
_seldom = st.integers(0, 15).map(lambda n: n == 7)
_sends = st.tuples(st.just("send"), _words, st.none() | _words, _seldom)
_doings = st.one_of(st.tuples(st.just("note"), _words), _sends, _sends, _sends)


@st.composite
def _steps(draw: st.DrawFn, wire: str, number: int) -> Step | BaseException:
    match draw(st.sampled_from([*["says"] * 4, *["calls"] * 4, "busy", "refused", "too long", "empty"])):
        case "busy":
            return Overloaded("busy")
        case "refused":
            return RequestRefused("no", status=400)
        case "too long":
            problem = ContextOverflow("too long", status=400)
            problem.window = draw(st.sampled_from([None, 500, 2_000]))
            return problem
        case "empty":
            return says(None, wire=wire)
        case "says":
            text, calls = draw(_words), []
        case _:
            text = draw(st.none() | _words)
            calls = [
                (f"call_{number}_{i}", "look", {"q": "x" * draw(st.integers(1, 20))})
                for i in range(draw(st.integers(1, 3)))
            ]
    thoughts = {"anthropic": "thinking", "gemini": "thinking", "openai-responses": "reasoning"}
    fields = {thoughts[wire]: draw(st.lists(_words, max_size=1))} if wire in thoughts else {}
    return says(text, calls=calls, fields=fields, wire=wire)


@pytest.mark.parametrize("wire", EVERY_WIRE)
@examples(50, 210)
@given(
    st.data(),
    policies,
    st.lists(_doings, min_size=6, max_size=12),
    st.sampled_from([0, 0.5, 1, 1.7]),
    st.sampled_from([None, None, 1_000, 4_000]),
)
def test_inside_an_epoch_every_request_begins_with_the_one_before(
    wire: str, data: st.DataObject, policy: Any, story: list[tuple[Any, ...]], times: float, window: int | None
) -> None:
    script = [data.draw(_steps(wire, number)) for number in range(12)]
    provider = Reporting(*script, *[says("enough", wire=wire)] * 40, times=times, wire=wire, window=window)
    chat = Chat(provider, policy=policy)
    state: bytes | None = None
    last: tuple[Any, Context, bytes] | None = None
    for kind, text, *rest in story:
        if kind == "note":
            state = chat.note(text, state=state)
            continue
        instruction, changes = rest
        system, tools = ("B" * 40, []) if changes else ("A.", [look])
        seen = len(provider.requests)
        message = [System("Be brief."), text] if len(text) == 10 else text
        try:
            reply = chat.send(message, state=state, instruction=instruction, system=system, tools=tools)
        except LongtalkError as problem:
            reply = problem.partial  # type: ignore[attr-defined]
        requests = provider.requests[seen:]
        for request in requests:
            validate(request, wire=wire)
        # Asking for a summary is no part of the conversation.
        requests = [request for request in requests if b"<summary_request>" not in request]
        if reply is None or reply.context is None:
            continue
        state, context = reply.state, reply.context
        check_manifest(decode(state, wires=NAMES), context)
        preamble = system
        if last is not None and (last[0], last[1].epoch) == (preamble, context.epoch):
            before = last[2]
            noticed("inside an epoch")
            for request in requests:
                assert messages(request).startswith(before)
                # What tools run behind stays; only what a turn ends with may go.
                before = messages(request)
        last = (preamble, context, head(requests[-1], context))


def messages(request: bytes) -> bytes:
    """The messages of a request, without the marks for the provider's cache."""
    return _MARKS.sub(b"", _LIST.split(request, maxsplit=1)[1])[: -len(b"]}")]


def head(request: bytes, context: Context) -> bytes:
    """What the next request should begin with."""
    whole = messages(request)
    behind = context.pieces[context.mark :]
    for piece in reversed(behind):
        assert whole.endswith(piece)
        whole = whole[: -len(piece) - len(b",")]
    return whole


def check_manifest(transcript: Transcript, context: Context) -> None:
    covered = [place for run in context.manifest for place in range(run.first, run.last + 1)]
    assert covered == list(range(len(covered)))
    # All but what the model said to this, and the calls of it that were closed.
    later = [transcript[i] for i in range(len(covered), len(transcript))]
    assert all(entry.role in ("assistant", "tool") for entry in later)
    with contextlib.suppress(StopIteration):
        assert next(entry.role for entry in later) == "assistant"


# The exchange before the current one


@pytest.mark.parametrize("wire", EVERY_WIRE)
@examples(35, 160)
@given(
    st.data(),
    st.one_of(
        st.builds(KeepLast, st.integers(2, 5), to=st.sampled_from([None, 1, 2])),
        st.builds(KeepMessages, st.integers(3, 20), to=st.sampled_from([None, 1, 3])),
        st.builds(TokenBudget, st.integers(100, 1_500), to=st.sampled_from([None, 1, 100])),
    ),
)
def test_the_exchange_before_the_current_one_is_sent_wherever_the_limit_has_room(
    wire: str, data: st.DataObject, policy: Any
) -> None:
    transcript = data.draw(traces(wire))
    terms = Terms(wire=WIRES[wire], counter=Estimator(), model="m", preamble="", fixed=0, window=None, answer=0)
    so_far = Transcript()
    for entry in transcript:
        so_far = so_far.append_to_turn(entry.turn, [entry])
        if entry.role != "user":
            continue
        made = make_plan(so_far, policy, terms)
        so_far = begin_epoch(so_far, made.epoch) if made.begins else so_far
        exchanges = so_far.exchanges()
        if len(exchanges) < 2:
            continue
        (first, _), (_, stop) = exchanges[-2:]
        both = Both(2, stop - first, so_far.tokens(first, stop))
        if not policy.compactors[0].over.fires(both):
            noticed("has room")
            # What an epoch sends whole begins there at the latest.
            assert made.epoch.raw <= first


class Both(msgspec.Struct):
    exchanges: int
    messages: int
    tokens: int
    window: int = 32_000
