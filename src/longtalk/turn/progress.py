"""The newest draft of a turn that runs, shared by the modules that advance the turn, and how it is saved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from longtalk.notices import Notice
from longtalk.turn.draft import Draft


class AsyncTurnProgress:
    """The newest draft of a turn. `draft` is replaced whole after each step, so it can be finished at any moment."""

    def __init__(self, draft: Draft, save: Callable[[Draft], Awaitable[tuple[Notice, ...]]] | None) -> None:
        self.draft = draft
        self._saver = save

    @property
    def is_stored(self) -> bool:
        """Whether a store keeps the conversation."""
        return self._saver is not None

    async def save_draft(self, draft: Draft) -> tuple[Notice, ...]:
        """Write a draft to the store, if there is one. Returns notices for the caller."""
        return () if self._saver is None else await self._saver(draft)

    async def save(self) -> None:
        """Write the newest draft to the store, if there is one, and add the store's notices to the draft."""
        # Tools may change the draft while it is written, so the notices go to the newest one.
        for notice in await self.save_draft(self.draft):
            self.draft = self.draft.notice(notice)
