"""What is recalled for a message: the older things that fit it, as text, within a budget.

`in_store` and `in_transcript` find candidates where the conversation is kept; `recalled` ranks them, tells how much of
the budget they are worth, and renders them in the order they were said, each day with its date. The text is data: it
can't end the `<recalled>` tag around it, and no part of it passes for a card. It belongs to one turn, and is never
stored.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from longtalk.memory.candidates import candidates
from longtalk.memory.excerpt import fill, render
from longtalk.memory.recall import Index, Ranked
from longtalk.memory.scan import Scanned
from longtalk.memory.settings import Recall, Recalled
from longtalk.memory.shelf import Shelf, Whole
from longtalk.memory.units import TAG, safe, unit_of
from longtalk.pack import Entry, Pack
from longtalk.stores.base import Holding, Sought, Store
from longtalk.tokens import Counter
from longtalk.transcript import Transcript
from longtalk.wires.base import quoted

__all__ = ["Recall", "Recalled", "in_store", "in_transcript", "recalled"]

_SHELF = Shelf()


def in_store(
    store: Store, owner: str, conversation: str, branch: str, size: int, message: str, config: Recall, *, now: int = 0
) -> Index:
    """What may fit the message among the first `size` entries of a branch. `now` is in milliseconds."""
    names = (owner, conversation, branch)
    if config.meaning:
        return _SHELF.take((id(store), *names), store.read(*names, 0, size), unit_of, lambda i: i)
    return candidates(_Stored(store, names, size), message, now=now, most=_most(config), unit=unit_of)


def in_transcript(transcript: Transcript, message: str, config: Recall, *, now: int = 0) -> Index:
    """What may fit the message among what a state carries. `now` is in milliseconds."""
    if not config.meaning:
        return candidates(Scanned(transcript), message, now=now, most=_most(config), unit=unit_of)
    index, rest, crc = transcript.pack.grow(transcript.fresh)
    pack = Pack(index, bytes(transcript.pack.array)[:-1] + rest, crc)
    return _SHELF.take(("state", *pack.index.turns[:1], ""), pack, unit_of, transcript.place)


def _most(config: Recall) -> int:
    """How many entries are looked at closely: a larger budget has room for more of them."""
    return 100 + config.budget // 10


class _Stored:
    """A path in a store."""

    def __init__(self, store: Store, names: tuple[str, str, str], size: int) -> None:
        self._store = store
        self._names = names
        self.size = size

    def pick(self, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        return self._store.pick(*self._names, ranges)

    def place(self, i: int) -> int:
        return i

    def holding(self, sought: Sequence[Sought], most: int) -> list[Holding]:
        return self._store.holding(*self._names, sought, most)


def recalled(
    index: Index,
    message: str,
    config: Recall,
    counter: Counter,
    *,
    now: int,
    exclude: Container[int] = (),
    budget: int | None = None,
) -> Recalled:
    """What fits the message, as text. Of the places in `exclude` nothing: the context has them. `now` is in
    milliseconds; `budget` is how many tokens are left, if that is less than what is configured."""
    limit = config.budget if budget is None else min(budget, config.budget)
    if limit <= 0:
        return Recalled()
    ranked = index.rank(message, now=now // 1000, exclude=exclude)
    found = _rendered(index, ranked, int(limit * ranked.need) if config.gate else limit, counter)
    if isinstance(index, Whole):
        _SHELF.put(index)
    return found


def _rendered(index: Index, ranked: Ranked, limit: int, counter: Counter) -> Recalled:
    """The best of what was found, as text of so many tokens at most."""
    room = limit - counter.count(quoted(TAG, ""))
    while room > 0 and (chosen := fill(index, ranked.hits, room, counter.count)):
        text = safe(render(index, chosen))
        tokens = counter.count(quoted(TAG, text))
        if tokens <= limit:
            return Recalled(text, tuple(dict.fromkeys(hit.place for hit in chosen)), tokens)
        room -= tokens - limit
    return Recalled()
