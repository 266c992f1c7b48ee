"""How a brief is changed, and how a card that nobody has checked is read as such changes.

The model or the app says what changes, and what is not mentioned stays:

- `set` makes a text this one, and a list exactly these items;
- `add` puts items into a list; into a text it is `set`;
- `remove` takes items away, by their text, an unambiguous beginning of it, or their id;
- `resolve` takes an open question away in the same manner, and keeps its answer if there is one;
- `clear` empties a field;
- `revoke`, for the app alone, takes a line away by its id, and the model can't say it again.

A card has three forms, which may be mixed:

- operations: `{"ops": [{"op": "add", "field": "facts", "text": "…"}]}`, or the list or one of them alone;
- signs before fields: `{"+facts": "…", "-facts": ["…", "…"], "~open": "…", "=goal": "…", "!topics": 1}`;
- plain fields: `{"goal": "…", "facts": ["…", "…"]}`. There a text takes the place of the one before. A list adds what
  is new in it, since models that are asked what changed give lists of just that, unless the field is declared
  `whole`: then it is all that there is.

A field or a sign with nothing says nothing, but for `!`: it clears whatever stands there. Texts come out in one line,
without half characters, and with no tag of a card. Whether there is such a field, the brief says.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from longtalk.memory.notes import cleaned
from longtalk.memory.schema import RESERVED
from longtalk.memory.sentinel import neutralised

_SIGNS = {"=": "set", "+": "add", "-": "remove", "~": "resolve", "!": "clear"}
MOST = 300
"""Texts of a card that count: no card that is meant well has more."""
_DOTS = " .…"
_TEXTS = ("text", "texts", "item", "items", "value")
_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}

T = TypeVar("T")


class Operation(msgspec.Struct, frozen=True):
    """A change of a brief."""

    op: str
    """One of those above, or `plain` for a field of a plain card."""
    field: str = ""
    """Its name or key. What is removed or resolved is found without it, too."""
    texts: tuple[str, ...] = ()
    answer: str = ""
    """To what is resolved. It should say enough without its question."""

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


def operations(card: object) -> tuple[list[Operation], list[str]]:
    """What a card asks for, and in words what was refused of it. The card is any JSON value."""
    made: list[Operation] = []
    refused: list[str] = []
    if isinstance(card, list) or (isinstance(card, dict) and isinstance(card.get("op"), str)):
        card = {"ops": card}
    if not isinstance(card, dict):
        return [], [f"A card is an object, not {_kind(card)}."]
    for key, value in _first(list(card.items()), refused):
        name = _line(key)
        op = _SIGNS.get(name[:1], "plain")
        field = name if op == "plain" else name[1:].strip()
        if name.casefold() in RESERVED:
            for each in _first(listed(value), refused):
                _read(each, made, refused)
        elif op == "clear":
            made.append(Operation(op, field))
        elif texts := _texts(value, name, refused):
            made.append(Operation(op, field, texts))
    return made, refused


def listed(value: object) -> list[Any]:
    """One or several as a list."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _read(value: object, made: list[Operation], refused: list[str]) -> None:
    """An operation of a card."""
    if not isinstance(value, dict):
        refused.append(f"An operation is an object, not {_kind(value)}.")
        return
    word, field, answer = value.get("op"), value.get("field"), value.get("answer")
    op = word.strip().casefold() if isinstance(word, str) else ""
    if op not in _SIGNS.values():
        refused.append(f"There is no operation {quote(word)}.")
        return
    if not isinstance(field, str | None):
        refused.append(f"The field of an operation is a name, not {_kind(field)}.")
        return
    if not isinstance(answer, str | None):
        refused.append(f"An answer is a text, not {_kind(answer)}.")
        answer = None
    given = next((value[key] for key in _TEXTS if value.get(key) is not None), None)
    before = len(refused)
    texts = _texts(given, op, refused)
    if texts or len(refused) == before:
        made.append(Operation(op, _line(field or ""), texts, _line(answer or "")))


def _texts(value: object, where: str, refused: list[str]) -> tuple[str, ...]:
    """A text or a list of texts; what is neither is refused, what is empty says nothing."""
    items = _first(listed(value), refused)
    refused += [f"{quote(where)} takes a text, not {_kind(item)}." for item in items if not isinstance(item, str)]
    texts = [_line(item) for item in items if isinstance(item, str)]
    # A model may repeat the form in which it was asked.
    refused += [f"{quote(text)} says nothing." for text in texts if text and not text.strip(_DOTS)]
    return tuple(text for text in texts if text.strip(_DOTS))


def _line(text: str) -> str:
    """A text as it may be sent back."""
    return neutralised(cleaned(text))


def _first(values: list[T], refused: list[str]) -> list[T]:
    """As many as count: a card is short."""
    if len(values) > MOST:
        refused.append(f"Of {len(values)} in a row only the first {MOST} count.")
    return values[:MOST]


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


def quote(value: object) -> str:
    """A value in a message: short, whatever it is."""
    if not isinstance(value, str):
        return _kind(value)
    return repr(neutralised(value[:40])) + "…" * (len(value) > 40)
