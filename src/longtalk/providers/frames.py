"""Amazon's event streams, from bytes: chunks in, the data of whole events out, as `sse.py` does it.

Bedrock does not send server-sent events. Each event is a binary frame: its length, that of its headers, a checksum
of both, headers, a payload, a checksum of it all. The payload is JSON around the model's own event in base64, so that
comes out byte for byte. A frame that reports trouble becomes the event that Anthropic itself would have sent.
"""

from __future__ import annotations

import binascii
import zlib

from longtalk import _json
from longtalk.errors import BadAnswer

_PRELUDE = 12
_LONGEST = 24 * 1024 * 1024
"""Amazon promises less."""
_TEXT = 7
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes that a header's value takes, by its type; texts and byte strings say it themselves."""
_TROUBLE = {
    "throttlingException": "rate_limit_error",
    "validationException": "invalid_request_error",
    "serviceUnavailableException": "overloaded_error",
}


class Frames:
    """Feed it chunks as they come."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that this chunk completes."""
        self._rest += chunk
        found, start = [], 0
        while len(self._rest) - start >= _PRELUDE:
            length = int.from_bytes(self._rest[start : start + 4])
            if not _PRELUDE + 4 <= length <= _LONGEST:
                raise _broken("of an impossible length")
            if len(self._rest) - start < length:
                break
            data = _event(bytes(self._rest[start : start + length]))
            found += [] if data is None else [data]
            start += length
        del self._rest[:start]
        return found

    def end(self) -> list[bytes]:
        """Half a frame is none."""
        return []


def _event(frame: bytes) -> bytes | None:
    """The data of the event in a frame; None where there is none in it."""
    if zlib.crc32(frame[:8]) != int.from_bytes(frame[8:12]) or zlib.crc32(frame[:-4]) != int.from_bytes(frame[-4:]):
        raise _broken("whose checksum is wrong")
    end = _PRELUDE + int.from_bytes(frame[4:8])
    headers, payload = _headers(frame[_PRELUDE:end]), frame[end:-4]
    kind = headers.get(":message-type", "event")
    if kind != "event":
        code = headers.get(":exception-type") or headers.get(":error-code") or kind
        return _trouble(code, headers.get(":error-message", ""), payload)
    try:
        packed = _json.text(_json.fields(payload).get("bytes", b""))
        return binascii.a2b_base64(packed, strict_mode=True) if packed else None
    except ValueError:
        raise _broken("without an event in it") from None


def _headers(data: bytes) -> dict[str, str]:
    """Those that are text. The rest is passed over."""
    found, at = {}, 0
    while at < len(data):
        name = data[at + 1 : at + 1 + data[at]]
        at += 1 + data[at]
        kind = data[at] if at < len(data) else -1
        size = _SIZES.get(kind)
        at += 1
        if size is None:
            size = int.from_bytes(data[at : at + 2])
            at += 2
        value = data[at : at + size]
        at += size
        if at > len(data):
            raise _broken("whose headers are cut off")
        if kind == _TEXT:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return found


def _trouble(code: str, message: str, payload: bytes) -> bytes:
    try:
        said = _json.text(_json.fields(payload).get("message", b"")) or ""
    except ValueError:
        said = payload.decode("utf-8", "replace")
    error = {"type": _TROUBLE.get(code, code), "message": said or message or code}
    return _json.encode({"type": "error", "error": error})


def _broken(how: str) -> BadAnswer:
    return BadAnswer(f"A stream of events has a frame {how}.")
