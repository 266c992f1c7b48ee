"""A Responses server on loopback that checks every rule, and remembers what it has said.

It obeys words in the last message: `#think` reasons before the answer, `#tool` and `#tools` call one or two functions,
`#custom` a tool that takes text, `#search` uses a tool of its own, `#odd` adds fields and items that nobody knows, and
writes all its JSON in an odd way, `#long` stops for want of room, `#filter` for its content, `#refuse` refuses. What it
thinks is encrypted for one account and model: no other can read it. `store` is obeyed, and with it who may call items
by their id.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from longtalk.testing.responses_rules import check
from longtalk.testing.validate import WireViolation

KEY = "sk-one"
OTHER_KEY = "sk-two"

Item = dict[str, Any]


class _Refused(Exception):
    def __init__(self, status: int, code: str | None, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.error = {"message": message, "type": "invalid_request_error", "param": "input", "code": code}


class StrictResponses:
    """`requests` are the bodies as they came, `violations` the rules that they broke, `issued` the items as bytes."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.violations: list[str] = []
        self.refusals: list[str] = []
        """What was refused without breaking a rule: what a client can't know before."""
        self.issued: list[bytes] = []
        self.stored: dict[str, set[str]] = {KEY: set(), OTHER_KEY: set()}
        self.window: int | None = None
        """Characters that a request may have."""
        self.late = False
        """Whether refusals come inside a stream that has begun."""
        self.unknown: set[str] = set()
        """Fields of items that are refused."""
        self.encrypts = True
        self.hasty = 0
        """So many events are sent of the next stream, then the line is cut."""
        self._number = 0
        self._after_thought: set[str] = set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                key = (self.headers.get("authorization") or "").removeprefix("Bearer ")
                status, answer = server._answer(self.path, key, body)
                self.send_response(status)
                if isinstance(answer, bytes):
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                    return
                self.send_header("content-type", "text/event-stream")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                left, server.hasty = server.hasty, 0
                for number, chunk in enumerate(answer):
                    if left and number == left:
                        self.close_connection = True
                        self.connection.close()
                        return
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def body(self, request: int = -1) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.requests[request])
        return body

    def input(self, request: int = -1) -> bytes:
        """The exact bytes of the items that came, without the closing brackets."""
        return self.requests[request].split(b',"input":[', 1)[1][:-2]

    def kinds(self, request: int = -1) -> list[str]:
        return [item.get("type", item.get("role")) for item in self.body(request)["input"]]

    def __enter__(self) -> StrictResponses:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    # Judging

    def _answer(self, path: str, key: str, raw: bytes) -> tuple[int, bytes | list[bytes]]:
        self.requests.append(raw)
        streams = False
        try:
            if path != "/v1/responses":
                raise _Refused(404, None, f"Invalid URL (POST {path})")
            if key not in self.stored:
                raise _Refused(401, "invalid_api_key", "Incorrect API key provided.")
            body = json.loads(raw)
            streams = bool(body.get("stream"))
            check(body)
            self._judge(key, body)
        except WireViolation as broken:
            self.violations.append(str(broken))
            return self._refuse(_Refused(400, None, str(broken)), streams)
        except _Refused as refused:
            self.refusals.append(str(refused))
            return self._refuse(refused, streams)
        response = self._respond(key, body)
        odd = "#odd" in _words(body)
        return 200, list(_stream(response, odd)) if streams else _dump(response, odd).encode()

    def _refuse(self, refused: _Refused, streams: bool) -> tuple[int, bytes | list[bytes]]:
        if not (streams and self.late):
            return refused.status, json.dumps({"error": refused.error}).encode()
        begun = {"id": "resp_x", "status": "in_progress", "output": [], "error": None}
        failed = {"type": "response.failed", "response": {**begun, "status": "failed", "error": refused.error}}
        return 200, [_event(item) for item in ({"type": "response.created", "response": begun}, failed)]

    def _judge(self, key: str, body: dict[str, Any]) -> None:
        if self.window is not None and len(self.requests[-1]) > self.window:
            what = "Your input exceeds the context window of this model. Please adjust your input and try again."
            raise _Refused(400, "context_length_exceeded", what)
        if not self.encrypts and "reasoning.encrypted_content" in body.get("include", ()):
            raise _Refused(400, None, "Encrypted content is not supported with this model.")
        thought = False
        for i, item in enumerate(body["input"]):
            for name in sorted(self.unknown & item.keys()):
                raise _Refused(400, "unknown_parameter", f"Unknown parameter: 'input[{i}].{name}'.")
            sealed, id = item.get("encrypted_content"), item.get("id")  # noqa: A001
            if sealed is not None and sealed != self._seal(key, body["model"], sealed.partition(".")[0]):
                what = f"The encrypted content for item {id or sealed[:4]} could not be verified. Reason: Encrypted"
                raise _Refused(400, "invalid_encrypted_content", f"{what} content could not be decrypted or parsed.")
            if body.get("store") is not False and id is not None and id not in self.stored[key]:
                raise _Refused(404, None, f"Item with id '{id}' not found.")
            if id in self._after_thought and not thought:
                what = f"Item '{id}' of type '{item['type']}' was provided without its required 'reasoning' item"
                raise _Refused(400, None, what)
            thought = item.get("type") == "reasoning" or (thought and item.get("role") != "user")

    def _seal(self, key: str, model: str, number: str) -> str:
        mac = hmac.new(key.encode(), f"{model} {number}".encode(), hashlib.sha256).hexdigest()
        return f"{number}.{mac}"

    # Answering

    def _respond(self, key: str, body: dict[str, Any]) -> dict[str, Any]:
        words = _words(body)
        flags = set(re.findall(r"#\w+", words))
        stores = body.get("store") is not False
        output: list[Item] = []
        if "#think" in flags:
            sealed = self._seal(key, body["model"], self._next(""))
            summary = [{"type": "summary_text", "text": "Hm."}]
            item = {"id": self._next("rs_"), "type": "reasoning", "summary": summary, "status": "completed"}
            asked = "reasoning.encrypted_content" in body.get("include", ())
            output.append({**item, **({"encrypted_content": sealed} if asked else {})})
        if "#search" in flags:
            action = {"type": "search", "query": "bows"}
            output.append({"id": self._next("ws_"), "type": "web_search_call", "status": "completed", "action": action})
        if "#odd" in flags:
            output.append({"type": "later_item", "id": self._next("li_"), "what": [1, None, 1e2], "é": "\U0001f3bb"})
        answered = isinstance(body["input"][-1], dict) and body["input"][-1].get("type", "").endswith("_output")
        calls = 0 if answered else 2 if "#tools" in flags else 1 if "#tool" in flags else 0
        for tool in body.get("tools", [])[:calls]:
            call = {"id": self._next("fc_"), "type": "function_call", "status": "completed"}
            output.append({**call, "call_id": self._next("call_"), "name": tool["name"], "arguments": '{"q":"é\\n"}'})
        if "#custom" in flags and not answered:
            call = {"id": self._next("ctc_"), "type": "custom_tool_call", "call_id": self._next("call_")}
            output.append({**call, "name": "lookup", "input": "plain words"})
            calls += 1
        if not calls:
            said = f"You said: {words}"
            part: Item = {"type": "output_text", "text": said, "annotations": [], "logprobs": []}
            if "#refuse" in flags:
                part = {"type": "refusal", "refusal": "I can't do that."}
            more = {"later": {"a": [1.50, "\ud83d"]}} if "#odd" in flags else {}
            message = {"id": self._next("msg_"), "type": "message", "status": "completed", "role": "assistant"}
            output.append({**message, "phase": "final_answer", "content": [part], **more})
        self.issued += [_dump(item, "#odd" in flags).encode() for item in output]
        for item in output:
            if stores:
                self.stored[key].add(item["id"])
            if "#think" in flags and item["type"] in ("message", "function_call"):
                self._after_thought.add(item["id"])
        reason = "max_output_tokens" if "#long" in flags else "content_filter" if "#filter" in flags else None
        counted = len(self.requests[-1]) // 4
        details = {"cached_tokens": counted // 2, "cache_write_tokens": 3}
        usage = {
            "input_tokens": counted,
            "input_tokens_details": details,
            "output_tokens": 9,
            "total_tokens": counted + 9,
        }
        return {
            "id": self._next("resp_"),
            "object": "response",
            "status": "incomplete" if reason else "completed",
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "store": stores,
            "output": output,
            "usage": usage,
        }

    def _next(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}{self._number:06}"


def _words(body: dict[str, Any]) -> str:
    """What the user said last."""
    said = [item["content"] for item in body["input"] if item.get("role") == "user"]
    last = said[-1] if said else ""
    return last if isinstance(last, str) else "".join(part.get("text", "") for part in last)


def _dump(value: Any, odd: bool) -> str:
    return json.dumps(value, separators=(" ,  ", "  :\t") if odd else (",", ":"))


def _event(data: dict[str, Any], *, odd: bool = False) -> bytes:
    return f"event: {data['type']}\ndata: {_dump(data, odd)}\n\n".encode()


def _stream(response: dict[str, Any], odd: bool) -> Iterator[bytes]:
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    yield _event({"type": "response.created", "response": begun}, odd=odd)
    yield _event({"type": "response.in_progress", "response": begun}, odd=odd)
    for index, item in enumerate(response["output"]):
        place = {"item_id": item["id"], "output_index": index}
        opened = {**item, "status": "in_progress", "content": [], "arguments": "", "encrypted_content": "half"}
        opened = {key: value for key, value in opened.items() if key in item}
        yield _event({"type": "response.output_item.added", "output_index": index, "item": opened}, odd=odd)
        yield _event({"type": "response.later.event", **place, "delta": "not a text"}, odd=odd)
        for part in item.get("content", ()):
            kind = "refusal" if part["type"] == "refusal" else "output_text"
            text = part.get("text", part.get("refusal"))
            for start in range(0, len(text), 7):
                delta = {"content_index": 0, "delta": text[start : start + 7], "obfuscation": "xyz"}
                yield _event({"type": f"response.{kind}.delta", **place, **delta}, odd=odd)
            yield _event({"type": f"response.{kind}.done", **place, "content_index": 0, "text": text}, odd=odd)
        if "arguments" in item:
            yield _event(
                {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]}, odd=odd
            )
        yield _event({"type": "response.output_item.done", "output_index": index, "item": item}, odd=odd)
    kind = "response.incomplete" if response["status"] == "incomplete" else "response.completed"
    yield _event({"type": kind, "response": response}, odd=odd)
