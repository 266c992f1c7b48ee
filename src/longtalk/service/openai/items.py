"""Entries of a transcript as items of the Responses API.

Items are renderings: nothing of them is stored. What a client has sent in this form is shown as it was sent, with an
id; an answer of any provider is shown as reasoning, a message and function calls. Their ids are those in the
conversation; `place_items` makes them those that clients see.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from longtalk._util import json_bytes
from longtalk.memory.cards.hidden import find_memory_calls, is_hidden
from longtalk.service.ids import make_entry_item_id, make_item_id, place_item_id
from longtalk.service.openai.client_tools import CallForm, read_custom_input
from longtalk.service.openai.compactions import NO_COMPACTIONS, make_compaction
from longtalk.transcript.transcript import Entry
from longtalk.turn.memory import RECALL
from longtalk.turn.output import is_correction
from longtalk.wires import WIRES
from longtalk.wires.blocks import ReasoningBlock, TextBlock, list_blocks
from longtalk.wires.convert import CallIdMap, convert_entry
from longtalk.wires.entries import view_entry
from longtalk.wires.part_ends import Citation
from longtalk.wires.registry import find_family

Item = dict[str, Any]
_RESPONSES = WIRES["openai-responses"]
_STATUSES = {"interrupted": "incomplete", "length": "incomplete", "filtered": "incomplete"}
_OWN_TOOLS = (RECALL,)
"""Tools of the library itself, whose calls a client neither runs nor sees."""


def make_message(id: str, block: TextBlock, status: str = "completed") -> Item:  # noqa: A002
    """Return an answer's message as an item."""
    content: list[Item] = []
    if block.text.strip() or not block.refusal:
        content.append(make_text_part(block.text, block.citations))
    if block.refusal:
        content.append({"type": "refusal", "refusal": block.refusal})
    item: Item = {"id": id, "type": "message", "status": status, "role": "assistant", "content": content}
    return {**item, "phase": block.phase} if block.phase else item


def make_text_part(text: str, citations: Sequence[Citation] = ()) -> Item:
    """Return the text of a message as a part of its content."""
    return {"type": "output_text", "text": text, "annotations": list(citations), "logprobs": []}


def make_call(
    id: str,  # noqa: A002
    call_id: str,
    name: str,
    arguments: str,
    status: str = "completed",
    *,
    form: CallForm | None = None,
) -> Item:
    """Return a call as an item, in the form of the tool that the client has declared."""
    form = form or CallForm(name)
    call: Item = {"id": id, "type": "function_call", "status": status, "call_id": call_id, "name": form.name}
    if form.namespace:
        call["namespace"] = form.namespace
    if form.is_custom:
        return {**call, "type": "custom_tool_call", "input": read_custom_input(arguments) if arguments else ""}
    return {**call, "arguments": arguments}


def make_reasoning(id: str, block: ReasoningBlock, status: str = "completed", *, encrypted: bool = False) -> Item:  # noqa: A002
    """Return the visible part of the model's reasoning as an item, with its encrypted form if that is asked for."""
    item: Item = {"id": id, "type": "reasoning", "status": status, "summary": []}
    if block.text:
        item["summary"] = [{"type": "summary_text", "text": block.text}]
    if block.raw:
        item["content"] = [{"type": "reasoning_text", "text": block.raw}]
    if block.sealed and encrypted:
        item["encrypted_content"] = block.sealed
    return item


class ItemNumbers:
    """Numbers the items of one turn by their kind, in the order in which they come."""

    def __init__(self, turn: str, conversation: str | None = None) -> None:
        self._turn = turn
        self._conversation = conversation
        self._next = {"msg": 0, "fc": 0, "rs": 0, "cmp": 0}

    def take(self, kind: str) -> str:
        """Return the id of the next item of a kind."""
        self._next[kind] += 1
        name = make_item_id(kind, self._turn, self._next[kind] - 1)
        return name if self._conversation is None else place_item_id(name, self._conversation)

    def skip(self, item: str) -> None:
        """Note that an item of this id is there already."""
        self._next[item.partition("_")[0]] += 1


def to_output_items(
    entries: Iterable[Entry],
    turn: str,
    *,
    tools: Mapping[str, CallForm] | None = None,
    encrypted: bool = False,
    compactions: Mapping[str, str] = NO_COMPACTIONS,
) -> list[Item]:
    """Return the answers of a turn as items.

    `tools` are the client's tools by their names; calls of others are not shown. None shows all that are not the
    library's own. `encrypted` includes the encrypted reasoning of a Responses provider, in the same items.
    `compactions` are the contents of the compaction items, by the ids of the entries that they follow.
    """
    listed = list(entries)
    hidden, numbers, items = find_memory_calls(listed), ItemNumbers(turn), list[Item]()
    for i, entry in enumerate(listed):
        if entry.role == "assistant":
            items += _make_compactions(entry, numbers, compactions)
            made = _make_answer(entry, numbers, hidden.get(i, frozenset()), tools, encrypted=encrypted)
            items += [] if _is_sent_back(listed, i) else made
    return items


def _make_compactions(answer: Entry, numbers: ItemNumbers, compactions: Mapping[str, str]) -> list[Item]:
    """Return the compaction item before an answer, if there is one."""
    if not compactions:
        return []
    # A turn without a message of its own compacts after the last entry of the turn before it.
    content = compactions.get(answer.parent or "")
    return [] if content is None else [make_compaction(numbers.take("cmp"), content)]


