"""How a program is ended that was started in a session of its own."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any


def end(process: Any, *, hard: bool) -> None:
    """Ask it to end, with all that it has started; or, `hard`, do not ask."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL if hard else signal.SIGTERM)
        elif hard:
            process.kill()
        else:
            process.terminate()
