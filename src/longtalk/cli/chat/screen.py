"""The screen for terminals that can move the cursor: a prompt with editing, and answers rendered as Markdown."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.segment import Segments
from rich.text import Text

from longtalk._sync.providers.local.provider import Local
from longtalk._sync.turn.stream import Stream
from longtalk.cli.answers import describe_event, format_usage, get_refusal, print_stream
from longtalk.cli.chat.plain import cut_lines, find_command
from longtalk.cli.chat.prompt import Prompt
from longtalk.cli.chat.rendering import AnswerView, join_lines, render_markdown
from longtalk.cli.output import escape, print_note, print_text, shorten
from longtalk.cli.session import ChatSession
from longtalk.cli.tty import keep_keys, read_typed
from longtalk.events import Notice, Reasoning, ToolCall, ToolResult
from longtalk.events import Text as TextEvent
from longtalk.reply import StoredReply

_ROOM = 8
"""The lines of the terminal that the last exchange leaves free."""


class FullScreen:
    """A terminal. With `NO_COLOR`, answers are printed as they are, without styles."""

    multiline_help = "let Enter begin a new line, until you use it again"
    multiline_hint = "Enter begins a new line. Alt-Enter (or Escape, then Enter) sends the message."
    keys = (
        ("Ctrl-C", "stop the answer; the text so far is kept. At the prompt: clear it"),
        ("Alt-Enter, Ctrl-J", "begin a new line; pasted text keeps its lines"),
        ("Ctrl-R, Up", "search what was written before; go back to it"),
        ("Tab", "complete a command, a model, an id"),
        ("Ctrl-X Ctrl-E", "write the message in $EDITOR"),
    )

    def __init__(self, session: ChatSession) -> None:
        session.stack.enter_context(keep_keys())
        self._typed = split_typed(read_typed())
        self._color = not os.environ.get("NO_COLOR")
        self._console = Console(highlight=False, no_color=not self._color)
        self._prompt = Prompt(session, color=self._color)

    @property
    def is_multiline(self) -> bool:
        return self._prompt.is_multiline

    @is_multiline.setter
    def is_multiline(self, value: bool) -> None:
        self._prompt.is_multiline = value

    def read(self, edit: str = "") -> str | None:
        draft = edit
        while True:
            if self._typed and not draft:
                draft, is_complete = self._typed.pop(0)
                if is_complete:
                    print_text(f"> {draft}")
                    return draft
            try:
                text = self._prompt.read(draft, edits=bool(edit))
            except EOFError:
                return None
            except KeyboardInterrupt:
                if edit:
                    return None
                print_note("(To leave, type /exit or press Ctrl-D.)")
                continue
            if text.strip():
                return text.rstrip()
            draft = ""

    def show_answer(self, session: ChatSession, stream: Stream[StoredReply]) -> None:
        if not self._color:
            print_note(format_usage(print_stream(stream), session.window))
            return
        print()
        reply = self._show(session, stream)
        self._console.print()
        self._console.print(Text(format_usage(reply, session.window), "dim"))

    def _show(self, session: ChatSession, stream: Stream[StoredReply]) -> StoredReply:
        with AnswerView(self._console) as view, watch_reading(session, view.report_progress), stream:
            has_text = False
            for event in stream:
                if isinstance(event, TextEvent):
                    has_text = True
                    view.add(event.text)
                elif isinstance(event, Notice | ToolCall | ToolResult):
                    if line := describe_event(event):
                        view.note(line)
                    if isinstance(event, ToolCall):
                        view.report_activity(f"calling {event.name}")
                elif isinstance(event, Reasoning):
                    view.report_activity("thinking")
            if not has_text:
                view.add(get_refusal(stream.reply))
        return stream.reply

    def show_exchange(self, question: str, answer: str) -> None:
        if not self._color:
            print_text(f"\n> {shorten(question, 200)}\n{cut_lines(answer.splitlines())}\n")
            return
        console = self._console
        console.print()
        console.print(Text(f"> {cut_lines(escape(question).splitlines(), 5)}", "dim"))
        console.print()
        lines = render_markdown(console, escape(answer))
        room = max(5, console.height - _ROOM)
        if len(lines) > room:
            console.print(Text("… /history shows all of it", "dim"))
        console.print(Segments(join_lines(lines[-room:])))


def split_typed(text: str) -> list[tuple[str, bool]]:
    """Return what was typed before the prompt: messages and commands, each with whether it is complete.

    Each command is one of its own. Several other lines in a row may be a pasted message, so they are left to be sent.
    """
    found: list[tuple[str, bool]] = []
    # Keys such as arrows mean nothing without a prompt.
    text = re.sub(r"\x1b(\[[0-9;]*[A-Za-z~]|O.)?", "", text.replace("\r", "\n"))
    for line in escape(text).splitlines(keepends=True):
        follows = found and not find_command(line) and not find_command(found[-1][0])
        if follows:
            found[-1] = (f"{found[-1][0]}\n{line.rstrip()}", False)
        elif line.strip():
            found.append((line.rstrip(), line.endswith("\n")))
    return found


@contextlib.contextmanager
def watch_reading(session: ChatSession, report: Callable[[int, int], None]) -> Iterator[None]:
    """Have a local model report how much of the prompt it has read."""
    provider = session.provider
    if not isinstance(provider, Local):
        yield
        return
    provider.on_progress = report
    try:
        yield
    finally:
        provider.on_progress = None
