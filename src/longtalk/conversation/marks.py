"""What the app says of the exchanges of a stored conversation: that one is always sent, or never."""

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
        """Keep an exchange whatever the policy leaves out, by the id of its turn or of one of its entries."""
        await change_branch(self._stored, lambda transcript: self._engine.pin(transcript, entry), whole=True)

    async def unpin(self, entry: str) -> None:
        """Let an exchange go that was pinned."""
        await change_branch(self._stored, lambda transcript: unpin(transcript, entry))

    async def pins(self) -> list[str]:
        """The ids of the entries that are pinned."""
        self._stored.forget()
        return [pin.entry for pin in read_pins((await self._stored.load())[1])]

    async def exclude(self, entry: str) -> None:
        """Leave an exchange out of all requests, whatever the policy keeps; `entry` is as for `pin`.

        It stays in the history, and is neither summarized nor recalled from now on.
        """
        await change_branch(self._stored, lambda transcript: exclude(transcript, entry), whole=True)

    async def include(self, entry: str) -> None:
        """Let an exchange that was excluded be sent again, where the policy keeps it."""
        await change_branch(self._stored, lambda transcript: include(transcript, entry), whole=True)

    async def excluded(self) -> list[str]:
        """The ids of the entries that are excluded."""
        self._stored.forget()
        return [each.entry for each in read_exclusions((await self._stored.load())[1])]
