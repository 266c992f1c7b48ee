"""Declare the commands for branches, the brief and the context of a conversation, with their options and help."""

from __future__ import annotations

from typing import Any

import click

from longtalk.cli.command_flags import commands as commands
from longtalk.cli.completion import complete_entries, complete_ids
from longtalk.cli.shared_options import AS_JSON, BRANCH, store_options, table_options

_ID = click.argument("id", shell_complete=complete_ids)
_ID_OR_LATEST = click.argument("id", required=False, shell_complete=complete_ids)


@commands.command()
@_ID
@click.argument("title", nargs=-1, required=True, metavar="TITLE…")
@AS_JSON
@store_options
def rename(title: tuple[str, ...], **options: Any) -> None:
    """Give a conversation a title.

    `longtalk list` shows the title. The id stays as it is.

    \b
    longtalk rename lesson-7 How to hold the bow
    """
    from longtalk.cli.branches import rename as run

    run(title=" ".join(title), **options)


@commands.command()
@_ID_OR_LATEST
@table_options
@store_options
def branches(**options: Any) -> None:
    """List the branches of a conversation.

    Without an ID, this is the most recently changed conversation. Columns: branch, number of entries, the branch that
    it was forked from, number of entries that both share, time of the last change, and the first words that are on this
    branch alone.

    \b
    longtalk branches lesson-7
    longtalk branches lesson-7 --json
    """
    from longtalk.cli.branches import list_branches as run

    run(**options)


@commands.command()
@_ID_OR_LATEST
@click.argument("at", required=False, metavar="[ENTRY]", shell_complete=complete_entries)
@click.option("--name", metavar="NAME", help="The name of the new branch. Default: chosen for you.")
@BRANCH
@AS_JSON
@store_options
def fork(**options: Any) -> None:
    """Create a branch of a conversation.

    Without an ID, this is the most recently changed conversation. The branch ends after ENTRY, an entry or turn; by
    default, it has the whole conversation. Prints the name of the new branch, on which the conversation goes on.
    `longtalk show` prints the ids of entries.

    \b
    longtalk fork --name aside
    longtalk fork lesson-7 q3vft5cmxl2a-0
    """
    from longtalk.cli.branches import fork as run

    run(**options)


@commands.command()
@_ID
@click.argument("to", metavar="ENTRY", shell_complete=complete_entries)
@BRANCH
@AS_JSON
@store_options
def rewind(**options: Any) -> None:
    """Cut a conversation after an entry.

    The next message follows ENTRY, an entry or turn. Nothing is lost: a new branch, whose name is printed, keeps what
    was cut off. `longtalk show` prints the ids of entries.

    \b
    longtalk rewind lesson-7 q3vft5cmxl2a-1
    """
    from longtalk.cli.branches import rewind as run

    run(**options)


@commands.command()
@_ID_OR_LATEST
@click.option("--turn", metavar="TURN", help="Show this turn. Default: the last turn in which a model was called.")
@click.option("--request", is_flag=True, help="Print the exact text of each request of the turn instead, as JSON.")
@BRANCH
@table_options
@store_options
def context(**options: Any) -> None:
    """Show what the last turn sent to the model, and why.

    Without an ID, this is the most recently changed conversation. Prints the tokens of each part and the share of the
    model's window, then one line for each run of entries: positions, what was done, tokens, and the reason.

    \b
    longtalk context lesson-7
    longtalk context lesson-7 --json
    longtalk context lesson-7 --request | jq .messages
    """
    from longtalk.cli.context import run

    if options["request"] and options["as_json"]:
        raise click.UsageError("--request prints JSON already: leave out --json.")

    run(**options)


@commands.group()
def brief() -> None:
    """Show and change the brief of a conversation.

    The brief is what the policy Memory() keeps of older messages: lines that the model notes with its answers, in
    hidden memory cards, and lines of your own.

    \b
    longtalk brief show lesson-7
    longtalk brief add lesson-7 facts "Ada plays the violin."
    """


@brief.command(name="show")
@_ID_OR_LATEST
@BRANCH
@table_options
@store_options
def brief_show(**options: Any) -> None:
    """Show the lines of the brief.

    Columns: line id, the entry that it came from, time, field and text.

    \b
    longtalk brief show lesson-7
    longtalk brief show lesson-7 --json
    """
    from longtalk.cli.show import run

    run(state=None, brief=True, topics=False, **options)


@brief.command(name="add")
@_ID
@click.argument("field")
@click.argument("text", nargs=-1, required=True, metavar="TEXT…")
@BRANCH
@AS_JSON
@store_options
def brief_add(text: tuple[str, ...], **options: Any) -> None:
    """Add a line to a field of the brief.

    \b
    longtalk brief add lesson-7 facts "Ada plays the violin."
    """
    from longtalk.cli.brief import add

    add(text=" ".join(text), **options)


@brief.command(name="edit")
@_ID
@click.argument("line")
@click.argument("text", nargs=-1, required=True, metavar="TEXT…")
@BRANCH
@AS_JSON
@store_options
def brief_edit(text: tuple[str, ...], **options: Any) -> None:
    """Replace the text of a line, given by its id.

    `longtalk brief show` prints the ids. A changed line has a new id, which is printed.

    \b
    longtalk brief edit lesson-7 d538d6df29 "Ada plays the viola."
    """
    from longtalk.cli.brief import edit

    edit(text=" ".join(text), **options)


@brief.command(name="revoke")
@_ID
@click.argument("line")
@BRANCH
@AS_JSON
@store_options
def brief_revoke(**options: Any) -> None:
    """Remove a line for good, given by its id.

    The model can't add it again. `longtalk brief show` prints the ids.

    \b
    longtalk brief revoke lesson-7 d538d6df29
    """
    from longtalk.cli.brief import revoke

    revoke(**options)


@commands.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, options, ids of conversations and branches.

    \b
    longtalk completion bash >> ~/.bashrc
    longtalk completion zsh >> ~/.zshrc
    longtalk completion fish > ~/.config/fish/completions/longtalk.fish
    """
    from longtalk.cli.completion import print_script

    print_script(commands, shell)
