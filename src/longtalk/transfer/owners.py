"""Choose the owners whose conversations are imported or copied, and the owner that each conversation gets."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from longtalk.errors import InputError
from longtalk.stores.base import Store

Owners: TypeAlias = 'Literal["all"] | Mapping[str, str] | None'
"""`"all"`: every owner, under the same name. A mapping: the new name of each owner. None: one owner only."""


def check_owners(owners: object) -> None:
    """Raise `InputError` unless `owners` is "all", None, or a mapping from names to names."""
    if owners is None or owners == "all":
        return
    if not isinstance(owners, Mapping) or not all(isinstance(name, str) for pair in owners.items() for name in pair):
        raise InputError(f'owners must be "all", or map the name of each owner to a new name, not {owners!r}.')


def read_owner_map(path: Path) -> dict[str, str]:
    """Return the owner map in a file: a JSON object, or CSV with two columns. Raise `InputError` for anything else."""
    try:
        data = path.read_bytes()
        if data.lstrip()[:1] == b"{":
            return msgspec.json.decode(data, type=dict[str, str])
        rows = [row for row in csv.reader(io.StringIO(data.decode("utf-8-sig"))) if row]
        wrong = next((number for number, row in enumerate(rows, 1) if len(row) != 2), 0)
        if wrong:
            raise ValueError(f"row {wrong} has {len(rows[wrong - 1])} columns, not two")
        names = [old for old, _ in rows]
        twice = next((name for name in names if names.count(name) > 1), None) if len({*names}) < len(names) else None
        if twice is not None:
            raise ValueError(f"it names {twice!r} twice")
        return {old: new for old, new in rows}  # noqa: C416  # rows are lists
    except OSError as problem:
        raise InputError(f"The owner map {path.name!r} can't be read: {problem.strerror}.") from None
    except (ValueError, csv.Error) as problem:
        raise InputError(
            f"The owner map {path.name!r} is not valid ({problem}). Write a JSON object such as "
            '{"old name": "new name"}, or CSV with two columns.'
        ) from None


def check_owner_choice(owner: str, owners: Owners, *, has_owners: bool) -> None:
    """Raise `InputError` if it is unclear for which owner the conversations of a source are imported.

    `has_owners` is True if the conversations have owners in the source.
    """
    if has_owners and owners is None and not owner:
        raise InputError(
            'The conversations have owners: choose all owners (owners="all"), an owner map (owners={…}), or one owner.'
        )
    if not has_owners and owners == "all":
        raise InputError("The conversations have no owners in the source: choose one owner, or pass an owner map.")


def choose_owner(name: str | None, conversation: str, owner: str, owners: Owners) -> tuple[str | None, str]:
    """Return the owner for which to import a conversation, or None and the reason why it is skipped.

    `name` is its owner in the source. If the source has no owners, an owner map names conversations instead. The reason
    is empty if the conversation belongs to an owner who is not to be imported.
    """
    if owners is None:
        return (owner, "") if name is None or name == owner else (None, "")
    if isinstance(owners, Mapping):
        key = conversation if name is None else name
        what = "this conversation" if name is None else f"its owner {name!r}"
        return (owners[key], "") if key in owners else (None, f"the owner map does not name {what}")
    return (owner, "") if name is None else (name, "")


def list_pairs(source: Store, owner: str, owners: Owners) -> list[tuple[str, str]]:
    """Return the owners whose conversations are copied, each with the name that it gets.

    Raises `InputError` if a mapping lacks an owner of the source store.
    """
    if owners is None:
        return [(owner, owner)]
    if not isinstance(owners, Mapping):
        return [(name, name) for name in source.owners()]
    missing = [name for name in source.owners() if name not in owners]
    if missing:
        some = ", ".join(map(repr, missing[:5]))
        more = f" and {len(missing) - 5:,} more" if len(missing) > 5 else ""
        raise InputError(f"The owner map lacks these owners of the source store: {some}{more}. Add them to the map.")
    return list(owners.items())
