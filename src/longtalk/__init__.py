"""Longtalk keeps long conversations with language models: byte-exact history, short prompts."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from longtalk import errors as errors
from longtalk import events as events
from longtalk.errors import InputError, LongtalkError, TurnFailed
from longtalk.memory.brief.schema import Brief
from longtalk.memory.recall.config import Recall
from longtalk.policies import Combine, Economy, KeepAll, KeepLast, Memory, Summarize, TokenBudget
from longtalk.reply import Reply
from longtalk.tools import ToolContext, external_tool, tool
from longtalk.turn.message import System, ToolOutput

if TYPE_CHECKING:
    from longtalk._sync.archive.archive import Archive
    from longtalk._sync.chat.chat import Chat
    from longtalk._sync.conversation.conversation import Conversation
    from longtalk._sync.turn.stream import Stream as Stream
    from longtalk.archive.archive import AsyncArchive
    from longtalk.archive.history import history
    from longtalk.chat.chat import AsyncChat
    from longtalk.conversation.conversation import AsyncConversation
    from longtalk.state.codec import peek
    from longtalk.state.sealing import Seal
    from longtalk.state.shedding import join
    from longtalk.turn.stream import AsyncStream as AsyncStream

__version__ = "0.1.0"
__all__ = [
    "Archive",
    "AsyncArchive",
    "AsyncChat",
    "AsyncConversation",
    "Brief",
    "Chat",
    "Combine",
    "Conversation",
    "Economy",
    "InputError",
    "KeepAll",
    "KeepLast",
    "LongtalkError",
    "Memory",
    "Recall",
    "Reply",
    "Seal",
    "Summarize",
    "System",
    "TokenBudget",
    "ToolContext",
    "ToolOutput",
    "TurnFailed",
    "errors",
    "events",
    "external_tool",
    "history",
    "join",
    "peek",
    "tool",
]

# Most programs use only the sync or only the async classes, and few of the functions on states, so each of these names
# is imported when it is first used.
_LOADED_AT_FIRST_USE = {
    "Archive": "longtalk._sync.archive.archive",
    "AsyncArchive": "longtalk.archive.archive",
    "AsyncChat": "longtalk.chat.chat",
    "AsyncConversation": "longtalk.conversation.conversation",
    "AsyncStream": "longtalk.turn.stream",
    "Chat": "longtalk._sync.chat.chat",
    "Conversation": "longtalk._sync.conversation.conversation",
    "Seal": "longtalk.state.sealing",
    "Stream": "longtalk._sync.turn.stream",
    "history": "longtalk.archive.history",
    "join": "longtalk.state.shedding",
    "peek": "longtalk.state.codec",
}


def __getattr__(name: str) -> Any:
    """Import a class or function when it is first used."""
    module = _LOADED_AT_FIRST_USE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    """Return the public names, including those that are not imported yet."""
    return sorted({*globals(), *__all__})
