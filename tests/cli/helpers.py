"""What tests of commands share: the program as a process, and a person at a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from longtalk import Archive
from longtalk.stores.base import Store
from longtalk.stores.jsonl.store import JSONL
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import says
from tests.support import forked_program
from tests.support.loopback import Answer, sse

LONGTALK = [str(Path(sys.executable).parent / "longtalk")]


def streamed(text: str, **more: Any) -> Answer:
    events: Any = says(text).events
    return Answer(chunks=sse(*events), **more)


def cut_off(text: str, **more: Any) -> Answer:
    """The first half of an answer."""
    events: Any = says(text, pieces=2).events
    return Answer(chunks=sse(*events[:2]), **more)


def longtalk(
    *arguments: str | Path, said: str | bytes = b"", environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    data = said.encode() if isinstance(said, str) else said
    done = forked_program.run([*map(str, arguments)], said=data, environment=environment)
    out, err = (text.decode("utf-8", "surrogateescape") for text in (done.stdout, done.stderr))
    assert "Traceback" not in err, err
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def to_iso(at: int) -> str:
    """Return a time as JSON has it: ISO 8601 in UTC."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def store_at(path: str | Path) -> Store:
    """The store that a path names."""
    return SQLite(path) if str(path).endswith(".db") else JSONL(path)


def marks(path: str | Path) -> list[tuple[str, str]]:
    """Role and mark of what was said in the conversation changed last."""
    store = store_at(path)
    archive = Archive(store)
    said = archive.history(archive.conversations(limit=1)[0].id)
    store.close()
    return [(each.role, each.mark) for each in said]


class Terminal:
    """A person at a terminal."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(LONGTALK[0], [*LONGTALK, *arguments], environment)
        self.screen = ""
        self._read = 0

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def wait_for(self, pattern: str, seconds: float = 60, *, press: str = "") -> None:
        """Until the pattern shows behind all that was waited for before, pressing a key now and then."""
        end = time.monotonic() + seconds
        pressed = time.monotonic()
        while True:
            if press and time.monotonic() - pressed > 1:
                self.type(press)
                pressed = time.monotonic()
            found = re.search(pattern, self.screen[self._read :])
            if found:
                self._read += found.end()
                return
            assert time.monotonic() < end, f"{pattern!r} did not show: {self.screen!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.screen += os.read(self.fd, 4096).decode("utf-8", "replace")
                except OSError:
                    raise AssertionError(f"{pattern!r} did not show before the end: {self.screen!r}") from None

    def exit_code(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def rest(self) -> str:
        """All that shows until the program ends."""
        while True:
            try:
                data = os.read(self.fd, 4096)
            except OSError:
                data = b""
            if not data:
                return self.screen
            self.screen += data.decode("utf-8", "replace")

    def close(self) -> None:
        os.close(self.fd)


def make_app(folder: Path) -> tuple[Path, Path]:
    """Return a database of an app with conversations of two owners, and its mapping."""
    path, mapping = folder / "app.db", folder / "chats.toml"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE chats (chat_id INTEGER PRIMARY KEY, user_id TEXT)")
        db.execute("CREATE TABLE messages (chat_id INTEGER, role TEXT, content TEXT)")
        db.execute("INSERT INTO chats VALUES (1, 'ada'), (2, 'bob')")
        db.execute("INSERT INTO messages VALUES (1, 'user', 'Bows?'), (1, 'assistant', 'Yes.'), (2, 'user', 'Rosin?')")
        db.commit()
    mapping.write_text(
        '[conversations]\ntable = "chats"\nid = "chat_id"\nowner = "user_id"\n'
        '[messages]\ntable = "messages"\nconversation = "chat_id"\nrole = "role"\ncontent = "content"\n'
    )
    return path, mapping
