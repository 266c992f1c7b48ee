"""A parser for Amazon's event streams, which takes chunks of bytes and returns the data of complete events.

Bedrock sends binary frames instead of server-sent events. A frame consists of its length, the length of its headers, a
checksum of both, the headers, a payload, and a checksum of everything before it. The payload is JSON that contains the
model's own event in base64, so the event is passed on byte for byte. A frame that reports an error becomes the error
event that Anthropic's own API would have sent.
"""

from __future__ import annotations

import binascii
import zlib

from longtalk._util import json_bytes
from longtalk.errors import BadAnswer

_PRELUDE = 12
_MAX_FRAME = 24 * 1024 * 1024
"""The maximum length of a frame, in bytes. Amazon's documented limit is lower."""
_STRING_TYPE = 7
_VALUE_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""The size of a header's value in bytes, by type. Other types (strings, byte arrays) begin with their length."""
_ERROR_TYPES = {
    "throttlingException": "rate_limit_error",
    "validationException": "invalid_request_error",
    "serviceUnavailableException": "overloaded_error",
}


class FrameParser:
    """An incremental parser for Amazon's event streams. Pass each chunk to `feed`."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Process the next chunk and return the data of each event that it completes."""
        self._rest += chunk
        found, start = [], 0
        while len(self._rest) - start >= _PRELUDE:
            length = int.from_bytes(self._rest[start : start + 4])
            if not _PRELUDE + 4 <= length <= _MAX_FRAME:
                raise _bad_frame("with an invalid length")
            if len(self._rest) - start < length:
                break
            data = _read_frame(bytes(self._rest[start : start + length]))
            found += [] if data is None else [data]
            start += length
        del self._rest[:start]
        return found

    def end(self) -> list[bytes]:
        """Return an empty list, because an incomplete frame at the end of a stream is dropped."""
        return []


def _read_frame(frame: bytes) -> bytes | None:
    """Return the data of the event in a frame, or None if the frame contains no event."""
    if zlib.crc32(frame[:8]) != int.from_bytes(frame[8:12]) or zlib.crc32(frame[:-4]) != int.from_bytes(frame[-4:]):
        raise _bad_frame("with a wrong checksum")
    end = _PRELUDE + int.from_bytes(frame[4:8])
    headers, payload = _read_headers(frame[_PRELUDE:end]), frame[end:-4]
    kind = headers.get(":message-type", "event")
    if kind != "event":
        code = headers.get(":exception-type") or headers.get(":error-code") or kind
        return _build_error_event(code, headers.get(":error-message", ""), payload)
    try:
        packed = json_bytes.text(json_bytes.fields(payload).get("bytes", b""))
        return binascii.a2b_base64(packed, strict_mode=True) if packed else None
    except ValueError:
        raise _bad_frame("without an event") from None


def _read_headers(data: bytes) -> dict[str, str]:
    """Return the headers of a frame, but only those with string values."""
    found, at = {}, 0
    while at < len(data):
        name = data[at + 1 : at + 1 + data[at]]
        at += 1 + data[at]
        kind = data[at] if at < len(data) else -1
        size = _VALUE_SIZES.get(kind)
        at += 1
        if size is None:
            size = int.from_bytes(data[at : at + 2])
            at += 2
        value = data[at : at + size]
        at += size
        if at > len(data):
            raise _bad_frame("with incomplete headers")
        if kind == _STRING_TYPE:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return found


def _build_error_event(code: str, message: str, payload: bytes) -> bytes:
    try:
        text = json_bytes.text(json_bytes.fields(payload).get("message", b"")) or ""
    except ValueError:
        text = payload.decode("utf-8", "replace")
    error = {"type": _ERROR_TYPES.get(code, code), "message": text or message or code}
    return json_bytes.encode({"type": "error", "error": error})


def _bad_frame(defect: str) -> BadAnswer:
    return BadAnswer(f"The provider sent an event stream with a damaged frame: a frame {defect}.")
