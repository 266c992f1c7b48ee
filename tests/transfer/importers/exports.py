"""Data exports of ChatGPT and Claude, built as the services document them and as users have found them."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

BEGAN = 1_790_000_000.25


class ChatGPT:
    """A conversation of ChatGPT that grows node by node."""

    def __init__(self, id: str = "6995e870-eafc-83a6-ab22-d89ad9e2b447", title: str = "Bows") -> None:  # noqa: A002
        self.root = "client-created-root"
        self.mapping: dict[str, dict[str, Any]] = {
            self.root: {"id": self.root, "message": None, "parent": None, "children": []}
        }
        self.current = self.root
        self._top = {"title": title, "id": id, "conversation_id": id, "create_time": BEGAN, "is_archived": False}

    def say(self, role: str, *parts: Any, behind: str | None = None, **message: Any) -> str:
        """Add a message after the current node, or after `behind`, and return its node."""
        name = f"node-{len(self.mapping)}"
        parent = self.current if behind is None else behind
        author = {"role": role, "name": message.pop("name", None), "metadata": {}}
        content = message.pop("content", {"content_type": "text", "parts": list(parts)})
        said = {
            "id": name,
            "author": author,
            "create_time": BEGAN + len(self.mapping),
            "update_time": None,
            "content": content,
            "status": "finished_successfully",
            "end_turn": True,
            "weight": 1.0,
            "metadata": {"model_slug": "gpt-5-2"} if role == "assistant" else {},
            "recipient": "all",
            "channel": None,
            **message,
        }
        self.mapping[name] = {"id": name, "message": said, "parent": parent, "children": []}
        self.mapping[parent]["children"].append(name)
        self.current = name
        return name

    def value(self) -> dict[str, Any]:
        updated = BEGAN + len(self.mapping)
        return {**self._top, "update_time": updated, "mapping": self.mapping, "current_node": self.current}


class Claude:
    """A conversation of Claude that grows message by message."""

    def __init__(self, id: str = "019d18cb-47a0-7e53-8bd6-1278557eae3b", name: str = "Bows") -> None:  # noqa: A002
        self.messages: list[dict[str, Any]] = []
        self._top = {"uuid": id, "name": name, "summary": "", "account": {"uuid": "c1a9a5f8"}}

    def say(self, sender: str, text: str = "", *blocks: Any, parent: str | None = None, **more: Any) -> str:
        name = f"message-{len(self.messages)}"
        last = self.messages[-1]["uuid"] if self.messages else "00000000-0000-4000-8000-000000000000"
        when = f"2026-11-16T10:{len(self.messages):02}:00.886210Z"
        content = [{"type": "text", "text": text, "citations": []}] if text and not blocks else list(blocks)
        self.messages.append(
            {
                "uuid": name,
                "text": text,
                "content": content,
                "sender": sender,
                "created_at": when,
                "updated_at": when,
                "attachments": [],
                "files": [],
                "parent_message_uuid": last if parent is None else parent,
                **more,
            }
        )
        return name

    def value(self) -> dict[str, Any]:
        times = {"created_at": "2026-11-16T10:00:00.000000Z", "updated_at": self.messages[-1]["updated_at"]}
        return {**self._top, **times, "chat_messages": self.messages}


def as_json(*conversations: ChatGPT | Claude) -> bytes:
    return json.dumps([each.value() for each in conversations]).encode()


def as_zip(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as held:
        for name, data in files.items():
            held.writestr(name, data)
    return made.getvalue()
