"""`longtalk chat`: talk with a model in the terminal, or send a message from a pipe.

Each message is stored before the model is called, and the answer when it is complete. Ctrl-C stops an answer, keeps the
part that was received, and returns to the prompt. Answers are written to standard output, everything else to standard
error.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import Any

from longtalk.cli.answers import format_usage, print_stream
from longtalk.cli.output import escape_line, print_error, print_note, print_text
from longtalk.cli.session import ChatSession, exit_on_signals, open_session
from longtalk.cli.show import print_history
from longtalk.cli.store import describe_location
from longtalk.errors import Busy, LongtalkError

HELP = """\
/help     show this list
/history  show the conversation
/brief    show the brief, which --policy 'Memory()' keeps
/again    retry an answer that failed or was interrupted
/new      start a new conversation; the current one is kept
/quit     leave (or Ctrl-D); the conversation continues next time
Ctrl-C    stop the answer; the text so far is kept"""

COMMANDS = ("/help", "/history", "/brief", "/again", "/new", "/quit", "/exit")

UNANSWERED = "(The last message has no complete answer. To ask for it again, type /again.)"

_BETTER = (
    "For better answers, use -m ollama:MODEL, -m local:/path/model.gguf, or -m openai-chat:MODEL with OPENAI_API_KEY."
)


def run(*, lines: bool, **choices: Any) -> None:
    """Run the chat until the input ends. If the input is a pipe and its last message failed, exit with status 1.

    `choices` are those of `open_session`. `lines` makes each line of a pipe a message; otherwise all of it is one.
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    terminal, failed = sys.stdin.isatty(), False
    with exit_on_signals(), open_session(**choices) as session:
        if session.is_default_model:
            print_note(_describe_local_model())
        verb = "Starting" if session.is_new else "Continuing"
        location = describe_location(choices["store"])
        print_note(f"{verb} conversation {escape_line(session.id)} in {location}. /help lists commands, /quit leaves.")
        if session.is_unanswered():
            print_note(UNANSWERED)
        for line in _read_messages(lines=lines):
            try:
                if line == "/again" and (terminal or lines):
                    failed = True
                    _ask_again(session)
                    failed = False
                elif not (line.startswith("/") if terminal else lines and line in COMMANDS):
                    failed = True
                    _run_turn(session, line.lstrip() if terminal or lines else line)
                    failed = False
                elif _run_command(line, session):
                    break
            except KeyboardInterrupt:
                failed = False
                print_note("\n(stopped)")
            except BrokenPipeError:
                raise
            except (LongtalkError, OSError) as problem:
                print_error(problem)
                with contextlib.suppress(LongtalkError, OSError):
                    if session.is_unanswered():
                        print_note(UNANSWERED)
    if failed and not terminal:
        raise SystemExit(1)


def _describe_local_model() -> str:
    """Return what a newcomer should know about the model that answers without any choice."""
    from longtalk.providers.local.catalog import MODELS, choose_default

    model = MODELS[choose_default()]
    size = "very small" if model.name == "135m" else "small"
    return f"Talking to {model.title} on this machine. It needs no key, but it is {size}. {_BETTER}"


def _ask_again(session: ChatSession) -> None:
    """Ask the model again to answer the last message. A partial answer is moved to another branch."""
    if not session.is_unanswered():
        print_note(
            "There are no messages yet."
            if session.is_new
            else "The last message has an answer, or its turn is running."
        )
        return
    entries = session.talk.history()
    asked = next((each for each in reversed(entries) if each.role != "assistant"), None)
    if asked is not None and entries[-1].role == "assistant" and entries[-1].status != "running":
        branch = session.talk.rewind(asked.id)
        print_note(f"(The partial answer is now on branch {escape_line(branch)}.)")
    _run_turn(session, None)


def _run_turn(session: ChatSession, message: str | None) -> None:
    """Run a turn and print its answer. If the turn is interrupted, the store keeps the text received so far."""
    talk, system = session.ensure_stored(), session.system
    try:
        reply = print_stream(talk.stream(message, system=system))
    except Busy:
        print_note("(waiting for another turn in this conversation)")
        reply = print_stream(talk.stream(message, system=system, on_busy="wait"))
    print_note(format_usage(reply))


def _read_messages(*, lines: bool) -> Iterator[str]:
    """Yield the messages of the input: lines of a terminal, and of a pipe its lines or all of it as one message.

    Leading spaces are kept: a line with a space before its slash is not a command.
    """
    terminal = sys.stdin.isatty()
    if terminal:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401
    elif not lines:
        text = sys.stdin.read()
        if text.strip():
            yield text.rstrip()
        return
    while True:
        try:
            line = input("> ") if terminal else sys.stdin.readline()
        except EOFError:
            print_note("")
            return
        except KeyboardInterrupt:
            print_note("\n(To leave, type /quit or press Ctrl-D.)")
            continue
        if not terminal and not line:
            return
        if line.strip():
            yield line.rstrip()


def _run_command(line: str, session: ChatSession) -> bool:
    """Run a slash command, and return True if it ends the chat."""
    word, _, more = line.partition(" ")
    if word in COMMANDS and more:
        print_note(f"{word} takes no arguments. To send the line as a message, put a space before the slash.")
    elif word in ("/quit", "/exit"):
        return True
    elif word == "/new":
        if session.is_new:
            print_note("This conversation is already new.")
        else:
            before = session.id
            session.start_new()
            resume = f"`longtalk chat {escape_line(before)}`"
            print_note(f"Starting conversation {session.id}. To continue the previous one, run {resume}.")
    elif word == "/history":
        print_history(session.talk.history())
        sys.stdout.flush()
    elif word == "/brief":
        print_text(session.talk.brief.text() or "(The brief is empty.)")
        sys.stdout.flush()
    elif word == "/help":
        print_note(HELP)
    else:
        print_note(f"Unknown command {word}. To send the line as a message, put a space before the slash.\n{HELP}")
    return False
