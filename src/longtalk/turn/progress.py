"""The newest draft of a running turn, shared by the modules that advance the turn."""

from __future__ import annotations

from typing import Any

from longtalk.turn.draft import Draft
from longtalk.turn.session import AsyncSession


class AsyncTurnProgress:
    """The newest draft of a running turn.

    Each step replaces `draft` as a whole, so it can be finished at any moment.
    """

    def __init__(self, draft: Draft, session: AsyncSession[Any]) -> None:
        self.draft = draft
        self._session = session

    async def save(self) -> None:
        """Save the newest draft in its session, and add the session's notices to the draft."""
        # Tools may replace the draft while it is being saved, so add the notices to the newest draft.
        for notice in await self._session.save(self.draft):
            self.draft = self.draft.notice(notice)
