"""Regression tests for faults that adversarial tests of policies have found."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from longtalk import Chat, KeepAll, KeepLast, TokenBudget
from longtalk.context.epochs import Epoch, Pin
from longtalk.context.suffixes import TurnSuffix
from longtalk.errors import ContextOverflow, InputError, RequestRefused
from longtalk.policies import Compactor, OverExchanges, View
from longtalk.policies.base import fingerprint_policy
from longtalk.state.codec import decode, encode
from longtalk.testing import Scripted, Step, says, validate
from longtalk.tokens import Estimator, count_message, counter_for
from longtalk.transcript.manifest import Run
from longtalk.wires import HTTP_WIRES, NAMES, WIRES


def look(q: str) -> str:
    """Look something up."""
    return f"ok {q}"


def grown(chat: Chat, turns: int = 5) -> bytes:
    state = None
    for _ in range(turns):
        state = chat.send("hello " * 50, state=state).state
    assert state is not None
    return state


def forged(state: bytes, kind: str, value: Any) -> bytes:
    return encode(decode(state, wires=NAMES).add_record(kind, msgspec.json.encode(value), replace=True))


@pytest.mark.parametrize("stream", [False, True])
def test_an_overflow_in_a_good_status_is_learnt_from(stream: bool) -> None:
    error = {"message": "maximum context length is 1000 tokens, however you requested 1200", "code": 400}
    said = json.dumps({"error": error}).encode()
    chat = Chat(Scripted(*[says("ok " * 50)] * 5, Step(said, (said,)), says("fine")))
    state = grown(chat)
    if stream:
        with chat.stream("last", state=state) as events:
            for _ in events:
                pass
        assert events.reply.text == "fine"
    else:
        assert chat.send("last", state=state).text == "fine"


@pytest.mark.parametrize(("window", "tokens"), [(128_000, 130_000), (8_000, None), (10**30, None), (8_000, 10**30)])
def test_an_overflow_is_believed_however_short_we_count(window: int, tokens: int | None) -> None:
    problem = ContextOverflow("too long", status=400)
    problem.window, problem.tokens = window, tokens
    chat = Chat(Scripted(*[says("ok " * 50)] * 5, problem, *[says("fine")] * 2))
    if tokens == 10**30:
        with pytest.raises(ContextOverflow):
            chat.send("last", state=grown(chat))
        return
    reply = chat.send("last", state=grown(chat))
    assert reply.text == "fine"
    assert chat.send("more", state=reply.state).text == "fine"


@pytest.mark.parametrize("wire", sorted(HTTP_WIRES))
def test_instructions_that_stay_count(wire: str) -> None:
    steps = []
    for i in range(30):
        steps += [says(None, calls=[(f"c{i}", "look", {"q": "a"})], usage={"x": 1}, wire=wire)]
        steps += [says("done", usage={"x": 1}, wire=wire)]
    provider = Scripted(*steps, wire=WIRES[wire])
    chat, state = Chat(provider, policy=TokenBudget(4_000), tools=[look]), None
    for _ in range(30):
        state = chat.send("q", state=state, instruction="Mind this rule well. " * 60).state
        body = json.loads(provider.requests[-1])
        sent = next(body[name] for name in ("messages", "input", "contents") if name in body)
        assert sum(count_message(json.dumps(each).encode(), counter_for("scripted:model")) for each in sent) < 4_400


def test_a_conversation_that_begins_with_a_greeting_has_epochs() -> None:
    talk = [{"role": "assistant", "content": "Hi!"}]
    for i in range(6):
        talk += [{"role": "user", "content": f"{i}"}, {"role": "assistant", "content": "ok"}]
    state = json.dumps({"version": 1, "provider": "openai", "messages": talk}).encode()
    chat = Chat(Scripted(*[says("ok")] * 30), policy=KeepLast(6), carry="context")
    epochs, shed = set(), 0
    for _ in range(30):
        reply = chat.send("hello", state=state)
        assert reply.context is not None
        state = reply.state
        shed += reply.shed is not None
        epochs.add(reply.context.epoch)
    assert len(epochs) < 10
    assert shed > 5


class Odd:
    def __init__(self, *values: Any) -> None:
        self.values = list(values)

    def count(self, text: str) -> Any:
        value = self.values.pop(0) if len(self.values) > 1 else self.values[0]
        if isinstance(value, Exception):
            raise value
        return value


@pytest.mark.parametrize(
    "said",
    [
        *([2.5], [3, -5_000], [3, float("nan")], [3, None], [3, 2**60]),
        *[[*[3] * n, OSError()] for n in range(1, 7)],
    ],
)
@pytest.mark.parametrize("policy", [KeepAll(), TokenBudget(500)])
def test_a_counter_costs_no_answer(said: list[Any], policy: Any) -> None:
    chat = Chat(
        Scripted(says(None, calls=[("c", "look", {"q": "a"})]), says("hi"), says("ho")),
        counter=Odd(*said),
        policy=policy,
        tools=[look],
    )
    assert chat.send("y", state=chat.send("x").state).text == "ho"


def test_many_newlines_are_counted_without_delay() -> None:
    native = json.dumps({"role": "assistant", "content": "x", "reasoning_content": "\n" * 200_000 + "."}).encode()
    assert count_message(native, Estimator()) > 1_000


def test_an_empty_answer_that_is_reworded_has_one_verdict() -> None:
    empty = Step(b'{"type":"message","role":"assistant","content":[],"stop_reason":"pause_turn"}')
    called = says("hm", calls=[("c1", "look", {"q": "a"})], fields={"thinking": ["so"]}, wire="anthropic")
    steps = (empty, called, RequestRefused("no", status=400), says("fine", wire="anthropic"))
    chat = Chat(Scripted(*steps, wire=WIRES["anthropic"]), tools=[look])
    with pytest.raises(RequestRefused) as caught:
        chat.send("q", system="A")
    reply = chat.send(None, state=caught.value.state, system="B")
    assert reply.context is not None
    covered = [place for run in reply.context.manifest for place in range(run.first, run.last + 1)]
    assert covered == [0, 1, 2, 3]


def test_thinking_goes_back_again_after_something_was_shed() -> None:
    def calls(carry: Any) -> list[int]:
        thinks = {"fields": {"thinking": ["so"]}, "wire": "anthropic"}
        refusal = RequestRefused(
            "no", status=400, body=b"messages.1.content.0: Invalid `signature` in `thinking` block"
        )
        steps = [*[says("a", **thinks)] * 19, refusal]  # type: ignore[arg-type]
        for i in range(12):
            steps += [says("b", calls=[(f"c{i}", "look", {"q": "a"})], **thinks), says("a", **thinks)]  # type: ignore[arg-type]
        provider = Scripted(*steps, wire=WIRES["anthropic"])
        chat, state, found = Chat(provider, policy=KeepLast(20, to=2), tools=[look], carry=carry), None, []
        for _ in range(30):
            state = chat.send("q", state=state).state
            found.append(provider.requests[-1].count(b'"thinking"'))
        return found

    assert calls("context") == calls("all")


@pytest.mark.parametrize("wire", sorted(HTTP_WIRES))
def test_forged_records_break_no_request(wire: str) -> None:
    steps = []
    for i in range(3):
        steps += [says(None, calls=[(f"c{i}", "look", {"q": "a"})], wire=wire), says("done", wire=wire)]
    chat = Chat(Scripted(*steps, wire=WIRES[wire]), tools=[look])
    state = grown(chat, 3)

    def epoch(first: int, last: int, verdict: Any, keep: int) -> Epoch:
        runs = (
            Run(0, first - 1, "sent", "x"),
            Run(first, last, verdict, "x", keep=keep),
            Run(last + 1, 11, "sent", "x"),
        )
        return Epoch(fingerprint_policy(KeepAll()), 12, "x", runs, current=8, exchanges=3, messages=12)

    records = [
        ("aside", TurnSuffix("hi", 2)),
        ("epoch", epoch(1, 2, "sent", 5)),
        ("epoch", epoch(2, 2, "handed_out", 0)),
        ("epoch", epoch(1, 2, "summarised", 4)),
        ("window", {"scripted:model": -5}),
    ]
    for kind, value in records:
        provider = Scripted(says("fine", wire=wire), wire=WIRES[wire])
        Chat(provider, tools=[look]).send("next", state=forged(state, kind, value))
        validate(provider.requests[0], wire=wire)


def test_a_thousand_pins() -> None:
    chat = Chat(Scripted(*[says("ok")] * 2_004), policy=KeepLast(1_100, sliding=True))
    messages = [{"role": role, "content": "x"} for _ in range(2_200) for role in ("user", "assistant")]
    state = json.dumps({"version": 1, "provider": "openai", "messages": messages}).encode()
    state = forged(state, "pins", [Pin(4 * i, "x", "y") for i in range(1_000)])
    for _ in range(3):
        reply = chat.send("x", state=state)
        state = reply.state
    assert reply.text == "ok"


class Breaks(msgspec.Struct, frozen=True):
    how: str

    def apply(self, view: View, limits: Compactor) -> View:
        first = view.blocks[0]
        blocks = {
            "the last one": view.blocks[:1],
            "all": (),
            "a part": (msgspec.structs.replace(first, stop=first.first + 1), *view.blocks[1:]),
        }
        return view.with_blocks(blocks[self.how])


@pytest.mark.parametrize("how", ["the last one", "all", "a part"])
def test_a_strategy_can_take_no_exchange_apart(how: str) -> None:
    policy = Compactor(OverExchanges(2), (Breaks(how),), OverExchanges(1))
    chat = Chat(Scripted(*[says("ok")] * 4), policy=policy)
    with pytest.raises(InputError, match="strategy"):
        chat.send("3", state=grown(chat, 2))
