"""A database from a stranger can't keep an import busy, fill the memory or change what is beside it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from longtalk import Archive, InputError
from longtalk.stores.in_memory import InMemory
from longtalk.transfer import limits
from longtalk.transfer.importers import databases
from longtalk.transfer.load import ImportResult
from tests.transfer.importers.test_databases import make_database

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


def import_file(path: Path) -> ImportResult:
    return Archive(InMemory()).import_conversations(path)


def replace_table(name: str, table: str, folder: Path, *sql: str) -> Path:
    """Return a file of another tool in which something else has the name of one of its tables."""
    path = make_database(name, folder)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute(f"DROP TABLE {table}")
        for each in sql:
            db.execute(each)
    return path


# Only real tables are read


@pytest.mark.parametrize(
    ("name", "table", "columns"),
    [
        ("llm", "attachments", "1 AS id, 'image/png' AS type, '' AS path, NULL AS url, zeroblob(i) AS content"),
        ("llm", "Fragments", "1 AS id, hex(zeroblob(1000)) AS content"),
        ("llm", "threads", "i AS id, '' AS name, NULL AS tip_message_hash"),
        ("llm-old", "tool_calls", "i AS id, 'f' AS name, '{}' AS arguments, i AS tool_call_id, '' AS response_id"),
        ("langgraph", "writes", "i AS thread_id"),
        ("agents-sdk", "agent_messages", "i AS id, 'ada' AS session_id, '{}' AS message_data, 0 AS created_at"),
    ],
)
def test_a_view_without_end_is_refused(name: str, table: str, columns: str, tmp_path: Path) -> None:
    path = replace_table(name, table, tmp_path, f"CREATE VIEW {table} AS {ENDLESS} SELECT {columns} FROM n")
    with pytest.raises(InputError, match=rf"'{name}\.db': Its '{table.lower()}' is a view, but only real tables are"):
        import_file(path)


def test_a_virtual_table_is_refused(tmp_path: Path) -> None:
    path = replace_table(
        "llm", "fragments", tmp_path, "CREATE VIRTUAL TABLE fragments USING fts4(id, content, tokenize=simple)"
    )
    with pytest.raises(InputError, match="'fragments' is a virtual table"):
        import_file(path)


@pytest.mark.parametrize("kind", ["VIRTUAL", "STORED"])
def test_generated_columns_are_refused(kind: str, tmp_path: Path) -> None:
    column = f"content AS (hex(zeroblob(100000000))) {kind}"
    path = replace_table("llm", "fragments", tmp_path, f"CREATE TABLE fragments (id INTEGER PRIMARY KEY, {column})")
    with pytest.raises(InputError, match="'fragments' is a table with generated columns"):
        import_file(path)


def test_long_default_values_are_refused(tmp_path: Path) -> None:
    path = make_database(
        "agents-sdk", tmp_path, f"ALTER TABLE agent_messages ADD COLUMN more TEXT DEFAULT '{'x' * 2000}'"
    )
    with pytest.raises(InputError, match="default values of its table 'agent_messages' have more than 1,000"):
        import_file(path)


def test_rows_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA page_size = 1024")
    db.execute("CREATE TABLE agent_sessions (session_id, created_at, updated_at)")
    db.execute("CREATE TABLE agent_messages (id, session_id, message_data, created_at)")
    db.execute("INSERT INTO agent_sessions VALUES ('ada', 0, 0)")
    for number in range(5):
        message = json.dumps({"role": "user", "content": "x" * 40})
        db.execute("INSERT INTO agent_messages VALUES (?, 'ada', ?, 0)", (number, message))
    db.commit()
    (page,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'agent_messages'").fetchone()
    db.close()
    assert import_file(path).conversations[0].entries == 5
    data = bytearray(path.read_bytes())
    cells = (page - 1) * 1024 + 8
    data[cells : cells + 10] = struct.pack(">5H", *struct.unpack(">5H", data[cells : cells + 10])[:1] * 5)
    path.write_bytes(data)
    with pytest.raises(InputError, match="its table 'agent_messages' is damaged"):
        import_file(path)


# The work and the data are limited


def test_a_fragment_that_is_used_too_often_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ALLOWED_BYTES", limits.ALLOWED_BYTES // 100)
    path = make_database("llm", tmp_path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE fragments SET content = ?", ("x" * 100_000,))
        (fragment,) = db.execute("SELECT id FROM fragments LIMIT 1").fetchone()
        payload = json.dumps({"text_ref": [{"fragment": fragment}] * 200})
        db.execute("UPDATE parts SET type = 'text', text = NULL, payload = ? WHERE type = 'text'", (payload,))
    size = path.stat().st_size
    with pytest.raises(InputError, match=rf"'llm\.db': The file has {size:,} bytes, but .* more than .* split it"):
        import_file(path)


def test_a_long_fragment_in_many_prompts_is_imported(tmp_path: Path) -> None:
    path = make_database("llm", tmp_path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE fragments SET content = ?", ("x" * 300_000,))
        (fragment,) = db.execute("SELECT id FROM fragments LIMIT 1").fetchone()
        payload = json.dumps({"text_ref": [{"fragment": fragment}] * 10})
        db.execute("UPDATE parts SET type = 'text', text = NULL, payload = ? WHERE type = 'text'", (payload,))
    assert not import_file(path).left


def test_too_much_work_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_database("agents-sdk", tmp_path)
    with closing(sqlite3.connect(path)) as db, db:
        rows = [(f"s{number}",) for number in range(3_000)]
        db.executemany("INSERT INTO agent_sessions (session_id) VALUES (?)", rows)
    monkeypatch.setattr(databases, "ALLOWED_STEPS", 0)
    monkeypatch.setattr(databases, "STEPS_PER_BYTE", 0)
    with pytest.raises(InputError, match=r"takes more than 0 steps, the limit .* If you trust it, split it"):
        import_file(path)


def test_an_interrupt_ends_a_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupts(int):
        """A limit that presses Ctrl-C when it is compared."""

        def __add__(self, _: Any) -> Any:
            return self

        def __lt__(self, _: Any) -> bool:
            signal.raise_signal(signal.SIGINT)
            return False

    path = make_database("agents-sdk", tmp_path)
    with closing(sqlite3.connect(path)) as db, db:
        rows = [(f"s{number}",) for number in range(3_000)]
        db.executemany("INSERT INTO agent_sessions (session_id) VALUES (?)", rows)
    monkeypatch.setattr(databases, "ALLOWED_STEPS", Interrupts())
    with pytest.raises(KeyboardInterrupt):
        import_file(path)


# Nothing is written beside the file


def list_files(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {each.name: (each.stat().st_mtime_ns, each.read_bytes()) for each in folder.iterdir()}


def make_logged(folder: Path, *, files: tuple[str, ...]) -> Path:
    """Return a database with a message that is only in the write-ahead log, with these files beside it."""
    path = make_database("agents-sdk", folder, "PRAGMA journal_mode = WAL")
    db = sqlite3.connect(path)
    item = '{"role": "user", "content": "Still here?"}'
    db.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('bob', ?)", (item,))
    db.commit()
    theirs = folder / "theirs"
    theirs.mkdir()
    for end in ("", *files):
        shutil.copy(f"{path}{end}", theirs)
    db.close()
    return theirs / path.name


@pytest.mark.parametrize("files", [("-wal",), ("-wal", "-shm"), ()])
def test_a_database_with_a_log_is_read_with_it_and_nothing_changes(files: tuple[str, ...], tmp_path: Path) -> None:
    path = make_logged(tmp_path, files=files)
    before = list_files(path.parent)
    archive = Archive(InMemory())
    archive.import_conversations(path)
    assert list_files(path.parent) == before
    assert [each.text for each in archive.history("bob")][2:] == (["Still here?"] if files else [])


def test_a_database_with_a_log_is_read_from_a_folder_without_write_access(tmp_path: Path) -> None:
    path = make_logged(tmp_path, files=("-wal",))
    os.chmod(path.parent, 0o555)
    try:
        archive = Archive(InMemory())
        archive.import_conversations(path)
        assert len(archive.history("bob")) == 3
    finally:
        os.chmod(path.parent, 0o755)


def test_a_link_to_a_database_with_a_log_is_read_with_the_log(tmp_path: Path) -> None:
    path = make_logged(tmp_path, files=("-wal",))
    link = tmp_path / "link.db"
    link.symlink_to(path)
    archive = Archive(InMemory())
    archive.import_conversations(link)
    assert len(archive.history("bob")) == 3


def test_a_database_that_changes_all_the_time_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_logged(tmp_path, files=("-wal",))
    copy = shutil.copyfile

    def copy_and_touch(source: Path, target: Path) -> None:
        copy(source, target)
        with path.open("ab") as file:
            file.write(b"x")

    monkeypatch.setattr(shutil, "copyfile", copy_and_touch)
    with pytest.raises(InputError, match=r"keeps writing to the database\. Close that program"):
        import_file(path)


def test_a_database_with_an_unfinished_change_is_refused(tmp_path: Path) -> None:
    path = make_database("agents-sdk", tmp_path)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    db = sqlite3.connect(path)
    db.execute("PRAGMA cache_size = 1")
    db.execute("UPDATE agent_messages SET message_data = ?", ('{"role":"user","content":"%s"}' % ("half" * 5_000),))
    for end in ("", "-journal"):
        shutil.copy(f"{path}{end}", theirs)
    db.rollback()
    db.close()
    before = list_files(theirs)
    with pytest.raises(InputError, match=r"interrupted while writing to it\. Open the database in that program"):
        import_file(theirs / path.name)
    assert list_files(theirs) == before
