"""Conversation: turns on a conversation in a store.

The user's message is stored before the model is called, each tool result when it arrives, and the answer with its usage
and records at the end. The process that runs a turn holds a lease on the branch. If the process dies, the next turn
marks the unfinished turn as interrupted and continues. An answer that comes too late, because another process has taken
over, is stored on a separate branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Unpack

import msgspec

from longtalk._util.checks import check_id, check_meta, check_name
from longtalk._util.concurrency import Jobs
from longtalk.archive.archive import AsyncArchive
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
    wait_for_turn,
)
from longtalk.branches.rewind import rewind_branch
from longtalk.branches.turn_writer import AsyncTurnWriter
from longtalk.conversation.brief import AsyncTalkBrief
from longtalk.conversation.marks import AsyncMarks
from longtalk.conversation.privacy import AsyncPrivacy, check_private
from longtalk.conversation.reading import AsyncReading
from longtalk.conversation.remembered import AsyncRemembered
from longtalk.conversation.replay import replay_turn
from longtalk.conversation.request import (
    AsyncStoredStream,
    OnBusy,
    ResumeArguments,
    SendArguments,
    StartedTurn,
    TurnRequest,
    follows,
    turn_of,
)
from longtalk.conversation.session import AsyncBranchSession
from longtalk.errors import Busy, InputError, KeyReused
from longtalk.notices import Notice
from longtalk.observation import OnEvent
from longtalk.policies import KeepAll, Policy
from longtalk.providers.base import AsyncProvider
from longtalk.reply import StoredReply
from longtalk.stores.base import MAIN, KeyedTurn, Store
from longtalk.tokens import Counter
from longtalk.transcript.transcript import Transcript, now
from longtalk.transfer.append import NativeMessages, append_messages, read_messages
from longtalk.turn.draft import add_event
from longtalk.turn.engine import AsyncEngine
from longtalk.turn.message import Message
from longtalk.turn.model_calls import MAX_RETRIES
from longtalk.turn.runner import AsyncTurnRunner
from longtalk.turn.stream import AsyncStream
from longtalk.wires.neutral import event


class AsyncConversation(AsyncMarks, AsyncPrivacy, AsyncRemembered, AsyncReading):
    """One conversation in a store, and the model that answers in it.

    `owner` is the owner of the conversation: two owners can use the same id for different conversations. `store` is one
    of `longtalk.stores`; by default, it is a SQLite file in the user's data folder. With `create=False`, a conversation
    that does not exist raises `NotFound` when it is first used. With `keep_preamble=False`, the store keeps only the
    digest and the length of system texts. A `private` conversation adds nothing to the owner's profile and uses neither
    it nor the owner's other conversations; None leaves that as it is. The other arguments are those of `AsyncChat`.
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
        private: bool | None = None,
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
        keep_preamble: bool = True,
    ) -> None:
        check_id(id)
        check_name(branch, "branch")
        if private is not None:
            check_private(private)
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
            keep_preamble=keep_preamble,
        )
        self._stored = AsyncBranch(self._archive.store, owner, id, branch, policy, create=create)
        self._private = private
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
        """Run a turn on the stored conversation. For arguments that are not described here, see `AsyncChat.send`.

        A repeated `key` never makes a second turn: if the first turn is complete, its reply is returned again; if it
        was cut off, it is continued. `meta` is the app's own data about this message. `on_busy` says what to do while
        another turn is running: "reject" raises `Busy`, "wait" waits, and "fork" runs the turn on a new branch.
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
        """Continue a turn that was cut off, or answer messages that were added. The arguments are those of `send`."""
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
        """Run a turn as a stream of events, the last of which is `Done(reply)`. The arguments are those of `send`."""
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

    def start(self, given: TurnRequest) -> AsyncStream[StoredReply]:
        """Run the turn that a request describes, as a stream whose first event is `Started`."""
        return AsyncStoredStream(lambda: self._begin(given), stream=True, announce=True)

    async def note(self, text: str, *, source: str = "app", meta: Mapping[str, Any] | None = None) -> str:
        """Add an event without a model call, after waiting for a running turn. Return the id of its entry."""
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
        """Add messages of any role without a model call, as if they had been said. Return the ids of their entries.

        The messages are those of `AsyncChat.append`. In a new conversation, they are its beginning. If a turn is
        running, wait for its end.
        """
        new = read_messages(messages, self._engine.provider.wire)
        counter = self._engine.counter
        added = await append_turns(self._stored, lambda before: append_messages(before, new, counter))
        return [entry.id for entry in added]

    async def _play(self, given: TurnRequest) -> StoredReply:
        """Run a turn to its end and return the reply."""
        events = AsyncStoredStream(lambda: self._begin(given), stream=False)
        # Close the stream, whatever happens between two events.
        async with events:
            async for _ in events:
                pass
        return events.reply

    async def _begin(self, given: TurnRequest) -> StartedTurn:
        """Return a turn that is ready to run, or the reply of an earlier turn with the same key."""
        request = given.to_keyed_request()
        while True:
            keyed: KeyedTurn | None = (
                await self._stored.call(self._stored.store.keyed_turn, request.key) if request else None
            )
            if keyed is not None:
                # After a redaction, the store no longer knows the original request.
                if keyed.request.body and keyed.request != request:
                    raise KeyReused(
                        f"The key {keyed.request.key!r} was already used for a different message: use a new key."
                    )
                if keyed.turn.status == "complete":
                    return await replay_turn(self._stored, self._engine, keyed, given)
                # The cached branch may be older than the turn.
                self._stored.forget()
            head, transcript = await self._stored.load()
            if keyed is not None and (head is None or turn_of(head.entry) != keyed.turn.id):
                return await self._begin_on(self._open_branch(await branch_to_go_on(self._stored, keyed)), given)
            if head is None:
                await check_new(self._stored)
            if await self._follow_privacy(transcript, is_new=head is None):
                continue
            if keyed is None and given.edits is not None:
                branch = self._open_branch(await branch_before(self._stored, given.edits))
                return await branch._begin(msgspec.structs.replace(given, edits=None))
            if keyed is None and given.regenerates is not None:
                branch = self._open_branch(await branch_unanswered(self._stored, given.regenerates))
                return await branch._begin(msgspec.structs.replace(given, regenerates=None))
            if given.after is not None and keyed is None and not follows(self._stored, head, given.after):
                branch = await self.fork(given.after)
                return await self._begin_on(branch, msgspec.structs.replace(given, after=None))
            if not self._stored.is_free(head):
                self._stored.forget()
                if given.on_busy == "wait":
                    await wait_for_turn(self._stored)
                    continue
                if given.on_busy == "fork" and keyed is None:
                    return await self._begin_on(await self.fork(), given)
                raise Busy(
                    f"Another turn is running on {self.id!r}. Try again later, or set `on_busy` to 'wait' or 'fork'.",
                    until=head.lease.until if head is not None and head.lease is not None else 0,
                )
            if keyed is not None:
                transcript = transcript.add(turn=msgspec.structs.replace(keyed.turn, status="running"))
            new = keyed is None
            transcript = await self._add_profile(transcript)
            writer = AsyncTurnWriter(
                self._stored, head, transcript, request=request if new else None, meta=given.meta if new else None
            )
            session = AsyncBranchSession(self._stored, writer, self._jobs)
            resumed = given if new else msgspec.structs.replace(given, message=None, brief=None)
            return self._engine.begin(session, self._mark_private(transcript, is_new=head is None), resumed)

    async def _begin_on(self, other: AsyncConversation, given: TurnRequest) -> StartedTurn:
        """Begin a turn on another branch, with a notice that names the branch."""
        started = await other._begin(given)
        if isinstance(started, AsyncTurnRunner) and all(notice.kind != "branched" for notice in started.draft.notices):
            text = (
                f"Another turn is using the branch {self.branch!r}, so this answer is on the branch {other.branch!r}."
            )
            started.draft = started.draft.notice(Notice("branched", text))
        return started

    # Branches

    async def fork(self, at: str | None = None, *, name: str | None = None) -> AsyncConversation:
        """Create a branch that ends after the entry or turn with the id `at`, by default at the end of this branch."""
        return self._open_branch(await fork_branch(self._stored, at, name=name))

    async def edit(
        self, entry: str, message: Message, **arguments: Unpack[SendArguments]
    ) -> tuple[AsyncConversation, StoredReply]:
        """Create a branch on which another message replaces an earlier one. Return it, and the reply to the message.

        The other arguments are those of `send`.
        """
        given = TurnRequest(message=message, **arguments)
        branch = self._open_branch(await branch_before(self._stored, entry))
        return branch, await branch._play(given)

    async def regenerate(
        self, turn: str | None = None, **arguments: Unpack[ResumeArguments]
    ) -> tuple[AsyncConversation, StoredReply]:
        """Answer the last message, or the message of a turn, again. Return a new branch, and the reply on it.

        The other arguments are those of `resume`.
        """
        given = TurnRequest(message=None, **arguments)
        branch = self._open_branch(await branch_unanswered(self._stored, turn))
        return branch, await branch._play(given)

    async def rewind(self, to: str) -> str:
        """Cut this branch after an entry. Return the name of a new branch that keeps the entries cut off."""
        return await rewind_branch(self._stored, to)

    async def branches(self) -> list[str]:
        """Return the names of all branches."""
        return await list_branch_names(self._stored)

    # The brief, and the end

    @property
    def brief(self) -> AsyncTalkBrief:
        """The brief, to be read and changed. Raise `InputError` if the policy keeps no brief."""
        return AsyncTalkBrief(self._stored, self._engine.brief, self._engine.counter)

    async def aclose(self) -> None:
        """Wait for background summaries, and close the provider's connections. The store stays open."""
        await self._jobs.wait()
        await self._engine.aclose()

    async def __aenter__(self) -> AsyncConversation:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _open_branch(self, branch: AsyncBranch) -> AsyncConversation:
        """Return a conversation object for another branch."""
        other = object.__new__(type(self))
        other._engine, other._archive, other._jobs = self._engine, self._archive, self._jobs
        other._stored, other._private = branch, self._private
        return other
