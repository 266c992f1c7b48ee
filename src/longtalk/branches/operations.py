"""Operations on the branches of a stored conversation that need no model: fork, rewind, change.

Other writers may change the same branch at any moment. So each operation reads the branch, decides, and writes only if
the branch is still unchanged; otherwise it starts again. If a turn is running, the operation waits for its end.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk._util.concurrency import call_store, sleep
from longtalk.branches.branch import AsyncBranch, place_record
from longtalk.errors import Busy, InputError, NotFound
from longtalk.stores.base import BranchHead, Commit, HeadMoved, KeyedTurn, PlacedRecord
from longtalk.tokens import counter_for
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.standing import Standing
from longtalk.transcript.transcript import Entry, Transcript, Turn, Turns, new_id, now
from longtalk.turn.draft import add_token_counts, mark_interrupted
from longtalk.wires.entries import mark_verbatim

_PLAIN = "openai-chat"
"""The wire in which an answer is kept of which only the text is known."""
_MADE = re.compile(r"(?:-(?=[a-z]*[2-9])(?:[a-z2-9]{4}|[a-z2-9]{6}))+$")
"""The end of the names that were chosen for branches, by this version or an earlier one."""
WAIT = 0.05
"""The number of seconds between two checks of a busy branch."""


async def list_branch_names(stored: AsyncBranch) -> list[str]:
    """Return the names of all branches of the conversation."""
    found: list[BranchHead] = await stored.call(stored.store.branches)
    if not found:
        # Raises `NotFound` if the conversation may not be created.
        await stored.head()
    return [head.branch for head in found]


async def check_new(stored: AsyncBranch) -> None:
    """Raise `NotFound` if the conversation exists but does not have this branch."""
    others = await list_branch_names(stored)
    if others and stored.branch not in others:
        raise NotFound(
            f"{stored.conversation!r} has no branch {stored.branch!r}. Its branches are: "
            f"{', '.join(map(repr, others))}. "
            "To create a branch, use `fork`."
        )


async def wait_for_turn(stored: AsyncBranch) -> None:
    """Wait briefly for the running turn. Raise `Busy` if the caller is a tool of that turn."""
    if stored.is_inside():
        what = (
            f"A tool can't wait for the turn that runs it: this call needs the turn on {stored.conversation!r} to "
            "end first."
        )
        raise Busy(what, until=0)
    await sleep(WAIT)


async def load_free(stored: AsyncBranch, *, whole: bool = False) -> tuple[BranchHead | None, Transcript]:
    """Return what `load` returns, after waiting for a running turn. Raise `NotFound` if only the branch is missing."""
    while True:
        head, transcript = await stored.load(whole=whole)
        if head is None:
            await check_new(stored)
        if stored.is_free(head):
            return head, transcript
        stored.forget()
        await wait_for_turn(stored)


# New branches


async def fork_branch(stored: AsyncBranch, at: str | None = None, *, name: str | None = None) -> AsyncBranch:
    """Create a branch that ends after an entry or a turn; by default after the last turn that is not running."""
    head, runs = await _check_running(stored)
    if head is None:
        raise NotFound(
            f"There is nothing to fork: {stored.conversation!r} has no branch {stored.branch!r} yet. Send a "
            "message first."
        )
    if at is not None or (head.turn is not None and runs):
        # A turn that is still running is left out.
        return await _create_branch(
            stored, name, lambda said: find_range(said, at)[1] if at else _find_turn_start(said, head.turn)
        )
    return await create_branch_at(stored, name, head.size, head.entry) or await fork_branch(stored, name=name)


async def branch_before(stored: AsyncBranch, entry: str) -> AsyncBranch:
    """Create a branch that ends before an entry or a turn, so that another message can replace it."""
    return await _create_branch(stored, None, lambda said: find_range(said, entry)[0])


async def branch_unanswered(stored: AsyncBranch, turn: str | None) -> AsyncBranch:
    """Create a branch that ends with a user message: the last one, or the message of the given turn."""
    branch = await _create_branch(stored, None, lambda said: _find_message_end(said, turn))
    head, transcript = await branch.load()
    if head is not None and head.turn is not None and head.turn.status == "running":
        # The new answer is a separate turn, even if the first one was cut off.
        branch.remember(head, mark_interrupted(transcript))
    return branch


async def branch_to_go_on(stored: AsyncBranch, asked: KeyedTurn) -> AsyncBranch:
    """Return the branch on which to continue an interrupted turn that is not at the end of this branch."""
    if stored.branch != asked.branch and not stored.branch.startswith(f"{asked.branch}~{asked.turn.id}"):
        return stored.get_branch(asked.branch)
    # Other turns follow it on this branch.
    name = f"{stored.branch}~{asked.turn.id}"
    # The branch exists already if an earlier attempt was cut off too.
    with contextlib.suppress(InputError):
        return await _create_branch(stored, name, lambda said: find_range(said, asked.turn.id)[1])
    return stored.get_branch(name)


async def _create_branch(stored: AsyncBranch, name: str | None, find: Callable[[Sequence[Entry]], int]) -> AsyncBranch:
    """Create a branch with the first entries of `stored`. `find` returns their number."""
    branch = None
    while branch is None:
        said = await stored.entries()
        size = find(said)
        branch = await create_branch_at(stored, name, size, said[size - 1].id if size else None)
    return branch


async def create_branch_at(
    stored: AsyncBranch, name: str | None, size: int, last: str | None, *, at: int | None = None
) -> AsyncBranch | None:
    """Create a branch with the first `size` entries of `stored`. Return None if the last of them has changed."""
    given, name = name, name or _make_name(stored.branch)
    commit = Commit(branch=name, expect=0, source=(stored.branch, size), source_entry=last, at=at or now())
    try:
        await stored.call(stored.store.write, commit)
    except HeadMoved as moved:
        taken = moved.head is not None and moved.head.branch == name
        if taken and given is not None:
            raise InputError(f"The branch {name!r} already exists: choose another name.") from None
        return await create_branch_at(stored, given, size, last, at=at) if taken else None
    return stored.get_branch(name)


def _make_name(source: str) -> str:
    """Return a random name for a branch that forks from `source`. It grows no longer when branches fork again."""
    made = new_id()
    # The digit tells such a name from a word that a user has chosen.
    return f"{_MADE.sub('', source) or source}-{made[:3]}{2 + ord(made[3]) % 8}"


async def _check_running(stored: AsyncBranch) -> tuple[BranchHead | None, bool]:
    """Return the head of the branch, and whether a turn is running on it."""
    before: BranchHead | None = None
    while True:
        head = await stored.head()
        runs = not stored.is_free(head)
        # A lease without a living holder belongs to an interrupted turn, or to one that has just ended.
        if runs or head is None or head.lease is None or head == before:
            return head, runs
        before = head


# Changes


async def end_abandoned_turn(stored: AsyncBranch, turn: str, said: str = "") -> bool:
    """Mark the turn with the id `turn` as interrupted if it is the branch's last one and its process has died.

    `said` is the text that the process has streamed of an answer that it did not save: it is kept as an interrupted
    answer, unless the branch ends with an answer already. Return False if there is nothing to mark, or another writer
    was faster.
    """
    head, runs = await _check_running(stored)
    last = head.turn if head is not None else None
    if head is None or runs or last is None or last.id != turn or last.status != "running":
        return False
    at = now()
    ended = msgspec.structs.replace(last, status="interrupted", finish="interrupted", ended=at)
    entries: Sequence[Entry] = ()
    if said.strip():
        stored.forget()
        _, transcript = await stored.load()
        if transcript[-1].role != "assistant":
            answer = add_token_counts([_make_cut_answer(said, at)], counter_for(last.model))
            entries = transcript.append_to_turn(turn, answer).fresh[-1:]
    commit = Commit(branch=stored.branch, expect=head.revision, entries=tuple(entries), turn=ended, at=at)
    try:
        await call_store(stored.store, partial(stored.write, commit))
    except HeadMoved:
        return False
    stored.forget()
    return True


def _make_cut_answer(text: str, at: int) -> Entry:
    """Return the text of an answer that was cut off as an entry."""
    native = json_bytes.encode({"role": "assistant", "content": text})
    return mark_verbatim(Entry(role="assistant", wire=_PLAIN, native=native, at=at, mark="interrupted"))


async def change_branch(
    stored: AsyncBranch,
    change: Callable[[Transcript], Transcript],
    *,
    meta: Mapping[str, Any] | None = None,
    whole: bool = False,
) -> Sequence[Entry]:
    """Change the branch without a turn, after waiting for a running turn. `meta` is stored with the last new entry."""
    is_fresh = False
    while True:
        head, before = await load_free(stored, whole=whole)
        try:
            after = change(before)
        except InputError:
            # This object may have read the branch before another one wrote to it.
            if is_fresh:
                raise
            is_fresh = True
            stored.forget()
            continue
        new = after.fresh[len(before.fresh) :]
        turn = after.turns[-1] if len(after.turns) and after.turns != before.turns else None
        records = [place_record(record, after.size - 1) for record in after.records if record not in before.records]
        data = {0: meta} if meta else {}
        last = Commit(
            branch=stored.branch, expect=0, entries=new[-1:], records=tuple(records), at=now(), entry_meta=data
        )
        commits = [last]
        if turn is not None or len(new) > 1:
            # Entries that close an earlier turn are written first.
            commits.insert(0, Commit(branch=stored.branch, expect=0, entries=new[:-1], turn=turn, at=now()))
        try:
            for commit in commits:
                commit = msgspec.structs.replace(commit, expect=head.revision if head else 0)
                head = await call_store(stored.store, partial(stored.write, commit))
        except HeadMoved:
            continue
        if head is not None:
            stored.remember(head, after)
        return new


# Copies


async def read_until(stored: AsyncBranch, at: str | None = None) -> Transcript:
    """Return the whole transcript of the branch, by default to its end, or up to the end of an entry or a turn.

    A turn that is still running is left out; raise `Busy` if `at` names it.
    """
    head, runs = await _check_running(stored)
    if head is None:
        raise NotFound(f"Conversation {stored.conversation!r} has no branch {stored.branch!r}.")
    said = await stored.entries()
    running = _find_turn_start(said, head.turn) if runs else len(said)
    size = running if at is None else find_range(said, at)[1]
    if size > running:
        raise Busy(f"The turn {at!r} is still running: try again when it has ended.", until=0)
    turns: list[tuple[int, Turn]] = await stored.call(stored.store.turns, stored.branch, 0, size)
    placed: list[PlacedRecord] = await stored.call(stored.store.records, stored.branch)
    return Transcript(
        fresh=tuple(said[:size]),
        turns=Turns(fresh=tuple(turn for _, turn in turns)),
        records=Standing(
            each.record for each in placed if each.position < size and not kind_of(each.record.kind).is_derived
        ),
        created=head.created,
        updated=head.updated,
        revision=head.revision,
    )


# Positions


def find_range(said: Sequence[Entry], name: str) -> tuple[int, int]:
    """Return the start and end of an entry or a turn on a branch, as indexes."""
    found = [i for i, entry in enumerate(said) if name in (entry.id, entry.turn)]
    if not found:
        raise NotFound(f"This branch has no entry or turn {name!r}: pass an id from `history()`.")
    return found[0], found[-1] + 1


def _find_turn_start(said: Sequence[Entry], turn: Turn | None) -> int:
    """Return the index of the first entry of a turn, or the number of entries if the turn has none."""
    return next((i for i, entry in enumerate(said) if turn is not None and entry.turn == turn.id), len(said))


def _find_message_end(said: Sequence[Entry], turn: str | None) -> int:
    """Return the index after the user's message of the given turn or, if `turn` is None, of the last turn."""
    turn = turn or next((entry.turn for entry in reversed(said) if entry.role == "user"), "")
    asked = [i for i, entry in enumerate(said) if entry.turn == turn and entry.role == "user"]
    if not asked:
        raise NotFound(f"The turn {turn!r} has no user message on this branch: pass the id of a turn that has one.")
    return asked[-1] + 1
