"""Conversation: turns on a conversation that a store holds.

The user's message is stored before the model is called, each tool result as it arrives, and the answer with its usage
and records at the end. The process that runs a turn holds a lease on the branch. If the process dies, the next turn
marks what it left as interrupted and continues. An answer that comes too late, because another process has taken over,
is stored on a branch of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Literal, Unpack

import msgspec

from longtalk._util.checks import check_meta, check_name
from longtalk._util.concurrency import Jobs, call_store
from longtalk.archive.archive import AsyncArchive, Format
from longtalk.archive.history import HistoryEntry
from longtalk.archive.metrics import Metrics
from longtalk.branches.append import append_turns
from longtalk.branches.branch import AsyncBranch
from longtalk.branches.operations import (
    branch_before,
    branch_to_go_on,
    branch_unanswered,
    change_branch,
    check_new,
    fork_branch,
    list_branch_names,
    rewind_branch,
    wait_for_turn,
)
from longtalk.branches.turn_writer import AsyncTurnWriter
from longtalk.context.costs import CostReceipt
from longtalk.conversation.brief import AsyncTalkBrief
from longtalk.conversation.marks import AsyncMarks
from longtalk.conversation.replay import replay_turn
from longtalk.conversation.request import (
    AsyncStoredStream,
    OnBusy,
    ResumeArguments,
    SendArguments,
    StartedTurn,
    TurnRequest,
    turn_of,
)
from longtalk.conversation.session import AsyncBranchSession
from longtalk.errors import Busy, InputError, KeyReused
from longtalk.notices import Notice
from longtalk.observation import OnEvent
from longtalk.policies import KeepAll, Policy
from longtalk.policies.base import find_brief_keeper
from longtalk.providers.base import AsyncProvider
from longtalk.reply import StoredReply
from longtalk.stores.base import MAIN, Commit, HeadMoved, KeyedTurn, Store
from longtalk.tokens import Counter
from longtalk.transcript.manifest import Run
from longtalk.transcript.transcript import Transcript, now
from longtalk.transfer.append import NativeMessages, append_messages, read_messages
from longtalk.turn.draft import add_event
from longtalk.turn.engine import AsyncEngine
from longtalk.turn.message import Message
from longtalk.turn.runner import MAX_RETRIES, AsyncTurnRunner
from longtalk.turn.stream import AsyncStream
from longtalk.wires.neutral import event


class AsyncConversation(AsyncMarks):
    """One conversation in a store, and the model that it is held with.

    `owner` is whose it is: the same id of another owner is another conversation. `store` is one of `longtalk.stores`;
    without one, a SQLite file in the user's data folder. With `create=False`, one that the owner has not begun raises
    `NotFound` when it is first used. The other arguments are those of `AsyncChat`.
    """

    def __init__(
        self,
        id: str,  # noqa: A002
        *,
        model: str | AsyncProvider,
        owner: str = "",
        store: Store | None = None,
        branch: str = MAIN,
        create: bool = True,
        policy: Policy = KeepAll(),  # noqa: B008
        tools: Iterable[Any] = (),
        options: Mapping[str, Any] | None = None,
        counter: Counter | None = None,
        window: int | None = None,
        on_switch: Literal["convert", "raise"] = "convert",
        base_url: str | None = None,
        api_key: str | None = None,
        client: Any = None,
        timeout: float | None = None,
        max_retries: int = MAX_RETRIES,
        on_event: OnEvent | None = None,
    ) -> None:
        check_name(id, "id")
        check_name(branch, "branch")
        self._archive = AsyncArchive(store, owner=owner)
        self._engine = AsyncEngine(
            model,
            policy=policy,
            tools=tools,
            options=options,
            counter=counter,
            window=window,
            on_switch=on_switch,
            base_url=base_url,
            api_key=api_key,
            client=client,
            timeout=timeout,
            max_retries=max_retries,
            on_event=on_event,
        )
        self._stored = AsyncBranch(self._archive.store, owner, id, branch, policy, create=create)
        self._jobs = Jobs()

    def __repr__(self) -> str:
        whose = f" of {self.owner!r}" if self.owner else ""
        return f"<{type(self).__name__} {self.id!r}{whose} on {self.branch!r}, with {self._engine.provider.label}>"

    @property
    def id(self) -> str:
        return self._stored.conversation

    @property
    def owner(self) -> str:
        return self._stored.owner

    @property
    def branch(self) -> str:
        return self._stored.branch

    # Turns

    async def send(
        self,
        message: Message | None,
        *,
        system: str | None = None,
        instruction: str | None = None,
        tools: Iterable[Any] | None = None,
        options: Mapping[str, Any] | None = None,
        max_rounds: int = 10,
        brief: Mapping[str, Any] | None = None,
        output: Any = None,
        key: str | None = None,
        meta: Mapping[str, Any] | None = None,
        on_busy: OnBusy = "reject",
    ) -> StoredReply:
        """Run a turn, as `AsyncChat.send` does, on the stored conversation.

        The same `key` never makes a second turn: if the first one is complete its reply comes again, if it was cut off
        it goes on. `meta` is the app's own data on this message. `on_busy` says what to do while another turn
        runs: "reject" raises `Busy`, "wait" waits, "fork" makes the turn on a branch of its own.
        """
        given = TurnRequest(
            message=message,
            system=system,
            instruction=instruction,
            tools=tools,
            options=options,
            max_rounds=max_rounds,
            brief=brief,
            output=output,
            key=key,
            meta=meta,
            on_busy=on_busy,
        )
        return await self._play(given)

    async def resume(self, **arguments: Unpack[ResumeArguments]) -> StoredReply:
        """Go on with a turn that was cut off, or answer what was added without an answer. As `send` otherwise."""
        return await self._play(TurnRequest(message=None, **arguments))

    def stream(
        self,
        message: Message | None,
        *,
        system: str | None = None,
        instruction: str | None = None,
        tools: Iterable[Any] | None = None,
        options: Mapping[str, Any] | None = None,
        max_rounds: int = 10,
        brief: Mapping[str, Any] | None = None,
        output: Any = None,
        key: str | None = None,
        meta: Mapping[str, Any] | None = None,
        on_busy: OnBusy = "reject",
    ) -> AsyncStream[StoredReply]:
        """Run a turn as a stream; the last event is `Done(reply)`. Otherwise as `send`."""
        given = TurnRequest(
            message=message,
            system=system,
            instruction=instruction,
            tools=tools,
            options=options,
            max_rounds=max_rounds,
            brief=brief,
            output=output,
            key=key,
            meta=meta,
            on_busy=on_busy,
        )
        return AsyncStoredStream(lambda: self._begin(given), stream=True)

    async def note(self, text: str, *, source: str = "app", meta: Mapping[str, Any] | None = None) -> str:
        """Add an event without a model call, after waiting for a turn that runs. Return the id of its entry."""
        if meta is not None:
            check_meta(meta)
        for what, value in (("event", text), ("source", source)):
            if not isinstance(value, str) or not value.strip():
                raise InputError(f"The {what} of a note must be non-empty text, not {value!r}.")

        def change(transcript: Transcript) -> Transcript:
            said = event(text, source=source, at=now())
            return add_event(transcript, said, self._engine.provider.wire, self._engine.counter)

        return (await change_branch(self._stored, change, meta=meta))[-1].id

    async def append(self, messages: NativeMessages) -> list[str]:
        """Add messages of any role, without a model call, as if they had been said; returns the ids of their entries.

        As `AsyncChat.append`. On an empty conversation they are its beginning. While a turn runs, it waits for its end.
        """
        new = read_messages(messages, self._engine.provider.wire, neutralize=find_brief_keeper(self._engine.policy))
        counter = self._engine.counter
        added = await append_turns(self._stored, lambda before: append_messages(before, new, counter))
        return [entry.id for entry in added]

    async def _play(self, given: TurnRequest) -> StoredReply:
        """Play a turn to its end."""
        events = AsyncStoredStream(lambda: self._begin(given), stream=False)
        # Closed, whatever happens between two events.
        async with events:
            async for _ in events:
                pass
        return events.reply

    async def _begin(self, given: TurnRequest) -> StartedTurn:
        """Return a turn that is ready to be played, or the reply of the same request if it was played before."""
        request = given.to_keyed_request()
        while True:
            keyed: KeyedTurn | None = (
                await self._stored.call(self._stored.store.keyed_turn, request.key) if request else None
            )
            if keyed is not None:
                # After a redaction the store does not know any more what the request was.
                if keyed.request.body and keyed.request != request:
                    raise KeyReused(f"The key {keyed.request.key!r} was already used for a different request.")
                if keyed.turn.status == "complete":
                    return await replay_turn(self._stored, self._engine, keyed, given)
                # What was read before may be older than the turn.
                self._stored.forget()
            head, transcript = await self._stored.load()
            if keyed is not None and (head is None or turn_of(head.entry) != keyed.turn.id):
                return await self._begin_on(self._open_branch(await branch_to_go_on(self._stored, keyed)), given)
            if head is None:
                await check_new(self._stored)
            if not self._stored.is_free(head):
                self._stored.forget()
                if given.on_busy == "wait":
                    await wait_for_turn(self._stored)
                    continue
                if given.on_busy == "fork" and keyed is None:
                    return await self._begin_on(await self.fork(), given)
                until = head.lease.until if head is not None and head.lease is not None else 0
                raise Busy(
                    f"Another turn runs on {self.id!r}. Try again later, or set `on_busy` to 'wait' or 'fork'.",
                    until=until,
                )
            if keyed is not None:
                transcript = transcript.add(turn=msgspec.structs.replace(keyed.turn, status="running"))
            new = keyed is None
            writer = AsyncTurnWriter(
                self._stored, head, transcript, request=request if new else None, meta=given.meta if new else None
            )
            session = AsyncBranchSession(self._stored, writer, self._jobs)
            resumed = given if new else msgspec.structs.replace(given, message=None, brief=None)
            return self._engine.begin(session, transcript, resumed)

    async def _begin_on(self, other: AsyncConversation, given: TurnRequest) -> StartedTurn:
        """Begin a turn on another branch, with a notice that says so."""
        started = await other._begin(given)
        if isinstance(started, AsyncTurnRunner) and all(notice.kind != "branched" for notice in started.draft.notices):
            text = f"Others go on with the branch {self.branch!r}. This answer is on the branch {other.branch!r}."
            started.draft = started.draft.notice(Notice("branched", text))
        return started

    # Branches

    async def fork(self, at: str | None = None, *, name: str | None = None) -> AsyncConversation:
        """Create a branch with this branch's entries up to the one with an id, or to the end of a turn with that id."""
        return self._open_branch(await fork_branch(self._stored, at, name=name))

    async def edit(
        self, entry: str, message: Message, **arguments: Unpack[SendArguments]
    ) -> tuple[AsyncConversation, StoredReply]:
        """Replace an earlier message: return a new branch, and the reply to the new message on it. As `send`."""
        given = TurnRequest(message=message, **arguments)
        branch = self._open_branch(await branch_before(self._stored, entry))
        return branch, await branch._play(given)

    async def regenerate(
        self, turn: str | None = None, **arguments: Unpack[ResumeArguments]
    ) -> tuple[AsyncConversation, StoredReply]:
        """Answer the last message again, or that of a turn: return a new branch, and the reply on it. As `resume`."""
        given = TurnRequest(message=None, **arguments)
        branch = self._open_branch(await branch_unanswered(self._stored, turn))
        return branch, await branch._play(given)

    async def rewind(self, to: str) -> str:
        """Continue from an earlier entry. Return the name of a new branch that keeps what came after it."""
        return await rewind_branch(self._stored, to)

    async def branches(self) -> list[str]:
        """Return the names of all branches."""
        return await list_branch_names(self._stored)

    # Reading, and what the app says of it

    @property
    def brief(self) -> AsyncTalkBrief:
        """The brief, to read and to change. Raises `InputError` if the policy keeps none."""
        return AsyncTalkBrief(self._stored, self._engine.brief, self._engine.counter)

    async def history(self, *, meta: Mapping[str, Any] | None = None) -> list[HistoryEntry]:
        """Return the entries of this branch; with `meta`, those with these values in their metadata."""
        if await self._stored.head() is None:
            await check_new(self._stored)
            return []
        return await self._archive.history(self.id, branch=self.branch, meta=meta)

    async def export(self, format: Format = "md") -> str:  # noqa: A002
        """Return the conversation as text: Markdown of this branch to read, JSON or JSONL of all branches to keep."""
        return await self._archive.export(self.id, format, branch=self.branch)

    async def manifest(self, turn: str) -> tuple[Run, ...]:
        """Return the manifest of a turn's last request: how each entry was sent, and why. Empty if it was not kept."""
        # `head` raises `NotFound` if the conversation has to exist.
        found = await self._archive.manifest(self.id, turn, branch=self.branch)
        return found if found or await self._stored.head() else ()

    async def receipts(self) -> list[CostReceipt]:
        """Return the expected costs, actual costs and savings of each epoch that began to save money."""
        return [] if await self._stored.head() is None else await self._archive.receipts(self.id, branch=self.branch)

    async def metrics(self) -> list[Metrics]:
        """Return tokens and cost of each turn of this branch, oldest first."""
        if await self._stored.head() is None:
            await check_new(self._stored)
            return []
        return await self._archive.metrics(self.id, branch=self.branch)

    async def meta(self) -> dict[str, Any]:
        """The app's own data on this conversation."""
        return {} if await self._stored.head() is None else await self._archive.meta(self.id)

    async def set_metadata(self, meta: Mapping[str, Any], *, entry: str | None = None) -> None:
        """Replace the app's own data on this conversation, or on one of its entries. It is never sent to a model."""
        check_meta(meta)
        if entry is None and await self._stored.head() is None:
            # Nothing was said yet: it begins with this.
            await check_new(self._stored)
            commit = Commit(branch=self.branch, expect=0, at=now(), meta=meta)
            with contextlib.suppress(HeadMoved):
                await call_store(self._stored.store, partial(self._stored.write, commit))
                return
        await self._archive.set_metadata(self.id, meta, entry=entry)

    async def verify(self) -> None:
        """Raise `CorruptStore` unless all is as it was written: checksums, parents, calls and their results."""
        await self._archive.verify(self.id)

    async def aclose(self) -> None:
        """Wait for a summary in the background, and close the connections. The store stays open."""
        await self._jobs.wait()
        await self._engine.aclose()

    async def __aenter__(self) -> AsyncConversation:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _open_branch(self, branch: AsyncBranch) -> AsyncConversation:
        """Return this conversation on another branch."""
        other = object.__new__(type(self))
        other._engine, other._archive, other._jobs = self._engine, self._archive, self._jobs
        other._stored = branch
        return other
