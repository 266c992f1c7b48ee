"""Conversation: a turn on a state that a store holds.

The user's message is in the store before the model is called, each tool result as it arrives, and the answer with its
usage and records at the end. Whoever runs a turn holds a lease on the branch; when a process dies, the next turn finds
what it left, marks it as interrupted and goes on. An answer that comes too late, since somebody else has taken over,
lands on a branch of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import msgspec

from longtalk import _json
from longtalk._io import in_thread, shielded, sleep
from longtalk.chat import AsyncChat, AsyncStream
from longtalk.draft import Draft, Message, interrupted, noted
from longtalk.errors import Busy, InputError, KeyReused
from longtalk.events import Done, Event, Notice, Text
from longtalk.pack import Pack
from longtalk.policies import KeepAll, Policy
from longtalk.providers.base import AsyncProvider
from longtalk.reply import Reply
from longtalk.stored import AsyncStored, AsyncWriter
from longtalk.stores.base import MAIN, Asked, Commit, Head, KeyTaken, Moved, Request, Store, linked
from longtalk.tokens import Counter
from longtalk.transcript import Entry, Transcript, Turns, new_id, now
from longtalk.turn import AsyncLoop
from longtalk.wires.base import Answer, event, text_of

if TYPE_CHECKING:
    import httpx2

OnBusy: TypeAlias = Literal["reject", "wait", "fork"]
WAIT = 0.05
"""Seconds between two looks at a branch that is busy."""


class Said(msgspec.Struct, frozen=True):
    """An entry of a conversation, for reading."""

    id: str
    turn: str
    role: str
    text: str
    at: int
    native: bytes
    """Its exact JSON."""


class AsyncConversation:
    """One conversation in a store, and the model that it is held with.

    `owner` is whose it is: the same id of another owner is another conversation. `store` is one of `longtalk.stores`;
    without one, a SQLite file in the user's data folder. The other arguments are those of `AsyncChat`.
    """

    def __init__(
        self,
        id: str,  # noqa: A002
        *,
        model: str | AsyncProvider,
        owner: str = "",
        store: Store | None = None,
        branch: str = MAIN,
        policy: Policy = KeepAll(),  # noqa: B008
        tools: Iterable[Any] = (),
        options: Mapping[str, Any] | None = None,
        counter: Counter | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        client: httpx2.AsyncClient | None = None,
    ) -> None:
        for name, text in (("id", id), ("owner", owner), ("branch", branch)):
            if not isinstance(text, str) or (not text and name != "owner"):
                raise InputError(f"The {name} of a conversation is text, not {text!r}.")
        self._chat = AsyncChat(
            model,
            policy=policy,
            tools=tools,
            options=options,
            counter=counter,
            base_url=base_url,
            api_key=api_key,
            client=client,
        )
        self._stored = AsyncStored(_default() if store is None else store, owner, id, branch, policy)

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
        key: str | None = None,
        meta: Mapping[str, Any] | None = None,
        on_busy: OnBusy = "reject",
    ) -> Reply:
        """One turn. As `AsyncChat.send`, on the state that the store holds.

        The same `key` never makes a second turn: if the first one is complete its reply comes again, if it was cut off
        it goes on. `meta` is the app's own data on this message. `on_busy` says what to do while somebody else runs a
        turn: "reject" raises `Busy`, "wait" waits, "fork" makes the turn on a branch of its own.
        """
        arguments = _Arguments(message, system, instruction, tools, options, max_rounds, key, meta, on_busy)
        events = AsyncStoredStream(lambda: self._begin(arguments), stream=False)
        async for _ in events:
            pass
        return events.reply

    def stream(
        self,
        message: Message | None,
        *,
        system: str | None = None,
        instruction: str | None = None,
        tools: Iterable[Any] | None = None,
        options: Mapping[str, Any] | None = None,
        max_rounds: int = 10,
        key: str | None = None,
        meta: Mapping[str, Any] | None = None,
        on_busy: OnBusy = "reject",
    ) -> AsyncStream:
        """One turn as it happens; the last event is `Done(reply)`. As `send` otherwise."""
        arguments = _Arguments(message, system, instruction, tools, options, max_rounds, key, meta, on_busy)
        return AsyncStoredStream(lambda: self._begin(arguments), stream=True)

    async def note(self, text: str, *, source: str = "app", meta: Mapping[str, Any] | None = None) -> str:
        """Add an event, without a model call; returns its id. While a turn runs, it waits for the turn's end."""
        for what, value in (("event", text), ("source", source)):
            if not isinstance(value, str) or not value.strip():
                raise InputError(f"The {what} of a note is text that says something, not {value!r}.")

        def change(transcript: Transcript) -> Transcript:
            said = event(text, source=source, at=now())
            return noted(transcript, said, self._chat.provider.wire, self._chat.counter)

        return (await self._change(change, meta=meta))[-1].id

    async def _begin(self, given: _Arguments) -> AsyncLoop | Reply:
        """A turn that is ready to be played, or the reply of one that was."""
        request = given.request()
        while True:
            asked: Asked | None = await self._stored.call(self._stored.store.asked, request.key) if request else None
            if asked is not None:
                if asked.request != request:
                    raise KeyReused(f"The key {asked.request.key!r} was used before, for something else.")
                if asked.turn.status == "complete":
                    return await self._replay(asked)
                # What was read before may be older than the turn.
                self._stored.forget()
            head, transcript = await self._stored.load()
            if asked is not None and (head is None or _turn(head.entry) != asked.turn.id):
                return await self._begin_on(await self._branch_of(asked), given)
            if not self._stored.is_free(head):
                self._stored.forget()
                if given.on_busy == "wait":
                    await sleep(WAIT)
                    continue
                if given.on_busy == "fork" and asked is None:
                    return await self._begin_on(await self.fork(), given)
                until = head.lease.until if head is not None and head.lease is not None else 0
                raise Busy(f"Somebody else runs a turn on {self.id!r}: try again, or say `on_busy`.", until=until)
            if asked is not None:
                transcript = transcript.add(turn=msgspec.structs.replace(asked.turn, status="running"))
            new = asked is None
            writer = AsyncWriter(
                self._stored, head, transcript, request=request if new else None, meta=given.meta if new else None
            )
            return self._chat.turn_on(
                transcript,
                given.message if new else None,
                system=given.system,
                instruction=given.instruction,
                tools=given.tools,
                options=given.options,
                max_rounds=given.max_rounds,
                encode=_no_state,
                save=writer.save,
            )

    async def _begin_on(self, other: AsyncConversation, given: _Arguments) -> AsyncLoop | Reply:
        """Begin it on another branch, and say so."""
        begun = await other._begin(given)
        if isinstance(begun, AsyncLoop) and all(notice.kind != "branched" for notice in begun.draft.notices):
            text = f"Others go on with the branch {self.branch!r}. This answer is on the branch {other.branch!r}."
            begun.draft = begun.draft.notice(Notice("branched", text))
        return begun

    async def _replay(self, asked: Asked) -> Reply:
        """The reply of a turn that is complete."""
        # One that was cut off may have gone on elsewhere.
        entries: list[Entry] = []
        for name in await self.branches():
            if name == asked.branch or name.startswith(f"{asked.branch}~{asked.turn.id}"):
                found = await self._of_turn(name, asked)
                entries = found if len(found) > len(entries) else entries
        wire = self._chat.provider.wire
        said = [entry.native for entry in entries if entry.role == "assistant"]
        answer = Answer(said[-1], wire.view(said[-1]), asked.turn.finish) if said else None
        transcript = Transcript(fresh=tuple(entries), turns=Turns(fresh=(asked.turn,)))
        return Reply(Draft(wire=wire, transcript=transcript, turn=asked.turn, answer=answer), _no_state)

    async def _of_turn(self, branch: str, asked: Asked) -> list[Entry]:
        """The entries of a turn, as a branch has them."""
        pack: Pack = await self._stored.call(self._stored.store.read, branch, asked.place, asked.place + 10_000)
        entries = [pack.entry(i) for i in range(len(pack))]
        return list(takewhile(lambda entry: entry.turn == asked.turn.id, entries))

    # Branches

    async def fork(self, at: str | None = None, *, name: str | None = None) -> AsyncConversation:
        """A new branch that begins with this one's entries, up to the one with that id (or the last of that turn)."""
        head = await self._head()
        if head is None:
            raise InputError(f"There is nothing to fork: {self.id!r} has no branch {self.branch!r}.")
        if at is not None:
            return await self._branch(name, (await self._find(at))[1])
        size = head.size
        if head.turn is not None and not self._stored.is_free(head):
            # A turn that somebody runs is not there yet.
            said = await self._entries()
            size = next((i for i, entry in enumerate(said) if entry.turn == head.turn.id), size)
        return await self._branch(name, size)

    async def edit(self, entry: str, message: Message, **arguments: Any) -> tuple[AsyncConversation, Reply]:
        """Say something else in the place of an earlier message: a new branch, and the reply on it."""
        first, _ = await self._find(entry)
        branch = await self._branch(None, first)
        return branch, await branch.send(message, **arguments)

    async def regenerate(self, turn: str | None = None, **arguments: Any) -> tuple[AsyncConversation, Reply]:
        """Another answer to the last message, or to that of a turn: a new branch, and the reply on it."""
        said = await self._entries()
        turn = turn or next((entry.turn for entry in reversed(said) if entry.role == "user"), "")
        asked = [i for i, entry in enumerate(said) if entry.turn == turn and entry.role == "user"]
        if not asked:
            raise InputError(f"There is no message of a user in the turn {turn!r}.")
        branch = await self._branch(None, asked[-1] + 1)
        head, transcript = await branch._stored.load()
        if head is not None and head.turn is not None and head.turn.status == "running":
            # The new answer is a turn of its own, also when the first one was cut off.
            branch._stored.remember(head, interrupted(transcript))
        return branch, await branch.send(None, **arguments)

    async def rewind(self, to: str) -> str:
        """Go on from an earlier entry. What came after it stays, on a branch whose name is returned."""
        while True:
            self._stored.forget()
            head, _ = await self._stored.load()
            _, size = await self._find(to)
            if head is None or not self._stored.is_free(head):
                await sleep(WAIT)
                continue
            kept = await self._branch(None, head.size)
            commit = Commit(branch=self.branch, expect=head.revision, cut=size, at=now())
            try:
                await in_thread(partial(self._stored.write, commit))
            except Moved:
                continue
            self._stored.forget()
            return kept.branch

    async def branches(self) -> list[str]:
        """The names of all branches."""
        found: list[Head] = await self._stored.call(self._stored.store.branches)
        return [head.branch for head in found]

    async def history(self) -> list[Said]:
        """All that was said on this branch."""
        wire = self._chat.provider.wire
        return [
            Said(entry.id, entry.turn, entry.role, text_of(wire, entry), entry.at, entry.native)
            for entry in await self._entries()
        ]

    async def verify(self) -> None:
        """Raise `InputError` unless each entry follows its parent, can be read, and each call has its result."""
        said = await self._entries()
        wire = self._chat.provider.wire
        try:
            linked(None, said)
            waiting: list[str] = []
            for entry in said:
                if entry.wire != wire.name:
                    continue
                seen = wire.view(entry.native)
                if seen.call_id and seen.call_id not in waiting:
                    raise ValueError(f"{entry.id!r} is the result of a call that nobody made")
                if seen.call_id:
                    waiting.remove(seen.call_id)
                elif waiting:
                    raise ValueError(f"{entry.id!r} comes before the result of {waiting[0]!r}")
                waiting += [call.id for call in seen.calls]
        except ValueError as problem:
            raise InputError(f"The conversation {self.id!r} is damaged: {problem}.") from None

    async def aclose(self) -> None:
        """Let go of the connections to the provider. The store is its own."""
        await self._chat.aclose()

    async def __aenter__(self) -> AsyncConversation:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _branch(self, name: str | None, size: int) -> AsyncConversation:
        name = name or f"{self.branch}-{new_id()[:6]}"
        commit = Commit(branch=name, expect=0, source=(self.branch, size), at=now())
        try:
            await self._stored.call(self._stored.store.write, commit)
        except Moved:
            raise InputError(f"There is a branch {name!r} already.") from None
        return self._on(name)

    async def _branch_of(self, asked: Asked) -> AsyncConversation:
        """Where a turn that was cut off goes on, when it is not at the end of this branch."""
        if self.branch != asked.branch and not self.branch.startswith(f"{asked.branch}~{asked.turn.id}"):
            return self._on(asked.branch)
        # Others have gone on behind it.
        name = f"{self.branch}~{asked.turn.id}"
        count = len(await self._of_turn(self.branch, asked))
        # It may be there, since an earlier try was cut off too.
        with contextlib.suppress(InputError):
            return await self._branch(name, asked.place + count)
        return self._on(name)

    def _on(self, branch: str) -> AsyncConversation:
        other = object.__new__(type(self))
        other._chat, other._stored = self._chat, self._stored.on(branch)
        return other

    async def _head(self) -> Head | None:
        head: Head | None = await self._stored.call(self._stored.store.head, self.branch)
        return head

    async def _entries(self) -> list[Entry]:
        head = await self._head()
        if head is None:
            return []
        pack = await self._stored.call(self._stored.store.read, self.branch, 0, head.size)
        return [pack.entry(i) for i in range(len(pack))]

    async def _find(self, name: str) -> tuple[int, int]:
        """Where an entry or a turn begins on this branch, and where it ends."""
        found = [i for i, entry in enumerate(await self._entries()) if name in (entry.id, entry.turn)]
        if not found:
            raise InputError(f"There is no entry or turn {name!r} on the branch {self.branch!r} of {self.id!r}.")
        return found[0], found[-1] + 1

    async def _change(
        self, change: Callable[[Transcript], Transcript], *, meta: Mapping[str, Any] | None = None
    ) -> Sequence[Entry]:
        """Change the branch without a turn, once nobody else runs one. `meta` is for the last entry."""
        while True:
            head, before = await self._stored.load()
            if not self._stored.is_free(head):
                self._stored.forget()
                await sleep(WAIT)
                continue
            after = change(before)
            new = after.fresh[len(before.fresh) :]
            turn = after.turns[-1] if len(after.turns) and after.turns != before.turns else None
            commits = [Commit(branch=self.branch, expect=0, entries=new[-1:], at=now(), entry_meta=meta)]
            if turn is not None or len(new) > 1:
                # What closes an earlier turn goes first.
                commits.insert(0, Commit(branch=self.branch, expect=0, entries=new[:-1], turn=turn, at=now()))
            try:
                for commit in commits:
                    commit = msgspec.structs.replace(commit, expect=head.revision if head else 0)
                    head = await in_thread(partial(self._stored.write, commit))
            except Moved:
                continue
            if head is not None:
                self._stored.remember(head, after)
            return new


