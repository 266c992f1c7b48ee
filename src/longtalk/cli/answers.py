"""Print the answer of a model while it arrives, and what it has used."""

from __future__ import annotations

import re
import sys

from longtalk._sync.turn.stream import Stream
from longtalk.cli.clock import show_clock
from longtalk.cli.output import print_note, print_text
from longtalk.cli.wrapping import adapt_text
from longtalk.errors import InputError
from longtalk.events import Text
from longtalk.notices import Notice
from longtalk.reply import StoredReply

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n(.*?)^[ \t]*\1[`~]*[ \t]*$", re.DOTALL | re.MULTILINE)
_CUT = {"length": "cut off by the length limit", "filtered": "cut off by the provider's filter"}


def print_stream(stream: Stream[StoredReply]) -> StoredReply:
    """Print the text of an answer as it arrives, and notices to standard error. Return the reply."""
    has_text = False
    # In a pipe, the text is written unchanged.
    ends = adapt_text()
    try:
        with show_clock() as end_clock, stream:
            for event in stream:
                if isinstance(event, Text):
                    end_clock()
                    has_text = True
                    print_text(ends.add(event.text) if ends else event.text, end="")
                    sys.stdout.flush()
                elif isinstance(event, Notice):
                    end_clock()
                    print_note(f"({event.text})")
        print_text(ends.end() if ends else "", end="")
    except Exception:
        if has_text:
            print_text(ends.end() if ends else "")
        raise
    if not has_text:
        print_text(get_refusal(stream.reply), end="")
    print(flush=True)
    return stream.reply


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
    parts = []
    if usage.input:
        parts.append(f"{usage.input:,} tokens sent, {usage.cached:,} of them cached, {usage.output:,} received")
    # The models of this machine are free.
    if reply.cost is not None and reply.cost.total:
        parts.append(f"${reply.cost.total:.4f}")
    if window and reply.context is not None and reply.context.tokens:
        # As in `print_context`: what the provider reported, unless it is of several calls.
        size = usage.input if len(reply.raw_usage) == 1 and usage.input else reply.context.tokens
        parts.append(f"{min(1.0, size / window):.1%} of the window")
    if reply.finish_reason in _CUT:
        parts.append(_CUT[reply.finish_reason])
    return f"[{'; '.join(parts) or reply.finish_reason}]"


def extract_code(text: str) -> str:
    """Return the first code block of an answer. Raise `InputError` if there is none."""
    found = _FENCE.search(text)
    if found is None:
        raise InputError("The answer has no code block to extract. `longtalk show --last` prints all of it.")
    return found[2].rstrip("\n")
