"""Print the answer of a model while it arrives, and what it has used."""

from __future__ import annotations

import re
import sys

import msgspec

from longtalk._sync.turn.stream import Stream
from longtalk.cli.clock import show_clock
from longtalk.cli.output import discard_output, escape_line, print_note, print_text, shorten
from longtalk.cli.wrapping import adapt_text
from longtalk.errors import InputError
from longtalk.events import Text, ToolCall, ToolResult
from longtalk.notices import Notice
from longtalk.reply import StoredReply
from longtalk.usage import Usage

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n(.*?)^[ \t]*\1[`~]*[ \t]*$", re.DOTALL | re.MULTILINE)
_MOST_RESULT = 200
"""How many characters of the arguments and the result of a tool are shown."""
_SHORT = {
    "preamble_changed": "The system text or the tools have changed, so the model reads the whole conversation again."
}
"""Notices in fewer words than the library needs."""
_CUT = {"length": "cut off by the length limit", "filtered": "cut off by the provider's filter"}


def print_stream(stream: Stream[StoredReply]) -> StoredReply:
    """Print the text of an answer as it arrives, and notices to standard error. Return the reply.

    On a terminal, tool calls are printed to standard error, too. If the reader of the text goes away, the turn still
    runs to its end, and then `BrokenPipeError` is raised.
    """
    has_text = is_inside = False
    # In a pipe, the text is written unchanged.
    ends = adapt_text()
    gone: BrokenPipeError | None = None
    try:
        with show_clock() as end_clock, stream:
            for event in stream:
                if isinstance(event, Text):
                    end_clock()
                    has_text = is_inside = True
                    try:
                        print_text(ends.add(event.text) if ends else event.text, end="")
                        sys.stdout.flush()
                    except BrokenPipeError as problem:
                        # The reader is gone. The answer is paid for, so the turn ends as it would have.
                        gone = problem
                        discard_output()
                elif isinstance(event, Notice | ToolCall | ToolResult):
                    line = describe_event(event)
                    if line:
                        end_clock()
                        if is_inside and ends:
                            print_text(ends.add("\n"), end="")
                            sys.stdout.flush()
                        is_inside = False
                        print_note(line, dim=not isinstance(event, Notice))
        if gone is not None:
            raise gone
        print_text(ends.end() if ends else "", end="")
    except Exception:
        if has_text:
            print_text(ends.end() if ends else "")
        raise
    if not has_text:
        print_text(get_refusal(stream.reply), end="")
    print(flush=True)
    return stream.reply


def describe_event(event: Notice | ToolCall | ToolResult) -> str:
    """Return a line on a notice, a tool call or its result. In a pipe, it is empty for tools."""
    if isinstance(event, Notice):
        return f"({_SHORT.get(event.kind, event.text)})"
    if not sys.stderr.isatty():
        return ""
    if isinstance(event, ToolCall):
        return f"→ {escape_line(event.name)}({_format_arguments(event.arguments)})"
    return f"  {'failed: ' if event.failed else '= '}{escape_line(shorten(event.text, _MOST_RESULT))}"


def _format_arguments(arguments: bytes) -> str:
    try:
        given = msgspec.json.decode(arguments)
    except ValueError:
        given = None
    text = (
        ", ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in given.items())
        if isinstance(given, dict)
        else arguments.decode("utf-8", "replace")
    )
    return escape_line(shorten(text, _MOST_RESULT))


def print_usage(reply: StoredReply) -> None:
    """Print the tokens and the cost of a turn on a terminal, and anywhere if its answer was cut off."""
    if sys.stderr.isatty() or reply.finish_reason in _CUT:
        print_note(format_usage(reply))


def get_refusal(reply: StoredReply) -> str:
    """Return why the model refused to answer; empty if it did not."""
    return reply.message.refusal if reply.message is not None else ""


def format_usage(reply: StoredReply, window: int | None = None) -> str:
    """Return one line on the tokens and the cost of a turn, and on an answer that was cut off.

    With `window`, the tokens that the model can take, the line has the share of it that the last request used.
    """
    usage = reply.usage
    parts = describe_usage(usage, reply.cost.total if reply.cost is not None else None)
    if window and reply.context is not None and reply.context.tokens:
        # As in `print_context`: what the provider reported, unless it is of several calls.
        size = usage.input if len(reply.raw_usage) == 1 and usage.input else reply.context.tokens
        parts.append(f"{min(1.0, size / window):.1%} of the window")
    if reply.finish_reason in _CUT:
        parts.append(_CUT[reply.finish_reason])
    return f"[{'; '.join(parts) or reply.finish_reason}]"


def describe_usage(usage: Usage, cost: float | None) -> list[str]:
    """Return the tokens and the cost of a turn in words, as far as they are known."""
    parts = []
    if usage.input:
        parts.append(f"{usage.input:,} tokens sent, {usage.cached:,} of them cached, {usage.output:,} received")
    # The models of this machine are free.
    if cost:
        parts.append(f"${cost:.4f}")
    return parts


def extract_code(text: str) -> str:
    """Return the first code block of an answer. Raise `InputError` if there is none."""
    found = _FENCE.search(text)
    if found is None:
        raise InputError("The answer has no code block to extract. `longtalk show --last` prints all of it.")
    return found[2].rstrip("\n")
