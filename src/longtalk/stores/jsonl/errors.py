"""The errors of the JSONL store. Each message names the file, the cause and the remedy."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from longtalk._util.private_files import NotRegular
from longtalk.errors import CorruptStore, StoreError

P = ParamSpec("P")
T = TypeVar("T")

_NO_SPACE = "Nothing was saved; free space and try again."
_NO_ACCESS = "Give this user access to the file and its folder, or choose another folder for the store."
_WRONG_KIND = "Move it elsewhere, or choose another folder for the store."
_REMEDIES = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EACCES: _NO_ACCESS,
    errno.EPERM: _NO_ACCESS,
    errno.EROFS: _NO_ACCESS,
    errno.EISDIR: _WRONG_KIND,
    errno.ENXIO: _WRONG_KIND,
    errno.ENOTDIR: "A file is in place of a folder: move it elsewhere, or choose another folder for the store.",
    errno.EEXIST: "A file is in place of a folder: move it elsewhere, or choose another folder for the store.",
}


class FileError(StoreError):
    """Raised if a file of the store can't be used. `path` is the path of the file."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


class Damaged(FileError, CorruptStore):
    """Raised if the content of a file differs from what was written. `path` and `line` say where."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(
            path, f"Line {line} of {path} is damaged: {problem}. Restore the file from a backup, or move it away."
        )
        self.line = line


class NewerFormat(Damaged):
    """Raised if a newer version of Longtalk has written the file."""

    def __init__(self, path: Path, version: int, supported: int) -> None:
        FileError.__init__(
            self,
            path,
            f"{path} was written by a newer version of Longtalk: its format version is {version}, but this version "
            f"supports at most {supported}. Upgrade Longtalk to read it.",
        )
        self.line = 1


class _HasPath(Protocol):
    @property
    def path(self) -> Path: ...


S = TypeVar("S", bound=_HasPath)


def describe_os_error(path: Path, action: str, problem: OSError) -> FileError:
    """Return the error for a failed call to the operating system. `action` is "read", "written" or "deleted"."""
    remedy = _WRONG_KIND if isinstance(problem, NotRegular) else _REMEDIES.get(problem.errno or 0)
    remedy = remedy or "Check the disk and the folder of the store, and try again."
    return FileError(path, f"{path} can't be {action}: {problem.strerror or problem}. {remedy}")


def translates_os_errors(
    action: str,
) -> Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T]]:
    """Return a decorator for methods that use the file `self.path`: it turns an `OSError` into a `FileError`.

    `action` says in the message what could not be done, as in `describe_os_error`.
    """

    def decorate(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
        @wraps(method)
        def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return method(self, *args, **kwargs)
            except OSError as problem:
                raise describe_os_error(self.path, action, problem) from problem

        return run

    return decorate
