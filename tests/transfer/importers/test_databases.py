"""SQLite files of other tools, made by those tools (`making.py`), become conversations."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from longtalk import Archive, InputError
from longtalk.stores.in_memory import InMemory
from longtalk.stores.sqlite.store import SQLite
from longtalk.transfer.importers import open_tool_file

FILES = Path(__file__).parent / "files"


def make_database(name: str, folder: Path, *more: str) -> Path:
    """Return a file of another tool, with more statements run on it."""
    path = folder / f"{name}.db"
    db = sqlite3.connect(path)
    db.executescript(f"BEGIN;\n{(FILES / f'{name}.sql').read_text()}COMMIT;")
    for sql in more:
        db.execute(sql)
    db.commit()
    db.close()
    return path


def import_file(path: Path) -> Archive:
    archive = Archive(InMemory())
    done = archive.import_conversations(path)
    assert not done.left, done.left
    for id in done.ids:  # noqa: A001
        archive.verify(id)
    return archive


def notes(path: Path) -> dict[str, int]:
    return Archive(InMemory()).import_conversations(path).notes


def roles(archive: Archive, id: str) -> list[str]:  # noqa: A002
    return [each.role for each in archive.history(id)]


@pytest.mark.parametrize(
    ("name", "tool", "count"),
    [("llm", "llm", 2), ("llm-old", "llm", 2), ("langgraph", "langgraph", 2), ("agents-sdk", "agents-sdk", 2)],
)
def test_each_is_known_by_its_tables(name: str, tool: str, count: int, tmp_path: Path) -> None:
    path = make_database(name, tmp_path)
    for source in (path, path.read_bytes()):
        found = open_tool_file(source)
        assert found is not None
        assert (found.tool, found.count, len(list(found.read()))) == (tool, count, count)


@pytest.mark.parametrize("name", ["llm", "llm-old"])
def test_a_conversation_of_llm(name: str, tmp_path: Path) -> None:
    archive = import_file(make_database(name, tmp_path))
    first, second = sorted(each.id for each in archive.conversations())
    entries = archive.history(first)
    assert [each.role for each in entries] == [
        *("system", "user", "assistant", "user", "assistant"),
        *("user", "assistant", "tool", "assistant", "user", "assistant", "tool", "assistant"),
    ]
    assert [each.text for each in entries[:2]] == ["You teach the violin.", "How do I hold the bow?"]
    called = json.loads(entries[6].native)["tool_calls"][0]
    assert called["function"] == {"name": "rosin", "arguments": called["function"]["arguments"]}
    assert json.loads(called["function"]["arguments"]) == {"kind": "amber"}
    given = json.loads(entries[7].native)
    assert (given["tool_call_id"], given["content"]) == (called["id"], "amber rosin")
    assert (entries[11].mark, entries[11].text) == ("error", "Error: no such rosin")
    assert archive.meta(first) == {"title": "How do I hold the bow?", "imported": {"from": "llm"}}
    assert archive.talk(first).branches[0].turns[0].model == "llm:echo"
    assert all(each.at > 1_790_000_000_000 for each in entries)
    asked = archive.history(second)
    assert asked[0].text == "The chaconne is in D minor.\n\nWhat is this about?"
    pictures = [part["image_url"]["url"] for part in json.loads(asked[2].native)["content"][1:]]
    assert pictures == ["data:image/png;base64,iVBORw0KGgoAAAAAAAAAAA==", "https://example.com/bow.png"]


def test_attachments_missing_in_the_log_are_noted(tmp_path: Path) -> None:
    gone = "UPDATE attachments SET content = NULL, url = NULL, path = '/home/ada/bow.png'"
    for name in ("llm", "llm-old"):
        path = make_database(name, tmp_path, gone)
        assert notes(path) == {"attachments are missing: the log has only their names": 2}
        archive = import_file(path)
        asked = archive.history(max(each.id for each in archive.conversations()))[2]
        assert asked.text == "What is in the picture?\n[bow.png, not in the log]\n[bow.png, not in the log]"


def test_reasoning_is_kept_as_metadata_of_the_answer(tmp_path: Path) -> None:
    thought = "INSERT INTO parts SELECT 900, tip_message_hash, 7, 'reasoning', NULL, 'hm', NULL FROM threads LIMIT 1"
    assert notes(make_database("llm", tmp_path, thought)) == {
        "texts of the model's reasoning were kept as metadata of its answers and are not sent": 1
    }
    old = (
        "ALTER TABLE responses ADD COLUMN reasoning TEXT",
        "UPDATE responses SET reasoning = 'hm' WHERE prompt LIKE 'And%'",
    )
    archive = import_file(make_database("llm-old", tmp_path, *old))
    entry = archive.history(min(each.id for each in archive.conversations()))[4]
    assert entry.meta["imported"]["thoughts"] == ["hm"]


def test_a_log_of_llm_may_have_both_forms(tmp_path: Path) -> None:
    path = make_database("llm", tmp_path)
    with closing(sqlite3.connect(path)) as db, db:
        (thread,) = db.execute("SELECT id FROM threads LIMIT 1").fetchone()
        db.execute("INSERT INTO conversations VALUES (?, 'the same', 'echo'), ('old', 'Old', 'echo')", (thread,))
        db.execute(
            "INSERT INTO responses (id, model, prompt, response, conversation_id, datetime_utc)"
            " VALUES ('r', 'echo', 'Hi', 'Hello', 'old', '2024-01-02T03:04:05+00:00')"
        )
    archive = import_file(path)
    assert len(archive.conversations()) == 3
    assert [each.text for each in archive.history("old")] == ["Hi", "Hello"]


def test_a_log_of_llm_before_it_had_tools_and_fragments(tmp_path: Path) -> None:
    gone = [
        f"DROP TABLE {table}"
        for table in (
            *("tool_results", "tool_calls", "tool_responses", "tools", "fragments", "prompt_fragments"),
            *("system_fragments", "fragment_aliases", "prompt_attachments", "attachments"),
        )
    ]
    archive = import_file(
        make_database("llm-old", tmp_path, *gone, "UPDATE responses SET prompt = 'x', response = 'y'")
    )
    assert len(archive.conversations()) == 2


def test_a_message_that_is_missing_leaves_its_thread(tmp_path: Path) -> None:
    path = make_database("llm", tmp_path, "DELETE FROM messages WHERE role = 'system'")
    done = Archive(InMemory()).import_conversations(path)
    assert [each.how for each in done.conversations] == ["left", "new"]
    assert "is missing" in done.left[0].why


def test_a_thread_of_langgraph(tmp_path: Path) -> None:
    path = make_database("langgraph", tmp_path)
    archive = import_file(path)
    entries = archive.history("ada")
    assert [(each.role, each.text) for each in entries] == [
        ("system", "You sell rosin."),
        ("user", "Hello, I'm Ada."),
        ("assistant", "Hello, Ada."),
        ("user", "Which rosin is this?"),
        ("assistant", "Let me look."),
        ("tool", "amber: 3 left"),
        ("assistant", "Amber rosin."),
    ]
    assert json.loads(entries[3].native)["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    function = json.loads(entries[4].native)["tool_calls"][0]["function"]
    assert function == {"name": "rosin", "arguments": '{"kind":"amber"}'}
    assert entries[6].meta["imported"]["beside"] == [{"type": "reasoning", "reasoning": "Amber it is."}]
    assert [turn.model for turn in archive.talk("ada").branches[0].turns] == ["langgraph", "langgraph:gpt-5.6"]
    times = [each.at for each in entries]
    assert times == sorted(times)
    assert times[0] < times[-1]
    assert [(each.role, each.mark) for each in archive.history("bob")] == [
        ("user", ""),
        ("assistant", ""),
        ("tool", "closed"),
    ]
    assert sum(notes(path).values()) == 2


def checkpoint(path: Path, messages: object, kind: str = "msgpack", *, raw: bytes | None = None) -> Path:
    """Add a thread with these messages in its state."""
    state = {"v": 4, "ts": "2026-11-16T10:00:00+00:00", "channel_values": {"messages": messages}}
    data = raw if raw is not None else msgspec.msgpack.encode(state)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM checkpoints")
        db.execute("INSERT INTO checkpoints VALUES ('eve', '', '1', NULL, ?, ?, '{}')", (kind, data))
    return path


def object_of(kind: str, **fields: object) -> msgspec.msgpack.Ext:
    told = ["langchain_core.messages", kind, {"type": kind, **fields}, "model_validate_json"]
    return msgspec.msgpack.Ext(5, msgspec.msgpack.encode(told))


def test_messages_of_langchain_in_all_their_forms(tmp_path: Path) -> None:
    held = [
        {"role": "user", "content": "plain"},
        object_of("ai", content=["a ", {"type": "text", "text": "b"}, {"type": "tool_use", "id": "x"}]),
        object_of("human", content=[{"type": "image", "base64": "AAAA", "mime_type": "image/gif"}]),
        object_of("human", content=[{"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}]),
        object_of("human", content=[{"type": "image", "url": "https://example.com/b.png"}, {"type": "file", "id": 1}]),
        object_of(
            "ai", content="", tool_calls=[{"name": "f", "args": {"at": msgspec.msgpack.Ext(0, b"\xc0")}, "id": None}]
        ),
        object_of("tool", content="", tool_call_id="?", status="error", artifact=[1], name="f"),
        object_of("ai", content=""),
        object_of("ai", content="done"),
    ]
    path = checkpoint(make_database("langgraph", tmp_path), held)
    archive = import_file(path)
    entries = archive.history("eve")
    assert [each.role for each in entries] == [
        *("user", "assistant", "user", "user", "user", "assistant", "tool", "event", "assistant"),
    ]
    assert [each.text for each in entries[:2]] == ["plain", "a \nb"]
    urls = [json.loads(each.native)["content"][0]["image_url"]["url"] for each in entries[2:5]]
    assert urls == ["data:image/gif;base64,AAAA", "https://example.com/a.png", "https://example.com/b.png"]
    assert entries[6].mark == "closed"
    assert sorted(notes(path).values()) == [1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("messages", "kind", "why"),
    [
        ("text", "msgpack", "not a list"),
        ([7], "msgpack", "not a LangChain message"),
        ([object_of("remove", content="x")], "msgpack", "the unknown type 'remove'"),
        (msgspec.msgpack.Ext(7, b"\x90"), "msgpack", "stored as changes"),
        ([], "pickle", "stored as 'pickle'; only msgpack is supported"),
    ],
)
def test_unsupported_threads_are_skipped(messages: object, kind: str, why: str, tmp_path: Path) -> None:
    done = Archive(InMemory()).import_conversations(checkpoint(make_database("langgraph", tmp_path), messages, kind))
    assert [each.how for each in done.conversations] == ["left"]
    assert why in done.left[0].why


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    marker = tmp_path / "was here"
    evil = b"cos\nsystem\n(S'touch %s'\ntR." % str(marker).encode()
    path = checkpoint(make_database("langgraph", tmp_path), [msgspec.msgpack.Ext(5, evil)])
    assert Archive(InMemory()).import_conversations(path).left
    assert Archive(InMemory()).import_conversations(checkpoint(path, [], "pickle", raw=evil)).left
    assert not marker.exists()


def test_a_session_of_the_agents_sdk(tmp_path: Path) -> None:
    archive = import_file(make_database("agents-sdk", tmp_path))
    entries = archive.history("ada")
    assert [(each.role, each.text) for each in entries] == [
        ("user", "Have you amber rosin?"),
        ("assistant", '[calls rosin({"kind":"amber"})]'),
        ("tool", "amber: 3 left"),
        ("assistant", "Three are left."),
        ("user", "Thank you!"),
        ("assistant", "With pleasure."),
    ]
    assert {each.wire for each in entries} == {"openai-responses"}
    # Items keep the bytes that the tool has written.
    assert entries[0].native == b'{"content": "Have you amber rosin?", "role": "user"}'
    assert entries[2].native == b'{"call_id": "call_1", "output": "amber: 3 left", "type": "function_call_output"}'
    assert [each.text for each in archive.history("bob")] == ["I'm Bob.", "Hello, Bob."]


def test_consecutive_items_are_one_answer(tmp_path: Path) -> None:
    items = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    ]
    path = make_database(
        "agents-sdk", tmp_path, "DELETE FROM agent_messages", "DELETE FROM agent_sessions WHERE session_id = 'bob'"
    )
    with closing(sqlite3.connect(path)) as db, db:
        rows = [("ada", json.dumps(item)) for item in items]
        db.executemany("INSERT INTO agent_messages (session_id, message_data) VALUES (?, ?)", rows)
    archive = import_file(path)
    assert roles(archive, "ada") == ["system", "user", "assistant", "tool"]
    answer = archive.history("ada")[2]
    assert json.loads(answer.native)["output"] == items[2:]
    assert len(answer.meta["imported"]["items"]) == 3


def test_an_item_that_is_no_json_leaves_its_session(tmp_path: Path) -> None:
    path = make_database("agents-sdk", tmp_path, "UPDATE agent_messages SET message_data = '{' WHERE id = 2")
    done = Archive(InMemory()).import_conversations(path)
    assert [(each.id, each.how) for each in done.conversations] == [("ada", "left"), ("bob", "new")]


# Damaged databases


def list_outcomes(path: Path) -> list[tuple[str, str]]:
    return [(each.how, each.why) for each in Archive(InMemory()).import_conversations(path).conversations]


NOT_TEXT = ("left", "its format is not supported (one of its texts is not UTF-8)")
BAD = "CAST(x'61ff' AS TEXT)"


@pytest.mark.parametrize(
    ("name", "sql"),
    [
        ("agents-sdk", f"UPDATE agent_sessions SET session_id = {BAD} WHERE session_id = 'ada'"),
        ("agents-sdk", f"UPDATE agent_sessions SET updated_at = {BAD} WHERE session_id = 'ada'"),
        ("agents-sdk", f"UPDATE agent_messages SET message_data = {BAD} WHERE session_id = 'ada'"),
        ("llm", f"UPDATE threads SET name = {BAD} WHERE id = (SELECT min(id) FROM threads)"),
        ("llm-old", f"UPDATE conversations SET name = {BAD} WHERE id = (SELECT min(id) FROM conversations)"),
        ("langgraph", f"UPDATE checkpoints SET thread_id = {BAD} WHERE thread_id = 'ada'"),
    ],
)
def test_a_text_that_is_not_utf_8_leaves_its_conversation_alone(name: str, sql: str, tmp_path: Path) -> None:
    assert list_outcomes(make_database(name, tmp_path, sql)) == [NOT_TEXT, ("new", "")]


def test_a_table_that_is_not_utf_8_is_reported(tmp_path: Path) -> None:
    name, sql = "CAST(x'ff' AS TEXT)", "CAST(x'" + b'CREATE TABLE "\xff"(x)'.hex() + "' AS TEXT)"
    path = make_database(
        "agents-sdk",
        tmp_path,
        "CREATE TABLE odd (x)",
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_schema SET name = {name}, tbl_name = {name}, sql = {sql} WHERE name = 'odd'",
    )
    with pytest.raises(InputError, match="database can't be read: a text in it is not UTF-8"):
        Archive(InMemory()).import_conversations(path)


@pytest.mark.parametrize("table", ["fragments", "attachments"])
def test_a_table_that_is_missing_leaves_those_that_name_it(table: str, tmp_path: Path) -> None:
    import_file, left = list_outcomes(make_database("llm", tmp_path, f"DROP TABLE {table}"))
    assert import_file == ("new", "")
    assert left == ("left", f"its format is not supported (no such table: {table})")


def test_a_thread_without_messages_is_noted(tmp_path: Path) -> None:
    done = Archive(InMemory()).import_conversations(checkpoint(make_database("langgraph", tmp_path), []))
    assert (done.conversations, done.notes) == ((), {"conversations without messages were skipped": 1})


# Files


def test_what_is_still_in_the_log_beside_a_file_is_read(tmp_path: Path) -> None:
    path = make_database("agents-sdk", tmp_path, "PRAGMA journal_mode = WAL")
    db = sqlite3.connect(path)
    item = '{"role": "user", "content": "Still here?"}'
    db.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('bob', ?)", (item,))
    db.commit()
    # The writer still has the file open, so its last commit is only in the write-ahead log.
    assert [each.text for each in import_file(path).history("bob")][-1] == "Still here?"
    db.close()


def test_a_file_without_writers_is_not_changed(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    path = make_database("agents-sdk", folder, "PRAGMA journal_mode = WAL")
    before = path.read_bytes()
    import_file(path)
    assert path.read_bytes() == before


def test_a_file_beside_which_nothing_can_be_made_is_read(tmp_path: Path) -> None:
    path = make_database("agents-sdk", tmp_path, "PRAGMA journal_mode = WAL")
    Path(f"{path}-shm").mkdir()
    assert import_file(path).history("bob")


def test_an_unknown_database_is_named_with_what_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE bows (id)")
    with pytest.raises(InputError, match=r"\(its tables: bows\)\. Supported: the log of llm, LangGraph"):
        Archive(InMemory()).import_conversations(path)
    store = SQLite(tmp_path / "ours.db")
    store.close()
    with pytest.raises(InputError, match="This is a Longtalk store"):
        Archive(InMemory()).import_conversations(tmp_path / "ours.db")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="database can't be read"):
        Archive(InMemory()).import_conversations(path)
    shutil.copy(path, tmp_path / "y.db")
    with pytest.raises(InputError, match="database can't be read"):
        Archive(InMemory()).import_conversations((tmp_path / "y.db").read_bytes())


def test_a_file_of_an_sqlalchemy_session_of_the_agents_sdk(tmp_path: Path) -> None:
    """The tables and rows are those that openai-agents 0.24.0 with SQLAlchemy 2.1.8 has written."""
    import sqlite3

    path = tmp_path / "sessions.db"
    with closing(sqlite3.connect(path)) as db:
        times = "created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL"
        db.execute(
            f"CREATE TABLE agent_sessions (session_id VARCHAR NOT NULL, {times}, "
            "updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL, PRIMARY KEY (session_id))"
        )
        db.execute(
            "CREATE TABLE agent_messages (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, session_id VARCHAR NOT NULL, "
            f"message_data TEXT NOT NULL, {times}, "
            "FOREIGN KEY(session_id) REFERENCES agent_sessions (session_id) ON DELETE CASCADE)"
        )
        db.execute("CREATE INDEX idx_agent_messages_session_time ON agent_messages (session_id, created_at)")
        db.execute("INSERT INTO agent_sessions (session_id) VALUES ('ada')")
        for item in (
            '{"role":"user","content":"And?"}',
            '{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}',
            '{"type":"function_call_output","call_id":"c1","output":"1"}',
            '{"type":"message","role":"assistant","content":[{"type":"output_text","text":"\\u00e4","annotations":[]}]}',
        ):
            db.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('ada', ?)", (item,))
        db.commit()
    history = import_file(path).history("ada")
    assert [entry.role for entry in history] == ["user", "assistant", "tool", "assistant"]
    assert history[-1].text == "ä"
