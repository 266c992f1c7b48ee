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
        self._odd = True
        """Whether the next chunk may begin with anything but a new line of text."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that this chunk completes."""
        # Most chunks are whole lines, and so is what came before.
        if self._odd or chunk[-1:] != b"\n":
            chunk = self._whole_lines(chunk)
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
        """What is left when the stream is over."""
        return self.feed(b"\n\n")

    def _whole_lines(self, chunk: bytes) -> bytes:
        """What is there up to the last end of a line. The rest waits."""
        # A line feed behind a carriage return is the second half of a line end that has been seen.
        if self._after_cr and chunk[:1] == b"\n":
            chunk, self._after_cr = chunk[1:], False
        if chunk:
            self._after_cr = chunk[-1:] == b"\r"
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        whole = self._joined(chunk[:end]) if end else b""
        if chunk[end:]:
            self._rest.append(chunk[end:])
        self._odd = self._first or self._after_cr or bool(self._rest)
        return whole

    def _joined(self, chunk: bytes) -> bytes:
        text, self._rest = b"".join((*self._rest, chunk)), []
        if self._first:
            text = text.removeprefix(b"\xef\xbb\xbf")
            self._first = False
        return text
