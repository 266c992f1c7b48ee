"""The fields of a provider's responses besides message and usage: ids, the exact model, finish reasons, citations.

`Turn.responses` has one JSON object for each response of a turn. `add_response` writes it, and `read_responses` reads
it. The fields of the response stay in the provider's own JSON, byte for byte, in their places: a message and a usage
report are left out, because the entry and `Turn.usage` have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk.transcript.transcript import Turn

_USUAL_FINISH = "stop"


class Response(msgspec.Struct, frozen=True):
    """A provider's response to one model call of a turn, without its message."""

    entry: str
    """The id of the entry with the message; empty if the response had no content."""
    model: str
    """The model that was asked, as `provider:model`. The model that the provider reports, if any, is in `fields`."""
    finish_reason: str
    """Why the answer ended, in Longtalk's words, as in `Reply.finish_reason`."""
    native: bytes
    """The fields of the response in the provider's own JSON, without the message and the usage; `{}` if unknown."""
    usage: bytes | None = None
    """The usage report in the provider's own JSON; None if there was none."""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the response, decoded from `native`."""
        decoded: dict[str, Any] = json_bytes.value(self.native)
        return decoded

    @property
    def id(self) -> str:
        """The id that the provider gave the response; empty if it gave none."""
        return _find_text(self.fields, ("id",), ("responseId",))

    @property
    def raw_finish_reason(self) -> str:
        """Why the answer ended, in the provider's own words; empty if it did not say."""
        return _find_text(
            self.fields,
            ("choices", 0, "finish_reason"),
            ("stop_reason",),
            ("candidates", 0, "finishReason"),
            ("incomplete_details", "reason"),
            ("status",),
        )


def add_response(turn: Turn, *, entry: int | None, has_usage: bool, finish: str, native: bytes) -> Turn:
    """Return the turn with one more response.

    `entry` is the number of the response's entry in the turn. With `has_usage`, the turn's last usage report belongs to
    the response. Members with the usual value are left out: the first response has the first usage report, an answer
    ends with "stop", and the model is that of the turn.
    """
    usage = len(turn.usage) - 1 if has_usage else None
    known: dict[str, Any] = {} if entry is None else {"entry": entry}
    known |= {} if usage == len(turn.responses) else {"usage": usage}
    known |= {} if finish == _USUAL_FINISH else {"finish": finish}
    members = {name: json_bytes.encode(value) for name, value in known.items()}
    response = json_bytes.build({**members, "response": native})
    return msgspec.structs.replace(turn, responses=(*turn.responses, response))


def name_models(turn: Turn) -> Turn:
    """Return the turn with its model written into its responses, because another model will continue the turn."""
    named = []
    for raw in turn.responses:
        members = json_bytes.fields(raw)
        named.append(json_bytes.build({"model": json_bytes.encode(turn.model), **members}))
    return msgspec.structs.replace(turn, responses=tuple(named))


def to_finish_reason(finish: str) -> str:
    """Return the finish reason for users, given the value that is stored in `Turn.finish`."""
    return "tool_calls" if finish == "calls" else finish


def read_responses(turn: Turn) -> list[Response]:
    """Return the responses of a turn, oldest first, without those that can't be decoded."""
    found = []
    for position, raw in enumerate(turn.responses):
        try:
            members = json_bytes.fields(raw)
            known = {name: json_bytes.value(member) for name, member in members.items() if name != "response"}
            json_bytes.check_object(native := members.get("response", b"{}"))
        except ValueError:
            continue
        number, index = known.get("entry"), known.get("usage", position)
        found.append(
            Response(
                entry=f"{turn.id}-{number}" if isinstance(number, int) else "",
                model=_find_text(known, ("model",)) or turn.model,
                finish_reason=to_finish_reason(_find_text(known, ("finish",)) or _USUAL_FINISH),
                native=native,
                usage=turn.usage[index] if isinstance(index, int) and 0 <= index < len(turn.usage) else None,
            )
        )
    return found


def _find_text(fields: Mapping[str, Any], *paths: tuple[str | int, ...]) -> str:
    """Return the first text that is found at one of these paths; empty if there is none."""
    for path in paths:
        value: Any = fields
        for key in path:
            try:
                value = value[key]
            except (LookupError, TypeError):
                value = None
        if isinstance(value, str):
            return value
    return ""
