"""Server-sent events, from bytes: chunks in, the data of whole events out.

Works on bytes throughout, so that what is not UTF-8 passes unharmed and a character split between chunks is
nobody's business. Takes time in proportion to what is fed, however small the chunks.
"""

from __future__ import annotations


class Events:
    """Feed it chunks as they come; `end` gives an event that the server forgot to close."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._data: list[bytes] = []
        self._first = True
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that this chunk completes."""
        # A line feed behind a carriage return is the second half of a line end that has been seen.
        if self._after_cr and chunk[:1] == b"\n":
            chunk, self._after_cr = chunk[1:], False
        if not chunk:
            return []
        if self._is_one(chunk):
            self._first = self._after_cr = False
            return [chunk[6:-2]]
        self._after_cr = chunk[-1:] == b"\r"
        if b"\n" not in chunk and b"\r" not in chunk:
            self._rest.append(chunk)
            return []
        lines = self._joined(chunk).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = [lines.pop()]
        found: list[bytes] = []
        for line in lines:
            self._line(line, found)
        return found

    def end(self) -> list[bytes]:
        """What is left when the stream is over."""
        found: list[bytes] = []
        self._line(self._joined(b""), found)
        self._line(b"", found)
        return found

    def _is_one(self, chunk: bytes) -> bool:
        """Whether this is one event and nothing else, as most chunks are."""
        return (
            chunk[:6] == b"data: "
            and chunk[-2:] == b"\n\n"
            and chunk.find(b"\n") == len(chunk) - 2
            and b"\r" not in chunk
            and not self._data
            and not any(self._rest)
        )

    def _joined(self, chunk: bytes) -> bytes:
        text = b"".join((*self._rest, chunk))
        if self._first:
            text = text.removeprefix(b"\xef\xbb\xbf")
            self._first = False
        return text

    def _line(self, line: bytes, found: list[bytes]) -> None:
        if not line:
            if self._data:
                found.append(b"\n".join(self._data))
                self._data = []
        elif line == b"data" or line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
