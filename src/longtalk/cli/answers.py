"""Print the answer of a model while it arrives, and what it has used."""

from __future__ import annotations

import sys

from longtalk._sync.turn.stream import Stream
from longtalk.cli.output import print_note, print_text
from longtalk.events import Text
from longtalk.notices import Notice
from longtalk.reply import StoredReply


def print_stream(stream: Stream[StoredReply]) -> StoredReply:
    """Print the text of an answer as it arrives, and notices to standard error. Return the reply."""
    has_text = False
    try:
        with stream:
            for event in stream:
                if isinstance(event, Text):
                    has_text = True
                    print_text(event.text, end="")
                    sys.stdout.flush()
                elif isinstance(event, Notice):
                    print_note(f"({event.text})")
    except Exception:
        if has_text:
            print(flush=True)
        raise
    message = stream.reply.message
    if not has_text and message is not None and message.refusal:
        print_text(message.refusal, end="")
    print(flush=True)
    return stream.reply


def format_usage(reply: StoredReply) -> str:
    """Return one line on the tokens of a turn, and on an answer that was cut off."""
    usage = reply.usage
    counts = f"{usage.input} tokens sent, {usage.cached} of them cached, {usage.output} received"
    cut = {"length": "cut off by the length limit", "filtered": "cut off by the provider's filter"}.get(
        reply.finish_reason
    )
    return f"[{counts}{f'; {cut}' if cut else ''}]" if usage.input else f"[{cut or reply.finish_reason}]"
