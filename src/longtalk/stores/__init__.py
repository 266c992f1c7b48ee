"""Stores for conversations: in memory, in JSONL files, in SQLite, in PostgreSQL and in Redis."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from longtalk._util import user_dirs
from longtalk.errors import InputError
from longtalk.stores.base import Store


def default_path() -> str:
    """Return the path of the default store, a SQLite file in the user's data folder."""
    return os.path.join(user_dirs.data(), "conversations.db")


def default() -> Store:
    """Return the store at `default_path()`. If it doesn't exist, create it, accessible only to the user."""
    from longtalk.stores.sqlite.store import SQLite

    path = default_path()
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    return SQLite(path)


def open_store(name: str, *, make: bool = True) -> Store:
    """Open the store with this name: a server's address, a SQLite file, or a folder of JSONL files.

    A path that ends with a slash, or that is a folder, opens a folder of JSONL files. With `make=False`, raises
    `InputError` if the store doesn't exist. Files and folders that are created are accessible only to the user.
    """
    if (server := _server(name)) is not None:
        scheme, slashes, rest = name.partition("://")
        return server(scheme.lower() + slashes + rest, make=make)
    _no_address(name)
    # An absolute path, because SQLite gives names such as ":memory:" a special meaning.
    full = os.path.abspath(name)
    if not name or "\0" in name:
        raise InputError(f"{name!r} is not a path: name a file, a folder or an address.")
    if not make and not os.path.exists(full):
        raise InputError(f"There is no store {name!r}: name another.")
    folder = name.endswith(("/", os.sep)) or os.path.isdir(full)
    try:
        with _private():
            os.makedirs(full if folder else os.path.dirname(full), exist_ok=True)
    except FileExistsError:
        raise InputError(f"{name!r} is a file: without the slash at its end it is a SQLite store.") from None
    except OSError as problem:
        raise InputError(f"Can't make the folder of {name!r}: {problem.strerror}. Name another.") from None
    if folder:
        from longtalk.stores.jsonl.store import JSONL

        return JSONL(full)
    from longtalk.stores.sqlite.store import SQLite

    with _private():
        return SQLite(full)


def shown(name: str) -> str:
    """Return the name of a store for display. In a server's address, the user, password and settings are left out."""
    if _server(name) is None:
        return name
    scheme, _, rest = name.partition("://")
    place, _, settings = rest.partition("?")
    if "@" in settings:
        # Either the settings contain a password, or the password contains a question mark. Hide everything, because the
        # end of the password is unknown.
        return f"{scheme}://…"
    # The folder of a Unix socket is a setting, but it is part of the address.
    folder = re.search(r"(?:^|&)host=((?:/|%2F)[\w./%-]+)(?:&|$)", settings, re.IGNORECASE)
    # A password may contain any character, so everything before the last @ is hidden.
    return f"{scheme}://{place.rpartition('@')[2]}" + (f"?host={folder[1]}" if folder else "")


def _postgres(url: str, *, make: bool) -> Store:
    from longtalk.stores.postgres.store import Postgres

    return Postgres(url, make=make)


def _redis(url: str, *, make: bool) -> Store:  # noqa: ARG001  # Redis needs no schema
    from longtalk.stores.redis.store import Redis

    return Redis(url)


_SERVERS: dict[str, Callable[..., Store]] = {
    "postgres": _postgres,
    "postgresql": _postgres,
    "redis": _redis,
    "rediss": _redis,
}
"""The functions that open a store on a server, by the scheme of its address."""


def _server(name: str) -> Callable[..., Store] | None:
    scheme, slashes, _ = name.partition("://")
    return _SERVERS.get(scheme.lower()) if slashes else None


def _no_address(name: str) -> None:
    """Raise `InputError` if a name looks like a server address or a connection string that no store can open.

    The message doesn't repeat the whole name, because the name may contain a password.
    """
    found = re.match(r"\s*([A-Za-z][\w+.-]+://)", name)
    if found:
        known = ", ".join(f"{scheme}://" for scheme in _SERVERS)
        raise InputError(f"There is no store for addresses with {found[1]!r}. Known are {known}; all else is a path.")
    if re.search(r"(?:^|\s)(?:password|dbname)\s*=", name):
        raise InputError("The settings of a database are an address here: postgresql://user@host:5432/name.")


@contextmanager
def _private() -> Iterator[None]:
    """Make files and folders that are created in this context accessible only to the user."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
