"""One place composes: what a simulation and the checker of policies compute for a turn is what a turn sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from longtalk import Chat, LongtalkError
from longtalk._util import json_bytes
from longtalk.context.compose import Context
from longtalk.context.epochs import Epoch
from longtalk.context.prepare import compose_summary_request
from longtalk.context.recipient import Recipient
from longtalk.context.suffixes import TurnSuffix, keep_suffix
from longtalk.errors import ContextOverflow
from longtalk.memory.brief.schema import Brief
from longtalk.memory.cards.capture import make_memory_tool
from longtalk.memory.summary import SummaryRequest
from longtalk.policies import KeepLast, Memory, Policy, Summarize, TokenBudget
from longtalk.simulation.inputs import ReplaySetup, SimulatedModel, Trace
from longtalk.simulation.replay import PolicyReplay
from longtalk.state.codec import decode
from longtalk.testing import Scripted, says
from longtalk.testing import policies as checker
from longtalk.testing.wires.validate import without_cache_marks
from longtalk.tokens import count_message, count_preamble, counter_for
from longtalk.transcript.transcript import Entry, Transcript
from longtalk.wires import NAMES
from longtalk.wires.native import array_items
from longtalk.wires.openai_chat import wire as openai_chat
from longtalk.wires.protocol import Preamble
from tests.policies.drawn import policies
from tests.support.properties import examples

SUMMARY = "They spoke of words, of bows and strings, and of much more."
_PROMPT = "<summary_request>"


COUNTER = counter_for(Scripted.label)
_words = st.builds(lambda n: "word " * n, st.sampled_from([1, 1, 2, 5, 10, 60]))
_turns = st.lists(st.tuples(_words, _words, st.lists(_words, max_size=2)), min_size=1, max_size=8)


def list_messages(body: bytes) -> list[bytes]:
    return [bytes(each) for each in array_items(json_bytes.fields(body)["messages"])]


class Reporting(Scripted):
    """Answers by a script, and reports the length of each request as a simulation counts it, or nothing."""

    def __init__(self, *steps: Any, window: int | None, reports: bool) -> None:
        super().__init__(*steps, window=window)
        self.reports = reports
        self.sent: list[list[bytes]] = []

    def send(self, body: bytes) -> bytes:
        messages = list_messages(body)
        is_summary = _PROMPT.encode() in messages[-1]
        if is_summary:
            self._steps.insert(0, says(SUMMARY))
        fields = json_bytes.fields(super().send(body))
        tools = [make_memory_tool(Brief(60))] if b'"tools"' in body else []
        tokens = count_preamble(None, tools, COUNTER) + sum(count_message(message, COUNTER) for message in messages)
        fields["usage"] = b'{"prompt_tokens":%d,"completion_tokens":1}' % tokens if self.reports else b"{}"
        self.sent.append(messages[:-1] if is_summary else messages)
        return b"{" + b",".join(b'"%s":%s' % (key.encode(), value) for key, value in fields.items()) + b"}"


class RecordingReplay(PolicyReplay):
    """A simulation that keeps what it would send."""

    def __init__(self, setup: ReplaySetup, policy: Policy) -> None:
        self.sent: list[list[bytes]] = []
        super().__init__(setup, lambda _: policy)

    def _record_request(self, context: Context, preamble: Preamble, at: int) -> tuple[int, int]:
        self.sent.append([bytes(piece) for piece in context.pieces])
        return super()._record_request(context, preamble, at)


def play(policy: Policy, turns: Sequence[Any], window: int | None, *, reports: bool) -> tuple[Reporting, Transcript]:
    """Hold a conversation under a policy. Return the model with what it was sent, and the transcript."""
    provider = Reporting(window=window, reports=reports)
    chat, state = Chat(provider, policy=policy), None
    for number, (message, answer, queries) in enumerate(turns):
        provider.add(*[says(None, calls=[(f"c{number}_{i}", "look", {"q": q})]) for i, q in enumerate(queries)])
        provider.add(says(answer))
        state = chat.send(message, state=state).state
    assert state is not None
    return provider, decode(state, wires=NAMES)


def asks_for_card(messages: Sequence[bytes]) -> bool:
    return any(text in each for text in (b"MEMORY_CARD", b"call update_memory once") for each in messages)


def drop_after_card_request(sent: Sequence[list[bytes]]) -> list[list[bytes]]:
    """Return the requests up to the first that asks for a memory card: a simulation invents the cards."""
    asks = [i for i, messages in enumerate(sent) if asks_for_card(messages)]
    return list(sent[: asks[0] + 1]) if asks else list(sent)


def check_simulation(policy: Policy, turns: Sequence[Any], window: int | None) -> None:
    provider, transcript = play(policy, turns, window, reports=True)
    model = SimulatedModel(label=provider.label, window=window, caches=False)
    setup = ReplaySetup(Trace(transcript, None), model, lambda *_: SUMMARY, None)
    replay = RecordingReplay(setup, policy)
    compared = drop_after_card_request(replay.sent)
    assert compared == drop_after_card_request(provider.sent)
    # The cards that a simulation invents may fill a small window.
    assert not replay.problem or len(compared) < len(replay.sent) or asks_for_card(compared[-1])


def writes_in_background(policy: Policy) -> bool:
    return any(getattr(each, "background", False) for made in policy.compactors for each in made.strategies)


@examples(40, 400)
@given(policies, _turns, st.sampled_from([None, 300, 1_000]))
def test_a_simulation_sends_byte_for_byte_what_a_chat_sends(policy: Any, turns: Any, window: int | None) -> None:
    assume(not writes_in_background(policy))
    try:
        check_simulation(policy, turns, window)
    except ContextOverflow:
        # A message that is too long for the window ends the conversation.
        assume(False)


@pytest.mark.parametrize(
    "policy",
    [
        KeepLast(2),
        TokenBudget(120),
        Summarize(400, length=50),
        Memory(brief=Brief(60), recent=0, outline=30, recall=120, limit=200),
        Memory(brief=Brief(60), recent=100, outline=30, recall=0, limit=200, capture="tool"),
    ],
    ids=["last", "tokens", "summary", "memory with recall", "memory by a tool"],
)
def test_a_simulation_sends_what_a_chat_sends_under_each_kind_of_policy(policy: Policy) -> None:
    said = ["My violin was made by Guarneri. ", "The bow costs 4096 euros. ", "Which strings? ", "Who made my violin? "]
    turns = [(text * 6, f"So {text}" * 4, [text] if i % 2 else []) for i, text in enumerate(said * 3)]
    check_simulation(policy, turns, 4_000)


def test_a_simulation_plans_nothing_between_a_call_and_its_result_in_the_next_turn() -> None:
    def simulate(results_turn: str) -> list[list[bytes]]:
        calls = says(None, calls=[("c1", "pay", {"q": "word " * 60})])
        answers = [openai_chat.WIRE.parse(step.body).native for step in (says("word " * 60), calls, says("Done."))]
        natives = [
            ("user", "t1", openai_chat.WIRE.write_user("word " * 60)),
            ("assistant", "t1", answers[0]),
            ("user", "t2", openai_chat.WIRE.write_user("word " * 60)),
            ("assistant", "t2", answers[1]),
            ("tool", results_turn, openai_chat.WIRE.write_result("c1", "paid", error=False)),
            ("assistant", results_turn, answers[2]),
            ("user", "t4", openai_chat.WIRE.write_user("word")),
            ("assistant", "t4", answers[2]),
        ]
        transcript = Transcript()
        for role, turn, native in natives:
            assert native is not None
            transcript = transcript.append_to_turn(turn, [Entry(role=role, wire="openai-chat", native=native, at=0)])
        model = SimulatedModel(label=Scripted.label, window=None, caches=False)
        setup = ReplaySetup(Trace(transcript, None), model, lambda *_: SUMMARY, None)
        return RecordingReplay(setup, Summarize(200, length=50, background=True)).sent

    assert simulate("t3") == simulate("t2")


@examples(30, 300)
@given(policies, _turns, st.sampled_from([None, 300, 1_000]))
def test_the_checker_of_policies_sends_byte_for_byte_what_a_chat_sends(
    policy: Any, turns: Any, window: int | None
) -> None:
    # The checker writes summaries of its own.
    assume(not any(hasattr(each, "background") for made in policy.compactors for each in made.strategies))
    try:
        provider, transcript = play(policy, turns, window, reports=False)
        with pytest.MonkeyPatch.context() as patch:
            bodies: list[bytes] = []
            patch.setattr(checker, "validate", lambda body, **_: bodies.append(body))
            checker.check_policy(policy, transcript, window=window, counter=COUNTER)
    except LongtalkError:
        assume(False)
    # Each request is made three times: on first sight, continuing, and from a state that sheds.
    assert [list_messages(body) for body in bodies[1::3]] == [
        list_messages(without_cache_marks(body)) for body in provider.requests
    ]


def test_a_summary_is_written_without_what_a_turn_quoted_from_other_conversations() -> None:
    state = Chat(Scripted(says("All right.")), policy=KeepLast(2)).send("Hello.").state
    transcript, wire = decode(state, wires=NAMES), openai_chat.WIRE
    suffix = TurnSuffix("Be brief.", 1, foreign="I play the violin.")
    kept = keep_suffix(transcript, suffix, 1, wire, COUNTER, at=1)
    request = SummaryRequest(stop=2, length=100, timeout=1.0)
    context, _ = compose_summary_request(kept, Epoch(""), request, wire, Recipient())
    sent = b"".join(context.pieces)
    assert b"Be brief." in sent
    assert b"violin" not in sent
