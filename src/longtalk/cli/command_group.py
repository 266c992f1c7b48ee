"""The `longtalk` command itself: it takes a question in place of a command, and knows the words of other tools."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import stat
import sys
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

import click
from click.shell_completion import CompletionItem

from longtalk.cli.output import exit_without_reader

_COMMANDS = {
    "logs": "Use `longtalk list`, `longtalk show`, `longtalk show --last` or `longtalk search WORDS`. The last "
    "exchanges of all conversations: `longtalk show --all -n 3`, with -u for tokens and cost.",
    "history": "Use `longtalk show`.",
    "cost": "Use `longtalk stats`.",
    "prompt": "Use `longtalk ask`.",
    "ls": "Use `longtalk list`.",
    "rm": "Use `longtalk delete`.",
    "cat": "Use `longtalk show`.",
    "mv": "Use `longtalk rename`.",
    "alias": "Use `longtalk config alias`, which lists them, or `longtalk config alias NAME MODEL`.",
    "templates": "Use `longtalk config alias NAME -s TEXT`, and -m NAME.",
    "template": "Use `longtalk config alias NAME -s TEXT`, and -m NAME.",
    "schemas": "Use `longtalk ask --schema`.",
    "tools": "Use `longtalk ask --tools`.",
    "fragments": "Use `longtalk ask --file`.",
    "plugins": "There are no plugins. `longtalk models` lists the models.",
    "embed": "There are no embeddings of texts. `longtalk search WORDS` finds messages.",
    "default": "Use `longtalk models default`.",
    "compare": "Use diff <(longtalk show ID --branch A) <(longtalk show ID --branch B).",
    "undo": "Use `longtalk rewind ID ENTRY`, or /undo in a chat: another branch keeps what is cut off.",
}
_COMMANDS |= {
    "log": _COMMANDS["logs"],
    "costs": _COMMANDS["cost"],
    "usage": _COMMANDS["cost"],
    "diff": _COMMANDS["compare"],
    "install": _COMMANDS["plugins"],
    "uninstall": _COMMANDS["plugins"],
    "embed-multi": _COMMANDS["embed"],
    "embed-models": _COMMANDS["embed"],
    "similar": _COMMANDS["embed"],
    "collections": _COMMANDS["embed"],
}
"""Commands of other tools, and what to use here."""
_LOGS = {
    "path": "`longtalk doctor` prints the path of the store.",
    "status": "Use `longtalk stats`, and `longtalk doctor` for the path of the store.",
    "on": "Conversations are stored unless a question has -n.",
    "off": "Conversations are stored unless a question has -n.",
}
"""The commands that llm has for its log, and what to use for them here."""
_OPTIONS_OF_QUESTIONS = {
    "--save": "`longtalk config alias NAME -s TEXT` saves a system text for -m NAME.",
    "--template": "Use -m NAME with a name that `longtalk config alias NAME -s TEXT` has saved.",
    "--key": "`longtalk config set-key PROVIDER` stores a key.",
    "--cid": "Use --id.",
    "--usage": "A terminal shows the tokens of each answer, and `longtalk show -u` those of a conversation.",
    "--fragment": "Use -f FILE.",
    "--td": "`longtalk show` prints the calls and their results.",
    "--no-stream": "It makes no difference in a pipe; --json prints the whole answer at once.",
    "--schema-multi": "Use --schema with a JSON Schema of an object that has the list.",
    "--at": "Use -a: what kind of image it is shows in its first bytes.",
    "--sf": 'Use -s "$(cat FILE)".',
    "--xl": "Use -x, which prints the first code block.",
}
_OPTIONS_OF_QUESTIONS |= {
    "-u": _OPTIONS_OF_QUESTIONS["--usage"],
    "--tools-debug": _OPTIONS_OF_QUESTIONS["--td"],
    "--attachment-type": _OPTIONS_OF_QUESTIONS["--at"],
    "--system-fragment": _OPTIONS_OF_QUESTIONS["--sf"],
    "--extract-last": _OPTIONS_OF_QUESTIONS["--xl"],
}
"""Options that other tools have for questions, and what to use for these here."""
_OPTIONS = {
    "--database": "Use --store.",
    "--query": "`longtalk models WORDS` finds models, `longtalk search WORDS` messages.",
    "--options": "`longtalk ask -o NAME VALUE` passes any option of the provider's API.",
}
_OPTIONS |= {"-d": _OPTIONS["--database"], "-q": _OPTIONS["--query"]}
"""Options of other tools, and what to use for all commands here."""
_OPTIONS_OF_COMMANDS = {
    "delete": {"--last": "Name the conversation: `longtalk list -n 1` prints the id of the last one."},
    "list": {"--search": "Use `longtalk search WORDS`."},
    "chat": dict.fromkeys(("--id", "--cid", "--conversation"), "Use `longtalk chat ID`."),
    "export": {"--json": "Use -f json.", "--md": "Markdown is the default.", "--markdown": "Markdown is the default."},
    "show": {
        **dict.fromkeys(("--md", "--markdown"), "`longtalk export` writes Markdown."),
        **dict.fromkeys(("--since", "--until"), "`longtalk list` and `longtalk search` have it; -n shows the end."),
        **{f"-{number}": f"Use -n {number}." for number in range(1, 10)},
    },
    "models": dict.fromkeys(("--unset", "--remove"), "Use `longtalk config unset default_model`."),
    "alias": dict.fromkeys(("--remove", "--delete", "--unset"), "Use `longtalk config unset NAME`."),
}
"""Options that a command might be thought to have, and what to use for them."""
_OPTIONS_OF_ALL = {"--json", "--store", "--owner", "-n"}
"""Options that questions share with many commands, so that they don't tell a question from a mistyped command."""


