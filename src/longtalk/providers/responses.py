"""OpenAI's own address: beside asking, it begins conversations that are kept there, and sees how far they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from longtalk import _json
from longtalk.errors import BadAnswer, RequestRefused
from longtalk.providers.http import AsyncHTTP
from longtalk.wires.base import Handle

_CONVERSATION = re.compile(r"conv_[A-Za-z0-9_-]{1,200}")


class AsyncResponses(AsyncHTTP):
    """See `AsyncKeeper`. A response that is kept there never changes; a conversation is what was added to it last."""

    async def stands(self, handle: Handle) -> bool:
        if not _CONVERSATION.fullmatch(handle.id):
            return True
        try:
            said = await self.call("GET", f"/conversations/{handle.id}/items?order=desc&limit=1")
            items = _json.items(said.get("data", b"null"))
            newest = _json.text(_json.fields(items[0]).get("id", b"")) if items else ""
        except (BadAnswer, RequestRefused, ValueError):
            # Deleted, somebody else's, or nothing that can be understood.
            return False
        return newest == handle.stamp

    async def opened(self, options: Mapping[str, Any]) -> Handle | None:
        if options.get("conversation") is None:
            return None
        found = _json.text((await self.call("POST", "/conversations", b"{}")).get("id", b"")) or ""
        if not _CONVERSATION.fullmatch(found):
            raise BadAnswer(f"{self.label} was asked for a new conversation and named none.")
        return Handle(found)
