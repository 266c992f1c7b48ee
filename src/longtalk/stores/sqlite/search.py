"""Full-text search in the SQLite store.

Entries are indexed when a search needs them. The column `branches.stale` marks a branch whose path may have entries
that are not indexed yet, and `segments.indexed` says up to which position a segment is indexed. Each Chinese, Japanese
and Korean character is a word of its own, so that any part of a text can be found. Each row of the index names its
owner, and a search covers only the rows of one owner.

SQLite removes words from the index permanently only if it is given the text that was indexed. If the code that extracts
this text from an entry changes, `INDEX_VERSION` must be increased, so that the index is rebuilt.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from longtalk.memory.recall.labels import get_searchable_text
from longtalk.memory.recall.protocol import Matches, SearchTerm
from longtalk.stores._paths import Span
from longtalk.stores.base import MAIN, SearchHit
from longtalk.stores.sqlite.branches import find_conversation_id
from longtalk.stores.sqlite.database import Database
from longtalk.stores.sqlite.paths import read_pack, read_path, split_key, to_key
from longtalk.wires import text_if_readable

INDEX_VERSION = 2
"""The version of the code that extracts the searchable text of an entry. Increase it to have the index rebuilt."""
BATCH = 1000
"""The maximum number of entries that are indexed in one transaction."""

_CJK = re.compile(
    "([\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U0001b000-\U0001b16f"
    "\U00020000-\U0003ffff])"
)

_TOOL = "tool"
"""The word in the index column `scope` that marks a tool result."""

_MAX_RANGES = 8
"""The maximum number of segments of a path that are searched one by one. Longer paths are searched in one query."""

_MATCHES = "SELECT rowid FROM words WHERE words MATCH ? AND rowid >= ? AND rowid < ? ORDER BY rowid DESC"
_STALE = """
SELECT b.segment, b.size, b.id, c.id FROM branches b JOIN conversations c ON c.id = b.conversation
WHERE b.stale AND c.owner = :owner AND (:name IS NULL OR c.name = :name) LIMIT 1
"""


def is_stale(db: Database, owner: str, conversation: str | None) -> bool:
    """Return whether entries of an owner, or of one of the owner's conversations, may be missing from the index."""
    return (
        read_index_version(db) != INDEX_VERSION
        or db.execute(_STALE, {"owner": owner, "name": conversation}).fetchone() is not None
    )


def read_index_version(db: Database) -> int:
    """Return the value that `INDEX_VERSION` had when the index was built."""
    version: int = db.execute("SELECT value FROM settings WHERE name = 'reading'").get
    return version


def index_batch(db: Database, owner: str, conversation: str | None) -> bool:
    """Index at most `BATCH` new entries of an owner, or of one conversation. Return whether more may remain."""
    if read_index_version(db) != INDEX_VERSION:
        reset_index(db)
        db.execute("UPDATE settings SET value = ? WHERE name = 'reading'", (INDEX_VERSION,))
    room = BATCH
    while row := db.execute(_STALE, {"owner": owner, "name": conversation}).fetchone():
        segment, size, branch, number = row
        for span in read_path(db, segment, size):
            indexed: int = db.execute("SELECT indexed FROM segments WHERE id = ?", (span.segment,)).get
            stop = min(span.stop, indexed + room)
            if indexed < stop:
                add_to_index(db, make_scope(owner, number), span._replace(start=indexed, stop=stop))
                db.execute("UPDATE segments SET indexed = ? WHERE id = ?", (stop, span.segment))
                room -= stop - indexed
            if not room:
                return True
        db.execute("UPDATE branches SET stale = 0 WHERE id = ?", (branch,))
    return False


def reset_index(db: Database) -> None:
    """Clear the index and mark all branches as not indexed."""
    db.execute("INSERT INTO words (words) VALUES ('delete-all')")
    db.execute("UPDATE segments SET indexed = base")
    db.execute("UPDATE branches SET stale = 1")


def add_to_index(db: Database, scope: str, span: Span[int]) -> None:
    """Add the entries of a span to the index."""
    db.executemany("INSERT INTO words (rowid, scope, text) VALUES (?, ?, ?)", _make_index_rows(db, scope, span))


def remove_from_index(db: Database, scope: str, span: Span[int]) -> None:
    """Remove the entries of a span from the index. The entries must not have changed since they were added."""
    rows = _make_index_rows(db, scope, span)
    db.executemany("INSERT INTO words (words, rowid, scope, text) VALUES ('delete', ?, ?, ?)", rows)


def _make_index_rows(db: Database, scope: str, span: Span[int]) -> Iterator[tuple[int, str, str]]:
    """Yield the key, scope and text of each entry of a span that has text."""
    for start in range(span.start, span.stop, BATCH):
        pack = read_pack(db, [span], start, min(span.stop, start + BATCH))
        for position, entry in enumerate(pack.entries(), start):
            if text := normalize_text(get_searchable_text(entry)):
                yield to_key(span.segment, position), f"{scope} {_TOOL}" if entry.role == "tool" else scope, text


