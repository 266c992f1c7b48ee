"""The prompt of a terminal that can move the cursor: editing, history and completion, by prompt_toolkit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from longtalk._util import user_dirs
from longtalk._util.private_files import create_private, make_private_folder
from longtalk.cli.chat.commands import COMMANDS
from longtalk.cli.completion import POLICIES
from longtalk.cli.output import escape_line, shorten
from longtalk.cli.session import ChatSession
from longtalk.cli.tables import cut, measure
from longtalk.errors import LongtalkError
from longtalk.models import registry
from longtalk.policies import KeepAll
from longtalk.policies.notation import format_policy
from longtalk.service.settings import load_settings

_MOST = 200
"""How many values are offered at most."""
_MOST_TEXT = 50
_HISTORY_BYTES = 1 << 20
"""When the file of earlier messages is longer, its older half is dropped."""
_STYLE = Style.from_dict({"prompt": "ansicyan bold", "bottom-toolbar": "noreverse ansibrightblack"})
_PLAIN = Style.from_dict({"bottom-toolbar": "noreverse"})


class Prompt:
    """The line in which messages and commands are written."""

    def __init__(self, session: ChatSession, *, color: bool) -> None:
        self.is_multiline = False
        self._edits = False
        self._session = session
        self._completer = _CommandCompleter(session)
        self._prompt: PromptSession[str] = PromptSession(
            history=_open_history(),
            completer=self._completer,
            complete_while_typing=Condition(self._is_command),
            key_bindings=self._bind_keys(),
            multiline=True,
            prompt_continuation=lambda width, *_: " " * width,
            bottom_toolbar=self._describe,
            enable_open_in_editor=True,
            enable_suspend=True,
            reserve_space_for_menu=6,
            style=_STYLE if color else _PLAIN,
            color_depth=None if color else ColorDepth.DEPTH_1_BIT,
        )

    def read(self, draft: str = "", *, edits: bool = False) -> str:
        """Return what was written. Raises `EOFError` at Ctrl-D, and `KeyboardInterrupt` at Ctrl-C on an empty line.

        With `edits`, the draft is an earlier message, and Ctrl-C always raises.
        """
        self._completer.forget()
        self._edits = edits
        return self._prompt.prompt([("class:prompt", "edit> " if edits else "> ")], default=draft)

    def _is_command(self) -> bool:
        return self._prompt.default_buffer.text.startswith("/")

    def _describe(self) -> str:
        """Return the line at the bottom: the conversation, and how it is held."""
        session = self._session
        branch = "" if session.talk.branch == "main" else f" on {escape_line(session.talk.branch)}"
        more = [session.provider.label]
        if session.policy != KeepAll():
            more.append(format_policy(session.policy))
        if self.is_multiline:
            more.append("Alt-Enter sends")
        room = self._prompt.output.get_size().columns
        # On a narrow terminal, the name of the conversation and its branch is cut before the rest.
        name = cut(escape_line(session.id) + branch, max(20, room - sum(3 + measure(each) for each in more)))
        return cut(" · ".join([name, *more]), room)

    def _bind_keys(self) -> KeyBindings:
        keys = KeyBindings()
        # In a search, keys have their usual meaning.
        writes = has_focus(DEFAULT_BUFFER)

        @keys.add("enter", filter=writes)
        def _(event: KeyPressEvent) -> None:
            self._press_enter(event, sends=not self.is_multiline)

        @keys.add("escape", "enter", filter=writes)
        def _(event: KeyPressEvent) -> None:
            self._press_enter(event, sends=self.is_multiline)

        @keys.add("c-j", filter=writes)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c", filter=writes)
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text and not self._edits:
                event.current_buffer.reset()
            else:
                event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

        return keys

    @staticmethod
    def _press_enter(event: KeyPressEvent, *, sends: bool) -> None:
        buffer = event.current_buffer
        menu = buffer.complete_state
        if menu is not None and menu.current_completion is not None and len(menu.completions) > 1:
            # Enter takes what is chosen in the menu.
            buffer.complete_state = None
        elif sends or buffer.text.startswith("/"):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")


class _CommandCompleter(Completer):
    """Completes commands, and what they take: models, ids of conversations and messages, branches, policies, paths."""

    def __init__(self, session: ChatSession) -> None:
        self._session = session
        self._known: dict[str, list[str]] = {}
        self._texts: dict[str, str] = {}
        """The beginnings of messages by their ids, which say nothing."""
        self._lists: dict[str, Callable[[], Iterator[str]]] = {
            "/model": self._list_models,
            "/retry": self._list_models,
            "/open": lambda: (each.id for each in session.archive.conversations(limit=_MOST)),
            "/branches": lambda: iter([] if session.is_new else session.talk.branches()),
            "/policy": lambda: iter(POLICIES),
            "/edit": lambda: self._list_messages("user"),
            "/pin": lambda: self._list_messages("user", "assistant"),
            "/help": lambda: (name.lstrip("/") for name in COMMANDS),
        }

    def forget(self) -> None:
        """Look the values up again when they are next needed."""
        self._known.clear()
        self._texts.clear()

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        word, space, rest = text.partition(" ")
        if not space:
            for name, command in COMMANDS.items():
                if name.startswith(word):
                    yield Completion(
                        name, -len(word), display=command._replace(name=name).usage, display_meta=command.help
                    )
        elif word == "/export":
            yield from PathCompleter(expanduser=True).get_completions(Document(rest), event)
        elif word in self._lists:
            found = (each for each in self._list_values(word) if each.startswith(rest))
            yield from (
                Completion(each, -len(rest), display_meta=self._texts.get(each)) for each in islice(found, _MOST)
            )

    def _list_values(self, word: str) -> list[str]:
        if word not in self._known:
            # A store that can't be read right now completes nothing.
            try:
                self._known[word] = [each for each in self._lists[word]() if each == escape_line(each)]
            except (LongtalkError, OSError):
                self._known[word] = []
        return self._known[word]

    def _list_messages(self, *roles: str) -> Iterator[str]:
        """Yield the ids of messages, the last one first."""
        entries = [] if self._session.is_new else self._session.talk.history()
        for each in reversed(entries):
            if each.role in roles:
                self._texts[each.id] = escape_line(shorten(each.text, _MOST_TEXT))
                yield each.id

    @staticmethod
    def _list_models() -> Iterator[str]:
        settings = load_settings()
        yield from dict.fromkeys((*settings.models, settings.default_model, "local"))
        yield from (f"{model.provider}:{model.name}" for model in registry.models())


def _open_history() -> History:
    """Return the history of what was written in this user's chats; of this chat alone if it can't be stored."""
    try:
        path = os.path.join(user_dirs.data(), "chat-history")
        make_private_folder(os.path.dirname(path))
        create_private(path)
        _shorten(path)
        with open(path, "ab"):
            return FileHistory(path)
    except (LongtalkError, OSError):
        return InMemoryHistory()


def _shorten(path: str) -> None:
    """Drop the older half of a file of earlier messages that has become long."""
    if os.path.getsize(path) <= _HISTORY_BYTES:
        return
    with open(path, "rb+") as file:
        data = file.read()
        # Each message begins with a comment line that has the time.
        start = data.find(b"\n# ", len(data) // 2)
        file.seek(0)
        file.write(data[start:] if start >= 0 else b"")
        file.truncate()
