"""The session of a turn on a stored conversation that is only composed: nothing is sent or stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from longtalk._util.concurrency import call_store
from longtalk.archive.profile_reading import read_privacy
from longtalk.chat.session import AsyncStateSession
from longtalk.context.compose import Context
from longtalk.conversation.privacy import add_profile
from longtalk.stores.base import Store
from longtalk.transcript.transcript import Transcript
from longtalk.turn.engine import AsyncEngine, TurnArguments

if TYPE_CHECKING:
    from longtalk.memory.recall.config import Recall, Recalled
    from longtalk.memory.recall.index import RecallIndex


async def preview_turn(
    engine: AsyncEngine,
    given: TurnArguments,
    transcript: Transcript,
    *,
    store: Store,
    owner: str,
    conversation: str,
    branch: str,
) -> tuple[Context, bytes]:
    """Return the first request of a turn after a transcript of a branch, and its JSON. Nothing is sent or stored."""
    session = AsyncPreviewSession(engine, store, owner, conversation, branch)
    return await engine.begin(session, await session.prepare(transcript), given).preview()


class AsyncPreviewSession(AsyncStateSession):
    """A session that keeps nothing, and knows of its owner's other conversations what a turn on the branch knows."""

    def __init__(self, engine: AsyncEngine, store: Store, owner: str, conversation: str, branch: str) -> None:
        super().__init__(engine.rules.policy, None, sheds=False)
        self._engine = engine
        self._store = store
        self._names = (owner, conversation, branch)
        self._is_private = True

    async def prepare(self, transcript: Transcript) -> Transcript:
        """Return a transcript of the branch with what its next turn knows of the owner's profile."""
        store, (owner, conversation, _) = self._store, self._names
        self._is_private = await call_store(store, lambda: read_privacy(store, owner, conversation))
        return await add_profile(transcript, store, owner, conversation, self._engine, private=self._is_private)

    async def recall(
        self,
        before: Transcript,
        message: str,
        config: Recall,
        render: Callable[[RecallIndex], Recalled],
        *,
        at: int,
    ) -> Recalled:
        """Return what `render` makes of a recall index of the entries in `before`, or of all that a turn searches."""
        from longtalk.archive.owner_recall import recall_from_owner

        if config.scope != "owner" or self._is_private:
            return await super().recall(before, message, config, render, at=at)
        store, names, meaning = self._store, self._names, config.meaning
        found: Recalled = await call_store(
            store, lambda: recall_from_owner(store, names, before, message, render, now=at, meaning=meaning)
        )
        return found
