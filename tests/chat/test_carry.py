"""`carry="context"`: the state holds what later turns can reach, and what leaves it can be put back."""

from __future__ import annotations

import contextlib
import itertools
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Chat, Combine, InputError, KeepAll, KeepLast, Memory, Seal, TokenBudget, join
from longtalk.errors import BadState, Overloaded, PinRefused
from longtalk.policies import DigestTools, KeepMessages, Policy
from longtalk.state.codec import decode
from longtalk.testing import Scripted, says, validate
from longtalk.transcript.transcript import Transcript
from longtalk.wires import HTTP_WIRES, NAMES, WIRES
from tests.support.properties import examples


@pytest.fixture(autouse=True)
def _same_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of one story give the same ids and times."""
    reset(monkeypatch)


def reset(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, times = itertools.count(), itertools.count(1)
    for module in (
        "longtalk._sync.chat.chat",
        "longtalk.turn.draft",
        "longtalk.turn.message",
        "longtalk.transcript.transcript",
    ):
        monkeypatch.setattr(f"{module}.new_id", lambda: f"t{next(ids)}", raising=False)
        monkeypatch.setattr(f"{module}.now", lambda: next(times), raising=False)


def look_up(q: str) -> str:
    """Look something up."""
    return f"All about {q}. " * 20


def script(wire: str, turns: int) -> list[Any]:
    source = random.Random(turns)
    steps: list[Any] = []
    for number in range(turns):
        for call in range(source.choice([0, 0, 1, 2])):
            name = f"c{number:03}x{call:04}"
            steps.append(says(None, calls=[(name, "look_up", {"q": "x" * source.randint(1, 30)})], wire=wire))
        steps.append(says(f"Answer {number}. " * source.randint(1, 20), wire=wire))
    return steps


def run(wire: str, policy: Policy, carry: Any, turns: int, pinned: int) -> tuple[bytes, list[bytes], list[int]]:
    provider = Scripted(*script(wire, turns), wire=WIRES[wire])
    chat = Chat(provider, policy=policy, carry=carry, tools=[look_up])
    state, shed, sizes, pin = None, [], [], ""
    for number in range(turns):
        if number % 4 == 1:
            state = chat.note(f"Event {number}", state=state)
        reply = chat.send(f"Question {number}?", state=state, instruction="Now." if number % 3 == 0 else None)
        state = reply.state
        if number == pinned:
            with contextlib.suppress(PinRefused):
                state = chat.pin(reply.turn_id, state=state)
                pin = reply.turn_id
        if number == pinned + 9 and pin:
            state = chat.unpin(pin, state=state)
        shed += [reply.shed] if reply.shed else []
        sizes.append(len(state))
    for request in provider.requests:
        validate(request, wire=wire)
    return state or b"", shed, sizes


policies = st.sampled_from(
    [
        KeepLast(4),
        KeepLast(3, sliding=True),
        KeepMessages(12),
        TokenBudget(900),
        TokenBudget(700, sliding=True),
        TokenBudget(900, digest=DigestTools(keep=1, longest=30)),
        Combine(KeepLast(6), TokenBudget(1_000)),
    ]
)


@examples(15, 90)
@given(st.sampled_from(sorted(HTTP_WIRES)), policies, st.integers(1, 24), st.integers(0, 30), st.randoms())
def test_what_was_shed_and_the_state_make_the_whole_transcript(
    wire: str, policy: Policy, turns: int, pinned: int, order: random.Random
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        reset(patch)
        small, shed, _ = run(wire, policy, "context", turns, pinned)
        reset(patch)
        whole, nothing, _ = run(wire, policy, "all", turns, pinned)
    assert nothing == []
    order.shuffle(shed)
    joined, expected = read(join(*shed, small)), read(whole)
    assert [entry.native for entry in joined] == [entry.native for entry in expected]
    assert joined == expected


def read(state: bytes) -> Transcript:
    return decode(state, wires=NAMES)


def test_the_state_stays_small() -> None:
    _, shed, sizes = run("openai-chat", TokenBudget(900), "context", 60, pinned=-1)
    _, _, whole = run("openai-chat", TokenBudget(900), "all", 60, pinned=-1)
    assert max(sizes[30:]) < 1.5 * max(sizes[:30])
    assert max(sizes) < whole[-1] / 3
    assert len(shed) > 5


def test_the_requests_are_the_same_as_with_the_whole_state(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    for carry in ("all", "context"):
        reset(monkeypatch)
        provider = Scripted(*script("openai-chat", 20))
        chat = Chat(provider, policy=KeepLast(4), carry=carry, tools=[look_up])  # type: ignore[arg-type]
        state = None
        for number in range(20):
            state = chat.send(f"Question {number}?", state=state).state
        sent.append(provider.requests)
    assert sent[0] == sent[1]


def test_entries_that_left_have_their_verdict() -> None:
    chat = Chat(Scripted(*[says("ok")] * 5), policy=KeepLast(2, sliding=True), carry="context")
    state = None
    for number in range(5):
        reply = chat.send(str(number), state=state)
        state = reply.state
    assert reply.context is not None
    assert [(run.first, run.last, run.verdict) for run in reply.context.manifest] == [
        (0, 3, "handed_out"),
        (4, 5, "left_out"),
        (6, 8, "sent"),
    ]


def test_a_turn_that_failed_sheds_nothing() -> None:
    chat = Chat(
        Scripted(says("a"), says("b"), says(None, calls=[("c1", "look_up", {"q": "x"})]), *[Overloaded("no")] * 3),
        policy=KeepLast(1),
        carry="context",
        tools=[look_up],
    )
    state = chat.send("2", state=chat.send("1").state).state
    before = len(read(state))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("longtalk.turn.model_calls.FIRST_WAIT", 0.0)
        patch.setattr("longtalk._sync.turn.model_calls.FIRST_WAIT", 0.0)
        with pytest.raises(Overloaded) as caught:
            chat.send("3", state=state)
    assert caught.value.partial is not None
    assert caught.value.partial.shed is None
    assert len(read(caught.value.state or b"")) == before + 3


def test_a_stopped_stream_sheds_nothing() -> None:
    chat = Chat(Scripted(says("a"), says("b b b b b")), policy=KeepLast(1), carry="context")
    with chat.stream("2", state=chat.send("1").state) as stream:
        next(stream)
    assert stream.reply.shed is None
    assert len(read(stream.reply.state)) == 4


def test_a_sealed_state_sheds_sealed_parts() -> None:
    seal = Seal({"k": Seal.new_key()}).to(owner="ada", conversation="c")
    chat = Chat(Scripted(*[says("ok")] * 4), policy=KeepLast(1), carry="context", seal=seal)
    state, shed = None, []
    for number in range(4):
        reply = chat.send(str(number), state=state)
        state = reply.state
        shed += [reply.shed] if reply.shed else []
    assert len(shed) == 3
    whole = join(*shed, state or b"", seal=seal)
    assert len(read(seal.open(whole))) == 8
    with pytest.raises(BadState):
        join(*shed, state or b"")


def test_a_joined_state_goes_on_with_everything() -> None:
    provider = Scripted(*[says("ok")] * 5)
    chat = Chat(provider, policy=KeepLast(1), carry="context")
    state, shed = None, []
    for number in range(4):
        reply = chat.send(str(number), state=state)
        state = reply.state
        shed += [reply.shed] if reply.shed else []
    Chat(provider, policy=KeepAll()).send("all?", state=join(*shed, state or b""))
    assert len(msgspec.json.decode(provider.requests[-1])["messages"]) == 9


def test_a_policy_that_keeps_all_can_not_shed() -> None:
    with pytest.raises(InputError, match="needs a policy that limits what is sent"):
        Chat(Scripted(), carry="context")


@pytest.mark.parametrize(("carry", "told"), [("all", 0), ("context", 1)])
def test_that_what_has_left_the_state_is_not_recalled_is_told_once(carry: Any, told: int) -> None:
    policy = Memory(limit=200, recent=50, outline=0, recall=500)
    answers = [says(f"Answer {number}. " * 40) for number in range(12)]
    chat, state, kinds, left = Chat(Scripted(*answers), policy=policy, carry=carry), None, list[str](), 0
    for number in range(12):
        reply = chat.send(f"Question {number} about the bow.", state=state)
        kinds += [notice.kind for notice in reply.notices]
        state, left = reply.state, left + bool(reply.shed)
    assert kinds.count("recall_incomplete") == told
    assert (left > 1) == (carry == "context")


def test_where_nothing_is_recalled_nothing_is_missed() -> None:
    policy = Memory(limit=200, recent=50, outline=0, recall=0)
    answers = [says(f"Answer {number}. " * 40) for number in range(6)]
    chat, state, kinds = Chat(Scripted(*answers), policy=policy, carry="context"), None, list[str]()
    for number in range(6):
        reply = chat.send(f"Question {number} about the bow.", state=state)
        kinds += [notice.kind for notice in reply.notices]
        state = reply.state
    assert "recall_incomplete" not in kinds
