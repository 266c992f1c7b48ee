"""The tables of an app become conversations, by a mapping, from SQLite and PostgreSQL alike."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from longtalk import Archive, Conversation, InputError, Memory
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted
from longtalk.transfer.importers import DatabaseAddress, app_tables
from longtalk.transfer.importers.mapping import read_mapping
from longtalk.transfer.owners import read_owner_map
from tests.support import postgres_server

MAPPING: dict[str, Any] = {
    "conversations": {"table": "chats", "id": "chat_id", "owner": "user_id"},
    "messages": {
        "table": "messages",
        "conversation": "chat_id",
        "role": "role",
        "content": "content",
        "created_at": "created_at",
        "metadata": ["outline", "response_id", "lesson_context"],
    },
    "briefs": {"table": "conversation_briefs", "conversation": "chat_id", "text": "brief"},
}
PARTS = [{"type": "text", "text": "And this?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,iV"}}]
TABLES = (
    "CREATE TABLE chats (chat_id TEXT PRIMARY KEY, user_id TEXT)",
    "CREATE TABLE messages (chat_id TEXT, role TEXT, content TEXT, outline TEXT, response_id TEXT, "
    "lesson_context {json}, created_at {time})",
    "CREATE TABLE conversation_briefs (chat_id TEXT, brief TEXT)",
    "INSERT INTO chats VALUES ('c1', 'ada'), ('c2', 'bob'), ('c3', 'bob')",
    "INSERT INTO messages VALUES"
    " ('c1', 'user', 'How do I hold the bow?', NULL, NULL, '{{\"lesson\": 3}}', '2026-11-16 10:00:00'),"
    " ('c1', 'assistant', 'Lightly.', 'hold the bow', 'resp_1', NULL, '2026-11-16 10:00:05'),"
    f" ('c1', 'user', '{json.dumps(PARTS).replace('{', '{{').replace('}', '}}')}', NULL, NULL, NULL,"
    " '2026-11-16 10:01:00'),"
    " ('c2', 'user', '[not JSON', NULL, NULL, NULL, '2026-11-17 10:00:00'),"
    " ('c2', 'assistant', 'I see.', NULL, NULL, NULL, '2026-11-17 10:00:00')",
    "INSERT INTO conversation_briefs VALUES ('c1', 'Plays the violin.\n- Has a concert on 3 May.')",
)

Make = Callable[..., Any]


def make_sqlite(folder: Path, *more: str) -> Path:
    path = folder / "app.db"
    with closing(sqlite3.connect(path)) as db:
        for sql in (*TABLES, *more):
            db.execute(sql.format(json="TEXT", time="TEXT") if sql in TABLES else sql)
        db.commit()
    return path


def make_postgres(_: Path, *more: str) -> DatabaseAddress:
    server = postgres_server.server()
    database = server.database()
    with server.asking("app", database) as connection:
        for sql in (*TABLES, *more):
            connection.execute((sql.format(json="JSONB", time="TIMESTAMPTZ") if sql in TABLES else sql).encode())
    return DatabaseAddress(server.url(database=database))


@pytest.fixture(params=[make_sqlite, make_postgres])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return a function that makes the tables, runs more statements, and returns the database."""
    return lambda *more: request.param(tmp_path, *more)


def read_brief(archive: Archive, id: str) -> list[str]:  # noqa: A002
    """Return the lines of a brief, as a conversation with memory would have them."""
    talk = Conversation(id, model=Scripted(), owner=archive.owner, store=archive.store, policy=Memory())
    return [line.text for line in talk.brief.lines()]


def change(**messages: Any) -> dict[str, Any]:
    return {**MAPPING, "messages": {**MAPPING["messages"], **messages}}


def test_the_tables_of_an_app_with_owners_metadata_and_briefs(make: Make) -> None:
    store = InMemory()
    ada, bob = Archive(store, owner="ada"), Archive(store, owner="bob")
    database = make()
    done = ada.import_conversations(database, mapping=MAPPING, owners="all")
    assert [(each.owner, each.id, each.how) for each in done.conversations] == [
        ("ada", "c1", "new"),
        ("bob", "c2", "new"),
    ]
    assert done.notes == {
        "conversations without messages were skipped": 1,
        "messages have the same time as the one before and no id: they are in the order in which the database stores "
        "them": 1,
    }
    asked, answer, shown = ada.history("c1")
    assert [each.role for each in (asked, answer, shown)] == ["user", "assistant", "user"]
    assert (asked.text, answer.text) == ("How do I hold the bow?", "Lightly.")
    assert json.loads(shown.native) == {"role": "user", "content": PARTS}
    assert answer.meta["outline"] == "hold the bow"
    assert answer.meta["response_id"] == "resp_1"
    assert asked.meta["lesson_context"] in ({"lesson": 3}, '{"lesson": 3}')
    assert answer.at - asked.at == 5_000
    assert read_brief(ada, "c1") == ["Plays the violin.", "Has a concert on 3 May."]
    assert ada.meta("c1")["imported"]["brief"].startswith("Plays the violin.")
    assert [each.text for each in bob.history("c2")] == ["[not JSON", "I see."]
    ada.verify("c1")
    again = ada.import_conversations(database, mapping=MAPPING, owners="all")
    assert [each.how for each in again.conversations] == ["here", "here"]


