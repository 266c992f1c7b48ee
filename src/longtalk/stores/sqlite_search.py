"""Full-text search of a store in SQLite.

What is written is made ready for search when somebody searches: a branch's row says that there may be something new on
its path, and a segment's how far it is done. Chinese, Japanese and Korean characters are words of their own, so that
any part of a text is found. Each row says whose it is, and a search goes through its owner's alone.

SQLite takes words out of the index for good only when it is given the text that put them there. `READING` has to grow
when what an entry says is read in another way; the index is then made anew.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from longtalk.memory.labels import findable
from longtalk.stores.base import MAIN, Hit, Holding, Sought
from longtalk.stores.sqlite_branches import number_of
from longtalk.stores.sqlite_file import Database
from longtalk.stores.sqlite_paths import LONGEST, Span, key, pack, place_of, spans
from longtalk.stores.sqlite_schema import PLACES
from longtalk.wires import said

READING = 2
BATCH = 1000
"""Entries that are made ready in one transaction."""

_EACH = re.compile(
    "([\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U0001b000-\U0001b16f"
    "\U00020000-\U0003ffff])"
)

_TOOL = "tool"
"""Among the words of a scope: what a tool gave."""

_STRETCHES = 8
"""Segments of a path that are looked through one by one."""

_HELD = "SELECT rowid FROM words WHERE words MATCH ? AND rowid >= ? AND rowid < ? ORDER BY rowid DESC"
_STALE = """
SELECT b.segment, b.size, b.id, c.id FROM branches b JOIN conversations c ON c.id = b.conversation
WHERE b.stale AND c.owner = :owner AND (:name IS NULL OR c.name = :name) LIMIT 1
"""


def is_stale(db: Database, owner: str, conversation: str | None) -> bool:
    """Whether something was not made ready for search."""
    return reading(db) != READING or db.execute(_STALE, {"owner": owner, "name": conversation}).fetchone() is not None


def reading(db: Database) -> int:
    held: int = db.execute("SELECT value FROM settings WHERE name = 'reading'").get
    return held


def freshen(db: Database, owner: str, conversation: str | None) -> bool:
    """Make some more ready for search. Returns whether there is still more."""
    if reading(db) != READING:
        anew(db)
        db.execute("UPDATE settings SET value = ? WHERE name = 'reading'", (READING,))
    left = BATCH
    while row := db.execute(_STALE, {"owner": owner, "name": conversation}).fetchone():
        segment, size, branch, number = row
        for span in spans(db, segment, size):
            indexed: int = db.execute("SELECT indexed FROM segments WHERE id = ?", (span.segment,)).get
            stop = min(span.stop, indexed + left)
            if indexed < stop:
                put(db, scope(owner, number), span._replace(start=indexed, stop=stop))
                db.execute("UPDATE segments SET indexed = ? WHERE id = ?", (stop, span.segment))
                left -= stop - indexed
            if not left:
                return True
        db.execute("UPDATE branches SET stale = 0 WHERE id = ?", (branch,))
    return False


def anew(db: Database) -> None:
    """Forget the index: it is made again when somebody searches."""
    db.execute("INSERT INTO words (words) VALUES ('delete-all')")
    db.execute("UPDATE segments SET indexed = base")
    db.execute("UPDATE branches SET stale = 1")


def put(db: Database, scope: str, span: Span) -> None:
    db.executemany("INSERT INTO words (rowid, scope, text) VALUES (?, ?, ?)", _rows(db, scope, span))


def drop(db: Database, scope: str, span: Span) -> None:
    """Take entries out of the index. They have to be as they were when they got in."""
    rows = _rows(db, scope, span)
    db.executemany("INSERT INTO words (words, rowid, scope, text) VALUES ('delete', ?, ?, ?)", rows)


def _rows(db: Database, scope: str, span: Span) -> Iterator[tuple[int, str, str]]:
    for start in range(span.start, span.stop, BATCH):
        found = pack(db, [span], start, min(span.stop, start + BATCH))
        for place, entry in enumerate(found.entries(), start):
            if text := spaced(findable(entry)):
                yield key(span.segment, place), f"{scope} {_TOOL}" if entry.role == "tool" else scope, text


def scope(owner: str, conversation: int) -> str:
    return f"{_owned(owner)} c{conversation}"


def _owned(owner: str) -> str:
    return "o" + hashlib.blake2b(owner.encode(), digest_size=12).hexdigest()


def spaced(text: str) -> str:
    """A text as it is indexed, and looked for."""
    text = unicodedata.normalize("NFC", text).replace("\0", " ")
    return _EACH.sub(r" \1 ", text).encode("utf-8", "replace").decode().strip()


def candidates(db: Database, owner: str, terms: Collection[str], limit: int, conversation: str | None) -> list[Hit]:
    """See `Store.candidates`."""
    within = f"scope : {_owned(owner)}"
    if conversation is not None:
        number = number_of(db, owner, conversation)
        within += f" AND scope : c{number}"
    phrases = [_phrase(term) for term in dict.fromkeys(terms)]
    if not phrases or limit <= 0:
        return []
    found: list[Hit] = []
    paths: dict[int, list[tuple[str, dict[int, int]]]] = {}
    rows = db.execute(
        "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank", (f"{within} AND text : ({' OR '.join(phrases)})",)
    )
    for (at,) in rows:
        if len(found) >= limit:
            break
        segment, place = at >> PLACES, place_of(at)
        owned = db.execute(
            "SELECT c.id, c.name FROM segments s JOIN conversations c ON c.id = s.conversation"
            " WHERE s.id = ? AND c.owner = ?",
            (segment, owner),
        ).fetchone()
        if owned is None:
            continue
        if owned[0] not in paths:
            paths[owned[0]] = _paths(db, owned[0])
        branch = next((name for name, stops in paths[owned[0]] if place < stops.get(segment, 0)), None)
        if branch is None:
            continue
        one = pack(db, [Span(segment, place, place + 1)], place, place + 1)
        entry = one.entry(0)
        found.append(
            Hit(
                conversation=owned[1],
                branch=branch,
                place=place,
                entry=entry.id,
                role=entry.role,
                at=entry.at,
                text=said(entry),
            )
        )
    return found


def holding(db: Database, scope: str, path: Sequence[Span], sought: Sequence[Sought], most: int) -> list[Holding]:
    """See `Store.holding`."""
    # The entries of a segment lie together. To look through a few stretches is faster than to ask whose each entry is.
    stretches, within = [(key(each.segment, each.start), key(each.segment, each.stop)) for each in reversed(path)], ""
    if len(path) > _STRETCHES:
        stretches = [(stretches[-1][0], stretches[0][1])]
        within = "".join(f"scope : {word} AND " for word in scope.split())
    stops = {span.segment: span.stop for span in path}
    found: list[Holding] = []
    for each in sought:
        forms = [_phrase(word) for word in each.words if word.strip()]
        forms += [f"{_phrase(beginning)} *" for beginning in each.beginnings if beginning.strip()]
        query = f"({within}text : ({' OR '.join(forms)})) NOT scope : {_TOOL}"
        places: list[int] = []
        for first, end in stretches if forms else ():
            rows = db.execute(_HELD, (query, first, end))
            on_path = (place for (at,) in rows if (place := at & LONGEST - 1) < stops.get(at >> PLACES, 0))
            places += islice(on_path, most + 1 - len(places))
        count = len(places)
        if count > most:
            # To count them all would take longer, the longer the conversation is: earlier it was said as often.
            size = path[-1].stop
            count = max(count, count * size // (size - min(places)))
        found.append(Holding(tuple(sorted(places[:most])), count))
    return found


def _phrase(term: str) -> str:
    return '"' + spaced(term).replace('"', " ") + '"'


def _paths(db: Database, conversation: int) -> list[tuple[str, dict[int, int]]]:
    """The branches of a conversation, the main one first, with the place up to which each has a segment's entries."""
    rows = db.execute("SELECT name, segment, size FROM branches WHERE conversation = ?", (conversation,)).fetchall()
    return [
        (name, {span.segment: span.stop for span in spans(db, segment, size)})
        for name, segment, size in sorted(rows, key=lambda row: (row[0] != MAIN, row[0]))
    ]
