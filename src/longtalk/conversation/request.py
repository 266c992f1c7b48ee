"""The arguments of a turn on a stored conversation, and the stream of its events."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypedDict

from longtalk._util import json_bytes
from longtalk._util.checks import check_meta
from longtalk._util.concurrency import run_shielded
from longtalk.branches.branch import AsyncBranch
from longtalk.errors import InputError
from longtalk.events import Done, Event, Started, Text, ToolCall
from longtalk.reply import StoredReply
from longtalk.stores.base import BranchHead, HeadMoved, KeyedRequest, RequestKeyTaken
from longtalk.turn.engine import TurnArguments
from longtalk.turn.message import ParsedMessage
from longtalk.turn.runner import AsyncTurnRunner
from longtalk.turn.stream import AsyncStream

OnBusy: TypeAlias = Literal["reject", "wait", "fork"]


class ResumeArguments(TypedDict, total=False):
    """The arguments of a turn without a new message. They mean the same as for `send`."""

    system: str | None
    instruction: str | None
    tools: Iterable[Any] | None
    options: Mapping[str, Any] | None
    max_rounds: int
    output: Any
    key: str | None
    on_busy: OnBusy


class SendArguments(ResumeArguments, total=False):
    """The arguments of a turn besides its message. They mean the same as for `send`."""

    brief: Mapping[str, Any] | None
    meta: Mapping[str, Any] | None


class TurnRequest(TurnArguments, frozen=True, kw_only=True):
    """The arguments that a caller passes for one turn on a stored conversation."""

    key: str | None = None
    meta: Mapping[str, Any] | None = None
    on_busy: OnBusy = "reject"
    after: str | None = None
    """The turn that this one follows, on a fork unless it is the last turn of the branch; None follows any turn."""
    edits: str | None = None
    """The entry or turn that the message replaces, on a new branch, as in `AsyncConversation.edit`."""
    regenerates: str | None = None
    """The turn whose message is answered again, on a new branch, as in `AsyncConversation.regenerate`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.on_busy not in ("reject", "wait", "fork"):
            raise InputError(f"`on_busy` must be 'reject', 'wait' or 'fork', not {self.on_busy!r}.")
        if sum(each is not None for each in (self.after, self.edits, self.regenerates)) > 1:
            raise InputError("Only one of `after`, `edits` and `regenerates` can be given.")
        if self.regenerates is not None and self.message is not None:
            raise InputError("With `regenerates`, leave the message out: that of the turn is answered again.")
        if self.key is not None and not (isinstance(self.key, str) and self.key):
            raise InputError(f"`key` must be a non-empty string, not {self.key!r}.")
        if self.meta is not None:
            check_meta(self.meta)

    def to_keyed_request(self) -> KeyedRequest | None:
        """Return the key with a digest of the message, or None if the caller passed no key."""
        if self.key is None:
            return None
        try:
            message = self.message.to_signature() if isinstance(self.message, ParsedMessage) else self.message
            body = json_bytes.encode(message)
        except (TypeError, ValueError, RecursionError) as problem:
            raise InputError(f"A part of the message can't be written as JSON: {problem}.") from None
        return KeyedRequest(self.key, hashlib.sha256(body).hexdigest())


StartedTurn: TypeAlias = AsyncTurnRunner[StoredReply] | StoredReply
"""A turn that is ready to run, or the reply of a turn that was run before."""


class AsyncStoredStream(AsyncStream[StoredReply]):
    """A stream of a turn on a stored conversation. The turn begins when the first event is read."""

    def __init__(self, begin: Callable[[], Awaitable[StartedTurn]], *, stream: bool, announce: bool = False) -> None:
        self._prepare(self._play(begin, stream=stream, announce=announce))

    async def _play(
        self, begin: Callable[[], Awaitable[StartedTurn]], *, stream: bool, announce: bool
    ) -> AsyncGenerator[Event, None]:
        while True:
            started = await begin()
            if isinstance(started, StoredReply):
                if announce:
                    yield Started(started.turn_id, started.branch, started._draft.turn.started)
                if started.text:
                    yield Text(started.text)
                for call in started.calls:
                    yield ToolCall(call.id, call.name, call.arguments)
                yield Done(started)
                return
            self._runner = started
            events = started.events(stream=stream, announce=announce)
            try:
                async for event in events:
                    yield event
            except (HeadMoved, RequestKeyTaken):
                # Another writer was faster, and this turn has not started yet, so begin again.
                self._runner = None
                continue
            finally:
                await run_shielded(events.aclose)
            return


def follows(stored: AsyncBranch, head: BranchHead | None, turn: str) -> bool:
    """Return True if the next turn on a branch would directly follow this turn."""
    return head is not None and head.turn is not None and head.turn.id == turn and stored.is_free(head)


def turn_of(entry: str | None) -> str:
    """Return the id of the turn that an entry belongs to, which is the first part of the entry's id."""
    return (entry or "").rpartition("-")[0]
