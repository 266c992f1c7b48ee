"""Short descriptions of the parts of a message besides its text: calls, images, thinking and the like."""

from __future__ import annotations

from typing import Any

from longtalk._util import json_bytes
from longtalk.wires.views import MessageView

_SHOWN = (
    *("text", "tool_use", "tool_result", "refusal"),
    *("message", "input_text", "output_text", "function_call", "custom_tool_call"),
)
_WITH_PARTS = ("message", "tool_result")
_THINKING = ("reasoning_content", "reasoning", "reasoning_details")


def describe(native: bytes, view: MessageView) -> str:
    """Return a text for a message without text: its refusal, or a description of its parts in square brackets."""
    if view.refusal.strip():
        return view.refusal
    calls = ", ".join(f"{call.name}({call.arguments.decode('utf-8', 'replace')})" for call in view.calls)
    cards = ["memory card"] if view.cards else []
    found = (", ".join([*list_hidden_parts(native), *cards]), f"calls {calls}" if calls else "")
    return " ".join(f"[{each}]" for each in found if each) or ("[no output]" if view.role == "tool" else "[empty]")


def list_hidden_parts(native: bytes) -> list[str]:
    """Return the types of the parts of a message whose content is not shown, such as images, audio and thinking."""
    members = json_bytes.value(native)
    content = members.get("content", members.get("parts", members.get("output")))
    parts = content if isinstance(content, list) else []
    contents = [part.get("content") for part in parts if isinstance(part, dict) and part.get("type") in _WITH_PARTS]
    # The data of a result is beside its text on Gemini.
    results = [part.get("functionResponse") for part in parts if isinstance(part, dict)]
    contents += [result.get("parts") for result in results if isinstance(result, dict)]
    parts = [*parts, *(part for inner in contents if isinstance(inner, list) for part in inner)]
    types = [part.get("type", _find_gemini_type(part)) for part in parts if isinstance(part, dict)]
    hidden = [kind for kind in types if isinstance(kind, str) and kind not in _SHOWN]
    beside = ["thinking"] if any(members.get(key) for key in _THINKING) else []
    beside += ["audio"] if members.get("audio") else []
    return [*beside, *(kind.removeprefix("input_").removesuffix("_url") for kind in hidden)]


def _find_gemini_type(part: dict[str, Any]) -> str:
    """Derive the type of a Gemini part from its members, since such a part has no `type`."""
    if part.get("thought") is True:
        return "thinking"
    media = part.get("inlineData", part.get("fileData"))
    kind = media.get("mimeType") if isinstance(media, dict) else None
    if isinstance(kind, str):
        return kind.partition("/")[0]
    shown = ("text", "functionCall", "functionResponse", "thoughtSignature")
    return next((key for key in part if key not in shown), "text")
