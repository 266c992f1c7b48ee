"""Results of external tools: find the calls that wait for results, and convert the caller's results to entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from longtalk._util import json_bytes
from longtalk.errors import InputError, ResultMismatch
from longtalk.tools import Toolbox
from longtalk.transcript.transcript import Entry, Transcript, now
from longtalk.turn.message import OpenAIToolOutput, ParsedMessage, ToolOutput, describe_wrong_part
from longtalk.wires.convert import convert_parts
from longtalk.wires.pairing import find_answer_wire, find_open_calls
from longtalk.wires.protocol import Wire
from longtalk.wires.views import ToolCallView


def find_waiting_calls(
    calls: Sequence[ToolCallView], transcript: Transcript, tools: Toolbox
) -> tuple[ToolCallView, ...]:
    """Return those of a transcript's open calls that wait for the caller: those of external tools.

    If a turn ended with open calls, those of tools that no longer exist are included.
    """
    last = transcript.turns.last
    ended = last is not None and (last.status, last.finish) == ("complete", "calls")
    return tuple(call for call in calls if tools.is_external(call.name) or (ended and tools.get(call.name) is None))


def check_nothing_waits(transcript: Transcript, waiting: Sequence[ToolCallView]) -> None:
    """Raise `InputError` if a turn without a message would have to continue without the results of external tools.

    A turn that was cut off may continue, because it ends with these calls.
    """
    last = transcript.turns.last
    if waiting and last is not None and last.status != "running":
        raise InputError(
            f"The calls {_list_ids(waiting)} of external tools have no results yet: send a list with the result of "
            "each of them, or a new message, which closes them."
        )


def read_outputs(message: Any) -> list[ToolOutput] | None:
    """Return the tool results in a caller's message, or None if the message has none."""
    if isinstance(message, ParsedMessage):
        return list(message.outputs) or None
    items = [message] if isinstance(message, ToolOutput) else message
    if not isinstance(items, list | tuple) or not any(isinstance(item, ToolOutput) for item in items):
        return None
    other = next((item for item in items if not isinstance(item, ToolOutput)), None)
    if other is not None:
        raise InputError(f"A list with a ToolOutput can't contain {type(other).__name__}: send that in the next turn.")
    return list(items)


def parse_outputs(
    outputs: Iterable[ToolOutput], transcript: Transcript, waiting: Sequence[ToolCallView], wire: Wire
) -> list[Entry]:
    """Return the caller's results as entries, in the order of their calls and on the wire of the calls.

    Raise `ResultMismatch` if a result belongs to no open call, or if a waiting call has no result.
    """
    given: dict[str, list[ToolOutput]] = {}
    for output in outputs:
        given.setdefault(output.call_id, []).append(output)
    entries: list[Entry] = []
    missing: list[ToolCallView] = []
    for call in find_open_calls(transcript):
        if found := given.get(call.id):
            entries.append(_make_result(found.pop(0), call, find_answer_wire(transcript, wire), wire))
        elif call in waiting:
            missing.append(call)
    unknown = [output for left in given.values() for output in left]
    if unknown:
        ids = ", ".join(repr(output.call_id) for output in unknown)
        open_ids = _list_ids(find_open_calls(transcript))
        raise ResultMismatch(
            f"No call waits for the results of {ids}. The open calls are: {open_ids or 'none'}. If a turn with these "
            "results has failed, a turn without a message continues it.",
            unknown=[output.call_id for output in unknown],
        )
    if missing:
        raise ResultMismatch(
            f"The results of the calls {_list_ids(missing)} are missing: send all results in one list."
        )
    return entries


def _make_result(output: ToolOutput, call: ToolCallView, wire: Wire, reader: Wire) -> Entry:
    """Return a result as an entry on `wire`. `reader` is the wire of the provider that reads it now."""
    content = output.content
    if isinstance(output, OpenAIToolOutput) and not isinstance(content, str):
        content = convert_parts([part for part in content if isinstance(part, Mapping)], wire)
        if wire.name != reader.name and not all(isinstance(part, str) for part in content):
            where = f"from {wire.name} to {reader.name}"
            raise InputError(f"The result of {call.id!r} has images, which can't move {where}.")
    if not isinstance(content, str):
        if not isinstance(content, list | tuple):
            raise InputError(
                f"The content of a ToolOutput must be text or a list of parts, not {type(content).__name__}."
            )
        for part in content:
            if not isinstance(part, str) and not (isinstance(part, Mapping) and wire.is_part(part)):
                raise InputError(describe_wrong_part(part, wire) if isinstance(part, Mapping) else _describe(part))
    try:
        native = wire.write_result(call.id, content, error=bool(output.error), name=call.name)
        json_bytes.fields(native)
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(f"The result of {call.id!r} can't be written as JSON: {problem}.") from None
    return Entry(role="tool", wire=wire.name, native=native, at=now(), mark="error" if output.error else "")


def _describe(part: object) -> str:
    return f"The content of a ToolOutput can't contain {type(part).__name__}: pass text or parts (objects)."


def _list_ids(calls: Sequence[ToolCallView]) -> str:
    return ", ".join(repr(call.id) for call in calls)
