"""A turn on a store as its caller sees it: what it is asked for with, and its events."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypedDict

from longtalk._util import json_bytes
from longtalk._util.checks import check_meta
from longtalk._util.concurrency import run_shielded
from longtalk.errors import InputError
from longtalk.events import Done, Event, Text, ToolCall
from longtalk.reply import StoredReply
from longtalk.stores.base import HeadMoved, KeyedRequest, RequestKeyTaken
from longtalk.turn.engine import TurnArguments
from longtalk.turn.runner import AsyncTurnRunner
from longtalk.turn.stream import AsyncStream

OnBusy: TypeAlias = Literal["reject", "wait", "fork"]


class ResumeArguments(TypedDict, total=False):
    """The arguments of a turn without a message of its own, as for `send`."""

    system: str | None
    instruction: str | None
    tools: Iterable[Any] | None
    options: Mapping[str, Any] | None
    max_rounds: int
    output: Any
    key: str | None
    on_busy: OnBusy


class SendArguments(ResumeArguments, total=False):
    """The arguments of a turn besides its message, as for `send`."""

    brief: Mapping[str, Any] | None
    meta: Mapping[str, Any] | None


class TurnRequest(TurnArguments, frozen=True, kw_only=True):
    """What a caller says with one turn on a stored conversation."""

    key: str | None = None
    meta: Mapping[str, Any] | None = None
    on_busy: OnBusy = "reject"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.on_busy not in ("reject", "wait", "fork"):
            raise InputError(f"`on_busy` is 'reject', 'wait' or 'fork', not {self.on_busy!r}.")
        if self.key is not None and not (isinstance(self.key, str) and self.key):
            raise InputError(f"`key` must be non-empty text, not {self.key!r}.")
        if self.meta is not None:
            check_meta(self.meta)

    def to_keyed_request(self) -> KeyedRequest | None:
        """Return the key with a digest of the message, or None without a key."""
        if self.key is None:
            return None
        try:
            body = json_bytes.encode(self.message)
        except (TypeError, ValueError, RecursionError) as problem:
            raise InputError(f"A part of the message can't be written as JSON: {problem}.") from None
        return KeyedRequest(self.key, hashlib.sha256(body).hexdigest())


StartedTurn: TypeAlias = AsyncTurnRunner[StoredReply] | StoredReply
"""A turn that is ready to be played, or the reply of one that was played before."""


class AsyncStoredStream(AsyncStream[StoredReply]):
    """A turn on a store, as it happens. It begins when it is first asked for an event."""

    def __init__(self, begin: Callable[[], Awaitable[StartedTurn]], *, stream: bool) -> None:
        self._prepare(self._play(begin, stream=stream))

    async def _play(self, begin: Callable[[], Awaitable[StartedTurn]], *, stream: bool) -> AsyncGenerator[Event, None]:
        while True:
            started = await begin()
            if isinstance(started, StoredReply):
                if started.text:
                    yield Text(started.text)
                for call in started.calls:
                    yield ToolCall(call.id, call.name, call.arguments)
                yield Done(started)
                return
            self._runner = started
            events = started.events(stream=stream)
            try:
                async for event in events:
                    yield event
            except (HeadMoved, RequestKeyTaken):
                # Another writer was faster, and nothing has happened here yet: look again.
                self._runner = None
                continue
            finally:
                await run_shielded(events.aclose)
            return


def turn_of(entry: str | None) -> str:
    """Return the id of the turn that an entry belongs to, which is part of its own id."""
    return (entry or "").rpartition("-")[0]
