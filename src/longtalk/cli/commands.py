"""The commands and their options, as `longtalk --help` shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from longtalk import __version__

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
_OWNER = click.option(
    "--owner",
    envvar="LONGTALK_OWNER",
    show_envvar=True,
    default="",
    metavar="NAME",
    help="Whose conversations; default: those without an owner.",
)
_YES = click.option("--yes", is_flag=True, help="Don't ask.")


def _stored(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a command on a store."""
    where = click.option(
        "--store",
        envvar="LONGTALK_STORE",
        show_envvar=True,
        metavar="PATH",
        help="A SQLite file, a folder of JSONL files (a path that ends in /), or an address: "
        "postgresql://user@host/database, redis://host. "
        "Default: a file in your data folder, such as ~/.local/share/longtalk/conversations.db.",
    )
    return where(_OWNER(command))


def _limit(default: int, more: str = "") -> Callable[..., Any]:
    return click.option(
        "--limit", type=click.IntRange(min=0), default=default, show_default=True, help=f"How many at most{more}."
    )


def _policies(*texts: str) -> list[Any]:
    """The policies that these name."""
    from longtalk.cli.out import worded
    from longtalk.cli.policies import parse
    from longtalk.errors import InputError

    try:
        return [parse(text) for text in texts]
    except InputError as problem:
        raise click.UsageError(worded(problem)) from None


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="longtalk %(version)s")
def commands() -> None:
    """Long talks, short prompts."""


@commands.command()
@click.argument("id", required=False)
@click.option("--new", is_flag=True, help="Begin a new conversation.")
@click.option("-m", "--model", help="As provider:model, such as ollama:llama3.2. Default: a small local model.")
@click.option("-s", "--system", help="System text, given fresh with each message.")
@click.option(
    "-p",
    "--policy",
    metavar="POLICY",
    help="What is sent, as in Python: 'Memory()', 'KeepLast(6)'. Default: all.",
)
@click.option("--base-url", help="The address of the model's server, where it is not the usual one.")
@_stored
def chat(new: bool, policy: str | None, **options: Any) -> None:
    """Talk with a model; the conversation goes on next time.

    Without an ID it is the conversation of this owner that was changed last, whoever began it; --new begins another.

    \b
    longtalk chat
    longtalk chat lesson-7 -m ollama:llama3.2 -p 'Memory()'
    echo "What is a fugue?" | longtalk chat --new
    """
    from longtalk.cli.chat import run

    if new and options["id"] is not None:
        raise click.UsageError("An ID names the conversation, --new begins one without: give one of them.")
    run(new=new, policy=_policies(policy or "KeepAll()")[0], **options)


@commands.command(name="list")
@_limit(50, "; 0 for all")
@click.option("--meta", multiple=True, metavar="KEY=VALUE", help="Those that have this among the app's own data.")
@_AS_JSON
@_stored
def list_(**options: Any) -> None:
    """List conversations, those changed last first.

    A line has the id, the time, the number of entries, and the title or how it begins.

    \b
    longtalk list
    longtalk list --store talks.db --owner ada --meta topic=bows
    longtalk list --limit 0 --json
    """
    from longtalk.cli.list import run

    run(**options)


@commands.command()
@click.argument("id", required=False)
@click.option("--branch", metavar="NAME", help="Default: the main one.")
@click.option("--state", metavar="FILE", help="Show what a state holds instead; - is standard input.")
@click.option("--brief", is_flag=True, help="Its brief instead: id, origin, time, field and text of each line.")
@click.option("--topics", is_flag=True, help="Show what it was about: when, how many messages, and some words of each.")
@_AS_JSON
@_stored
def show(state: str | None, **options: Any) -> None:
    """Show what was said.

    Without an ID it is the conversation changed last.

    \b
    longtalk show lesson-7
    longtalk show --state ada.talk
    longtalk show lesson-7 --brief
    longtalk show lesson-7 --topics
    longtalk show lesson-7 --json | jq .native
    """
    from longtalk.cli.show import run

    if state is not None and (options["id"], options["branch"]) != (None, None):
        raise click.UsageError("--state shows a file: leave out the ID and --branch.")
    if options["brief"] and options["topics"]:
        raise click.UsageError("It is --brief or --topics.")
    run(state=state, **options)


