"""Full-text search in the Redis store, which needs no search module on the server.

The texts of a conversation are read and searched in this process. They stay cached, because entries don't change, so
the next search reads only new entries. After a redaction, the conversation is read again. The size of the cache is
limited (`MOST`); the conversations that were searched least recently are evicted first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from longtalk.memory.recall.labels import get_searchable_text
from longtalk.stores._words import normalize_words
from longtalk.stores.base import MAIN, SearchHit
from longtalk.stores.redis.connection import Command, Link
from longtalk.stores.redis.tree import Gone, Keys, Tree, pack_of
from longtalk.wires import text_if_readable

MOST = 64_000_000
"""The maximum number of characters in the cache."""
STEP = 1000
"""The number of entries read per request."""


class Said(NamedTuple):
    """An entry's text in two forms: as shown in search results, and as normalized words."""

    entry: str
    role: str
    at: int
    text: str
    words: str


class _Talk:
    """The cached texts of a conversation, by segment."""

    def __init__(self, state: tuple[bytes, bytes]) -> None:
        self.state = state
        """A value that changes when the conversation is created again or one of its entries is redacted."""
        self.segments: dict[int, list[Said]] = {}
        self.size = 0
        self.lock = threading.Lock()


class Words:
    """A cache of the texts of conversations that this process has searched."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._talks: OrderedDict[str, _Talk] = OrderedDict()

    def clear(self) -> None:
        with self._lock:
            self._talks.clear()

    def has(self, keys: Keys, tree: Tree) -> bool:
        """Return whether all entries of a conversation are in the cache."""
        with self._lock:
            talk = self._talks.get(keys.tag)
        if talk is None or talk.state != _state(tree):
            return False
        paths = [span for name in tree.branches for span in tree.path_of(name)]
        return all(len(talk.segments.get(span.segment, ())) >= span.stop - span.start for span in paths)

    def found(self, link: Link, keys: Keys, tree: Tree, conversation: str) -> Iterator[tuple[SearchHit, str]]:
        """Yield each entry on the path of any branch once, as a search hit with the entry's normalized words."""
        held = self._read(link, keys, tree)
        seen: dict[int, int] = {}
        for name in sorted(tree.branches, key=lambda name: (name != MAIN, name)):
            for segment, start, stop in tree.path_of(name):
                for position in range(max(start, seen.get(segment, 0)), stop):
                    each = held[segment][position - start]
                    hit = SearchHit(
                        conversation=conversation,
                        branch=name,
                        position=position,
                        entry=each.entry,
                        role=each.role,
                        at=each.at,
                        text=each.text,
                    )
                    yield hit, each.words
                seen[segment] = max(stop, seen.get(segment, 0))

    def spoken(self, link: Link, keys: Keys, tree: Tree, branch: str) -> Iterator[tuple[int, str]]:
        """Yield the position and normalized words of each entry of a path, newest first. Tool results are left out."""
        held = self._read(link, keys, tree)
        for segment, start, stop in reversed(tree.path_of(branch)):
            for position in range(stop - 1, start - 1, -1):
                if (each := held[segment][position - start]).role != "tool":
                    yield position, each.words

    def _read(self, link: Link, keys: Keys, tree: Tree) -> dict[int, list[Said]]:
        """Return the texts of all segments that branches use. Texts that aren't cached are read and cached."""
        state = _state(tree)
        with self._lock:
            talk = self._talks.get(keys.tag)
            if talk is None or talk.state != state:
                talk = self._talks[keys.tag] = _Talk(state)
            self._talks.move_to_end(keys.tag)
        with talk.lock:
            for name in tree.branches:
                for span in tree.path_of(name):
                    kept = talk.segments.setdefault(span.segment, [])
                    while len(kept) < span.stop - span.start:
                        more = _read(link, keys, span.segment, len(kept), span.stop - span.start)
                        kept += more
                        talk.size += sum(len(each.text) + len(each.words) for each in more)
            held = dict(talk.segments)
        self._trim()
        return held

    def _trim(self) -> None:
        with self._lock:
            total = sum(talk.size for talk in self._talks.values())
            while total > MOST and len(self._talks) > 1:
                total -= self._talks.popitem(last=False)[1].size


def _state(tree: Tree) -> tuple[bytes, bytes]:
    return tree.born, tree.text("redacted")


def _read(link: Link, keys: Keys, segment: int, start: int, stop: int) -> list[Said]:
    command = Command("LRANGE", (start, min(stop, start + STEP) - 1), [keys.entries(segment)])
    values = link.read(keys.c, command)[0]
    if not values:
        raise Gone
    return [
        Said(entry.id, entry.role, entry.at, text_if_readable(entry), normalize_words(get_searchable_text(entry)))
        for entry in pack_of(values).entries()
    ]
