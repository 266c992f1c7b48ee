"""`longtalk chat`: a conversation in the terminal, or from piped standard input, a line a message.

A store keeps it: the message before the model is asked, the answer when it is there. Ctrl-C stops an answer and keeps
what was said of it; the program goes on. Answers go to standard output, everything else to standard error.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import sys
import time
from collections.abc import Iterator

from longtalk._sync.archive import Archive
from longtalk._sync.conversation import Conversation
from longtalk._sync.providers.connect import connect
from longtalk._sync.stream import Stream
from longtalk.cli.out import one_line, put, say, tell
from longtalk.cli.show import put_said
from longtalk.cli.store import opened, place
from longtalk.errors import Busy, LongtalkError
from longtalk.events import Notice, Text
from longtalk.policies import KeepAll, Policy
from longtalk.providers.base import Provider
from longtalk.reply import Reply
from longtalk.stores.base import Commit, Moved
from longtalk.stores.leases import Held, is_free
from longtalk.transcript import now

HELP = """\
/help     this
/history  what was said
/brief    what memory keeps of it
/again    ask again for an answer that failed or was cut off
/new      begin a new conversation; the old one is kept
/quit     leave (so does Ctrl-D); the conversation goes on next time
Ctrl-C    stop the answer; what was said is kept"""

COMMANDS = ("/help", "/history", "/brief", "/again", "/new", "/quit", "/exit")

AGAIN = "(The last message has no whole answer: /again asks for it.)"

LOCAL = (
    "Talking to SmolLM2-135M on this machine: it needs no key, but it is very small. "
    "Better: longtalk chat -m ollama:MODEL, -m local:/path/model.gguf, or -m openai-chat:MODEL with OPENAI_API_KEY."
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
    policy: Policy,
) -> None:
    """Talk until the input ends."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    _check(model)
    terminal, failed = sys.stdin.isatty(), False
    provider = connect(model or "local", base_url=base_url)
    with _endings(), contextlib.closing(provider), opened(store, owner, make=True) as archive:
        if model is None:
            say(LOCAL)
        if store is None:
            _tell_of_earlier(archive)
        room = Room(archive, provider, id, new=new, policy=policy)
        begun = "Beginning" if room.is_new else "Going on with"
        say(f"{begun} the conversation {one_line(room.id)} in {place(store)}. /help helps, /quit leaves.")
        if room.is_unanswered():
            say(AGAIN)
        for line in _lines():
            try:
                if line == "/again":
                    failed = True
                    _again(room, system)
                    failed = False
                elif not (line.startswith("/") if terminal else line in COMMANDS):
                    failed = True
                    _turn(room.begun(), line.lstrip(), system)
                    failed = False
                elif _command(line, room):
                    break
            except KeyboardInterrupt:
                failed = False
                say("\n(stopped)")
            except BrokenPipeError:
                raise
            except (LongtalkError, OSError) as problem:
                tell(problem)
                with contextlib.suppress(LongtalkError, OSError):
                    if room.is_unanswered():
                        say(AGAIN)
    if failed and not terminal:
        raise SystemExit(1)


class Room:
    """The conversation that is held. A new one is in the store from its first message on."""

    def __init__(
        self,
        archive: Archive,
        provider: Provider,
        id: str | None,  # noqa: A002
        *,
        new: bool,
        policy: Policy = KeepAll(),  # noqa: B008
    ) -> None:
        self._archive = archive
        self._policy = policy
        self._provider = provider
        self._is_named = id is not None
        if id is not None:
            self._enter(id)
            self.is_new = archive.store.summary(archive.owner, id) is None
            return
        found = [] if new else archive.conversations(limit=1)
        self._enter(found[0].id if found else self._free())
        self.is_new = not found

    @property
    def id(self) -> str:
        return self.talk.id

    def _enter(self, id: str) -> None:  # noqa: A002
        archive = self._archive
        self.talk = Conversation(
            id, model=self._provider, owner=archive.owner, store=archive.store, policy=self._policy
        )

    def _free(self) -> str:
        """An id that nobody has."""
        stem = time.strftime("chat-%Y%m%d-%H%M%S")
        names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
        return next(name for name in names if self._archive.store.summary(self._archive.owner, name) is None)

    def renew(self) -> None:
        """Begin another conversation."""
        self._is_named, self.is_new = False, True
        self._enter(self._free())

    def begun(self) -> Conversation:
        """The conversation, in the store."""
        while self.is_new:
            try:
                commit = Commit(branch=self.talk.branch, expect=0, at=now())
                self._archive.store.write(self._archive.owner, self.id, commit)
            except Moved:
                # Somebody else has begun one of this name meanwhile.
                if not self._is_named:
                    self._enter(self._free())
                    say(f"The id was taken meanwhile: this is the conversation {self.id}.")
                    continue
            self.is_new = False
        return self.talk

    def is_unanswered(self) -> bool:
        """Whether the last turn has failed or was cut off, and nobody works on it any more."""
        store, owner, branch = self._archive.store, self._archive.owner, self.talk.branch
        head = store.head(owner, self.id, branch)
        if head is None or head.turn is None or head.turn.status == "complete":
            return False
        return is_free(head, Held(store, owner, self.id, branch, 0))


