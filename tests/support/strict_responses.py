"""A loopback Responses server that checks every rule, and remembers its own answers.

It obeys flags in the last message: `#think` reasons before the answer, `#tool` and `#tools` call one or two functions,
`#custom` calls a tool that takes text, `#search` uses a tool of the server, `#odd` adds unknown fields and items and
writes unusual JSON, `#long` stops at the token limit, `#filter` at the content filter, `#refuse` refuses. Reasoning is
encrypted for one account and model. Item ids are valid only for the account that stored the items (`store`).

The server continues from `previous_response_id` or a `conversation` of the same account. `seen` has what its model
would have read. A conversation grows when a response is complete, and allows one turn at a time.
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
SUMMARY_TEXT = "Ada plays a violin of 1740 and has asked about bows."
"""The server's summary of any conversation."""

Item = dict[str, Any]


class _Refused(Exception):
    def __init__(self, status: int, code: str | None, message: str, param: str = "input") -> None:
        super().__init__(message)
        self.status = status
        self.error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}


class StrictResponses(HttpServer):
    """The server. `requests` are the bodies that arrived, `violations` the broken rules, `issued` the sent items."""

    root = "/v1"

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.violations: list[str] = []
        self.refusals: list[str] = []
        """Refusals that a client can't foresee, because the request breaks no rule."""
        self.issued: list[bytes] = []
        self.stored: dict[str, set[str]] = {KEY: set(), OTHER_KEY: set()}
        self.window: int | None = None
        """The largest number of characters in a request."""
        self.late = False
        """Whether refusals are sent as events of a stream that has already started."""
        self.unknown: set[str] = set()
        """Fields of items that the server refuses as unknown."""
        self.encrypts = True
        self.hasty = 0
        """The number of events after which the next stream is cut. 0 means that it isn't cut."""
        self.calls: list[str] = []
        """The method and path of each request to the conversations API."""
        self.down: list[int] = []
        """The statuses with which the next requests to the conversations API are refused."""
        self.responses: dict[str, tuple[str, list[Item]]] = {}
        """For each stored response id: the owner's key, and all items up to the response."""
        self.conversations: dict[str, tuple[str, list[Item]]] = {}
        self.names_conversation = False
        """Whether a response has the id of its conversation as a string instead of an object."""
        self.locked: set[str] = set()
        """Conversations in which a turn is running."""
        self._seen: list[list[Item]] = []
        self._number = 0
        self._after_thought: set[str] = set()
        self._led_to: dict[str, Item] = {}
        """For each encrypted reasoning: the item that came after it."""
        server = self

        class Handler(HttpHandler):
            def do_GET(self) -> None:
                self._send(*server._answer_conversation_call("GET", self.path, self._key()))

            def do_POST(self) -> None:
                body = self.read_body()
                if self.path == "/v1/conversations":
                    self._send(*server._answer_conversation_call("POST", self.path, self._key()))
                else:
                    self._send(*server._answer(self.path, self._key(), body))

            def _key(self) -> str:
                return (self.headers.get("authorization") or "").removeprefix("Bearer ")

            def _send(self, status: int, answer: bytes | Iterator[bytes]) -> None:
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
        """Return the exact bytes of a request's input items, without the closing brackets."""
        return self.requests[request].split(b',"input":[', 1)[1][:-2]

    def kinds(self, request: int = -1) -> list[str]:
        return [item.get("type", item.get("role")) for item in self.body(request)["input"]]

    def seen(self, request: int = -1) -> list[Item]:
        """Return all items that the model has read for a request: the stored ones and the new ones."""
        return self._seen[request]

    def forget(self) -> None:
        """Delete everything that was stored."""
        self.responses.clear()
        self.conversations.clear()
        for stored in self.stored.values():
            stored.clear()

    # Checking requests

    def _answer_conversation_call(self, method: str, path: str, key: str) -> tuple[int, bytes]:
        """Create a conversation, or return its newest item."""
        self.calls.append(f"{method} {path.removeprefix('/v1')}")
        if self.down:
            return self.down.pop(0), b'{"error":{"message":"Not now."}}'
        if method == "POST":
            name = self._make_id("conv_")
            self.conversations[name] = (key, [])
            return 200, json.dumps({"id": name, "object": "conversation"}).encode()
        found = re.fullmatch(r"/v1/conversations/([\w-]+)/items\?order=desc&limit=1", path)
        try:
            items = self._find_conversation(key, found[1] if found else path)
        except _Refused as refused:
            return refused.status, json.dumps({"error": refused.error}).encode()
        return 200, json.dumps({"object": "list", "data": items[-1:], "has_more": len(items) > 1}).encode()

    def _find_conversation(self, key: str, name: str) -> list[Item]:
        if not name.startswith("conv"):
            what = f"Invalid 'conversation': '{name}'. Expected an ID that begins with 'conv'."
            raise _Refused(400, "invalid_value", what, "conversation")
        owner, items = self.conversations.get(name, ("", []))
        if owner != key:
            raise _Refused(404, None, f"Conversation with id '{name}' not found.", "conversation")
        return items

    def _list_earlier_items(self, key: str, body: dict[str, Any]) -> list[Item]:
        """Return the items that a request continues from."""
        within, before = body.get("conversation"), body.get("previous_response_id")
        if within is not None:
            name = within if isinstance(within, str) else within["id"]
            if name in self.locked:
                what = "Another process is currently operating on this conversation. Please retry in a few seconds."
                raise _Refused(400, "conversation_locked", what, "conversation")
            return self._find_conversation(key, name)
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
            self._seen[-1] = [*self._list_earlier_items(key, body), *body["input"]]
            _check_chain(self._seen[-1])
            self._check_items(key, body)
        except WireViolation as violation:
            self.violations.append(str(violation))
            return self._refuse(_Refused(400, None, str(violation)), streams)
        except _Refused as refused:
            self.refusals.append(str(refused))
            return self._refuse(refused, streams)
        response = self._respond(key, body)
        odd = "#odd" in _read_last_text(self.seen())
        complete = partial(self._store, key, response, self._seen[-1])
        within = response["conversation"]
        shown = {**response, "conversation": within["id"]} if within and self.names_conversation else response
        if streams:
            return 200, self._complete_at_end(_stream(shown, odd), within, complete)
        complete()
        return 200, _dump(shown, odd).encode()

    def _complete_at_end(
        self, events: Iterator[bytes], within: Item | None, complete: Callable[[], None]
    ) -> Iterator[bytes]:
        """Yield the events, and call `complete` before the last one. Meanwhile the conversation is locked."""
        name = within["id"] if within else ""
        self.locked.add(name)
        try:
            waiting = next(events)
            for event in events:
                yield waiting
                waiting = event
            complete()
        finally:
            self.locked.discard(name)
        yield waiting

    def _store(self, key: str, response: dict[str, Any], seen: list[Item]) -> None:
        """Store a complete response, so that later requests can continue from it."""
        within = response["conversation"]
        items = [*seen, *response["output"]]
        if within is not None:
            self.conversations[within["id"]] = (key, [_add_id(item, i) for i, item in enumerate(items)])
        elif response["store"]:
            self.responses[response["id"]] = (key, items)

    def _refuse(self, refused: _Refused, streams: bool) -> tuple[int, bytes | Iterator[bytes]]:
        if not (streams and self.late):
            return refused.status, json.dumps({"error": refused.error}).encode()
        started = {"id": "resp_x", "status": "in_progress", "output": [], "error": None}
        failed = {"type": "response.failed", "response": {**started, "status": "failed", "error": refused.error}}
        return 200, iter([_event(item) for item in ({"type": "response.created", "response": started}, failed)])

    def _check_items(self, key: str, body: dict[str, Any]) -> None:
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
            rest = [other for other in body["input"][i + 1 :] if other.get("type") != "reasoning"]
            if sealed in self._led_to and not _is_same(rest[0] if rest else {}, self._led_to[sealed]):
                what = (
                    f"Item '{id or sealed[:4]}' of type 'reasoning' was provided without its required following item."
                )
                raise WireViolation("R3", what)
            if body.get("store") is not False and id is not None and id not in self.stored[key]:
                raise _Refused(404, None, f"Item with id '{id}' not found.")
            if id in self._after_thought and not thought:
                what = f"Item '{id}' of type '{item['type']}' was provided without its required 'reasoning' item"
                raise _Refused(400, None, what)
            thought = item.get("type") == "reasoning" or (thought and item.get("role") != "user")

    def _length(self) -> int:
        """Return the number of characters of the newest request, including stored items."""
        before = len(self.seen()) - len(self.body()["input"])
        return len(self.requests[-1]) + sum(len(_dump(item, False)) for item in self.seen()[:before])

    def _seal(self, key: str, model: str, number: str) -> str:
        mac = hmac.new(key.encode(), f"{model} {number}".encode(), hashlib.sha256).hexdigest()
        return f"{number}.{mac}"

    # Making answers

    def _respond(self, key: str, body: dict[str, Any]) -> dict[str, Any]:
        words = _read_last_text(self.seen())
        flags = set(re.findall(r"#\w+", words))
        stores, within = body.get("store") is not False, body.get("conversation")
        output: list[Item] = []
        if "#think" in flags:
            sealed = self._seal(key, body["model"], self._make_id(""))
            summary = [{"type": "summary_text", "text": "Hm."}]
            item = {"id": self._make_id("rs_"), "type": "reasoning", "summary": summary, "status": "completed"}
            asked = "reasoning.encrypted_content" in body.get("include", ())
            output.append({**item, **({"encrypted_content": sealed} if asked else {})})
        if "#search" in flags:
            action = {"type": "search", "query": "bows"}
            output.append(
                {"id": self._make_id("ws_"), "type": "web_search_call", "status": "completed", "action": action}
            )
        if "#odd" in flags:
            output.append({"type": "later_item", "id": self._make_id("li_"), "what": [1, None, 1e2], "é": "\U0001f3bb"})
        answered = isinstance(body["input"][-1], dict) and body["input"][-1].get("type", "").endswith("_output")
        calls = 0 if answered else 2 if "#tools" in flags else 1 if "#tool" in flags else 0
        for tool in body.get("tools", [])[:calls]:
            call = {"id": self._make_id("fc_"), "type": "function_call", "status": "completed"}
            output.append(
                {**call, "call_id": self._make_id("call_"), "name": tool["name"], "arguments": '{"q":"é\\n"}'}
            )
        if "#custom" in flags and not answered:
            call = {"id": self._make_id("ctc_"), "type": "custom_tool_call", "call_id": self._make_id("call_")}
            output.append({**call, "name": "lookup", "input": "plain words"})
            calls += 1
        if not calls:
            text = SUMMARY_TEXT if "<summary_request>" in words else f"You said: {words}"
            part: Item = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            if "#refuse" in flags:
                part = {"type": "refusal", "refusal": "I can't do that."}
            more = {"later": {"a": [1.50, "\ud83d"]}} if "#odd" in flags else {}
            message = {"id": self._make_id("msg_"), "type": "message", "status": "completed", "role": "assistant"}
            output.append({**message, "phase": "final_answer", "content": [part], **more})
        self.issued += [_dump(item, "#odd" in flags).encode() for item in output]
        for item in output:
            if stores:
                self.stored[key].add(item["id"])
            if "#think" in flags and item["type"] in ("message", "function_call"):
                self._after_thought.add(item["id"])
        for i, item in enumerate(output[:-1]):
            if "encrypted_content" in item:
                self._led_to[item["encrypted_content"]] = output[i + 1]
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
            "id": self._make_id("resp_"),
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

    def _make_id(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}{self._number:06}"


