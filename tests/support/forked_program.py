"""The `longtalk` program in processes that start fast: copies of one process that has already imported the package.

Each run is a process of its own, with its own input, output, environment and exit code. Only the imports are shared,
which are most of the CPU time of a command: those of all commands, stores in files and providers over HTTP.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

MAX_REQUEST = 1 << 20


@cache
def _server() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the process that is copied, and return it with the socket for requests."""
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        command = [sys.executable, "-m", "tests.support.forked_program", str(its.fileno())]
        folder = Path(__file__).parents[2]
        return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, pass_fds=[its.fileno()]), mine


def end() -> None:
    """End the process that is copied, if it runs."""
    if _server.cache_info().currsize:
        process, requests = _server()
        requests.close()
        process.wait(60)
        _server.cache_clear()


def run(
    arguments: Sequence[str], *, said: bytes, environment: Mapping[str, str], timeout: float = 120
) -> subprocess.CompletedProcess[bytes]:
    """Run `longtalk` with these arguments and this input, and return its exit code and output."""
    _, server = _server()
    answers, its_answers = socket.socketpair()
    read, write = os.pipe()
    with answers, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        request = json.dumps([list(arguments), dict(environment), os.getcwd()]).encode()
        assert len(request) < MAX_REQUEST
        with its_answers:
            socket.send_fds(server, [request], [read, out.fileno(), err.fileno(), its_answers.fileno()])
        os.close(read)
        try:
            with open(write, "wb") as pipe:
                pipe.write(said)
        except BrokenPipeError:
            pass  # It ended before it read everything.
        answers.settimeout(timeout)
        code = answers.recv(16)
        assert code, "the process that runs the program was killed"
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["longtalk", *arguments], int(code), out.read(), err.read())


def _serve(requests: socket.socket) -> bool:
    """Copy this process for each request. Return True in a copy that runs the program, and False at the end."""
    while True:
        request, fds, _, _ = socket.recv_fds(requests, MAX_REQUEST, 4)
        _reap(os.WNOHANG)
        if not request:
            _reap(0)
            return False
        if os.fork() == 0:
            break
        for fd in fds:
            os.close(fd)
    # This copy waits for the program, which is a copy of this copy, and reports its exit code.
    requests.close()
    answers = fds.pop()
    program = os.fork()
    if program:
        code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
        os.write(answers, str(code).encode())
        os._exit(0)
    os.close(answers)
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    # The streams of the copied process may be of another kind, such as a file where this process has a pipe.
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    arguments, environment, folder = json.loads(request)
    sys.argv = ["longtalk", *arguments]
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    return True


def _reap(options: int) -> None:
    """Collect the copies that have ended."""
    try:
        while os.waitpid(-1, options)[0]:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    from longtalk import cli

    for module in pkgutil.iter_modules(cli.__path__):
        import_module(f"longtalk.cli.{module.name}")
    for name in ("_sync.conversation.conversation", "stores.sqlite.store", "providers.http.provider"):
        import_module(f"longtalk.{name}")
    gc.freeze()
    if _serve(socket.socket(fileno=int(sys.argv[1]))):
        cli.main()
