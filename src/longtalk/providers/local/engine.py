"""Start and stop the child processes that run local models.

`get_engine(path)` starts a child (see `server`), or returns the one that this process already runs for that file. The
parent holds the write end of the child's standard input, and the child exits when that end is closed: by `stop_all()`,
at exit, or by the kernel if the parent is killed. The child has its own session, so Ctrl-C in the terminal reaches only
the parent. A forked copy of the parent does not use the original's engines, but starts its own.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock
from typing import IO, TYPE_CHECKING

from longtalk._util.processes import on_fork
from longtalk.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from subprocess import Popen

START_LIMIT = 60.0
"""The maximum time that a model may take to load, in seconds."""


class Engine:
    """A running child process that serves OpenAI's HTTP API at `url` and expects `key` as the bearer token."""

    def __init__(self, process: Popen[bytes], url: str, key: str) -> None:
        self.url = url
        self.key = key
        self.pid = process.pid
        self._process = process

    def is_alive(self) -> bool:
        """Return True if the process is still running."""
        return self._process.poll() is None


_running: dict[tuple[str, int, str], Engine] = {}
_lock = allocate_lock()
_hooked = False


def require_extra() -> None:
    """Raise `MissingExtra` unless the engine's package is installed. Only the child process imports that package."""
    import importlib.util

    if importlib.util.find_spec("xllamacpp") is None:
        raise MissingExtra("The local model needs its engine: pip install 'longtalk[local]'.")


def get_engine(path: str, *, context: int = 4096, line: str = "") -> Engine:
    """Return the running engine for a GGUF file and a window of `context` tokens. Start one if there is none.

    The model reads `line` after the system text of each request.
    """
    wanted = (os.path.abspath(path), context, line)
    with _lock:
        if wanted in _running:
            if _running[wanted].is_alive():
                return _running[wanted]
            _stop(_running.pop(wanted)._process)
        require_extra()
        _register_hooks()
        _running[wanted] = _start(*wanted)
        return _running[wanted]


def stop_all() -> None:
    """Stop all engines that this process started. This runs at exit; `get_engine()` can start new ones afterwards."""
    with _lock:
        while _running:
            _, stopped = _running.popitem()
            _stop(stopped._process)


def _register_hooks() -> None:
    global _hooked
    if not _hooked:
        import atexit

        atexit.register(stop_all)
        on_fork(_abandon)
        _hooked = True


def _abandon() -> None:
    """Release the parent's engines in a forked process, so that the fork does not keep them running."""
    global _lock
    _lock = allocate_lock()  # Another thread of the parent may have held the old lock.
    for inherited in _running.values():
        if inherited._process.stdin is not None:
            inherited._process.stdin.close()
        inherited._process.returncode = 0  # It is not a child of this process, which can't wait for it.
    _running.clear()


def _start(path: str, context: int, line: str) -> Engine:
    import json
    import secrets
    import subprocess
    import tempfile
    import threading
    import time

    key = secrets.token_urlsafe(24)
    settings = {"model": path, "context": context, "threads": _choose_threads(), "key": key, "line": line}
    # The child must find the packages that this process finds, however its sys.path was set.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path)}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "longtalk.providers.local.server"],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # The equivalent of a session on Windows.
        )
        # Killing the child closes its output, which ends the wait for its answer.
        alarm = threading.Timer(START_LIMIT, process.kill)
        alarm.daemon = True
        began = time.monotonic()
        try:
            alarm.start()
            said = _exchange_settings(process, json.dumps(settings).encode() + b"\n")
        except BaseException:
            process.kill()
            _stop(process)
            raise
        finally:
            alarm.cancel()
        answer = json.loads(said or b"{}")
        if "url" in answer:
            return Engine(process, answer["url"], key)
        _stop(process)  # Before the log is read: the engine completes its log when its process ends.
        late = not answer and time.monotonic() - began >= START_LIMIT
        cause = f"it took more than {START_LIMIT:g} seconds" if late else _find_cause(log, answer, process.returncode)
    raise InputError(
        f"The local model can't be loaded from {path!r}: {cause}. Check that the model fits into memory and that "
        "its file is complete (the built-in model is downloaded again after its file is removed)."
    )


def _choose_threads() -> int:
    value = os.environ.get("LONGTALK_THREADS", "")
    if not value:
        return max(1, min(4, (os.cpu_count() or 1) // 2))
    if not value.isdecimal() or int(value) < 1:
        raise InputError(
            f"LONGTALK_THREADS is {value!r}: set it to the number of threads that the local model may use, 1 or more."
        )
    return int(value)


def _exchange_settings(process: Popen[bytes], settings: bytes) -> bytes:
    """Send the settings and return the child's answer, a line of JSON, or b"" if the child exited without answering."""
    assert process.stdin is not None  # noqa: S101
    assert process.stdout is not None  # noqa: S101
    with process.stdout as answers:
        try:
            process.stdin.write(settings)
        except BrokenPipeError:
            return b""
        # Other lines come from a Python that is configured to print something at its start.
        return next((line for line in answers if line.startswith(b"{")), b"")


def _find_cause(log: IO[bytes], answer: dict[str, str], status: int) -> str:
    """Return why the child failed: from its log, its answer or its exit status, whichever is most specific."""
    log.seek(0)
    lines = [line for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    for line in lines:  # The first error causes the others: "0.00.005.786 E function: what happened"
        _, is_error, message = line.partition(" E ")
        if is_error:
            return message.partition(": ")[2] or message
    if "error" in answer:
        return answer["error"]
    if lines:
        return lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return f"its process exited with status {status}"


def _stop(process: Popen[bytes]) -> None:
    from subprocess import TimeoutExpired

    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(5)
    except TimeoutExpired:
        process.kill()
        process.wait()
