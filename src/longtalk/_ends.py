"""How a program is listened to, and ended, that was started in a session of its own."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

WIDE = 1 << 20
_SET_SIZE = 1031  # F_SETPIPE_SZ, which Python knows by name on some systems only


def widen(pipe: Any) -> None:
    """Make room in a pipe, where that can be done: some programs end before all that they print has gone through."""
    with contextlib.suppress(ImportError, OSError, AttributeError, ValueError):
        import fcntl

        fcntl.fcntl(pipe.fileno(), _SET_SIZE, WIDE)


def end(process: Any, *, hard: bool) -> None:
    """Ask it to end, with all that it has started; or, `hard`, do not ask."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL if hard else signal.SIGTERM)
        elif hard:
            process.kill()
        else:
            process.terminate()
