"""The configuration of a profile: its fields, and their combination with those of a brief."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from longtalk.errors import InputError
from longtalk.memory.brief.schema import Brief, Field, Schema, check_whole_number

ABOUT_THE_USER = Schema(
    (
        Field("about_user", key="about", cap=10, floor=2, item=20, value=2),
        Field("preferences", key="prefers", cap=10, floor=2, item=20, value=1),
    )
)
"""Fields that suit any user: who they are, and how they want things to be done."""
_MAX_BUDGET = 4_000


class Profile(msgspec.Struct, frozen=True):
    """The configuration of a profile: its fields, and `budget`, the maximum number of tokens it takes in a request.

    The model fills in the fields with its memory cards, like those of the brief. What it notes in one conversation of
    an owner is sent in all of them.
    """

    budget: int = 150
    schema: Schema = ABOUT_THE_USER

    def __post_init__(self) -> None:
        check_whole_number(self.budget, "`budget` of a profile, in tokens,", 1, _MAX_BUDGET)
        if not isinstance(self.schema, Schema):
            raise InputError(f"`schema` of a profile must be a Schema((Field(…), …)), not {self.schema!r}.")

    @property
    def brief(self) -> Brief:
        """The configuration of a brief with the fields and the budget of the profile."""
        return Brief(self.budget, self.schema)


def merge_profiles(profiles: Sequence[Profile]) -> Profile | None:
    """Return a profile with the fields of all of these; None if there are none.

    Of fields that share a name or key, the first counts.
    """
    if not profiles:
        return None
    fields: list[Field] = []
    for each in profiles:
        for field in each.schema.fields:
            taken = {name for other in fields for name in (other.name, other.key)}
            if not taken.intersection((field.name, field.key)):
                fields.append(field)
    return Profile(max(each.budget for each in profiles), Schema(tuple(fields)))


@lru_cache(maxsize=16)
def add_profile_fields(brief: Brief, profile: Profile | None) -> Brief:
    """Return the brief with the fields of the profile added, as cards see them.

    Raises `InputError` if both have a field with the same name or key.
    """
    if profile is None:
        return brief
    return Brief(brief.budget, Schema((*brief.schema.fields, *profile.schema.fields)))
