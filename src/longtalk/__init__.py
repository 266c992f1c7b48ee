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
from longtalk.memory.schema import Brief, Field, Schema
from longtalk.memory.settings import Recall
from longtalk.metrics import Metrics
from longtalk.policies import (
    Combine,
    DigestTools,
    Economy,
    KeepAll,
    KeepLast,
    KeepMessages,
    Memory,
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
    "Brief",
    "Chat",
    "Checkpoint",
    "Combine",
    "Conversation",
    "DigestTools",
    "Done",
    "Economy",
    "Field",
    "InputError",
    "KeepAll",
    "KeepLast",
    "KeepMessages",
    "LongtalkError",
    "Memory",
    "Metrics",
    "Notice",
    "Peek",
    "ProviderError",
    "Recall",
    "Reply",
    "Said",
    "Schema",
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
