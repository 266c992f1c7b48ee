"""The commands and their options, as `longtalk --help` shows them."""

from __future__ import annotations

from pathlib import Path

import click

from longtalk import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="longtalk %(version)s")
def commands() -> None:
    """Long talks, short prompts."""


@commands.command()
@click.option("-m", "--model", help="As provider:model, such as ollama:llama3.2. Default: a small local model.")
@click.option("-s", "--system", help="System text, given fresh with each message.")
@click.option("--state", type=click.Path(dir_okay=False, path_type=Path), help="The file that keeps the conversation.")
@click.option("--base-url", help="The address of the model's server, where it is not the usual one.")
def chat(model: str | None, system: str | None, state: Path | None, base_url: str | None) -> None:
    """Talk with a model; the conversation is kept and goes on next time.

    \b
    longtalk chat
    longtalk chat -m ollama:llama3.2 --state lesson.talk
    echo "What is a fugue?" | longtalk chat
    """
    from longtalk.cli.chat import run

    run(model=model, system=system, path=state, base_url=base_url)


@commands.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option(
    "-m", "--model", default="openai-chat:gpt-5.6", show_default=True, help="Whose tokens, as provider:model."
)
@click.option("--exact", is_flag=True, help="Count with the real tokenizer: needs the extra [tokens].")
def tokens(files: tuple[str, ...], model: str, exact: bool) -> None:
    """Count the tokens of texts, of chat messages as JSON or JSONL, and of states; - is standard input.

    \b
    longtalk tokens notes.md lesson.talk
    longtalk tokens -m anthropic:claude-sonnet-5 messages.json
    git diff | longtalk tokens --exact -
    """
    from longtalk.cli.tokens import run
    from longtalk.errors import InputError

    try:
        run(files=files, model=model, exact=exact)
    except InputError as problem:
        raise click.UsageError(str(problem)) from None
