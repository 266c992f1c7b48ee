"""A turn on a store as its caller sees it: what it is asked for with, and its events."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Literal, NoReturn, TypeAlias

import msgspec

from longtalk._util import json_bytes
from longtalk._util.checks import check_meta
from longtalk._util.concurrency import run_shielded
from longtalk.chat.chat import AsyncChat
from longtalk.errors import InputError
from longtalk.events import Done, Event, Text
from longtalk.reply import Reply
from longtalk.stores.base import HeadMoved, KeyedRequest, RequestKeyTaken
from longtalk.transcript.transcript import Transcript
from longtalk.turn.runner import AsyncTurnRunner
from longtalk.turn.stream import AsyncStream

OnBusy: TypeAlias = Literal["reject", "wait", "fork"]


class AsyncStoredChat(AsyncChat):
    """A chat on a conversation that a store holds."""

    _is_stored = True


class TurnRequest(msgspec.Struct, frozen=True):
    """What a turn is asked for with."""

    message: Any
    system: str | None
    instruction: str | None
    tools: Any
    options: Mapping[str, Any] | None
    max_rounds: int
    brief: Mapping[str, Any] | None
    key: str | None
    meta: Mapping[str, Any] | None
    on_busy: OnBusy

    def __post_init__(self) -> None:
        if self.on_busy not in ("reject", "wait", "fork"):
            raise InputError(f"`on_busy` is 'reject', 'wait' or 'fork', not {self.on_busy!r}.")
        if self.key is not None and not (isinstance(self.key, str) and self.key):
            raise InputError(f"`key` is text of your own, not {self.key!r}.")
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


class AsyncStoredStream(AsyncStream):
    """A turn on a store, as it happens. It begins when it is first asked for an event."""

    def __init__(self, begin: Callable[[], Awaitable[AsyncTurnRunner | Reply]], *, stream: bool) -> None:
        self._prepare(self._play(begin, stream=stream))

    async def _play(
        self, begin: Callable[[], Awaitable[AsyncTurnRunner | Reply]], *, stream: bool
    ) -> AsyncGenerator[Event, None]:
        while True:
            started = await begin()
            if isinstance(started, Reply):
                if started.text:
                    yield Text(started.text)
                yield Done(started)
                return
            self._loop = started
            events = started.events(stream=stream)
            try:
                async for event in events:
                    yield event
            except (HeadMoved, RequestKeyTaken):
                # Somebody was faster, and nothing has happened here yet: look again.
                self._loop = None
                continue
            finally:
                await run_shielded(events.aclose)
            return

    def _fail(self, problem: BaseException) -> None:
        """End the turn; the error carries what there is of it, and no state."""
        failed = isinstance(problem, Exception)
        self._end("failed" if failed else "interrupted", error=f"{type(problem).__name__}: {problem}" if failed else "")
        if self._reply is not None:
            with contextlib.suppress(AttributeError):
                problem.partial = self._reply if self._reply.worked else None  # type: ignore[attr-defined]


def no_state(_: Transcript) -> NoReturn:
    raise InputError("This conversation is in a store, and has no state to hand out.")


def turn_of(entry: str | None) -> str:
    """Return the id of the turn that an entry belongs to, which is part of its own id."""
    return (entry or "").rpartition("-")[0]
