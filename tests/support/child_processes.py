"""Child processes that end when the test process ends, even if it is killed."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_prctl = getattr(ctypes.CDLL(None), "prctl", None)


def die_with_parent(signal_sent: signal.Signals) -> Callable[[], None]:
    """Return a `preexec_fn` after which the child gets this signal when the thread that started it ends.

    The child also gets a process group of its own, so that Ctrl-C doesn't reach it. On systems other than Linux the
    function does nothing, and the parent must end the child.
    """

    def prepare_child() -> None:
        if _prctl is not None:
            _prctl(_PR_SET_PDEATHSIG, signal_sent)
            os.setpgid(0, 0)

    return prepare_child