def _check_chain(items: list[Item]) -> None:
    """Raise `WireViolation` unless calls and results match (R1, R2) and item ids are unique (R6)."""
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


def _is_same(sent: Item, issued: Item) -> bool:
    """Return whether an item has come back with the content and the status that it was sent with."""
    names = ("type", "status", "content", "call_id", "name", "arguments", "input", "action", "what")
    return all(sent.get(name) == issued.get(name) for name in names)


def _add_id(item: Item, position: int) -> Item:
    """Return an item of a conversation with an id, which it may lack."""
    return item if "id" in item else {"id": f"item_{position:06}", **item}


def _read_last_text(items: list[Item]) -> str:
    """Return the user's last text."""
    said = [item["content"] for item in items if item.get("role") == "user"]
    last = said[-1] if said else ""
    return last if isinstance(last, str) else "".join(part.get("text", "") for part in last)


def _dump(value: Any, odd: bool) -> str:
    return json.dumps(value, separators=(" ,  ", "  :\t") if odd else (",", ":"))


def _event(data: dict[str, Any], *, odd: bool = False) -> bytes:
    return f"event: {data['type']}\ndata: {_dump(data, odd)}\n\n".encode()


def _stream(response: dict[str, Any], odd: bool) -> Iterator[bytes]:
    started = {**response, "status": "in_progress", "output": [], "usage": None}
    yield _event({"type": "response.created", "response": started}, odd=odd)
    yield _event({"type": "response.in_progress", "response": started}, odd=odd)
    for index, item in enumerate(response["output"]):
        position = {"item_id": item["id"], "output_index": index}
        opened = {**item, "status": "in_progress", "content": [], "arguments": "", "encrypted_content": "half"}
        opened = {key: value for key, value in opened.items() if key in item}
        yield _event({"type": "response.output_item.added", "output_index": index, "item": opened}, odd=odd)
        yield _event({"type": "response.later.event", **position, "delta": "not a text"}, odd=odd)
        for part in item.get("content", ()):
            kind = "refusal" if part["type"] == "refusal" else "output_text"
            text = part.get("text", part.get("refusal"))
            for start in range(0, len(text), 7):
                delta = {"content_index": 0, "delta": text[start : start + 7], "obfuscation": "xyz"}
                yield _event({"type": f"response.{kind}.delta", **position, **delta}, odd=odd)
            yield _event({"type": f"response.{kind}.done", **position, "content_index": 0, "text": text}, odd=odd)
        if "arguments" in item:
            yield _event(
                {"type": "response.function_call_arguments.delta", **position, "delta": item["arguments"]}, odd=odd
            )
        yield _event({"type": "response.output_item.done", "output_index": index, "item": item}, odd=odd)
    kind = "response.incomplete" if response["status"] == "incomplete" else "response.completed"
    yield _event({"type": kind, "response": response}, odd=odd)
