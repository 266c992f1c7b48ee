"""Turns of the chat: send a message, answer again, replace a message, take the last one back."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Any

from longtalk._sync.archive.archive import Archive
from longtalk._sync.branches.branch import Branch
from longtalk._sync.branches.rewind import rewind_before
from longtalk._sync.turn.stream import Stream
from longtalk.archive.history import HistoryEntry
from longtalk.cli.chat.plain import Screen
from longtalk.cli.entry_ids import describe_missing, looks_like_id
from longtalk.cli.output import escape_line, pluralize, print_note
from longtalk.cli.session import ChatSession
from longtalk.cli.store import find_conversation
from longtalk.errors import Busy, InputError, LongtalkError, NotFound
from longtalk.reply import StoredReply
from longtalk.wires import WIRES
from longtalk.wires.convert import read_attachments

_TURN = re.compile(r"[a-z0-9]{12}")
"""The form of the ids of turns, which some words have, too."""


def run_turn(session: ChatSession, screen: Screen, message: Any) -> None:
    """Run a turn and show its answer. If the turn is interrupted, the store keeps the text received so far."""
    talk, given = session.ensure_stored(), {"system": session.system, **session.arguments}
    try:
        _show(session, screen, talk.stream(message, **given))
    except Busy:
        print_note("(waiting for another turn in this conversation)")
        _show(session, screen, talk.stream(message, **given, on_busy="wait"))


def _show(session: ChatSession, screen: Screen, stream: Stream[StoredReply]) -> None:
    """Show an answer. If the user stops it after it was stored, say so, for its end may not have been shown."""
    try:
        screen.show_answer(session, stream)
    except KeyboardInterrupt:
        with contextlib.suppress(LongtalkError, OSError):
            head = session.archive.store.head(session.archive.owner, session.id, session.talk.branch)
            turn = head.turn if head is not None else None
            if turn is not None and turn.status == "complete" and turn.id == stream.reply.turn_id:
                print_note("\n(The answer was complete already, and is kept whole: /history shows it.)")
                return
        raise


def answer_again(session: ChatSession, screen: Screen) -> None:
    """Ask again for an answer that failed or was interrupted. A partial answer is moved to another branch."""
    if session.is_unanswered():
        _answer_last(session, screen, "The partial answer")
    elif session.is_new:
        print_note("There are no messages yet.")
    else:
        last = session.talk.history()[-1]
        cut = last.role == "assistant" and last.finish_reason == "length"
        what = "The last message has an answer, or its turn is running."
        if cut:
            what = "The answer was cut off by the length limit: to have more, write 'Go on.'"
        print_note(f"{what} For another answer, use /retry.")


def retry(session: ChatSession, screen: Screen) -> None:
    """Let the model answer the last message again. The answer so far is moved to another branch."""
    if find_last_message(session.talk.history()) is None:
        print_note("There are no messages yet.")
    else:
        _answer_last(session, screen, "The answer so far")


def _answer_last(session: ChatSession, screen: Screen, what: str) -> None:
    entries = session.talk.history()
    last = entries[-1] if entries else None
    # Finished tool calls of an interrupted turn are not repeated.
    starts = [i for i, each in enumerate(entries) if each.role == "user"]
    if last is not None and last.status == "complete":
        position = starts[-1]
    else:
        position = max((i for i, each in enumerate(entries) if each.role != "assistant"), default=0)
    if last is not None and position < len(entries) - 1 and last.status != "running":
        branch = session.talk.rewind(entries[position].id)
        print_note(f"({what} is now on branch {escape_line(branch)}.)")
    run_turn(session, screen, None)


def edit(session: ChatSession, screen: Screen, entry: HistoryEntry, message: str) -> None:
    """Replace a message, and let the model answer the new one. Another branch keeps it and what followed."""
    branch = take_back(session, entry.id)
    print_note(f"(The exchange so far is now on branch {escape_line(branch)}.)")
    run_turn(session, screen, add_attachments(session, entry, message))


def add_attachments(session: ChatSession, entry: HistoryEntry, text: str) -> Any:
    """Return the message that has another text than an entry, and the entry's images and other parts."""
    wire = session.provider.wire
    if entry.wire not in WIRES:
        return text
    parts = read_attachments(entry.wire, entry.native, wire)
    lost = len(read_attachments(entry.wire, entry.native, WIRES[entry.wire])) - len(parts)
    if lost > 0:
        print_note(f"({pluralize(lost, 'attachment')} of the message can't be sent to {session.provider.label}.)")
    return [text, *parts] if parts else text


def undo(session: ChatSession) -> None:
    """Take back the last message and its answer. Another branch keeps them."""
    entries = session.talk.history()
    position = find_last_message(entries)
    if position is None:
        print_note("There are no messages yet.")
    else:
        branch = take_back(session, entries[position].id)
        print_note(f"(The exchange is now on branch {escape_line(branch)}.)")


def take_back(session: ChatSession, entry: str) -> str:
    """Cut the conversation before an entry, even the first one. Return the name of the branch that keeps the rest."""
    talk = session.talk
    stored = Branch(session.archive.store, talk.owner, talk.id, talk.branch, session.policy, create=False)
    kept = rewind_before(stored, entry)
    session.open_branch(talk.branch)
    return kept


def find_last_message(entries: Sequence[HistoryEntry]) -> int | None:
    """Return the position of the last message of the user; None if there is none."""
    return max((i for i, each in enumerate(entries) if each.role == "user"), default=None)


def find_message(
    archive: Archive,
    id: str,  # noqa: A002
    branch: str,
    words: Sequence[str],
) -> tuple[HistoryEntry, Sequence[str]]:
    """Return the message to change, and the words of its new text. The first word may be the id of an entry or turn."""
    entries = archive.history(id, branch=branch)
    last = find_last_message(entries)
    if last is None:
        raise InputError("There are no messages yet.")
    named = [each for each in entries if words and words[0] in (each.id, each.turn)]
    if not named:
        if words and (looks_like_id(words[0]) or _is_elsewhere(archive, id, words[0])):
            hint = "If the text begins so, write the id of the message before it."
            raise NotFound(f"{describe_missing(words[0])} {hint}")
        return entries[last], words
    message = next((each for each in named if each.role == "user"), None)
    if message is None:
        raise InputError(f"The entry {words[0]!r} is not a message of yours ({named[0].role}): name one that is.")
    return message, words[1:]


def _is_elsewhere(archive: Archive, id: str, word: str) -> bool:  # noqa: A002
    """Return True if a word is the id of an entry or turn on any branch of the conversation."""
    names = find_conversation(archive, id).branches if _TURN.fullmatch(word) else ()
    return any(word in (each.id, each.turn) for name in names for each in archive.history(id, branch=name))