@commands.command()
@click.argument("words", nargs=-1, required=True, metavar="WORDS…")
@_limit(20, "; 0 for all")
@click.option("-c", "--conversation", metavar="ID", help="Search in this one alone.")
@_AS_JSON
@_stored
def search(**options: Any) -> None:
    """Find what was said, the best first.

    A line has the id, the entry, its role and time, and the text around the first word that was found; behind it
    the branch, where that is not the main one. What stands in double quotes is one phrase. Without a find the status
    is 1.

    \b
    longtalk search rosin
    longtalk search '"hold the bow"' thumb
    """
    from longtalk.cli.search import run

    run(**options)


@commands.command()
@click.argument("id", required=False)
@click.option("--turns", is_flag=True, help="A line for each turn of its main branch instead.")
@_AS_JSON
@_stored
def stats(**options: Any) -> None:
    """Count entries, turns, tokens and dollars.

    Of a conversation, or without an ID of all of them. The line of a turn has the time, the model, the number of model
    calls, the tokens of its last request, those that all calls sent, those of them that were cached, those received,
    and what that cost; - where it is not known.

    \b
    longtalk stats
    longtalk stats lesson-7 --json
    longtalk stats lesson-7 --turns
    """
    from longtalk.cli.stats import run

    if options["turns"] and options["id"] is None:
        raise click.UsageError("--turns is for one conversation: name it.")
    run(**options)


@commands.command()
@click.argument("transcript", required=False)
@click.option("--branch", metavar="NAME", help="Default: the main one.")
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
    help="Whose prices, as provider:model; may be given again. Default: the models that it was held with.",
)
@click.option(
    "-p",
    "--policy",
    "policies",
    multiple=True,
    metavar="POLICY",
    help="As in Python: 'KeepLast(6)', 'Combine(KeepLast(20), TokenBudget(8_000))'; may be given again. Default: some.",
)
@click.option("-s", "--system", help="The system text that went with it, which is not stored.")
@_AS_JSON
@_stored
def simulate(policies: tuple[str, ...], **options: Any) -> None:
    """Tell what a conversation would have cost under other policies.

    TRANSCRIPT is a file (a state, an export, messages in OpenAI's chat form; - is standard input) or the id of a
    conversation; without it, it is the one changed last. No model is asked.

    A line has the policy, the tokens of a request on average and at most, the share of them that the provider reads
    from its cache, the number of epochs and of summaries, the cost in all and of a turn, and its ratio to that of the
    optimum, which knows the future. What is not known is -.

    \b
    longtalk simulate lesson-7
    longtalk simulate messages.json -m anthropic:claude-sonnet-5 -p 'KeepLast(6)' -p 'Economy()'
    longtalk simulate ada.talk --json | jq .totals
    """
    parsed = _policies(*policies)
    from longtalk.cli.simulate import run

    run(policies=parsed, **options)


@commands.command()
@click.argument("id", required=False)
@click.option("--all", "everything", is_flag=True, help="All conversations; as Markdown, into the folder -o.")
@click.option(
    "-f",
    "--format",
    type=click.Choice(["md", "json", "jsonl"]),
    help="md to read, json or jsonl to keep. Default: as the file's name ends, else md.",
)
@click.option("--branch", metavar="NAME", help="For md: the branch to write. Default: the main one.")
@click.option("-o", "--output", metavar="FILE", help="Default: standard output.")
@click.option("--force", is_flag=True, help="Overwrite what is there.")
@_stored
def export(everything: bool, **options: Any) -> None:
    """Write a conversation to a file, whole or not at all.

    \b
    longtalk export lesson-7 > lesson-7.md
    longtalk export lesson-7 -o lesson-7.json
    longtalk export --all -o backup.jsonl
    """
    from longtalk.cli.export import run

    if everything and options["id"] is not None:
        raise click.UsageError("An ID exports that conversation, --all exports all of them: give one of both.")
    if not everything and options["id"] is None:
        raise click.UsageError("Name the conversation, or say --all.")
    if everything and options["branch"] is not None:
        raise click.UsageError("--branch is for one conversation.")
    run(**options)


