"""Whatever the network does, at whatever place of an exchange: nothing is lost, the next turn is valid.

Over the OpenAI chat wire; `test_anthropic.py` has the same for the other. The sync twin of this file is generated.
"""

from __future__ import annotations

from typing import Any

import pytest

from longtalk import AsyncChat
from longtalk.errors import BadAnswer, Overloaded, RequestRefused, StreamCut, TurnFailed, Unreachable
from longtalk.events import Done, Text
from longtalk.state.codec import decode
from longtalk.testing import says, validate
from longtalk.wires import NAMES
from tests.support.loopback import Answer, Loopback, sse

pytestmark = pytest.mark.anyio

LONG: Any = says("Once upon a time there was a vïolin", pieces=8).events
CUT = b"".join(sse(*LONG))
ERROR = b'{"error":{"type":"overloaded_error","message":"busy"}}'

# What the server does, for a whole and for a streamed call; what the caller sees, None when a retry mends it.
FAULTS: dict[str, tuple[Answer, Answer, Any, Any]] = {
    "busy": (busy := Answer(b"{}", status=429, headers={"retry-after-ms": "1"}), busy, None, None),
    "trouble": (trouble := Answer(b"oh", status=500), trouble, None, None),
    "overloaded": (loaded := Answer(b"oh", status=529), loaded, None, None),
    "reset": (reset := Answer(reset=True), reset, None, None),
    "refused": (no := Answer(b'{"error":{"message":"no"}}', status=404), no, RequestRefused, RequestRefused),
    "too long": (
        long := Answer(b'{"error":{"code":"context_length_exceeded","message":"x"}}', status=400),
        long,
        None,  # the exchange before is left out, and the turn goes on
        None,
    ),
    "page": (
        page := Answer(b"<html>hotel wifi</html>", headers={"content-type": "text/html"}),
        page,
        BadAnswer,
        BadAnswer,
    ),
    "not JSON": (Answer(b'{"choices":[{"mess'), Answer(chunks=sse(b'{"choi')), BadAnswer, BadAnswer),
    "error inside": (Answer(ERROR), Answer(chunks=sse(*LONG[:4], ERROR)), Overloaded, Overloaded),
    "error at once": (Answer(ERROR), Answer(chunks=sse(ERROR)), Overloaded, Overloaded),
    "cut in mid-event": (reset, Answer(chunks=[CUT[:500]], reset=True), None, StreamCut),
    "cut in mid-character": (
        reset,
        Answer(chunks=[CUT[: CUT.index("ï".encode()) + 1]], reset=True),
        None,
        StreamCut,
    ),
    "stall": (
        Answer(chunks=[b'{"choi'], stalls=True),
        Answer(chunks=sse(*LONG[:4]), stalls=True),
        StreamCut,
        StreamCut,
    ),
    "silence": (silence := Answer(chunks=[], stalls=True), silence, Unreachable, Unreachable),
    "ends in mid-answer": (Answer(b""), Answer(chunks=sse(*LONG[:4])), BadAnswer, StreamCut),
    "wrong type": (
        Answer(says("fine").body, headers={"content-type": "text/plain"}),
        Answer(chunks=sse(*says("fine").events), headers={"content-type": "text/plain"}),  # type: ignore[arg-type]
        "fine",
        "fine",
    ),
}


def stalls(name: str) -> bool:
    """Return whether only the time limit of the client ends a fault."""
    return name in ("stall", "silence")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("name", "position"),
    [
        pytest.param(name, position, marks=[pytest.mark.rest] if stalls(name) and position != 1 else [])
        for name in FAULTS
        for position in range(3)
    ],
)
async def test_a_fault_at_any_place_loses_nothing(
    loopback: Loopback, monkeypatch: pytest.MonkeyPatch, name: str, stream: bool, position: int
) -> None:
    if stalls(name):
        # Long enough for a server on a busy machine to send all that comes before the stall.
        monkeypatch.setattr("longtalk.providers.http.provider.SILENCE_SECONDS", 2.0)
    ran = []

    def count(q: str) -> str:
        """Counts."""
        ran.append(q)
        return q

    def answer(step: Any) -> Answer:
        return Answer(chunks=sse(*step.events)) if stream else Answer(step.body)

    turn = [says(None, calls=[(f"c{i}", "count", {"q": str(i)})]) for i in range(2)] + [says("Done.")]
    whole, streamed, expected_whole, expected_streamed = FAULTS[name]
    fault, expected = (streamed, expected_streamed) if stream else (whole, expected_whole)
    async with AsyncChat("compatible:m", base_url=loopback.url, tools=[count]) as chat:
        loopback.say(Answer(says("Hi.").body))
        before = await chat.send("Hello.")
        loopback.say(*map(answer, turn[:position]), fault, *map(answer, turn[position:]))
        state: bytes | None = before.state
        shown, failed = "", None
        try:
            if stream:
                async for event in chat.stream("x", state=state):
                    shown += event.text if isinstance(event, Text) else ""
                    state = event.reply.state if isinstance(event, Done) else state
            else:
                state = (await chat.send("x", state=state)).state
        except TurnFailed as problem:
            failed, state = problem, problem.state
        if expected in (None, "fine"):
            assert failed is None
        else:
            assert type(failed) is expected
            assert failed.partial is not None or (state == before.state and not ran and not shown)
        kept = list(decode(state or b"", wires=NAMES))
        assert b"".join(entry.native for entry in kept if entry.mark == "interrupted").count(shown.encode()) or not (
            failed and shown
        )
        assert sum(entry.role == "tool" for entry in kept) == len(ran)
        assert len(ran) == len(set(ran))
        loopback.answers.clear()
        loopback.say(Answer(says("Good.").body))
        assert (await chat.send("next", state=state)).text == "Good."
    for request in loopback.requests:
        validate(request)


async def test_a_retry_sends_the_same_bytes_and_makes_one_turn(loopback: Loopback) -> None:
    loopback.say(Answer(b"oh", status=500), Answer(reset=True), Answer(says("Hi.").body))
    async with AsyncChat("compatible:m", base_url=loopback.url) as chat:
        reply = await chat.send("Hello.")
    assert len(set(loopback.requests)) == 1
    assert len(decode(reply.state, wires=NAMES).turns) == 1
