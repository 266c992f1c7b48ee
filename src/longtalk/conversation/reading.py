"""What a stored conversation has: its history, exports, figures and metadata, and whether they are intact."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from longtalk._util.checks import check_meta
from longtalk._util.concurrency import call_store
from longtalk.archive.archive import AsyncArchive, Format
from longtalk.archive.history import HistoryEntry
from longtalk.archive.metrics import Metrics
from longtalk.branches.branch import AsyncBranch
from longtalk.branches.operations import check_new, read_until
from longtalk.context.costs import CostReceipt
from longtalk.state import codec
from longtalk.stores.base import Commit, HeadMoved
from longtalk.transcript.manifest import Run
from longtalk.transcript.transcript import now


class AsyncReading:
    """The methods of a conversation that read it, and those of its metadata."""

    _stored: AsyncBranch
    _archive: AsyncArchive

    async def history(self, *, meta: Mapping[str, Any] | None = None) -> list[HistoryEntry]:
        """Return the entries of this branch; with `meta`, only those whose metadata has these values."""
        if await self._stored.head() is None:
            await check_new(self._stored)
            return []
        return await self._archive.history(self._stored.conversation, branch=self._stored.branch, meta=meta)

    async def state(self, at: str | None = None) -> bytes:
        """Return a state for `AsyncChat` with all that was said on this branch, or up to the end of an entry or a turn.

        The chat then goes on apart from this conversation, which does not change.
        """
        return codec.encode(await read_until(self._stored, at))

    async def export(self, format: Format = "md") -> str:  # noqa: A002
        """Return the conversation as text: this branch as Markdown, for reading, or all branches as JSON or JSONL."""
        return await self._archive.export(self._stored.conversation, format, branch=self._stored.branch)

    async def manifest(self, turn: str) -> tuple[Run, ...]:
        """Return the manifest of a turn's last request: how each entry was sent, and why. Empty if none is stored."""
        # `head` raises `NotFound` if the conversation may not be created.
        found = await self._archive.manifest(self._stored.conversation, turn, branch=self._stored.branch)
        return found if found or await self._stored.head() else ()

    async def receipts(self) -> list[CostReceipt]:
        """Return the expected costs, actual costs and savings of each epoch that began to save money."""
        return (
            []
            if await self._stored.head() is None
            else await self._archive.receipts(self._stored.conversation, branch=self._stored.branch)
        )

    async def metrics(self) -> list[Metrics]:
        """Return the tokens and the cost of each turn of this branch, oldest first."""
        if await self._stored.head() is None:
            await check_new(self._stored)
            return []
        return await self._archive.metrics(self._stored.conversation, branch=self._stored.branch)

    async def meta(self) -> dict[str, Any]:
        """Return the app's own data on this conversation."""
        return {} if await self._stored.head() is None else await self._archive.meta(self._stored.conversation)

    async def set_metadata(self, meta: Mapping[str, Any], *, entry: str | None = None) -> None:
        """Replace the app's own data about this conversation, or about one of its entries.

        It is never sent to a model.
        """
        check_meta(meta)
        if entry is None and await self._stored.head() is None:
            # The conversation is empty, so it begins with this metadata.
            await check_new(self._stored)
            commit = Commit(branch=self._stored.branch, expect=0, at=now(), meta=meta)
            with contextlib.suppress(HeadMoved):
                await call_store(self._stored.store, partial(self._stored.write, commit))
                return
        await self._archive.set_metadata(self._stored.conversation, meta, entry=entry)

    async def verify(self) -> list[str]:
        """Raise `CorruptStore` unless the stored data is intact: checksums, parents, calls and their results.

        Return a description of each part whose checksum is missing. See `Archive.verify`.
        """
        return await self._archive.verify(self._stored.conversation)
