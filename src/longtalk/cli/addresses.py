"""The addresses that were given for conversations with --base-url, so that they go on there.

They are kept in a file of this user, and not in the store: a conversation from elsewhere must not choose where requests
and keys are sent.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from longtalk._util import user_dirs
from longtalk._util.file_locks import change_file
from longtalk.cli.store import describe_location
from longtalk.errors import LongtalkError

_MOST = 1_000
"""How many conversations the file has at most, the last ones."""


def remember_address(store: str | None, owner: str, id: str, model: str, address: str) -> None:  # noqa: A002
    """Keep the address at which a model answers in a conversation. An address with a password is not kept."""
    key = _make_key(store, owner, id, model)
    if "@" in address or _load().get(key) == address:
        return

    def change() -> str:
        found = _load()
        found.pop(key, None)
        return json.dumps(dict(list({**found, key: address}.items())[-_MOST:]), indent=0) + "\n"

    # The turn itself must not fail for this.
    with suppress(LongtalkError, OSError):
        change_file(_get_path(), change, mode=0o600)


def find_address(store: str | None, owner: str, id: str, model: str) -> str | None:  # noqa: A002
    """Return the address at which a model answered in a conversation; None if it is not kept."""
    return _load().get(_make_key(store, owner, id, model))


def _make_key(store: str | None, owner: str, id: str, model: str) -> str:  # noqa: A002
    place = describe_location(store)
    return json.dumps([place if "://" in place else os.path.realpath(place), owner, id, model])


def _get_path() -> Path:
    return Path(user_dirs.data()) / "addresses.json"


def _load() -> dict[str, str]:
    try:
        found = json.loads(_get_path().read_text("utf-8"))
    except (LongtalkError, OSError, ValueError):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}
