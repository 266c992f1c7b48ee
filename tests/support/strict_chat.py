"""A loopback Chat Completions server that checks every rule, and repeats the last message as its answer.

Its answers, whole and streamed, have the form of `longtalk.testing.says`. `#tools` in the last message makes it call
two functions.
"""

from __future__ import annotations

import json

from longtalk.testing import says
from longtalk.testing.wires.validate import validate
from longtalk.testing.wires.violation import WireViolation
from tests.support.http_server import HttpHandler, HttpServer

KEY = "sk-one"


class StrictChat(HttpServer):
    """The server. `requests` are the bodies that arrived, `violations` the broken rules."""

    root = "/v1"

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.violations: list[str] = []
        server = self

        class Handler(HttpHandler):
            def do_POST(self) -> None:
                key = self.headers.get("authorization") or ""
                status, kind, body = server._answer(self.path, key, self.read_body())
                self.send_whole(status, body, {"content-type": kind})

        super().__init__(Handler)

    def _answer(self, path: str, key: str, raw: bytes) -> tuple[int, str, bytes]:
        self.requests.append(raw)
        if path != "/v1/chat/completions":
            return _refuse(404, f"Invalid URL (POST {path})")
        if key != f"Bearer {KEY}":
            return _refuse(401, "Incorrect API key provided.")
        try:
            validate(raw)
        except WireViolation as violation:
            self.violations.append(str(violation))
            return _refuse(400, str(violation))
        body = json.loads(raw)
        last = body["messages"][-1]
        text = last["content"] if isinstance(last["content"], str) else ""
        names = [tool["function"]["name"] for tool in body.get("tools", ())]
        calls = [(f"call_{i}", name, "{}") for i, name in enumerate(names[:2])] if "#tools" in text else []
        counts = {"prompt_tokens": len(raw) // 4, "completion_tokens": 9, "total_tokens": len(raw) // 4 + 9}
        step = says(None if calls else f"You said: {text}", calls=calls, usage=counts)
        if not body.get("stream"):
            return 200, "application/json", step.body
        events = [event for event in step.events if isinstance(event, bytes)]
        return 200, "text/event-stream", b"".join(b"data: %s\n\n" % event for event in events)


def _refuse(status: int, message: str) -> tuple[int, str, bytes]:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return status, "application/json", json.dumps({"error": error}).encode()
