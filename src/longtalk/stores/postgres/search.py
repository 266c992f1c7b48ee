"""Full-text search in a PostgreSQL store.

Entries are indexed when a search needs them, not when they are written: the row of a branch says whether its path may
have new entries, and the row of a segment says up to which position it is indexed. Words are compared as in the
in-memory store (`_words.normalize_words`), so all stores find the same entries: case and accents are ignored, and each
Chinese, Japanese and Korean character is a word. The index is a `tsvector` of these words without positions. If a term
has several words, or a very long one, the text in the same row decides whether the term matches. The conversation and
the owner are words in the index as well, marked with a full stop that no other word has, so a search reads only the
entries that belong to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from longtalk.memory.recall.labels import get_searchable_text
from longtalk.memory.recall.protocol import SearchTerm
from longtalk.stores._words import is_beginning, normalize_term, normalize_words
from longtalk.stores.base import SearchHit
from longtalk.stores.postgres.rows import escape_text, unescape_text
from longtalk.transcript.pack import Entry
from longtalk.wires import text_if_readable
from longtalk.wires.entries import mark_verbatim

if TYPE_CHECKING:
    from longtalk.stores.postgres.pool import Connection

BATCH = 500
"""The maximum number of entries that are indexed at once."""
MAX_WORD = 400
"""The maximum length of an indexed word in characters, because PostgreSQL allows 2,046 bytes. Longer words are cut."""
MAX_INDEXED_BYTES = 1_000_000
"""The maximum size of an entry's indexed words in bytes, because PostgreSQL allows 1 MB. Later words aren't found."""


def index_batch(connection: Connection, schema: str, owner: str, name: str | None) -> bool:
    """Index at most `BATCH` new entries of an owner, or of conversation `name`. Return whether more may remain."""
    statement = f"SELECT * FROM {schema}.unread(%s, %s, %s)"  # noqa: S608
    values = escape_text(owner), name and escape_text(name), BATCH
    rows = connection.execute(statement, values, binary=True).fetchall()
    more = len(rows) >= BATCH
    for conversation, some in groupby(rows, key=lambda row: row[0]):
        indexed = [_make_index_row(owner, row) for row in some if row[1] is not None]
        columns = map(list, zip(*indexed, strict=True)) if indexed else [None] * 7
        statement = f"SELECT {schema}.learn(%s, %s, %b, %b, %b, %b, %b, %b, %b)"
        found = connection.execute(statement, (escape_text(owner), conversation, *columns)).fetchone()
        more = more or found == (True,)
    return more


def _make_index_row(owner: str, row: Sequence[Any]) -> tuple[Any, ...]:
    """Return what the SQL function `learn` needs to index an entry: its location, words and text."""
    conversation, segment, position, role, wire, kind, crc, native = row
    text = normalize_words(get_searchable_text(Entry(role=role, wire=wire, kind=kind, at=0, native=native)))
    lexemes, room = [f"c{conversation}.", _make_owner_word(owner)], MAX_INDEXED_BYTES
    for word in dict.fromkeys(word[:MAX_WORD] for word in text.split()):
        room -= len(word.encode())
        if room < 0:
            break
        lexemes.append(word)
    return segment, position, crc, role == "tool", text.count(" ") - 1, " ".join(lexemes), text


def _make_owner_word(owner: str) -> str:
    """Return the word that marks the entries of an owner in the index."""
    return "o" + hashlib.blake2b(owner.encode(), digest_size=12).hexdigest() + "."


def make_candidate_query(owner: str, terms: Collection[str]) -> tuple[list[str], str, str] | None:
    """Return three arguments for the SQL function `candidates`, or None if the terms contain no words.

    They are the normalized terms, whose occurrences the function counts; an index query that finds entries with any of
    the terms; and an index query that finds the owner's entries.
    """
    forms = [form for form in dict.fromkeys(map(normalize_term, terms)) if form.strip()]
    queries = [_make_query(form, begins=is_beginning(form)) for form in forms]
    return (forms, " | ".join(queries), f"'{_make_owner_word(owner)}'") if forms else None


def parse_hits(rows: Iterable[tuple[Any, ...]], read_entry: Callable[[SearchHit], Entry]) -> list[SearchHit]:
    """Build search hits from rows of the SQL function `candidates`.

    The rows lack the marks of entries. Where the mark decides what the text is, `read_entry` reads the entry of a hit.
    """
    hits: list[SearchHit] = []
    for conversation, branch, position, turn, number, role, wire, kind, at, native in rows:
        entry = Entry(role=role, wire=wire, kind=kind, at=at, native=native)
        hit = SearchHit(
            conversation=unescape_text(conversation),
            branch=unescape_text(branch),
            position=position,
            entry=f"{unescape_text(turn)}-{number}",
            role=role,
            at=at,
            text=text_if_readable(entry),
        )
        if role == "assistant" and text_if_readable(mark_verbatim(entry)) != hit.text:
            hit = msgspec.structs.replace(hit, text=text_if_readable(read_entry(hit)))
        hits.append(hit)
    return hits


def make_match_queries(terms: Sequence[SearchTerm]) -> tuple[list[int], list[str], list[str | None]]:
    """Return index queries for the terms that contain words, as three parallel lists.

    For each such term, the lists have its index in `terms`, its query for the SQL function `holding`, and the strings,
    one per line, of which a matching text must contain one (None if the query alone is exact).
    """
    numbers: list[int] = []
    queries: list[str] = []
    forms: list[str | None] = []
    for number, term in enumerate(terms):
        whole = [form for form in map(normalize_words, term.words) if form.strip()]
        beginnings = [form for form in (normalize_words(text).rstrip(" ") for text in term.beginnings) if form.strip()]
        if not whole and not beginnings:
            continue
        numbers.append(number)
        queries.append(" | ".join([*map(_make_query, whole), *(_make_query(form, begins=True) for form in beginnings)]))
        simple = all(form.count(" ") == 2 for form in whole) and all(form.count(" ") == 1 for form in beginnings)
        is_short = all(len(form) < MAX_WORD for form in (*whole, *beginnings))
        forms.append(None if simple and is_short else "\n".join((*whole, *beginnings)))
    return numbers, queries, forms


def _make_query(form: str, *, begins: bool = False) -> str:
    """Return an index query for entries that have all words of a form, in any order.

    With `begins`, the last word may be only the beginning of a word.
    """
    parts = [f"'{word[:MAX_WORD]}'" for word in form.split()]
    if begins:
        parts[-1] += ":*"
    return f"({' & '.join(parts)})"
