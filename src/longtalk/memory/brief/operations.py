"""Operations that change a brief, and the parser that reads operations from an untrusted card.

The model and the app state only what changes; all other lines stay:

- `set` replaces the text of a field, or all items of a list;
- `add` adds items to a list; for a field with a single text, it works like `set`;
- `remove` removes items, each named by its text, by an unambiguous beginning of its text, or by its id;
- `resolve` removes an open question, named in the same way, and adds its answer to the brief if one is given;
- `clear` empties a field;
- `revoke`, for the app only, removes a line by its id and prevents the model from adding it again.

A card can take three forms, which may be mixed:

- operations: `{"ops": [{"op": "add", "field": "facts", "text": "…"}]}`, or just the list, or just one operation;
- signs before fields: `{"+facts": "…", "-facts": ["…", "…"], "~open": "…", "=goal": "…", "!topics": 1}`;
- plain fields: `{"goal": "…", "facts": ["…", "…"]}`. A text replaces the previous one. The items of a list are added,
  because models that are asked for changes list only what is new. For a field declared `whole`, they replace all items.

An empty value changes nothing, except with `!`, which clears the field whatever the value is. Each text is put on one
line, lone surrogates are replaced, and tags are neutralized. `apply` checks later whether the fields exist.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from longtalk._util.lookalikes import neutralize
from longtalk.memory.brief.lines import clean_line
from longtalk.memory.brief.schema import RESERVED

_SIGNS = {"=": "set", "+": "add", "-": "remove", "~": "resolve", "!": "clear"}
MAX_TEXTS = 300
"""The maximum number of texts that one card or edit may add or name. A sensible card has far fewer."""
_PLACEHOLDER_CHARS = " .…"
_TEXT_KEYS = ("text", "texts", "item", "items", "value")
_TYPE_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "nothing"}

T = TypeVar("T")


class Operation(msgspec.Struct, frozen=True):
    """One change to a brief."""

    op: str
    """The name of the operation, such as `add`; `plain` for a plain field of a card."""
    field: str = ""
    """The name or key of the field. With `remove`, `resolve` and `revoke`, an empty name means all fields."""
    texts: tuple[str, ...] = ()
    answer: str = ""
    """The answer to a question that is resolved. It should be understandable without the question."""

    @classmethod
    def set(cls, field: str, *texts: str) -> Operation:
        return cls("set", field, texts)

    @classmethod
    def add(cls, field: str, *texts: str) -> Operation:
        return cls("add", field, texts)

    @classmethod
    def remove(cls, field: str, *texts: str) -> Operation:
        return cls("remove", field, texts)

    @classmethod
    def resolve(cls, field: str, text: str, *, answer: str = "") -> Operation:
        return cls("resolve", field, (text,), answer)

    @classmethod
    def clear(cls, field: str) -> Operation:
        return cls("clear", field)

    @classmethod
    def revoke(cls, line: str) -> Operation:
        return cls("revoke", "", (line,))


def parse_operations(card: object) -> tuple[list[Operation], list[str]]:
    """Return the operations in a card, and the reasons why parts of the card were refused.

    `card` is the parsed JSON of the card and may be any value.
    """
    operations: list[Operation] = []
    refused: list[str] = []
    if isinstance(card, list) or (isinstance(card, dict) and isinstance(card.get("op"), str)):
        card = {"ops": card}
    if not isinstance(card, dict):
        return [], [f"A card must be a JSON object, not {_describe_type(card)}."]
    for key, value in _limit_values(list(card.items()), refused):
        name = _clean_text(key)
        op = _SIGNS.get(name[:1], "plain")
        field = name if op == "plain" else name[1:].strip()
        if name.casefold() in RESERVED:
            for each in _limit_values(to_list(value), refused):
                _parse_operation(each, operations, refused)
        elif op == "clear":
            operations.append(Operation(op, field))
        elif texts := _parse_texts(value, name, refused):
            operations.append(Operation(op, field, texts))
    return operations, refused


def to_list(value: object) -> list[Any]:
    """Return a list unchanged, None as an empty list, and any other value as a list with one item."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _parse_operation(value: object, operations: list[Operation], refused: list[str]) -> None:
    """Parse one operation of a card and add it to `operations`. If it is invalid, add the reason to `refused`."""
    if not isinstance(value, dict):
        refused.append(f"An operation must be a JSON object, not {_describe_type(value)}.")
        return
    op_name, field, answer = value.get("op"), value.get("field"), value.get("answer")
    op = op_name.strip().casefold() if isinstance(op_name, str) else ""
    if op not in _SIGNS.values():
        refused.append(f"Unknown operation {quote(op_name)}.")
        return
    if not isinstance(field, str | None):
        refused.append(f"The field of an operation must be a string, not {_describe_type(field)}.")
        return
    if not isinstance(answer, str | None):
        refused.append(f"An answer must be a string, not {_describe_type(answer)}.")
        answer = None
    text_value = next((value[key] for key in _TEXT_KEYS if value.get(key) is not None), None)
    before = len(refused)
    texts = _parse_texts(text_value, op, refused)
    if texts or len(refused) == before:
        operations.append(Operation(op, _clean_text(field or ""), texts, _clean_text(answer or "")))


def _parse_texts(value: object, where: str, refused: list[str]) -> tuple[str, ...]:
    """Return the texts in a string or a list of strings, without empty ones and placeholders ("…").

    For each placeholder and each value of another type, add a reason to `refused`. `where` is the name by which these
    reasons refer to the value.
    """
    items = _limit_values(to_list(value), refused)
    refused += [
        f"{quote(where)} takes a string, not {_describe_type(item)}." for item in items if not isinstance(item, str)
    ]
    texts = [_clean_text(item) for item in items if isinstance(item, str)]
    # A model may repeat the "…" of the prompt.
    refused += [
        f"{quote(text)} is a placeholder, not a text." for text in texts if text and not text.strip(_PLACEHOLDER_CHARS)
    ]
    return tuple(text for text in texts if text.strip(_PLACEHOLDER_CHARS))


def _clean_text(text: str) -> str:
    """Return a text on one line, with tags neutralized so that it can be sent to a model safely."""
    return neutralize(clean_line(text))


def _limit_values(values: list[T], refused: list[str]) -> list[T]:
    """Return the first `MAX_TEXTS` values. If there are more, add a sentence about that to `refused`."""
    if len(values) > MAX_TEXTS:
        refused.append(f"Only the first {MAX_TEXTS} of {len(values)} values in a list were applied.")
    return values[:MAX_TEXTS]


def _describe_type(value: object) -> str:
    return _TYPE_NAMES.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


def quote(value: object) -> str:
    """Return a value as error messages show it: a string in quotes, cut to 40 characters; any other by its type."""
    if not isinstance(value, str):
        return _describe_type(value)
    return repr(neutralize(value[:40])) + "…" * (len(value) > 40)
