"""Declare the commands of the service and of its settings, with their options and help."""

from __future__ import annotations

from typing import Any

import click

from longtalk.cli import branch_flags as branch_flags
from longtalk.cli import profile_flags as profile_flags
from longtalk.cli import transfer_flags as transfer_flags
from longtalk.cli.command_group import Command
from longtalk.cli.completion import (
    complete_aliases,
    complete_models,
    complete_policies,
    complete_providers,
    complete_settings,
    complete_stored,
)
from longtalk.cli.shared_options import AS_JSON, OPTION, table_options
from longtalk.cli.talk_flags import commands as commands

_SETTINGS = click.option(
    "--settings", metavar="FILE", help="Use this settings file. Default: settings.toml in your configuration folder."
)
_STORE = click.option(
    "--store", envvar="LONGTALK_STORE", show_envvar=True, metavar="PATH", help="As for `longtalk list`."
)


@commands.command()
@click.option("--host", help="Listen on this address. Default: 127.0.0.1, which only this machine reaches.")
@click.option("--port", type=click.IntRange(0, 65535), help="Listen on this port. Default: 8086.")
@click.option("--workers", type=click.IntRange(1, 64), help="Run this many processes. Default: 1.")
@click.option(
    "-m",
    "--model",
    shell_complete=complete_models,
    help="The model of requests that name none, named as for a question. Default: local.",
)
@click.option(
    "-p",
    "--policy",
    metavar="POLICY",
    shell_complete=complete_policies,
    help="What to send, written as in Python. Default: KeepAll().",
)
@click.option("--check", is_flag=True, help="Check the settings, the store and the models, and exit.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in a browser, where there is one.")
@_SETTINGS
@_STORE
def serve(**options: Any) -> None:
    """Serve conversations to OpenAI clients.

    Point a client's base URL at http://127.0.0.1:8086/v1. Without access keys the service is for you alone, on this
    machine; `longtalk keys add` makes keys.

    \b
    longtalk serve
    longtalk serve --port 9000 -m ollama:llama3.2 -p 'Memory()'
    longtalk serve --settings service.toml --check
    """
    from longtalk.cli.serve import run

    run(**options)


@commands.group()
def keys() -> None:
    """Make, list and revoke access keys of the service.

    `longtalk config set-key` stores the API keys of providers.

    \b
    longtalk keys add laptop --owner ada
    longtalk keys list
    """


@keys.command(name="add")
@click.argument("name")
@click.option("--owner", default="", metavar="NAME", help="Whose conversations the key opens. Default: no owner.")
@click.option("--act-as", is_flag=True, help="Let the app name the owner of each request: header Longtalk-Owner.")
@click.option("--model", "models", multiple=True, metavar="NAME", help="Limit the key to this model. Repeatable.")
@click.option("--route", "routes", multiple=True, metavar="PATH", help="Limit the key to this path. Repeatable.")
@click.option("--days", type=click.IntRange(min=1), help="Let the key expire after this many days.")
@AS_JSON
@_SETTINGS
@_STORE
def keys_add(**options: Any) -> None:
    """Make an access key and print it. It is shown only once.

    \b
    longtalk keys add laptop --owner ada
    longtalk keys add web-app --act-as --days 90
    """
    from longtalk.cli.keys import add

    add(**options)


@keys.command(name="list")
@table_options
@_SETTINGS
@_STORE
def keys_list(**options: Any) -> None:
    """List access keys: id, name, owner, when they were made and when they expire.

    \b
    longtalk keys list
    """
    from longtalk.cli.keys import list_keys

    list_keys(**options)


@keys.command(name="revoke")
@click.argument("id")
@AS_JSON
@_SETTINGS
@_STORE
def keys_revoke(**options: Any) -> None:
    """Revoke the access key with this ID. It stops working at once.

    \b
    longtalk keys revoke q3vft5cmxl2a
    """
    from longtalk.cli.keys import revoke

    revoke(**options)


@commands.group()
def config() -> None:
    """Show and change the settings, and store API keys of providers.

    \b
    longtalk config show
    longtalk config set default_model ollama:llama3.2
    longtalk config alias tutor anthropic:claude-sonnet-5 -p 'Memory()'
    longtalk config set-key anthropic
    longtalk config unset tutor
    """


@config.command(name="set-key")
@click.argument("provider", shell_complete=complete_providers)
@click.argument("key", required=False, metavar="")
@AS_JSON
def config_set_key(provider: str, key: str | None, as_json: bool) -> None:
    """Store the API key of a PROVIDER, in a file that only you can read. It is read from standard input.

    `longtalk config unset PROVIDER` removes it.

    \b
    longtalk config set-key anthropic
    """
    from longtalk.cli.config import set_key

    if key is not None:
        raise click.UsageError(
            f"The key is not taken from the command line, where others could see it: run `longtalk config set-key "
            f"{provider}`, which asks for it, or pipe it in."
        )
    set_key(provider, as_json=as_json)