def test_new_rows_are_added_and_nothing_is_doubled(tmp_path: Path) -> None:
    archive = Archive(InMemory(), owner="ada")
    path = make_sqlite(tmp_path)
    archive.import_conversations(path, mapping=MAPPING)
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO messages VALUES ('c1', 'assistant', 'A bow.', NULL, NULL, NULL, '2026-11-16 10:02:00')")
        db.commit()
    done = archive.import_conversations(path, mapping=MAPPING, dry_run=True)
    assert ([each.how for each in done.conversations], len(archive.history("c1"))) == (["grown"], 3)
    done = archive.import_conversations(path, mapping=MAPPING)
    assert ([each.how for each in done.conversations], len(archive.history("c1"))) == (["grown"], 4)
    assert read_brief(archive, "c1") == ["Plays the violin.", "Has a concert on 3 May."]
    archive.verify("c1")


def test_only_the_chosen_owner_or_an_owner_map(make: Make) -> None:
    database = make()
    with pytest.raises(InputError, match="have owners"):
        Archive(InMemory()).import_conversations(database, mapping=MAPPING)
    done = Archive(InMemory(), owner="ada").import_conversations(database, mapping=MAPPING)
    assert (done.ids, done.notes["conversations of other owners were not imported"]) == (["c1"], 1)
    store = InMemory()
    done = Archive(store).import_conversations(database, mapping=MAPPING, owners={"bob": "robert"})
    assert (done.ids, store.owners()) == (["c2"], ["robert"])
    assert [(each.id, each.why) for each in done.left] == [("c1", "the owner map does not name its owner 'ada'")]


def test_a_dry_run_writes_nothing(make: Make) -> None:
    store = InMemory()
    database = make()
    done = Archive(store).import_conversations(database, mapping=MAPPING, owners="all", dry_run=True)
    assert [each.how for each in done.conversations] == ["new", "new"]
    assert store.owners() == []


def test_roles_are_checked_before_anything_is_imported(make: Make) -> None:
    store = InMemory()
    database = make("UPDATE messages SET role = 'teacher' WHERE role = 'assistant'")
    with pytest.raises(
        InputError, match=r"roles whose meaning is unknown: 'teacher' \(2\).*\"teacher\" = \"assistant\""
    ):
        Archive(store).import_conversations(database, mapping=MAPPING, owners="all")
    assert store.owners() == []
    done = Archive(store).import_conversations(database, mapping=change(roles={"teacher": "assistant"}), owners="all")
    assert done.ids == ["c1", "c2"]


def test_half_written_rows_are_reported_and_the_rest_is_imported(make: Make) -> None:
    database = make(
        "INSERT INTO messages VALUES ('gone', 'user', 'Hello?', NULL, NULL, NULL, NULL)",
        "INSERT INTO messages VALUES (NULL, 'user', 'Hello?', NULL, NULL, NULL, NULL)",
        "INSERT INTO messages VALUES ('c1', 'assistant', NULL, NULL, NULL, NULL, '2026-11-16 11:00:00')",
        'INSERT INTO messages VALUES (\'c2\', \'user\', \'[{"type": "nonsense", "source": 1}, {"type": "tool_use"}]\', '
        "NULL, NULL, NULL, '2026-11-18 10:00:00')",
    )
    done = Archive(InMemory()).import_conversations(database, mapping=MAPPING, owners="all")
    assert done.ids == ["c1"]
    assert done.notes["empty messages were left out"] == 1
    why = {each.id: each.why for each in done.left}
    assert why["gone"] == "the table 'chats' has no row for it"
    assert why["(messages)"] == "1 of its rows name no conversation"
    assert why["c2"].startswith("its format is not supported (message 3 has")


def test_tables_and_columns_that_are_missing_are_named(make: Make) -> None:
    database = make()
    for mapping, message in (
        (change(table="mesages"), r"no table 'mesages', .* under \[messages\]. Did you mean 'messages'\? Its tables: "),
        (change(content="contents"), r"no column 'contents', .* `content` under .* Did you mean 'content'\?"),
        (change(metadata=["outlin"]), r"no column 'outlin', .* `metadata`"),
        ({**MAPPING, "briefs": {**MAPPING["briefs"], "field": "notes"}}, r"no field 'notes'. Its fields: goal, "),
    ):
        with pytest.raises(InputError, match=message):
            Archive(InMemory()).import_conversations(database, mapping=mapping, owners="all")


