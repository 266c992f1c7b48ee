"""Read and write the state that a caller keeps: decode, seal, shed."""

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
"""The maximum number of tool calls without a result, because the next turn adds a result to each of them."""


def read_state(state: bytes | None, seal: AnySeal, *, max_bytes: int) -> Transcript:
    """Return the transcript in a state, or an empty transcript for None or no bytes.

    Raise `BadState` if it is invalid.
    """
    if state is None or codec.is_empty(state):
        return Transcript()
    try:
        plain = seal.open(state) if seal else state
        transcript = codec.decode(plain, wires=NAMES, max_bytes=max_bytes, is_authentic=seal is not None)
    except BadState as problem:
        problem.state = state  # as the caller passed it: sealed, if it was
        raise
    if is_malformed_answer(transcript):
        raise BadState("This state can't be read: its last message is malformed.", reason="corrupt", state=state)
    calls = len(find_open_calls(transcript))
    if calls > MAX_OPEN_CALLS:
        what = (
            f"This state can't be read: its last answer has {calls} open tool calls, and the limit is {MAX_OPEN_CALLS}."
        )
        raise BadState(what, reason="too_large", state=state)
    return transcript


def state_writer(seal: AnySeal) -> Callable[[Transcript], bytes]:
    """Return a function that encodes a transcript, and seals it if a seal is given."""
    if seal is None:
        return codec.encode
    return lambda transcript: seal.close_encoded(codec.encode(transcript))


def state_shedder(policy: Policy, seal: AnySeal) -> Shed:
    """Return a function that splits off the entries that no later turn will need, encoded and sealed like a state."""

    def shed(transcript: Transcript) -> tuple[Transcript, bytes | None]:
        gone = list_unreachable(transcript, policy)
        if not gone:
            return transcript, None
        stays, part = split(transcript, gone)
        data = encode_part(part)
        return stays, seal.close_encoded(data) if seal else data

    return shed
