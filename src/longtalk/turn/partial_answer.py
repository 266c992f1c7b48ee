"""The answer so far of a stream that is still running."""

from __future__ import annotations

import contextlib

from longtalk.wires.protocol import Answer, Wire


class PartialAnswer:
    """A reader for the partial answer of a running stream. Each call of `answer` processes only the new events."""

    def __init__(self, pieces: list[bytes], wire: Wire) -> None:
        self.pieces = pieces
        self._accumulator = wire.new_accumulator()
        self._read = 0

    def answer(self) -> Answer:
        """Return the answer so far, marked as interrupted."""
        new = self.pieces[self._read :]
        self._read += len(new)
        for data in new:
            # An event that can't be parsed has already ended the turn, or is about to.
            with contextlib.suppress(ValueError):
                self._accumulator.feed(data)
        self._accumulator.deltas.new.clear()
        return self._accumulator.answer(interrupted=True)
