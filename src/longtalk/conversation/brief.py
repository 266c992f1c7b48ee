"""The brief of a stored conversation, as an app reads and writes it (`talk.brief`).

No request contains a line after the app has removed it. A change is made completely or not at all.
"""

from __future__ import annotations

from longtalk.branches.branch import AsyncBranch
from longtalk.branches.operations import change_branch, check_new
from longtalk.memory.brief.edits import edit_brief, list_removed_lines, render_record, revoke_line
from longtalk.memory.brief.lines import Line
from longtalk.memory.brief.operations import Operation
from longtalk.memory.brief.record import KIND, BriefRecord, CardTally, read_brief_record_at
from longtalk.memory.brief.schema import Brief
from longtalk.stores.base import PlacedRecord
from longtalk.tokens import Counter
from longtalk.transcript.standing import read_record


class AsyncTalkBrief:
    """The brief of a conversation in a store, on its branch. A change waits for the end of a turn that runs."""

    def __init__(self, stored: AsyncBranch, config: Brief, counter: Counter) -> None:
        self._stored = stored
        self._config = config
        self._counter = counter

    async def lines(self) -> tuple[Line, ...]:
        """The lines, each with its id, its field, and the entry that it came from (empty for the app's own)."""
        return (await self._record()).content.lines

    async def text(self) -> str:
        """The brief as requests carry it; nothing without lines."""
        return render_record(await self._record(), self._config, self._counter)

    async def archived(self) -> tuple[Line, ...]:
        """The lines that fell out, were cut or were taken away on this branch, the newest last, as they were."""
        found: list[PlacedRecord] = await self._stored.call(self._stored.store.records, self._stored.branch, KIND)
        return list_removed_lines(record for each in found if (record := read_record(each.record, BriefRecord)))

    async def tally(self) -> CardTally:
        """How asking the model for what is to be kept goes: `asks`, and how many of the last were `failures`."""
        return (await self._record()).tally

    async def set(self, field: str, *texts: str) -> None:
        """Make a field say this, and nothing else."""
        await self._change(Operation.set(field, *texts))

    async def add(self, field: str, *texts: str) -> None:
        """Add lines to a list."""
        await self._change(Operation.add(field, *texts))

    async def remove(self, field: str, *texts: str) -> None:
        """Take lines away: by their text, an unambiguous beginning of it, or their id."""
        await self._change(Operation.remove(field, *texts))

    async def resolve(self, field: str, text: str, answer: str = "") -> None:
        """Take an open question away, and keep its answer where the schema says."""
        await self._change(Operation.resolve(field, text, answer=answer))

    async def clear(self, field: str) -> None:
        """Empty a field."""
        await self._change(Operation.clear(field))

    async def revoke(self, line: str) -> None:
        """Take a line away by its id. Only the app may say it again."""
        gone = await self.archived()
        await change_branch(
            self._stored, lambda transcript: revoke_line(transcript, line, self._config, self._counter, gone)
        )

    async def _change(self, operation: Operation) -> None:
        await change_branch(
            self._stored, lambda transcript: edit_brief(transcript, [operation], self._config, self._counter)
        )

    async def _record(self) -> BriefRecord:
        head = await self._stored.head()
        if head is None:
            await check_new(self._stored)
            return BriefRecord()
        return read_brief_record_at((each.record for each in head.records), head.size)
