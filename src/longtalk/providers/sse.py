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

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that this chunk completes."""
        # A carriage return at the end may be half a line end: it waits, with all else that has no end yet.
        if b"\n" not in chunk and b"\r" not in chunk and not self._ends_in_cr():
            if chunk:
                self._rest.append(chunk)
            return []
        text = b"".join((*self._rest, chunk))
        if self._first:
            text = text.removeprefix(b"\xef\xbb\xbf")
            self._first = False
        held = text[-1:] == b"\r"
        lines = (text[:-1] if held else text).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = [lines.pop() + (b"\r" if held else b"")]
        found: list[bytes] = []
        for line in lines:
            self._line(line, found)
        return found

    def end(self) -> list[bytes]:
        """What is left when the stream is over."""
        found: list[bytes] = []
        self._line(b"".join(self._rest).rstrip(b"\r"), found)
        self._line(b"", found)
        return found

    def _ends_in_cr(self) -> bool:
        return bool(self._rest) and self._rest[-1][-1:] == b"\r"

    def _line(self, line: bytes, found: list[bytes]) -> None:
        if not line:
            if self._data:
                found.append(b"\n".join(self._data))
                self._data = []
        elif line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
