"""The schema of a store in PostgreSQL, as SQL: tables that people may query, and functions that do what a turn needs.

Entries lie in segments: what one branch added since it began. A place is the number of entries before it on the path,
so a segment that begins behind 40 entries holds the places from 40 on. Every entry is a row.

What providers and apps said as JSON is `bytea`, never `jsonb`: that would change numbers, order and escapes, and refuse
some of it. Times are milliseconds since 1970, `moment` makes a date of one. Each row names its owner, and a policy on
each table shows and takes only rows of the owner in the setting `longtalk.owner`, which every call sets for its own
transaction. Names are compared by their bytes. PostgreSQL has no text with a nought in it: see `postgres_rows.text_in`.

What a store does is a function each, which names the owner first: one trip, and a transaction of its own, so that a
pool on the way may send each by another connection. One that changes something locks the conversation's row first, so
that all who change it come one after the other. What is wrong with a commit is raised, with a code of those below. A
branch that is elsewhere is no error: the outcome says so, and nothing was changed.

The files in `postgres_sql` begin with the number of their migration, and the table `migrations` says which a schema has
seen. What was released is never changed: a function that has to differ is in a file of the next migration.
"""

from __future__ import annotations

from importlib.resources import files

NO_SENSE, TAKEN, DAMAGED = "LT422", "LT409", "LT500"
"""A commit that makes no sense, a key that another turn has, rows that are missing."""
VERSION = 2
"""The newest migration."""


def migration(number: int, schema: str) -> str:
    """The statements of a migration, given the schema as it is written there."""
    folder = files("longtalk.stores").joinpath("postgres_sql")
    names = sorted(file.name for file in folder.iterdir() if file.name.startswith(f"{number}-"))
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names).replace("{s}", schema)
