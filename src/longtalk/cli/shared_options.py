"""Command-line options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from longtalk.cli.completion import complete_branches, complete_files, complete_options

HEADER_WANTED = "longtalk.header"
"""Where the context of a command says that the header is printed in a pipe, too."""
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
_HEADER = click.option(
    "--header",
    is_flag=True,
    expose_value=False,
    callback=lambda context, _, value: context.meta.update({HEADER_WANTED: value}),
    help="Print the names of the columns in a pipe, too.",
)
OWNER = click.option(
    "--owner",
    envvar="LONGTALK_OWNER",
    show_envvar=True,
    default="",
    metavar="NAME",
    help="Use the conversations of this owner. Default: those without an owner.",
)
OPTION = click.option(
    "-o",
    "--option",
    "options",
    nargs=2,
    multiple=True,
    metavar="NAME VALUE",
    shell_complete=complete_options,
    help="An option for the provider, such as: -o temperature 0. What is not given stays as before; an empty VALUE "
    "takes an option back.",
)
BRANCH = click.option(
    "-b",
    "--branch",
    metavar="NAME",
    shell_complete=complete_branches,
    help="Use this branch. Default: the one that changed last.",
)
YES = click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the `--json` and `--header` options to a command that prints a table."""
    return AS_JSON(_HEADER(command))


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the `--store` and `--owner` options to a command."""
    store_option = click.option(
        "--store",
        envvar="LONGTALK_STORE",
        show_envvar=True,
        metavar="PATH",
        shell_complete=complete_files,
        help="A SQLite file, a folder of JSONL files (a path that ends in /), or an address: "
        "postgresql://user@host/database, redis://host. "
        "Default: a file in your data folder, such as ~/.local/share/longtalk/conversations.db.",
    )
    return store_option(OWNER(command))


def owners_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options `--all-owners` and `--owner-map`. The command gets the choice as `owners`."""

    @wraps(command)
    def call(*, all_owners: bool, owner_map: str | None, **rest: Any) -> Any:
        if (all_owners or owner_map) and rest["owner"]:
            raise click.UsageError("Use one of --owner, --all-owners and --owner-map.")
        if all_owners and owner_map:
            raise click.UsageError("Use either --all-owners or --owner-map, not both.")
        from longtalk.transfer.owners import read_owner_map

        owners = "all" if all_owners else read_owner_map(Path(owner_map)) if owner_map else None
        return command(owners=owners, **rest)

    for option in (
        click.option(
            "--owner-map",
            metavar="FILE",
            help="Of all owners, each renamed as this file says: a JSON object, or CSV with two columns (old, new).",
        ),
        click.option("--all-owners", is_flag=True, help="The conversations of all owners, each for its owner."),
    ):
        call = option(call)
    return call


def limit_option(default: int, noun: str) -> Callable[..., Any]:
    """Return a `--limit` option for the number of rows that a command prints; `noun` names them in the help."""
    return click.option(
        "-n",
        "--limit",
        type=click.IntRange(min=0),
        default=default,
        show_default=True,
        help=f"Print at most this many {noun}; 0 for all.",
    )


def filter_options(what: str) -> Callable[..., Any]:
    """Return a decorator that adds the options of a filter. The command gets the filter as `wanted`.

    `what` says in the help what the times apply to.
    """
    options = [
        click.option(
            "--since", metavar="DATE", help=f"Only {what} at or after this date or time: 2026-11-16, today, 3d."
        ),
        click.option("--until", metavar="DATE", help=f"Only {what} at or before this time, or until the end of a day."),
        click.option("-m", "--model", metavar="NAME", help="Only conversations with a model whose name contains this."),
        click.option(
            "--meta", multiple=True, metavar="KEY=VALUE", help="Only conversations whose metadata has this value."
        ),
    ]

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def call(*, since: str | None, until: str | None, model: str | None, meta: tuple[str, ...], **rest: Any) -> Any:
            from longtalk.cli.filters import parse_filter

            return command(wanted=parse_filter(since=since, until=until, model=model, meta=meta), **rest)

        for option in reversed(options):
            call = option(call)
        return call

    return add


def parse_policies(*texts: str) -> list[Any]:
    """Parse policies such as `KeepLast(6)`. Raise `click.UsageError` if one is invalid."""
    from longtalk.cli.output import reword_error
    from longtalk.errors import InputError
    from longtalk.policies.notation import parse_policy

    try:
        return [parse_policy(text) for text in texts]
    except InputError as problem:
        raise click.UsageError(reword_error(problem)) from None
