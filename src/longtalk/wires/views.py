"""The readable content of native messages.

Messages are stored in the provider's own JSON, byte for byte. A `MessageView` is the small part of a message that the
rest of the library reads: role, text, tool calls. A view is created on demand and never written back, so nothing that
it leaves out is lost.
"""

from __future__ import annotations

import msgspec

from longtalk.wires.card_tags import split_cards


class ToolCallView(msgspec.Struct, frozen=True):
    """A tool call that a model made."""

    id: str
    name: str
    arguments: bytes
    """The arguments as the model wrote them: usually JSON, but not always valid."""


class MessageView(msgspec.Struct, frozen=True):
    """The part of a native message that the library reads."""

    role: str
    text: str = ""
    calls: tuple[ToolCallView, ...] = ()
    call_id: str = ""
    """For a tool result: the id of the call that it answers."""
    name: str = ""
    """For a tool result: the name of the tool, if the wire states it."""
    refusal: str = ""
    cards: tuple[str, ...] = ()
    """For an answer: the contents of its memory cards, which are in neither `text` nor `refusal`."""
    whole: tuple[str, str] | None = None
    """For an answer with something hidden at its end: its whole text and its whole refusal."""


def hide_cards(view: MessageView) -> MessageView:
    """Return the view with the memory cards at the end of an answer moved from its text and refusal to `cards`.

    Views of other roles are returned unchanged.
    """
    if view.role != "assistant" or not ("<" in view.text or "<" in view.refusal):
        return view
    (text, text_cards), (refusal, refusal_cards) = split_cards(view.text), split_cards(view.refusal)
    if (text, refusal) == (view.text, view.refusal):
        return view
    whole = (view.text, view.refusal)
    return msgspec.structs.replace(view, text=text, refusal=refusal, cards=(*text_cards, *refusal_cards), whole=whole)


def show_cards(view: MessageView) -> MessageView:
    """Return the view of an answer with everything in its text and refusal that `hide_cards` has taken for a card."""
    if view.whole is None:
        return view
    return msgspec.structs.replace(view, text=view.whole[0], refusal=view.whole[1], cards=(), whole=None)
