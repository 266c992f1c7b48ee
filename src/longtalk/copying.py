"""Copying conversations from one store to another, so that nothing is lost, and proving it.

The oldest come first. Each is written whole, read back, compared, and its checksums are checked. Doing it again passes
over what is there, begins anew what was cut off, and adds what has come since, so that a store in use can be copied in
two goes: all of it while people talk, and what has changed meanwhile when they don't.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from longtalk.errors import InputError, LongtalkError
from longtalk.intake import Intake, Progress, Taken, told
from longtalk.stores.base import Moved, Store, Summary
from longtalk.transcript import now
from longtalk.whole import Whole, holds, read_whole, shown
from longtalk.writing import IMPORTING, clean, new_mark, remove, whole_or_none, write_more, write_new

_PAGE = 10_000
_BATCH = 1_000
_AT_ONCE = 4


def copied(
    source: Store,
    target: Store,
    owner: str,
    *,
    ids: Sequence[str] = (),
    since: int | str | None = None,
    progress: Progress | None = None,
) -> Intake:
    """See `Archive.copy_to`."""
    if source is target or repr(source) == repr(target) != "Memory()":
        raise InputError("A store can't be copied to itself: name another one.")
    taken: list[Taken] = []
    names = _chosen(source, owner, ids, since)
    # Several at once: a store on a server is waited for most of the time.
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for start in range(0, len(names), _BATCH):
            batch = names[start : start + _BATCH]
            for done in threads.map(lambda name: _copy(source, target, owner, name), batch):
                if done is not None:
                    taken.append(done)
                if progress:
                    progress(len(taken))
    return Intake(tuple(taken))


def _chosen(source: Store, owner: str, ids: Sequence[str], since: int | str | None) -> list[str]:
    """The conversations to copy, those changed last at the end."""
    if isinstance(since, str):
        since = _known(source, owner, since).updated
    named = [_known(source, owner, name) for name in dict.fromkeys(ids)]
    found = named if ids else list(_every(source, owner, since))
    return [each.id for each in reversed(found) if since is None or each.updated >= since]


def _known(source: Store, owner: str, name: str) -> Summary:
    found = source.summary(owner, name)
    if found is None:
        raise InputError(f"There is no conversation {name!r} to copy.")
    return found


def _every(source: Store, owner: str, since: int | None) -> Iterator[Summary]:
    after: tuple[int, str] | None = None
    while page := source.conversations(owner, limit=_PAGE, after=after):
        yield from page
        after = page[-1].updated, page[-1].id
        if since is not None and after[0] < since:
            return


def _copy(source: Store, target: Store, owner: str, name: str) -> Taken | None:
    """Copy one; None when it was deleted meanwhile."""
    try:
        found = read_whole(source, owner, name)
        if found is None:
            return None
        if IMPORTING in found.talk.meta:
            return Taken(name, "left", why="it is only half taken in there: import it again")
        return _proved(target, owner, found, _taken(target, owner, found))
    except Moved:
        return Taken(name, "left", why="somebody else writes to it")
    except (LongtalkError, ValueError) as problem:
        # One that is damaged, or that the other store can't hold, is no reason to leave the others.
        source.conversations(owner, limit=1)
        target.conversations(owner, limit=1)
        return Taken(name, "left", why=str(problem))


def _taken(target: Store, owner: str, found: Whole) -> Taken:
    """Write one, or what it has more. Nothing is taken away: what the target alone has stays, and is told."""
    there = whole_or_none(target, owner, found.id)
    if there is None:
        write_new(target, owner, found, new_mark())
        return told(found, "new")
    if holds(there, found, values=True) and _is_as_new(there, found):
        return told(found, "here")
    if not holds(found, there, values=False):
        return Taken(found.id, "left", why="both were changed since: delete one of them")
    if any(head.lease is not None and head.lease.until > now() for head in there.heads):
        return Taken(found.id, "left", why="a turn runs on it there")
    write_more(target, owner, found, there)
    if found.talk.meta != there.talk.meta:
        target.describe(owner, found.id, clean(found.talk.meta))
    return told(found, "grown")


def _is_as_new(there: Whole, found: Whole) -> bool:
    """Whether the branches that end with the same entry are at the same moment."""
    return all(
        (mine.turns, shown(mine.records), there.updated[name]) == (path.turns, shown(path.records), found.updated[name])
        for name, path in found.paths.items()
        if len((mine := there.paths[name]).entries) == len(path.entries)
    )


def _proved(target: Store, owner: str, found: Whole, done: Taken) -> Taken:
    """What became of one, after what was written was read back."""
    name = found.id
    if done.how in ("new", "grown"):
        made = read_whole(target, owner, name)
        if made and made.key() != found.key() and not made.touched and holds(found, made, values=True):
            # Records of branches that share entries may need to come in their order.
            remove(target, owner, made)
            write_new(target, owner, found, new_mark())
            made = read_whole(target, owner, name)
        wrong = target.verify(owner, name)
        if wrong or made is None or made.key() != found.key():
            why = "; ".join(wrong) or "what was read back is not what was written"
            return Taken(name, "left", done.entries, done.branches, why)
    return done
