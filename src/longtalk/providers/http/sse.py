"""A parser for server-sent events, which takes chunks of bytes and returns the data of complete events.

The parser never decodes text, so invalid UTF-8 passes through unchanged and a chunk may end inside a character. The
time it takes is proportional to the number of bytes, however small the chunks are.
"""

from __future__ import annotations


class EventParser:
    """An incremental parser for server-sent events. Pass each chunk to `feed`, then call `end`."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._data: list[bytes] = []
        self._first = True
        self._after_cr = False
        self._mid_line = True
        """True unless the next chunk is known to begin at the start of a line."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Process the next chunk and return the data of each event that it completes."""
        # The fast path: most chunks begin and end at line boundaries.
        if self._mid_line or chunk[-1:] != b"\n":
            chunk = self._take_lines(chunk)
        found, data = [], self._data
        for line in chunk.splitlines():
            if line[:6] == b"data: ":
                data.append(line[6:])
            elif not line:
                if data:
                    found.append(b"\n".join(data))
                    data.clear()
            elif line[:5] == b"data:" or line == b"data":
                data.append(line[5:])
        return found

    def end(self) -> list[bytes]:
        """Return the data of an event that was still incomplete at the end of the stream, or an empty list."""
        return self.feed(b"\n\n")

    def _take_lines(self, chunk: bytes) -> bytes:
        """Return all complete lines, and keep the rest of the chunk until the next call."""
        # A line feed after a carriage return is the second half of a line end that was already handled.
        if self._after_cr and chunk[:1] == b"\n":
            chunk, self._after_cr = chunk[1:], False
        if chunk:
            self._after_cr = chunk[-1:] == b"\r"
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        lines = self._join(chunk[:end]) if end else b""
        if chunk[end:]:
            self._rest.append(chunk[end:])
        self._mid_line = self._first or self._after_cr or bool(self._rest)
        return lines

    def _join(self, chunk: bytes) -> bytes:
        text, self._rest = b"".join((*self._rest, chunk)), []
        if self._first:
            text = text.removeprefix(b"\xef\xbb\xbf")
            self._first = False
        return text
