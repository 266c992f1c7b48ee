"""The brief of a stored conversation, for the app to read and change (`talk.brief`).

A change of a branch is applied completely or not at all. No request contains a line after the app has removed it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from longtalk._util.concurrency import run_in_thread
from longtalk.archive.reading import AsyncArchiveReading
from longtalk.archive.statements import LineStatements, find_statements
from longtalk.branches.branch import AsyncBranch
from longtalk.branches.operations import change_branch, check_new, list_branch_names
from longtalk.errors import InputError
from longtalk.memory.brief.apply import list_line_ids
from longtalk.memory.brief.changes import BriefChange, list_changes
from longtalk.memory.brief.edits import edit_brief, list_removed_lines, render_record, restore_line, revoke_line
from longtalk.memory.brief.lines import BriefContent, Line
from longtalk.memory.brief.operations import Operation
from longtalk.memory.brief.record import KIND, BriefRecord, CardTally, read_brief_record_at
from longtalk.memory.brief.schema import Brief, Field
from longtalk.stores.base import BranchHead, PlacedRecord
from longtalk.tokens import Counter
from longtalk.transcript.standing import read_record


class AsyncTalkBrief:
    """The brief of a stored conversation, on one branch. Changes wait until a running turn has ended."""

    def __init__(self, stored: AsyncBranch, config: Brief, counter: Counter) -> None:
        self._stored = stored
        self._config = config
        self._counter = counter

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields that lines can belong to."""
        return self._config.schema.fields

    async def lines(self) -> tuple[Line, ...]:
        """Return the lines, each with its id, its field, and the entry that it came from (empty for the app's)."""
        return (await self._record()).content.lines

    async def text(self) -> str:
        """Return the brief as it is sent in requests; empty if it has no lines."""
        return render_record(await self._record(), self._config, self._counter)

    async def archived(self) -> tuple[Line, ...]:
        """Return the lines that were dropped, cut or removed on this branch, in their original form, newest last."""
        found: list[PlacedRecord] = await self._stored.call(self._stored.store.records, self._stored.branch, KIND)
        return _list_removed(found)

    async def changes(self) -> list[BriefChange]:
        """Return what was added, removed and revoked on this branch, oldest change first."""
        found: list[PlacedRecord] = await self._stored.call(self._stored.store.records, self._stored.branch, KIND)
        read = [(each.record.at, read_record(each.record, BriefRecord)) for each in found]
        return list_changes((at, record) for at, record in read if record is not None)

    async def statements(self) -> list[LineStatements]:
        """Return for each line, those that were removed too, which messages of this branch say it, or still say it.

        What they say is judged by words, as recall judges what was corrected.
        """
        record, gone, changes = await self._record(), await self.archived(), await self.changes()
        archive = AsyncArchiveReading(self._stored.store, owner=self._stored.owner)
        head = await self._stored.head()
        entries = await archive.history(self._stored.conversation, branch=self._stored.branch) if head else []
        times = {line.id: change.at for change in changes for line in change.removed}
        find = partial(find_statements, entries, record.content.lines, gone, record.corrections, times)
        found: list[LineStatements] = await run_in_thread(find)
        return found

    async def tally(self) -> CardTally:
        """Return the outcomes of the last requests for memory cards: their number (`asks`) and the `failures`."""
        return (await self._record()).tally

    async def set(self, field: str, *texts: str) -> None:
        """Set the texts of a field, replacing its present ones."""
        await self._change(Operation.set(field, *texts))

    async def add(self, field: str, *texts: str) -> None:
        """Add lines to a list field."""
        await self._change(Operation.add(field, *texts))

    async def remove(self, field: str, *texts: str) -> None:
        """Remove lines, given by text, by an unambiguous beginning of the text, or by id."""
        await self._change(Operation.remove(field, *texts))

    async def replace(self, line: str, text: str, *, everywhere: bool = False) -> None:
        """Replace the text of a line, given by its id, in one change: exchanges are sent without cards that state it.

        With `everywhere`, it is replaced on all branches that have the line from the same entry, this one last: if the
        call fails on the way, repeat it.
        """
        found = next((each for each in await self.lines() if each.id == line), None)
        if found is None:
            raise InputError(f"This brief has no line with the id {line!r}. Take the id from `lines`.")
        changes = (Operation.revoke(line), Operation.add(found.field, text))
        for branch in [*(await self._list_others(found) if everywhere else ()), self._stored]:
            await self._change(*changes, branch=branch)

    async def resolve(self, field: str, text: str, answer: str = "") -> None:
        """Remove an open question, and add its answer to the field that the schema names."""
        await self._change(Operation.resolve(field, text, answer=answer))

    async def clear(self, field: str) -> None:
        """Remove all lines of a field."""
        await self._change(Operation.clear(field))

    async def revoke(self, line: str, *, everywhere: bool = False) -> None:
        """Remove a line for good, by its id: only the app can add it again.

        With `everywhere`, it is removed on all branches that have the line from the same entry, this one last: if the
        call fails on the way, repeat it.
        """
        gone = await self.archived()
        found = next((each for each in (*await self.lines(), *gone) if each.id == line), None)
        others = await self._list_others(found) if everywhere and found is not None else []
        for branch in [*others, self._stored]:
            await change_branch(
                branch, lambda transcript: revoke_line(transcript, line, self._config, self._counter, gone)
            )

    async def restore(self, line: str, *, everywhere: bool = False) -> None:
        """Put a line back that was removed or revoked, by its id: with the same source and the same dates.

        With `everywhere`, it is put back on all branches where the line from the same entry was revoked, this one last:
        if the call fails on the way, repeat it.
        """
        found = next((each for each in await self.archived() if each.id == line), None)
        if found is None:
            raise InputError(f"No line with the id {line!r} was removed from this brief. Take the id from `archived`.")
        for branch in [*(await self._list_others(found, revoked=True) if everywhere else ()), self._stored]:
            await change_branch(branch, lambda transcript: restore_line(transcript, found, self._config, self._counter))

    async def _change(self, *operations: Operation, branch: AsyncBranch | None = None) -> None:
        await change_branch(
            branch or self._stored, lambda transcript: edit_brief(transcript, operations, self._config, self._counter)
        )

    async def _list_others(self, line: Line, *, revoked: bool = False) -> list[AsyncBranch]:
        """Return the other branches whose brief has this line from the same entry, or had it until it was revoked."""
        found = []
        for name in await list_branch_names(self._stored):
            branch = self._stored.get_branch(name)
            head = await branch.head() if name != self._stored.branch else None
            if head is None:
                continue
            content = _read_content(head)
            lines = content.lines
            if revoked:
                placed: list[PlacedRecord] = await branch.call(branch.store.records, name, KIND)
                is_revoked = not set(content.revoked).isdisjoint(list_line_ids(line))
                lines = _list_removed(placed) if is_revoked else ()
            if any(_identify(each) == _identify(line) for each in lines):
                found.append(branch)
        return found

    async def _record(self) -> BriefRecord:
        head = await self._stored.head()
        if head is None:
            await check_new(self._stored)
            return BriefRecord()
        return read_brief_record_at((each.record for each in head.records), head.size)


def _identify(line: Line) -> tuple[str, str, int]:
    """Return what the same line has on all branches. The app changes one branch after the other, at different times."""
    return line.id, line.entry, line.at if line.entry else 0


def _list_removed(placed: Iterable[PlacedRecord]) -> tuple[Line, ...]:
    return list_removed_lines(record for each in placed if (record := read_record(each.record, BriefRecord)))


def _read_content(head: BranchHead) -> BriefContent:
    return read_brief_record_at((each.record for each in head.records), head.size).content