@commands.command(name="import")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--id", metavar="ID", help="What to call it. Default: the id that it has, else the file's name.")
@_stored
def import_(**options: Any) -> None:
    """Take in exports, states, messages, and what other tools keep.

    What a file is, is told from what it holds: exports of Longtalk, states, messages in OpenAI's chat form, data
    exports of ChatGPT and Claude (the .zip or conversations.json), the log of llm, LangGraph's SQLite checkpoints,
    sessions of the OpenAI Agents SDK; - is standard input. Doing it again adds what has come since. What could not
    come along is told; if a conversation was left, the status is 1.

    \b
    longtalk import backup.jsonl
    longtalk import ada.talk --id lesson-8
    longtalk import chatgpt-export.zip
    longtalk import "$(llm logs path)"
    """
    from longtalk.cli.load import run

    if options["id"] is not None and len(options["files"]) > 1:
        raise click.UsageError("--id is for one file.")
    run(**options)


@commands.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.argument("ids", nargs=-1, metavar="[ID…]")
@click.option("--since", metavar="DATE|ID", help="Those changed since then, or since that conversation was.")
@_OWNER
def copy(**options: Any) -> None:
    """Copy conversations to another store.

    FROM and TO are stores as --store names them. All goes along, byte for byte: branches, turns, records, data of the
    app's own, what turns have sent and the keys that they were asked for with. It is read back and compared. Doing it
    again passes over what is there and adds what has come since. If a conversation was left, the status is 1.

    \b
    longtalk copy talks.db talks/
    longtalk copy talks.db elsewhere.db --owner ada --since 2026-11-01
    longtalk copy talks/ talks.db lesson-7 lesson-8
    """
    from longtalk.cli.copy import run

    run(**options)


@commands.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@_YES
@_stored
def delete(**options: Any) -> None:
    """Remove conversations for good.

    \b
    longtalk delete lesson-7
    """
    from longtalk.cli.remove import delete as run

    run(**options)


@commands.command()
@click.argument("id")
@click.argument("entry")
@_YES
@_stored
def redact(**options: Any) -> None:
    """Remove what an entry says, for good.

    Its place in the conversation stays. `longtalk show` names the entries.

    \b
    longtalk redact lesson-7 q3vft5cmxl2a-0
    """
    from longtalk.cli.remove import redact as run

    run(**options)


@commands.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option(
    "-m", "--model", default="openai-chat:gpt-5.6", show_default=True, help="Whose tokens, as provider:model."
)
@click.option("--exact", is_flag=True, help="Count with the real tokenizer: needs the extra [tokens].")
def tokens(files: tuple[str, ...], model: str, exact: bool) -> None:
    """Count the tokens of texts, messages and states.

    Messages are in a chat's form, as JSON or JSONL; - is standard input.

    \b
    longtalk tokens notes.md lesson.talk
    longtalk tokens -m anthropic:claude-sonnet-5 messages.json
    git diff | longtalk tokens --exact -
    """
    from longtalk.cli.out import worded
    from longtalk.cli.tokens import run
    from longtalk.errors import InputError

    try:
        run(files=files, model=model, exact=exact)
    except InputError as problem:
        raise click.UsageError(worded(problem)) from None


@commands.command()
@click.argument("words", nargs=-1, metavar="[QUERY]")
@click.option("--provider", metavar="NAME", help="Those of this provider alone.")
@_AS_JSON
def models(**options: Any) -> None:
    """List the models that are known, or search them.

    A line has the model, its window, how long an answer may be, how its provider caches, what a million tokens cost
    (sent, received, read from the cache, written to it), and what they cost in long requests. What is not known is -.
    Without a find the status is 1.

    \b
    longtalk models sonnet
    longtalk models --provider groq
    longtalk models gpt-5.6 --json | jq .prices
    """
    from longtalk.cli.models import run

    run(**options)
