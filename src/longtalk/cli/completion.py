"""`longtalk completion`: the completion scripts of shells, and what they complete."""

from __future__ import annotations

from typing import Any

import click

_MOST = 200
"""How many conversations, most recently changed first, are looked through."""


def complete_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of conversations that begin with the text typed so far."""
    return [each.id for each in _list_conversations(context) if each.id.startswith(incomplete)]


def complete_branches(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the branches of the conversation that was named, as far as they begin with the text typed so far."""
    import os

    # While the value of an option is missing, click has parsed no argument; the shell passes the words, too.
    words = os.environ.get("COMP_WORDS", "").split()
    found = [each for each in _list_conversations(context) if each.id in (context.params.get("id"), *words)]
    return [name for each in found for name in each.branches if name.startswith(incomplete)]


def print_script(commands: click.Command, shell: str) -> None:
    """Print the script that makes a shell complete `longtalk`."""
    from click.shell_completion import ShellComplete, get_completion_class

    from longtalk.cli.output import print_text

    found = get_completion_class(shell)
    if found is not None:
        # The method of the base class: that of bash also runs bash to ask for its version.
        print_text(ShellComplete.source(found(commands, {}, "longtalk", "_LONGTALK_COMPLETE")))


def _list_conversations(context: click.Context) -> list[Any]:
    """Return the most recently changed conversations; none if there is no store. A shell can't show an error."""
    import os
    from contextlib import suppress

    from longtalk._sync.archive.archive import Archive
    from longtalk.errors import LongtalkError
    from longtalk.stores import get_default_path, open_store

    path = context.params.get("store") or os.environ.get("LONGTALK_STORE") or get_default_path()
    owner = context.params.get("owner") or os.environ.get("LONGTALK_OWNER", "")
    with suppress(LongtalkError, OSError):
        store = open_store(path)
        try:
            return Archive(store, owner=owner).conversations(limit=_MOST)
        finally:
            store.close()
    return []