def _again(room: Room, system: str | None) -> None:
    """Ask once more for the answer to the last message."""
    if not room.is_unanswered():
        say("Nothing was said yet." if room.is_new else "The last message has its answer, or is being answered.")
        return
    said = room.talk.history()
    asked = next((each for each in reversed(said) if each.role != "assistant"), None)
    if asked is not None and said[-1].role == "assistant" and said[-1].status != "running":
        kept = room.talk.rewind(asked.id)
        say(f"(The half of an answer that there was is on the branch {one_line(kept)}.)")
    _turn(room.talk, None, system)


def _turn(talk: Conversation, line: str | None, system: str | None) -> None:
    """Show an answer. Whatever ends it, the store keeps what was said."""
    try:
        reply = _show(talk.stream(line, system=system))
    except Busy:
        say("(somebody else is being answered in this conversation: waiting)")
        reply = _show(talk.stream(line, system=system, on_busy="wait"))
    say(_counts(reply))


def _tell_of_earlier(archive: Archive) -> None:
    """What an earlier version has kept in a file, until it is taken in."""
    path = os.path.join(os.path.dirname(place(None)), "chat.talk")
    if os.path.exists(path) and archive.store.summary(archive.owner, "chat") is None:
        say(f"An earlier conversation is in {path}: `longtalk import {path}` takes it in as `chat`.")


def _check(model: str | None) -> None:
    """What can be told of a local model before the first message."""
    name, _, path = (model or "local").partition(":")
    if name == "local":
        from longtalk.providers.local_engine import require_extra
        from longtalk.providers.weights import find

        require_extra()
        if path:
            find(path)


@contextlib.contextmanager
def _endings() -> Iterator[None]:
    """A closed terminal and a polite kill end the program as /quit would, in the middle of an answer too."""
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


def _show(stream: Stream) -> Reply:
    said = False
    try:
        with stream:
            for event in stream:
                if isinstance(event, Text):
                    said = True
                    put(event.text, end="")
                    sys.stdout.flush()
                elif isinstance(event, Notice):
                    say(f"({event.text})")
    except Exception:
        if said:
            print(flush=True)
        raise
    message = stream.reply.message
    if not said and message is not None and message.refusal:
        put(message.refusal, end="")
    print(flush=True)
    return stream.reply


def _counts(reply: Reply) -> str:
    usage = reply.usage
    counts = f"{usage.input} tokens sent, {usage.cached} of them cached, {usage.output} received"
    cut = {"length": "cut off by the length limit", "filtered": "cut off by the provider's filter"}.get(reply.finish)
    return f"[{counts}{f'; {cut}' if cut else ''}]" if usage.input else f"[{cut or reply.finish}]"


def _lines() -> Iterator[str]:
    """What the user says, until the end of the input. A space at the beginning stays: behind it no slash commands."""
    terminal = sys.stdin.isatty()
    if terminal:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401
    while True:
        try:
            line = input("> ") if terminal else sys.stdin.readline()
        except EOFError:
            say("")
            return
        except KeyboardInterrupt:
            say("\n(/quit or Ctrl-D leaves)")
            continue
        if not terminal and not line:
            return
        if line.strip():
            yield line.rstrip()


def _command(line: str, room: Room) -> bool:
    """Do what a line that begins with a slash says; whether to leave."""
    word, _, more = line.partition(" ")
    if word in COMMANDS and more:
        say(f"{word} takes nothing behind it. A space before the slash sends the line as a message.")
    elif word in ("/quit", "/exit"):
        return True
    elif word == "/new":
        if room.is_new:
            say("This is a new conversation.")
        else:
            before = room.id
            room.renew()
            say(f"A new conversation, {room.id}. `longtalk chat {one_line(before)}` goes on with the old one.")
    elif word == "/history":
        put_said(room.talk.history())
        sys.stdout.flush()
    elif word == "/brief":
        put(room.talk.brief.text() or "(There is nothing in it yet.)")
        sys.stdout.flush()
    elif word == "/help":
        say(HELP)
    else:
        say(f"There is no command {word}. A space before the slash sends the line as a message.\n{HELP}")
    return False