@config.command(name="set")
@click.argument("name", shell_complete=complete_settings)
@click.argument("value", default="", shell_complete=complete_models)
@AS_JSON
def config_set(name: str, value: str, as_json: bool) -> None:
    """Store the setting NAME for all commands and the service. Without a VALUE, print it.

    \b
    longtalk config set default_model ollama:llama3.2
    longtalk config set policy 'Memory()'
    """
    from longtalk.cli.config import set_value

    set_value(name, value, as_json=as_json)


class _Alias(Command):
    """The command for aliases, which also takes the words that other tools have for it: list, show, set and remove."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [each for each in args if not each.startswith("-")]
        if words[:1] == ["remove"] and len(words) == 2:
            ctx.fail(f"To remove an alias: longtalk config unset {words[1]}")
        if words == ["list"] or (words[:1] == ["set"] and len(words) > 2):
            args = args[: args.index(words[0])] + args[args.index(words[0]) + 1 :]
        if words[:1] == ["show"] and len(words) == 2:
            args = [each for each in args if each != "show"]
        return super().parse_args(ctx, args)


@config.command(name="alias", cls=_Alias)
@click.argument("name", required=False, shell_complete=complete_aliases)
@click.argument("model", required=False, shell_complete=complete_models)
@click.option(
    "-p",
    "--policy",
    default="",
    metavar="POLICY",
    shell_complete=complete_policies,
    help="What to send, written as in Python.",
)
@click.option("-s", "--system", default="", help="System text.")
@click.option("--base-url", help="The address of the model's server, if it is not the usual one.")
@OPTION
@table_options
def config_alias(**options: Any) -> None:
    """Give a MODEL an alias, a NAME for `-m` and for clients of the service.

    A system text, a policy and options belong to the alias: with -s, -p or -o, it is a template, by default for the
    default model. Without a MODEL, what is not given stays. A NAME alone is printed. Without a NAME, list all.

    \b
    longtalk config alias tutor anthropic:claude-sonnet-5 -p 'Memory()' -s "You teach the violin."
    longtalk chat -m tutor
    longtalk config alias tutor -o max_tokens 500
    longtalk config alias french -s "Answer in French."
    """
    from longtalk.cli.config import alias, list_aliases

    if options["name"] is None:
        list_aliases(as_json=options["as_json"])
    else:
        alias(**options)


@config.command(name="unset")
@click.argument("name", shell_complete=complete_stored)
@AS_JSON
def config_unset(name: str, as_json: bool) -> None:
    """Remove the setting, the alias or the stored key of a provider that has this NAME.

    \b
    longtalk config unset default_model
    longtalk config unset tutor
    """
    from longtalk.cli.config import unset

    unset(name, as_json=as_json)


@config.command(name="list", hidden=True)
@AS_JSON
@_SETTINGS
def config_list(**options: Any) -> None:
    """Print the settings, as `longtalk config show` does.

    \b
    longtalk config list
    """
    from longtalk.cli.config import show

    show(name=None, **options)


@config.command(name="show")
@click.argument("name", required=False, shell_complete=complete_settings)
@AS_JSON
@_SETTINGS
def config_show(**options: Any) -> None:
    """Print the settings as JSON, and where they come from. API keys are not printed.

    With a NAME, print the value of this setting alone. The command line uses default_model, policy and models (the
    aliases); the other settings are for the service.

    \b
    longtalk config show
    longtalk config show default_model
    """
    from longtalk.cli.config import show

    show(**options)


@config.command(name="get", hidden=True)
@click.argument("name")
@AS_JSON
@_SETTINGS
def config_get(**options: Any) -> None:
    """Print the value of one setting, as `longtalk config show NAME` does.

    \b
    longtalk config get default_model
    """
    from longtalk.cli.config import show

    show(**options)


@commands.command()
@AS_JSON
@_SETTINGS
@_STORE
def doctor(**options: Any) -> None:
    """Check the settings, the store, the clock and the models.

    Versions and access keys are checked, too. No model is called.

    Each line has a level (ok, warning or error), a subject, and what to do. With an error, the exit status is 1.

    \b
    longtalk doctor
    longtalk doctor --settings service.toml
    """
    from longtalk.cli.doctor import run

    run(**options)


@commands.command()
@AS_JSON
@_SETTINGS
@_STORE
def migrate(**options: Any) -> None:
    """Bring the store to the version of this program. `longtalk serve` does the same when it starts.

    Processes of the version before can go on meanwhile: one process migrates, under a lock.

    \b
    longtalk migrate
    longtalk migrate --store postgresql://user@host/database
    """
    from longtalk.cli.backup import migrate as migrate_store

    migrate_store(**options)


@commands.command()
@click.argument("to")
@AS_JSON
@_SETTINGS
@_STORE
def backup(**options: Any) -> None:
    """Copy the store TO a new file or folder, while programs use it. SQLite and JSONL.

    PostgreSQL and Redis have tools of their own: pg_dump, and BGSAVE.

    \b
    longtalk backup talks-2026-11-18.db
    """
    from longtalk.cli.backup import back_up

    back_up(**options)
