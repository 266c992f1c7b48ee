"""PostgreSQL databases of other tools, made by those tools (`making_postgres.py`), become conversations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from longtalk import Archive, InputError
from longtalk.errors import StoreError
from longtalk.stores.in_memory import InMemory
from longtalk.transfer.importers import DatabaseAddress
from tests.support import postgres_server

CLIENTS = Path(sys.prefix) / "clients"
MAKER = Path(__file__).with_name("making_postgres.py")


def make_tables(tool: str, database: str = "") -> tuple[DatabaseAddress, str]:
    """Return the address and the name of a database that a tool has written."""
    if not (CLIENTS / "ready").exists():
        pytest.skip("the clients are not installed: `make clients`")
    server = postgres_server.server()
    database = database or server.database()
    address = server.url(database=database)
    # asyncpg and libpq both read the folder of a socket from `host`.
    command = [str(CLIENTS / "bin" / "python"), str(MAKER), tool, address]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return DatabaseAddress(address), database


@pytest.mark.slow
def test_the_threads_of_langgraph() -> None:
    address, database = make_tables("langgraph")
    archive = Archive(InMemory())
    done = archive.import_conversations(address)
    assert [(each.id, each.how) for each in done.conversations] == [("ada", "new"), ("bob", "new")]
    assert done.notes == {
        "content blocks that are neither text nor images were kept as metadata of their messages and are not sent": 1,
        "tool calls had no result and were closed": 1,
    }
    entries = archive.history("ada")
    assert [each.role for each in entries] == ["system", "user", "assistant", "user", "assistant", "tool", "assistant"]
    assert [each.text for each in entries[:3]] == ["You sell rosin.", "Hello, I'm Ada.", "Hello, Ada."]
    call, result = json.loads(entries[4].native), json.loads(entries[5].native)
    assert call["tool_calls"][0]["function"] == {"name": "rosin", "arguments": '{"kind":"amber"}'}
    assert (result["tool_call_id"], result["content"]) == (call["tool_calls"][0]["id"], "amber: 3 left")
    assert json.loads(entries[3].native)["content"][1]["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="
    # Each message has the time of its own checkpoint.
    assert entries[1].at <= entries[2].at <= entries[3].at < entries[-1].at
    assert archive.talk("ada").branches[0].turns[-1].model.startswith("langgraph")
    assert [each.how for each in archive.import_conversations(address).conversations] == ["here", "here"]

    server = postgres_server.server()
    with server.asking(database=database) as connection:
        connection.execute("DELETE FROM checkpoint_blobs WHERE thread_id = 'ada' AND channel = 'messages'")
        connection.execute("UPDATE checkpoint_blobs SET type = 'pickle' WHERE thread_id = 'bob'")
    why = {each.id: each.why for each in Archive(InMemory()).import_conversations(address).left}
    assert "of its messages is missing in checkpoint_blobs" in why["ada"]
    assert why["bob"].endswith("(its checkpoints are stored as 'pickle'; only msgpack is supported)")


@pytest.mark.slow
def test_the_sessions_of_the_agents_sdk_beside_the_threads_of_langgraph() -> None:
    address, database = make_tables("agents-sdk")
    archive = Archive(InMemory())
    done = archive.import_conversations(DatabaseAddress(address.replace("postgresql://", "postgresql+asyncpg://")))
    assert [(each.id, each.how) for each in done.conversations] == [("ada", "new"), ("bob", "new")]
    entries = archive.history("ada")
    assert [each.role for each in entries] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert [each.text for each in entries][-3:] == ["Three are left.", "Thank you!", "With pleasure."]
    with postgres_server.server().asking(database=database) as connection:
        (stored,) = connection.execute("SELECT message_data FROM agent_messages ORDER BY id LIMIT 1").fetchone() or ()
    assert entries[0].native == stored.encode()
    assert entries[0].at > 1_700_000_000_000
    make_tables("langgraph", database)
    outcomes = [(each.id, each.how) for each in Archive(InMemory()).import_conversations(address).conversations]
    assert outcomes == [("ada", "new"), ("bob", "new"), ("ada", "left"), ("bob", "left")]


def test_a_database_without_tables_of_a_tool_and_an_unknown_server() -> None:
    server = postgres_server.server()
    with pytest.raises(InputError, match=r"no tables of a supported tool \(its tables: none\)"):
        Archive(InMemory()).import_conversations(DatabaseAddress(server.url(database=server.database())))
    with pytest.raises(StoreError, match=r"Can.t connect to the database .*nowhere .*does not exist"):
        Archive(InMemory()).import_conversations(DatabaseAddress(server.url(database="nowhere")))
    with pytest.raises(StoreError) as failed:
        Archive(InMemory()).import_conversations(DatabaseAddress("postgresql://ada:secret@127.0.0.1:1/talks"))
    assert "secret" not in str(failed.value)


def test_an_uploaded_text_is_never_an_address() -> None:
    for text in ("postgresql://ada:secret@127.0.0.1:1/talks", " postgresql+asyncpg:///db?host=/run"):
        with pytest.raises(InputError, match=r"pass DatabaseAddress") as refused:
            Archive(InMemory()).import_conversations(text)
        assert "secret" not in str(refused.value)
    with pytest.raises(InputError, match="postgresql"):
        Archive(InMemory()).import_conversations(b"postgresql://ada@127.0.0.1:1/talks")
