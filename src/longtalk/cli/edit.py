"""`longtalk edit`: change a message that was sent, and let the model answer it. A new branch keeps what was there."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any

import click

from longtalk.cli.answers import print_stream, print_usage
from longtalk.cli.chat.turns import add_attachments, find_message, take_back
from longtalk.cli.output import escape_line, print_json, print_note
from longtalk.cli.session import ChatSession, exit_on_signals, open_session
from longtalk.cli.store import choose_branch, find_conversation, open_archive
from longtalk.errors import InputError, LongtalkError


def run(
    *,
    store: str | None,
    owner: str,
    id: str,  # noqa: A002
    words: Sequence[str],
    branch: str | None,
    as_json: bool,
    **choices: Any,
) -> None:
    """Change a message, and print the answer to it. `choices` are those of `open_session`.

    `words` are the new text, after the id of an entry if the message is not the last one. Without a text, it is read
    from a pipe, or written in the user's editor.
    """
    with open_archive(store, owner) as archive:
        branch = choose_branch(archive, find_conversation(archive, id), branch)
        message, words = find_message(archive, id, branch, words)
    text = " ".join(words) or _read_text(message.text)
    if not text.strip():
        raise InputError("The new text is empty: write it after the id, or pipe it in.")
    if text == message.text:
        raise InputError("Nothing was changed, so nothing is sent.")
    with (
        exit_on_signals(),
        open_session(store=store, owner=owner, id=id, branch=branch, new=False, **choices) as session,
    ):
        kept = take_back(session, message.id)
        try:
            _answer(session, add_attachments(session, message, text), kept, as_json=as_json)
        except LongtalkError:
            print_note(f"To ask again: longtalk chat {escape_line(id)}, and there /again")
            raise


def _answer(session: ChatSession, message: Any, kept: str, *, as_json: bool) -> None:
    talk = session.talk
    if as_json:
        reply = talk.send(message, system=session.system, on_busy="wait")
        found = {"conversation": talk.id, "branch": talk.branch, "kept": kept}
        print_json({**found, "turn": reply.turn_id, "text": reply.text})
        return
    print_note(f"(The exchange so far is now on branch {escape_line(kept)}.)")
    print_usage(print_stream(talk.stream(message, system=session.system, on_busy="wait")))


def _read_text(before: str) -> str:
    """Return the new text of a message: what is piped in, or what the user makes of it in an editor."""
    if not sys.stdin.isatty():
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        return sys.stdin.read().rstrip()
    return (click.edit(before) or before).rstrip()
