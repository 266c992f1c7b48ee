"""Words in a store in Redis.

No search module is asked for: what was said is read and looked through in this process. What was read is kept here, as
entries do not change: the next search reads what is new alone. A redaction makes its conversation be read anew. What is
kept is bounded (`MOST`); conversations that were not searched for longest go first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from longtalk.memory.labels import findable
from longtalk.stores.base import MAIN, Hit
from longtalk.stores.ledger import words
from longtalk.stores.redis_link import Command, Link
from longtalk.stores.redis_tree import Gone, Keys, Tree, pack_of
from longtalk.wires import said

MOST = 64_000_000
"""Characters that are kept."""
STEP = 1000
"""Entries that are read at once."""


class Said(NamedTuple):
    entry: str
    role: str
    at: int
    text: str
    words: str


class _Talk:
    """What was read of a conversation: the entries of its segments."""

    def __init__(self, state: tuple[bytes, bytes]) -> None:
        self.state = state
        """What is another one when it was made anew, or something in it was redacted."""
        self.segments: dict[int, list[Said]] = {}
        self.size = 0
        self.lock = threading.Lock()


class Words:
    """What was said in conversations that were searched."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._talks: OrderedDict[str, _Talk] = OrderedDict()

    def clear(self) -> None:
        with self._lock:
            self._talks.clear()

    def has(self, keys: Keys, tree: Tree) -> bool:
        """Whether all of a conversation was read."""
        with self._lock:
            talk = self._talks.get(keys.tag)
        if talk is None or talk.state != _state(tree):
            return False
        paths = [span for name in tree.branches for span in tree.path_of(name)]
        return all(len(talk.segments.get(span.segment, ())) >= span.stop - span.base for span in paths)

    def found(self, link: Link, keys: Keys, tree: Tree, conversation: str) -> Iterator[tuple[Hit, str]]:
        """What can be found, with its words: each entry that is on a path, once."""
        held = self._read(link, keys, tree)
        seen: dict[int, int] = {}
        for name in sorted(tree.branches, key=lambda name: (name != MAIN, name)):
            for segment, start, stop, base in tree.path_of(name):
                for place in range(max(start, seen.get(segment, 0)), stop):
                    each = held[segment][place - base]
                    hit = Hit(
                        conversation=conversation,
                        branch=name,
                        place=place,
                        entry=each.entry,
                        role=each.role,
                        at=each.at,
                        text=each.text,
                    )
                    yield hit, each.words
                seen[segment] = max(stop, seen.get(segment, 0))

    def spoken(self, link: Link, keys: Keys, tree: Tree, branch: str) -> Iterator[tuple[int, str]]:
        """What was said on a path, the newest first: places, with their words; no results of tools."""
        held = self._read(link, keys, tree)
        for segment, start, stop, base in reversed(tree.path_of(branch)):
            for place in range(stop - 1, start - 1, -1):
                if (each := held[segment][place - base]).role != "tool":
                    yield place, each.words

    def _read(self, link: Link, keys: Keys, tree: Tree) -> dict[int, list[Said]]:
        """The entries of all segments, as far as branches have them."""
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
                    while len(kept) < span.stop - span.base:
                        more = _read(link, keys, span.segment, len(kept), span.stop - span.base)
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
        Said(entry.id, entry.role, entry.at, said(entry), words(findable(entry))) for entry in pack_of(values).entries()
    ]
