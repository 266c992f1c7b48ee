"""The CPU time of composing a request, by policy and by the length of the conversation.

The figure is one more turn inside an epoch: the conversation was read from a state, its limits are checked, and the
pieces of the request are composed with their manifest. Next to it are the time of a turn that begins an epoch, and the
floor: writing the same messages with plain `json`, without choosing them.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any

from bench.codec import make_conversation
from bench.workload import messages
from longtalk.context.compose import Context, compose
from longtalk.context.epochs import begin_epoch
from longtalk.context.measure import Terms
from longtalk.context.planning import Plan, make_plan
from longtalk.policies import (
    Combine,
    DigestTools,
    KeepAll,
    KeepLast,
    KeepMessages,
    Policy,
    TokenBudget,
    WindowShare,
)
from longtalk.state import codec as states
from longtalk.tokens import Estimator
from longtalk.transcript.transcript import Transcript
from longtalk.turn.draft import begin
from longtalk.turn.message import parse_message
from longtalk.wires import NAMES, WIRES
from longtalk.wires.protocol import Preamble, Quirks

SIZES = (10, 100, 1_000, 5_000)
ROUNDS = 100
GOAL = 0.05

POLICIES: dict[str, Policy] = {
    "keep all": KeepAll(),
    "last 8 exchanges": KeepLast(8),
    "last 16 messages": KeepMessages(16),
    "2,000 tokens": TokenBudget(2_000),
    "2,000 tokens, digests": TokenBudget(2_000, digest=DigestTools()),
    "a twentieth of the window": WindowShare(0.05, to=0.03),
    "last 8 and 2,000 tokens": Combine(KeepLast(8), TokenBudget(2_000)),
}

_WIRE = WIRES["openai-chat"]
_COUNTER = Estimator()
_PREAMBLE = Preamble(system="You are a patient clerk.")
_TERMS = Terms(
    wire=_WIRE,
    counter=_COUNTER,
    model="bench",
    preamble=_PREAMBLE.digest(),
    fixed=20,
    window=None,
    answer=0,
)


def add_message(transcript: Transcript, number: int) -> Transcript:
    """Return the conversation with one more user message."""
    entries = parse_message(messages(number)[0]["content"], _WIRE)
    return begin(transcript, entries, wire=_WIRE, model="bench", preamble="", counter=_COUNTER).add_message().transcript


def add_answer(transcript: Transcript, number: int) -> Transcript:
    """Return the conversation with an answer to the last message."""
    body = {"choices": [{"message": messages(number)[-1], "finish_reason": "stop"}]}
    draft = begin(transcript, (), wire=_WIRE, model="bench", preamble="", counter=_COUNTER).add_message()
    return draft.add_answer(_WIRE.parse(json.dumps(body).encode())).finish("complete").transcript


def read_back_from_state(transcript: Transcript) -> Transcript:
    """Return the transcript as it is read from a state."""
    return states.decode(states.encode(transcript), wires=NAMES)


def compose_request(transcript: Transcript, policy: Policy) -> tuple[Plan, Context]:
    """Plan and compose one request."""
    made = make_plan(transcript, policy, _TERMS)
    context = compose(
        transcript,
        epoch=made.epoch,
        wire=_WIRE,
        quirks=Quirks(),
        preamble=_PREAMBLE,
        reader="bench",
        instruction=None,
        tail=len(transcript),
    )
    return made, context


def measure_least(work: Callable[[], Any], rounds: int) -> float:
    """Return the least CPU time of all rounds, in microseconds."""
    best = math.inf
    for _ in range(rounds):
        begun = time.process_time_ns()
        work()
        best = min(best, (time.process_time_ns() - begun) / 1e3)
    return best


def prepare(policy: Policy, turns: int) -> tuple[Callable[[], Any], float, float, int]:
    """Return a function that composes a request inside an epoch, for timing, and figures to compare its time with.

    The figures are the microseconds at the start of an epoch, the microseconds of plain `json`, and the bytes sent.
    """
    before = read_back_from_state(add_message(make_conversation(turns), turns))
    at_once = measure_least(lambda: compose_request(before, policy), 5)
    made, _ = compose_request(before, policy)
    transcript = begin_epoch(before, made.epoch) if made.begins else before
    inside = add_message(read_back_from_state(add_answer(transcript, turns)), turns + 1)
    again, context = compose_request(inside, policy)
    if again.begins:
        raise AssertionError(f"{policy} begins an epoch right after another one")
    sent = json.loads(b"[" + b",".join(context.pieces) + b"]")
    floor = measure_least(lambda: json.dumps(sent).encode(), 5)
    return lambda: compose_request(inside, policy), at_once, floor, sum(map(len, context.pieces))


def main() -> None:
    """Run the benchmark and print its figures and goals."""
    print("Composing one more request: CPU in microseconds, the least of many rounds, by turns so far.\n")
    print(f"{'':28}{'turns':>7}{'inside an epoch':>17}{'beginning one':>15}{'plain json':>12}{'bytes sent':>12}")
    goals = []
    for name, policy in POLICIES.items():
        prepared = [prepare(policy, turns) for turns in SIZES]
        costs = [math.inf] * len(SIZES)
        for _ in range(ROUNDS):
            # Interleaved, so that a busy machine slows all sizes or none.
            costs = [min(cost, measure_least(work, 5)) for cost, (work, *_) in zip(costs, prepared, strict=True)]
        for turns, inside, (_, at_once, floor, size) in zip(SIZES, costs, prepared, strict=True):
            print(f"{name:28}{turns:7,}{inside:17.1f}{at_once:15.1f}{floor:12.1f}{size:12,}")
        exponent = math.log(costs[-1] / costs[0]) / math.log(SIZES[-1] / SIZES[0])
        met = exponent <= GOAL
        goals.append({"name": f"exponent, {name}", "value": round(exponent, 3), "goal": GOAL, "met": met})
        print(f"{'':28}growth exponent {exponent:.3f}\n")
    print(json.dumps({"bench": "compose", "goals": goals}))


if __name__ == "__main__":
    main()
