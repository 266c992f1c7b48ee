"""The memory card: the prompt that asks for it, and the parser that reads it.

A card is JSON inside tags (`wires/card_tags.py`) at the end of an answer; users don't see it. The operations that it
may contain are defined in `memory/brief/operations.py`. The parser never raises, whatever the model writes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from longtalk.memory.brief.operations import Operation, parse_operations, to_list
from longtalk.tokens import Counter
from longtalk.wires.card_tags import MAX_CARD_CHARS

CATCH_UP = "what of this conversation matters later and is not in the brief"
"""The words that ask for a catch-up card. They must not change, because stored requests are recognized by them."""
CARD_TOKENS = 120
CATCH_UP_TOKENS = 300

# Matches strings too, even unclosed ones, so that commas inside them are skipped in linear time.
_STRING_OR_TRAILING_COMMA = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|,(?=\s*[}\]])', re.S)


def read_card(content: str) -> tuple[list[Operation], list[str]] | str:
    """Return the operations in a card and the reasons why parts of it were refused.

    If the whole card can't be read, return the cause instead, such as "not JSON". A code fence around the card,
    trailing commas and line breaks in strings are accepted. Numbers are read as text. If a key is repeated, its values
    are combined.
    """
    if len(content) > MAX_CARD_CHARS:
        return "too long"
    text = _strip_fence(content.strip())
    if not text:
        return "empty"
    try:
        value = _parse_json(text)
    except ValueError:
        return "not JSON"
    except RecursionError:
        return "nested too deeply"
    return parse_operations(value)


def _strip_fence(text: str) -> str:
    if not text.startswith("```"):
        return text
    text = text.strip("`").strip()
    return text[4:].strip() if text[:4].lower() == "json" else text


def _parse_json(text: str) -> object:
    """Parse JSON, accepting trailing commas and line breaks in strings. Raises `ValueError` if it is still not JSON."""
    import json

    decoder = json.JSONDecoder(
        object_pairs_hook=_merge_members, parse_int=str, parse_float=str, parse_constant=str, strict=False
    )
    try:
        return decoder.decode(text)
    except ValueError:
        return decoder.decode(_STRING_OR_TRAILING_COMMA.sub(lambda found: "" if found[0] == "," else found[0], text))


def _merge_members(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object as a dict. If a key is repeated, its values become one list."""
    merged: dict[str, Any] = {}
    for key, value in members:
        merged[key] = [*to_list(merged[key]), *to_list(value)] if key in merged else value
    return merged


def limit_tokens(changes: Sequence[Operation], counter: Counter, *, catch_up: bool = False) -> list[Operation]:
    """Return the changes, without the texts that exceed the token limit of a card.

    The first texts are kept, because models put what matters most first. With `catch_up`, the limit is higher.
    """
    remaining = CATCH_UP_TOKENS if catch_up else CARD_TOKENS
    kept: list[Operation] = []
    for change in changes:
        texts: list[str] = []
        for text in change.texts:
            remaining -= counter.count(text) + 1
            if remaining >= 0:
                texts.append(text)
        remaining -= counter.count(change.answer) if change.answer else 0
        if remaining >= 0 or texts:
            kept.append(msgspec.structs.replace(change, texts=tuple(texts)))
    return kept


def render_instruction(text: str, *, catch_up: bool) -> str:
    """Return the instruction with `{scope}` replaced by a description of what to note.

    If it has no `{scope}`, append one.
    """
    scope = CATCH_UP if catch_up else "what this turn changed"
    return text.replace("{scope}", scope) if "{scope}" in text else f"{text.rstrip()} Note {scope}."


def render_card_prompt(
    fields: Mapping[str, str],
    *,
    lists: Collection[str] = (),
    catch_up: bool = False,
    instruction: str = "",
    example: str = "",
) -> str:
    """Return the instruction that asks the model for a card, followed by the format of the card.

    `instruction` replaces the default text, and `example` the default card. `fields` maps the keys of the brief to
    descriptions, and `lists` has the keys of those fields that take several items. By default the card is about this
    turn; with `catch_up`, about everything that is missing from the brief.
    """
    texts = [f'"{key}":"…"' for key in fields if key not in lists][:1]
    items = [f'"+{key}":["…"]' for key in fields if key in lists][:1]
    card = example.strip() or f"{{{','.join(texts + items)}}}"
    asks = instruction.strip() or "End your answer with a note of {scope}, which no one else sees:"
    keys, words = describe_keys(fields, lists=lists), 120 if catch_up else 45
    return (
        f"{render_instruction(asks, catch_up=catch_up)}\n"
        f"<MEMORY_CARD>{card}</MEMORY_CARD>\n"
        f"{keys} Short phrases, at most {words} words; {{}} if there is nothing."
    )


def describe_keys(fields: Mapping[str, str], *, lists: Collection[str] = ()) -> str:
    """Return a text that tells the model which keys a card may have, and which signs may precede them (+, -, ~).

    `fields` and `lists` mean the same as for `render_card_prompt`.
    """
    single = [_describe_key(key, text) for key, text in fields.items() if key not in lists]
    several = [_describe_key(key, text) for key, text in fields.items() if key in lists]
    parts = [f"Keys: {', '.join(single)}."] if single else []
    if several:
        parts.append(f"Lists: {', '.join(several)}; + adds, - removes, ~ resolves.")
    return " ".join(parts)


def _describe_key(key: str, text: str) -> str:
    text = " ".join(text.split())
    return key if text in (key, f"{key}s") else f"{key} ({text})"
