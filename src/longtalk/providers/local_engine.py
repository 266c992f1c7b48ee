"""The local model's process, seen from the program that uses it.

`engine(path)` starts the process (see `local_server`) or returns the one that this program already runs
for that file. It holds the other end of the child's standard input, and the child ends when that is
closed: by `stop_all()`, at exit, or by the kernel when this program is killed. The child has a session
of its own, so Ctrl-C in the terminal reaches only the program, which decides what to do about it. A
forked copy of the program lets go of the engines and starts its own: the original keeps them.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock
from typing import IO, TYPE_CHECKING

from longtalk.errors import InputError

if TYPE_CHECKING:
    from subprocess import Popen

START_LIMIT = 60.0
"""How many seconds a model may take to load."""


class Engine:
    """A running child. It speaks OpenAI's HTTP API at `url`, to those who send `key` as bearer token."""

    def __init__(self, process: Popen[bytes], url: str, key: str) -> None:
        self.url = url
        self.key = key
        self.pid = process.pid
        self._process = process

    def alive(self) -> bool:
        return self._process.poll() is None


_running: dict[tuple[str, int], Engine] = {}
_lock = allocate_lock()
_hooked = False


def require_extra() -> None:
    """Raises `InputError` when the engine is not installed. Looks without importing it: only the child does that."""
    import importlib.util

    if importlib.util.find_spec("xllamacpp") is None:
        raise InputError("The local model needs an extra: pip install 'longtalk[local]'.")


def engine(path: str, *, context: int = 4096) -> Engine:
    """The engine for the GGUF file at `path` and a window of `context` tokens: the running one, or else a new one."""
    wanted = (os.path.abspath(path), context)
    with _lock:
        if wanted in _running:
            if _running[wanted].alive():
                return _running[wanted]
            _end(_running.pop(wanted)._process)
        require_extra()
        _hook()
        _running[wanted] = _start(*wanted)
        return _running[wanted]


def stop_all() -> None:
    """Ends the children that this process started. Called at exit; a later `engine()` starts anew."""
    with _lock:
        while _running:
            _, stopped = _running.popitem()
            _end(stopped._process)


def _hook() -> None:
    global _hooked
    if not _hooked:
        import atexit

        atexit.register(stop_all)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_forget)
        _hooked = True


def _forget() -> None:
    """In a forked copy: gives up the engines of the original, which would otherwise outlive it as long as the copy."""
    global _lock
    _lock = allocate_lock()  # Another thread of the original may have held the old one.
    for inherited in _running.values():
        if inherited._process.stdin is not None:
            inherited._process.stdin.close()
        inherited._process.returncode = 0  # Not a child of this process: there is nothing to wait for.
    _running.clear()


def _start(path: str, context: int) -> Engine:
    import json
    import secrets
    import subprocess
    import tempfile
    import threading
    import time

    key = secrets.token_urlsafe(24)
    settings = {"model": path, "context": context, "threads": _threads(), "key": key}
    # The child finds the packages that this process finds, however its sys.path came about.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path)}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "longtalk.providers.local_server"],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # What Windows has instead.
        )
        # A child that is killed ends its output, and with it the wait for its answer.
        alarm = threading.Timer(START_LIMIT, process.kill)
        alarm.daemon = True
        began = time.monotonic()
        try:
            alarm.start()
            line = _shake_hands(process, json.dumps(settings).encode() + b"\n")
        except BaseException:
            process.kill()
            _end(process)
            raise
        finally:
            alarm.cancel()
        answer = json.loads(line or b"{}")
        if "url" in answer:
            return Engine(process, answer["url"], key)
        _end(process)  # First: the engine writes its log to the end only when its process ends.
        late = not answer and time.monotonic() - began >= START_LIMIT
        cause = f"it took more than {START_LIMIT:g} seconds" if late else _cause(log, answer, process.returncode)
    raise InputError(
        f"The local model can't be loaded from {path!r}: {cause}. Check that the model fits into memory and that "
        "its file is whole (the built-in one is fetched again once it is removed)."
    )


def _threads() -> int:
    given = os.environ.get("LONGTALK_THREADS", "")
    if not given:
        return max(1, min(4, (os.cpu_count() or 1) // 2))
    if not given.isdecimal() or int(given) < 1:
        raise InputError(
            f"LONGTALK_THREADS is {given!r}: set it to the number of threads that the local model may use, 1 or more."
        )
    return int(given)


def _shake_hands(process: Popen[bytes], settings: bytes) -> bytes:
    """The child's answer; nothing when it died before it gave one."""
    assert process.stdin is not None  # noqa: S101
    assert process.stdout is not None  # noqa: S101
    with process.stdout as answers:
        try:
            process.stdin.write(settings)
        except BrokenPipeError:
            return b""
        # Anything else is the chatter of an interpreter that was set up to say something at its start.
        return next((line for line in answers if line.startswith(b"{")), b"")


def _cause(log: IO[bytes], answer: dict[str, str], status: int) -> str:
    """Why the child failed, in the words that come nearest to it."""
    log.seek(0)
    lines = [line for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    for line in lines:  # The engine's first error is the cause of all others: "0.00.005.786 E function: what happened"
        _, marked, words = line.partition(" E ")
        if marked:
            return words.partition(": ")[2] or words
    if "error" in answer:
        return answer["error"]
    if lines:
        return lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return f"its process ended with status {status}"


def _end(process: Popen[bytes]) -> None:
    from subprocess import TimeoutExpired

    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(5)
    except TimeoutExpired:
        process.kill()
        process.wait()
