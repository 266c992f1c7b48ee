"""`longtalk doctor`: check what the service needs, and say how to fix each problem."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import longtalk
from longtalk.cli.output import escape_line, print_json, print_note, print_text
from longtalk.errors import LongtalkError
from longtalk.providers.base import explain_unknown_prices
from longtalk.providers.registry import PROVIDERS
from longtalk.service.access import AccessKeys, Gate, is_loopback
from longtalk.service.errors import ApiError
from longtalk.service.models import Models
from longtalk.service.settings import Credentials, Settings, get_settings_path, load_credentials, load_settings
from longtalk.service.storage.factory import open_storage
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.service.storage.protocol import Storage
from longtalk.stores import get_default_path, hide_credentials, open_default_store, open_store
from longtalk.stores.base import Store
from longtalk.transcript.transcript import new_id, now

_CLOCK_MS = 5000
"""How far the clock of this machine may be from that of the store's server, in milliseconds."""
_SERVER_TIME = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"


Level = Literal["ok", "warning", "error"]


class Finding(NamedTuple):
    """The result of a check."""

    level: Level
    what: str
    text: str


def run(*, settings: str | None, store: str | None, as_json: bool) -> None:
    """Print a line for each check. Exits with status 1 if something is wrong."""
    findings = list(examine(settings, store))
    for each in findings:
        if as_json:
            print_json({"level": each.level, "subject": each.what, "text": each.text})
        else:
            _print_finding(each)
    wrong = sum(each.level == "error" for each in findings)
    print_note("The service can run." if not wrong else "Repair the errors above; then the service can run.")
    if wrong:
        sys.exit(1)


def _print_finding(found: Finding) -> None:
    """Print a finding on a line; on a terminal, on several if it is long, because the end often says what to do."""
    level, what, text = map(escape_line, found)
    if not sys.stdout.isatty():
        print_text(f"{level}\t{what}\t{text}")
        return
    head = f"{level:7}  {what:10}  "
    room = max(20, shutil.get_terminal_size().columns - len(head))
    for number, line in enumerate(textwrap.wrap(text, room, break_on_hyphens=False)):
        print_text(f"{' ' * len(head) if number else head}{line}")


def examine(settings: str | None, store: str | None) -> Iterator[Finding]:
    """Yield what each check has found. No model is called."""
    yield from _check_versions()
    try:
        loaded = load_settings(Path(settings) if settings else None, store=store)
    except LongtalkError as problem:
        yield Finding("error", "settings", str(problem))
        return
    yield Finding("ok", "settings", str(settings or get_settings_path()))
    name = hide_credentials(loaded.store) if loaded.store else get_default_path()
    open_it: Callable[[], Store]
    if loaded.store and not _is_missing_file(loaded.store):
        open_it = partial(open_store, loaded.store, make=False)
    elif not loaded.store and os.path.exists(name):
        open_it = open_default_store
    else:
        # A check creates nothing.
        level: Level = "warning" if loaded.store else "ok"
        if _can_create(name):
            yield Finding(level, "store", f"{name} does not exist yet: `longtalk serve` creates it")
        else:
            yield Finding("error", "store", f"{name} can't be created: this user may not write to its folder")
        yield from _check_access(loaded, AccessKeys(InMemoryStorage()))
        yield from _check_models(loaded)
        return
    try:
        opened = open_it()
    except LongtalkError as problem:
        yield Finding("error", "store", str(problem))
        return
    try:
        storage = open_storage(opened)
        try:
            yield Finding("ok", "store", f"{name} opens, and its tables are up to date")
            yield from _check_writing(storage)
            yield from _check_clock(opened)
            yield from _check_access(loaded, AccessKeys(storage))
        finally:
            storage.close()
    except LongtalkError as problem:
        yield Finding("error", "store", str(problem))
    finally:
        opened.close()
    yield from _check_models(loaded)


