"""The loop of `longtalk chat`: read a message or a command, do what it says, until the input ends.

Each message is stored before the model is called, and the answer when it is complete. Ctrl-C stops an answer, keeps the
part that was received, and returns to the prompt. Answers are written to standard output, everything else to standard
error.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from longtalk.cli.ask_inputs import load_tools
from longtalk.cli.chat import turns
from longtalk.cli.chat.commands import (
    COMMANDS,
    Chat,
    Leave,
    asks_model,
    describe_place,
    find_foreign_command,
    run_command,
    show_last_exchange,
)
from longtalk.cli.chat.plain import Plain, Screen, find_command
from longtalk.cli.earlier import mention_settings, mention_tools
from longtalk.cli.options import check_options, list_removed, parse_options
from longtalk.cli.output import can_move_cursor, print_error, print_note
from longtalk.cli.session import ChatSession, exit_on_signals, open_session
from longtalk.cli.store import describe_location, suggest_id
from longtalk.errors import LongtalkError

UNANSWERED = "(The last message has no complete answer. To ask for it again, type /again.)"

_BETTER = (
    "For better answers, use -m ollama:MODEL, -m local:/path/model.gguf, or -m openai-chat:MODEL with OPENAI_API_KEY."
)


def run(*, lines: bool, options: Sequence[tuple[str, str]], tools: Sequence[str], **choices: Any) -> None:
    """Run the chat until the input ends. If the input is a pipe and its last message failed, exit with status 1.

    `choices` are those of `open_session`. `options` and `tools` are for each turn. `lines` makes each line of a pipe a
    message; otherwise all of it is one.
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    given = parse_options(options)
    arguments: dict[str, Any] = {"options": given} if given else {}
    arguments |= {"tools": [tool for name in tools for tool in load_tools(name)]} if tools else {}
    with exit_on_signals(), open_session(without=list_removed(options), **choices) as session:
        check_options(given or {}, session.provider)
        session.arguments = arguments
        chat = Chat(session, _open_screen(session, lines=lines))
        _greet(chat, choices["store"], is_named=choices["id"] is not None)
        mention_settings(session, given or {})
        mention_tools(session, arguments.get("tools", ()))
        if session.is_unanswered():
            print_note(UNANSWERED)
        try:
            failed = _talk(chat, commands=sys.stdin.isatty() or lines)
        finally:
            with contextlib.suppress(LongtalkError, OSError):
                session.delete_if_failed()
    if failed and not sys.stdin.isatty():
        raise SystemExit(1)


def _talk(chat: Chat, *, commands: bool) -> bool:
    """Read messages and commands until the end. Return True if the last one failed."""
    failed = False
    while True:
        before, failed, asks = failed, False, False
        try:
            line = chat.screen.read()
            if line is None:
                return before
            asks = not find_command(line) or asks_model(line)
            foreign = find_foreign_command(line) if sys.stdin.isatty() else ""
            if foreign == "/exit":
                return before
            if foreign:
                print_note(f"Commands begin with a slash: {foreign}. To send the line, put a space before it.")
            elif commands and _is_command(line):
                run_command(line, chat)
            else:
                turns.run_turn(chat.session, chat.screen, line.lstrip() if commands else line)
        except Leave:
            return before
        except KeyboardInterrupt:
            print_note("\n(stopped)")
        except BrokenPipeError:
            raise
        except (LongtalkError, OSError) as problem:
            failed = True
            print_error(problem)
            with contextlib.suppress(LongtalkError, OSError):
                if asks and chat.session.is_unanswered():
                    print_note(UNANSWERED)


def _is_command(line: str) -> bool:
    """Return True if a line is a command: at a terminal by its form, in a pipe only if it is exactly one."""
    return bool(find_command(line)) if sys.stdin.isatty() else line in COMMANDS


def _open_screen(session: ChatSession, *, lines: bool) -> Screen:
    if sys.stdin.isatty() and sys.stdout.isatty() and can_move_cursor():
        # An installation without the extra `cli`, such as that of the service, may lack the parts of the full screen.
        with contextlib.suppress(ImportError):
            from longtalk.cli.chat.screen import FullScreen

            return FullScreen(session)
    return Plain(lines=lines)


def _greet(chat: Chat, store: str | None, *, is_named: bool) -> None:
    session = chat.session
    if session.is_default_model:
        print_note(_describe_local_model(session.provider.label.partition(":")[2]))
    verb = "Starting" if session.is_new else "Continuing"
    location = describe_location(store)
    print_note(f"{verb} conversation {describe_place(session)} in {location}. /help lists commands, /exit leaves.")
    if session.is_new and is_named and (hint := suggest_id(session.archive, session.id)):
        print_note(hint.strip())
    if not session.is_new and sys.stdin.isatty():
        show_last_exchange(chat)
    if session.is_new and is_named and " " in session.id.strip():
        print_note(f"The words are the name of the conversation. To ask them: longtalk {shlex.quote(session.id)}")


def _describe_local_model(name: str) -> str:
    """Return what a newcomer should know about the model that answers without any choice."""
    from longtalk.providers.local.catalog import MODELS

    model = MODELS[name]
    size = "very small" if model.name == "135m" else "small"
    return f"Talking to {model.title} on this machine. It needs no key, but it is {size}. {_BETTER}"