def test_messages_of_anthropic_with_tools_and_numbers_as_ids_and_times(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    calls = [{"type": "tool_use", "id": "t1", "name": "rosin", "input": {"kind": "amber"}}]
    results = [{"type": "tool_result", "tool_use_id": "t1", "content": "3 left"}, {"type": "text", "text": "And?"}]
    rows = [
        (7, "HUMAN", "Rosin?"),
        (7, "ai", json.dumps(calls)),
        (7, "human", json.dumps(results)),
        (7, "ai", "Three."),
    ]
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, chat INTEGER, role TEXT, content TEXT, at INTEGER)")
        for number, row in enumerate(rows, 1):
            db.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?)", (number, *row, 1_790_000_000_000 + number))
        db.commit()
    table = {
        "table": "log",
        "conversation": "chat",
        "role": "role",
        "content": "content",
        "id": "id",
        "created_at": "at",
    }
    archive = Archive(InMemory())
    assert archive.import_conversations(path, mapping={"messages": table}).ids == ["7"]
    entries = archive.history("7")
    assert [each.role for each in entries] == ["user", "assistant", "tool", "user", "assistant"]
    assert {each.wire for each in entries} == {"anthropic"}
    assert entries[0].at == 1_790_000_000_001
    done = Archive(InMemory()).import_conversations(path, mapping={"messages": table}, owners={"7": "ada"})
    assert [(each.id, each.owner) for each in done.conversations] == [("7", "ada")]
    with pytest.raises(InputError, match="have no owners"):
        archive.import_conversations(path, mapping={"messages": table}, owners="all")


def test_tool_calls_of_openai_have_columns_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    call = [{"id": "c1", "type": "function", "function": {"name": "rosin", "arguments": "{}"}}]
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE log (chat TEXT, role TEXT, content TEXT, calls TEXT, call TEXT)")
        db.executemany(
            "INSERT INTO log VALUES ('a', ?, ?, ?, ?)",
            [("user", "Rosin?", None, None), ("assistant", None, json.dumps(call), None), ("tool", "3", None, "c1")],
        )
        db.commit()
    table = {"table": "log", "conversation": "chat", "role": "role", "content": "content"}
    archive = Archive(InMemory())
    mapping = {"messages": {**table, "tool_calls": "calls", "tool_call_id": "call"}}
    assert not archive.import_conversations(path, mapping=mapping).left
    entries = archive.history("a")
    assert [each.role for each in entries] == ["user", "assistant", "tool"]
    assert json.loads(entries[2].native)["tool_call_id"] == "c1"


def test_a_mapping_is_a_toml_or_json_file(tmp_path: Path) -> None:
    toml, other, wrong = (tmp_path / name for name in ("chats.toml", "chats.json", "wrong.toml"))
    toml.write_text('[messages]\ntable = "m"\nconversation = "c"\nrole = "r"\ncontent = "t"\n')
    other.write_text('{"messages": {"table": "m", "conversation": "c", "role": "r", "content": "t"}}')
    assert read_mapping(toml) == read_mapping(other)
    for text, message in (
        ('[messages]\ntable = "m"', "missing required field `conversation`"),
        ('[messages]\ntable = "m"\nconversaton = "c"', "Did you mean 'conversation'"),
        ('[mesages]\ntable = "m"', "Did you mean 'messages'"),
        ("[messages", "neither TOML nor JSON"),
        (toml.read_text() + '[messages.roles]\nx = "bot"', "Invalid enum value 'bot'"),
    ):
        wrong.write_text(text)
        with pytest.raises(InputError, match=message):
            read_mapping(wrong)
    with pytest.raises(InputError, match="can't be read: No such file"):
        read_mapping(tmp_path / "none.toml")


def test_an_owner_map_is_json_or_csv(tmp_path: Path) -> None:
    path = tmp_path / "owners"
    for text in ('{"1": "ada", "2": "bob"}', "1,ada\n2,bob\n"):
        path.write_text(text)
        assert read_owner_map(path) == {"1": "ada", "2": "bob"}
    for text, message in (
        ("1,ada,x", "row 1 has 3 columns"),
        ("1,a\n1,b", "names '1' twice"),
        ('{"1": 2}', "not valid"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_owner_map(path)


@pytest.mark.parametrize(
    ("value", "time"),
    [("20260101", 1_767_225_600_000), (10**400, 0), ("86400", 86_400_000), (10_000_000, 10**10)],
    ids=["day", "too large", "text", "number"],
)
def test_a_time_is_read_as_a_day_or_a_number_and_is_0_if_it_is_neither(value: object, time: int) -> None:
    assert app_tables._to_time(value) == time
