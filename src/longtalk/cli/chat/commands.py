"""The table of the chat's commands: what each is called, what it takes, and what it does."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import NamedTuple

from longtalk._util.suggest import suggest
from longtalk.cli.chat import turns, views
from longtalk.cli.chat.plain import Screen, find_command, find_last_exchange
from longtalk.cli.entry_ids import describe_missing, is_entry_id
from longtalk.cli.output import escape_line, print_note
from longtalk.cli.session import ChatSession
from longtalk.errors import InputError, LongtalkError
from longtalk.policies.notation import format_policy, parse_policy
from longtalk.stores.base import MAIN

_LEAVING = ("exit", "quit")
"""What leaves other chats, and this one at a terminal."""
_FILE_HINT = "To ask about a file, leave the chat and use `longtalk ask -c -f FILE`, or -a FILE with an image"
_ELSEWHERE = {
    "!multi": "/multi",
    "!end": "/multi",
    "!edit": "/edit",
    "!fragment": f"/help. {_FILE_HINT}",
    "!image": f"/help. {_FILE_HINT}",
    "!exit": "/exit",
}
"""Commands of other tools at the beginning of a line, and what they are called here."""
_FILES = ("image", "attach", "file", "fragment")
"""Commands of other tools that add a file to a message."""
_ENTRY_HELP = "ENTRY is the id of a message or turn, such as q3vft5cmxl2a-0: /history shows the ids"
_ANSWERING = ("/again", "/retry", "/edit")


class Chat(NamedTuple):
    """What a command works on."""

    session: ChatSession
    screen: Screen


class Command(NamedTuple):
    """A command of the chat."""

    name: str
    takes: str
    """The arguments as the help shows them; empty if there are none."""
    help: str
    run: Callable[[Chat, str], None]
    """Run the command with the text after its name."""

    @property
    def usage(self) -> str:
        return f"{self.name} {self.takes}".rstrip()


class Leave(Exception):
    """Raised by the command that ends the chat."""


def find_foreign_command(line: str) -> str:
    """Return the command of this chat that a line means in the words of another tool; empty if it means none."""
    if line.strip() in _LEAVING:
        return "/exit"
    alone = re.fullmatch("![a-z]+", line.strip()) is not None
    return _ELSEWHERE.get(line.partition(" ")[0].strip(), "/help" if alone else "")


def asks_model(line: str) -> bool:
    """Return True if a command lets the model answer."""
    return find_command(line) in _ANSWERING


def run_command(line: str, chat: Chat) -> None:
    """Run the command that a line begins with. Raises `Leave` if the chat is to end."""
    word = find_command(line)
    rest = line[len(word) :].strip()
    command = COMMANDS.get(word)
    if command is None:
        hint = _suggest(word)
        print_note(
            f"Unknown command {word}.{hint} /help lists the commands. To send the line as a message, put a space "
            "before the slash."
        )
    elif rest and not command.takes:
        print_note(f"{word} takes no arguments. To send the line as a message, put a space before the slash.")
    elif not rest and command.takes and not command.takes.startswith("["):
        print_note(f"Use: {command.usage}  ({command.help})")
    else:
        command.run(chat, rest)
        sys.stdout.flush()


def _suggest(word: str) -> str:
    """Return " Did you mean …?" with the command that a word abbreviates or misspells; empty if there is none."""
    if word[1:] in _FILES:
        return f" {_FILE_HINT}."
    found = [name for name in COMMANDS if name.startswith(word)] or get_close_matches(word, COMMANDS, n=1, cutoff=0.75)
    return f" Did you mean {found[0]}?" if found else ""


# How the conversation is held


def _model(chat: Chat, name: str) -> None:
    if name:
        chat.session.change_model(name)
    print_note(f"Model: {chat.session.provider.label}")


def _system(chat: Chat, text: str) -> None:
    if text:
        chat.session.system = None if text == "-" else text
    print_note(f"System text: {chat.session.system}" if chat.session.system else "There is no system text.")


def _policy(chat: Chat, text: str) -> None:
    if text:
        chat.session.change_policy(parse_policy(text))
    print_note(f"Policy: {format_policy(chat.session.policy)}")


# Branches


def _fork(chat: Chat, name: str) -> None:
    session = chat.session
    if is_entry_id(name):
        raise InputError(
            f"/fork takes the name of a branch, and {name!r} looks like the id of an entry: to go on after an entry, "
            f"leave the chat and use `longtalk fork {session.id} {name}`."
        )
    session.open_branch(session.talk.fork(name=name or None).branch)
    _describe_branch(session)


def _branches(chat: Chat, name: str) -> None:
    if name:
        known = [] if chat.session.is_new else chat.session.talk.branches()
        if name not in known:
            raise InputError(f"There is no branch {name!r}.{suggest(name, known)} /branches lists them.")
        chat.session.choose_branch(name)
        _describe_branch(chat.session)
    else:
        views.show_branches(chat.session)


def _describe_branch(session: ChatSession) -> None:
    print_note(f"Now on branch {escape_line(session.talk.branch)}. The conversation goes on there next time, too.")


def describe_place(session: ChatSession) -> str:
    """Return the conversation's id, with its branch if that is not the main one."""
    branch = session.talk.branch
    return escape_line(session.id) + ("" if branch == MAIN else f" on branch {escape_line(branch)}")


