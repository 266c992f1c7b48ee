"""Ctrl-C, wherever it can strike."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType


class Strikes:
    """Ctrl-C, once at each point of the modules in some folders at which Python heeds it.

    That is where a function begins, and behind each call of one that is not Python.
    """

    def __init__(self, *folders: Path) -> None:
        self._folders = tuple(map(str, folders))
        self._known: set[tuple[CodeType, int, str]] = set()
        self.where: list[str] = []
        """The points that were struck."""

    def during(self, call: Callable[[], object]) -> bool:
        """Whether a call came to a point that was not struck before, and was stopped there."""
        sys.setprofile(self._watch)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False

    def _watch(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "c_return" or (event == "call" and not code.co_flags & inspect.CO_GENERATOR):
            point = (code, frame.f_lasti, event)
            if point not in self._known and code.co_filename.startswith(self._folders) and not _ends(frame):
                self._known.add(point)
                self.where.append(f"{code.co_filename}:{frame.f_lineno}")
                raise KeyboardInterrupt


def _ends(frame: FrameType | None) -> bool:
    """Whether an object comes to its end here, which has nobody to tell."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None
