"""The sync twin of `longtalk._util.concurrency`, written by hand."""

from __future__ import annotations

import contextlib
import os
from _thread import allocate_lock
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from longtalk._util.processes import enlarge_pipe, terminate

if TYPE_CHECKING:
    import subprocess
    from threading import Thread

    import httpx2

ASYNC = False


def sleep(seconds: float) -> None:
    import time

    time.sleep(seconds)


def call_tool(function: Callable[[], Any], *, is_async: bool) -> Any:  # noqa: ARG001
    """Call a tool in the caller's thread and return its result. A sync chat rejects async tools when it is created."""
    return function()


def run_in_thread(function: Callable[[], Any]) -> Any:
    return function()


def call_store(store: Any, function: Callable[[], Any]) -> Any:  # noqa: ARG001
    return function()


def run_jobs(jobs: Sequence[Callable[[], None]]) -> Generator[None, None, None]:
    """Run jobs one after another and yield each time a job ends."""
    for job in jobs:
        job()
        yield


def run_with_timeout(seconds: float, function: Callable[[], Any]) -> Any:
    """Return the result of the function, or raise `TimeoutError` if it takes longer than this many seconds.

    After a timeout, the function continues in its own thread and its result is dropped.
    """
    import threading
    from contextvars import copy_context

    results: list[Any] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=copy_context().run, args=(run,), name="longtalk-within", daemon=True)
    thread.start()
    thread.join(seconds)
    if problems:
        raise problems[0]
    if not results:
        raise TimeoutError
    return results[0]


class Jobs:
    """Background jobs that run while the caller continues. The program does not exit before they have ended."""

    def __init__(self) -> None:
        self._running: list[Thread] = []

    def start(self, job: Callable[[], None]) -> None:
        import threading

        self._running = [each for each in self._running if each.is_alive()]
        self._running.append(threading.Thread(target=job, name="longtalk-job"))
        self._running[-1].start()

    def wait(self) -> None:
        """Wait until all jobs have ended."""
        for each in list(self._running):
            each.join()


def run_shielded(function: Callable[[], Any]) -> None:
    function()


class Child:
    """A running child process whose output is read in pieces."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        import queue
        import threading

        self._process = process
        self._closed = False
        self._printed: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, name="longtalk-child", daemon=True)
        self._listener.start()

    @staticmethod
    def start(command: Sequence[str], **settings: Any) -> Child:
        import subprocess

        process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, **settings)
        enlarge_pipe(process.stdout)
        return Child(process)

    def _listen(self) -> None:
        out = self._process.stdout
        while out is not None and (data := os.read(out.fileno(), 65536)):
            self._printed.put(data)
        self._printed.put(None)

    def read(self, seconds: float) -> bytes | None:
        """Return the next piece of output, or None at the end of the output.

        Raise `TimeoutError` if no output arrives within this many seconds.
        """
        import queue

        try:
            return self._printed.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError from None

    def wait(self, seconds: float) -> int:
        """Return the exit status of the process; raise `TimeoutError` if the process runs longer than this."""
        import subprocess

        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None

    def close(self) -> None:
        """Terminate the process and all processes that it started."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._process.poll() is None:
                terminate(self._process, hard=False)
                with contextlib.suppress(TimeoutError):
                    self.wait(2)
        finally:
            # The processes it started may still run.
            terminate(self._process, hard=True)
        with contextlib.suppress(TimeoutError):
            self.wait(2)
        # The listener waits while another process holds the other end open. Then the pipe stays open too.
        self._listener.join(2)
        if self._process.stdout is not None and not self._listener.is_alive():
            self._process.stdout.close()


class ClientHolder:
    """A holder for an HTTP client that is created on first use, once per process."""

    def __init__(self, client: Any, **settings: Any) -> None:
        self._client = client
        self._settings = settings
        self._created: tuple[int, httpx2.Client] | None = None
        self._lock = allocate_lock()

    def get(self) -> Any:
        if self._client is not None:
            return self._client
        import httpx2

        with self._lock:
            # A forked process must not use the connections of its parent: answers would reach the wrong one.
            if self._created is None or self._created[0] != os.getpid() or self._created[1].is_closed:
                # By default, the 101st request at once would wait until another one ends.
                limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
                self._created = (os.getpid(), httpx2.Client(limits=limits, **self._settings))
            return self._created[1]

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        created, self._created = self._created, None
        if created is not None and created[0] == os.getpid():
            created[1].close()