def make_scope(owner: str, conversation: int) -> str:
    """Return the two words that mark the index rows of a conversation: one for the owner, one for the conversation."""
    return f"{_make_owner_word(owner)} c{conversation}"


def _make_owner_word(owner: str) -> str:
    return "o" + hashlib.blake2b(owner.encode(), digest_size=12).hexdigest()


def normalize_text(text: str) -> str:
    """Return a text as it is indexed and searched: as valid Unicode, with spaces around each CJK character."""
    text = unicodedata.normalize("NFC", text).replace("\0", " ")
    return _CJK.sub(r" \1 ", text).encode("utf-8", "replace").decode().strip()


def find_candidates(
    db: Database, owner: str, terms: Collection[str], limit: int, conversation: str | None
) -> list[SearchHit]:
    """Return at most `limit` entries that contain any of the terms, best matches first. See `Store.candidates`."""
    within = f"scope : {_make_owner_word(owner)}"
    if conversation is not None:
        number = find_conversation_id(db, owner, conversation)
        within += f" AND scope : c{number}"
    phrases = [_make_phrase(term) for term in dict.fromkeys(terms)]
    if not phrases or limit <= 0:
        return []
    found: list[SearchHit] = []
    paths: dict[int, list[tuple[str, dict[int, int]]]] = {}
    rows = db.execute(
        "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank", (f"{within} AND text : ({' OR '.join(phrases)})",)
    )
    for (key,) in rows:
        if len(found) >= limit:
            break
        segment, position = split_key(key)
        owned = db.execute(
            "SELECT c.id, c.name FROM segments s JOIN conversations c ON c.id = s.conversation"
            " WHERE s.id = ? AND c.owner = ?",
            (segment, owner),
        ).fetchone()
        if owned is None:
            continue
        if owned[0] not in paths:
            paths[owned[0]] = _read_branch_paths(db, owned[0])
        branch = next((name for name, stops in paths[owned[0]] if position < stops.get(segment, 0)), None)
        if branch is None:
            continue
        one = read_pack(db, [Span(segment, position, position + 1)], position, position + 1)
        entry = one.entry(0)
        found.append(
            SearchHit(
                conversation=owned[1],
                branch=branch,
                position=position,
                entry=entry.id,
                role=entry.role,
                at=entry.at,
                text=text_if_readable(entry),
            )
        )
    return found


def find_matches(
    db: Database, scope: str, path: Sequence[Span[int]], terms: Sequence[SearchTerm], most: int
) -> list[Matches]:
    """For each term, return its last matching positions on a path, at most `most` of them. See `Store.matches`."""
    # The keys of a segment are contiguous. Searching a few ranges of keys is faster than filtering by scope.
    ranges = [(to_key(span.segment, span.start), to_key(span.segment, span.stop)) for span in reversed(path)]
    within = ""
    if len(path) > _MAX_RANGES:
        ranges = [(ranges[-1][0], ranges[0][1])]
        within = "".join(f"scope : {word} AND " for word in scope.split())
    stops = {span.segment: span.stop for span in path}
    found: list[Matches] = []
    for term in terms:
        forms = [_quote_phrase(word) for word in term.words if word.strip()]
        forms += [f"{_quote_phrase(beginning)} *" for beginning in term.beginnings if beginning.strip()]
        query = f"({within}text : ({' OR '.join(forms)})) NOT scope : {_TOOL}"
        positions: list[int] = []
        for first, end in ranges if forms else ():
            keys = (key for (key,) in db.execute(_MATCHES, (query, first, end)))
            on_path = (position for segment, position in map(split_key, keys) if position < stops.get(segment, 0))
            positions += islice(on_path, most + 1 - len(positions))
        count = len(positions)
        if count > most:
            # Counting all matches would take longer as the conversation grows. Estimate the number instead, as if
            # earlier entries matched equally often.
            size = path[-1].stop
            count = max(count, count * size // (size - min(positions)))
        found.append(Matches(tuple(sorted(positions[:most])), count))
    return found


def _make_phrase(term: str) -> str:
    """Return a phrase to search for. If the term ends with `*`, the last word may be only the beginning of a word."""
    beginning = term.rstrip("*")
    is_open = beginning != term and any(map(str.isalnum, beginning))
    return f"{_quote_phrase(beginning)} *" if is_open else _quote_phrase(term)


def _quote_phrase(term: str) -> str:
    return '"' + normalize_text(term).replace('"', " ") + '"'


def _read_branch_paths(db: Database, conversation: int) -> list[tuple[str, dict[int, int]]]:
    """Return the name of each branch, `main` first, and by segment the position at which the branch's path ends."""
    rows = db.execute("SELECT name, segment, size FROM branches WHERE conversation = ?", (conversation,)).fetchall()
    return [
        (name, {span.segment: span.stop for span in read_path(db, segment, size)})
        for name, segment, size in sorted(rows, key=lambda row: (row[0] != MAIN, row[0]))
    ]
