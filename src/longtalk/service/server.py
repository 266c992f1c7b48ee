"""uvicorn's server and supervisor, which stop in order at the first signal, and at once at the second.

What clients were told is stored. So after a process has ended at once, others take over its runs as after a crash.
"""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

import uvicorn
from uvicorn.supervisors import Multiprocess

_CHECK_SECONDS = 0.1


class Server(uvicorn.Server):
    """A server that is the only process of a command."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop, or end now if that has begun before."""
        if self.should_exit:
            os._exit(128 + sig)
        super().handle_exit(sig, frame)


class Supervisor(Multiprocess):
    """The parent of worker processes. It kills them at the second signal.

    They can't tell it from the first themselves: a terminal sends Ctrl-C to them too, as does the supervisor.
    """

    def join_all(self) -> None:
        """Wait until all processes have ended."""
        while any(worker.process.is_alive() for worker in self.processes):
            if signal.SIGINT in self.signal_queue or signal.SIGTERM in self.signal_queue:
                for worker in self.processes:
                    worker.process.kill()
            time.sleep(_CHECK_SECONDS)
        super().join_all()
