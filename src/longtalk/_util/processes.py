"""Helpers for child processes: enlarge their pipes, terminate their process groups, and register fork hooks."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031  # The fcntl module has this name only on some systems.


def enlarge_pipe(pipe: Any) -> None:
    """Enlarge the buffer of a pipe, where the system allows it.

    Some programs exit before all their output has been read. A larger buffer keeps that output.
    """
    with contextlib.suppress(ImportError, OSError, AttributeError, ValueError):
        import fcntl

        fcntl.fcntl(pipe.fileno(), _F_SETPIPE_SZ, PIPE_BYTES)


def terminate(process: Any, *, hard: bool) -> None:
    """Terminate a process and all processes in its group. With `hard`, kill them."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL if hard else signal.SIGTERM)
        elif hard:
            process.kill()
        else:
            process.terminate()


def on_fork(
    in_child: Callable[[], object],
    *,
    before: Callable[[], object] | None = None,
    in_parent: Callable[[], object] | None = None,
) -> None:
    """Register functions to call before and after each fork of this process. Do nothing on systems without fork."""
    if hasattr(os, "register_at_fork"):
        around = {"before": before, "after_in_parent": in_parent, "after_in_child": in_child}
        os.register_at_fork(**{when: call for when, call in around.items() if call is not None})