def _can_create(path: str) -> bool:
    """Return True if the user may write to the folder of a path, or to the nearest one that exists above it."""
    folder = next(each for each in Path(path).absolute().parents if each.exists())
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _is_missing_file(store: str) -> bool:
    """Return True if a store is a path, not a server's address, and there is nothing at that path."""
    return "://" not in store and not os.path.exists(store)


def _check_versions() -> Iterator[Finding]:
    yield Finding("ok", "versions", f"Longtalk {longtalk.__version__}, Python {platform.python_version()}")
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        yield Finding("error", "versions", "The service needs an extra. Run: pip install 'longtalk[serve]'")


def _check_writing(storage: Storage) -> Iterator[Finding]:
    key = new_id()
    storage.put("health", key, b"", expires=now() + 60_000)
    found = storage.get("health", key)
    storage.delete("health", key)
    if found is None:
        yield Finding("error", "store", "What is written can't be read back: check the server and its replicas.")


def _check_clock(store: Store) -> Iterator[Finding]:
    """Compare the clock of this machine with that of the store's server: leases and expiry depend on clocks."""
    from longtalk.stores.postgres.store import Postgres
    from longtalk.stores.redis.command import Command, Script
    from longtalk.stores.redis.store import Redis

    if isinstance(store, Postgres):
        row = store._pool.run(lambda connection: connection.execute(_SERVER_TIME).fetchone())
        server = int(row[0]) if row else 0
    elif isinstance(store, Redis):
        ((seconds, _),) = store._client.read(Command(Script("return redis.call('TIME')"), (), [b"clock"]))
        server = int(seconds) * 1000
    else:
        return
    difference = abs(now() - server)
    if difference > _CLOCK_MS:
        text = f"The clock differs by {difference / 1000:.0f} seconds from the server's: synchronize both by NTP."
        yield Finding("error", "clock", text)
    else:
        yield Finding("ok", "clock", "as the server's")


def _check_access(settings: Settings, keys: AccessKeys) -> Iterator[Finding]:
    try:
        Gate(settings, keys)
    except LongtalkError as problem:
        yield Finding("error", "jwt", str(problem))
    found = keys.list()
    expired = [key.name for key in found if key.expires is not None and key.expires <= now()]
    if expired:
        yield Finding("warning", "keys", f"Expired: {', '.join(expired)}. Revoke them with `longtalk keys revoke`.")
    if found or settings.jwt is not None:
        yield Finding("ok", "keys", f"{len(found) - len(expired)} in use" + (", and JWT" if settings.jwt else ""))
    elif is_loopback(settings.host):
        yield Finding("ok", "keys", "no access keys of the service: it is for the user of this machine alone")
    else:
        text = f"There are none, so the service can't listen on {settings.host!r}. Run: longtalk keys add NAME"
        yield Finding("error", "keys", text)
    file = get_settings_path().with_name("credentials.toml")
    if file.exists() and stat.S_IMODE(file.stat().st_mode) & 0o077:
        yield Finding("error", "credentials", f"Other users can read {file}. Run: chmod 600 {file}")


def _check_models(settings: Settings) -> Iterator[Finding]:
    try:
        stored = load_credentials()
        models = Models(settings, Credentials())
    except LongtalkError as problem:
        yield Finding("error", "models", str(problem))
        return
    variables = dict.fromkeys(each.key_variable or "" for each in PROVIDERS.values())
    found = [*(f"{name} (stored)" for name in stored), *(name for name in variables if os.environ.get(name))]
    yield Finding("ok", "API keys", ", ".join(found) or "none: `longtalk config set-key PROVIDER` stores one")
    for name in models.names:
        try:
            model = models.find(name)
        except ApiError as problem:
            yield Finding("error", "model", f"{name}: {problem.message}")
            continue
        capabilities = model.provider.capabilities
        if settings.limits.cost_per_day and capabilities.prices is None:
            reason = explain_unknown_prices(capabilities)
            text = f"{name}: Cost is limited, and its prices are unknown: {reason}. Requests for it are refused."
            yield Finding("warning", "model", text)
        else:
            label = model.provider.label
            yield Finding("ok", "model", label if name == label else f"{name}: {label}")