class AsyncStoredStream(AsyncStream):
    """A turn on a store, as it happens. It begins when it is first asked for an event."""

    def __init__(self, begin: Callable[[], Awaitable[AsyncLoop | Reply]], *, stream: bool) -> None:
        self._prepare(self._play(begin, stream=stream))

    async def _play(
        self, begin: Callable[[], Awaitable[AsyncLoop | Reply]], *, stream: bool
    ) -> AsyncGenerator[Event, None]:
        while True:
            begun = await begin()
            if isinstance(begun, Reply):
                yield Text(begun.text)
                yield Done(begun)
                return
            self._loop = begun
            events = begun.events(stream=stream)
            try:
                async for happened in events:
                    yield happened
            except (Moved, KeyTaken):
                # Somebody was faster, and nothing has happened here yet: look again.
                self._loop = None
                continue
            finally:
                await shielded(events.aclose)
            return

    def _fail(self, problem: BaseException) -> None:
        """End the turn; the error carries what there is of it, and no state."""
        failed = isinstance(problem, Exception)
        self._end("failed" if failed else "interrupted", error=f"{type(problem).__name__}: {problem}" if failed else "")
        if self._reply is not None:
            with contextlib.suppress(AttributeError):
                problem.partial = self._reply if self._reply.worked else None  # type: ignore[attr-defined]


