"""Bedrock and Vertex on loopback: what they want of a request, and Bedrock's frames, played from a script."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import re
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote

from longtalk import _json
from longtalk.testing.provider_script import Act, Script, _is_gone

SECRET = "dummy-secret"
REGION = "eu-test-1"
_PLACE = re.compile(
    r"/model/(?P<bedrock>[^/]+)/invoke(?P<streamed>-with-response-stream)?"
    r"|/projects/p/locations/r/publishers/anthropic/models/(?P<vertex>[^/]+):(?P<method>rawPredict|streamRawPredict)"
)


def packed(head: bytes, payload: bytes) -> bytes:
    """A frame of Amazon's event streams."""
    prelude = (16 + len(head) + len(payload)).to_bytes(4) + len(head).to_bytes(4)
    whole = prelude + zlib.crc32(prelude).to_bytes(4) + head + payload
    return whole + zlib.crc32(whole).to_bytes(4)


def frame(payload: bytes, **headers: str) -> bytes:
    """A frame with headers that are text."""
    texts = [(f":{name}".replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    head = [bytes([len(name)]) + name + b"\7" + len(value).to_bytes(2) + value for name, value in texts]
    return packed(b"".join(head), payload)


def chunk(data: bytes) -> bytes:
    """The frame that Bedrock makes of an event."""
    payload = json.dumps({"bytes": base64.b64encode(data).decode(), "p": "abcdefgh"}).encode()
    return frame(payload, event_type="chunk", content_type="application/json", message_type="event")


def is_signed(method: str, path: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether a request carries Amazon's signature (version 4) over all of it."""
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=\w+/(\d{8})/([\w-]+)/bedrock/aws4_request, SignedHeaders=([\w;-]+), "
        r"Signature=([0-9a-f]{64})",
        headers.get("authorization", ""),
    )
    if found is None or found[2] != REGION:
        return False
    signed = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in found[3].split(";"))
    # What is escaped in a path is escaped once more.
    canonical = f"{method}\n{quote(path, safe='/~')}\n\n{signed}\n{found[3]}\n{hashlib.sha256(body).hexdigest()}"
    scope = f"{found[1]}/{found[2]}/bedrock/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{digest}"
    key = f"AWS4{SECRET}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex() == found[4]


class Cloud:
    """Hands requests to a script, as Anthropic would have got them, and keeps them as they came."""

    def __init__(self, script: Script, url: str = "") -> None:
        self.script = script
        self.url = url
        self.requests: list[bytes] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.refused: list[str] = []

    def take(self, path: str, headers: dict[str, str], body: bytes) -> Act:
        self.requests.append(body)
        self.paths.append(path)
        self.headers.append(headers)
        place, fields = _PLACE.fullmatch(path), _json.fields(body)
        if place is None:
            return self._refuse(f"there is nothing at {path}")
        if "model" in fields:
            return self._refuse("the model is in the address, not in the body")
        version = fields.pop("anthropic_version", b"")
        if place["bedrock"]:
            if version != b'"bedrock-2023-05-31"' or "stream" in fields:
                return self._refuse("not a body for Bedrock")
            if not is_signed("POST", path, headers, body):
                return self._refuse("the signature is wrong")
            fields |= {"stream": b"true"} if place["streamed"] else {}
        elif version != b'"vertex-2023-10-16"' or (fields.get("stream") == b"true") != (place["method"][0] == "s"):
            return self._refuse("not a body for Vertex")
        model = json.dumps(unquote(place["bedrock"] or place["vertex"])).encode()
        head = {"model": model, **({"stream": b"true"} if fields.pop("stream", None) else {})}
        return self.script.answer(_json.build({**head, **fields}), stream="stream" in head)

    def _refuse(self, why: str) -> Act:
        self.refused.append(why)
        return Act(json.dumps({"message": why}).encode(), status=400)


@contextlib.contextmanager
def play(script: Script, *, framed: bool) -> Iterator[Cloud]:
    """A cloud on loopback: with frames, or with server-sent events."""
    cloud = Cloud(script)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(cloud, chunk if framed else b"data: %s\n\n".__mod__))
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    cloud.url = f"http://127.0.0.1:{server.server_port}"
    if script.absent:
        server.server_close()
        yield cloud
        return
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield cloud
    finally:
        script.go.set()
        server.shutdown()
        server.server_close()


def _handler(cloud: Cloud, pack: Callable[[bytes], bytes]) -> type[BaseHTTPRequestHandler]:
    kind = "application/vnd.amazon.eventstream" if pack is chunk else "text/event-stream"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            act = cloud.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            self.close_connection = act.cut
            if act.cut and not act.body and act.events is None:
                return
            self.send_response(act.status)
            for name, value in act.headers.items():
                self.send_header(name, value)
            if act.events is None:
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(act.body) + act.cut))
                self.end_headers()
                self.wfile.write(act.body)
                return
            self.send_header("content-type", kind)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for number, data in enumerate(act.events):
                if number == act.hold:
                    cloud.script.held(lambda: _is_gone(self.connection))
                event = pack(data)
                for at in range(0, len(event), act.size or len(event)):
                    piece = event[at : at + (act.size or len(event))]
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if not act.cut:
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
