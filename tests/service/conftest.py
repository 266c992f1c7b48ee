"""A running service for tests: real HTTP on loopback, real clients, a scripted provider."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
import uvicorn

from longtalk.service.app import create_app
from longtalk.service.settings import Settings
from longtalk.stores.in_memory import InMemory

CONNECTIONS: Any = {
    "http": "longtalk.service.connections:HttpConnection",
    "ws": "longtalk.service.connections:WebSocketConnection",
}
"""What `longtalk serve` passes to uvicorn."""


class Served:
    """A service that listens on a port of this machine."""

    def __init__(self, app: Any) -> None:
        self._clients: list[openai.OpenAI] = []
        self._listener = listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.service = app.state.service
        config = uvicorn.Config(app, log_level="error", lifespan="on", **CONNECTIONS)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: self._server.run(sockets=[listener]), daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)

    def client(self, key: str = "none", **options: Any) -> openai.OpenAI:
        """Return OpenAI's own client, pointed here."""
        made = openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, **{"max_retries": 0, **options})
        self._clients.append(made)
        return made

    def stop(self) -> None:
        """Stop the service as SIGTERM would."""
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
        for client in self._clients:
            client.close()


Serve = Callable[..., Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start services that stop at the end of the test: `serve(m=provider, store=…, settings=…)`."""
    started: list[Served] = []

    def start(*, store: Any = None, storage: Any = None, settings: Settings | None = None, **providers: Any) -> Served:
        app = create_app(
            settings or Settings(), store=InMemory() if store is None else store, storage=storage, providers=providers
        )
        started.append(Served(app))
        return started[-1]

    yield start
    for each in started:
        each.stop()
