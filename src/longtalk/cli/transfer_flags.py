"""Declare the commands that move conversations between stores, files and other tools."""

from __future__ import annotations

from typing import Any

import click

from longtalk.cli.command_flags import commands as commands
from longtalk.cli.completion import complete_files, complete_ids
from longtalk.cli.shared_options import AS_JSON, BRANCH, OWNER, filter_options, owners_options, store_options


@commands.command()
@click.argument("id", required=False, shell_complete=complete_ids)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Export all conversations. With md, each becomes a file in the folder that -o names.",
)
@click.option(
    "-f",
    "--format",
    type=click.Choice(["md", "markdown", "json", "jsonl"]),
    callback=lambda _context, _option, value: "md" if value == "markdown" else value,
    metavar="[md|json|jsonl]",
    help="md for reading; json or jsonl for backup and import. Default: by the suffix of the output file, else md.",
)
@BRANCH
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=complete_files,
    help="The file to write. Default: standard output.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@filter_options("conversations last changed")
@store_options
def export(everything: bool, **options: Any) -> None:
    """Write conversations to a file.

    Without an ID, this is the most recently changed conversation; with --all, all of them. Markdown contains one
    branch; JSON and JSONL contain all branches, byte for byte.

    \b
    longtalk export lesson-7 > lesson-7.md
    longtalk export lesson-7 -o lesson-7.json
    longtalk export --all -o backup.jsonl
    longtalk export --all --since 2026-11-01 -o november.jsonl
    """
    from longtalk.cli.export import run

    if everything and options["id"] is not None:
        raise click.UsageError("Use either an ID or --all, not both.")
    if not everything and not options["wanted"].is_empty:
        raise click.UsageError("--since, --until, --model and --meta choose conversations: use them with --all.")
    if everything and options["branch"] is not None:
        raise click.UsageError("--branch names a branch of one conversation, so it can't be used with --all.")
    run(everything=everything, **options)


@commands.command(name="import")
@click.argument("files", nargs=-1, required=True, metavar="FILE…", shell_complete=complete_files)
@click.option("--id", metavar="ID", help="The conversation's id. Default: the id in the file, else the file's name.")
@click.option(
    "--mapping",
    metavar="FILE",
    shell_complete=complete_files,
    help="Import an app's own tables: a TOML or JSON file with `conversations` (table, id) and `messages` (table, "
    "conversation, role, content) says which tables and columns.",
)
@owners_options
@click.option("--dry-run", is_flag=True, help="Print what would be imported, but write nothing.")
@AS_JSON
@store_options
def import_(**options: Any) -> None:
    """Import conversations from files and databases.

    Detects the format: Longtalk's exports and states, messages in OpenAI's chat format or Anthropic's, data exports of
    ChatGPT and Claude (the .zip or conversations.json), llm's log, LangGraph's checkpoints and sessions of the OpenAI
    Agents SDK (in SQLite or PostgreSQL), and session logs of the KSI daemon. Use - to read standard input. Files and
    databases of other tools can be imported again to add new messages. Exits with status 1 if a conversation was
    skipped.

    \b
    longtalk import backup.jsonl
    longtalk import ada.talk --id lesson-9
    longtalk import chatgpt-export.zip
    longtalk import "$(llm logs path)"
    longtalk import postgresql://user@host/database --dry-run
    longtalk import app.db --mapping chats.toml --all-owners
    """
    from longtalk.cli.import_ import run

    if options["id"] is not None and len(options["files"]) > 1:
        raise click.UsageError("--id can be used with only one file.")
    run(**options)


@commands.command()
@click.argument("words", nargs=-1, required=True, metavar="[FROM] TO [ID…]", shell_complete=complete_files)
@click.option(
    "--since",
    metavar="DATE|ID",
    help="Copy only conversations changed at or after this date or time, or the last change of the conversation ID.",
)
@owners_options
@AS_JSON
@OWNER
def copy(words: tuple[str, ...], **options: Any) -> None:
    """Copy conversations to another store.

    FROM and TO name stores, as --store does; with TO alone, your own store is copied. Everything is copied byte for
    byte, read back and compared. Repeating a copy skips what is unchanged and adds what is new. Exits with status 1 if
    a conversation was skipped.

    \b
    longtalk copy elsewhere.db
    longtalk copy talks.db talks/
    longtalk copy talks.db elsewhere.db --owner ada --since 2026-11-01
    longtalk copy talks/ talks.db lesson-7 lesson-8
    longtalk copy talks.db elsewhere.db --all-owners
    """
    from longtalk.cli.copy import run

    source, stores = (words[0], words[1:]) if len(words) > 1 else (None, words)
    run(source=source, target=stores[0], ids=stores[1:], **options)
