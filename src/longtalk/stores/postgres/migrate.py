"""Creation and migration of the schema of a PostgreSQL store.

Every process that opens a store checks the schema. A lock on the server lets only one process migrate at a time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from longtalk.errors import InputError
from longtalk.stores.postgres.rows import read_text
from longtalk.stores.postgres.schema import VERSION, read_migration
from longtalk.transcript.pack import Entry

if TYPE_CHECKING:
    from longtalk.stores.postgres.pool import Connection, Pool

MIN_SERVER_VERSION = 150000
"""The oldest supported server version, 15. Since then, views can apply the row policies of their tables."""

_MAX_WHOLE_TEXT = 300
"""The length up to which the first three versions of the schema had a text in whole, in characters."""

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('longtalk ' || %s, 0))"
_CREATE_MIGRATIONS = """
CREATE SCHEMA IF NOT EXISTS {s};
CREATE TABLE IF NOT EXISTS {s}.migrations (version int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
"""


def prepare_schema(pool: Pool, schema: str, *, make: bool) -> str:
    """Create or migrate the tables of a schema if needed. Return the schema's name, quoted for SQL.

    With `make=False`, raises `InputError` if the schema doesn't contain a store.
    """
    if not re.fullmatch(r"[A-Za-z0-9_]{1,63}", schema):
        raise InputError(f"A schema's name must consist of 1 to 63 letters, digits or underscores, not {schema!r}.")
    quoted = f'"{schema}"'
    version = pool.run(lambda connection: _read_version(connection, quoted))
    if not version and not make:
        raise InputError(f"No store found in schema {quoted} of the database {pool!r}. Choose another schema.")
    if version < VERSION:
        pool.run(lambda connection: _migrate(connection, schema, quoted))
    return quoted


def _read_version(connection: Connection, quoted: str) -> int:
    """Return the number of the last migration that was applied to a schema, or 0 if the schema contains no store.

    Raises `InputError` if the server's version or encoding isn't supported, or if a newer version of Longtalk migrated
    the schema.
    """
    version, encoding, known = connection.execute(
        "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), to_regclass(%s)",
        (f"{quoted}.migrations",),
    ).fetchone() or (0, "", None)
    if version < MIN_SERVER_VERSION:
        raise InputError(f"PostgreSQL {version // 10000} is too old for Longtalk: upgrade the server to 15 or newer.")
    if encoding != "UTF8":
        raise InputError(f"The database has the encoding {encoding}: use a database with the encoding UTF8.")
    if known is None:
        return 0
    (applied,) = connection.execute(f"SELECT coalesce(max(version), 0) FROM {quoted}.migrations").fetchone() or (0,)  # noqa: S608
    if applied > VERSION:
        raise InputError(
            f"Schema {quoted} was written by a newer version of Longtalk: its schema version is {applied}, but "
            f"this version supports at most {VERSION}. Upgrade Longtalk to open it."
        )
    return int(applied)


def _migrate(connection: Connection, schema: str, quoted: str) -> None:
    """Apply the migrations that a schema lacks, while no other process migrates it."""
    with connection.transaction():
        connection.execute(_LOCK, (schema,))
        connection.execute(_CREATE_MIGRATIONS.format(s=quoted).encode())
        for number in range(_read_version(connection, quoted) + 1, VERSION + 1):
            connection.execute(read_migration(number, quoted).encode())
            if number == 4:
                _replace_texts(connection, quoted)
            connection.execute(f"INSERT INTO {quoted}.migrations (version) VALUES (%s)", (number,))  # noqa: S608


def _replace_texts(connection: Connection, quoted: str) -> None:
    """Restore the full texts of entries that an earlier version stored shortened."""
    # The policies would hide the rows of other owners.
    connection.execute(f"ALTER TABLE {quoted}.entries NO FORCE ROW LEVEL SECURITY")
    after = (0, -1)
    while rows := connection.execute(
        f"SELECT segment, place, kind, role, wire, native FROM {quoted}.entries"  # noqa: S608
        " WHERE (segment, place) > (%s, %s) AND text IS NOT NULL AND octet_length(native) > %s"
        " ORDER BY segment, place LIMIT 500",
        (*after, _MAX_WHOLE_TEXT),
    ).fetchall():
        after = rows[-1][:2]
        texts = [
            read_text(Entry(kind=kind, role=role, wire=wire, at=0, native=native))
            for _, _, kind, role, wire, native in rows
        ]
        connection.execute(
            f"UPDATE {quoted}.entries x SET text = y.text"  # noqa: S608
            " FROM unnest(%s::bigint[], %s::int[], %s::text[]) y (segment, place, text)"
            " WHERE (x.segment, x.place) = (y.segment, y.place)",
            ([row[0] for row in rows], [row[1] for row in rows], texts),
        )
    connection.execute(f"ALTER TABLE {quoted}.entries FORCE ROW LEVEL SECURITY")
