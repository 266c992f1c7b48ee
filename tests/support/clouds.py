"""Bedrock and Vertex on loopback: what they want of a request, and Bedrock's frames, played from a script."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote, unquote

from longtalk._util import json_bytes
from longtalk.testing.providers.script import Script, ScriptedResponse, has_disconnected
from tests.support.http_server import HttpHandler, HttpServer

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

    def take(self, path: str, headers: dict[str, str], body: bytes) -> ScriptedResponse:
        self.requests.append(body)
        self.paths.append(path)
        self.headers.append(headers)
        place, fields = _PLACE.fullmatch(path), json_bytes.fields(body)
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
        return self.script.answer(json_bytes.build({**head, **fields}), stream="stream" in head)

    def _refuse(self, why: str) -> ScriptedResponse:
        self.refused.append(why)
        return ScriptedResponse(json.dumps({"message": why}).encode(), status=400)


@contextlib.contextmanager
def play(script: Script, *, framed: bool) -> Iterator[Cloud]:
    """A cloud on loopback: with frames, or with server-sent events."""
    cloud = Cloud(script)
    server = HttpServer(_handler(cloud, chunk if framed else b"data: %s\n\n".__mod__))
    cloud.url = server.url
    if script.absent:
        server.close()
        yield cloud
        return
    with server:
        try:
            yield cloud
        finally:
            script.go.set()


def _handler(cloud: Cloud, pack: Callable[[bytes], bytes]) -> type[HttpHandler]:
    kind = "application/vnd.amazon.eventstream" if pack is chunk else "text/event-stream"

    class Handler(HttpHandler):
        def do_POST(self) -> None:
            response = cloud.take(self.path, self.lower_headers(), self.read_body())
            self.close_connection = response.cut
            if response.cut and not response.body and response.events is None:
                return
            if response.events is None:
                # A body that is cut has one byte less than its head promises.
                length = str(len(response.body) + response.cut)
                self.send_head(
                    response.status, {**response.headers, "content-type": "application/json", "content-length": length}
                )
                self.wfile.write(response.body)
                return
            self.begin_stream(response.status, {**response.headers, "content-type": kind})
            for number, data in enumerate(response.events):
                if number == response.hold:
                    cloud.script.wait_while_held(lambda: has_disconnected(self.connection))
                event = pack(data)
                for at in range(0, len(event), response.size or len(event)):
                    self.send_chunk(event[at : at + (response.size or len(event))])
            if not response.cut:
                self.end_stream()

    return Handler
