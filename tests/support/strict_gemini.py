"""A loopback server with Gemini's generateContent API that refuses requests which break a rule.

It remembers every part that it has sent. It refuses a signature that comes back in another part, for another model or
from another account, and a call of the current turn without a signature. Flags in the user's last text decide the
answer, so the same request gets the same answer.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

from longtalk.testing.wires.gemini import check
from longtalk.testing.wires.violation import WireViolation
from tests.support.http_server import HttpHandler, HttpServer

KEY, OTHER_KEY = "key-1", "key-2"
MODEL = "gemini-strict"
_PATH = re.compile(r"/v1beta/models/([\w.-]+):(generateContent|streamGenerateContent)(\?alt=sse)?")
ODD = '"odd": [1e2, 12345678901234567890, {"a": "\\u00e9\\/"}]'
"""An unknown field, in a form that no encoder would write."""


class StrictGemini(HttpServer):
    """The server. `requests` are the bodies that arrived, `issued` the sent parts, `violations` the refusals."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.paths: list[str] = []
        self.issued: list[bytes] = []
        self.violations: list[str] = []
        self.faults: list[tuple[int, bytes]] = []
        self.ids = True
        self.chunk_bytes = 0
        self._signed: dict[str, tuple[str, str, str]] = {}
        super().__init__(_make_handler(self))

    def body(self, i: int = -1) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.requests[i])
        return found

    def answer(self, path: str, key: str, raw: bytes) -> tuple[int, bytes | list[bytes]]:
        self.paths.append(path)
        self.requests.append(raw)
        found = _PATH.fullmatch(path)
        if found is None or (found[2] == "streamGenerateContent") != bool(found[3]):
            return 404, _make_error(404, f"no such path: {path}")
        if key not in (KEY, OTHER_KEY):
            return 400, _make_error(400, "API key not valid. Please pass a valid API key.")
        if self.faults:
            return self.faults.pop(0)
        try:
            body = json.loads(raw)
            check(body, signatures=True)
            self._check_signatures(body, f"{key} {found[1]}")
        except WireViolation as problem:
            self.violations.append(str(problem))
            return 400, _make_error(400, str(problem).partition(": ")[2])
        parts, reason = self._obey(body, f"{key} {found[1]}")
        self.issued += [part.encode() for part in parts]
        counts = {"promptTokenCount": len(raw) // 4, "candidatesTokenCount": 7, "thoughtsTokenCount": 3}
        usage = json.dumps({**counts, "cachedContentTokenCount": 2}).encode()
        if found[3]:
            chunks = [_make_chunk(part) for part in parts]
            last = b'{"candidates": [{"finishReason": "%s", "index": 0}], "usageMetadata": %s}'
            return 200, [*chunks, last % (reason.encode(), usage), b'{"usageMetadata": %s}' % usage]
        listed = ", ".join(parts).encode()
        whole = b'{"candidates": [{"content": {"parts": [%s], "role": "model"}, "finishReason": "%s"}]'
        return 200, whole % (listed, reason.encode()) + b', "usageMetadata": %s}' % usage

    def _check_signatures(self, body: dict[str, Any], reader: str) -> None:
        for content in body["contents"]:
            for part in content["parts"]:
                signature = part.get("thoughtSignature")
                if signature in (None, "skip_thought_signature_validator"):
                    continue
                if self._signed.get(signature) != (reader, json.dumps(part, sort_keys=True), content["role"]):
                    raise WireViolation("G4", "Corrupted thought signature.")

    def _obey(self, body: dict[str, Any], reader: str) -> tuple[list[str], str]:
        """Return the parts of the answer and the finish reason.

        `#tool` calls the first tool and `#tools` two at once, before the answer. `#think`, `#odd` and `#long` shape it.
        """
        said = [
            (i, part["text"])
            for i, content in enumerate(body["contents"])
            for part in content["parts"]
            if content["role"] == "user" and "text" in part and not part["text"].startswith("<")
        ]
        # A conversation may consist of events alone.
        position, text = said[-1] if said else (0, "")
        flags = re.findall(r"#(\w+)", text)
        words = " ".join(re.sub(r"#\w+", "", text).split())
        steps = [flag for flag in flags if flag in ("tool", "tools")] if body.get("tools") else []
        since = sum(content["role"] == "model" for content in body["contents"][position:])
        odd = ODD if "odd" in flags else ""
        seed = hashlib.sha256(json.dumps(body).encode()).hexdigest()
        parts = []
        if "think" in flags or "long" in flags:
            parts.append(self._write_part({"text": f"They said: {words}.", "thought": True}, odd))
        if since < len(steps):
            declared = body["tools"][0]["functionDeclarations"]
            for n in range(2 if steps[since] == "tools" else 1):
                call: dict[str, Any] = {"name": declared[n % len(declared)]["name"], "args": {"q": f"{words} {n}"}}
                call |= {"id": f"{seed[:8]}{n}"} if self.ids else {}
                parts.append(self._write_part({"functionCall": call}, odd, None if n else f"{seed}{n}", reader))
            return parts, "STOP"
        if "long" not in flags:
            answers = [
                part["functionResponse"]["response"]
                for content in body["contents"][position:]
                for part in content["parts"]
                if "functionResponse" in part
            ]
            reply = f"You said: {words}." + (f" The tools said: {json.dumps(answers)}." if answers else "")
            parts += [self._write_part({"text": reply[at : at + 9]}, odd) for at in range(0, len(reply), 9)]
            parts.append(self._write_part({"text": ""}, odd, seed, reader))
        return parts, "MAX_TOKENS" if "long" in flags else "STOP"

    def _write_part(self, part: dict[str, Any], odd: str, seed: str | None = None, reader: str = "") -> str:
        if seed is not None:
            part = {**part, "thoughtSignature": base64.b64encode(seed.encode()).decode()}
        written = json.dumps(part)
        written = f"{written[:-1]}, {odd}}}" if odd else written
        if seed is not None:
            again = json.dumps(json.loads(written), sort_keys=True)
            self._signed[part["thoughtSignature"]] = (reader, again, "model")
        return written


def _make_chunk(part: str) -> bytes:
    return b'{"candidates": [{"content": {"parts": [%s], "role": "model"}, "index": 0}]}' % part.encode()


def _make_error(code: int, message: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": message, "status": "INVALID_ARGUMENT"}}).encode()


def _make_handler(strict: StrictGemini) -> type[HttpHandler]:
    class Gemini(HttpHandler):
        def do_POST(self) -> None:
            status, body = strict.answer(self.path, self.headers.get("x-goog-api-key", ""), self.read_body())
            if isinstance(body, bytes):
                self.send_whole(status, body, {"content-type": "application/json; charset=UTF-8"})
                return
            self.begin_stream(status)
            whole = b"".join(b"data: " + data + b"\r\n\r\n" for data in body)
            size = strict.chunk_bytes or len(whole)
            try:
                for at in range(0, len(whole), size):
                    self.send_chunk(whole[at : at + size])
                self.end_stream()
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

    return Gemini
