"""`longtalk chat`: talk with a model in the terminal, or send each line of a pipe as a message.

Each message is stored before the model is called, and the answer when it is complete. Ctrl-C stops an answer, keeps the
part that was received, and returns to the prompt. Answers are written to standard output, everything else to standard
error.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from longtalk._sync.archive.archive import Archive
from longtalk._sync.conversation.conversation import Conversation
from longtalk._sync.providers.factory import connect
from longtalk._sync.turn.stream import Stream
from longtalk.branches.settings import Settings
from longtalk.cli.output import escape_line, print_error, print_note, print_text
from longtalk.cli.show import print_history
from longtalk.cli.store import describe_location, open_archive
from longtalk.errors import Busy, InputError, LongtalkError, NotFound
from longtalk.events import Text
from longtalk.notices import Notice
from longtalk.policies import KeepAll, Policy
from longtalk.providers.base import Provider
from longtalk.reply import StoredReply
from longtalk.stores.base import Commit, HeadMoved
from longtalk.stores.leases import is_free
from longtalk.transcript.transcript import now

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

LOCAL = (
    "Talking to SmolLM2-135M on this machine. It needs no key, but it is very small. "
    "For better answers, use -m ollama:MODEL, -m local:/path/model.gguf, or -m openai-chat:MODEL with OPENAI_API_KEY."
)


def run(
    *,
    store: str | None,
    owner: str,
    id: str | None,  # noqa: A002
    new: bool,
    model: str | None,
    system: str | None,
    base_url: str | None,
    policy: Policy | None,
) -> None:
    """Run the chat until the input ends. If the input is a pipe and its last message failed, exit with status 1."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    terminal, failed = sys.stdin.isatty(), False
    with contextlib.ExitStack() as stack:
        stack.enter_context(_exit_on_signals())
        if model is not None:
            _check_local_model(model)
        archive = stack.enter_context(open_archive(store, owner, make=True))
        held = None if new else _find_settings(archive, id)
        is_local = model is None and held is None
        if model is None and held is not None:
            if held.own_address and base_url is None:
                raise InputError(f"It was held with {held.model} at another address: give -m, or --base-url again.")
            model = held.model
        _check_local_model(model)
        provider = stack.enter_context(contextlib.closing(connect(model or "local", base_url=base_url)))
        if policy is None and held is not None and held.policy is None:
            raise InputError(f"The policy {held.policy_text} can't be restored: give --policy.")
        policy = policy or (held.policy if held is not None else None) or KeepAll()
        if system is None and held is not None:
            system = held.system
            if held.is_system_missing:
                print_note("The system text of the last turn is not stored: pass it with -s to use it again.")
        options = held.options if held is not None and held.model == provider.label else None
        if is_local:
            print_note(LOCAL)
        if store is None:
            _mention_old_file(archive)
        session = ChatSession(archive, provider, id, new=new, policy=policy, options=options)
        verb = "Starting" if session.is_new else "Continuing"
        location = describe_location(store)
        print_note(f"{verb} conversation {escape_line(session.id)} in {location}. /help lists commands, /quit leaves.")
        if session.is_unanswered():
            print_note(UNANSWERED)
        for line in _read_lines():
            try:
                if line == "/again":
                    failed = True
                    _ask_again(session, system)
                    failed = False
                elif not (line.startswith("/") if terminal else line in COMMANDS):
                    failed = True
                    _run_turn(session.ensure_stored(), line.lstrip(), system)
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


def _find_settings(archive: Archive, id: str | None) -> Settings | None:  # noqa: A002
    """Return how the conversation to continue was last held; None if it is new, or if that is not stored."""
    found = [each.id for each in archive.conversations(limit=1)] if id is None else [id]
    with contextlib.suppress(NotFound):
        return archive.settings(found[0]) if found else None
    return None


