"""The model that receives a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from longtalk.wires.protocol import Preamble, Quirks

if TYPE_CHECKING:
    pass


class Recipient(msgspec.Struct, frozen=True, kw_only=True):
    """The model that receives a request, and the form in which it must receive it."""

    preamble: Preamble = Preamble()
    reader: str = ""
    """The account and the model, for which opaque blocks of an answer are valid."""
    quirks: Quirks = Quirks()
    instruction: str | None = None
    """An instruction for this turn only."""
    calls_tools: bool = False
    """Whether the model can call the tool that updates the brief."""
    keeps_conversation: bool = False
    """Whether the provider stores everything that it is sent.

    If so, no text is recalled, because the provider would store it too, and a card is requested in the system text.
    """
    answers_json: bool = False
    """Whether the answer must consist of JSON alone, so that it can't end with a card."""
    cards: Literal["answer", "request", "none"] = "answer"
    """How the model writes memory cards: at the end of its answers, in requests of their own, or not at all."""
