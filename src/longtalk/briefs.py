"""The brief as an app reads and writes it: of a conversation in a store (`talk.brief`), or of a state (`chat.brief`).

A line that the app takes away is in no request from then on. A change is made whole or, where it can't be, not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from longtalk.branches import change_branch, check_new
from longtalk.errors import InputError
from longtalk.memory.book import KIND, Book, book_in, book_of
from longtalk.memory.card import Tally
from longtalk.memory.changes import changed, gone_from, revoked, text_of
from longtalk.memory.notes import Line
from longtalk.memory.operations import Operation
from longtalk.memory.schema import Brief
from longtalk.policies import Policy
from longtalk.policies.memory import memory_of
from longtalk.records import read_record
from longtalk.seal import BoundSeal, Seal
from longtalk.stored import AsyncStored
from longtalk.stores.base import Placed
from longtalk.tokens import Counter
from longtalk.transcript import Transcript

AnySeal: TypeAlias = Seal | BoundSeal | None


def brief_of(policy: Policy) -> Brief:
    """How a policy keeps a brief. Raises `InputError` if it keeps none."""
    found = memory_of(policy)
    if found is None:
        raise InputError("There is no brief under this policy: policy=Memory() keeps one.")
    return found.config.brief


class AsyncTalkBrief:
    """The brief of a conversation in a store, on its branch. A change waits for the end of a turn that runs."""

    def __init__(self, stored: AsyncStored, config: Brief, counter: Counter) -> None:
        self._stored = stored
        self._config = config
        self._counter = counter

    async def lines(self) -> tuple[Line, ...]:
        """The lines, each with its id, its field, and the entry that it came from (empty for the app's own)."""
        return (await self._book()).notes.lines

    async def text(self) -> str:
        """The brief as requests carry it; nothing without lines."""
        return text_of(await self._book(), self._config, self._counter)

    async def archived(self) -> tuple[Line, ...]:
        """The lines that fell out, were cut or were taken away on this branch, the newest last, as they were."""
        found: list[Placed] = await self._stored.call(self._stored.store.records, self._stored.branch, KIND)
        return gone_from(book for each in found if (book := read_record(each.record, Book)))

    async def tally(self) -> Tally:
        """How asking the model for what is to be kept goes: `asks`, and how many of the last were `failures`."""
        return (await self._book()).tally

    async def set(self, field: str, *texts: str) -> None:
        """Make a field say this, and nothing else."""
        await self._change(Operation.set(field, *texts))

    async def add(self, field: str, *texts: str) -> None:
        """Add lines to a list."""
        await self._change(Operation.add(field, *texts))

    async def remove(self, field: str, *texts: str) -> None:
        """Take lines away: by their text, an unambiguous beginning of it, or their id."""
        await self._change(Operation.remove(field, *texts))

    async def resolve(self, field: str, text: str, answer: str = "") -> None:
        """Take an open question away, and keep its answer where the schema says."""
        await self._change(Operation.resolve(field, text, answer=answer))

    async def clear(self, field: str) -> None:
        """Empty a field."""
        await self._change(Operation.clear(field))

    async def revoke(self, line: str) -> None:
        """Take a line away by its id. Only the app may say it again."""
        gone = await self.archived()
        await change_branch(
            self._stored, lambda transcript: revoked(transcript, line, self._config, self._counter, gone)
        )

    async def _change(self, operation: Operation) -> None:
        await change_branch(
            self._stored, lambda transcript: changed(transcript, [operation], self._config, self._counter)
        )

    async def _book(self) -> Book:
        head = await self._stored.head()
        if head is None:
            await check_new(self._stored)
            return Book()
        return book_in((each.record for each in head.records), head.size)


class AsyncStateBrief:
    """The brief of a state. What changes it gives the next state."""

    def __init__(
        self,
        config: Brief,
        counter: Counter,
        decode: Callable[[bytes | None, AnySeal], Transcript],
        encode: Callable[[Transcript, AnySeal], bytes],
    ) -> None:
        self._config = config
        self._counter = counter
        self._decode = decode
        self._encode = encode

    async def lines(self, *, state: bytes, seal: AnySeal = None) -> tuple[Line, ...]:
        """The lines, each with its id, its field, and the entry that it came from (empty for the app's own)."""
        return book_of(self._decode(state, seal)).notes.lines

    async def text(self, *, state: bytes, seal: AnySeal = None) -> str:
        """The brief as requests carry it; nothing without lines."""
        return text_of(book_of(self._decode(state, seal)), self._config, self._counter)

    async def archived(self, *, state: bytes, seal: AnySeal = None) -> tuple[Line, ...]:
        """The lines that fell out, were cut or were taken away with the last change: a state keeps no more of them."""
        return gone_from([book_of(self._decode(state, seal))])

    async def tally(self, *, state: bytes, seal: AnySeal = None) -> Tally:
        """How asking the model for what is to be kept goes: `asks`, and how many of the last were `failures`."""
        return book_of(self._decode(state, seal)).tally

    async def set(self, field: str, *texts: str, state: bytes | None, seal: AnySeal = None) -> bytes:
        """Make a field say this, and nothing else. Returns the next state; None begins a conversation."""
        return self._change([Operation.set(field, *texts)], state, seal)

    async def add(self, field: str, *texts: str, state: bytes | None, seal: AnySeal = None) -> bytes:
        """Add lines to a list. Returns the next state; None begins a conversation."""
        return self._change([Operation.add(field, *texts)], state, seal)

    async def remove(self, field: str, *texts: str, state: bytes, seal: AnySeal = None) -> bytes:
        """Take lines away: by their text, an unambiguous beginning of it, or their id. Returns the next state."""
        return self._change([Operation.remove(field, *texts)], state, seal)

    async def resolve(self, field: str, text: str, answer: str = "", *, state: bytes, seal: AnySeal = None) -> bytes:
        """Take an open question away, and keep its answer where the schema says. Returns the next state."""
        return self._change([Operation.resolve(field, text, answer=answer)], state, seal)

    async def clear(self, field: str, *, state: bytes, seal: AnySeal = None) -> bytes:
        """Empty a field. Returns the next state."""
        return self._change([Operation.clear(field)], state, seal)

    async def revoke(self, line: str, *, state: bytes, seal: AnySeal = None) -> bytes:
        """Take a line away by its id. Only the app may say it again. Returns the next state."""
        transcript = self._decode(state, seal)
        gone = gone_from([book_of(transcript)])
        return self._encode(revoked(transcript, line, self._config, self._counter, gone).revise(), seal)

    def _change(self, changes: Sequence[Operation], state: bytes | None, seal: AnySeal) -> bytes:
        transcript = changed(self._decode(state, seal), changes, self._config, self._counter)
        return self._encode(transcript.revise(), seal)
