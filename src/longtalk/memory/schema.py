"""What a brief may hold: fields that the app declares, and how much room they have.

A `Field` is a text (a goal: there is one) or a list (decisions: there are several). Its `cap` is how many items it has
at most, its `floor` how many of them other fields can't push out, `item` how long one may be in tokens, and its `value`
what decides when the budget is short: lines of the field with the lowest value go first. On the wire it goes by its
`key`. A `Schema` is fields that go together, checked when it is made; `GENERAL` suits most conversations. A `Brief` is
a schema with a budget: the app's configuration, which policies are told apart by, so that it is frozen and its `repr`
is always the same.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec

from longtalk.errors import InputError

RESERVED = frozenset(("op", "ops", "operations"))
"""What the members of a card are called that are no fields."""
_LINES = 500
"""Lines that a brief may have in all: more would not be brief."""
_TOKENS = 20_000
_CAP = 8
_NAME = 40


class Field(msgspec.Struct, frozen=True):
    """A field of a brief."""

    name: str
    """As the app and the model call it: letters, digits and underscores."""
    kind: Literal["text", "list"] = "list"
    key: str = ""
    """What it is called on the wire; its name unless told otherwise."""
    cap: int = 0
    """How many items it has at most: 8 unless told otherwise. A text has one."""
    floor: int = 0
    """How many items no other field can push out."""
    item: int = 24
    """How many tokens an item has at most."""
    value: int = 1
    """The higher, the longer its lines stay."""
    whole: bool = False
    """Whether a plain list is all that there is, and takes the place of what was there. Otherwise it adds."""
    answers: str = ""
    """The field that keeps the answers to what is resolved in this one."""

    def __post_init__(self) -> None:
        _named(self.name, "A field's name")
        if self.kind not in ("text", "list"):
            raise InputError(f"The field {self.name!r} is of the kind 'text' or 'list', not {self.kind!r}.")
        if not self.key:
            msgspec.structs.force_setattr(self, "key", self.name)
        _named(self.key, f"The key of {self.name!r}")
        if self.cap == 0:
            msgspec.structs.force_setattr(self, "cap", 1 if self.kind == "text" else max(_CAP, _number(self.floor)))
        self._check()

    def _check(self) -> None:
        within(self.cap, f"The cap of {self.name!r}", 1, _LINES if self.kind == "list" else 1)
        within(self.floor, f"The floor of {self.name!r}", 0, self.cap)
        within(self.item, f"The tokens of an item of {self.name!r}", 1, _TOKENS // 10)
        within(self.value, f"The value of {self.name!r}", 0, 10**6)
        if not isinstance(self.whole, bool):
            raise InputError(f"`whole` of {self.name!r} is True or False, not {self.whole!r}.")
        if not isinstance(self.answers, str):
            raise InputError(f"`answers` of {self.name!r} is the name of a field, not {self.answers!r}.")


class Schema(msgspec.Struct, frozen=True):
    """The fields of a brief."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        given: object = self.fields
        fields: tuple[object, ...] = tuple(given) if isinstance(given, Iterable) else (given,)
        msgspec.structs.force_setattr(self, "fields", fields)
        wrong = [each for each in fields if not isinstance(each, Field)]
        if wrong or not fields:
            what = f"not {wrong[0]!r}" if wrong else "and at least one of them"
            raise InputError(f"A schema takes fields such as Field('goal', 'text'), {what}.")
        _distinct(self.fields)
        _answered(self.fields)
        lines = sum(field.cap for field in self.fields)
        if lines > _LINES:
            raise InputError(f"The caps of all fields make {lines} lines, and a brief has at most {_LINES}.")

    def find(self, called: str) -> Field | None:
        """The field of this name or key, in any letter case, with blanks or hyphens for underscores."""
        return _names(self).get(_plain(called)) if len(called) <= 2 * _NAME else None


def within(value: object, what: str, least: int, most: int) -> None:
    """Raise `InputError` unless this is a whole number between these."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{what} is a whole number from {least:,} to {most:,}, not {value!r}.")


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _named(name: object, what: str) -> None:
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_") or len(name) > _NAME:
        raise InputError(f"{what} is made of letters, digits and underscores, such as 'open_questions', not {name!r}.")
    if _plain(name) in RESERVED:
        raise InputError(f"{what} can't be {name!r}: a card has its operations under that name.")


def _plain(name: str) -> str:
    """A name as it is compared."""
    name = unicodedata.normalize("NFKC", name).casefold()
    return "_".join(name.replace("-", " ").replace("_", " ").split())


def _distinct(fields: tuple[Field, ...]) -> None:
    """Raise `InputError` unless each name and each key means one field."""
    taken: dict[str, Field] = {}
    for field in fields:
        for called in (field.name, field.key):
            other = taken.setdefault(_plain(called), field)
            if other is not field:
                raise InputError(f"{called!r} means two fields, {other.name!r} and {field.name!r}: rename one.")


def _answered(fields: tuple[Field, ...]) -> None:
    """Raise `InputError` unless answers go to lists of the same schema."""
    lists = {field.name for field in fields if field.kind == "list"}
    for field in fields:
        if field.answers and field.answers not in lists - {field.name}:
            raise InputError(f"The answers of {field.name!r} go to another list of its schema, not {field.answers!r}.")


@lru_cache(maxsize=64)
def _names(schema: Schema) -> dict[str, Field]:
    return {_plain(called): field for field in schema.fields for called in (field.name, field.key)}


GENERAL = Schema(
    (
        Field("goal", "text", floor=1, item=26, value=6),
        Field("constraints", key="must", cap=6, floor=2, value=5),
        Field("decisions", key="decided", cap=8, floor=2, value=4),
        Field("open_questions", key="open", cap=5, floor=1, value=3, whole=True, answers="decisions"),
        Field("facts", key="fact", cap=10, floor=1, value=2),
        Field("topics", key="topic", cap=6, item=8, value=1, whole=True),
    )
)
"""For conversations about anything. Even its longest floors fit the usual budget."""


class Brief(msgspec.Struct, frozen=True):
    """That a brief is kept: at most so many tokens on the wire, with these fields."""

    budget: int = 200
    schema: Schema = GENERAL

    def __post_init__(self) -> None:
        within(self.budget, "The budget of a brief in tokens", 1, _TOKENS)
        if not isinstance(self.schema, Schema):
            raise InputError(f"The schema of a brief is a Schema((Field(…), …)), not {self.schema!r}.")
