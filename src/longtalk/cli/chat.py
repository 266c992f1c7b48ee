"""`longtalk chat`: a conversation in the terminal, or from piped standard input, a line a message.

The state is written after each turn, whole or not at all. Ctrl-C stops an answer and keeps what was said of it;
the program goes on. Answers go to standard output, everything else to standard error.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from longtalk._sync.chat import Chat, Stream
from longtalk.errors import BadState, InputError, TurnFailed
from longtalk.events import Notice, Text
from longtalk.reply import Reply

HELP = """\
/help   this
/new    begin a new conversation; the old one is kept beside it
/quit   leave (so does Ctrl-D); the conversation goes on next time
Ctrl-C  stop the answer; what was said is kept"""

UNLIMITED = 2**40
"""Bytes of a state: the file is the user's own."""

LOCAL = (
    "Talking to SmolLM2-135M on this machine: it needs no key, but it is very small. "
    "Better: longtalk chat -m ollama:MODEL, -m local:/path/model.gguf, or -m openai-chat:MODEL with OPENAI_API_KEY."
)


def run(*, model: str | None, system: str | None, path: Path | None, base_url: str | None) -> None:
    """Talk until the input ends."""
    for out in (sys.stdout, sys.stderr):
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(errors="replace")
    kept = Kept(path or default_path())
    _check(model)
    if model is None:
        _say(LOCAL)
    failed = False
    with _endings(), Chat(model or "local", base_url=base_url, max_state=UNLIMITED) as chat:
        begun = "Going on with" if kept.state else "Beginning"
        _say(f"{begun} the conversation in {kept.path}. /help helps, /quit leaves.")
        for line in _lines():
            if line.startswith("/"):
                if _command(line, kept):
                    break
                continue
            stream = chat.stream(line, state=kept.state, system=system)
            try:
                failed = not _turn(stream, kept)
            except InputError:
                raise
            except BaseException as problem:
                # Whatever ends the answer or the program: what was said is kept first.
                stream.close()
                kept.write(stream.reply.state)
                if not isinstance(problem, KeyboardInterrupt):
                    raise
                _say("\n(stopped)")
    if failed and not sys.stdin.isatty():
        raise SystemExit(1)


def _turn(stream: Stream, kept: Kept) -> bool:
    """Show an answer and keep it; whether there was one."""
    try:
        _show(stream)
    except TurnFailed as problem:
        # What the turn did before it failed is in the error's state, the message with it.
        if problem.partial is not None:
            print(flush=True)
        _say(f"longtalk: {problem}")
        if problem.state is not None:
            kept.write(problem.state)
        return False
    kept.write(stream.reply.state)
    _say(_counts(stream.reply))
    return True


class Kept:
    """The conversation's file. It is replaced whole, and never one that somebody else has written meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))
        self.state = self._read()
        if self.state is not None:
            _readable(self.path, self.state)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise InputError(
                f"Can't make the folder of {self.path}: {problem.strerror}. Name another with --state."
            ) from None

    def write(self, state: bytes) -> None:
        """Keep a state, so that a crash leaves this one or the one before."""
        if self._read() != self.state:
            _say(f"{self.path} was changed by somebody else: this conversation goes on beside it.")
            self.path = self._beside()
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        self.state = state
        try:
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(state)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except OSError as problem:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise InputError(f"Can't write {self.path}: {problem.strerror}. The last turn is not kept.") from None

    def set_aside(self) -> Path:
        """Begin anew; where the old conversation is."""
        aside = self._beside()
        try:
            self.path.replace(aside)
        except OSError as problem:
            raise InputError(f"Can't move {self.path} aside: {problem.strerror}.") from None
        self.state = None
        return aside

    def _beside(self) -> Path:
        import time

        stamp = f"{self.path.name}.{time.strftime('%Y%m%d-%H%M%S')}"
        names = (self.path.with_name(f"{stamp}-{number}") for number in itertools.count(1))
        return next(path for path in names if not path.exists())

    def _read(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as problem:
            raise InputError(f"Can't read {self.path}: {problem.strerror}. Name another file with --state.") from None


def _readable(path: Path, state: bytes) -> None:
    from longtalk.state import decode
    from longtalk.wires import NAMES

    try:
        decode(state, wires=NAMES, max_bytes=UNLIMITED)
    except BadState as problem:
        raise InputError(f"{path}: {problem} Move it away, or name another file with --state.") from None


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


def _show(stream: Stream) -> None:
    said = False
    for event in stream:
        if isinstance(event, Text):
            said = True
            print(event.text, end="", flush=True)
        elif isinstance(event, Notice):
            _say(f"({event.text})")
    message = stream.reply.message
    if not said and message is not None and message.refusal:
        print(message.refusal, end="")
    print(flush=True)


def _counts(reply: Reply) -> str:
    usage = reply.usage
    counts = f"{usage.input} tokens sent, {usage.cached} of them cached, {usage.output} received"
    cut = {"length": "cut off by the length limit", "filtered": "cut off by the provider's filter"}.get(reply.finish)
    return f"[{counts}{f'; {cut}' if cut else ''}]" if usage.input else f"[{cut or reply.finish}]"


def _lines() -> Iterator[str]:
    """What the user says, until the end of the input."""
    terminal = sys.stdin.isatty()
    if terminal:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401
    while True:
        try:
            line = input("> ") if terminal else sys.stdin.readline()
        except EOFError:
            _say("")
            return
        except KeyboardInterrupt:
            _say("\n(/quit or Ctrl-D leaves)")
            continue
        if not terminal and not line:
            return
        if line.strip():
            yield line.strip()


def _command(line: str, kept: Kept) -> bool:
    """Do what a line that begins with a slash says; whether to leave."""
    if line in ("/quit", "/exit"):
        return True
    if line == "/new":
        _say(
            f"A new conversation. The old one is in {kept.set_aside()}."
            if kept.state
            else "This is a new conversation."
        )
        return False
    _say(HELP if line == "/help" else f"There is no {line.split()[0]}.\n{HELP}")
    return False


def default_path() -> Path:
    """Where the conversation is kept when no file is named: in the user's data folder."""
    from longtalk import folders

    return Path(folders.data()) / "chat.talk"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
