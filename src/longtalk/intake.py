"""Taking conversations into a store. One that was cut off there is no conversation yet.

What this library has exported is taken in all at once or not at all. What comes from elsewhere (`imports/`, another
store) may be very much: it comes one by one, each whole, and coming again does no harm. What is there stays as it is,
what has grown since is added to, and what has gone its own way here is left, and told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from longtalk.errors import InputError
from longtalk.portable import Limb, Talk
from longtalk.said import check_name, waiting_behind
from longtalk.stores.base import Moved, Store
from longtalk.whole import Whole, begins_with, covers, of_talk, read_whole, to_keep, without_closings
from longtalk.wires import WIRES
from longtalk.writing import clean, is_left, new_mark, whole_or_none, write_more, write_new

How = Literal["new", "grown", "here", "left"]
_ELSEWHERE = "both have gone on since: delete it here, or take it in for another owner"
_MOVED = "somebody else writes to it"


class Taken(msgspec.Struct, frozen=True):
    """What became of one conversation."""

    id: str
    how: How
    """It is new here, has grown, was here already, or was left."""
    entries: int = 0
    """How many it has, those that branches share once."""
    branches: int = 0
    why: str = ""
    """Of one that was left: what is in the way."""


class Intake(msgspec.Struct, frozen=True):
    """What was taken in, and what could not come along."""

    taken: tuple[Taken, ...] = ()
    notes: dict[str, int] = {}
    """What the conversations had that none of ours can hold, and how often."""

    @property
    def ids(self) -> list[str]:
        """The conversations that are here now."""
        return [each.id for each in self.taken if each.how != "left"]

    @property
    def left(self) -> list[Taken]:
        return [each for each in self.taken if each.how == "left"]

    def count(self, how: How) -> int:
        return sum(each.how == how for each in self.taken)


class Found(msgspec.Struct, frozen=True):
    """A conversation of another tool, or what is wrong with it."""

    talk: Talk
    notes: dict[str, int] = {}
    problem: str = ""


Progress = Callable[[int], None]
"""Is told how many conversations are done."""


def take_in(store: Store, owner: str, talks: Sequence[Talk]) -> Intake:
    """Take in conversations, all or none of them. Raises `InputError` if another one of the same id is there."""
    names = [talk.id for talk in talks]
    for talk in talks:
        check_calls(talk)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"The file holds two conversations {twice[0]!r}.")
    there = {name for name in names if store.summary(owner, name) is not None and not is_left(store, owner, name)}
    news = [of_talk(talk) for talk in talks]
    for new in news:
        check_name(new.id, "id")
        if new.id in there and not _is_same(store, owner, new):
            raise InputError(f"There is a conversation {new.id!r} already. Name another id, or delete it first.")
    mark = new_mark()
    todo = [new for new in news if new.id not in there]
    try:
        for new in todo:
            if is_left(store, owner, new.id):
                store.delete(owner, new.id)
            write_new(store, owner, new, mark, finish=False)
        for new in todo:
            store.describe(owner, new.id, clean(new.talk.meta))
    except BaseException as problem:
        for new in todo:
            if is_left(store, owner, new.id, mark):
                store.delete(owner, new.id)
        if isinstance(problem, Moved):
            raise InputError("Somebody else makes a conversation of the same id: nothing was taken in.") from None
        raise
    return Intake(tuple(told(new, "here" if new.id in there else "new") for new in news))


def take_each(store: Store, owner: str, found: Iterable[Found], *, progress: Progress | None = None) -> Intake:
    """Take in what comes from another tool, one by one."""
    taken: list[Taken] = []
    notes: Counter[str] = Counter()
    for each in found:
        if each.problem:
            taken.append(Taken(each.talk.id, "left", why=each.problem))
        else:
            try:
                check_name(each.talk.id, "id")
                check_calls(each.talk)
                done = take_one(store, owner, of_talk(each.talk))
            except (InputError, Moved) as problem:
                done = Taken(each.talk.id, "left", why=_MOVED if isinstance(problem, Moved) else str(problem))
            taken.append(done)
            notes.update(each.notes if done.how in ("new", "grown") else {})
        if progress:
            progress(len(taken))
    return Intake(tuple(taken), dict(notes))


def take_one(store: Store, owner: str, new: Whole) -> Taken:
    """Make one be here: write it, or what was said in it since.

    Raises `Moved` when somebody else writes to it at the same time.
    """
    there = whole_or_none(store, owner, new.id)
    if there is None:
        write_new(store, owner, new, new_mark())
        return told(new, "new")
    if covers(there, new):
        return told(new, "here")
    if there.touched or not _covers_but_closings(new, there):
        return Taken(new.id, "left", why=_ELSEWHERE if there.touched else "what is here says something else")
    write_more(store, owner, new, there)
    return told(new, "grown")


def _covers_but_closings(more: Whole, less: Whole) -> bool:
    """Whether one has all that was said on each branch of another, but for what closes calls at its end."""
    return all(
        name in more.paths and begins_with(more.paths[name].entries, without_closings(path.entries))
        for name, path in less.paths.items()
    )


def _is_same(store: Store, owner: str, new: Whole) -> bool:
    """Whether a conversation that is here is this export of it, and nothing has happened to it since."""
    there = read_whole(store, owner, new.id)
    if there is None:
        return False
    held, talk = to_keep(there), new.talk
    return (held.created, held.meta, held.limbs) == (talk.created, talk.meta, talk.limbs)


def told(new: Whole, how: How) -> Taken:
    return Taken(new.id, how, new.entries, len(new.paths))


def check_calls(talk: Talk) -> None:
    """Raise `InputError` for what no provider takes: another role than the entry's, a call or a result on its own."""
    known: dict[str, Limb] = {}
    waits: dict[str, list[tuple[str, ...]]] = {}
    for limb in talk.limbs:
        before, size = limb, limb.start
        while size and size <= before.start and before.source:
            before = known[before.source[0]]
        waiting = waits[before.name][size - before.start - 1] if size else ()
        known[limb.name], waits[limb.name] = limb, []
        for entry in limb.entries:
            try:
                seen = WIRES[entry.wire].view(entry.native) if entry.wire in WIRES else None
                if seen and (seen.role != entry.role or (seen.role == "tool") != bool(seen.call_id)):
                    raise ValueError(f"has another role than {entry.role!r}")
                waiting = waiting_behind(entry, waiting)
            except (ValueError, TypeError, AttributeError) as problem:
                raise InputError(f"{talk.id!r} can't go on as a conversation: {entry.id!r} {problem}.") from None
            waits[limb.name].append(waiting)
