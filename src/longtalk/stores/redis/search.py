"""Full-text search in the Redis store, which needs no search module on the server.

The texts of a conversation are read and searched in this process. They stay cached, because entries don't change, so
the next search reads only new entries. After a redaction, the conversation is read again. The size of the cache is
limited (`MAX_CHARACTERS`); the conversations that were searched least recently are evicted first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from longtalk.memory.recall.labels import get_searchable_text
from longtalk.stores._words import normalize_words
from longtalk.stores.base import MAIN, SearchHit
from longtalk.stores.redis.command import Command
from longtalk.stores.redis.connection import Client
from longtalk.stores.redis.tree import ConversationGone, Keys, Tree, decode_pack
from longtalk.wires import text_if_readable

MAX_CHARACTERS = 64_000_000
"""The maximum number of characters in the cache."""
PAGE = 1000
"""The number of entries read per request."""


class EntryText(NamedTuple):
    """An entry's text in two forms: as shown in search results, and as normalized words."""

    entry: str
    role: str
    at: int
    text: str
    words: str


class _CachedConversation:
    """The cached texts of a conversation, by segment."""

    def __init__(self, state: tuple[bytes, bytes]) -> None:
        self.state = state
        """A value that changes if the conversation is deleted and created again, or if an entry is redacted."""
        self.segments: dict[int, list[EntryText]] = {}
        self.size = 0
        self.lock = threading.Lock()


class TextCache:
    """A cache of the texts of conversations that this process has searched."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._conversations: OrderedDict[str, _CachedConversation] = OrderedDict()

    def clear(self) -> None:
        with self._lock:
            self._conversations.clear()

    def has_all(self, keys: Keys, tree: Tree) -> bool:
        """Return whether all entries of a conversation are in the cache."""
        with self._lock:
            cached = self._conversations.get(keys.tag)
        if cached is None or cached.state != _get_state(tree):
            return False
        spans = [span for name in tree.branches for span in tree.find_branch_path(name)]
        return all(len(cached.segments.get(span.segment, ())) >= span.stop - span.start for span in spans)

    def iterate_hits(
        self, client: Client, keys: Keys, tree: Tree, conversation: str
    ) -> Iterator[tuple[SearchHit, str]]:
        """Yield each entry that is on at least one branch, once, as a search hit with the entry's normalized words."""
        texts = self._read_segments(client, keys, tree)
        seen: dict[int, int] = {}
        for name in sorted(tree.branches, key=lambda name: (name != MAIN, name)):
            for segment, start, stop in tree.find_branch_path(name):
                for position in range(max(start, seen.get(segment, 0)), stop):
                    each = texts[segment][position - start]
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

    def iterate_words(self, client: Client, keys: Keys, tree: Tree, branch: str) -> Iterator[tuple[int, str]]:
        """Yield the position and normalized words of each entry on a branch, newest first, except tool results."""
        texts = self._read_segments(client, keys, tree)
        for segment, start, stop in reversed(tree.find_branch_path(branch)):
            for position in range(stop - 1, start - 1, -1):
                if (each := texts[segment][position - start]).role != "tool":
                    yield position, each.words

    def _read_segments(self, client: Client, keys: Keys, tree: Tree) -> dict[int, list[EntryText]]:
        """Return the texts of all entries on branches, by segment. Texts that aren't cached yet are read and cached."""
        state = _get_state(tree)
        with self._lock:
            cached = self._conversations.get(keys.tag)
            if cached is None or cached.state != state:
                cached = self._conversations[keys.tag] = _CachedConversation(state)
            self._conversations.move_to_end(keys.tag)
        with cached.lock:
            for name in tree.branches:
                for span in tree.find_branch_path(name):
                    known = cached.segments.setdefault(span.segment, [])
                    while len(known) < span.stop - span.start:
                        more = _read_texts(client, keys, span.segment, len(known), span.stop - span.start)
                        known += more
                        cached.size += sum(len(each.text) + len(each.words) for each in more)
            texts = dict(cached.segments)
        self._trim()
        return texts

    def _trim(self) -> None:
        """Evict the conversations that were searched least recently if the cache is too large."""
        with self._lock:
            total = sum(cached.size for cached in self._conversations.values())
            while total > MAX_CHARACTERS and len(self._conversations) > 1:
                total -= self._conversations.popitem(last=False)[1].size


def _get_state(tree: Tree) -> tuple[bytes, bytes]:
    return tree.born, tree.get_bytes("redacted")


def _read_texts(client: Client, keys: Keys, segment: int, start: int, stop: int) -> list[EntryText]:
    """Read the texts of at most `PAGE` entries of a segment, at indexes `start` to `stop - 1` of the segment's list."""
    command = Command("LRANGE", (start, min(stop, start + PAGE) - 1), [keys.get_entries_key(segment)])
    values = client.read(command)[0]
    if not values:
        raise ConversationGone
    return [
        EntryText(entry.id, entry.role, entry.at, text_if_readable(entry), normalize_words(get_searchable_text(entry)))
        for entry in decode_pack(values).entries()
    ]
