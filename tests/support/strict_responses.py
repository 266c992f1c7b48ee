"""A Responses server on loopback that checks every rule, and remembers what it has said.

It obeys words in the last message: `#think` reasons before the answer, `#tool` and `#tools` call one or two functions,
`#custom` a tool that takes text, `#search` uses a tool of its own, `#odd` adds unknown fields and items, and
writes all its JSON in an odd way, `#long` stops for want of room, `#filter` for its content, `#refuse` refuses. What it
thinks is encrypted for one account and model: no other can read it. `store` is obeyed, and with it who may call items
by their id.

What it stores it goes on with, by `previous_response_id` or in a `conversation`, for the same account only; `seen` is
what its model would have read. A conversation grows when a response is done, and takes one turn at a time.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

from longtalk.testing.wires.openai_responses import OUTPUTS, check
from longtalk.testing.wires.violation import WireViolation
from tests.support.http_server import HttpHandler, HttpServer

KEY = "sk-one"
OTHER_KEY = "sk-two"
TOLD = "Ada plays a violin of 1740 and has asked about bows."
"""Its summary of any conversation."""

Item = dict[str, Any]


class _Refused(Exception):
    def __init__(self, status: int, code: str | None, message: str, param: str = "input") -> None:
        super().__init__(message)
        self.status = status
        self.error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}


class StrictResponses(HttpServer):
    """`requests` are the bodies as they came, `violations` the rules that they broke, `issued` the items as bytes."""

    root = "/v1"

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
        self.calls: list[str] = []
        """Requests for something else than a response: method and path."""
        self.down: list[int] = []
        """The statuses with which the next of those are refused."""
        self.responses: dict[str, tuple[str, list[Item]]] = {}
        """What was stored, by the id of the response: whose it is, and all items up to it."""
        self.conversations: dict[str, tuple[str, list[Item]]] = {}
        self.locked: set[str] = set()
        """Conversations in which a turn runs."""
        self._seen: list[list[Item]] = []
        self._number = 0
        self._after_thought: set[str] = set()
        server = self

        class Handler(HttpHandler):
            def do_GET(self) -> None:
                self._say(*server._tell("GET", self.path, self._key()))

            def do_POST(self) -> None:
                body = self.read_body()
                if self.path == "/v1/conversations":
                    self._say(*server._tell("POST", self.path, self._key()))
                else:
                    self._say(*server._answer(self.path, self._key(), body))

            def _key(self) -> str:
                return (self.headers.get("authorization") or "").removeprefix("Bearer ")

            def _say(self, status: int, answer: bytes | Iterator[bytes]) -> None:
                if isinstance(answer, bytes):
                    self.send_whole(status, answer)
                    return
                self.begin_stream(status)
                left, server.hasty = server.hasty, 0
                try:
                    for number, chunk in enumerate(answer):
                        if left and number == left:
                            self.hang_up()
                            return
                        self.send_chunk(chunk)
                    self.end_stream()
                except OSError:
                    # The client has closed the connection.
                    self.close_connection = True
                finally:
                    if isinstance(answer, Generator):
                        answer.close()

        super().__init__(Handler)

    def body(self, request: int = -1) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.requests[request])
        return body

    def input(self, request: int = -1) -> bytes:
        """The exact bytes of the items that came, without the closing brackets."""
        return self.requests[request].split(b',"input":[', 1)[1][:-2]

    def kinds(self, request: int = -1) -> list[str]:
        return [item.get("type", item.get("role")) for item in self.body(request)["input"]]

    def seen(self, request: int = -1) -> list[Item]:
        """All items that the model has read for a request: what the server had, and what came."""
        return self._seen[request]

    def forget(self) -> None:
        """Lose all that was stored."""
        self.responses.clear()
        self.conversations.clear()
        for stored in self.stored.values():
            stored.clear()

    # Judging

    def _tell(self, method: str, path: str, key: str) -> tuple[int, bytes]:
        """Begin a conversation, or say what was added to one last."""
        self.calls.append(f"{method} {path.removeprefix('/v1')}")
        if self.down:
            return self.down.pop(0), b'{"error":{"message":"Not now."}}'
        if method == "POST":
            name = self._next("conv_")
            self.conversations[name] = (key, [])
            return 200, json.dumps({"id": name, "object": "conversation"}).encode()
        found = re.fullmatch(r"/v1/conversations/([\w-]+)/items\?order=desc&limit=1", path)
        try:
            items = self._conversation(key, found[1] if found else path)
        except _Refused as refused:
            return refused.status, json.dumps({"error": refused.error}).encode()
        return 200, json.dumps({"object": "list", "data": items[-1:], "has_more": len(items) > 1}).encode()

    def _conversation(self, key: str, name: str) -> list[Item]:
        if not name.startswith("conv"):
            what = f"Invalid 'conversation': '{name}'. Expected an ID that begins with 'conv'."
            raise _Refused(400, "invalid_value", what, "conversation")
        owner, items = self.conversations.get(name, ("", []))
        if owner != key:
            raise _Refused(404, None, f"Conversation with id '{name}' not found.", "conversation")
        return items

    def _before(self, key: str, body: dict[str, Any]) -> list[Item]:
        """The items that a request goes on from."""
        within, before = body.get("conversation"), body.get("previous_response_id")
        if within is not None:
            name = within if isinstance(within, str) else within["id"]
            if name in self.locked:
                what = "Another process is currently operating on this conversation. Please retry in a few seconds."
                raise _Refused(400, "conversation_locked", what, "conversation")
            return self._conversation(key, name)
        if before is None:
            return []
        if not before.startswith("resp"):
            what = f"Invalid 'previous_response_id': '{before}'. Expected an ID that begins with 'resp'."
            raise _Refused(400, "invalid_value", what, "previous_response_id")
        owner, items = self.responses.get(before, ("", []))
        if owner != key:
            what = f"Previous response with id '{before}' not found."
            raise _Refused(400, "previous_response_not_found", what, "previous_response_id")
        return items

    def _answer(self, path: str, key: str, raw: bytes) -> tuple[int, bytes | Iterator[bytes]]:
        self.requests.append(raw)
        self._seen.append([])
        streams = False
        try:
            if path != "/v1/responses":
                raise _Refused(404, None, f"Invalid URL (POST {path})")
            if key not in self.stored:
                raise _Refused(401, "invalid_api_key", "Incorrect API key provided.")
            body = json.loads(raw)
            streams = bool(body.get("stream"))
            check(body)
            self._seen[-1] = [*self._before(key, body), *body["input"]]
            _check_chain(self._seen[-1])
            self._judge(key, body)
        except WireViolation as broken:
            self.violations.append(str(broken))
            return self._refuse(_Refused(400, None, str(broken)), streams)
        except _Refused as refused:
            self.refusals.append(str(refused))
            return self._refuse(refused, streams)
        response = self._respond(key, body)
        odd = "#odd" in _words(self.seen())
        ended = partial(self._keep, key, response, self._seen[-1])
        if streams:
            return 200, self._ending(_stream(response, odd), response["conversation"], ended)
        ended()
        return 200, _dump(response, odd).encode()

    def _ending(self, events: Iterator[bytes], within: Item | None, ended: Callable[[], None]) -> Iterator[bytes]:
        """Events, of which the last one comes when the response is done."""
        name = within["id"] if within else ""
        self.locked.add(name)
        try:
            waiting = next(events)
            for event in events:
                yield waiting
                waiting = event
            ended()
        finally:
            self.locked.discard(name)
        yield waiting

    def _keep(self, key: str, response: dict[str, Any], seen: list[Item]) -> None:
        """A response is done: it can be gone on with."""
        within = response["conversation"]
        said = [*seen, *response["output"]]
        if within is not None:
            self.conversations[within["id"]] = (key, [_named(item, i) for i, item in enumerate(said)])
        elif response["store"]:
            self.responses[response["id"]] = (key, said)

    def _refuse(self, refused: _Refused, streams: bool) -> tuple[int, bytes | Iterator[bytes]]:
        if not (streams and self.late):
            return refused.status, json.dumps({"error": refused.error}).encode()
        begun = {"id": "resp_x", "status": "in_progress", "output": [], "error": None}
        failed = {"type": "response.failed", "response": {**begun, "status": "failed", "error": refused.error}}
        return 200, iter([_event(item) for item in ({"type": "response.created", "response": begun}, failed)])

    def _judge(self, key: str, body: dict[str, Any]) -> None:
        if self.window is not None and self._length() > self.window:
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

    def _length(self) -> int:
        """Characters of a request, with what was stored before."""
        before = len(self.seen()) - len(self.body()["input"])
        return len(self.requests[-1]) + sum(len(_dump(item, False)) for item in self.seen()[:before])

    def _seal(self, key: str, model: str, number: str) -> str:
        mac = hmac.new(key.encode(), f"{model} {number}".encode(), hashlib.sha256).hexdigest()
        return f"{number}.{mac}"

    # Answering

    def _respond(self, key: str, body: dict[str, Any]) -> dict[str, Any]:
        words = _words(self.seen())
        flags = set(re.findall(r"#\w+", words))
        stores, within = body.get("store") is not False, body.get("conversation")
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
            said = TOLD if "<summary_request>" in words else f"You said: {words}"
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
        counted = self._length() // 4
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
            "previous_response_id": body.get("previous_response_id"),
            "conversation": {"id": within if isinstance(within, str) else within["id"]} if within else None,
            "output": output,
            "usage": usage,
        }

    def _next(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}{self._number:06}"


def _check_chain(items: list[Item]) -> None:
    """Calls and results fit together, wherever they are (R1, R2), and no item is there twice (R6)."""
    calls: list[tuple[str, str]] = []
    ids = [item["id"] for item in items if "id" in item]
    twice = next((id for i, id in enumerate(ids) if id in ids[:i]), None)  # noqa: A001
    if twice is not None:
        raise WireViolation("R6", f"Duplicate item found with id {twice}. Remove duplicate items from your input.")
    for item in items:
        kind = item.get("type", "message")
        if kind in OUTPUTS:
            calls.append((OUTPUTS[kind], item["call_id"]))
        elif kind in OUTPUTS.values():
            if (kind, item["call_id"]) not in calls:
                what = kind.removesuffix("_output").replace("_", " ")
                raise WireViolation("R2", f"No tool call found for {what} output with call_id {item['call_id']}.")
            calls.remove((kind, item["call_id"]))
        elif calls and item.get("role", "assistant") == "user":
            raise WireViolation("R1", f"No tool output found for function call {calls[0][1]}.")
    if calls:
        raise WireViolation("R1", f"No tool output found for function call {calls[0][1]}.")


def _named(item: Item, place: int) -> Item:
    """An item of a conversation has an id, also one that came without."""
    return item if "id" in item else {"id": f"item_{place:06}", **item}


def _words(items: list[Item]) -> str:
    """What the user said last."""
    said = [item["content"] for item in items if item.get("role") == "user"]
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
