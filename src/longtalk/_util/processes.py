"""Helpers for processes: enlarge a pipe, terminate a group, memory and open files, register fork hooks."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
from collections.abc import Callable
from functools import cache
from typing import Any

PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031  # `fcntl.F_SETPIPE_SZ`, which is defined only on some systems.

_M_ARENA_MAX = -8  # From glibc's `malloc.h`.
_MOST_FILES = 65_536


def enlarge_pipe(pipe: Any) -> None:
    """Enlarge the buffer of a pipe if the system allows it; otherwise do nothing.

    Some programs exit without waiting until all their output is read, and output that does not fit into the buffer is
    lost.
    """
    with contextlib.suppress(ImportError, OSError, AttributeError, ValueError):
        import fcntl

        fcntl.fcntl(pipe.fileno(), _F_SETPIPE_SZ, PIPE_BYTES)


def limit_malloc_arenas() -> None:
    """Let all threads allocate from two arenas, if this is glibc and `MALLOC_ARENA_MAX` does not say otherwise.

    By default, up to eight arenas per core each keep free memory that the others can't use, so a process with many
    threads grows for a long time. Python's threads hardly ever allocate at the same time.
    """
    library = None if "MALLOC_ARENA_MAX" in os.environ else _open_glibc()
    if library is not None:
        library.mallopt(_M_ARENA_MAX, 2)


def return_free_memory() -> None:
    """Return free memory of `malloc` to the system, if this is glibc. It takes some milliseconds, best in a thread.

    glibc itself returns only what is free at the end of an arena, and after many threads have allocated a lot for a
    short time, there is nearly always something at the end that is in use.
    """
    library = _open_glibc()
    if library is not None:
        library.malloc_trim(0)


@cache
def _open_glibc() -> Any:
    """Return the C library of this process for calls, or None if it is not glibc."""
    with contextlib.suppress(ImportError, OSError):
        import ctypes

        if platform.libc_ver()[0] == "glibc":
            return ctypes.CDLL(None)
    return None


def allow_many_connections() -> None:
    """Let this process have as many open files and connections as the system lets it have without further rights.

    By default, that is often 1,024, which a few hundred streams use up with their connections to providers.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def terminate(process: Any, *, hard: bool) -> None:
    """Send SIGTERM or, with `hard`, SIGKILL to a process and all processes in its group.

    On systems without process groups, only the process itself is terminated.
    """
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
    """Register functions to call before each fork of this process, and after it in the parent and in the child.

    On systems without fork, nothing is registered.
    """
    if hasattr(os, "register_at_fork"):
        around = {"before": before, "after_in_parent": in_parent, "after_in_child": in_child}
        os.register_at_fork(**{when: call for when, call in around.items() if call is not None})
