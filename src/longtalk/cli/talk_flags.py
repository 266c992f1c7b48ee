"""Declare the commands that talk with a model, with their options and help."""

from __future__ import annotations

import shlex
from typing import Any

import click

from longtalk.cli.command_flags import commands as commands
from longtalk.cli.completion import complete_entries, complete_files, complete_ids, complete_models, complete_policies
from longtalk.cli.shared_options import AS_JSON, BRANCH, OPTION, parse_policies, store_options

_MODEL = click.option(
    "-m",
    "--model",
    shell_complete=complete_models,
    help="The model: ollama:llama3.2, or claude-sonnet-5, short for anthropic:claude-sonnet-5. Default: as before "
    "in the conversation, or a small local model.",
)
_SYSTEM = click.option("-s", "--system", help="System text. Default: as before in the conversation.")
_POLICY = click.option(
    "-p",
    "--policy",
    metavar="POLICY",
    shell_complete=complete_policies,
    help="What to send, written as in Python: 'Memory()', 'KeepLast(6)'. Default: as before in the conversation, or "
    "everything.",
)
_BASE_URL = click.option("--base-url", help="The address of the model's server, if it is not the usual one.")

_TOOLS = click.option(
    "-t",
    "-T",
    "--tools",
    "--functions",
    "tools",
    multiple=True,
    metavar="FILE.py|CODE",
    shell_complete=complete_files,
    help="Let the model call the functions of this file, or of this Python code.",
)


@commands.command()
@click.argument("question", nargs=-1)
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    metavar="FILE",
    shell_complete=complete_files,
    help="Send the text of this file, too; of all files that match a pattern in quotes, or of a folder.",
)
@click.option(
    "-a",
    "--image",
    "--attachment",
    "images",
    multiple=True,
    metavar="FILE|URL",
    shell_complete=complete_files,
    help="Send this image, too.",
)
@click.option("-c", "--continue", "goes_on", is_flag=True, help="Continue the most recently changed conversation.")
@click.option(
    "--id",
    "--conversation",
    "id",
    metavar="ID",
    shell_complete=complete_ids,
    help="Continue or start the conversation with this id.",
)
@BRANCH
@click.option("-n", "--no-log", "in_memory", is_flag=True, help="Store nothing.")
@_MODEL
@_SYSTEM
@OPTION
@_TOOLS
@click.option(
    "--output",
    "--schema",
    "output",
    metavar="FILE|SCHEMA",
    shell_complete=complete_files,
    help="Answer with JSON that matches a JSON Schema: a file, the schema itself, or fields: 'name, age int'.",
)
@click.option("-x", "--extract", is_flag=True, help="Print only the first code block of the answer.")
@_POLICY
@_BASE_URL
@AS_JSON
@store_options
def ask(question: tuple[str, ...], policy: str | None, **options: Any) -> None:
    """Ask one question.

    Piped text and files are sent before the question. Standard output has the answer alone; it is stored as a
    conversation, which -c continues. `longtalk "…"` asks, too.

    \b
    longtalk ask "What is a fugue?"
    longtalk ask -c "And a canon?"
    git diff | longtalk ask "Write a commit message." -m ollama:llama3.2
    longtalk ask "What do they have in common?" -f '*.md'
    longtalk ask "What is in the picture?" -a photo.png -m openai:gpt-5.6
    longtalk ask "A regex for ISO dates" --extract -o temperature 0
    """
    from longtalk.cli.ask import run

    if options["branch"] is not None and not options["goes_on"] and options["id"] is None:
        raise click.UsageError("--branch continues a branch of a conversation: add -c, or --id.")
    if options["in_memory"] and (options["goes_on"] or options["id"] is not None):
        raise click.UsageError(
            "-n asks without a conversation: it stores nothing, so it can't continue one with -c or --id. To try a "
            "question on a copy of a conversation: longtalk fork ID --name trial, and then --id ID -b trial."
        )
    if options["extract"] and (options["output"] is not None or options["as_json"]):
        raise click.UsageError("Use only one of --extract, --output and --json.")
    run(words=question, policy=parse_policies(policy)[0] if policy else None, **options)


@commands.command()
@click.argument("id", required=False, shell_complete=complete_ids)
@click.option("--new", is_flag=True, help="Start a new conversation.")
@click.option(
    "-c", "--continue", "goes_on", is_flag=True, help="Continue the most recently changed conversation: the default."
)
@BRANCH
@_MODEL
@_SYSTEM
@OPTION
@_TOOLS
@_POLICY
@_BASE_URL
@click.option("--lines", is_flag=True, help="From a pipe, send each line as a message.")
@store_options
def chat(new: bool, goes_on: bool, policy: str | None, **options: Any) -> None:
    """Talk with a model.

    ID names the conversation to continue or start. Without it, the chat continues the most recently changed
    conversation, even if another program changed it; --new starts a new one. Inside the chat, /help lists the commands.
    What is piped in is one message.

    \b
    longtalk chat
    longtalk chat lesson-7 -m ollama:llama3.2 -p 'Memory()'
    echo "What is a fugue?" | longtalk chat --new
    longtalk chat --new --lines < questions.txt
    """
    from longtalk.cli.chat.loop import run

    if goes_on and (new or options["id"] is not None):
        raise click.UsageError("Use one of -c, --new and an ID.")
    if new and options["id"] is not None:
        raise click.UsageError(
            f"Use either an ID or --new, not both: `longtalk chat {shlex.quote(options['id'])}` starts a conversation "
            "with this id, or continues it if there is one."
        )
    if new and options["branch"] is not None:
        raise click.UsageError("Use either --branch or --new, not both.")
    run(new=new, policy=parse_policies(policy)[0] if policy else None, **options)


@commands.command()
@click.argument("id", shell_complete=complete_ids)
@click.argument("words", nargs=-1, metavar="[ENTRY] [TEXT…]", shell_complete=complete_entries)
@BRANCH
@_MODEL
@_SYSTEM
@_POLICY
@_BASE_URL
@AS_JSON
@store_options
def edit(policy: str | None, **options: Any) -> None:
    """Change a message that you sent, and have it answered.

    ENTRY is a message or turn; by default, it is your last message. Without a TEXT, the new one is read from standard
    input; at a terminal, $EDITOR opens with the old one. The conversation goes on with the new message. What followed
    the old one is kept on a new branch, whose name is printed to standard error. `longtalk show` prints the ids of
    entries.

    \b
    longtalk edit lesson-7 "How do I hold the viola's bow?"
    longtalk edit lesson-7 q3vft5cmxl2a-0 "How much rosin?"
    longtalk edit lesson-7 < notes.md
    """
    from longtalk.cli.edit import run

    run(policy=parse_policies(policy)[0] if policy else None, **options)


@commands.command()
@click.option("--fast", is_flag=True, help="Print everything at once, without pauses.")
def demo(fast: bool) -> None:
    """Show what memory does, in half a minute and without a model.

    Plays scenes of a sample conversation of five months: what each request carried, what was recalled, and what it
    cost beside sending everything.

    \b
    longtalk demo
    longtalk demo --fast
    """
    from longtalk.cli.demo import run

    run(fast=fast)
