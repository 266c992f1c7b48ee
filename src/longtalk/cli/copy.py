"""`longtalk copy`: copy conversations from one store to another."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

import msgspec

from longtalk._sync.archive.archive import Archive
from longtalk.cli.filters import parse_time
from longtalk.cli.output import ProgressCounter, escape_line, pluralize, print_json, print_note, print_text
from longtalk.cli.store import find_conversation, open_archive, store_exists
from longtalk.errors import InputError
from longtalk.stores import get_default_path, hide_credentials, open_store
from longtalk.transfer.owners import Owners, list_pairs


def run(
    *,
    source: str | None,
    target: str,
    owner: str,
    since: str | None,
    ids: Sequence[str],
    owners: Owners,
    as_json: bool,
) -> None:
    """Copy conversations and print how many were copied. Exit with status 1 if a conversation was skipped.

    Without a source, copy from the user's own store.
    """
    own = os.environ.get("LONGTALK_STORE") or get_default_path()
    if source is None:
        source = own
        print_note(f"(From your store, {escape_line(hide_credentials(own))}.)")
    elif not store_exists(source):
        command = shlex.join(["longtalk", "copy", hide_credentials(own), source, target, *ids])
        raise InputError(
            f"There is no store {source!r} to copy from. If {target!r} is a conversation of your own store: {command}"
        )
    with open_archive(source, owner, whole=True) as archive:
        other = open_store(target, make=True)
        try:
            start = _parse_since(archive, since)
            with ProgressCounter(_count(archive, ids, start, owners), "conversation") as progress:
                done = archive.copy_to(other, ids, since=start, owners=owners, progress=progress)
        finally:
            other.close()
        if as_json:
            for each in done.conversations:
                print_json(msgspec.to_builtins(each))
            raise SystemExit(1 if done.left else 0)
        fresh = [each for each in done.conversations if each.how in ("new", "grown")]
        counts = [f"{pluralize(done.count('new'), 'conversation')} copied"]
        counts += [f"{done.count('grown'):,} updated"] if done.count("grown") else []
        counts += [f"{done.count('here'):,} unchanged"] if done.count("here") else []
        counts += [f"{len(done.left):,} skipped"] if done.left else []
        entries = pluralize(sum(each.entries for each in fresh), "entry", "entries")
        print_text(f"{', '.join(counts)}; {entries} verified")
        for each in done.left:
            name = escape_line(each.id if owners is None else f"{each.id} of {each.owner or 'no owner'}")
            print_note(f"longtalk: skipped {name}: {each.why}")
        if done.left:
            raise SystemExit(1)


def _count(archive: Archive, ids: Sequence[str], since: int | str | None, owners: Owners) -> int | None:
    """Return how many conversations are to be copied; None if the number is not shown, so that none are counted."""
    if ids or not sys.stderr.isatty():
        return len(set(ids)) or None
    store = archive.store
    start = find_conversation(archive, since).updated if isinstance(since, str) else since
    pairs = list_pairs(store, archive.owner, owners)
    found = (each for old, _ in pairs for each in Archive(store, owner=old).every())
    return sum(start is None or each.updated >= start for each in found)


def _parse_since(archive: Archive, since: str | None) -> int | str | None:
    """Return `since` unchanged if it is None or the id of a conversation; else parse it as a date or time.

    A date or time is returned in milliseconds since 1970.
    """
    if since is None or archive.store.info(archive.owner, since) is not None:
        return since
    return parse_time(since, "--since", other=" or the id of a conversation")
