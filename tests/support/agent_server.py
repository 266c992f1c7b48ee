"""A loopback server for real agent programs, with the three APIs that they use: Anthropic, Gemini and Responses.

Its answers are `answer 1`, `answer 2` and so on, and it records the requests. With `model`, the URL of a server with
Anthropic's API, it forwards requests to that server. It asks for one sentence, since small models don't know when to
stop.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2

from tests.support.http_server import HttpHandler, HttpServer

Event = dict[str, Any]


class AgentServer(HttpServer):
    """A server whose `requests` are the bodies that agents sent to their model."""

    def __init__(self, model: str = "", key: str = "") -> None:
        self.model = model
        self.key = key
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.failure: tuple[int, bytes] | None = None
        server = self

        class Handler(HttpHandler):
            def do_HEAD(self) -> None:
                self.send_whole(200, b"")

            def do_GET(self) -> None:
                self.send_whole(404, b"{}")

            def do_POST(self) -> None:
                answer = server._answer(self.path, self.read_body())
                if isinstance(answer, tuple):
                    self.send_whole(*answer)
                    return
                self.begin_stream()
                for event in answer:
                    self.send_chunk(event if isinstance(event, bytes) else _chunk(event))
                self.end_stream()

        super().__init__(Handler)

    def list_texts(self, request: int = -1) -> list[str]:
        """Return the texts of users and the model in a request, without what the agent adds."""
        body = self.requests[request]
        if "contents" in body:
            texts = [content["parts"][-1].get("text", "") for content in body["contents"]]
        elif "input" in body:
            items = [item for item in body["input"] if item.get("role") in ("user", "assistant")]
            texts = [item["content"][-1]["text"] for item in items]
        else:
            messages = [message for message in body["messages"] if message["role"] != "system"]
            contents = [message["content"] for message in messages]
            texts = [content if isinstance(content, str) else content[-1].get("text", "") for content in contents]
        return [text for text in texts if not text.startswith("<environment_context>")]

    def _answer(self, path: str, raw: bytes) -> tuple[int, bytes] | Iterator[Event | bytes]:
        self.paths.append(path)
        apis = {"/v1/messages": _anthropic, ":streamGenerateContent": _gemini, "/v1/responses": _responses}
        found = next((answer for name, answer in apis.items() if name in path and "count" not in path), None)
        if found is None:
            return 404, b'{"error":{"message":"no such path"}}'
        body = json.loads(raw)
        self.requests.append(body)
        if self.model:
            return _forward(
                f"{self.model}{path}", self.key, {**body, "temperature": 0, "stop_sequences": [".", "!", "?"]}
            )
        return self.failure or found(f"answer {len(self.requests)}", str(body.get("model")))


def _chunk(event: Event) -> bytes:
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


def _forward(url: str, key: str, body: Event) -> Iterator[Event | bytes]:
    with httpx2.stream(
        "POST", url, json=body, headers={"authorization": f"Bearer {key}"}, timeout=120, trust_env=False
    ) as answer:
        answer.raise_for_status()
        yield from answer.iter_bytes()


def _anthropic(text: str, model: str) -> Iterator[Event | bytes]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []}
    usage = {"input_tokens": 20, "output_tokens": 1}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for word in text.partition(" "):
        delta = {"type": "text_delta", "text": word}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}


def _gemini(text: str, model: str) -> Iterator[Event | bytes]:
    for number, word in enumerate(text.partition(" "), 1):
        candidate: Event = {"content": {"role": "model", "parts": [{"text": word}]}, "index": 0}
        if number == 3:
            candidate["finishReason"] = "STOP"
        counts = {"promptTokenCount": 20, "candidatesTokenCount": number, "totalTokenCount": 20 + number}
        yield {"candidates": [candidate], "usageMetadata": counts, "modelVersion": model, "responseId": text}


def _responses(text: str, model: str) -> Iterator[Event | bytes]:
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": model, "output": []}
    yield {"type": "response.created", "response": {**response, "status": "in_progress"}}
    message = {"type": "message", "id": "msg_1", "role": "assistant"}
    opened = {**message, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": 0, "item": opened}
    for word in text.partition(" "):
        position = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        yield {"type": "response.output_text.delta", **position, "delta": word}
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {**message, "status": "completed", "content": [part]}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    usage = {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 25,
    }
    yield {
        "type": "response.completed",
        "response": {**response, "status": "completed", "output": [item], "usage": usage},
    }