class Command(click.Command):
    """A command that knows options of other tools."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as problem:
            own = _OPTIONS_OF_QUESTIONS if self.name in ("ask", "chat") else {}
            known = _OPTIONS | own | _OPTIONS_OF_COMMANDS.get(self.name or "", {})
            if problem.option_name in known:
                ctx.fail(f"No such option '{problem.option_name}'. {known[problem.option_name]}")
            if own and (hint := _find_model_option(problem.option_name, words)):
                ctx.fail(f"No such option '{problem.option_name}'. {hint}")
            close = get_close_matches(problem.option_name, problem.possibilities or [], n=1, cutoff=0.75)
            raise click.NoSuchOption(problem.option_name, possibilities=close, ctx=ctx) from None


class Commands(click.Group):
    """A group of commands that asks what is in the place of a command, and knows the names of other tools for them."""

    command_class = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take options that come before a question for `ask`: `longtalk -m MODEL "…"`. What is piped in is asked."""
        if args[:1] == ["help"] and all(each in self.commands for each in args[1:2]):
            args = [*args[1:], "--help"]
        elif args == ["version"]:
            args = ["--version"]
        if (args and args[0].startswith("-") and not _is_option_of(self, ctx, args[0])) or (not args and _has_pipe()):
            self._check_order(ctx, args)
            args = ["ask", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Click would exit with status 1.
            exit_without_reader()

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin so, and the options of questions, which need no command."""
        found = super().shell_complete(ctx, incomplete)
        if ctx.parent is None and incomplete.startswith("-"):
            ask = self.commands["ask"]
            found += ask.shell_complete(click.Context(ask, parent=ctx), incomplete)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name. For a name that another tool uses, say what to use here."""
        name = args[0]
        if name in _COMMANDS and name not in self.commands:
            known = _explain_logs(args[1:]) if name in ("logs", "log") else ""
            ctx.fail(f"No such command {name!r}. {known or _COMMANDS[name]}")
        if name == "aliases":
            args = ["config", "alias", *args[1:]]
        elif not name.replace("-", "").isalnum() or not name.isascii():
            # A question instead of a command.
            args = ["ask", *args]
        if (args[0], *args[1:2]) in (("keys", "path"), ("config", "path"), ("config", "keys")):
            ctx.fail(
                f"No such command {args[1]!r}. `longtalk config show` prints the path of the settings and names the "
                "providers whose keys are stored."
            )
        if args[0] == "keys" and args[1:2] in (["set"], ["get"]):
            ctx.fail(
                f"No such command {args[1]!r}. `longtalk config set-key` stores the key of a provider; `longtalk keys` "
                "is for the service's clients."
            )
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as problem:
            if "mean" not in problem.format_message() and (self._has_option_of_questions(args) or _has_piped_text()):
                return super().resolve_command(ctx, ["ask", *args])
            ctx.fail(f"{problem.format_message()} To ask a question: longtalk ask {shlex.join(args)}")

    def _has_option_of_questions(self, args: list[str]) -> bool:
        """Return True if one of the arguments is an option that only questions have."""
        known = {name for each in self.commands["ask"].params for name in each.opts} - _OPTIONS_OF_ALL
        return any(each.partition("=")[0] in known for each in args if each.startswith("-"))

    def _check_order(self, ctx: click.Context, args: list[str]) -> None:
        """Fail if a command follows its options: its name would be sent as a question."""
        ask, words = self.commands["ask"], None
        with contextlib.suppress(click.UsageError):
            # What is wrong with the options, `ask` says.
            words = ask.make_parser(click.Context(ask)).parse_args(list(args))[0].get("question")
        if isinstance(words, tuple) and words and words[0] in self.commands:
            options = shlex.join(each for each in args if each != words[0])
            ctx.fail(f"Options come after the command: longtalk {words[0]} {options}")


def _find_model_option(option: str, words: list[str]) -> str:
    """Return how an option of models, such as --temperature, is given here; empty if no model has it."""
    from longtalk.cli.options import ALL

    name = option.lstrip("-").replace("-", "_")
    if name not in ALL:
        return ""
    found = (value for each, value in pairwise([*words, ""]) if each == option)
    joined = (each.partition("=")[2] for each in words if each.startswith(f"{option}="))
    return f"Use -o {name} {shlex.quote(next(filter(None, (*joined, *found)), 'VALUE'))}."


def _explain_logs(words: list[str]) -> str:
    """Return what to use in place of a use of `llm logs`; empty if this is not known."""
    if words[:1] == ["backup"]:
        return f"Use `longtalk backup {shlex.quote(words[1]) if words[1:] else 'FILE'}`."
    for option, following in pairwise([*words, ""]):
        count = re.fullmatch(r"(?:-n|--count=)(\d+)", option)
        if count or (option in ("-n", "--count") and following.isdecimal()):
            number = count[1] if count else following
            return f"Use `longtalk show --all -n {number}`, with -u for tokens and cost, too."
        if option in ("-q", "--query") and following:
            return f"Use `longtalk search {shlex.quote(following)}`."
    return _LOGS.get(words[0], "") if words else ""


def _is_option_of(command: click.Command, ctx: click.Context, word: str) -> bool:
    return any(word in each.opts for each in command.get_params(ctx))


def _has_piped_text() -> bool:
    """Return True if text is piped in. This waits for its first byte, which stays to be read."""
    stream = getattr(sys.stdin, "buffer", None)
    return _has_pipe() and isinstance(stream, io.BufferedReader) and bool(stream.peek(1))


def _has_pipe() -> bool:
    """Return True if standard input is a pipe or a file that may have text."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        status = os.fstat(sys.stdin.fileno())
        return stat.S_ISFIFO(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_size > 0)
    return False