# Messages


def _edit(chat: Chat, text: str) -> None:
    talk = chat.session.talk
    if turns.find_last_message(talk.history()) is None:
        print_note("There are no messages yet.")
        return
    words = text.split(None, 1)
    with _name_history():
        entry, rest = turns.find_message(chat.session.archive, talk.id, talk.branch, words)
    # The first word is the id of a message, or belongs to the text.
    changed = (text if len(rest) == len(words) else "".join(rest)) or chat.screen.read(edit=entry.text) or ""
    if not changed.strip() or changed == entry.text:
        print_note("Nothing was changed.")
    else:
        turns.edit(chat.session, chat.screen, entry, changed)


@contextlib.contextmanager
def _name_history() -> Iterator[None]:
    """Let errors name the chat's own command that shows the ids of entries."""
    try:
        yield
    except LongtalkError as problem:
        raise InputError(str(problem).replace("`longtalk show` prints", "/history shows")) from None


def _retry(chat: Chat, model: str) -> None:
    if model and turns.find_last_message(chat.session.talk.history()) is not None:
        _model(chat, model)
    turns.retry(*chat)


def _undo(chat: Chat, _: str) -> None:
    turns.undo(chat.session)


def _pin(chat: Chat, entry: str) -> None:
    talk = chat.session.talk
    entries = talk.history()
    if not entries:
        print_note("There are no messages yet.")
        return
    turn = next((each.turn for each in entries if entry in (each.id, each.turn)), None) if entry else entries[-1].turn
    if turn is None:
        with _name_history():
            raise InputError(describe_missing(entry))
    own = {each.id for each in entries if each.turn == turn}
    pinned = own & set(talk.pins())
    if pinned:
        for each in sorted(pinned):
            talk.unpin(each)
        print_note("The exchange is no longer pinned.")
    else:
        talk.pin(turn)
        print_note("The exchange is pinned: it is always sent, whatever the policy leaves out. /pin again undoes it.")


def _note(chat: Chat, text: str) -> None:
    chat.session.ensure_stored().note(text, source="note")
    print_note("Noted. The model sees it with your next message.")


# Other conversations, and the rest


def _new(chat: Chat, name: str) -> None:
    session = chat.session
    if session.is_new and not name:
        print_note("This conversation is already new.")
        return
    before, was_new = session.id, session.is_new
    session.start_new(name or None)
    resume = "" if was_new else f" To continue the previous one, use /open {escape_line(before)}."
    print_note(f"Starting conversation {escape_line(session.id)}.{resume}")


def _open(chat: Chat, id: str) -> None:  # noqa: A002
    if not id:
        views.show_conversations(chat.session)
        return
    try:
        chat.session.open(id)
    except InputError as problem:
        text = str(problem).replace("`longtalk list` shows all conversations.", "/open alone lists the last ones.")
        raise InputError(text) from None
    print_note(f"Continuing conversation {describe_place(chat.session)} with {chat.session.provider.label}.")
    show_last_exchange(chat)


