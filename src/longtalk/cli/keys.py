"""`longtalk keys`: make, list and revoke access keys of the service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from longtalk.cli.output import format_time, pluralize, print_json, print_note, print_result
from longtalk.cli.tables import Column, print_table
from longtalk.errors import NotFound
from longtalk.service.access import AccessKey, AccessKeys
from longtalk.service.settings import load_settings
from longtalk.service.storage.factory import open_storage
from longtalk.stores import open_default_store, open_store
from longtalk.transcript.transcript import now

_COLUMNS = (
    Column("id"),
    Column("name", shortest=10),
    Column("owner", shortest=10),
    Column("made", rank=1),
    Column("expires"),
)
_DAY = 24 * 3_600_000


@contextmanager
def open_keys(settings: str | None, store: str | None) -> Iterator[AccessKeys]:
    """Open the access keys in the store of the service, and close it at the end."""
    name = load_settings(Path(settings) if settings else None, store=store).store
    opened = open_store(name) if name else open_default_store()
    try:
        storage = open_storage(opened)
        try:
            yield AccessKeys(storage)
        finally:
            storage.close()
    finally:
        opened.close()


def add(
    *,
    name: str,
    owner: str,
    act_as: bool,
    models: tuple[str, ...],
    routes: tuple[str, ...],
    days: int | None,
    as_json: bool,
    settings: str | None,
    store: str | None,
) -> None:
    """Make a key and print it."""
    expires = None if days is None else now() + days * _DAY
    with open_keys(settings, store) as keys:
        secret, key = keys.add(name, owner, act_as=act_as, models=models, routes=routes, expires=expires)
    print_result({"key": secret, **_describe(key)}, secret, as_json=as_json)
    if not as_json:
        print_note(f"This key is not shown again. To revoke it: longtalk keys revoke {key.id}")


def list_keys(*, as_json: bool, settings: str | None, store: str | None) -> None:
    """Print a line for each key."""
    with open_keys(settings, store) as keys:
        found = keys.list()
    for key in found if as_json else ():
        print_json(_describe(key))
    if not as_json:
        rows = [
            (
                key.id,
                key.name,
                "any owner" if key.act_as else key.owner or "-",
                format_time(key.created),
                format_time(key.expires) if key.expires else "never",
            )
            for key in found
        ]
        print_table(_COLUMNS, rows)
        provider = "" if found else " `longtalk config show` names the providers whose API keys are stored."
        print_note(f"{pluralize(len(found), 'access key')} of the service.{provider}")


def _describe(key: AccessKey) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(key).items() if name != "digest"}


def revoke(*, id: str, as_json: bool, settings: str | None, store: str | None) -> None:  # noqa: A002
    """Delete a key."""
    with open_keys(settings, store) as keys:
        if not keys.revoke(id):
            raise NotFound(f"There is no access key {id!r}. `longtalk keys list` shows all.")
    print_result({"id": id}, f"Revoked {id}.", as_json=as_json, show=print_note)
