"""The PostgreSQL store: the conformance suite, and tests of owners, tables, names and connections that are lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import strategies as st

from longtalk import Conversation
from longtalk._sync.archive.archive import Archive
from longtalk.context.epochs import Epoch
from longtalk.errors import InputError
from longtalk.memory.recall.protocol import SearchTerm
from longtalk.policies import KeepLast, Memory
from longtalk.stores import hide_credentials, open_store
from longtalk.stores.base import MAIN, Commit, HeadMoved, Holder, KeyedRequest, Lease, PlacedRecord
from longtalk.stores.postgres import migrate as postgres_opening
from longtalk.stores.postgres import pool as postgres_pool
from longtalk.stores.postgres import search as postgres_search
from longtalk.stores.postgres import store as postgres
from longtalk.stores.postgres.migrate import _replace_texts
from longtalk.stores.postgres.pool import IDLE_SECONDS, LIFETIME, Pool, _Claim
from longtalk.stores.postgres.rows import escape_text, to_write_arguments, unescape_text
from longtalk.stores.postgres.schema import VERSION
from longtalk.stores.postgres.store import Postgres, StoreError
from longtalk.testing import Scripted, says
from longtalk.testing.stores.harness import ConversationDriver, make_message
from longtalk.testing.stores.suite import CASES, Case
from longtalk.transcript.manifest import Run, StoredManifest
from longtalk.transcript.record_kinds import KINDS
from longtalk.transcript.transcript import Record, Turn, link_entries, new_id
from tests.support.postgres_proxy import Proxy
from tests.support.postgres_server import TABLES, get_schema, reopen, server
from tests.support.properties import holds

# The threads of the forked processes do nothing.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

ME = "me"
SECRET = "xq7hunter2zk"


LONG_ANSWER = "# Lisbon\n\n" + "A town by the river. " * 40 + "\n\n# Porto\n\n" + "Another one. " * 40


@pytest.fixture
def store() -> Iterator[Postgres]:
    with closing(server().store()) as store:
        yield store


def talk(store: Postgres, name: str = "talk", owner: str = ME) -> ConversationDriver:
    return ConversationDriver(store, owner, name)


def rows(store: Postgres, sql: str, owner: str = ME) -> list[tuple[Any, ...]]:
    """Return the result of a query on another connection, with `{s}` replaced by the schema."""
    with server().asking() as connection:
        connection.execute("SELECT set_config('longtalk.owner', %s, false)", (owner,))
        found = connection.execute(sql.replace("{s}", get_schema(store)))
        return found.fetchall() if found.description else []


# Ctrl-C may take a connection away from its user. It is closed when it is collected, with a warning.
@pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_store_keeps_the_contract(case: Case) -> None:
    case.run(server().store, reopen=reopen)


def test_a_dropped_claim_frees_its_connection() -> None:
    with closing(Pool(server().url(), 1)) as pool:
        user = _Claim()
        pool._wait_for_claim(user)
        del user
        assert pool.run(lambda connection: connection.execute("SELECT 7").fetchone()) == (7,)


# Opening


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InputError, match=r"longtalk\[postgres\]"):
        Postgres("postgresql://localhost/x")


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("postgresql://ann:hunter2@/x?host=/nowhere", StoreError),
        ("postgresql://ann:hunter2@127.0.0.1:1/x", StoreError),
        ("postgresql://ann:hunter2@/x?nonsense=hunter2", InputError),
        ("hunter2", InputError),
        ("postgresql://ann:12/hunter2@127.0.0.1/x", InputError),
        ("postgresql://ann:hunter2/3@127.0.0.1/x", InputError),
        ("postgresql://ann:3@hunter2@127.0.0.1/x", InputError),
        ("postgresql://ann:hunter2", InputError),
        ("postgresql://ann:a?b@hunter2@127.0.0.1/x", InputError),
        ("postgresql://ann:hunter2?password=x@127.0.0.1:1/x", StoreError),
    ],
)
def test_a_server_that_is_not_there_is_told_without_the_password(url: str, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        Postgres(url)
    assert "hunter2" not in str(caught.value)


def test_a_password_that_is_not_encoded_is_told_how_to_be() -> None:
    with pytest.raises(InputError, match="percent-encoded"):
        Postgres("postgresql://ann:a/b@127.0.0.1/x")


def test_the_password_is_not_shown() -> None:
    url = server().url().replace("app@", "app:hunter2@")
    with closing(Postgres(url, schema=server().schema())) as store:
        assert "hunter2" not in repr(store)
        assert str(server().folder) in repr(store)


@pytest.mark.parametrize("schema", ["", "a b", 'a"b', "x" * 64, "a.b", "%s"])
def test_a_schema_has_a_plain_name(schema: str) -> None:
    with pytest.raises(InputError, match="schema"):
        Postgres(server().url(), schema=schema)


def test_a_store_needs_a_connection() -> None:
    with pytest.raises(InputError, match="connection"):
        Postgres(server().url(), connections=0)


def test_a_closed_store_says_so(store: Postgres) -> None:
    store.close()
    with pytest.raises(InputError, match="closed"):
        store.head(ME, "talk")


def test_a_newer_schema_is_refused(store: Postgres) -> None:
    rows(store, "INSERT INTO {s}.migrations (version) VALUES (99)")
    with pytest.raises(InputError, match="newer version of Longtalk: its schema version is 99"):
        Postgres(server().url(), schema=get_schema(store))
    seen = [(number,) for number in range(1, VERSION + 1)]
    assert rows(store, "SELECT version FROM {s}.migrations ORDER BY 1") == [*seen, (99,)]


def test_unreported_tokens_become_unknown_in_an_older_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = server().schema()
    with monkeypatch.context() as earlier:
        earlier.setattr(postgres_opening, "VERSION", 1)
        Postgres(server().url(), schema=schema).close()
    with server().asking("app") as connection:
        connection.execute("SELECT set_config('longtalk.owner', %s, false)", (ME,))
        connection.execute(
            f"INSERT INTO {schema}.conversations (owner, name, created, updated, entries, meta)"
            " VALUES (%s, 'talk', 1, 1, 0, '{}')",
            (ME,),
        )
        for name, calls, tokens in (("unknown", 0, 0), ("told", 1, 7)):
            connection.execute(
                f"INSERT INTO {schema}.turns (owner, conversation, name, status, model, started, ended, finish,"
                " preamble, error, usage, calls, input, output, cached, written)"
                f" SELECT owner, id, %s, 'complete', '', 1, 1, 'stop', '', '', '{{}}', %s, %s, 0, 0, 0"
                f" FROM {schema}.conversations",
                (name, calls, tokens),
            )
    with closing(Postgres(server().url(), schema=schema)) as store:
        found = rows(store, "SELECT name, input, output, cached, written FROM {s}.turns ORDER BY name")
        assert found == [("told", 7, 0, 0, 0), ("unknown", None, None, None, None)]
        forced = f"SELECT relforcerowsecurity FROM pg_class WHERE oid = '{schema}.turns'::regclass"
        assert rows(store, forced) == [(True,)]


def test_a_migration_puts_whole_texts_into_the_table_of_entries() -> None:
    schema, others = server().schema(), "another owner"
    with closing(Postgres(server().url(), schema=schema)) as store:
        for owner in (ME, others):
            talk(store, owner=owner).say("Where?", LONG_ANSWER)
            talk(store, owner=owner).say("secret " * 100)
            store.redact(owner, "talk", talk(store, owner=owner).entries()[2].id, b'{"content":"' + b"x" * 400 + b'"}')
            rows(store, "UPDATE {s}.entries SET text = 'an outline' WHERE text IS NOT NULL AND place = 1", owner)
        store._run(lambda connection: _replace_texts(connection, f'"{schema}"'))
        for owner in (ME, others):
            found = rows(store, f"SELECT text FROM {{s}}.entries WHERE owner = '{owner}' ORDER BY place", owner)
            assert found == [("Where?",), (LONG_ANSWER,), (None,)]
        forced = f"SELECT relforcerowsecurity FROM pg_class WHERE oid = '{schema}.entries'::regclass"
        assert rows(store, forced) == [(True,)]


def test_turns_of_an_older_schema_have_no_responses_until_they_are_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = server().schema()
    old = Turn("t", "running", "a:b", 1, usage=(b"{}", b"[]"))
    entries = link_entries(None, "t", 0, [make_message("hello")])
    with monkeypatch.context() as earlier:
        earlier.setattr(postgres_opening, "VERSION", 4)
        store = Postgres(server().url(), schema=schema)
        values = to_write_arguments(ME, "talk", Commit(expect=0, at=1, entries=entries, turn=old), 1)
        store._run(lambda connection: connection.execute(store._write, values, binary=True).fetchall())
        store.close()
    with closing(Postgres(server().url(), schema=schema)) as store:
        assert store.turns(ME, "talk", MAIN, 0, 1) == [(0, old)]
        new = msgspec.structs.replace(old, responses=(b"{}",))
        assert store.write(ME, "talk", Commit(expect=1, at=2, turn=new)).turn == new
        assert store.turns(ME, "talk", MAIN, 0, 1) == [(0, new)]


def test_a_database_that_is_not_in_utf8_is_refused() -> None:
    with server().asking() as connection:
        connection.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    with pytest.raises(InputError, match="UTF8"):
        Postgres(server().url().replace("/postgres?", "/latin?"))


def test_a_missing_right_to_create_a_schema_is_reported() -> None:
    with server().asking() as connection:
        connection.execute("CREATE ROLE guest LOGIN")
    with pytest.raises(InputError, match="refused permission"):
        Postgres(server().url("guest"), schema=server().schema())


@pytest.mark.slow
def test_many_processes_open_an_empty_database_at_once() -> None:
    schema = server().schema()
    program = (
        "import sys\nfrom longtalk.stores.postgres.store import Postgres\nfrom longtalk.stores.base import Commit\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "store = Postgres(sys.argv[1], schema=sys.argv[2])\n"
        "print(store.write('', sys.argv[3], Commit(expect=0, at=1)).revision)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, server().url(), schema, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    assert [process.communicate("\n")[0] for process in processes] == ["1\n"] * 3
    with closing(Postgres(server().url(), schema=schema)) as store:
        assert len(store.conversations("")) == 3


def test_the_kinds_of_records_are_those_of_the_contract(store: Postgres) -> None:
    """If this fails, a migration is missing."""
    held = {
        "replaced": [kind.name for kind in KINDS if kind.newest_only],
        "alone": [kind.name for kind in KINDS if kind.own_branch_only],
        "passing": [kind.name for kind in KINDS if kind.may_discard_replaced],
        "bare": [kind.name for kind in KINDS if not kind.quotes_entries],
    }
    for name, kinds in held.items():
        assert rows(store, f"SELECT {{s}}.{name}()") == [(kinds,)]


def test_a_backup_by_pg_dump_is_whole(store: Postgres, tmp_path: Path) -> None:
    made = talk(store)
    made.say("lisbon", "b", request=KeyedRequest("key", "body"), entry_meta={0: {"a": 1}})
    made.write(records=(made.make_record("memory", "{}", 1),))
    store.candidates(ME, ["lisbon"], 9)
    before, there = made.read_all("key"), server().database()
    file = tmp_path / "dump"
    server().program("pg_dump", "-Fc", "--schema", get_schema(store), "--file", str(file), "postgres")
    server().program("pg_restore", "--exit-on-error", "-d", there, str(file))
    with closing(Postgres(server().url(database=there), schema=get_schema(store), make=False)) as other:
        assert talk(other).read_all("key") == before
        assert [hit.position for hit in other.candidates(ME, ["lisbon"], 9)] == [0]
        assert talk(other).say("goes on").size == 3


def test_a_store_by_its_address() -> None:
    url = server().url(database=server().database())
    with pytest.raises(InputError, match="No store found in schema"):
        open_store(url, make=False)
    with closing(open_store(url)) as store:
        store.write("", "lesson", Commit(expect=0, at=1))
    with closing(open_store(url.replace("postgresql:", "Postgres:"), make=False)) as store:
        assert [found.id for found in store.conversations("")] == ["lesson"]


@pytest.mark.slow
def test_the_command_line_takes_an_address() -> None:
    url = server().url(database=server().database()).replace("app@", "app:hunter2@")
    longtalk = [str(Path(sys.executable).parent / "longtalk")]

    def ran(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run([*longtalk, *arguments, "--store", url], capture_output=True, text=True, check=False)
        assert "hunter2" not in done.stderr + done.stdout
        return done.returncode, done.stdout, done.stderr

    code, _, told = ran("list")
    assert (code, "No store found in schema" in told) == (1, True)
    with closing(open_store(url)) as store:
        ConversationDriver(store, "", "lesson-7").say("How do I hold the bow?", "Loosely.")
    assert "Loosely." in ran("show", "lesson-7")[1]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("postgresql://ann:hunter2@db:5432/app?sslmode=require", "postgresql://db:5432/app"),
        ("postgres://db/app?password=hunter2", "postgres://db/app"),
        ("postgres://ann:a@b:c@db/app", "postgres://db/app"),
        ("postgres://db/app?password=a@hunter2", "postgres://…"),
        ("postgres://ann:hunter2?b@db/app", "postgres://…"),
        ("postgresql://app:hunter2@/app?sslmode=disable&host=/run/db", "postgresql:///app?host=/run/db"),
        ("POSTGRES://ann:hunter2@db/app", "POSTGRES://db/app"),
        ("talks.db", "talks.db"),
        ("file://x", "file://x"),
    ],
)
def test_an_address_is_shown_without_its_password(name: str, told: str) -> None:
    assert hide_credentials(name) == told


# Owners


def test_a_query_by_an_ordinary_role_sees_what_its_owner_has(store: Postgres) -> None:
    for owner in (ME, "other", ""):
        made = talk(store, owner=owner)
        made.say("lisbon", "b", request=KeyedRequest("key", "body"), entry_meta={0: {"a": 1}}, meta={"b": 2})
        made.write(records=(made.make_record("memory", "{}", 1),))
        store.candidates(owner, ["lisbon"], 9)
    tables = [f"{get_schema(store)}.{table}" for table in (*TABLES, "briefs", "metrics")]
    with server().asking("app") as connection:

        def seen(table: str) -> set[str]:
            return {owner for (owner,) in connection.execute(f"SELECT DISTINCT owner FROM {table}")}

        for table in tables:
            assert seen(table) == set(), f"{table}: no owner is set"
        for setting, owner in ((ME, ME), ("other", "other"), ("\x01", "")):
            with connection.transaction():
                connection.execute("SELECT set_config('longtalk.owner', %s, true)", (setting,))
                for table in tables:
                    assert seen(table) == {owner}, f"{table}: {owner!r} asks"
            for table in tables:
                assert seen(table) == set(), f"{table}: no owner is set any more"
        connection.execute("SET longtalk.owner = 'nobody'")
        for table in tables:
            assert seen(table) == set(), f"{table}: another owner is set"
            if table.rpartition(".")[2] in TABLES:
                assert connection.execute(f"DELETE FROM {table}").rowcount == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(
                f"INSERT INTO {tables[0]} (owner, name, created, updated, entries, meta)"
                " VALUES ('me', 'x', 1, 1, 0, '')"
            )


def test_a_role_with_what_the_docs_grant_can_use_a_store(store: Postgres) -> None:
    schema = get_schema(store)
    with server().asking() as connection:
        connection.execute("CREATE ROLE worker LOGIN")
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO worker")
        connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO worker")
    with closing(Postgres(server().url("worker"), schema=schema)) as other:
        made = talk(other)
        made.say("lisbon", "b", entry_meta={0: {"a": 1}})
        assert [hit.position for hit in other.candidates(ME, ["lisbon"], 9)] == [0]
        assert other.redact(ME, "talk", made.entries()[0].id, b"{}")
        receipt = other.delete(ME, "talk")
        assert receipt is not None
        assert receipt.entries == 2


# Names and texts


@holds(st.lists(st.text(st.sampled_from("\0\x01\x02\x03aé"), max_size=4), max_size=6))
def test_names_with_noughts_are_texts_that_keep_their_order(names: list[str]) -> None:
    stored = sorted(map(escape_text, names))
    assert list(map(unescape_text, stored)) == sorted(names)
    assert not any("\0" in text for text in stored)
    # No owner's name is stored as this value, which stands for no owner.
    assert "\x01" not in stored


def test_names_with_noughts_are_names_like_others(store: Postgres) -> None:
    names = ["\0", "a\0", "a\0b", "a\x01", "a\x01\x01", "a\x01b", "\x01", "a", "ab"]
    for name in names:
        made = talk(store, name, owner=f"{ME}{name}")
        head = made.say("x", branch=name, request=KeyedRequest(name, name))
        entries = link_entries(head.entry, f"t{name}", 0, [make_message("y")])
        made.write(name, entries=entries, records=(PlacedRecord(Record(name, entries[0].id, 1, b"{}"), 1),))
        talk(store, name).say("x", at=5)
    for name in names:
        made = talk(store, name, owner=f"{ME}{name}")
        assert made.texts(name) == ["x", "y"]
        assert made.entries(name)[1].id == f"t{name}-0" == made.head(name).entry
        assert made.head(name).records[0].record.kind == name
        assert made.keyed_turn(name).branch == name
        assert store.describe(made.owner, name, {"a": 1}, entry=f"t{name}-0")
        assert store.redact(made.owner, name, f"t{name}-0", b'{"content":"z"}')
        assert made.texts(name) == ["x", "z"]
    assert [found.id for found in store.conversations(ME)] == sorted(names)


def test_what_is_not_unicode_is_refused(store: Postgres) -> None:
    with pytest.raises(InputError, match="not valid Unicode"):
        talk(store, "half \ud800").say("x")
    assert store.conversations(ME) == []


def test_a_name_that_no_index_takes_is_refused(store: Postgres) -> None:
    with pytest.raises(InputError, match="too long"):
        talk(store, "".join(new_id() for _ in range(2_000))).say("x")


def test_numbers_beyond_all_are_where_there_is_nothing(store: Postgres) -> None:
    made = talk(store)
    made.say("lisbon", "b")
    assert len(store.conversations(ME, limit=2**63)) == 1
    assert len(store.conversations(ME, limit=2**70, after=(2**70, ""))) == 1
    assert store.conversations(ME, after=(-(2**70), "")) == []
    assert [entry.id for entry in store.read(ME, "talk", MAIN, -(2**70), 2**70).entries()] == [
        entry.id for entry in store.read(ME, "talk", MAIN, 0, 2).entries()
    ]
    assert list(map(len, store.pick(ME, "talk", MAIN, [(0, 2**70), (2**40, 2**70)]))) == [2, 0]
    assert len(store.turns(ME, "talk", MAIN, 0, 2**70)) == 1
    assert store.manifests(ME, "talk", MAIN, 2**40, 2**70) == {}
    assert store.metas(ME, "talk", MAIN, 0, 2**70) == {}
    assert [hit.position for hit in store.candidates(ME, ["lisbon"], 2**70)] == [0]
    assert store.matches(ME, "talk", MAIN, [SearchTerm(words=("lisbon",))], 2**70)[0].positions == (0,)
    assert not store.renew(ME, "talk", MAIN, 2**70, 2**70)
    with pytest.raises(HeadMoved):
        made.write(expect=2**70)


@pytest.mark.parametrize(
    "fields",
    [
        {"cut": 2**40},
        {"cut": -(2**70)},
        {"at": 2**70},
        {"branch": "other", "expect": 0, "source": (MAIN, 2**40)},
        {"lease": Lease(Holder("m", "b", 1, 1), 2**70, 1)},
        {"records": (PlacedRecord(Record("brief", "x-0", 1, b"{}"), 2**40),)},
        {"records": (PlacedRecord(Record("brief", "x-0", 2**70, b"{}"), 0),)},
        {"turn": Turn("t", "complete", "test:model", 2**70)},
    ],
)
def test_a_commit_with_a_number_that_no_column_holds_makes_no_sense(store: Postgres, fields: dict[str, Any]) -> None:
    made = talk(store)
    made.say("a", "b")
    with pytest.raises(ValueError, match="range"):
        made.write(**fields)
    assert made.texts() == ["a", "b"]


def test_an_answer_is_kept_whatever_was_counted(store: Postgres) -> None:
    made = talk(store)
    fields = made.make_turn(None, "a", "b")
    usage = b'{"prompt_tokens":-99999999999999999999,"completion_tokens":99999999999999999999}'
    made.write(**{**fields, "turn": msgspec.structs.replace(fields["turn"], usage=(usage,))})
    assert store.turns(ME, "talk", MAIN, 0, 2)[0][1].usage == (usage,)
    assert rows(store, "SELECT input, output FROM {s}.turns") == [(0, 2**53 - 1)]


def test_the_table_of_entries_has_whole_texts(store: Postgres) -> None:
    talk(store).say("Where?\0 \ud800", LONG_ANSWER)
    talk(store).say("And " * 200)
    (asked,), (told,), (again,) = rows(store, "SELECT text FROM {s}.entries ORDER BY place")
    assert asked.startswith("Where?")
    assert (told, again) == (LONG_ANSWER, "And " * 200)
    assert rows(store, "SELECT role, wire, tokens > 0 FROM {s}.entries ORDER BY place")[1] == (
        "assistant",
        "openai-chat",
        True,
    )


# Removal and damage


def everywhere(store: Postgres) -> str:
    """Return the content of all tables as text."""
    found: list[str] = []
    for table in TABLES:
        for row in rows(store, f"SELECT * FROM {{s}}.{table}"):
            found += [each.decode("latin1") if isinstance(each, bytes) else str(each) for each in row]
    return "\n".join(found)


def test_what_is_redacted_is_in_no_table(store: Postgres) -> None:
    made = talk(store)
    made.say(f"my password is {SECRET}", "b", entry_meta={0: {"a": SECRET}})
    made.write(records=(made.make_record("brief", f"about {SECRET}", 1),))
    assert store.candidates(ME, [SECRET], 9)
    assert SECRET in everywhere(store)
    assert store.redact(ME, "talk", made.entries()[0].id, b'{"role":"user","content":"gone"}')
    assert SECRET not in everywhere(store)
    assert [hit.position for hit in store.candidates(ME, ["gone"], 9)] == [0]
    assert SECRET not in everywhere(store)


def test_what_is_deleted_leaves_no_row(store: Postgres) -> None:
    made = talk(store)
    made.say("lisbon", "b", request=KeyedRequest("key", "body"), entry_meta={0: {"a": 1}})
    made.say("c", branch="fork", source=(MAIN, 1))
    made.write(records=(made.make_record("brief", "x", 1),))
    store.candidates(ME, ["lisbon"], 9)
    store.delete(ME, "talk")
    for table in TABLES:
        assert rows(store, f"SELECT count(*) FROM {{s}}.{table}") == [(0,)], table


def test_words_of_what_was_redacted_meanwhile_are_not_learnt(store: Postgres) -> None:
    """One call reads entries to index them, and another redacts them before their words are stored."""
    made = talk(store)
    made.say(f"my password is {SECRET}", "b")
    held: list[Any] = []

    class Slow:
        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def execute(self, sql: str, *args: Any, **settings: Any) -> Any:
            if "learn" in sql and not held:
                held.append(store.redact(ME, "talk", made.entries()[0].id, b'{"role":"user","content":"gone"}'))
            return self._connection.execute(sql, *args, **settings)

    store._pool.run(lambda connection: postgres_search.index_batch(Slow(connection), store._schema, ME, "talk"))  # type: ignore[arg-type]
    assert held == [True]
    assert SECRET not in everywhere(store)
    assert [hit.position for hit in store.candidates(ME, ["gone"], 9)] == [0]


def test_damage_is_found(store: Postgres) -> None:
    made = talk(store)
    for number in range(4):
        made.say(f"a{number}", "b", entry_meta={0: {"a": 1}})
    made.write(lease=None)
    assert store.verify(ME, "talk") == []
    rows(store, "UPDATE {s}.entries SET native = '{}' WHERE place = 2")
    rows(store, "UPDATE {s}.branches SET holder = 'x', until = 1, held = 1")
    rows(store, "UPDATE {s}.conversations SET meta = 'x'")
    rows(store, "UPDATE {s}.entry_meta SET meta = 'x' WHERE place = 6")
    rows(store, "DELETE FROM {s}.entries WHERE place IN (4, 7)")
    found = store.verify(ME, "talk")
    assert found[:3] == [
        "the entry at position 2 has a wrong checksum",
        "entries are missing before position 5",
        "entries are missing before position 8",
    ]
    assert [each.partition(": ")[0] for each in found[3:]] == [
        "the lease of branch 'main' can't be decoded",
        "the metadata of conversation 'talk' can't be decoded",
        "the metadata of the entry at position '6' can't be decoded",
    ]
    for call in (lambda: store.read(ME, "talk", MAIN, 0, 8), lambda: store.head(ME, "talk")):
        with pytest.raises(StoreError, match=r"is damaged .*Restore it from a backup"):
            call()
    with pytest.raises(StoreError, match="damaged"):
        store.info(ME, "talk")


# Search


def test_search_goes_on_where_it_stopped(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_search, "BATCH", 3)
    made = talk(store)
    for number in range(5):
        made.say(f"word{number} lisbon", "b")
    assert sorted(hit.position for hit in store.candidates(ME, ["lisbon"], 99)) == [0, 2, 4, 6, 8]
    made.say("late lisbon", branch="fork", source=(MAIN, 3))
    assert len(store.candidates(ME, ["lisbon"], 99, conversation="talk")) == 6
    assert store.candidates(ME, ["lisbon"], 99, conversation="elsewhere") == []
    (found,) = store.matches(ME, "talk", "fork", [SearchTerm(("lisbon",), ("lis",))], 9)
    assert found.positions == (0, 2, 3)
    talk(store, "other").say("a lisbon")
    made.write("bare", source=(MAIN, 2))
    assert len(store.candidates(ME, ["lisbon"], 99)) == 7
    assert rows(store, "SELECT count(*) FROM {s}.branches WHERE stale") == [(0,)]


def test_phrases_and_long_texts_are_found_where_positions_would_run_out(store: Postgres) -> None:
    made = talk(store)
    made.say("京" * 20_000 + "東大寺", "x" * 5_000 + " one two", "two one " * 300 + "three")
    made.say(" ".join(f"w{number}" for number in range(30_000)), "four")

    def places(*words: str, beginnings: tuple[str, ...] = ()) -> tuple[int, ...]:
        return store.matches(ME, "talk", MAIN, [SearchTerm(words, beginnings)], 9)[0].positions

    assert places("京東大") == (0,)
    assert places("大東") == ()
    assert places("x" * 5_000) == (1,)
    assert places("x" * 4_999) == ()
    assert places("one two") == (1, 2)
    assert places("one three") == (2,)
    assert places(beginnings=("one thr",)) == (2,)
    assert places("w29999") == (3,)
    assert places("w29998 w29999") == (3,)
    assert [hit.position for hit in store.candidates(ME, ["one three"], 9)] == [2]


# Connections


def test_more_threads_than_connections_wait_for_one() -> None:
    with closing(server().store(connections=2)) as store:
        made = talk(store)
        made.say("begin")
        found: list[int] = []
        threads = [threading.Thread(target=lambda: found.append(made.head().size)) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [1] * 12
        assert len(store._pool._all) <= 2


def test_a_connection_that_was_not_used_for_long_is_closed_at_the_next_call() -> None:
    with closing(server().store(connections=2)) as store:
        pool = store._pool
        pool.run(lambda _: pool.run(lambda _: None))
        unused, last = pool._idle
        pool._idle[unused] -= IDLE_SECONDS
        pool._idle[last] -= IDLE_SECONDS
        store.head(ME, "talk")
        assert unused.closed
        assert list(pool._all) == list(pool._idle) == [last]


def test_an_old_connection_is_closed_after_its_call_and_the_next_call_opens_another(store: Postgres) -> None:
    made, pool = talk(store), store._pool
    made.say("a")
    (old,) = pool._all
    pool._all[old] -= LIFETIME
    store.head(ME, "talk")
    assert old.closed
    assert not pool._all
    assert made.texts() == ["a"]


@pytest.mark.parametrize("pools", [False, True])
def test_statements_are_prepared_unless_there_is_a_pooler_on_the_way(pools: bool) -> None:
    proxy = Proxy(server().folder, pools=pools)
    with proxy, closing(Postgres(proxy.url, schema=server().schema(), connections=1)) as store:
        for _ in range(10):
            store.head(ME, "talk")
        ((held,),) = store._pool.run(
            lambda asked: asked.execute("SELECT count(*) FROM pg_prepared_statements").fetchall()
        )
        assert (held == 0) is pools


def test_whatever_is_read_takes_one_trip() -> None:
    with Proxy(server().folder) as proxy, closing(Postgres(proxy.url, schema=server().schema())) as store:
        made = talk(store)
        made.say("a", "b", request=KeyedRequest("key", "body"), entry_meta={0: {"a": 1}})
        turn = made.entries()[0].turn
        works: list[Callable[[], object]] = [
            *(partial(store.head, ME, "talk"), partial(store.branches, ME, "talk"), partial(store.info, ME, "talk")),
            *(
                partial(work, ME, "talk", MAIN, 0, 2)
                for work in (store.read, store.turns, store.manifests, store.metas)
            ),
            *(partial(store.pick, ME, "talk", MAIN, [(0, 1)]), partial(store.records, ME, "talk", MAIN)),
            *(partial(store.manifest, ME, "talk", turn), partial(store.keyed_turn, ME, "talk", "key")),
            *(
                partial(store.keyed_turns, ME, "talk"),
                partial(store.conversations, ME),
                partial(store.verify, ME, "talk"),
            ),
        ]
        for work in works:
            before = proxy.trips
            work()
            assert proxy.trips - before == 1, work


def test_what_is_asked_for_leaves_no_owner_on_the_connection(store: Postgres) -> None:
    """A pooler may give the connection to another client after each transaction."""
    made = talk(store)
    made.say("a")
    for work in (made.head, partial(store.turns, ME, "talk", MAIN, 0, 9), partial(store.candidates, ME, ["a"], 9)):
        work()
        (connection,) = store._pool._idle
        seen = connection.execute(f"SELECT {store._schema}.asking(), count(*) FROM {store._schema}.turns").fetchone()
        assert seen == (None, 0)


def test_turns_of_a_part_of_a_forked_path_are_those_that_begin_there(store: Postgres) -> None:
    made = talk(store)
    for number in range(3):
        made.say(f"a{number}", f"b{number}")
    # Fork in the middle of a turn.
    made.write("fork", source=(MAIN, 3))
    head = made.head("fork")
    made.write(
        "fork",
        expect=head.revision,
        entries=link_entries(head.entry, made.entries()[2].turn, 7, [make_message("late")]),
    )
    made.say("c", "d", branch="fork")
    turns = [entry.turn for entry in made.entries("fork")]
    assert turns[2] == turns[3]

    def begun(start: int, stop: int) -> list[tuple[int, str]]:
        return [(place, turn.id) for place, turn in store.turns(ME, "talk", "fork", start, stop)]

    every = [(0, turns[0]), (2, turns[2]), (4, turns[4])]
    for start in range(-1, 7):
        for stop in range(start, 8):
            assert begun(start, stop) == [each for each in every if start <= each[0] < stop]


def test_a_long_conversation_among_many_short_ones_is_read_by_its_index(store: Postgres) -> None:
    """A plan for conversations of average length would scan the whole conversation for each of its turns."""
    made, turns = talk(store), 200
    for number in range(turns):
        made.say(f"a{number}", "b")
    with server().asking() as connection:
        for statement in (
            "INSERT INTO {s}.conversations (owner, name, created, updated, entries, meta)"
            " SELECT 'me', 'short ' || i, i, i, 1, '{}' FROM generate_series(1, 5000) i",
            "INSERT INTO {s}.segments (owner, conversation, base, indexed)"
            " SELECT 'me', id, 0, 0 FROM {s}.conversations WHERE name <> 'talk'",
            "INSERT INTO {s}.entries (segment, place, owner, conversation, turn, number, kind, role, wire, at, mark,"
            " bound, tokens, crc, native)"
            " SELECT s.id, i, 'me', s.conversation, 't', i, '', '', '', 1, '', '', 1, 0, '{}'"
            " FROM {s}.segments s JOIN {s}.conversations c ON c.id = s.conversation AND c.name <> 'talk',"
            " generate_series(0, 1) i",
            "INSERT INTO {s}.turns (owner, conversation, name, status, model, started, ended, finish, preamble, error,"
            " usage, calls, input, output, cached, written)"
            " SELECT 'me', id, 't', 'complete', '', 1, 1, '', '', '', '{}', 0, 0, 0, 0, 0 FROM {s}.conversations",
            "ANALYZE {s}.conversations, {s}.turns, {s}.entries, {s}.segments, {s}.branches",
        ):
            connection.execute(statement.replace("{s}", get_schema(store)))
    with server().asking("app") as connection:
        # PostgreSQL switches to a generic plan after some calls.
        connection.execute("SET plan_cache_mode = force_generic_plan")
        for function in ("turns", "manifests"):
            asked = f"SELECT * FROM {get_schema(store)}.{function}('{ME}', 'talk', 'main', 0, 9999)"
            ((told,),) = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {asked}").fetchall()
            plan = told[0]["Plan"]
            assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 20 * turns, function


def test_what_was_planned_while_tables_were_empty_goes_by_an_index_too(store: Postgres) -> None:
    for number in range(40):
        made = talk(store, f"talk {number}")
        made.say("a", "b", request=KeyedRequest("key", "body"))
        assert len(store.keyed_turns(ME, f"talk {number}")) == 1
        assert len(store.turns(ME, f"talk {number}", MAIN, 0, 9)) == 1
        assert store.verify(ME, f"talk {number}") == []
    store.close()
    with server().asking() as connection:
        # The statistics of a session appear shortly after it ends.
        read = "SELECT coalesce(sum(seq_tup_read), 0), sum(idx_scan) FROM pg_stat_user_tables WHERE schemaname = %s"
        looked = 0
        while not looked:
            ((through, looked),) = connection.execute(read, (get_schema(store).strip('"'),)).fetchall()
            connection.execute("SELECT pg_stat_clear_snapshot()")
    assert through == 0


def test_a_child_leaves_the_connections_to_its_parent(store: Postgres) -> None:
    made = talk(store)
    made.say("a")
    pid = os.fork()
    if not pid:
        try:
            made.say("of the child")
            store.close()
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    before = {id(connection) for connection in store._pool._all}
    made.say("b")
    assert made.texts() == ["a", "of the child", "b"]
    assert {id(connection) for connection in store._pool._all} == before


def test_a_commit_whose_answer_got_lost_is_there_once() -> None:
    with Proxy(server().folder) as proxy, closing(Postgres(proxy.url, schema=server().schema())) as store:
        made = talk(store)
        made.say("a", "b")
        for number in range(3):
            proxy.lose_answer()
            head = made.write(**made.make_turn(made.find_parent(), f"c{number}"), expect=1 + number)
            assert (head.revision, head.size) == (2 + number, 3 + number)
        assert proxy.lost == 3
        assert made.texts() == ["a", "b", "c0", "c1", "c2"]
        # A commit without entries is retried as well.
        proxy.lose_answer()
        note = made.make_record("brief", "once", 0)
        assert made.write(expect=4, records=(note,)).revision == 5
        assert made.list_head_records() == [("once", 0)]


def test_a_commit_with_a_lost_answer_is_reported_unchanged_after_a_later_commit() -> None:
    with Proxy(server().folder) as proxy, closing(Postgres(proxy.url, schema=server().schema())) as store:
        made = talk(store)
        made.say("a", "b")
        fields = made.make_turn(made.find_parent(), "mine", "too")
        with closing(Postgres(server().url(), schema=get_schema(store))) as other:
            proxy.lose_answer(then=lambda: talk(other).say("theirs"))
            head = made.write(**fields, expect=1)
        assert (head.revision, head.size, head.entry) == (2, 4, fields["entries"][-1].id)
        assert made.texts() == ["a", "b", "mine", "too", "theirs"]
        with pytest.raises(HeadMoved):
            made.write(expect=head.revision)


def test_a_commit_that_never_arrived_is_made() -> None:
    with Proxy(server().folder) as proxy, closing(Postgres(proxy.url, schema=server().schema())) as store:
        made = talk(store)
        made.say("a", "b")
        proxy.lose_request()
        assert made.write(**made.make_turn(made.find_parent(), "c"), expect=1).revision == 2
        proxy.lose_request()
        assert made.texts() == ["a", "b", "c"]
        assert proxy.lost == 2


def test_a_removal_whose_end_got_lost_is_told() -> None:
    with Proxy(server().folder) as proxy, closing(Postgres(proxy.url, schema=server().schema())) as store:
        talk(store).say("a", "b")
        # Three round trips: begin, delete, commit.
        proxy.lose_answer(after=2)
        receipt = store.delete(ME, "talk")
        assert proxy.lost == 1
        assert receipt is not None
        assert (receipt.entries, receipt.turns) == (2, 1)
        assert store.delete(ME, "talk") is None


def test_a_removal_whose_end_got_lost_leaves_what_began_meanwhile() -> None:
    with Proxy(server().folder) as proxy, closing(Postgres(proxy.url, schema=server().schema())) as store:
        talk(store).say("a", "b")
        with closing(Postgres(server().url(), schema=get_schema(store))) as other:
            proxy.lose_answer(after=2, then=lambda: talk(other).say("of another writer"))
            receipt = store.delete(ME, "talk")
        assert receipt is not None
        assert receipt.entries == 2
        assert talk(store).texts() == ["of another writer"]


def test_a_removal_that_never_ended_is_made() -> None:
    with Proxy(server().folder) as proxy, closing(Postgres(proxy.url, schema=server().schema())) as store:
        talk(store).say("a", "b")
        # The client gets the answer to the delete, and then loses the connection.
        proxy.lose_answer(after=1)
        receipt = store.delete(ME, "talk")
        assert proxy.lost == 1
        assert receipt is not None
        assert receipt.entries == 2
        assert store.head(ME, "talk") is None


def test_a_server_that_stays_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_pool, "PATIENCE", 0.05)
    proxy = Proxy(server().folder)
    with proxy:
        store = Postgres(proxy.url, schema=server().schema())
        talk(store).say("a")
    with pytest.raises(StoreError, match="unavailable"):
        store.head(ME, "talk")
    monkeypatch.setattr(postgres_pool, "PATIENCE", 600)
    monkeypatch.setattr(postgres, "_RENEW_PATIENCE", 0.05)
    # Renewing a lease fails sooner than other calls.
    with pytest.raises(StoreError, match="unavailable"):
        store.renew(ME, "talk", MAIN, 1, 2)
    store.close()


# A server that restarts


def test_a_server_that_restarts_in_the_middle_of_a_turn_is_waited_for(store: Postgres) -> None:
    class Model(Scripted):
        def send(self, body: bytes) -> bytes:
            server().restart()
            return super().send(body)

    model = Model(says("one"), says("two"))
    made = Conversation("talk", model=model, store=store)
    assert [made.send("first").text, made.send("second").text] == ["one", "two"]
    assert [turn.status for _, turn in store.turns("", "talk", MAIN, 0, 9)] == ["complete"] * 2
    assert store.head("", "talk") == made._stored.store.head("", "talk")
    assert [entry.role for entry in store.read("", "talk", MAIN, 0, 9).entries()] == ["user", "assistant"] * 2


def test_under_load_a_restart_loses_nothing_and_doubles_nothing(store: Postgres) -> None:
    told: list[tuple[int, str]] = []
    problems: list[BaseException] = []
    restarts = 4
    done = threading.Event()

    def write(number: int) -> None:
        made = talk(store, f"talk {number % 3}")
        count = 0
        try:
            while not done.is_set() or count < 10:
                head = store.head(ME, made.id)
                fields = made.make_turn(head.entry if head else None, f"{number}/{count}", "answer")
                try:
                    made.write(**fields, expect=head.revision if head else 0)
                except HeadMoved:
                    continue
                told.append((number % 3, f"{number}/{count}"))
                count += 1
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for number in range(restarts):
        while len(told) < 40 * (number + 1) and not problems:
            done.wait(0.005)
        server().restart()
    done.set()
    for thread in threads:
        thread.join()
    assert problems == []
    for number in range(3):
        said = talk(store, f"talk {number}").texts()[::2]
        assert sorted(said) == sorted(text for where, text in told if where == number)
        for each in range(number, 6, 3):
            counted = [int(text.partition("/")[2]) for text in said if text.startswith(f"{each}/")]
            assert all(after == before + 1 for before, after in pairwise(counted))
        assert store.verify(ME, f"talk {number}") == []


# People


def counts(store: Postgres, policy: Any, turns: int) -> Conversation:
    model = Scripted(*[says(f"answer {number} " + "word " * 60) for number in range(turns)])
    made = Conversation("talk", model=model, store=store, policy=policy)
    for number in range(turns):
        made.send(f"question {number} " + "more " * 40)
    return made


@pytest.mark.parametrize("policy", [KeepLast(2), KeepLast(4)], ids=str)
def test_the_view_of_metrics_tells_what_an_archive_does(store: Postgres, policy: Any) -> None:
    counts(store, policy, 12)
    columns = "turn, at, model, status, calls, total, history, summary, brief, outline, recall, left_out"
    found = rows(
        store, f"SELECT {columns}, input, output, cached, written, cost FROM {{s}}.metrics ORDER BY at, turn", ""
    )
    wanted = [
        (*[getattr(each, name) for name in columns.split(", ")], *msgspec.structs.astuple(each.usage)[:4], each.cost)
        for each in Archive(store).metrics("talk")
    ]
    assert len(found) == 12
    assert sorted(found) == sorted(wanted)
    assert max(each.left_out for each in Archive(store).metrics("talk")) > 0


def test_tokens_are_unknown_where_none_were_reported(store: Postgres) -> None:
    said = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello!"}]
    Archive(store, owner=ME).import_conversations(json.dumps(said).encode(), id="talk")
    told = "SELECT calls, input, output, cached, written, cost FROM {s}."
    assert rows(store, told + "turns") == rows(store, told + "metrics") == [(0, None, None, None, None, None)]
    model = Scripted(says("And so on.", usage={"prompt_tokens": 12, "completion_tokens": 3}))
    Conversation("talk", model=model, store=store, owner=ME).send("And?")
    assert rows(store, told + "turns WHERE calls > 0") == [(1, 12, 3, 0, 0, None)]


def test_metrics_of_a_long_manifest_count_what_its_epoch_says(store: Postgres) -> None:
    made = talk(store)
    made.say(*["x"] * 20)
    early = (Run(0, 9, "left_out", "old", 50), Run(10, 14, "sent", "kept", 70), Run(15, 19, "recalled", "kept", 9))
    epoch = Record("epoch", "", 1, msgspec.json.encode(Epoch(policy="p", start=18, runs=early)))
    fields = made.make_turn(made.find_parent(), "y", "z")
    runs = ((15, 17, 30), (18, 21, 40, "held"), (22, 22, 5, "recalled"))
    kept = StoredManifest(tokens=300, epoch=18, runs=runs, cost=0.5)
    made.write(**fields, manifest=msgspec.json.encode(kept), records=(PlacedRecord(epoch, 19),))
    (wanted,) = [each for each in Archive(store, owner=ME).metrics("talk") if each.total]
    assert (wanted.history, wanted.left_out) == (140, 50)
    found = rows(store, "SELECT total, history, left_out, cost FROM {s}.metrics WHERE total > 0")
    assert found == [(300, 140, 50, 0.5)]


def test_the_brief_of_each_branch_is_in_a_view(store: Postgres) -> None:
    made = Conversation("talk", model=Scripted(says("fine"), says("so")), store=store, policy=Memory())
    made.send("hello", brief={"goal": "See Lisbon", "facts": ["Ann is 12"]})
    fork = made.fork(name="fork")
    fork.brief.add("facts", "She has a dog")
    talk(store, "without", owner="").say("a")
    told = {
        branch: [line["text"] for line in brief]
        for conversation, branch, brief in rows(store, "SELECT conversation, branch, brief FROM {s}.briefs", "\x01")
        if conversation == "talk"
    }
    assert told == {"main": ["See Lisbon", "Ann is 12"], "fork": ["See Lisbon", "Ann is 12", "She has a dog"]}
    (short,), (long,) = rows(store, "SELECT tokens FROM {s}.briefs ORDER BY branch DESC", "\x01")
    assert 5 < short < long < 40
    assert len(rows(store, "SELECT 1 FROM {s}.briefs", "\x01")) == 2


def test_how_a_conversation_began_is_what_its_main_branch_says(store: Postgres) -> None:
    page = Path(__file__).parents[3] / "docs" / "stores.md"
    (query,) = (block for block in page.read_text().split("```") if "AS began" in block)
    query = query.removeprefix("sql").replace("longtalk.", "{s}.")
    made = talk(store)
    made.say("how it began", "b")
    made.say("another", branch="side", source=(MAIN, 2))
    made.say("what was meant", cut=0)
    made.say("goes on")
    assert [row[-1] for row in rows(store, query)] == ["what was meant"]
    talk(store, "empty").write()
    made.write(cut=0)
    assert [row[-1] for row in rows(store, query)] == [None]


def test_json_that_postgresql_can_hold_can_be_looked_into(store: Postgres) -> None:
    talk(store).say("a", meta={"lesson": 3, "nought": "\0"})
    talk(store, "other").say("a", meta={"half": "\ud800"})
    found = rows(
        store, "SELECT {s}.json(meta) ->> 'lesson', {s}.json(meta) ->> 'nought' FROM {s}.conversations ORDER BY name"
    )
    assert found == [(None, None), ("3", "\ufffd")]
