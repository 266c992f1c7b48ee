"""Conversation: a turn on a state that a store holds.

The user's message is in the store before the model is called, each tool result as it arrives, and the answer with its
usage and records at the end. Whoever runs a turn holds a lease on the branch; when a process dies, the next turn finds
what it left, marks it as interrupted and goes on. An answer that comes too late, since somebody else has taken over,
lands on a branch of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from longtalk import attempts
from longtalk._io import Jobs, in_store, shielded, sleep
from longtalk.archive import AsyncArchive, Format
from longtalk.asking import Arguments, AsyncStoredStream, OnBusy, no_state
from longtalk.attempts import Attempt
from longtalk.chat import AsyncChat, AsyncStream
from longtalk.draft import Draft, Message, interrupted, noted
from longtalk.epochs import summed_up
from longtalk.errors import Busy, InputError, KeyReused
from longtalk.events import Notice
from longtalk.metrics import Metrics
from longtalk.pack import Pack
from longtalk.plan import unpin
from longtalk.policies import KeepAll, Policy, Run
from longtalk.providers.base import AsyncProvider
from longtalk.receipts import CostReceipt
from longtalk.reply import Reply
from longtalk.said import Said, check_meta, check_name
from longtalk.sent import pins_of
from longtalk.stored import AsyncStored, AsyncWriter, placed
from longtalk.stores.base import MAIN, Asked, Commit, Head, Moved, Store
from longtalk.summarist import AsyncSummarist, Outcome
from longtalk.tokens import Counter
from longtalk.transcript import Entry, Transcript, Turn, Turns, new_id, now
from longtalk.turn import AsyncLoop
from longtalk.wires import WIRES
from longtalk.wires.base import Answer, event, view_of

if TYPE_CHECKING:
    import httpx2

STEP = 32
"""Entries of a turn that are read at once."""
WAIT = 0.05
"""Seconds between two looks at a branch that is busy."""


class AsyncStoredChat(AsyncChat):
    """A chat on what a store holds."""

    keeps = True


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
        window: int | None = None,
        on_switch: Literal["convert", "raise"] = "convert",
        base_url: str | None = None,
        api_key: str | None = None,
        client: httpx2.AsyncClient | None = None,
    ) -> None:
        check_name(id, "id")
        check_name(branch, "branch")
        self._archive = AsyncArchive(store, owner=owner)
        self._chat = AsyncStoredChat(
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
        )
        self._stored = AsyncStored(self._archive.store, owner, id, branch, policy)
        self._jobs = Jobs()

    def __repr__(self) -> str:
        whose = f" of {self.owner!r}" if self.owner else ""
        return f"<{type(self).__name__} {self.id!r}{whose} on {self.branch!r}, with {self._chat.provider.label}>"

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
        arguments = Arguments(message, system, instruction, tools, options, max_rounds, key, meta, on_busy)
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
        arguments = Arguments(message, system, instruction, tools, options, max_rounds, key, meta, on_busy)
        return AsyncStoredStream(lambda: self._begin(arguments), stream=True)

    async def note(self, text: str, *, source: str = "app", meta: Mapping[str, Any] | None = None) -> str:
        """Add an event, without a model call; returns its id. While a turn runs, it waits for the turn's end."""
        if meta is not None:
            check_meta(meta)
        for what, value in (("event", text), ("source", source)):
            if not isinstance(value, str) or not value.strip():
                raise InputError(f"The {what} of a note is text that says something, not {value!r}.")

        def change(transcript: Transcript) -> Transcript:
            said = event(text, source=source, at=now())
            return noted(transcript, said, self._chat.provider.wire, self._chat.counter)

        return (await self._change(change, meta=meta))[-1].id

    async def _begin(self, given: Arguments) -> AsyncLoop | Reply:
        """A turn that is ready to be played, or the reply of one that was."""
        request = given.request()
        while True:
            asked: Asked | None = await self._stored.call(self._stored.store.asked, request.key) if request else None
            if asked is not None:
                if asked.request != request:
                    raise KeyReused(f"The key {asked.request.key!r} was used before, for something else.")
                if asked.turn.status == "complete":
                    return await self._replay(asked, given)
                # What was read before may be older than the turn.
                self._stored.forget()
            head, transcript = await self._stored.load()
            if asked is not None and (head is None or _turn(head.entry) != asked.turn.id):
                return await self._begin_on(await self._branch_of(asked), given)
            if head is None:
                await self._check_new()
            if not self._stored.is_free(head):
                self._stored.forget()
                if given.on_busy == "wait":
                    await self._wait()
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
                encode=no_state,
                save=writer.save,
                around=writer.around,
                later=partial(self._summarise_later, writer),
            )

    def _summarise_later(self, writer: AsyncWriter, summarist: AsyncSummarist, claim: Attempt) -> None:
        # Somebody may have taken over, and then the turn is on another branch.
        self._jobs.start(partial(self._on(writer.branch)._summarise, summarist, claim))

    async def _summarise(self, summarist: AsyncSummarist, claim: Attempt) -> None:
        """Make a summary while nobody waits, and keep it if the branch still has what it is of."""

        def claimed(transcript: Transcript) -> Transcript:
            # What was deleted, redacted or cut off meanwhile needs no summary.
            if not attempts.is_claimed(transcript, claim):
                raise _NotHere
            return transcript

        def change(transcript: Transcript) -> Transcript:
            transcript = claimed(transcript)
            if made.summary is not None:
                transcript = summed_up(transcript, made.summary, made.last)
            return attempts.tried(transcript, made.problem, told=False, usage=made.usage, cost=made.cost)

        made = Outcome(problem="it was cancelled before it was there: `close` waits for it")

        async def keep() -> None:
            await in_store(self._stored.store, lambda: self._stored.attach(change))

        # Nobody is there to be told that a store has failed. The claim ends by itself.
        with contextlib.suppress(Exception):
            claimed((await self._stored.load())[1])
            try:
                made = await summarist.ask()
            finally:
                await shielded(keep)

    async def _wait(self) -> None:
        """Give who runs a turn a moment. Raises `Busy` if that is who waits here."""
        if self._stored.is_inside():
            raise Busy(f"This waits for a turn on {self.id!r} from inside one of the turn's own tools.", until=0)
        await sleep(WAIT)

    async def _check_new(self) -> None:
        """Raise `InputError` if this is a branch of a conversation that has others and not this one."""
        others = await self.branches()
        if others and self.branch not in others:
            raise InputError(
                f"{self.id!r} has no branch {self.branch!r}, but {', '.join(map(repr, others))}. `fork` makes one."
            )

    async def _begin_on(self, other: AsyncConversation, given: Arguments) -> AsyncLoop | Reply:
        """Begin it on another branch, and say so."""
        begun = await other._begin(given)
        if isinstance(begun, AsyncLoop) and all(notice.kind != "branched" for notice in begun.draft.notices):
            text = f"Others go on with the branch {self.branch!r}. This answer is on the branch {other.branch!r}."
            begun.draft = begun.draft.notice(Notice("branched", text))
        return begun

    async def _replay(self, asked: Asked, given: Arguments) -> Reply:
        """The reply of a turn that is complete."""
        # One that was cut off may have gone on elsewhere, and a rewind leaves its end on another branch.
        entries: list[Entry] = []
        for name in await self.branches():
            found = await self._of_turn(name, asked)
            entries = found if len(found) > len(entries) else entries
        provider = self._chat.provider
        said = [entry for entry in entries if entry.role == "assistant"]
        answer = Answer(said[-1].native, view_of(said[-1]), asked.turn.finish) if said else None
        wire = WIRES[said[-1].wire] if said else provider.wire
        transcript = Transcript(fresh=tuple(entries), turns=Turns(fresh=(asked.turn,)))
        prices = self._chat.prices(given.options) if provider.label == asked.turn.model else None
        return Reply(Draft(wire=wire, transcript=transcript, turn=asked.turn, answer=answer, prices=prices), no_state)

    async def _of_turn(self, branch: str, asked: Asked) -> list[Entry]:
        """The entries of a turn, as a branch has them."""
        entries: list[Entry] = []
        while True:
            # Mostly there are few, and the conversation behind them may be long.
            place = asked.place + len(entries)
            pack: Pack = await self._stored.call(self._stored.store.read, branch, place, place + STEP)
            found = list(takewhile(lambda entry: entry.turn == asked.turn.id, pack.entries()))
            entries += found
            if len(found) < STEP:
                return entries

    # Branches

    async def fork(self, at: str | None = None, *, name: str | None = None) -> AsyncConversation:
        """A new branch that begins with this one's entries, up to the one with that id (or the last of that turn)."""
        head, runs = await self._running()
        if head is None:
            raise InputError(f"There is nothing to fork: {self.id!r} has no branch {self.branch!r}.")
        if at is not None or (head.turn is not None and runs):
            # A turn that somebody runs is not there yet.
            return await self._branch(name, lambda said: _find(said, at)[1] if at else _begins(said, head.turn))
        return await self._branch_at(name, head.size, head.entry) or await self.fork(name=name)

    async def edit(self, entry: str, message: Message, **arguments: Any) -> tuple[AsyncConversation, Reply]:
        """Say something else in the place of an earlier message: a new branch, and the reply on it."""
        branch = await self._branch(None, lambda said: _find(said, entry)[0])
        return branch, await branch.send(message, **arguments)

    async def regenerate(self, turn: str | None = None, **arguments: Any) -> tuple[AsyncConversation, Reply]:
        """Another answer to the last message, or to that of a turn: a new branch, and the reply on it."""
        branch = await self._branch(None, lambda said: _asked(said, turn))
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
            _, size = _find(await self._entries(), to)
            if head is None or not self._stored.is_free(head):
                await self._wait()
                continue
            kept = await self._branch_at(None, head.size, head.entry)
            commit = Commit(branch=self.branch, expect=head.revision, cut=size, at=now())
            try:
                await in_store(self._stored.store, partial(self._stored.write, commit))
            except Moved:
                continue
            self._stored.forget()
            if kept is not None:
                return kept.branch

    async def branches(self) -> list[str]:
        """The names of all branches."""
        found: list[Head] = await self._stored.call(self._stored.store.branches)
        return [head.branch for head in found]

    # Reading, and what the app says of it

    async def history(self, *, meta: Mapping[str, Any] | None = None) -> list[Said]:
        """All that was said on this branch; with `meta`, the entries that have these values among the app's data."""
        if await self._head() is None:
            await self._check_new()
            return []
        return await self._archive.history(self.id, branch=self.branch, meta=meta)

    async def export(self, format: Format = "md") -> str:  # noqa: A002
        """This conversation as a file: Markdown of this branch to read, JSON or JSONL of all branches to keep."""
        return await self._archive.export(self.id, format, branch=self.branch)

    async def manifest(self, turn: str) -> tuple[Run, ...]:
        """What a turn has sent last: what became of each entry, and why. Nothing if that was not kept."""
        return await self._archive.manifest(self.id, turn, branch=self.branch)

    async def receipts(self) -> list[CostReceipt]:
        """What each epoch that began to save money was expected to cost, what it did, and what it has saved so far."""
        return [] if await self._head() is None else await self._archive.receipts(self.id, branch=self.branch)

    async def metrics(self) -> list[Metrics]:
        """What each turn of this branch has sent, received and cost, the first one first."""
        if await self._head() is None:
            await self._check_new()
            return []
        return await self._archive.metrics(self.id, branch=self.branch)

    async def meta(self) -> dict[str, Any]:
        """The app's own data on this conversation."""
        return {} if await self._head() is None else await self._archive.meta(self.id)

    async def describe(self, meta: Mapping[str, Any], *, entry: str | None = None) -> None:
        """Replace the app's own data on this conversation, or on one of its entries. It is never sent to a model."""
        check_meta(meta)
        if entry is None and await self._head() is None:
            # Nothing was said yet: it begins with this.
            await self._check_new()
            begun = Commit(branch=self.branch, expect=0, at=now(), meta=meta)
            with contextlib.suppress(Moved):
                await in_store(self._stored.store, partial(self._stored.write, begun))
                return
        await self._archive.describe(self.id, meta, entry=entry)

    async def pin(self, entry: str) -> None:
        """Keep an exchange whatever the policy leaves out, by the id of its turn or of one of its entries."""
        await self._change(lambda transcript: self._chat.pin_in(transcript, entry), whole=True)

    async def unpin(self, entry: str) -> None:
        """Let an exchange go that was pinned."""
        await self._change(lambda transcript: unpin(transcript, entry))

    async def pins(self) -> list[str]:
        """The ids of the entries that are pinned."""
        self._stored.forget()
        return [pin.entry for pin in pins_of((await self._stored.load())[1])]

    async def verify(self) -> None:
        """Raise `InputError` unless all is as it was written: checksums, parents, calls and their results."""
        await self._archive.verify(self.id)

    async def aclose(self) -> None:
        """Wait for a summary that is being made, and let go of the connections. The store is its own."""
        await self._jobs.wait()
        await self._chat.aclose()

    async def __aenter__(self) -> AsyncConversation:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _branch(self, name: str | None, find: Callable[[Sequence[Entry]], int]) -> AsyncConversation:
        """A new branch with as many of this one's entries as `find` says."""
        made = None
        while made is None:
            said = await self._entries()
            size = find(said)
            made = await self._branch_at(name, size, said[size - 1].id if size else None)
        return made

    async def _branch_at(self, name: str | None, size: int, last: str | None) -> AsyncConversation | None:
        """A new branch with so many of this one's entries; None if the last of them is another one by now."""
        name = name or f"{self.branch}-{new_id()[:6]}"
        commit = Commit(branch=name, expect=0, source=(self.branch, size), behind=last, at=now())
        try:
            await self._stored.call(self._stored.store.write, commit)
        except Moved as moved:
            if moved.head is not None and moved.head.branch == name:
                raise InputError(f"There is a branch {name!r} already.") from None
            return None
        return self._on(name)

    async def _branch_of(self, asked: Asked) -> AsyncConversation:
        """Where a turn that was cut off goes on, when it is not at the end of this branch."""
        if self.branch != asked.branch and not self.branch.startswith(f"{asked.branch}~{asked.turn.id}"):
            return self._on(asked.branch)
        # Others have gone on behind it.
        name = f"{self.branch}~{asked.turn.id}"
        # It may be there, since an earlier try was cut off too.
        with contextlib.suppress(InputError):
            return await self._branch(name, lambda said: _find(said, asked.turn.id)[1])
        return self._on(name)

    def _on(self, branch: str) -> AsyncConversation:
        other = object.__new__(type(self))
        other._chat, other._archive, other._jobs = self._chat, self._archive, self._jobs
        other._stored = self._stored.on(branch)
        return other

    async def _head(self) -> Head | None:
        head: Head | None = await self._stored.call(self._stored.store.head, self.branch)
        return head

    async def _running(self) -> tuple[Head | None, bool]:
        """Where the branch stands, and whether somebody runs a turn on it."""
        before: Head | None = None
        while True:
            head = await self._head()
            runs = not self._stored.is_free(head)
            # A lease that nobody holds is that of a turn that was cut off, or has ended since the head was read.
            if runs or head is None or head.lease is None or head == before:
                return head, runs
            before = head

    async def _entries(self) -> list[Entry]:
        head = await self._head()
        if head is None:
            return []
        pack: Pack = await self._stored.call(self._stored.store.read, self.branch, 0, head.size)
        return pack.entries()

    async def _change(
        self,
        change: Callable[[Transcript], Transcript],
        *,
        meta: Mapping[str, Any] | None = None,
        whole: bool = False,
    ) -> Sequence[Entry]:
        """Change the branch without a turn, once nobody else runs one. `meta` is for the last entry."""
        while True:
            head, before = await self._stored.load(whole=whole)
            if head is None:
                await self._check_new()
            if not self._stored.is_free(head):
                self._stored.forget()
                await self._wait()
                continue
            after = change(before)
            new = after.fresh[len(before.fresh) :]
            turn = after.turns[-1] if len(after.turns) and after.turns != before.turns else None
            made = [placed(record, after.size - 1) for record in after.records if record not in before.records]
            data = {0: meta} if meta else {}
            last = Commit(
                branch=self.branch, expect=0, entries=new[-1:], records=tuple(made), at=now(), entry_meta=data
            )
            commits = [last]
            if turn is not None or len(new) > 1:
                # What closes an earlier turn goes first.
                commits.insert(0, Commit(branch=self.branch, expect=0, entries=new[:-1], turn=turn, at=now()))
            try:
                for commit in commits:
                    commit = msgspec.structs.replace(commit, expect=head.revision if head else 0)
                    head = await in_store(self._stored.store, partial(self._stored.write, commit))
            except Moved:
                continue
            if head is not None:
                self._stored.remember(head, after)
            return new


class _NotHere(Exception):
    """What somebody wants to change is not here any more."""


def _turn(entry: str | None) -> str:
    """The turn that an entry is of, by its id."""
    return (entry or "").rpartition("-")[0]


def _find(said: Sequence[Entry], name: str) -> tuple[int, int]:
    """Where an entry or a turn begins on a branch, and where it ends."""
    found = [i for i, entry in enumerate(said) if name in (entry.id, entry.turn)]
    if not found:
        raise InputError(f"There is no entry or turn {name!r} on this branch.")
    return found[0], found[-1] + 1


def _begins(said: Sequence[Entry], turn: Turn | None) -> int:
    """Where a turn begins; the end, if it is not there."""
    return next((i for i, entry in enumerate(said) if turn is not None and entry.turn == turn.id), len(said))


def _asked(said: Sequence[Entry], turn: str | None) -> int:
    """Behind the message of a user, the last one or that of a turn."""
    turn = turn or next((entry.turn for entry in reversed(said) if entry.role == "user"), "")
    asked = [i for i, entry in enumerate(said) if entry.turn == turn and entry.role == "user"]
    if not asked:
        raise InputError(f"There is no message of a user in the turn {turn!r}.")
    return asked[-1] + 1
