"""Conversations in PostgreSQL, for many processes on many machines.

All lies in tables of one schema that people may query (`postgres_schema.py`). What a
method needs is a function there, so that most take one trip: where the branch stands, some of its entries, a commit, a
lease that is renewed, a list. A search may first have to make something ready.
Rows belong to their owner, also for who asks the database by other means, unless that is a superuser.

    store = Postgres("postgresql://app@db.example.com/app")
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from longtalk.errors import InputError, StoreError
from longtalk.pack import Entry, Pack, checksum
from longtalk.stores.base import (
    MAIN,
    Asked,
    Commit,
    Head,
    Hit,
    Holding,
    KeyTaken,
    Moved,
    Placed,
    Receipt,
    Request,
    Sought,
    Summary,
    has,
)
from longtalk.stores.postgres_opening import ready
from longtalk.stores.postgres_pool import Pool
from longtalk.stores.postgres_rows import (
    FARTHEST,
    arguments,
    head_of,
    pack_of,
    placed_of,
    text_in,
    text_out,
    turn_of,
    within,
)
from longtalk.stores.postgres_schema import DAMAGED, NO_SENSE, TAKEN
from longtalk.stores.postgres_search import asking, freshen, hits, queries
from longtalk.stores.postgres_verify import problems
from longtalk.stores.rows import meta_in, meta_out
from longtalk.transcript import Turn, now

if TYPE_CHECKING:
    from longtalk.stores.postgres_pool import Connection

__all__ = ["Postgres", "StoreError"]

_LATEST = 2**62
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_SOON = 2.0
"""Seconds in which a server has to be back for a lease that is renewed."""
_PAGE = 200
"""Conversations that are looked at together, where some are sought."""
_ARGUMENTS = ", ".join([*["%s"] * 15, *["%b"] * 10, *["%s"] * 4, *["%b"] * 6])
"""Of the function `write`: those that are lists go as they are, not as text."""
T = TypeVar("T")


class Postgres:
    """A store in the schema of a database, which is made where there is none. The server is PostgreSQL 15 or newer.

    `connections` is how many there are at most; who comes when all are taken waits for one. With `make=False` the
    schema has to be there.
    """

    def __init__(self, url: str, *, schema: str = "longtalk", connections: int = 10, make: bool = True) -> None:
        if connections < 1:
            raise InputError("A store needs at least one connection.")
        self._pool = Pool(url, connections)
        try:
            self._schema = ready(self._pool, schema, make=make)
        except BaseException:
            self._pool.close()
            raise
        self._write = f"SELECT * FROM {self._schema}.write({_ARGUMENTS})"  # noqa: S608

    def __repr__(self) -> str:
        return f"Postgres({str(self._pool)!r}, schema={self._schema})"

    # Reading

    def head(self, owner: str, conversation: str, branch: str = MAIN) -> Head | None:
        (row,) = self._call("head", owner, conversation, branch)
        return self._made(head_of, row)

    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        return pack_of(self._call("read", owner, conversation, branch, start, stop))

    def pick(self, owner: str, conversation: str, branch: str, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        found: list[list[tuple[Any, ...]]] = [[] for _ in ranges]
        if ranges:
            limits = map(list, zip(*ranges, strict=True))
            for number, *row in self._call("pick", owner, conversation, branch, *limits):
                found[number - 1].append(tuple(row))
        return [pack_of(rows).entries() for rows in found]

    def turns(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> list[tuple[int, Turn]]:
        rows = self._call("turns", owner, conversation, branch, start, stop)
        return [(place, turn_of(turn)) for place, *turn in rows]

    def manifest(self, owner: str, conversation: str, turn: str) -> bytes:
        return self._call("manifest", owner, conversation, turn)[0][0] or b""

    def manifests(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[str, bytes]:
        rows = self._call("manifests", owner, conversation, branch, start, stop)
        return {text_out(name): manifest for name, manifest in rows}

    def records(self, owner: str, conversation: str, branch: str, kind: str | None = None) -> list[Placed]:
        return [placed_of(*row) for row in self._call("records", owner, conversation, branch, kind)]

    def metas(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        rows = self._call("metas", owner, conversation, branch, start, stop)
        return {place: self._made(meta_out, meta) for place, meta in rows}

    def asked(self, owner: str, conversation: str, key: str) -> Asked | None:
        found = self._requests(owner, conversation, key)
        return found[0] if found else None

    def requests(self, owner: str, conversation: str) -> list[Asked]:
        return self._requests(owner, conversation, None)

    def _requests(self, owner: str, conversation: str, key: str | None) -> list[Asked]:
        return [
            Asked(Request(text_out(name), text_out(body)), text_out(branch), turn_of(turn), place)
            for name, body, branch, place, *turn in self._call("requests", owner, conversation, key)
        ]

    def branches(self, owner: str, conversation: str) -> list[Head]:
        heads = [self._made(head_of, row) for row in self._call("branches", owner, conversation)]
        return [head for head in heads if head is not None]

    def summary(self, owner: str, conversation: str) -> Summary | None:
        rows = self._call("summary", owner, conversation)
        return self._summary(rows[0]) if rows else None

    def conversations(
        self,
        owner: str,
        *,
        limit: int = 50,
        after: tuple[int, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> list[Summary]:
        wanted = meta_out(meta_in(meta or {}))
        at, name = after or (_LATEST, "")
        found: list[Summary] = []
        page = max(0, limit) if not wanted else _PAGE
        while len(found) < limit:
            listed = [self._summary(row) for row in self._call("conversations", owner, at, name, page)]
            found += [each for each in listed if has(each.meta, wanted)]
            if len(listed) < page:
                break
            at, name = listed[-1].updated, listed[-1].id
        return found[: max(0, limit)]

    def _summary(self, row: Sequence[Any]) -> Summary:
        name, created, updated, entries, meta, branches = row
        return Summary(
            id=text_out(name),
            created=created,
            updated=updated,
            entries=entries,
            branches=tuple(map(text_out, branches)),
            meta=self._made(meta_out, meta),
        )

    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[Hit]:
        self._freshen(owner, conversation)
        asked = asking(owner, terms)
        return hits(self._call("candidates", owner, conversation, *asked, limit)) if asked and limit > 0 else []

    def holding(self, owner: str, conversation: str, branch: str, sought: Sequence[Sought], most: int) -> list[Holding]:
        numbers, asked, forms = queries(sought)
        few = max(0, min(most, FARTHEST))
        found = [Holding() for _ in sought]
        if asked:
            self._freshen(owner, conversation)
            for number, places, count in self._call("holding", owner, conversation, branch, asked, forms, few):
                found[numbers[number - 1]] = Holding(tuple(reversed(places)), count)
        return found

    def _freshen(self, owner: str, conversation: str | None) -> None:
        """Make all ready for search, in parts, so that nobody who writes waits for all of it."""
        while self._pool.run(lambda connection: freshen(connection, self._schema, owner, conversation)):
            pass

    # Writing

    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        # By this the server knows it again, if it has to be asked twice.
        stamp = random.getrandbits(62)

        def work(connection: Connection) -> Any:
            values = arguments(owner, conversation, commit, stamp)
            return connection.execute(self._write, values, binary=True).fetchone()

        row = self._run(work)
        head = self._made(head_of, row)
        if row[0] == "moved" or head is None:
            raise Moved(head)
        return head

    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        # Who renews leases has others to renew, and comes again.
        return self._is_done("renew", owner, conversation, branch, token, until, patience=_SOON)

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        data, where = meta_in(meta), (None, None) if entry is None else _parts(entry)
        return where is not None and self._is_done("describe", owner, conversation, *where, data)

    def delete(self, owner: str, conversation: str) -> Receipt | None:
        first: list[tuple[Any, ...]] = []

        def work(connection: Connection) -> list[tuple[Any, ...]]:
            # What was removed is told before it is: the end of it may get lost.
            with connection.transaction():
                statement = f"SELECT * FROM {self._schema}.remove(%s, %s, %s)"  # noqa: S608
                # Once more, only the same one: by now another may have its name.
                values = text_in(owner), text_in(conversation), first[0][0] if first else None
                first[:] = connection.execute(statement, values, binary=True).fetchall() or first
            return first

        for _, entries, turns, records, branches in self._run(work):
            return Receipt(
                conversation=conversation, entries=entries, turns=turns, records=records, branches=branches, at=now()
            )
        return None

    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        where = _parts(entry)
        return where is not None and self._is_done("redact", owner, conversation, *where, native, checksum(native))

    def verify(self, owner: str, conversation: str) -> list[str]:
        return problems(self._call("kept", owner, conversation))

    def close(self) -> None:
        self._pool.close()

    # Asking the server

    def _run(self, work: Callable[[Connection], T], *, patience: float | None = None) -> T:
        def checked(connection: Connection) -> T:
            try:
                return work(connection)
            except connection.Error as problem:
                if problem.sqlstate == NO_SENSE:
                    raise ValueError(problem.diag.message_primary) from None
                if problem.sqlstate == TAKEN:
                    raise KeyTaken(problem.diag.message_primary) from None
                if problem.sqlstate == DAMAGED:
                    raise self._damaged(problem.diag.message_primary) from None
                raise

        return self._pool.run(checked, patience=patience)

    def _call(self, function: str, *values: Any, patience: float | None = None) -> list[tuple[Any, ...]]:
        """The rows of a function, in one trip."""
        statement = f"SELECT * FROM {self._schema}.{function}({', '.join(['%s'] * len(values))})"  # noqa: S608
        stored = list(map(_sent, values))
        return self._run(
            lambda connection: connection.execute(statement, stored, binary=True).fetchall(), patience=patience
        )

    def _is_done(self, function: str, *values: Any, patience: float | None = None) -> bool:
        return bool(self._call(function, *values, patience=patience)[0][0])

    def _made(self, make: Callable[[Any], T], data: Any) -> T:
        """A value of what was read."""
        try:
            return make(data)
        except ValueError as problem:
            raise self._damaged(str(problem)) from None

    def _damaged(self, what: str | None) -> StoreError:
        return StoreError(f"The database {self._pool!r} is damaged: restore it from a backup ({what}).")


def _sent(value: Any) -> Any:
    """An argument of a function that changes no numbers."""
    if isinstance(value, str):
        return text_in(value)
    if isinstance(value, int):
        return within(value)
    if isinstance(value, list) and value and isinstance(value[0], int):
        return list(map(within, value))
    return value


def _parts(entry: str) -> tuple[str, int] | None:
    """The turn of an entry and its number; None if it can't be the id of one."""
    turn, _, number = entry.rpartition("-")
    return (turn, int(number)) if _NUMBER.fullmatch(number) else None
