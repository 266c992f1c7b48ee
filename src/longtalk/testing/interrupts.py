"""Raise `KeyboardInterrupt` (Ctrl-C) at every point where Python could raise it, to test cleanup code."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType


class Interrupts:
    """A source of interrupts: it raises `KeyboardInterrupt` once at each point in the modules of the given folders.

    A point is a place where Python may handle signals: the start of a function, or the return from a C function.
    """

    def __init__(self, *folders: Path) -> None:
        self._folders = tuple(map(str, folders))
        self._known: set[tuple[CodeType, int, str]] = set()
        self.points: list[str] = []
        """The points at which calls have been interrupted so far, as `file:line`."""

    def during(self, call: Callable[[], object], then: Callable[[], object] | None = None) -> bool:
        """Run `call`, and interrupt it at the first point where this object has not yet interrupted a call.

        After an interrupt, `then` is called while the traceback still keeps all frames of `call` alive.

        Returns:
            True if `call` was interrupted; False if it reached no new point and finished.
        """
        sys.setprofile(self._watch)
        try:
            call()
        except KeyboardInterrupt:
            sys.setprofile(None)
            if then is not None:
                then()
            return True
        finally:
            sys.setprofile(None)
        return False

    def _watch(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "c_return" or (event == "call" and not code.co_flags & inspect.CO_GENERATOR):
            point = (code, frame.f_lasti, event)
            if point not in self._known and code.co_filename.startswith(self._folders) and not _in_finalizer(frame):
                self._known.add(point)
                self.points.append(f"{code.co_filename}:{frame.f_lineno}")
                raise KeyboardInterrupt


def _in_finalizer(frame: FrameType | None) -> bool:
    """Return whether `__del__` is running in this frame or a caller of it: Python discards interrupts there."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None
