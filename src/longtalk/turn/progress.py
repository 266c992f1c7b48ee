"""The newest draft of a turn that runs, shared by the modules that advance the turn, and how it is saved."""

from __future__ import annotations

from typing import Any

from longtalk.turn.draft import Draft
from longtalk.turn.session import AsyncSession


class AsyncTurnProgress:
    """The newest draft of a turn. `draft` is replaced whole after each step, so it can be finished at any moment."""

    def __init__(self, draft: Draft, session: AsyncSession[Any]) -> None:
        self.draft = draft
        self._session = session

    async def save(self) -> None:
        """Keep the newest draft, and add the notices of the store, if there is one, to the draft."""
        # Tools may change the draft while it is written, so the notices go to the newest one.
        for notice in await self._session.save(self.draft):
            self.draft = self.draft.notice(notice)
