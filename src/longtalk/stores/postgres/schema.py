"""The schema of a PostgreSQL store: tables that people may query, and SQL functions for the methods of the store.

Every entry is a row and belongs to a segment: the entries that one branch has added since it was created or cut. An
entry's position is the number of entries before it on the path, so a segment that starts after 40 entries holds the
positions from 40 on.

JSON from providers and apps is stored as `bytea`, never as `jsonb`, which changes numbers, order and escapes, and
rejects some JSON. Times are milliseconds since 1970; the SQL function `moment` converts a time to a date. Each row
names its owner, and a policy on each table limits reads and writes to the owner in the setting `longtalk.owner`, which
every call sets for its own transaction. Names are compared by their bytes. PostgreSQL can't store NUL characters in a
text; `rows.escape_text` escapes them.

Each method of the store calls a function whose first argument is the owner. A call is one round trip and one
transaction, so a pooler may send each call through another connection. A function that changes something locks the row
of the conversation first, so changes to a conversation are made one after the other. An invalid commit raises an error
with one of the codes below. If the branch is not at the revision that the commit expects, there is no SQL error:
nothing is changed, and the result says so.

The names of the files in `sql` begin with the number of their migration, and the table `migrations` lists the
migrations that were applied to a schema. The SQL of a released file never changes, except in its comments: a new
version of a function goes into a file of the next migration.
"""

from __future__ import annotations

from importlib.resources import files

INVALID, KEY_TAKEN, DAMAGED = "LT422", "LT409", "LT500"
"""SQL error codes: an invalid commit, a request key that belongs to another turn, and missing rows."""
CLEARER_MESSAGES = {
    "a branch can't begin where there is nothing": "can't fork there: the source branch doesn't have that many entries",
    "a branch that is there has its source": "the branch already exists, so the commit can't have a source",
    "a path can't be cut behind its end": "can't cut a path to more entries than it has",
    "a record can't hold up to an entry that is not there": "a record's position is not on the path",
}
"""Better wordings of error messages in the first migration, whose SQL must not change."""
VERSION = 12
"""The number of the newest migration."""


def read_migration(number: int, schema: str) -> str:
    """Return the SQL statements of a migration. `schema` is the schema's name, quoted for SQL."""
    folder = files("longtalk.stores.postgres").joinpath("sql")
    names = sorted(file.name for file in folder.iterdir() if file.name.startswith(f"{number}-"))
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names).replace("{s}", schema)
