"""Reading and writing the state that a caller holds: decode, seal, shed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from longtalk.context.epochs import list_unreachable
from longtalk.errors import BadState
from longtalk.policies import Policy
from longtalk.reply import Shed
from longtalk.state import codec
from longtalk.state.sealing import BoundSeal, Seal
from longtalk.state.shedding import encode_part, split
from longtalk.transcript.transcript import Transcript
from longtalk.wires import NAMES
from longtalk.wires.pairing import find_open_calls, is_malformed_answer

AnySeal: TypeAlias = Seal | BoundSeal | None

MAX_OPEN_CALLS = 10_000
"""The maximum number of tool calls without a result. The next turn adds a result for each."""


def read_state(state: bytes | None, seal: AnySeal, *, max_bytes: int) -> Transcript:
    """Return the transcript that a state holds; None and no bytes are an empty one. Raises `BadState`."""
    if state is None or codec.is_empty(state):
        return Transcript()
    try:
        transcript = codec.decode(seal.open(state) if seal else state, wires=NAMES, max_bytes=max_bytes)
    except BadState as problem:
        problem.state = state  # as the caller passed it: sealed, if it was
        raise
    if is_malformed_answer(transcript):
        raise BadState("This state can't be read: its last message is malformed.", reason="corrupt", state=state)
    calls = len(find_open_calls(transcript))
    if calls > MAX_OPEN_CALLS:
        what = f"This state can't be read: its last answer has {calls} tool calls, the limit is {MAX_OPEN_CALLS}."
        raise BadState(what, reason="too_large", state=state)
    return transcript


def state_writer(seal: AnySeal) -> Callable[[Transcript], bytes]:
    """Return the function that encodes a transcript, and seals it if there is a seal."""
    if seal is None:
        return codec.encode
    return lambda transcript: seal.close(codec.encode(transcript))


def state_shedder(policy: Policy, seal: AnySeal) -> Shed:
    """Return the function that splits off what later turns can't reach, encoded and sealed like a state."""

    def shed(transcript: Transcript) -> tuple[Transcript, bytes | None]:
        gone = list_unreachable(transcript, policy)
        if not gone:
            return transcript, None
        stays, part = split(transcript, gone)
        data = encode_part(part)
        return stays, seal.close(data) if seal else data

    return shed
