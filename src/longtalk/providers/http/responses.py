"""OpenAI's Responses API: create conversations that the server stores, and check that they are unchanged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from longtalk._util import json_bytes
from longtalk.errors import BadAnswer, RequestRefused
from longtalk.providers.http.provider import AsyncHTTP
from longtalk.wires.protocol import Handle

_CONVERSATION = re.compile(r"conv_[A-Za-z0-9_-]{1,200}")


class AsyncResponses(AsyncHTTP):
    """A provider that speaks the Responses API. It implements `AsyncStatefulProvider`.

    A stored response never changes. A conversation is unchanged as long as its newest item is the one in the handle.
    """

    async def is_current(self, handle: Handle) -> bool:
        if not _CONVERSATION.fullmatch(handle.id):
            return True
        try:
            page = await self.call("GET", f"/conversations/{handle.id}/items?order=desc&limit=1")
            items = json_bytes.items(page.get("data", b"null"))
            newest = json_bytes.text(json_bytes.fields(items[0]).get("id", b"")) if items else ""
        except (BadAnswer, RequestRefused, ValueError):
            # It was deleted, belongs to another account, or the answer can't be read.
            return False
        return newest == handle.stamp

    async def open_conversation(self, options: Mapping[str, Any]) -> Handle | None:
        if options.get("conversation") is None:
            return None
        conversation = json_bytes.text((await self.call("POST", "/conversations", b"{}")).get("id", b"")) or ""
        if not _CONVERSATION.fullmatch(conversation):
            raise BadAnswer(f"{self.label} created a conversation, but returned no conversation id.")
        return Handle(conversation)
