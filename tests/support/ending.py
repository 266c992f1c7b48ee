"""Programs that a test has started end with it, also when it is killed."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_prctl = getattr(ctypes.CDLL(None), "prctl", None)


def with_parent(how: signal.Signals) -> Callable[[], None]:
    """For `preexec_fn`: the program gets this signal when the thread that starts it ends, and none from a keyboard.

    Where a system can't do that (it is Linux that can), nothing is done: who started the program ends it.
    """

    def begin() -> None:
        if _prctl is not None:
            _prctl(_PR_SET_PDEATHSIG, how)
            os.setpgid(0, 0)

    return begin
