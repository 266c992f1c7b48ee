"""Stores for conversations: in memory, in JSONL files, in SQLite, in PostgreSQL and in Redis."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from longtalk._util import user_dirs
from longtalk._util.private_files import make_private_folder
from longtalk.errors import InputError
from longtalk.stores.base import Store


def get_default_path() -> str:
    """Return the path of the default store, a SQLite file in the user's data folder."""
    return os.path.join(user_dirs.data(), "conversations.db")


def open_default_store() -> Store:
    """Open the default store. If it doesn't exist, create it so that only the user can access it."""
    from longtalk.stores.sqlite.store import SQLite

    path = get_default_path()
    _make_folder(os.path.dirname(path), path)
    return SQLite(path)


def open_store(name: str, *, make: bool = True) -> Store:
    """Open the store that `name` refers to: a server's address, a SQLite file, or a folder of JSONL files.

    A path that ends with a slash or names an existing folder is a folder of JSONL files; any other path is a SQLite
    file. With `make=False`, `InputError` is raised if the store doesn't exist, except for Redis, where there is nothing
    to create. New files and folders are accessible only to the user.
    """
    if (open_server := _find_server(name)) is not None:
        scheme, slashes, rest = name.partition("://")
        return open_server(scheme.lower() + slashes + rest, make=make)
    _refuse_unknown_address(name)
    # Use the absolute path, because names such as ":memory:" have a special meaning for SQLite.
    full = os.path.abspath(name)
    if not name or "\0" in name:
        raise InputError(f"{name!r} is not a path: give a file, a folder or a server's address.")
    if not make and not os.path.exists(full):
        raise InputError(f"The store {name!r} doesn't exist: check the path.")
    folder = name.endswith(("/", os.sep)) or os.path.isdir(full)
    if folder and os.path.exists(full) and not os.path.isdir(full):
        raise InputError(f"{name!r} is a file: remove the slash at the end to open it as a SQLite store.")
    _make_folder(full if folder else os.path.dirname(full), name)
    if folder:
        from longtalk.stores.jsonl.store import JSONL

        return JSONL(full)
    from longtalk.stores.sqlite.store import SQLite

    return SQLite(full)


def hide_credentials(name: str) -> str:
    """Return a store's name for display: a path unchanged, a server's address without user, password and settings."""
    if _find_server(name) is None:
        return name
    scheme, _, rest = name.partition("://")
    location, _, settings = rest.partition("?")
    if "@" in settings:
        # Either the settings contain a password, or the password contains a question mark. Hide everything, because the
        # end of the password is unknown.
        return f"{scheme}://…"
    # Keep the folder of a Unix socket: although written as a setting, it is part of the address.
    folder = re.search(r"(?:^|&)host=((?:/|%2F)[\w./%-]+)(?:&|$)", settings, re.IGNORECASE)
    # A password may contain any character, so everything before the last @ is hidden.
    return f"{scheme}://{location.rpartition('@')[2]}" + (f"?host={folder[1]}" if folder else "")


def _open_postgres(url: str, *, make: bool) -> Store:
    from longtalk.stores.postgres.store import Postgres

    return Postgres(url, make=make)


def _open_redis(url: str, *, make: bool) -> Store:  # noqa: ARG001  # Redis needs no schema
    from longtalk.stores.redis.store import Redis

    return Redis(url)


_SERVERS: dict[str, Callable[..., Store]] = {
    "postgres": _open_postgres,
    "postgresql": _open_postgres,
    "redis": _open_redis,
    "rediss": _open_redis,
}
"""The functions that open a store on a server, by the scheme of its address."""


def _find_server(name: str) -> Callable[..., Store] | None:
    scheme, slashes, _ = name.partition("://")
    return _SERVERS.get(scheme.lower()) if slashes else None


def _refuse_unknown_address(name: str) -> None:
    """Raise `InputError` if a name looks like a server address or a connection string that no store can open.

    The message doesn't repeat the whole name, because the name may contain a password.
    """
    scheme = re.match(r"\s*([A-Za-z][\w+.-]+://)", name)
    if scheme:
        known = ", ".join(f"{each}://" for each in _SERVERS)
        raise InputError(f"Addresses that start with {scheme[1]!r} are not supported. Use {known} or a path.")
    if re.search(r"(?:^|\s)(?:password|dbname)\s*=", name):
        raise InputError(
            "The store's name looks like a connection string: give an address instead, such as "
            "postgresql://user@host:5432/name."
        )


def _make_folder(folder: str, name: str) -> None:
    """Create the folder of the store `name`, accessible only to the user, unless the folder exists."""
    try:
        make_private_folder(folder)
    except OSError as problem:
        raise InputError(f"Can't create the folder for {name!r}: {problem.strerror}. Choose another path.") from None
