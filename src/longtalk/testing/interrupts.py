"""Interrupts (Ctrl-C) at every point where Python can raise one, for tests of cleanup code."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType


class Interrupts:
    """A source of `KeyboardInterrupt`, which is raised once at each point of the modules in the given folders.

    A point is a place where Python handles signals: the start of a function, or the return from a call to a C function.
    """

    def __init__(self, *folders: Path) -> None:
        self._folders = tuple(map(str, folders))
        self._known: set[tuple[CodeType, int, str]] = set()
        self.points: list[str] = []
        """The points at which a call was interrupted so far, as `file:line`."""

    def during(self, call: Callable[[], object], then: Callable[[], object] | None = None) -> bool:
        """Run `call`, and interrupt it at the first point that no earlier call was interrupted at.

        `then` is called while the interrupt is handled, when its traceback still keeps all frames alive.

        Returns:
            True if the call was interrupted, False if it reached no new point and finished.
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
    """Return whether a frame runs inside `__del__`, where Python would discard the interrupt."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None
