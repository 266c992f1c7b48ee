"""Full-text search of a store in PostgreSQL.

What is written is made ready for search when somebody searches: a branch's row says that there may be something new on
its path, and a segment's how far it is done. The words are those that stores in memory compare (`ledger.words`), so all
find the same: without case and accents, each Chinese, Japanese and Korean character a word of its own. They are put
into a `tsvector` as they are, without positions; where a term is more than one whole word, the text decides, which the
row has too. The conversation and the owner are words there as well, with a full stop that no other word has: a search
goes through what is theirs alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from longtalk.memory.labels import findable
from longtalk.pack import Entry
from longtalk.stores.base import Hit, Sought
from longtalk.stores.ledger import words
from longtalk.stores.postgres_rows import text_in, text_out
from longtalk.wires import said

if TYPE_CHECKING:
    from longtalk.stores.postgres_pool import Connection

BATCH = 500
"""Entries that are made ready at once."""
LONGEST = 400
"""Characters of a word that the index knows: PostgreSQL takes 2,046 bytes."""
MOST = 1_000_000
"""Bytes of different words of an entry that the index knows: PostgreSQL takes 1 MB. What is behind is not found."""


def freshen(connection: Connection, schema: str, owner: str, name: str | None) -> bool:
    """Make some more ready for search. Returns whether there may be still more."""
    unread = f"SELECT * FROM {schema}.unread(%s, %s, %s)"  # noqa: S608
    rows = connection.execute(unread, (text_in(owner), name and text_in(name), BATCH), binary=True).fetchall()
    more = len(rows) >= BATCH
    for conversation, some in groupby(rows, key=lambda row: row[0]):
        learnt = [_learnt(owner, row) for row in some if row[1] is not None]
        columns = map(list, zip(*learnt, strict=True)) if learnt else [None] * 7
        statement = f"SELECT {schema}.learn(%s, %s, %b, %b, %b, %b, %b, %b, %b)"
        found = connection.execute(statement, (text_in(owner), conversation, *columns)).fetchone()
        more = more or found == (True,)
    return more


def _learnt(owner: str, row: Sequence[Any]) -> tuple[Any, ...]:
    conversation, segment, place, role, wire, kind, crc, native = row
    text = words(findable(Entry(role=role, wire=wire, kind=kind, at=0, native=native)))
    lexemes, room = [f"c{conversation}.", _owned(owner)], MOST
    for word in dict.fromkeys(word[:LONGEST] for word in text.split()):
        room -= len(word.encode())
        if room < 0:
            break
        lexemes.append(word)
    return segment, place, crc, role == "tool", text.count(" ") - 1, " ".join(lexemes), text


def _owned(owner: str) -> str:
    return "o" + hashlib.blake2b(owner.encode(), digest_size=12).hexdigest() + "."


def asking(owner: str, terms: Collection[str]) -> tuple[list[str], str, str] | None:
    """What the function `candidates` is given: forms to count, a query for the index, the owner there. Or nothing."""
    forms = [form for form in dict.fromkeys(map(words, terms)) if form.strip()]
    return (forms, " | ".join(map(_query, forms)), f"'{_owned(owner)}'") if forms else None


def hits(rows: Iterable[tuple[Any, ...]]) -> list[Hit]:
    """What the function `candidates` has found."""
    return [
        Hit(
            conversation=text_out(conversation),
            branch=text_out(branch),
            place=place,
            entry=f"{text_out(turn)}-{number}",
            role=role,
            at=at,
            text=said(Entry(role=role, wire=wire, kind=kind, at=at, native=native)),
        )
        for conversation, branch, place, turn, number, role, wire, kind, at, native in rows
    ]


def queries(sought: Sequence[Sought]) -> tuple[list[int], list[str], list[str | None]]:
    """What the function `holding` is given: which things can be found at all, the queries, and forms to look for."""
    numbers: list[int] = []
    made: list[str] = []
    forms: list[str | None] = []
    for number, each in enumerate(sought):
        whole = [form for form in map(words, each.words) if form.strip()]
        begun = [form for form in (words(text).rstrip(" ") for text in each.beginnings) if form.strip()]
        if not whole and not begun:
            continue
        numbers.append(number)
        made.append(" | ".join([*map(_query, whole), *(_query(form, begins=True) for form in begun)]))
        simple = all(form.count(" ") == 2 for form in whole) and all(form.count(" ") == 1 for form in begun)
        is_short = all(len(form) < LONGEST for form in (*whole, *begun))
        forms.append(None if simple and is_short else "\n".join((*whole, *begun)))
    return numbers, made, forms


def _query(form: str, *, begins: bool = False) -> str:
    """All words of a form, quoted: where one of them is missing, the form is."""
    parts = [f"'{word[:LONGEST]}'" for word in form.split()]
    if begins:
        parts[-1] += ":*"
    return f"({' & '.join(parts)})"
