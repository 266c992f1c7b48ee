"""The configuration of a brief: the fields that the app declares, and their limits.

A `Field` holds a single text (such as the goal) or a list (such as decisions). A `Schema` is a set of fields, checked
when it is created; `GENERAL` suits most conversations. A `Brief` is a schema with a token budget. It is part of a
policy's fingerprint, so it is frozen and its `repr` is stable.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec

from longtalk.errors import InputError

RESERVED = frozenset(("op", "ops", "operations"))
"""Names that no field may have, because cards use them as keys for operations."""
_MAX_LINES = 500
"""The maximum number of lines in a brief, over all fields."""
_MAX_TOKENS = 20_000
_DEFAULT_CAP = 8
_MAX_NAME_CHARS = 40


class Field(msgspec.Struct, frozen=True):
    """A field of a brief: a single text or a list of items."""

    name: str
    """The name that the app and the model use: letters, digits and underscores."""
    kind: Literal["text", "list"] = "list"
    key: str = ""
    """The name of the field in requests, usually shorter; by default the same as `name`."""
    cap: int = 0
    """The maximum number of items: for a list by default 8 (or `floor`, if that is more), for a text always 1."""
    floor: int = 0
    """The number of items that are guaranteed a place before the remaining budget is shared among all fields."""
    item: int = 24
    """The maximum number of tokens in an item."""
    value: int = 1
    """The priority of the field when the budget is short: lines of fields with the lowest value are dropped first."""
    whole: bool = False
    """Whether a plain list in a card replaces all items of the field. By default its items are added to the field."""
    answers: str = ""
    """The name of the field to which the answer is added when an item of this one is resolved; empty if none."""

    def __post_init__(self) -> None:
        _check_name(self.name, "The name of a field")
        if self.kind not in ("text", "list"):
            raise InputError(f"The kind of the field {self.name!r} must be 'text' or 'list', not {self.kind!r}.")
        if not self.key:
            msgspec.structs.force_setattr(self, "key", self.name)
        _check_name(self.key, f"The key of {self.name!r}")
        if self.cap == 0:
            msgspec.structs.force_setattr(
                self, "cap", 1 if self.kind == "text" else max(_DEFAULT_CAP, _to_int(self.floor))
            )
        self._check_values()

    def _check_values(self) -> None:
        check_whole_number(self.cap, f"The cap of {self.name!r}", 1, _MAX_LINES if self.kind == "list" else 1)
        check_whole_number(self.floor, f"The floor of {self.name!r}", 0, self.cap)
        check_whole_number(self.item, f"`item` of {self.name!r}, in tokens,", 1, _MAX_TOKENS // 10)
        check_whole_number(self.value, f"The value of {self.name!r}", 0, 10**6)
        if not isinstance(self.whole, bool):
            raise InputError(f"`whole` of {self.name!r} must be True or False, not {self.whole!r}.")
        if not isinstance(self.answers, str):
            raise InputError(f"`answers` of {self.name!r} must be the name of a field, not {self.answers!r}.")


class Schema(msgspec.Struct, frozen=True):
    """The fields of a brief. Raises `InputError` if they contradict each other."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        given: object = self.fields
        fields: tuple[object, ...] = tuple(given) if isinstance(given, Iterable) else (given,)
        msgspec.structs.force_setattr(self, "fields", fields)
        wrong = [each for each in fields if not isinstance(each, Field)]
        if wrong:
            raise InputError(f"A schema takes fields such as Field('goal', 'text'), not {wrong[0]!r}.")
        if not fields:
            raise InputError("A schema needs at least one field, such as Field('goal', 'text').")
        _check_distinct(self.fields)
        _check_answers(self.fields)
        lines = sum(field.cap for field in self.fields)
        if lines > _MAX_LINES:
            raise InputError(
                f"The caps of all fields add up to {lines} lines, but a brief has at most {_MAX_LINES}: lower "
                "some caps."
            )

    def find(self, name: str) -> Field | None:
        """Return the field with this name or key, or None if the schema has no such field.

        Case is ignored, and spaces and hyphens match underscores.
        """
        return _map_fields(self).get(_normalize_name(name)) if len(name) <= 2 * _MAX_NAME_CHARS else None


def check_whole_number(value: object, subject: str, least: int, most: int) -> None:
    """Raise `InputError` unless the value is an integer from `least` to `most`. `subject` begins the message."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{subject} must be an integer from {least:,} to {most:,}, not {value!r}.")


def _to_int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _check_name(name: object, subject: str) -> None:
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_") or len(name) > _MAX_NAME_CHARS:
        raise InputError(
            f"{subject} must be at most {_MAX_NAME_CHARS} letters, digits and underscores, such as 'open_questions', "
            f"not {name!r}."
        )
    if _normalize_name(name) in RESERVED:
        raise InputError(f"{subject} can't be {name!r}: cards use that name for their operations.")


def _normalize_name(name: str) -> str:
    name = unicodedata.normalize("NFKC", name).casefold()
    return "_".join(name.replace("-", " ").replace("_", " ").split())


def _check_distinct(fields: tuple[Field, ...]) -> None:
    """Raise `InputError` if two fields share a name or key."""
    taken: dict[str, Field] = {}
    for field in fields:
        for name in (field.name, field.key):
            other = taken.setdefault(_normalize_name(name), field)
            if other is not field:
                raise InputError(
                    f"The fields {other.name!r} and {field.name!r} share the name or key {name!r}: rename one of them."
                )


def _check_answers(fields: tuple[Field, ...]) -> None:
    """Raise `InputError` if the `answers` of a field is set but does not name another list field of the schema."""
    lists = {field.name for field in fields if field.kind == "list"}
    for field in fields:
        if field.answers and field.answers not in lists - {field.name}:
            raise InputError(
                f"`answers` of {field.name!r} must name another list of the schema, not {field.answers!r}."
            )


@lru_cache(maxsize=64)
def _map_fields(schema: Schema) -> dict[str, Field]:
    return {_normalize_name(name): field for field in schema.fields for name in (field.name, field.key)}


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
"""A schema for conversations on any subject.

Its floors fit the default budget even if every item has its full length.
"""


class Brief(msgspec.Struct, frozen=True):
    """The configuration of a brief: its fields, and `budget`, the maximum number of tokens it takes in a request."""

    budget: int = 200
    schema: Schema = GENERAL

    def __post_init__(self) -> None:
        check_whole_number(self.budget, "`budget` of a brief, in tokens,", 1, _MAX_TOKENS)
        if not isinstance(self.schema, Schema):
            raise InputError(f"`schema` of a brief must be a Schema((Field(…), …)), not {self.schema!r}.")
