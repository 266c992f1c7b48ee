"""A Chat Completions server on loopback that checks every rule. It says again what it was told last.

It answers as `longtalk.testing.says` does, whole and streamed; `#tools` in the last message calls two functions.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from longtalk.testing import says
from longtalk.testing.validate import WireViolation, validate

KEY = "sk-one"


class StrictChat:
    """`requests` are the bodies as they came, `violations` the rules that they broke."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.violations: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                status, kind, body = server._answer(self.path, self.headers.get("authorization") or "", raw)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> StrictChat:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path: str, key: str, raw: bytes) -> tuple[int, str, bytes]:
        self.requests.append(raw)
        if path != "/v1/chat/completions":
            return _refused(404, f"Invalid URL (POST {path})")
        if key != f"Bearer {KEY}":
            return _refused(401, "Incorrect API key provided.")
        try:
            validate(raw)
        except WireViolation as broken:
            self.violations.append(str(broken))
            return _refused(400, str(broken))
        body = json.loads(raw)
        last = body["messages"][-1]
        text = last["content"] if isinstance(last["content"], str) else ""
        names = [tool["function"]["name"] for tool in body.get("tools", ())]
        called = [(f"call_{i}", name, "{}") for i, name in enumerate(names[:2])] if "#tools" in text else []
        counts = {"prompt_tokens": len(raw) // 4, "completion_tokens": 9, "total_tokens": len(raw) // 4 + 9}
        step = says(None if called else f"You said: {text}", calls=called, usage=counts)
        if not body.get("stream"):
            return 200, "application/json", step.body
        events = [event for event in step.events if isinstance(event, bytes)]
        return 200, "text/event-stream", b"".join(b"data: %s\n\n" % event for event in events)


def _refused(status: int, message: str) -> tuple[int, str, bytes]:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return status, "application/json", json.dumps({"error": error}).encode()
