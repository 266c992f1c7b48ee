"""The brief of a state that the caller holds, as an app reads and writes it (`chat.brief`).

No request contains a line after the app has removed it. A change is made completely or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from longtalk.chat.state import AnySeal
from longtalk.memory.brief.edits import edit_brief, list_removed_lines, render_record, revoke_line
from longtalk.memory.brief.lines import Line
from longtalk.memory.brief.operations import Operation
from longtalk.memory.brief.record import CardTally, read_brief_record
from longtalk.memory.brief.schema import Brief
from longtalk.tokens import Counter
from longtalk.transcript.transcript import Transcript


class AsyncStateBrief:
    """The brief of a state. What changes it gives the next state."""

    def __init__(
        self,
        config: Brief,
        counter: Counter,
        decode: Callable[[bytes | None, AnySeal], Transcript],
        encode: Callable[[Transcript, AnySeal], bytes],
    ) -> None:
        self._config = config
        self._counter = counter
        self._decode = decode
        self._encode = encode

    async def lines(self, *, state: bytes, seal: AnySeal = None) -> tuple[Line, ...]:
        """The lines, each with its id, its field, and the entry that it came from (empty for the app's own)."""
        return read_brief_record(self._decode(state, seal)).content.lines

    async def text(self, *, state: bytes, seal: AnySeal = None) -> str:
        """The brief as requests carry it; nothing without lines."""
        return render_record(read_brief_record(self._decode(state, seal)), self._config, self._counter)

    async def archived(self, *, state: bytes, seal: AnySeal = None) -> tuple[Line, ...]:
        """The lines that fell out, were cut or were taken away with the last change: a state keeps no more of them."""
        return list_removed_lines([read_brief_record(self._decode(state, seal))])

    async def tally(self, *, state: bytes, seal: AnySeal = None) -> CardTally:
        """How asking the model for what is to be kept goes: `asks`, and how many of the last were `failures`."""
        return read_brief_record(self._decode(state, seal)).tally

    async def set(self, field: str, *texts: str, state: bytes | None, seal: AnySeal = None) -> bytes:
        """Make a field say this, and nothing else. Returns the next state; None begins a conversation."""
        return self._change([Operation.set(field, *texts)], state, seal)

    async def add(self, field: str, *texts: str, state: bytes | None, seal: AnySeal = None) -> bytes:
        """Add lines to a list. Returns the next state; None begins a conversation."""
        return self._change([Operation.add(field, *texts)], state, seal)

    async def remove(self, field: str, *texts: str, state: bytes, seal: AnySeal = None) -> bytes:
        """Take lines away: by their text, an unambiguous beginning of it, or their id. Returns the next state."""
        return self._change([Operation.remove(field, *texts)], state, seal)

    async def resolve(self, field: str, text: str, answer: str = "", *, state: bytes, seal: AnySeal = None) -> bytes:
        """Take an open question away, and keep its answer where the schema says. Returns the next state."""
        return self._change([Operation.resolve(field, text, answer=answer)], state, seal)

    async def clear(self, field: str, *, state: bytes, seal: AnySeal = None) -> bytes:
        """Empty a field. Returns the next state."""
        return self._change([Operation.clear(field)], state, seal)

    async def revoke(self, line: str, *, state: bytes, seal: AnySeal = None) -> bytes:
        """Take a line away by its id. Only the app may say it again. Returns the next state."""
        transcript = self._decode(state, seal)
        gone = list_removed_lines([read_brief_record(transcript)])
        return self._encode(revoke_line(transcript, line, self._config, self._counter, gone).revise(), seal)

    def _change(self, changes: Sequence[Operation], state: bytes | None, seal: AnySeal) -> bytes:
        transcript = edit_brief(self._decode(state, seal), changes, self._config, self._counter)
        return self._encode(transcript.revise(), seal)
