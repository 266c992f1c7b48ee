"""Collect what a model call sends and receives, for an `on_event` that asks for content."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from longtalk._util import json_bytes
from longtalk.observation import ObservedMessage, Observer, StepContent
from longtalk.wires.protocol import Answer, Wire
from longtalk.wires.views import MessageView, show_cards


def note_request(observer: Observer, wire: Wire, system: str | None, pieces: Sequence[bytes | memoryview]) -> None:
    """Note the system text and the messages of a request. `pieces` are messages in JSON, joined by commas."""
    if not observer.wants_content:
        return
    natives = json_bytes.items(b"[" + b",".join(pieces) + b"]")
    messages = tuple(_observe(wire.view(native)) for native in natives)
    observer.note_content(StepContent(system=system or "", messages=messages))


def note_answer(observer: Observer, answer: Answer) -> None:
    """Note the answer to the request that was noted last."""
    if not observer.wants_content:
        return
    said = _observe(show_cards(answer.view))
    observer.note_content(msgspec.structs.replace(observer.content, answer=said, finish=answer.finish))


def _observe(view: MessageView) -> ObservedMessage:
    calls = tuple((call.id, call.name, call.arguments) for call in view.calls)
    return ObservedMessage(role=view.role, text=view.text or view.refusal, calls=calls, call_id=view.call_id)
