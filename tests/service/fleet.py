"""Processes of the service for tests of faults: a provider that waits, a plain TCP balancer, and the processes.

`python -m tests.service.fleet STORE UPSTREAM SETTINGS` is such a process; it prints its address.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import uvicorn

from longtalk.service.server import Server
from longtalk.service.settings import Settings
from longtalk.testing import says
from tests.support.child_processes import die_with_parent

TEXT = "One two three four."


class Provider:
    """A server of OpenAI's Responses API. It sends a part of each answer, and the rest when it is told to."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.began = threading.Semaphore(0)
        self.requests: list[bytes] = []
        provider = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):
                    while self.rfile.readline():
                        provider._answer(self)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _answer(self, connection: socketserver.StreamRequestHandler) -> None:
        length = 0
        while header := connection.rfile.readline().strip():
            name, _, value = header.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        self.requests.append(connection.rfile.read(length))
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        connection.wfile.write(head)
        for data in says(TEXT, wire="openai-responses", pieces=4).events:
            assert isinstance(data, bytes)
            event = b"data: %s\n\n" % data
            connection.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            if b"One" in data and b".delta" in data:
                self.began.release()
                self.go.wait(60)
        connection.wfile.write(b"0\r\n\r\n")

    def close(self) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()


class Balancer:
    """Sends each connection to the next process that accepts it, and knows nothing of HTTP."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self.chosen: list[int] = []
        """The port of each connection, in their order."""
        self._relays: list[tuple[socket.socket, threading.Thread]] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        turn = 0
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                for _ in self._ports:
                    turn += 1
                    with suppress(ConnectionRefusedError):
                        server = socket.create_connection(("127.0.0.1", self._ports[turn % len(self._ports)]))
                        self.chosen.append(self._ports[turn % len(self._ports)])
                        relay = threading.Thread(target=_relay, args=(client, server), daemon=True)
                        relay.start()
                        self._relays.append((client, relay))
                        break
                else:
                    client.close()

    def add(self, port: int) -> None:
        """Send connections to a further process too."""
        self._ports.append(port)

    def cut(self) -> None:
        """End all connections."""
        for client, _ in self._relays:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for _, relay in self._relays:
            relay.join()

    def close(self) -> None:
        self._listener.close()


def _relay(client: socket.socket, server: socket.socket) -> None:
    """Copy the bytes between two connections until one of them ends."""
    with client, server, suppress(OSError):
        while ready := select.select((client, server), (), ())[0]:
            for source in ready:
                data = source.recv(65536)
                if not data:
                    return
                (server if source is client else client).sendall(data)


def _read_port(child: subprocess.Popen[str]) -> int:
    """Return the port of a process that has printed its address."""
    assert child.stdout is not None
    return int(re.findall(r":(\d+)$", child.stdout.readline().strip())[0])


class Fleet:
    """Some processes of the service on one store, behind a balancer."""

    def __init__(self, store: str, provider: Provider, count: int, settings: Settings) -> None:
        given = msgspec.json.encode(settings).decode()
        self._command = [sys.executable, "-m", "tests.service.fleet", store, provider.url, given]
        self._processes: dict[int, subprocess.Popen[str]] = {}
        for child in [self._spawn() for _ in range(count)]:
            self._processes[_read_port(child)] = child
        self.balancer = Balancer(list(self._processes))
        self.url = self.balancer.url

    def _spawn(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent(signal.SIGKILL)
        )

    def start(self) -> None:
        """Start a further process, which takes connections from now on."""
        child = self._spawn()
        port = _read_port(child)
        self._processes[port] = child
        self.balancer.add(port)

    @property
    def urls(self) -> list[str]:
        """The addresses of the processes."""
        return [f"http://127.0.0.1:{port}" for port in self._processes]

    def signal(self, port: int, sent: signal.Signals = signal.SIGTERM) -> subprocess.Popen[str]:
        """Send a signal to the process that listens on a port, and return the process."""
        self._processes[port].send_signal(sent)
        return self._processes[port]

    def kill(self, port: int) -> None:
        """Kill the process that listens on a port."""
        self._processes[port].kill()
        self._processes[port].wait()

    def close(self) -> None:
        self.balancer.close()
        for child in self._processes.values():
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


@contextmanager
def run_fleet(
    store: str,
    count: int = 3,
    settings: Settings = Settings(),  # noqa: B008
) -> Iterator[tuple[Fleet, Provider]]:
    """Run some processes and their provider."""
    provider = Provider()
    fleet = Fleet(store, provider, count, settings)
    try:
        yield fleet, provider
    finally:
        fleet.close()
        provider.close()


def make_service(store: Any, upstream: str, settings: Settings = Settings()) -> Any:  # noqa: B008
    """Return the service on a store, with the provider as its model `m`."""
    from longtalk.providers.http.provider import AsyncHTTP
    from longtalk.providers.registry import PROVIDERS, ResolvedModel
    from longtalk.service.app import create_app
    from longtalk.wires import HTTP_WIRES

    wire, capabilities = HTTP_WIRES["openai-responses"], PROVIDERS["compatible"].capabilities
    model = AsyncHTTP(ResolvedModel("m", "m", wire, upstream, None, capabilities))
    return create_app(settings, store=store, providers={"m": model})


def main(store: str, upstream: str, settings: str) -> None:
    """Serve until the process gets a signal."""
    from longtalk.stores import open_store
    from tests.service.conftest import CONNECTIONS

    app = make_service(open_store(store), upstream, msgspec.json.decode(settings, type=Settings))
    server = Server(uvicorn.Config(app, log_level="error", **CONNECTIONS))
    with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        server.run(sockets=[listener])


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", ".")
    main(*sys.argv[1:])
