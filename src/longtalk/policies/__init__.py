"""Policies: rules that decide which part of a conversation is sent to the model.

Ready to use: `KeepAll`, `KeepLast`, `KeepMessages`, `TokenBudget`, `WindowShare`, `Summarize`, `Economy`, `Memory`, and
`Combine`, which applies several at once. To build your own, combine triggers (`limits.py`) and strategies (one file
each) in a `Compactor`.
"""

from longtalk.memory.summary import OldEntry
from longtalk.policies.base import BriefKeeper, Compactor, Policy, Size, Strategy, Trigger
from longtalk.policies.combine import Combine
from longtalk.policies.cut_current import CutCurrent
from longtalk.policies.digest_tools import DigestTools
from longtalk.policies.drop_oldest import DropOldest
from longtalk.policies.economy import Economy
from longtalk.policies.keep_all import KeepAll
from longtalk.policies.keep_last import KeepLast, KeepMessages
from longtalk.policies.limits import AllOf, AnyOf, OverExchanges, OverMessages, OverTokens, OverWindow
from longtalk.policies.memory import Memory
from longtalk.policies.replace_oldest import ReplaceOldest
from longtalk.policies.summarize import Summarize, SummarizeOldest
from longtalk.policies.token_budget import TokenBudget, WindowShare
from longtalk.policies.view import Block, View
from longtalk.transcript.manifest import Run

__all__ = [
    "AllOf",
    "AnyOf",
    "Block",
    "BriefKeeper",
    "Combine",
    "Compactor",
    "CutCurrent",
    "DigestTools",
    "DropOldest",
    "Economy",
    "KeepAll",
    "KeepLast",
    "KeepMessages",
    "Memory",
    "OldEntry",
    "OverExchanges",
    "OverMessages",
    "OverTokens",
    "OverWindow",
    "Policy",
    "ReplaceOldest",
    "Run",
    "Size",
    "Strategy",
    "Summarize",
    "SummarizeOldest",
    "TokenBudget",
    "Trigger",
    "View",
    "WindowShare",
]
