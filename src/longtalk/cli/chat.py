"""`longtalk chat`: a conversation in the terminal, or from piped standard input, a line a message.

The state is written after each turn, whole or not at all. Ctrl-C stops an answer and keeps what was said of it;
the program goes on. Answers go to standard output, everything else to standard error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from longtalk._sync.chat import Chat, Stream
from longtalk.errors import BadState, ContextOverflow, InputError, TurnFailed
from longtalk.events import Notice, Text
from longtalk.reply import Reply

HELP = """\
/help   this
/new    begin a new conversation; the old one is kept beside it
/quit   leave (so does Ctrl-D); the conversation goes on next time
Ctrl-C  stop the answer; what was said is kept"""

LOCAL = (
    "Talking to SmolLM2-135M on this machine: it needs no key, but it is very small. "
    "Better: longtalk chat -m ollama:MODEL, -m local:/path/model.gguf, or -m openai-chat:MODEL with OPENAI_API_KEY."
)


def run(*, model: str | None, system: str | None, path: Path | None, base_url: str | None) -> None:
    """Talk until the input ends."""
    path = path or default_path()
    state = _read(path)
    if model is None:
        _say(LOCAL)
    with Chat(model or "local", base_url=base_url, max_state=2**40) as chat:
        _say(f"{'Going on with' if state else 'Beginning'} the conversation in {path}. /help helps, /quit leaves.")
        for line in _lines():
            if line.startswith("/"):
                state, leave = _command(line, path, state)
                if leave:
                    break
                continue
            stream = chat.stream(line, state=state, system=system)
            try:
                state = _turn(stream)
                _write(path, state)
            except KeyboardInterrupt:
                stream.close()
                state = stream.reply.state
                _say("\n(stopped)")
                _write(path, state)


def _turn(stream: Stream) -> bytes | None:
    try:
        _show(stream)
    except TurnFailed as problem:
        # What the turn did before it failed is in the error's state, the message with it.
        print(flush=True)
        _say(f"longtalk: {problem}")
        if isinstance(problem, ContextOverflow):
            _say("The conversation has outgrown this model: /new begins another, -m names a model with more room.")
        return problem.state
    reply = stream.reply
    _say(_counts(reply))
    return reply.state


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
        import contextlib

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


def _command(line: str, path: Path, state: bytes | None) -> tuple[bytes | None, bool]:
    """Do what a line that begins with a slash says: the state after it, and whether to leave."""
    if line in ("/quit", "/exit"):
        return state, True
    if line == "/new" and state is not None:
        import time

        aside = path.with_name(f"{path.name}.{time.strftime('%Y%m%d-%H%M%S')}")
        path.replace(aside)
        _say(f"A new conversation. The old one is in {aside}.")
        return None, False
    _say(HELP if line in ("/help", "/new") else f"There is no {line.split()[0]}.\n{HELP}")
    return state, False


def default_path() -> Path:
    """Where the conversation is kept when no file is named: in the user's data folder."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "longtalk" / "chat.talk"


def _read(path: Path) -> bytes | None:
    try:
        state = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise InputError(f"Can't read {path}: {problem.strerror}.") from None
    from longtalk.state import MAX_BYTES, decode
    from longtalk.wires import NAMES

    try:
        decode(state, wires=NAMES, max_bytes=max(MAX_BYTES, 2**40))
    except BadState as problem:
        raise InputError(f"{path}: {problem} Move it away, or name another file with --state.") from None
    return state


def _write(path: Path, state: bytes | None) -> None:
    """Replace the file by the new state, so that a crash leaves the one or the other."""
    if state is None:
        return
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(state)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as problem:
        beside.unlink(missing_ok=True)
        raise InputError(f"Can't write {path}: {problem.strerror}. The last turn is not kept.") from None


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
