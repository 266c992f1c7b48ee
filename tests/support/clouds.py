"""Scripted Bedrock and Vertex servers on loopback, which check requests and can answer in Bedrock's frames."""

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
_TARGET = re.compile(
    r"/model/(?P<bedrock>[^/]+)/invoke(?P<streamed>-with-response-stream)?"
    r"|/projects/p/locations/r/publishers/anthropic/models/(?P<vertex>[^/]+):(?P<method>rawPredict|streamRawPredict)"
)


def pack_frame(head: bytes, payload: bytes) -> bytes:
    """Return a frame of Amazon's event streams."""
    prelude = (16 + len(head) + len(payload)).to_bytes(4) + len(head).to_bytes(4)
    whole = prelude + zlib.crc32(prelude).to_bytes(4) + head + payload
    return whole + zlib.crc32(whole).to_bytes(4)


def make_frame(payload: bytes, **headers: str) -> bytes:
    """Return a frame with these text headers."""
    texts = [(f":{name}".replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    head = [bytes([len(name)]) + name + b"\7" + len(value).to_bytes(2) + value for name, value in texts]
    return pack_frame(b"".join(head), payload)


def make_chunk_frame(data: bytes) -> bytes:
    """Return the frame in which Bedrock sends an event."""
    payload = json.dumps({"bytes": base64.b64encode(data).decode(), "p": "abcdefgh"}).encode()
    return make_frame(payload, event_type="chunk", content_type="application/json", message_type="event")


def is_signed(method: str, path: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Return whether a request has a valid AWS signature (version 4)."""
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=\w+/(\d{8})/([\w-]+)/bedrock/aws4_request, SignedHeaders=([\w;-]+), "
        r"Signature=([0-9a-f]{64})",
        headers.get("authorization", ""),
    )
    if found is None or found[2] != REGION:
        return False
    signed = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in found[3].split(";"))
    # AWS escapes the path twice.
    canonical = f"{method}\n{quote(path, safe='/~')}\n\n{signed}\n{found[3]}\n{hashlib.sha256(body).hexdigest()}"
    scope = f"{found[1]}/{found[2]}/bedrock/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{digest}"
    key = f"AWS4{SECRET}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex() == found[4]


class Cloud:
    """A cloud that passes requests to a script in the form of Anthropic's own API, and records them as they arrived."""

    def __init__(self, script: Script, url: str = "") -> None:
        self.script = script
        self.url = url
        self.requests: list[bytes] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.refused: list[str] = []

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> ScriptedResponse:
        self.requests.append(body)
        self.paths.append(path)
        self.headers.append(headers)
        target, fields = _TARGET.fullmatch(path), json_bytes.fields(body)
        if target is None:
            return self._refuse(f"no such path: {path}")
        if "model" in fields:
            return self._refuse("the model is in the address, not in the body")
        version = fields.pop("anthropic_version", b"")
        if target["bedrock"]:
            if version != b'"bedrock-2023-05-31"' or "stream" in fields:
                return self._refuse("not a body for Bedrock")
            if not is_signed("POST", path, headers, body):
                return self._refuse("the signature is wrong")
            fields |= {"stream": b"true"} if target["streamed"] else {}
        elif version != b'"vertex-2023-10-16"' or (fields.get("stream") == b"true") != (target["method"][0] == "s"):
            return self._refuse("not a body for Vertex")
        model = json.dumps(unquote(target["bedrock"] or target["vertex"])).encode()
        head = {"model": model, **({"stream": b"true"} if fields.pop("stream", None) else {})}
        return self.script.answer(json_bytes.build({**head, **fields}), stream="stream" in head)

    def _refuse(self, why: str) -> ScriptedResponse:
        self.refused.append(why)
        return ScriptedResponse(json.dumps({"message": why}).encode(), status=400)


@contextlib.contextmanager
def play(script: Script, *, framed: bool) -> Iterator[Cloud]:
    """Run a cloud on loopback. It streams in frames if `framed` is set, otherwise as server-sent events."""
    cloud = Cloud(script)
    server = HttpServer(_make_handler(cloud, make_chunk_frame if framed else b"data: %s\n\n".__mod__))
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


def _make_handler(cloud: Cloud, pack: Callable[[bytes], bytes]) -> type[HttpHandler]:
    kind = "application/vnd.amazon.eventstream" if pack is make_chunk_frame else "text/event-stream"

    class Handler(HttpHandler):
        def do_POST(self) -> None:
            response = cloud.answer(self.path, self.lower_headers(), self.read_body())
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