class ChatSession:
    """The conversation that the chat continues. A new conversation is stored only when its first message is sent."""

    def __init__(
        self,
        archive: Archive,
        provider: Provider,
        id: str | None,  # noqa: A002
        *,
        new: bool,
        policy: Policy = KeepAll(),  # noqa: B008
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._archive = archive
        self._options = options
        self._policy = policy
        self._provider = provider
        self._is_named = id is not None
        if id is not None:
            self._enter(id)
            self.is_new = archive.store.info(archive.owner, id) is None
            return
        found = [] if new else archive.conversations(limit=1)
        self._enter(found[0].id if found else self._new_id())
        self.is_new = not found

    @property
    def id(self) -> str:
        return self.talk.id

    def _enter(self, id: str) -> None:  # noqa: A002
        archive = self._archive
        self.talk = Conversation(
            id,
            model=self._provider,
            owner=archive.owner,
            store=archive.store,
            policy=self._policy,
            options=self._options,
        )

    def _new_id(self) -> str:
        """Return an unused conversation id that contains the current time."""
        stem = time.strftime("chat-%Y%m%d-%H%M%S")
        names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
        return next(name for name in names if self._archive.store.info(self._archive.owner, name) is None)

    def start_new(self) -> None:
        """Switch to a new conversation."""
        self._is_named, self.is_new = False, True
        self._enter(self._new_id())

    def ensure_stored(self) -> Conversation:
        """Create the conversation in the store if it is new, and return it."""
        while self.is_new:
            try:
                commit = Commit(branch=self.talk.branch, expect=0, at=now())
                self._archive.store.write(self._archive.owner, self.id, commit)
            except HeadMoved:
                # Another process has just created a conversation with this id.
                if not self._is_named:
                    self._enter(self._new_id())
                    print_note(f"Another program has just used this id. The conversation is now called {self.id}.")
                    continue
            self.is_new = False
        return self.talk

    def is_unanswered(self) -> bool:
        """Return True if the last turn failed or was interrupted, and no process is still running it."""
        owner = self._archive.owner
        head = self._archive.store.head(owner, self.id, self.talk.branch)
        if head is None or head.turn is None or head.turn.status == "complete":
            return False
        return is_free(head, owner, self.id)


def _ask_again(session: ChatSession, system: str | None) -> None:
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
    _run_turn(session.talk, None, system)


def _run_turn(talk: Conversation, line: str | None, system: str | None) -> None:
    """Run a turn and print its answer. If the turn is interrupted, the store keeps the text received so far."""
    try:
        reply = _print_stream(talk.stream(line, system=system))
    except Busy:
        print_note("(waiting for another turn in this conversation)")
        reply = _print_stream(talk.stream(line, system=system, on_busy="wait"))
    print_note(_format_usage(reply))


def _mention_old_file(archive: Archive) -> None:
    """Print a hint if the data folder has a state file of an earlier version that has not been imported yet."""
    path = os.path.join(os.path.dirname(describe_location(None)), "chat.talk")
    if os.path.exists(path) and archive.store.info(archive.owner, "chat") is None:
        print_note(f"An earlier conversation is in {path}. To import it as `chat`, run `longtalk import {path}`.")


def _check_local_model(model: str | None) -> None:
    """Raise `InputError` if a local model is chosen but not available, so that the chat fails before it starts."""
    name, _, path = (model or "local").partition(":")
    if name == "local":
        from longtalk.providers.local.engine import require_extra
        from longtalk.providers.local.weights import find_weights

        require_extra()
        if path:
            find_weights(path)


@contextlib.contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Exit cleanly when the terminal closes or the process is terminated, even in the middle of an answer."""
    import signal

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    names = ("SIGTERM", "SIGHUP")
    before = {
        getattr(signal, name): signal.signal(getattr(signal, name), end) for name in names if hasattr(signal, name)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_stream(stream: Stream[StoredReply]) -> StoredReply:
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


def _format_usage(reply: StoredReply) -> str:
    usage = reply.usage
    counts = f"{usage.input} tokens sent, {usage.cached} of them cached, {usage.output} received"
    cut = {"length": "cut off by the length limit", "filtered": "cut off by the provider's filter"}.get(
        reply.finish_reason
    )
    return f"[{counts}{f'; {cut}' if cut else ''}]" if usage.input else f"[{cut or reply.finish_reason}]"


def _read_lines() -> Iterator[str]:
    """Yield the lines of the input. Leading spaces are kept: a line with a space before its slash is not a command."""
    terminal = sys.stdin.isatty()
    if terminal:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401
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
