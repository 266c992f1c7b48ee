"""Marks on the exchanges of a stored conversation: pinned ones are always sent, excluded ones never."""

from __future__ import annotations

from longtalk.branches.branch import AsyncBranch
from longtalk.branches.operations import change_branch
from longtalk.context.exclusions import exclude, include, read_exclusions
from longtalk.context.measure import read_pins
from longtalk.context.pins import unpin
from longtalk.turn.engine import AsyncEngine


class AsyncMarks:
    """The methods of a conversation that pin and exclude exchanges."""

    _stored: AsyncBranch
    _engine: AsyncEngine

    async def pin(self, entry: str) -> None:
        """Keep an exchange in all requests, whatever the policy leaves out. `entry` is the id of a turn or entry."""
        await change_branch(self._stored, lambda transcript: self._engine.pin(transcript, entry), whole=True)

    async def unpin(self, entry: str) -> None:
        """Undo the pin of an exchange, so that the policy may leave it out again."""
        await change_branch(self._stored, lambda transcript: unpin(transcript, entry))

    async def pins(self) -> list[str]:
        """Return the ids of the pinned entries."""
        self._stored.forget()
        return [pin.entry for pin in read_pins((await self._stored.load())[1])]

    async def exclude(self, entry: str) -> None:
        """Leave an exchange out of all requests, whatever the policy keeps. `entry` means the same as for `pin`.

        The exchange stays in the history, but is neither summarized nor recalled.
        """
        await change_branch(self._stored, lambda transcript: exclude(transcript, entry), whole=True)

    async def include(self, entry: str) -> None:
        """Undo the exclusion of an exchange, so that it is sent again if the policy keeps it."""
        await change_branch(self._stored, lambda transcript: include(transcript, entry), whole=True)

    async def excluded(self) -> list[str]:
        """Return the ids of the excluded entries."""
        self._stored.forget()
        return [each.entry for each in read_exclusions((await self._stored.load())[1])]
