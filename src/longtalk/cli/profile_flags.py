"""Declare the commands for the profile of an owner, with their options and help."""

from __future__ import annotations

from typing import Any

import click

from longtalk.cli.command_flags import commands as commands
from longtalk.cli.completion import complete_ids
from longtalk.cli.shared_options import AS_JSON, store_options, table_options


@commands.group()
def profile() -> None:
    """Show and change what all conversations know about the user.

    The policy Memory(profile=Profile()) keeps a profile of each owner: the model notes what the user says about
    themselves, and it is sent in all conversations of the owner.

    \b
    longtalk profile list
    longtalk profile add preferences "Short answers"
    """


@profile.command(name="list")
@table_options
@store_options
def profile_list(**options: Any) -> None:
    """List the lines of the profile.

    Columns: line id, the conversation that it came from, time, field and text.

    \b
    longtalk profile list
    longtalk profile list --json
    """
    from longtalk.cli.profile import list_lines

    list_lines(**options)


@profile.command(name="add")
@click.argument("field")
@click.argument("text", nargs=-1, required=True, metavar="TEXT…")
@AS_JSON
@store_options
def profile_add(text: tuple[str, ...], **options: Any) -> None:
    """Add a line to a field of the profile: about_user or preferences.

    If the last conversation had a profile with other fields, these are the fields.

    \b
    longtalk profile add preferences "Short answers"
    """
    from longtalk.cli.profile import add

    add(text=" ".join(text), **options)


@profile.command(name="edit")
@click.argument("line")
@click.argument("text", nargs=-1, required=True, metavar="TEXT…")
@AS_JSON
@store_options
def profile_edit(text: tuple[str, ...], **options: Any) -> None:
    """Replace the text of a line, given by its id.

    `longtalk profile list` prints the ids. The line is gone when all conversations that it came from are deleted.

    \b
    longtalk profile edit 6837e2d166 "Short answers, with an example"
    """
    from longtalk.cli.profile import edit

    edit(text=" ".join(text), **options)


@profile.command(name="revoke")
@click.argument("line")
@AS_JSON
@store_options
def profile_revoke(**options: Any) -> None:
    """Remove a line for good, given by its id.

    No conversation can add it again. `longtalk profile list` prints the ids.

    \b
    longtalk profile revoke 6837e2d166
    """
    from longtalk.cli.profile import revoke

    revoke(**options)


@profile.command(name="private")
@click.argument("id", shell_complete=complete_ids)
@click.option("--on/--off", "private", default=None, help="Make the conversation private, or end that.")
@AS_JSON
@store_options
def profile_private(**options: Any) -> None:
    """Say whether a conversation is private, or change that.

    A private conversation adds nothing to the profile, and uses neither it nor other conversations. A conversation that
    does not exist yet is begun by --on.

    \b
    longtalk profile private lesson-7
    longtalk profile private lesson-7 --on
    """
    from longtalk.cli.profile import private

    private(**options)
