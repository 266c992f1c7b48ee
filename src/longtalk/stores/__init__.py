"""Where conversations live: in memory, in JSONL files, in SQLite, in PostgreSQL, in Redis."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from longtalk import folders
from longtalk.errors import InputError
from longtalk.stores.base import Store


def default_path() -> str:
    """The SQLite file in the user's data folder."""
    return os.path.join(folders.data(), "conversations.db")


def default() -> Store:
    """The store at `default_path()`. What is made there is the user's own."""
    from longtalk.stores.sqlite import SQLite

    path = default_path()
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    return SQLite(path)


def open_store(name: str, *, make: bool = True) -> Store:
    """The store of an address or a path: a server, a SQLite file, or a folder of JSONL files (a slash at its end).

    With `make=False` it has to be there. What is made on a disk is the user's own. Errors speak to who typed the name.
    """
    if (server := _server(name)) is not None:
        scheme, slashes, rest = name.partition("://")
        return server(scheme.lower() + slashes + rest, make=make)
    _no_address(name)
    # A name such as ":memory:" or "file:x" is a file here like any other.
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
        from longtalk.stores.jsonl import JSONL

        return JSONL(full)
    from longtalk.stores.sqlite import SQLite

    with _private():
        return SQLite(full)


def shown(name: str) -> str:
    """What a store is called when somebody asks: an address without its password and its settings."""
    if _server(name) is None:
        return name
    scheme, _, rest = name.partition("://")
    place, _, settings = rest.partition("?")
    if "@" in settings:
        # A password is in the settings, or has a question mark in it: nobody can tell where it ends.
        return f"{scheme}://…"
    # The folder of a socket is a setting.
    folder = re.search(r"(?:^|&)host=((?:/|%2F)[\w./%-]+)(?:&|$)", settings, re.IGNORECASE)
    # A password may hold any sign: what is before the last @ is nobody's business.
    return f"{scheme}://{place.rpartition('@')[2]}" + (f"?host={folder[1]}" if folder else "")


def _postgres(url: str, *, make: bool) -> Store:
    from longtalk.stores.postgres import Postgres

    return Postgres(url, make=make)


def _redis(url: str, *, make: bool) -> Store:  # noqa: ARG001  # there is nothing to be made
    from longtalk.stores.redis import Redis

    return Redis(url)


_SERVERS: dict[str, Callable[..., Store]] = {
    "postgres": _postgres,
    "postgresql": _postgres,
    "redis": _redis,
    "rediss": _redis,
}
"""By the scheme of an address: what opens it, given the address and `make`."""


def _server(name: str) -> Callable[..., Store] | None:
    scheme, slashes, _ = name.partition("://")
    return _SERVERS.get(scheme.lower()) if slashes else None


def _no_address(name: str) -> None:
    """Refuse what was meant as an address: a file of that name is nobody's wish. It may have a password in it."""
    found = re.match(r"\s*([A-Za-z][\w+.-]+://)", name)
    if found:
        known = ", ".join(f"{scheme}://" for scheme in _SERVERS)
        raise InputError(f"There is no store for addresses with {found[1]!r}. Known are {known}; all else is a path.")
    if re.search(r"(?:^|\s)(?:password|dbname)\s*=", name):
        raise InputError("The settings of a database are an address here: postgresql://user@host:5432/name.")


@contextmanager
def _private() -> Iterator[None]:
    """What is made meanwhile is the user's own."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
