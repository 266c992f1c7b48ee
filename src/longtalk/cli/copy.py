"""`longtalk copy`: conversations from one store to another."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from longtalk._sync.archive import Archive
from longtalk.cli.out import Counting, number, one_line, put, say
from longtalk.cli.store import opened
from longtalk.errors import InputError
from longtalk.stores import open_store


def run(*, source: str, target: str, owner: str, since: str | None, ids: Sequence[str]) -> None:
    """Copy conversations, and say how many. If one was left, the status is 1."""
    with opened(source, owner, whole=True) as archive:
        other = open_store(target, make=True)
        try:
            with Counting(None, "conversation") as progress:
                done = archive.copy_to(other, ids, since=_since(archive, since), progress=progress)
        finally:
            other.close()
        fresh = [each for each in done.taken if each.how in ("new", "grown")]
        told = [f"{number(done.count('new'), 'conversation')} copied"]
        told += [f"{done.count('grown'):,} had grown"] if done.count("grown") else []
        here = done.count("here")
        told += [f"{here:,} {'was' if here == 1 else 'were'} there already"] if here else []
        told += [f"{len(done.left):,} left"] if done.left else []
        entries = number(sum(each.entries for each in fresh), "entry", "entries")
        put(f"{', '.join(told)}: {entries} read back")
        for each in done.left:
            say(f"longtalk: left {one_line(each.id)}: {each.why}")
        if done.left:
            raise SystemExit(1)


def _since(archive: Archive, since: str | None) -> int | str | None:
    """A date or a time as milliseconds; what is none is an id."""
    if since is None or archive.store.summary(archive.owner, since) is not None:
        return since
    try:
        # Without a zone it is where we are.
        return round(dt.datetime.fromisoformat(since).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InputError(f"--since is a date such as 2026-11-16, or the id of a conversation, not {since!r}.") from None
