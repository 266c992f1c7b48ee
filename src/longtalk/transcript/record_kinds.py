"""The kinds of records that the library writes, and how stores treat each kind.

A kind that is not in the table, because an app or a later version defined it, has the default properties of
`RecordKind`.
"""

from __future__ import annotations

import msgspec


class RecordKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of record, with the properties that decide how stores treat its records."""

    name: str
    newest_only: bool = False
    """True if only the newest record of this kind on the path of a branch is used."""
    own_branch_only: bool = False
    """True if other existing branches don't see a record of this kind, even if they share the entry it is attached to.
    """
    may_discard_replaced: bool = False
    """True if a store may discard a record of this kind when a newer record replaces it."""
    is_derived: bool = False
    """True if records of this kind are left out of exports, copies and states, because they can be made again."""
    quotes_entries: bool = True
    """True if a record of this kind may quote entries, so that it is removed when such an entry is redacted."""


KINDS = (
    RecordKind(name="anchor", newest_only=True, may_discard_replaced=True, quotes_entries=False),
    RecordKind(name="app_lines", newest_only=True, own_branch_only=True),
    RecordKind(name="aside"),
    RecordKind(name="attempt", newest_only=True),
    RecordKind(name="epoch", newest_only=True, own_branch_only=True),
    RecordKind(name="excluded", newest_only=True, own_branch_only=True, quotes_entries=False),
    RecordKind(name="handle", newest_only=True),
    RecordKind(name="memory", newest_only=True, own_branch_only=True),
    RecordKind(name="meter", newest_only=True, may_discard_replaced=True, quotes_entries=False),
    RecordKind(name="origin"),
    RecordKind(name="passages", newest_only=True, may_discard_replaced=True),
    RecordKind(name="pins", newest_only=True, own_branch_only=True, quotes_entries=False),
    RecordKind(name="quirks"),
    RecordKind(name="recall", newest_only=True, is_derived=True),
    RecordKind(name="receipt", newest_only=True, quotes_entries=False),
    RecordKind(name="reported"),
    RecordKind(name="settings", newest_only=True, own_branch_only=True),
    RecordKind(name="suffix", newest_only=True),
    RecordKind(name="summary", newest_only=True),
    RecordKind(name="window", newest_only=True, quotes_entries=False),
)
"""All kinds of records, sorted by name. Database schemas may rely on their properties, so a change needs a migration.
"""

_BY_NAME = {kind.name: kind for kind in KINDS}
_UNKNOWN = RecordKind(name="")


def kind_of(name: str) -> RecordKind:
    """Return the kind of record with this name; an unknown kind has the default properties."""
    return _BY_NAME.get(name, _UNKNOWN)
