"""`longtalk completion`: the completion scripts of shells, and what they complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem, split_arg_string

from longtalk.cli import shells as shells

if TYPE_CHECKING:
    from longtalk._sync.archive.archive import Archive
    from longtalk.archive.history import HistoryEntry

T = TypeVar("T")
_MOST_TEXT = 60
POLICIES = (
    "KeepAll()",
    "KeepLast(6)",
    "KeepMessages(40)",
    "TokenBudget(8_000)",
    "WindowShare(0.8)",
    "Economy()",
    "Memory()",
)
"""The policies that are offered."""
_MOST = 200
"""How many conversations, most recently changed first, are looked through."""


def complete_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of conversations that begin with the text typed so far."""
    return [each.id for each in _list_conversations(context) if each.id.startswith(incomplete)]


def complete_branches(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the branches of the conversation that was named, as far as they begin with the text typed so far."""
    # While the value of an option is missing, click has parsed no argument; the shell passes the words, too.
    named = (context.params.get("id"), *_read_words())
    found = [each for each in _list_conversations(context) if each.id in named]
    return [name for each in found for name in each.branches if name.startswith(incomplete)]


def complete_entries(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the entries of the conversation that was named, the last one first, each with its text."""
    from longtalk.archive.tree import find_last_branch
    from longtalk.cli.output import escape_line, shorten

    id = context.params.get("id")  # noqa: A001
    # Only the first word of a text can be an entry.
    if not id or context.params.get("words"):
        return []

    def read(archive: Archive) -> list[HistoryEntry]:
        branch = context.params.get("branch") or find_last_branch(archive.store.branches(archive.owner, id))
        return archive.history(id, branch=branch)

    return [
        CompletionItem(each.id, help=shorten(f"{each.role}: {escape_line(each.text)}", _MOST_TEXT))
        for each in reversed(_read_store(context, read))
        if each.id.startswith(incomplete)
    ]


def complete_options(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the options that the chosen model is known to have and that begin with the text typed so far."""
    from contextlib import suppress
    from itertools import pairwise

    from longtalk.cli.holding import find_model_settings
    from longtalk.cli.options import list_options
    from longtalk.errors import LongtalkError
    from longtalk.service.settings import load_settings

    words = _read_words()
    before = words[:-1] if incomplete and words[-1:] == [incomplete] else words
    if before[-1:] not in (["-o"], ["--option"]):
        # The second word is the value.
        return []
    with suppress(LongtalkError, OSError):
        settings = load_settings()
        names = [name for flag, name in pairwise(before) if flag in ("-m", "--model")]
        model = find_model_settings(settings, names[-1] if names else settings.default_model).model
        return [each for each in list_options(model) if each.startswith(incomplete)]
    return []


def complete_files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the names of files."""
    return [CompletionItem(incomplete, type="file")]


def complete_ids_and_files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the ids of conversations, and let the shell complete the names of files."""
    ids = map(CompletionItem, complete_ids(context, parameter, incomplete))
    return [*complete_files(context, parameter, incomplete), *ids]


def complete_policies(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the usual policies that begin with the text typed so far."""
    return [each for each in POLICIES if each.startswith(incomplete)]


def complete_models(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the aliases and the models that begin with the text typed so far, with and without their providers.

    After `local:`, a file can follow, too.
    """
    from collections import Counter

    from longtalk.models import registry
    from longtalk.providers.local.catalog import MODELS

    known = list(registry.models())
    counts = Counter(each.name for each in known)
    names = (
        *complete_aliases(context, parameter, ""),
        "local",
        *(f"local:{name}" for name in MODELS),
        *(each.name for each in known if counts[each.name] == 1),
        *(each.label for each in known),
    )
    found = list(dict.fromkeys(each for each in names if each.startswith(incomplete)))[:_MOST]
    files = complete_files(context, parameter, incomplete) if incomplete.startswith("local:") else []
    return [*map(CompletionItem, found), *files]


def complete_models_words(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the models for `longtalk models`, whose first word may also be that of a task."""
    words = context.params.get("words") or ()
    tasks = [each for each in ("default", "list") if each.startswith(incomplete)] if not words else []
    return [] if words[1:] else [*map(CompletionItem, tasks), *complete_models(context, parameter, incomplete)]


def complete_aliases(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the names that the settings give to models and that begin with the text typed so far."""
    return [each for each in _read_settings("models") if each.startswith(incomplete)]


def complete_settings(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of settings that begin with the text typed so far."""
    return [each for each in _read_settings() if each.startswith(incomplete)]


def complete_providers(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the providers that begin with the text typed so far."""
    from longtalk.providers.registry import PROVIDERS

    return [each for each in PROVIDERS if each.startswith(incomplete)]


def complete_stored(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return what can be removed from the settings: aliases, settings, and providers with a key."""
    from longtalk.service.settings import load_credentials

    keys = [each for each in load_credentials() if each.startswith(incomplete)]
    return [
        *complete_aliases(context, parameter, incomplete),
        *complete_settings(context, parameter, incomplete),
        *keys,
    ]


def _read_settings(name: str = "") -> list[str]:
    """Return the names in a table of the settings, or those of all settings; none if they can't be read."""
    from contextlib import suppress

    import msgspec

    from longtalk.errors import LongtalkError
    from longtalk.service.settings import load_settings

    with suppress(LongtalkError, OSError):
        settings = load_settings()
        return list(getattr(settings, name) if name else msgspec.to_builtins(settings))
    return []


def print_script(commands: click.Command, shell: str) -> None:
    """Print the script that makes a shell complete `longtalk`."""
    from click.shell_completion import ShellComplete, get_completion_class

    from longtalk.cli.output import print_text

    found = get_completion_class(shell)
    if found is not None:
        # The method of the base class: that of bash also runs bash to ask for its version.
        print_text(ShellComplete.source(found(commands, {}, "longtalk", "_LONGTALK_COMPLETE")))


def _read_words() -> list[str]:
    """Return the words on the line of the shell, up to the cursor."""
    import os

    return split_arg_string(os.environ.get("COMP_WORDS", ""))


def _list_conversations(context: click.Context) -> list[Any]:
    """Return the most recently changed conversations."""
    return _read_store(context, lambda archive: archive.conversations(limit=_MOST))


def _read_store(context: click.Context, read: Callable[[Archive], list[T]]) -> list[T]:
    """Return what is read from the store; nothing if there is no store. A shell can't show an error."""
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
            return read(Archive(store, owner=owner))
        finally:
            store.close()
    return []
