"""CPU time of a streamed event, through wire, turn and state, relative to a bare read of the same bytes.

`python -m bench.stream [--events N]`. A server in another process sends an answer of many small pieces, each event as
one chunk, as providers do. The floor reads these bytes with `httpx2` and discards them. A chat reads the same bytes,
parses them, yields each piece of text, and returns the answer in a new state. Rounds are interleaved and the best of
each counts, so that a busy machine slows both sides or neither.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socketserver
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import httpx2

from longtalk import Chat
from longtalk._sync.providers.http.provider import HTTP
from longtalk.events import Done, Text
from longtalk.providers.registry import PROVIDERS, ResolvedModel
from longtalk.testing import says
from longtalk.wires import HTTP_WIRES

ROUNDS = 12
GOAL = 1.6
BODY = b'{"model":"m","stream":true}'
# The fields that the provider of each wire sends in every event in addition to the text.
EXTRA_FIELDS = {
    "anthropic": b"",
    "gemini": b',"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":5,"totalTokenCount":15,'
    b'"promptTokensDetails":[{"modality":"TEXT","tokenCount":10}]},"modelVersion":"m","responseId":"bBpzaN6XA5iZkdUP"',
    "openai-chat": b',"id":"chatcmpl-CKpBRxW4sCSkqGIfOyKNjhNRV5Khm","object":"chat.completion.chunk",'
    b'"created":1759100000,"model":"m","service_tier":"default","system_fingerprint":"fp_560af6e559","obfuscation":"Qm"',
    "openai-responses": b',"logprobs":[],"obfuscation":"QmCkXcQ1"',
}


def encode_response(wire: str, events: int) -> bytes:
    """Return the bytes of a response with this many pieces of text."""
    text = " ".join(f"word{number % 97}" for number in range(events))
    parts = says(text, wire=wire, pieces=events).events
    sent = [encode_event(wire, data) for data in parts if isinstance(data, bytes)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(data), data) for data in sent)
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n%s0\r\n\r\n" % chunks
    )


def encode_event(wire: str, data: bytes) -> bytes:
    """Return an event as the provider sends it, with extra fields, event name and line ends."""
    if data[-1:] == b"}" and not (wire == "gemini" and b"usageMetadata" in data):
        data = b"%s%s}" % (data[:-1], EXTRA_FIELDS[wire])
    if wire in ("anthropic", "openai-responses"):
        return b"event: %s\ndata: %s\n\n" % (json.loads(data)["type"].encode(), data)
    return b"data: %s\r\n\r\n" % data if wire == "gemini" else b"data: %s\n\n" % data


class _Handler(socketserver.StreamRequestHandler):
    """Answers every request with the same bytes."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            wire = line.split(b" ")[1].split(b"/")[1].decode()
            length = 0
            while (header := self.rfile.readline().strip()) != b"":
                name, _, value = header.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            self.rfile.read(length)
            self.wfile.write(self.server.answers[wire])  # type: ignore[attr-defined]


def _serve(pipe: Connection, answers: dict[str, bytes]) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        server.answers = answers  # type: ignore[attr-defined]
        pipe.send(server.server_address[1])
        server.serve_forever()


@contextmanager
def run_server(events: int) -> Iterator[str]:
    """Run a server and yield its address."""
    ours, theirs = multiprocessing.Pipe()
    answers = {wire: encode_response(wire, events) for wire in HTTP_WIRES}
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, answers), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def read_bare(client: httpx2.Client, url: str, body: bytes) -> int:
    """Read a stream and return its size."""
    size = 0
    with client.stream("POST", url, content=body) as response:
        for chunk in response.iter_bytes():
            size += len(chunk)
    return size


def run_turn(chat: Chat) -> int:
    """Run a whole turn and return the number of text events."""
    count = 0
    for event in chat.stream("Tell me a long story."):
        if isinstance(event, Text):
            count += 1
        elif isinstance(event, Done):
            assert event.reply.state
    return count


def measure_wires(events: int) -> dict[str, tuple[float, float]]:
    """Return the CPU microseconds per event of a bare read and of a chat, by wire."""
    found = {}
    with run_server(events) as address:
        for wire in sorted(HTTP_WIRES):
            known = ResolvedModel(
                wire, "m", HTTP_WIRES[wire], f"{address}/{wire}", None, PROVIDERS["compatible"].capabilities
            )
            with httpx2.Client(trust_env=False, timeout=60) as client, Chat(HTTP(known)) as chat:
                jobs: list[Callable[[], Any]] = [
                    lambda client=client, wire=wire: read_bare(client, f"{address}/{wire}/x", BODY),
                    lambda chat=chat: run_turn(chat),
                ]
                best = [float("inf")] * 2
                for _ in range(ROUNDS):
                    for i, job in enumerate(jobs):
                        begun = time.process_time()
                        job()
                        best[i] = min(best[i], time.process_time() - begun)
            found[wire] = (1e6 * best[0] / events, 1e6 * best[1] / events)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its figures and goals."""
    parser = argparse.ArgumentParser(description="CPU time of a streamed event, relative to a bare read.")
    parser.add_argument("--events", type=int, default=2_000)
    given = parser.parse_args(arguments)
    print(f"{given.events:,} events. CPU in microseconds per event:\n")
    print(f"{'wire':20}{'bare read':>12}{'a turn':>12}{'ratio':>10}")
    goals = []
    for wire, (floor, turn) in measure_wires(given.events).items():
        print(f"{wire:20}{floor:12.1f}{turn:12.1f}{turn / floor:10.2f}")
        ratio = round(turn / floor, 3)
        goals.append(
            {"name": f"{wire}, a turn against a bare read", "value": ratio, "goal": GOAL, "met": ratio <= GOAL}
        )
    print(json.dumps({"bench": "stream", "goals": goals}))


if __name__ == "__main__":
    main()
