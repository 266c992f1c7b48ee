"""The brief of a state that the caller keeps, for the app to read and change (`chat.brief`).

A change is applied completely or not at all. No request contains a line after the app has removed it.
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
    """The brief in a state. Methods that change it return the next state."""

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
        """Return the lines, each with its id, its field, and the entry that it came from (empty for the app's)."""
        return read_brief_record(self._decode(state, seal)).content.lines

    async def text(self, *, state: bytes, seal: AnySeal = None) -> str:
        """Return the brief as it is sent in requests; empty if it has no lines."""
        return render_record(read_brief_record(self._decode(state, seal)), self._config, self._counter)

    async def archived(self, *, state: bytes, seal: AnySeal = None) -> tuple[Line, ...]:
        """Return the lines that the last change dropped, cut or removed. A state does not keep earlier ones."""
        return list_removed_lines([read_brief_record(self._decode(state, seal))])

    async def tally(self, *, state: bytes, seal: AnySeal = None) -> CardTally:
        """Return the outcomes of the last requests for memory cards: their number (`asks`) and the `failures`."""
        return read_brief_record(self._decode(state, seal)).tally

    async def set(self, field: str, *texts: str, state: bytes | None, seal: AnySeal = None) -> bytes:
        """Set the texts of a field, replacing its present ones.

        Return the next state; state=None begins a conversation.
        """
        return self._change([Operation.set(field, *texts)], state, seal)

    async def add(self, field: str, *texts: str, state: bytes | None, seal: AnySeal = None) -> bytes:
        """Add lines to a list field. Return the next state; state=None begins a conversation."""
        return self._change([Operation.add(field, *texts)], state, seal)

    async def remove(self, field: str, *texts: str, state: bytes, seal: AnySeal = None) -> bytes:
        """Remove lines, given by text, by an unambiguous beginning of the text, or by id. Return the next state."""
        return self._change([Operation.remove(field, *texts)], state, seal)

    async def resolve(self, field: str, text: str, answer: str = "", *, state: bytes, seal: AnySeal = None) -> bytes:
        """Remove an open question, and add its answer to the field that the schema names. Return the next state."""
        return self._change([Operation.resolve(field, text, answer=answer)], state, seal)

    async def clear(self, field: str, *, state: bytes, seal: AnySeal = None) -> bytes:
        """Remove all lines of a field. Return the next state."""
        return self._change([Operation.clear(field)], state, seal)

    async def revoke(self, line: str, *, state: bytes, seal: AnySeal = None) -> bytes:
        """Remove a line for good, by its id: only the app can add it again. Return the next state."""
        transcript = self._decode(state, seal)
        gone = list_removed_lines([read_brief_record(transcript)])
        return self._encode(revoke_line(transcript, line, self._config, self._counter, gone).revise(), seal)

    def _change(self, changes: Sequence[Operation], state: bytes | None, seal: AnySeal) -> bytes:
        transcript = edit_brief(self._decode(state, seal), changes, self._config, self._counter)
        return self._encode(transcript.revise(), seal)
