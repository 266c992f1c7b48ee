"""Calls that the caller runs under any policy: requests are valid, and no call is parted from its result."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event as noticed
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Chat, LongtalkError, Reply, ToolOutput, external_tool
from longtalk.state.codec import decode
from longtalk.testing import Scripted, says, validate
from longtalk.turn.draft import NOT_RUN, UNKNOWN
from longtalk.wires import NAMES, WIRES
from tests.policies.drawn import policies
from tests.support.matrix import EVERY_WIRE
from tests.support.properties import examples
from tests.support.summary_model import asks_for_summary

_texts = st.builds(lambda word, times: f"{word} " * times, st.sampled_from(["word", "é"]), st.sampled_from([1, 5, 60]))
_exchanges = st.lists(
    st.lists(st.lists(st.sampled_from(["look", "pay"]), min_size=1, max_size=3), max_size=3), max_size=5
)
"""For each exchange, the tools that each of its answers calls before the last one."""


class Model(Scripted):
    """Calls the tools that it is told to, answers with text, and writes whatever summary it is asked for."""

    def __init__(self, wire: str) -> None:
        super().__init__(wire=WIRES[wire])
        self.calls: list[list[tuple[str, str, dict[str, str]]]] = []
        self.sent: list[bytes] = []

    def send(self, body: bytes) -> bytes:
        wire = self.wire.name
        validate(body, wire=wire)
        if asks_for_summary(body):
            noticed("summary")
            return says("They talked.", wire=wire).body
        self.sent.append(body)
        return says("So.", calls=self.calls.pop(0) if self.calls else [], wire=wire).body


@pytest.mark.parametrize("carry", ["all", "context"])
@pytest.mark.parametrize("wire", EVERY_WIRE)
@examples(30, 150)
@given(st.data(), policies, _exchanges)
def test_no_policy_parts_a_call_from_its_result(
    wire: str, carry: Any, data: st.DataObject, policy: Any, exchanges: list[list[list[str]]]
) -> None:
    def look(q: str) -> str:
        return q

    pay = external_tool("pay", "Pay.", {"type": "object", "properties": {"q": {"type": "string"}}})
    model, state, number = Model(wire), None, 0
    try:
        chat = Chat(model, policy=policy, tools=[look, pay], carry=carry)
    except LongtalkError:
        chat = Chat(model, policy=policy, tools=[look, pay])
    for rounds in exchanges:
        model.calls = []
        for names in rounds:
            calls = []
            for name in names:
                number += 1
                calls.append((f"call_{number}", name, {"q": data.draw(_texts)}))
            model.calls.append(calls)
        message: Any = data.draw(_texts)
        turns = 0
        while True:
            before = len(model.sent)
            reply: Reply = chat.send(message, state=state)
            state = reply.state
            turns += 1
            if isinstance(message, list):
                noticed("went on")
                request = model.sent[before]
                assert all(f"result-of-{output.call_id}.".encode() in request for output in message)
            if not reply.calls:
                break
            assert reply.finish_reason == "tool_calls"
            text = data.draw(_texts)
            message = [ToolOutput(call.id, f"result-of-{call.id}. {text}") for call in reply.calls]
        assert reply.finish_reason == "stop"
        assert turns == 1 + sum("pay" in names for names in rounds)
    if state is not None:
        transcript = decode(state, wires=NAMES)
        natives = b"".join(entry.native for entry in transcript)
        assert NOT_RUN.encode() not in natives
        assert UNKNOWN.encode() not in natives
        assert carry == "context" or len(transcript.exchanges()) == len(exchanges)
