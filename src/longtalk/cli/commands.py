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
