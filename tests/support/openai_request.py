"""The request in OpenAI's format that a chat sends for a transcript."""

from __future__ import annotations

from longtalk.context.compose import compose
from longtalk.context.epochs import Epoch
from longtalk.transcript.transcript import Transcript
from longtalk.wires.openai_chat.wire import WIRE
from longtalk.wires.protocol import Preamble, Quirks


def build_request(transcript: Transcript) -> bytes:
    """Return the request with the whole transcript, without a system text or tools."""
    context = compose(
        transcript,
        wire=WIRE,
        epoch=Epoch(""),
        quirks=Quirks(),
        preamble=Preamble(),
        reader="me",
        instruction=None,
        tail=len(transcript),
    )
    return WIRE.build_request(
        model="m", preamble=Preamble(), pieces=context.pieces, mark=0, options={}, quirks=Quirks(), stream=False
    )