def _is_sent_back(entries: Sequence[Entry], i: int) -> bool:
    """Return True for an answer of a wrong form, after which the model was asked for another one."""
    return i + 1 < len(entries) and is_correction(entries[i + 1])


def _make_answer(
    entry: Entry,
    numbers: ItemNumbers,
    hidden: Collection[str],
    tools: Mapping[str, CallForm] | None,
    *,
    encrypted: bool = False,
    calls: Mapping[str, CallForm] = MappingProxyType({}),
) -> list[Item]:
    """Return the items of one answer, in the order in which a stream shows them."""
    items: list[Item] = []
    for block in list_blocks(entry):
        if isinstance(block, ReasoningBlock):
            items.append(make_reasoning(numbers.take("rs"), block, encrypted=encrypted))
        elif isinstance(block, TextBlock):
            items.append(make_message(numbers.take("msg"), block))
        elif block.id not in hidden and is_shown(block.name, tools):
            arguments = block.arguments.decode("utf-8", "replace") or "{}"
            form = calls.get(block.id) or (tools.get(block.name) if tools is not None else None)
            items.append(make_call(numbers.take("fc"), block.id, block.name, arguments, form=form))
    if items and items[-1]["type"] in ("message", "reasoning"):
        items[-1]["status"] = _STATUSES.get(entry.condition, "completed")
    return items


def is_shown(name: str, tools: Collection[str] | None) -> bool:
    """Return True if a client sees the calls of a tool."""
    return name in tools if tools is not None else name not in _OWN_TOOLS


def to_input_item(entry: Entry, calls: Mapping[str, CallForm] = MappingProxyType({})) -> Item | None:
    """Return an entry of a turn's input as an item, or None if items have no form for it (a note of the app).

    `calls` are the forms in which the client has sent calls and results, by their ids.
    """
    if entry.wire in WIRES and find_family(WIRES[entry.wire]) == "openai-responses":
        native = entry.native
    else:
        converted = convert_entry(entry, _RESPONSES, CallIdMap())
        if converted is None:
            return None
        native = converted.native if converted.wire == _RESPONSES.name else b""
    seen = view_entry(entry)
    value: Item = json_bytes.value(native) if native else {"role": "system", "content": seen.text}
    if entry.role == "tool":
        form = calls.get(value.get("call_id", ""))
        if form is not None and form.is_custom:
            value["type"] = "custom_tool_call_output"
        return {**value, "id": make_entry_item_id("fco", entry.id), "status": "completed"}
    if "content" in value:
        value["content"] = complete_content(value["content"])
    return {**value, "type": "message", "id": make_entry_item_id("msg", entry.id), "status": "completed"}


def complete_content(content: Any) -> Any:
    """Return the content of a message of a client as a list of parts, with the fields that a part always has."""
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}]
    return [_complete_part(part) for part in content] if isinstance(content, list) else content


def _complete_part(part: Any) -> Any:
    """Return a part of a message with the inner fields that a client may leave out and an item always has."""
    return {"detail": "auto", **part} if isinstance(part, dict) and part.get("type") == "input_image" else part


def place_items(items: Iterable[Item], conversation: str) -> list[Item]:
    """Return items with their ids as clients see them."""
    return [{**item, "id": place_item_id(item["id"], conversation)} for item in items]


def drop_id(item: bytes) -> bytes:
    """Return an item that a client sends without its id: providers refuse ids that they have not given."""
    fields = json_bytes.fields(item) if b'"id"' in item else {}
    return json_bytes.build({name: value for name, value in fields.items() if name != "id"}) if "id" in fields else item


def to_items(
    entries: Sequence[Entry],
    tools: Mapping[str, Mapping[str, CallForm] | None],
    *,
    encrypted: bool = False,
    calls: Mapping[str, CallForm] = MappingProxyType({}),
    deleted: Mapping[str, Sequence[str]] = MappingProxyType({}),
    compactions: Mapping[str, str] = NO_COMPACTIONS,
) -> list[Item]:
    """Return all items of a conversation, oldest first. `tools` has the client's functions of each turn, by its id.

    `encrypted` includes the encrypted reasoning. `calls` are the forms in which the client has sent calls and results.
    `deleted` has the ids of the items that were deleted, by the ids of their entries. `compactions` are as for
    `to_output_items`.
    """
    items: list[Item] = []
    start = 0
    hidden = find_memory_calls(entries)
    while start < len(entries):
        turn = entries[start].turn
        stop = next((i for i in range(start, len(entries)) if entries[i].turn != turn), len(entries))
        forms, numbers = tools.get(turn), ItemNumbers(turn)
        for i in range(start, stop):
            entry, calls_hidden = entries[i], hidden.get(i, frozenset())
            if entry.id in deleted:
                for each in deleted[entry.id] if entry.role == "assistant" else ():
                    # The ids of later items stay.
                    numbers.skip(each)
            elif entry.role == "assistant":
                items += _make_compactions(entry, numbers, compactions)
                made = _make_answer(entry, numbers, calls_hidden, forms, encrypted=encrypted, calls=calls)
                items += [] if _is_sent_back(entries, i) else made
            elif is_correction(entry):
                continue
            elif not is_hidden(entry, calls_hidden) and (item := to_input_item(entry, calls)) is not None:
                items.append(item)
        start = stop
    return items