class _Arguments(msgspec.Struct, frozen=True):
    """What a turn is asked for with."""

    message: Any
    system: str | None
    instruction: str | None
    tools: Any
    options: Mapping[str, Any] | None
    max_rounds: int
    key: str | None
    meta: Mapping[str, Any] | None
    on_busy: OnBusy

    def __post_init__(self) -> None:
        if self.on_busy not in ("reject", "wait", "fork"):
            raise InputError(f"`on_busy` is 'reject', 'wait' or 'fork', not {self.on_busy!r}.")
        if self.key is not None and not (isinstance(self.key, str) and self.key):
            raise InputError(f"`key` is text of your own, not {self.key!r}.")

    def request(self) -> Request | None:
        """The key, with a digest of what was said."""
        if self.key is None:
            return None
        try:
            body = _json.encode(self.message)
        except (TypeError, ValueError, RecursionError) as problem:
            raise InputError(f"A part of the message can't be written as JSON: {problem}.") from None
        return Request(self.key, hashlib.sha256(body).hexdigest())


def _turn(entry: str | None) -> str:
    """The turn that an entry is of, by its id."""
    return (entry or "").rpartition("-")[0]


def _no_state(_: Transcript) -> NoReturn:
    raise InputError("This conversation is in a store, and has no state to hand out.")


def _default() -> Store:
    from longtalk.stores import default

    return default()
