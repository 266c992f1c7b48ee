"""The PostgreSQL store: conversations in a database, for many processes on many machines.

All data is in the tables of one schema, which people may query (see `schema.py`). Most methods call one SQL function in
the schema, in one round trip. A search may have to index new entries first. Row policies keep owners apart for every
database user except superusers.

    store = Postgres("postgresql://app@db.example.com/app")
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from longtalk.errors import CorruptStore, InputError, StoreError
from longtalk.memory.recall.protocol import Matches, SearchTerm
from longtalk.stores._closing import ClosedOnExit
from longtalk.stores._rows import meta_from_json, to_ascii_json
from longtalk.stores.base import (
    MAIN,
    BranchHead,
    Commit,
    ConversationInfo,
    DeletionReceipt,
    HeadMoved,
    KeyedRequest,
    KeyedTurn,
    PlacedRecord,
    RequestKeyTaken,
    SearchHit,
)
from longtalk.stores.checks import meta_matches
from longtalk.stores.postgres.migrate import prepare_schema
from longtalk.stores.postgres.pool import Pool
from longtalk.stores.postgres.rows import (
    MAX_POSITION,
    clamp,
    escape_text,
    parse_head,
    parse_pack,
    parse_record,
    parse_turn,
    to_write_arguments,
    unescape_text,
)
from longtalk.stores.postgres.schema import CLEARER_MESSAGES, DAMAGED, INVALID, KEY_TAKEN
from longtalk.stores.postgres.search import index_batch, make_candidate_query, make_match_queries, parse_hits
from longtalk.stores.postgres.verify import find_problems
from longtalk.transcript.pack import Entry, Pack, checksum
from longtalk.transcript.transcript import Turn, now

if TYPE_CHECKING:
    from longtalk.stores.postgres.pool import Connection

__all__ = ["Postgres", "StoreError"]

_LATEST = 2**62
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_RENEW_PATIENCE = 2.0
"""Seconds during which renewing a lease is retried while the server is unavailable."""
_PAGE = 200
"""How many conversations are read at once if the caller filters them by metadata."""
_WRITE_PLACEHOLDERS = ", ".join([*["%s"] * 15, *["%b"] * 10, *["%s"] * 4, *["%b"] * 6])
"""The placeholders for the arguments of the SQL function `write`. Lists are sent in binary form."""
T = TypeVar("T")


class Postgres(ClosedOnExit):
    """A store in a schema of a PostgreSQL database, version 15 or newer.

    The schema is created if it doesn't exist, unless `make=False`. At most `connections` connections are open at a
    time; when all of them are in use, a call waits for one.
    """

    def __init__(self, url: str, *, schema: str = "longtalk", connections: int = 10, make: bool = True) -> None:
        if connections < 1:
            raise InputError(f"connections must be at least 1, not {connections}.")
        self._pool = Pool(url, connections)
        self.parallel = connections
        try:
            self._schema = prepare_schema(self._pool, schema, make=make)
        except BaseException:
            self._pool.close()
            raise
        self._write = f"SELECT * FROM {self._schema}.write({_WRITE_PLACEHOLDERS})"  # noqa: S608

    def __repr__(self) -> str:
        return f"Postgres({str(self._pool)!r}, schema={self._schema})"

    # Reading

    def head(self, owner: str, conversation: str, branch: str = MAIN) -> BranchHead | None:
        (row,) = self._call("head", owner, conversation, branch)
        return self._decode(parse_head, row)

    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        return parse_pack(self._call("read", owner, conversation, branch, start, stop))

    def pick(self, owner: str, conversation: str, branch: str, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        found: list[list[tuple[Any, ...]]] = [[] for _ in ranges]
        if ranges:
            limits = map(list, zip(*ranges, strict=True))
            for number, *row in self._call("pick", owner, conversation, branch, *limits):
                found[number - 1].append(tuple(row))
        return [parse_pack(rows).entries() for rows in found]

    def turns(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> list[tuple[int, Turn]]:
        rows = self._call("turns", owner, conversation, branch, start, stop)
        return [(position, parse_turn(turn)) for position, *turn in rows]

    def manifest(self, owner: str, conversation: str, turn: str) -> bytes:
        return self._call("manifest", owner, conversation, turn)[0][0] or b""

    def manifests(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[str, bytes]:
        rows = self._call("manifests", owner, conversation, branch, start, stop)
        return {unescape_text(name): manifest for name, manifest in rows}

    def records(self, owner: str, conversation: str, branch: str, kind: str | None = None) -> list[PlacedRecord]:
        return [parse_record(*row) for row in self._call("records", owner, conversation, branch, kind)]

    def metas(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        rows = self._call("metas", owner, conversation, branch, start, stop)
        return {position: self._decode(meta_from_json, meta) for position, meta in rows}

    def keyed_turn(self, owner: str, conversation: str, key: str) -> KeyedTurn | None:
        found = self._read_keyed_turns(owner, conversation, key)
        return found[0] if found else None

    def keyed_turns(self, owner: str, conversation: str) -> list[KeyedTurn]:
        return self._read_keyed_turns(owner, conversation, None)

    def _read_keyed_turns(self, owner: str, conversation: str, key: str | None) -> list[KeyedTurn]:
        return [
            KeyedTurn(
                KeyedRequest(unescape_text(name), unescape_text(body)),
                unescape_text(branch),
                parse_turn(turn),
                position,
            )
            for name, body, branch, position, *turn in self._call("requests", owner, conversation, key)
        ]

    def branches(self, owner: str, conversation: str) -> list[BranchHead]:
        heads = [self._decode(parse_head, row) for row in self._call("branches", owner, conversation)]
        return [head for head in heads if head is not None]

    def heads(self, owner: str, conversations: Sequence[str], most: int) -> dict[str, list[BranchHead]]:
        found: dict[str, list[BranchHead]] = {}
        for row in self._call("heads", owner, list(map(escape_text, conversations)), most) if conversations else ():
            head = self._decode(parse_head, row)
            if head is not None:
                found.setdefault(unescape_text(row[0]), []).append(head)
        return found

    def info(self, owner: str, conversation: str) -> ConversationInfo | None:
        rows = self._call("summary", owner, conversation)
        return self._parse_info(rows[0]) if rows else None

    def conversations(
        self,
        owner: str,
        *,
        limit: int = 50,
        after: tuple[int, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> list[ConversationInfo]:
        wanted = meta_from_json(to_ascii_json(meta or {}))
        at, name = after or (_LATEST, "")
        found: list[ConversationInfo] = []
        page = max(0, limit) if not wanted else _PAGE
        while len(found) < limit:
            listed = [self._parse_info(row) for row in self._call("conversations", owner, at, name, page)]
            found += [each for each in listed if meta_matches(each.meta, wanted)]
            if len(listed) < page:
                break
            at, name = listed[-1].updated, listed[-1].id
        return found[: max(0, limit)]

    def _parse_info(self, row: Sequence[Any]) -> ConversationInfo:
        name, created, updated, entries, meta, branches = row
        return ConversationInfo(
            id=unescape_text(name),
            created=created,
            updated=updated,
            entries=entries,
            branches=tuple(map(unescape_text, branches)),
            meta=self._decode(meta_from_json, meta),
        )

    def owners(self) -> list[str]:
        return [unescape_text(name) for (name,) in self._call("owners")]

    def conversations_with(self, owner: str, kind: str) -> list[str]:
        return [unescape_text(name) for (name,) in self._call("conversations_with", owner, kind)]

    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[SearchHit]:
        self._index_new_entries(owner, conversation)
        query = make_candidate_query(owner, terms)
        if not query or limit <= 0:
            return []

        def read_entry(hit: SearchHit) -> Entry:
            return self.read(owner, hit.conversation, hit.branch, hit.position, hit.position + 1).entry(0)

        return parse_hits(self._call("candidates", owner, conversation, *query, limit), read_entry)

    def matches(
        self, owner: str, conversation: str, branch: str, terms: Sequence[SearchTerm], most: int
    ) -> list[Matches]:
        numbers, queries, forms = make_match_queries(terms)
        limit = max(0, min(most, MAX_POSITION))
        found = [Matches() for _ in terms]
        if queries:
            self._index_new_entries(owner, conversation)
            for number, positions, count in self._call("holding", owner, conversation, branch, queries, forms, limit):
                found[numbers[number - 1]] = Matches(tuple(reversed(positions)), count)
        return found

    def _index_new_entries(self, owner: str, conversation: str | None) -> None:
        """Index all new entries, in batches, so that no writer has to wait for the whole index."""
        while self._pool.run(lambda connection: index_batch(connection, self._schema, owner, conversation)):
            pass

    # Writing

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        # The server recognizes the commit by its stamp if it is sent twice.
        stamp = random.getrandbits(62)

        def work(connection: Connection) -> Any:
            values = to_write_arguments(owner, conversation, commit, stamp)
            return connection.execute(self._write, values, binary=True).fetchone()

        row = self._run(work)
        head = self._decode(parse_head, row)
        if row[0] == "moved" or head is None:
            raise HeadMoved(head)
        return head

    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        # Don't wait long: the caller has other leases to renew, and tries again later.
        return self._call_predicate("renew", owner, conversation, branch, token, until, patience=_RENEW_PATIENCE)

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        data, parts = to_ascii_json(meta), (None, None) if entry is None else _split_entry_id(entry)
        return parts is not None and self._call_predicate("describe", owner, conversation, *parts, data)

    def delete(self, owner: str, conversation: str) -> DeletionReceipt | None:
        first: list[tuple[Any, ...]] = []

        def work(connection: Connection) -> list[tuple[Any, ...]]:
            # Fetch the counts before the transaction ends, since the reply to its end may be lost.
            with connection.transaction():
                statement = f"SELECT * FROM {self._schema}.remove(%s, %s, %s)"  # noqa: S608
                # On a retry remove only the same conversation: a new one may have its id by now.
                values = escape_text(owner), escape_text(conversation), first[0][0] if first else None
                first[:] = connection.execute(statement, values, binary=True).fetchall() or first
            return first

        for _, entries, turns, records, branches in self._run(work):
            return DeletionReceipt(
                conversation=conversation, entries=entries, turns=turns, records=records, branches=branches, at=now()
            )
        return None

    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        parts = _split_entry_id(entry)
        return parts is not None and self._call_predicate(
            "redact", owner, conversation, *parts, native, checksum(native)
        )

    def verify(self, owner: str, conversation: str) -> list[str]:
        return find_problems(self._call("kept", owner, conversation))

    def close(self) -> None:
        self._pool.close()

    # Calling the server

    def _run(self, work: Callable[[Connection], T], *, patience: float | None = None) -> T:
        """Call `work` with a connection and return its result.

        Errors that SQL functions raise become `ValueError`, `RequestKeyTaken` or `StoreError`.
        """

        def translate_errors(connection: Connection) -> T:
            try:
                return work(connection)
            except connection.Error as problem:
                if problem.sqlstate == INVALID:
                    message = problem.diag.message_primary or ""
                    raise ValueError(CLEARER_MESSAGES.get(message, message)) from None
                if problem.sqlstate == KEY_TAKEN:
                    raise RequestKeyTaken(problem.diag.message_primary) from None
                if problem.sqlstate == DAMAGED:
                    raise self._damage_error(problem.diag.message_primary) from None
                raise

        return self._pool.run(translate_errors, patience=patience)

    def _call(self, function: str, *values: Any, patience: float | None = None) -> list[tuple[Any, ...]]:
        """Call a SQL function in one round trip, and return its rows."""
        statement = f"SELECT * FROM {self._schema}.{function}({', '.join(['%s'] * len(values))})"  # noqa: S608
        arguments = list(map(_to_argument, values))
        return self._run(
            lambda connection: connection.execute(statement, arguments, binary=True).fetchall(), patience=patience
        )

    def _call_predicate(self, function: str, *values: Any, patience: float | None = None) -> bool:
        return bool(self._call(function, *values, patience=patience)[0][0])

    def _decode(self, decode: Callable[[Any], T], data: Any) -> T:
        """Decode stored data with `decode`. Raise `CorruptStore` if the data can't be decoded."""
        try:
            return decode(data)
        except ValueError as problem:
            raise self._damage_error(str(problem)) from None

    def _damage_error(self, problem: str | None) -> CorruptStore:
        return CorruptStore(f"The database {self._pool!r} is damaged ({problem}). Restore it from a backup.")


def _to_argument(value: Any) -> Any:
    """Convert an argument of a SQL function: escape a text, and limit numbers to the server's range."""
    if isinstance(value, str):
        return escape_text(value)
    if isinstance(value, int):
        return clamp(value)
    if isinstance(value, list) and value and isinstance(value[0], int):
        return list(map(clamp, value))
    return value


def _split_entry_id(entry: str) -> tuple[str, int] | None:
    """Split an entry's id into the turn's id and a number. Return None if the id is invalid."""
    turn, _, number = entry.rpartition("-")
    return (turn, int(number)) if _NUMBER.fullmatch(number) else None