def show_last_exchange(chat: Chat) -> None:
    """Show the last message and its answer, if there is one."""
    found = find_last_exchange(chat.session.talk.history())
    if found is not None:
        chat.screen.show_exchange(*found)


def _multi(chat: Chat, _: str) -> None:
    screen = chat.screen
    screen.is_multiline = not screen.is_multiline
    print_note(screen.multiline_hint if screen.is_multiline else "Enter sends the message again.")


def _help(chat: Chat, name: str) -> None:
    found = COMMANDS.get(f"/{name.lstrip('/')}") if name else None
    if found is not None:
        columns = max(30, shutil.get_terminal_size().columns)
        print_note(found.usage)
        text = f"{_describe(found, chat.screen)}{f'. {_ENTRY_HELP}' if 'ENTRY' in found.takes else ''}"
        print_note(textwrap.indent(textwrap.fill(text, columns - 4), "    "))
        return
    if name:
        print_note(f"Unknown command {name}.{_suggest('/' + name.lstrip('/'))}")
    rows = [*((each.usage, _describe(each, chat.screen)) for each in _TABLE), *chat.screen.keys]
    width = max(len(left) for left, _ in rows)
    room = max(30, shutil.get_terminal_size().columns - width - 2)
    for left, right in rows:
        print_note(f"{left:{width}}  " + f"\n{'':{width}}  ".join(textwrap.wrap(right, room)))


def _describe(command: Command, screen: Screen) -> str:
    """Return what a command does on this screen."""
    return screen.multiline_help if command.run is _multi else command.help


def _exit(_: Chat, __: str) -> None:
    raise Leave


_TABLE = (
    Command("/model", "[NAME]", "show the model, or let another one answer", _model),
    Command("/system", "[TEXT]", "show the system text, or change it; - removes it", _system),
    Command("/policy", "[POLICY]", "show what is sent, or change it: Memory(), KeepLast(6)", _policy),
    Command("/context", "", "show what the last turn sent, and why", lambda chat, _: views.show_context(chat.session)),
    Command(
        "/brief", "", "show the brief, which the policy Memory() keeps", lambda chat, _: views.show_brief(chat.session)
    ),
    Command(
        "/profile", "", "show what all conversations know about you", lambda chat, _: views.show_profile(chat.session)
    ),
    Command(
        "/cost", "", "show tokens and cost, by turn, and of all branches", lambda chat, _: views.show_cost(chat.session)
    ),
    Command("/history", "", "show the conversation", lambda chat, _: views.show_history(chat.session)),
    Command(
        "/search", "WORDS", "search all conversations", lambda chat, words: views.search(chat.session.archive, words)
    ),
    Command(
        "/again", "", "ask again for an answer that failed or was stopped", lambda chat, _: turns.answer_again(*chat)
    ),
    Command(
        "/retry",
        "[MODEL]",
        "answer the last message again, or let another model do it from now on; a branch keeps the old answer",
        _retry,
    ),
    Command("/edit", "[ENTRY] [TEXT]", "change the last message, or an earlier one, and have it answered", _edit),
    Command("/undo", "", "take back the last exchange; a branch keeps it", _undo),
    Command("/fork", "[NAME]", "go on on a new branch", _fork),
    Command("/branches", "[NAME]", "list the branches, or switch to one", _branches),
    Command("/pin", "[ENTRY]", "always send the last exchange, or another one; again to undo", _pin),
    Command("/note", "TEXT", "tell the model something with your next message", _note),
    Command("/multi", "", "write messages of several lines", _multi),
    Command(
        "/export",
        "[FILE]",
        "write the conversation to FILE (.md, .json, .jsonl), or show it",
        lambda chat, path: views.export(chat.session, path),
    ),
    Command("/new", "[NAME]", "start a new conversation; this one is kept", _new),
    Command("/open", "[ID]", "list the last conversations, or continue another one", _open),
    Command("/help", "[COMMAND]", "show this list", _help),
    Command("/exit", "", "leave (or Ctrl-D); the conversation continues next time", _exit),
)
COMMANDS = {each.name: each for each in (*_TABLE, _TABLE[-1]._replace(name="/quit"))}
