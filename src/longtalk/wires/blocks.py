"""Read a stored answer as blocks: reasoning, text and calls, in the order in which a stream shows them.

Neighbouring blocks of the same kind are one block, because a stream has nothing between them; only the items of the
Responses API stay apart. Blank texts and other blocks, such as a search that the provider has run, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from longtalk._util import json_bytes
from longtalk.transcript.pack import Entry
from longtalk.wires.entries import view_entry
from longtalk.wires.part_ends import (
    Citation,
    PartEnd,
    read_anthropic_text,
    read_chat_message,
    read_item,
    read_text,
    shift,
)
from longtalk.wires.registry import WIRES, find_family
from longtalk.wires.views import MessageView, ToolCallView


class ReasoningBlock(msgspec.Struct, frozen=True):
    """The readable part of some reasoning. Only an item of the Responses API can be without text."""

    text: str = ""
    """A summary that the provider has made."""
    raw: str = ""
    """The reasoning itself, as open models show it."""
    sealed: str = ""
    """The encrypted form that an OpenAI Responses provider has sent with it."""
    is_item: bool = False


class TextBlock(msgspec.Struct, frozen=True):
    """Text of the answer, without memory cards, and what the provider says about it (see `PartEnd`)."""

    text: str
    citations: tuple[Citation, ...] = ()
    phase: str = ""
    refusal: str = ""
    is_item: bool = False


Block: TypeAlias = ReasoningBlock | TextBlock | ToolCallView


def list_blocks(entry: Entry) -> list[Block]:
    """Return the blocks of an answer.

    Gemini streams a call only when the answer is complete, so its calls come last.
    """
    view = view_entry(entry)
    family = find_family(WIRES[entry.wire])
    value = _read_object(entry.native) if family else {}
    calls = iter(view.calls)
    found: Iterable[Block]
    if family == "anthropic" and isinstance(value.get("content"), list):
        found = _read_anthropic(value, calls)
    elif family == "gemini":
        found = _read_gemini(value)
    elif family == "openai-responses" and isinstance(value.get("output"), list):
        found = _read_responses(value, calls)
    else:
        reasoning = value.get("reasoning_content") or value.get("reasoning")
        said = read_chat_message(value, view.text)
        found = [ReasoningBlock(raw=reasoning if isinstance(reasoning, str) else ""), _make_text(said)]
    # Calls that were not read in their place come last.
    joined = _join(_hide_cards([*found, *calls], view), _SEPARATORS.get(family, "\n\n"))
    return joined if family == "openai-responses" else _add_refusal(joined, view.refusal)


def read_reasoning(entry: Entry) -> str:
    """Return the readable reasoning of an answer; empty if it has none. Encrypted reasoning can't be read."""
    if entry.role != "assistant" or entry.wire not in WIRES:
        return ""
    try:
        blocks = list_blocks(entry)
    except (ValueError, RecursionError):
        return ""
    found = [block for block in blocks if isinstance(block, ReasoningBlock)]
    return "\n\n".join(text for block in found for text in (block.text, block.raw) if text)


def _read_anthropic(value: Mapping[str, Any], calls: Iterator[ToolCallView]) -> Iterator[Block]:
    for block in _list_objects(value["content"]):
        if "thinking" in block:
            yield ReasoningBlock(read_text(block, "thinking"))
        elif block.get("type") == "text":
            yield _make_text(read_anthropic_text(block))
        elif block.get("type") == "tool_use":
            yield from _take_call(calls)


def _read_gemini(value: Mapping[str, Any]) -> Iterator[Block]:
    for part in _list_objects(value.get("parts")):
        kind = ReasoningBlock if part.get("thought") is True else TextBlock
        yield kind(read_text(part, "text"))


def _read_responses(value: Mapping[str, Any], calls: Iterator[ToolCallView]) -> Iterator[Block]:
    for item in _list_objects(value["output"]):
        end = read_item(item)
        if end is not None and end.kind == "reasoning":
            yield ReasoningBlock(end.text, end.raw, end.sealed, is_item=True)
        elif end is not None:
            yield _make_text(end)
        elif item.get("type") in ("function_call", "custom_tool_call") and item.get("status") != "incomplete":
            yield from _take_call(calls)


def _make_text(end: PartEnd) -> TextBlock:
    return TextBlock(end.text, end.citations, end.phase, end.refusal, end.is_item)


def _take_call(calls: Iterator[ToolCallView]) -> Iterator[ToolCallView]:
    call = next(calls, None)
    if call is not None:
        yield call


_SEPARATORS = {"gemini": ""}
"""What is between two pieces of reasoning, by the family of a wire. Gemini cuts its thoughts anywhere."""


def _join(blocks: Iterable[Block], separator: str) -> list[Block]:
    """Return the blocks with neighbours of the same kind joined, and without texts that have only white space."""
    joined: list[Block] = []
    for block in blocks:
        last = joined[-1] if joined else None
        if isinstance(block, TextBlock):
            if block.is_item:
                _drop_blank(joined)
                joined.append(block)
            elif isinstance(last, TextBlock):
                citations = (*last.citations, *shift(block.citations, len(last.text)))
                joined[-1] = TextBlock(last.text + block.text, citations)
            elif block.text:
                joined.append(block)
        elif isinstance(block, ToolCallView):
            _drop_blank(joined)
            joined.append(block)
        elif block.is_item:
            _drop_blank(joined)
            joined.append(_strip(block))
        elif block.text or block.raw:
            is_blank = last is not None and _is_blank(last)
            before = last if not is_blank else joined[-2] if len(joined) > 1 else None
            if isinstance(before, ReasoningBlock):
                texts = separator.join(filter(None, (before.text, block.text)))
                joined[-1 - is_blank :] = [ReasoningBlock(texts, before.raw or block.raw)]
            elif _strip(block) != ReasoningBlock():
                _drop_blank(joined)
                joined.append(_strip(block))
    _drop_blank(joined)
    return joined


def _strip(block: ReasoningBlock) -> ReasoningBlock:
    return msgspec.structs.replace(block, text=block.text.lstrip("\n"), raw=block.raw.lstrip("\n"))


def _drop_blank(blocks: list[Block]) -> None:
    if blocks and _is_blank(blocks[-1]):
        blocks.pop()


def _is_blank(block: Block) -> bool:
    return isinstance(block, TextBlock) and not block.text.strip() and not block.refusal


def _add_refusal(blocks: list[Block], refusal: str) -> list[Block]:
    """Return the blocks with a refusal, which is part of the last text."""
    if not refusal:
        return blocks
    last = blocks[-1] if blocks else None
    if isinstance(last, TextBlock):
        return [*blocks[:-1], msgspec.structs.replace(last, refusal=refusal)]
    return [*blocks, TextBlock("", refusal=refusal)]


def _hide_cards(blocks: Iterable[Block], view: MessageView) -> list[Block]:
    """Return the blocks with only the text that the view shows."""
    rest, shown = view.text, list[Block]()
    for block in blocks:
        if isinstance(block, TextBlock):
            if "<" in block.refusal:
                block = msgspec.structs.replace(block, refusal=view.refusal)
            is_whole = rest.startswith(block.text)
            shown.append(block if is_whole else msgspec.structs.replace(block, text=rest))
            rest = rest[len(block.text) :] if is_whole else ""
        else:
            shown.append(block)
    return shown


def _read_object(native: bytes) -> Mapping[str, Any]:
    value = json_bytes.value(native)
    return value if isinstance(value, Mapping) else {}


def _list_objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
