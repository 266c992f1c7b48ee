"""The CPU time of one more turn on a state of 1,000 turns (state → request → next state), relative to plain `json`.

Both sides do the work of one turn on stored bytes: read them, write the request with the whole history and a new
message, and write the next bytes to store. Longtalk's side runs the code of a real turn. The rounds are interleaved
and the best of each step counts, so that a busy machine slows both sides or neither.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.workload import MODEL, USAGE, messages
from longtalk.context.compose import compose
from longtalk.context.measure import Terms
from longtalk.context.planning import make_plan
from longtalk.policies import KeepAll
from longtalk.state import codec as states
from longtalk.state.sealing import BoundSeal, Seal
from longtalk.tokens import Estimator
from longtalk.transcript.transcript import Entry, Transcript, Turn, link_entries, new_id, now
from longtalk.turn.draft import Draft, add_token_counts, begin
from longtalk.turn.message import parse_message
from longtalk.wires import NAMES, WIRES
from longtalk.wires.protocol import Preamble, Quirks

TURNS = 1_000
ROUNDS = 60
GOALS = {"longtalk": 4.8, "longtalk, sealed": 8.0}
"""How many times less CPU time than `json` a turn should take."""

_WIRE = WIRES["openai-chat"]
_PREAMBLE = Preamble(system="You are a patient clerk.")
_DIGEST = _PREAMBLE.digest()
_TERMS = Terms(
    wire=_WIRE,
    counter=Estimator(),
    model=MODEL,
    preamble=_DIGEST,
    fixed=20,
    window=None,
    answer=0,
)
_USER, _ASSISTANT = messages(TURNS)
_ANSWER = _WIRE.parse(
    b'{"choices":[{"message":%s,"finish_reason":"stop"}],"usage":%s}' % (json.dumps(_ASSISTANT).encode(), USAGE)
)


def make_conversation(turns: int) -> Transcript:
    """Return a transcript of this many turns."""
    transcript = Transcript()
    for number in range(turns):
        entries = add_token_counts(
            [
                Entry(role=message["role"], wire=_WIRE.name, native=json.dumps(message).encode(), at=now())
                for message in messages(number)
            ],
            Estimator(),
        )
        turn = Turn(
            id=new_id(),
            status="complete",
            model=MODEL,
            started=now(),
            ended=now(),
            finish="stop",
            usage=(USAGE,) * (len(entries) // 2),
            preamble=_DIGEST,
        )
        transcript = transcript.add(link_entries(transcript.head, turn.id, 0, entries), turn=turn)
    return transcript.revise()


class Clock:
    """The least CPU time that each step ever took, in milliseconds."""

    def __init__(self) -> None:
        self.best: dict[str, float] = {}

    def measure(self, step: str, work: Callable[[], Any]) -> Any:
        """Run `work`, record its time under `step`, and return its result."""
        begun = time.process_time()
        result = work()
        spent = (time.process_time() - begun) * 1e3
        self.best[step] = min(spent, self.best.get(step, spent))
        return result

    @property
    def total(self) -> float:
        """The sum of the best times of all steps."""
        return sum(self.best.values())


def run_longtalk_turn(
    state: bytes, clock: Clock, compress_over: int, seal: BoundSeal | None = None
) -> tuple[bytes, bytes]:
    """Run a turn with Longtalk on a state, perhaps a sealed one, and return the request and the next state."""

    def decode() -> Transcript:
        plain = state if seal is None else seal.open(state)
        return states.decode(plain, wires=NAMES, is_authentic=seal is not None)

    def request(transcript: Transcript) -> tuple[Draft, bytes]:
        said = parse_message(_USER["content"], _WIRE)
        draft = begin(transcript, said, wire=_WIRE, model=MODEL, preamble=_DIGEST).add_message()
        made = make_plan(draft.transcript, KeepAll(), _TERMS)
        context = compose(
            draft.transcript,
            wire=_WIRE,
            epoch=made.epoch,
            quirks=Quirks(),
            preamble=_PREAMBLE,
            reader="bench",
            instruction=None,
            tail=draft.tail,
        )
        body = _WIRE.build_request(
            model="bench",
            preamble=_PREAMBLE,
            pieces=context.pieces,
            mark=context.mark,
            options={},
            quirks=Quirks(),
            stream=True,
        )
        return draft.ask(context, None), body

    def encode(draft: Draft) -> bytes:
        done = draft.add_answer(_ANSWER).finish("complete")
        next_state = states.encode(done.transcript, compress_over=compress_over)
        return next_state if seal is None else seal.close_encoded(next_state)

    transcript = clock.measure("decode", decode)
    draft, body = clock.measure("request", lambda: request(transcript))
    return body, clock.measure("encode", lambda: encode(draft))


def run_json_turn(state: bytes, clock: Clock) -> tuple[bytes, bytes]:
    """Run a turn with plain `json`, and return the request and the next state."""

    def request(kept: dict[str, Any]) -> bytes:
        kept["messages"].append(_USER)
        system = {"role": "system", "content": _PREAMBLE.system}
        body = {"model": "bench", "stream": True, "stream_options": {"include_usage": True}}
        return json.dumps({**body, "messages": [system, *kept["messages"]]}).encode()

    def encode(kept: dict[str, Any]) -> bytes:
        kept["messages"].append(_ASSISTANT)
        return json.dumps(kept).encode()

    kept = clock.measure("decode", lambda: json.loads(state))
    return clock.measure("request", lambda: request(kept)), clock.measure("encode", lambda: encode(kept))


def main() -> None:
    """Run the benchmark and print its figures and goals."""
    transcript = make_conversation(TURNS)
    state = states.encode(transcript, compress_over=sys.maxsize)
    compressed = states.encode(transcript)
    kept = json.dumps({"version": 1, "messages": [m for i in range(TURNS) for m in messages(i)]}).encode()
    seal = Seal({"key": Seal.new_key()}).to(owner="owner", conversation="talk")
    sealed = seal.close(state)
    clocks = {"longtalk": Clock(), "longtalk, sealed": Clock(), "longtalk, compressed": Clock(), "json": Clock()}
    for _ in range(ROUNDS):
        body, _ = run_longtalk_turn(state, clocks["longtalk"], sys.maxsize)
        sealed_body, _ = run_longtalk_turn(sealed, clocks["longtalk, sealed"], sys.maxsize, seal)
        packed_body, _ = run_longtalk_turn(compressed, clocks["longtalk, compressed"], states.COMPRESS_OVER)
        plain_body, _ = run_json_turn(kept, clocks["json"])
        if not sealed_body == body == packed_body or json.loads(body) != json.loads(plain_body):
            raise AssertionError("the requests differ")
    sizes = {
        "longtalk": len(state),
        "longtalk, sealed": len(sealed),
        "longtalk, compressed": len(compressed),
        "json": len(kept),
    }
    print(f"One turn after {TURNS:,} turns ({len(transcript):,} messages): CPU in ms, best of {ROUNDS} rounds.\n")
    print(f"{'':24}{'decode':>10}{'request':>10}{'encode':>10}{'total':>10}{'times less':>12}{'state bytes':>14}")
    for name, clock in clocks.items():
        steps = "".join(f"{clock.best[step]:10.2f}" for step in ("decode", "request", "encode"))
        print(f"{name:24}{steps}{clock.total:10.2f}{clocks['json'].total / clock.total:12.1f}{sizes[name]:14,}")
    print(f"\nThe compressed state has {len(compressed) / len(state):.0%} of the size of the plain one.")
    goals = []
    for name, goal in GOALS.items():
        ratio = clocks["json"].total / clocks[name].total
        what = f"times less CPU than json, {name} (at least)"
        goals.append({"name": what, "value": round(ratio, 2), "goal": goal, "met": ratio >= goal})
    print(json.dumps({"bench": "codec", "goals": goals}))


if __name__ == "__main__":
    main()
