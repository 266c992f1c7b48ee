"""Database files that the stores of a process share.

SQLite's locks don't survive a fork, so all connections are closed before a fork; the parent and the child open their
own when they need it.
"""

from __future__ import annotations

import os
import threading
from functools import partial

from longtalk._util.processes import on_fork
from longtalk.errors import InputError
from longtalk.stores.sqlite.database import MEMORY, File, Synchronous

_files: dict[tuple[str, str], File] = {}
_memory_files: list[File] = []
_guard = threading.Lock()


def acquire_file(path: str, synchronous: Synchronous) -> File:
    """Open the file at this path, or share it with the stores in this process that have it open.

    The caller must release the file with `release_file`.
    """
    if path == MEMORY:
        file = File(path, synchronous)
        file.users = 1
        with _guard:
            _memory_files.append(file)
        file.open()
        return file
    if "\0" in path:
        raise InputError(f"{path!r} is not a valid path: it contains a NUL character. Remove it.")
    path = os.path.realpath(path)
    with _guard:
        file = _files.setdefault((path, synchronous), File(path, synchronous))
        file.users += 1
    try:
        file.open()
    except BaseException:
        release_file(file)
        raise
    return file


def release_file(file: File) -> None:
    """Release a file that `acquire_file` returned, and close it if no other store uses it."""
    with _guard:
        file.users -= 1
        if file.users:
            return
        if file in _memory_files:
            _memory_files.remove(file)
        else:
            _files.pop((file.path, file.synchronous), None)
    file.close()


def _before_fork() -> None:
    _guard.acquire()
    for file in (*_files.values(), *_memory_files):
        file.begin_fork()


def _after_fork(*, in_child: bool = False) -> None:
    for file in (*_files.values(), *_memory_files):
        file.end_fork(in_child=in_child)
    _guard.release()


on_fork(partial(_after_fork, in_child=True), before=_before_fork, in_parent=_after_fork)
