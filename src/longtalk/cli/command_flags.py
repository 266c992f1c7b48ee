"""Declare the commands that read and change stored conversations, with their options and help.

`branch_flags`, `talk_flags`, `transfer_flags` and `service_flags` declare the others. Each command is implemented in a
module of its own.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from longtalk import __version__
from longtalk.cli.command_group import Commands
from longtalk.cli.completion import (
    complete_branches,
    complete_entries,
    complete_files,
    complete_ids,
    complete_ids_and_files,
    complete_models,
    complete_models_words,
    complete_policies,
)
from longtalk.cli.shared_options import (
    AS_JSON,
    BRANCH,
    YES,
    filter_options,
    limit_option,
    parse_policies,
    store_options,
    table_options,
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="longtalk %(version)s")
def commands() -> None:
    """Long talks, short prompts.

    Without a command, this asks a question, as `longtalk ask` does: longtalk -m MODEL -s SYSTEM -f FILE "…". The option
    -c continues the last conversation; `longtalk ask --help` lists all options.

    \b
    longtalk "What is a fugue?"
    longtalk -c "And a canon?"
    git diff | longtalk -s "Write a commit message."
    longtalk chat
    longtalk list
    longtalk chat --help
    """


@commands.command(name="list")
@limit_option(50, "conversations")
@filter_options("conversations last changed")
@table_options
@store_options
def list_(**options: Any) -> None:
    """List conversations.

    Most recently changed first. Columns: id, time of the last change, number of entries, and the title or the beginning
    of the first message.

    \b
    longtalk list
    longtalk list --store talks.db --owner ada --meta topic=bows
    longtalk list --since 2026-11-01 --model sonnet
    longtalk list --limit 0 --json
    """
    from longtalk.cli.list import run

    run(**options)


@commands.command()
@click.argument("id", required=False, shell_complete=complete_ids)
@BRANCH
@click.option(
    "--state",
    metavar="FILE",
    shell_complete=complete_files,
    help="Show the conversation in a state file instead; - is standard input.",
)
@click.option("-r", "--last", is_flag=True, help="Print only the last answer.")
@click.option("-x", "--extract", is_flag=True, help="Print only the first code block of the last answer.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    help="Show the last exchanges only, at most this many: a message with its answer and tool calls counts as one.",
)
@click.option("-a", "--all", "everywhere", is_flag=True, help="Show the last exchanges of all conversations: 3, or -n.")
@click.option("-u", "--usage", is_flag=True, help="Show the tokens and the cost of each turn, too.")
@click.option("--brief", is_flag=True, help="Show the brief instead. Columns: line id, origin, time, field and text.")
@click.option(
    "--topics", is_flag=True, help="Show the topics instead. Columns: start, number of messages, typical words."
)
@table_options
@store_options
def show(state: str | None, everywhere: bool, **options: Any) -> None:
    """Show a conversation.

    Without an ID, this is the most recently changed conversation.

    \b
    longtalk show lesson-7
    longtalk show --last
    longtalk show -n 3 --usage
    longtalk show --all -n 3 --usage
    longtalk show --state ada.talk
    longtalk show lesson-7 --brief
    longtalk show lesson-7 --topics
    longtalk show lesson-7 --json | jq .native
    """
    from longtalk.cli.show import run, show_last

    if everywhere:
        names = ("store", "owner", "limit", "usage", "as_json")
        if state is not None or any(value for name, value in options.items() if name not in names):
            raise click.UsageError("--all shows all conversations: use it alone or with -n, --usage and --json.")
        show_last(**{name: options[name] for name in names} | {"limit": options["limit"] or 3})
        return
    if state is not None and (options["id"], options["branch"]) != (None, None):
        raise click.UsageError("--state shows a file, so it can't be used with an ID or --branch.")
    if sum(bool(options[name]) for name in ("brief", "topics", "last", "extract", "limit")) > 1:
        raise click.UsageError("Use only one of --brief, --topics, --last, --extract and --limit.")
    if options["usage"] and (
        state is not None or any(options[name] for name in ("brief", "topics", "last", "extract"))
    ):
        raise click.UsageError("--usage shows a conversation with the tokens of its turns: use it alone or with -n.")
    if options["as_json"] and options["extract"]:
        raise click.UsageError("--extract prints text. For the last answer as JSON, use --last --json.")
    run(state=state, **options)


@commands.command()
@click.argument("words", nargs=-1, required=True, metavar="WORDS…")
@limit_option(20, "entries")
@click.option("-c", "--conversation", metavar="ID", shell_complete=complete_ids, help="Search this conversation only.")
@filter_options("entries made")
@table_options
@store_options
def search(**options: Any) -> None:
    """Search for entries by words and phrases.

    Best match first. Whole words match, not their middle; 'ros*' finds all words that begin so. Text in double quotes
    is a phrase.
    Columns: conversation, entry, role, time, the text around the first match, and the branch if it is not the main
    one. Exits with status 1 if nothing matches.

    \b
    longtalk search rosin
    longtalk search 'ros*'
    longtalk search '"hold the bow"' thumb
    longtalk search rosin --since 2026-11-01 --until 2026-11-15
    """
    from longtalk.cli.search import run

    run(**options)


@commands.command()
@click.argument("id", required=False, shell_complete=complete_ids)
@click.option("--turns", is_flag=True, help="Print one line for each turn of one conversation instead.")
@BRANCH
@filter_options("conversations last changed")
@table_options
@store_options
def stats(**options: Any) -> None:
    """Count entries, turns, tokens and cost.

    Without an ID, this covers all conversations; with --turns, the most recently changed one. Columns with --turns:
    start time, model, number of model calls, tokens of the last request, tokens sent in all calls, how many of those
    were cached, tokens received, and cost. Unknown values are printed as -.

    \b
    longtalk stats
    longtalk stats --since 2026-11-01 --meta topic=bows
    longtalk stats lesson-7 --json
    longtalk stats lesson-7 --turns
    """
    from longtalk.cli.stats import run

    if options["turns"] and not options["wanted"].is_empty:
        raise click.UsageError("--turns shows one conversation: leave out --since, --until, --model and --meta.")
    if options["id"] is not None and not options["wanted"].is_empty:
        raise click.UsageError("--since, --until, --model and --meta choose conversations: leave out the ID.")
    if options["branch"] is not None and not options["turns"]:
        raise click.UsageError("--branch is for --turns: the totals are of all branches.")
    run(**options)


@commands.command()
@click.argument("transcript", required=False, shell_complete=complete_ids_and_files)
@BRANCH
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
    shell_complete=complete_models,
    help="Use the prices of this model, named as for a question. Repeatable. Default: the models of the conversation, "
    "or two others if none of these has prices.",
)
@click.option(
    "-p",
    "--policy",
    "policies",
    multiple=True,
    metavar="POLICY",
    shell_complete=complete_policies,
    help="A policy, written as in Python: 'KeepLast(6)', 'Combine(KeepLast(20), TokenBudget(8_000))'. Repeatable. "
    "Default: a selection.",
)
@click.option("-s", "--system", help="The system text. Default: that of the last turn, if it is stored.")
@click.option("--plot", "plot_file", metavar="FILE", help="Also draw the tokens of each request, as .svg or .png.")
@click.option("--force", is_flag=True, help="Overwrite an existing picture.")
@table_options
@store_options
def simulate(policies: tuple[str, ...], **options: Any) -> None:
    """Estimate what a conversation would cost under other policies.

    TRANSCRIPT is the id of a conversation or a file: a state, an export, or messages in OpenAI's chat format (- reads
    standard input). If it is omitted, the most recently changed conversation is used. No model is called.

    Columns: policy, average and maximum tokens per request, share read from the provider's cache, number of epochs
    (each begins where the cache is lost, because the beginning of the request changes), number of summaries, total
    cost, cost per turn, and the ratio to the optimum, which knows the whole conversation in
    advance. Unknown values are printed as -. If the output is piped, the model is the first column.

    \b
    longtalk simulate lesson-7
    longtalk simulate messages.json -m anthropic:claude-sonnet-5 -p 'KeepLast(6)' -p 'Economy()'
    longtalk simulate lesson-7 --plot tokens.svg
    longtalk simulate lesson-7 --plot tokens.png
    longtalk simulate ada.talk --json | jq .totals
    """
    parsed = parse_policies(*policies)
    from longtalk.cli.simulate import run

    run(policies=parsed, **options)


@commands.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID…", shell_complete=complete_ids)
@click.option(
    "-b",
    "--branch",
    metavar="NAME",
    shell_complete=complete_branches,
    help="Delete only this branch of the conversation.",
)
@YES
@AS_JSON
@store_options
def delete(**options: Any) -> None:
    """Delete conversations permanently.

    With --branch, one branch of a conversation is deleted, with all that no other branch shares. The main branch and
    the one on which the conversation goes on can't be deleted so.

    \b
    longtalk delete lesson-7
    longtalk delete lesson-7 --branch draft
    longtalk delete lesson-7 lesson-8 --yes
    """
    from longtalk.cli.remove import delete as run

    if options["branch"] is not None and len(set(options["ids"])) > 1:
        raise click.UsageError("--branch deletes a branch of one conversation: name only one.")
    run(**options)


@commands.command()
@click.argument("id", shell_complete=complete_ids)
@click.argument("entry", shell_complete=complete_entries)
@YES
@AS_JSON
@store_options
def redact(**options: Any) -> None:
    """Remove the content of an entry permanently.

    The entry keeps its position in the conversation. `longtalk show` prints the ids of entries.

    \b
    longtalk redact lesson-7 q3vft5cmxl2a-0
    """
    from longtalk.cli.remove import redact as run

    run(**options)


@commands.command()
@click.argument("files", nargs=-1, metavar="[FILE…]", shell_complete=complete_files)
@click.option(
    "-m",
    "--model",
    default="openai-chat:gpt-5.6",
    show_default=True,
    shell_complete=complete_models,
    help="Count the tokens of this model, named as for a question.",
)
@click.option("--exact", is_flag=True, help="Count with the model's own tokenizer. Needs longtalk[tokens].")
@AS_JSON
def tokens(files: tuple[str, ...], model: str, exact: bool, as_json: bool) -> None:
    """Count tokens in files.

    A file is text, chat messages as JSON or JSONL, or a state; - is standard input, which is also read without a FILE.

    \b
    longtalk tokens notes.md lesson.talk
    longtalk tokens -m anthropic:claude-sonnet-5 messages.json
    git diff | longtalk tokens --exact
    """
    from longtalk.cli.output import reword_error
    from longtalk.cli.tokens import run
    from longtalk.errors import InputError

    if not files and sys.stdin.isatty():
        raise click.UsageError("Name a file, or pipe a text in.")
    try:
        run(files=files or ("-",), model=model, exact=exact, as_json=as_json)
    except InputError as problem:
        raise click.UsageError(reword_error(problem)) from None


@commands.command()
@click.argument("words", nargs=-1, metavar="[QUERY]", shell_complete=complete_models_words)
@click.option("--provider", metavar="NAME", help="List the models of this provider only.")
@click.option("--ready", is_flag=True, help="List local models, and those of providers whose API key is there, only.")
@table_options
def models(words: tuple[str, ...], **options: Any) -> None:
    """List or search known models.

    With a QUERY, this lists the models whose names contain all its words. `longtalk models default` prints the default
    model, and `longtalk models default NAME` sets it. Columns: model, window, output limit, the provider's cache
    (automatic, marks where Longtalk marks what to cache, or none), prices in US dollars per million tokens (input,
    output, cache read, cache write), and prices of long requests. Unknown values are printed as -. Exits with status 1
    if nothing matches.

    \b
    longtalk models sonnet
    longtalk models --provider groq
    longtalk models --ready
    longtalk models gpt-5.6 --json | jq .prices
    """
    from longtalk.cli.models import run

    if words[:1] == ("default",) and len(words) < 3:
        from longtalk.cli.config import choose_default_model

        choose_default_model(words[1] if len(words) == 2 else "", as_json=options["as_json"])
        return
    if words[:1] == ("options",):
        raise click.UsageError("Use `longtalk config alias NAME MODEL -o OPTION VALUE`, and -m NAME.")
    # "list" as users of llm write it.
    run(words=words[1:] if words[:1] == ("list",) else words, **options)
