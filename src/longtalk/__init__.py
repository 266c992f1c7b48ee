"""Longtalk keeps a conversation with a language model going, without losing a byte."""

from longtalk import errors as errors
from longtalk import events as events
from longtalk._sync.archive import Archive
from longtalk._sync.chat import Chat
from longtalk._sync.conversation import Conversation
from longtalk._sync.stream import Stream
from longtalk.archive import AsyncArchive
from longtalk.chat import AsyncChat
from longtalk.conversation import AsyncConversation
from longtalk.draft import System
from longtalk.errors import BadState, InputError, LongtalkError, ProviderError, TurnFailed
from longtalk.events import Checkpoint, Done, Notice, Text, ToolCall, ToolResult
from longtalk.metrics import Metrics
from longtalk.policies import (
    Combine,
    DigestTools,
    Economy,
    KeepAll,
    KeepLast,
    KeepMessages,
    Summarize,
    TokenBudget,
    WindowShare,
)
from longtalk.reply import Reply
from longtalk.said import Said, history
from longtalk.seal import Seal
from longtalk.shed import join
from longtalk.state import Peek, peek
from longtalk.stream import AsyncStream
from longtalk.tools import Tool, ToolContext, tool

__version__ = "0.1.0"
__all__ = [
    "Archive",
    "AsyncArchive",
    "AsyncChat",
    "AsyncConversation",
    "AsyncStream",
    "BadState",
    "Chat",
    "Checkpoint",
    "Combine",
    "Conversation",
    "DigestTools",
    "Done",
    "Economy",
    "InputError",
    "KeepAll",
    "KeepLast",
    "KeepMessages",
    "LongtalkError",
    "Metrics",
    "Notice",
    "Peek",
    "ProviderError",
    "Reply",
    "Said",
    "Seal",
    "Stream",
    "Summarize",
    "System",
    "Text",
    "TokenBudget",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolResult",
    "TurnFailed",
    "WindowShare",
    "errors",
    "events",
    "history",
    "join",
    "peek",
    "tool",
]
