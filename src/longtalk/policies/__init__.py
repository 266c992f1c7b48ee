"""What a context keeps of a transcript.

Policies to take as they are: `KeepAll`, `KeepLast`, `KeepMessages`, `TokenBudget`, `WindowShare`, `Summarize`,
`Economy`, `Memory`, and `Combine` for several at once. Parts to build others from: triggers (`limits.py`), strategies
(a file each) and `Compactor`.
"""

from longtalk.policies.base import Compactor, Policy, Size, Strategy, Trigger
from longtalk.policies.combine import Combine
from longtalk.policies.cut_current import CutCurrent
from longtalk.policies.digest_tools import DigestTools
from longtalk.policies.drop_oldest import DropOldest
from longtalk.policies.economy import Economy
from longtalk.policies.keep_all import KeepAll
from longtalk.policies.keep_last import KeepLast, KeepMessages
from longtalk.policies.limits import AllOf, AnyOf, OverExchanges, OverMessages, OverTokens, OverWindow
from longtalk.policies.memory import Memory
from longtalk.policies.summarize import Summarize, SummarizeOldest
from longtalk.policies.token_budget import TokenBudget, WindowShare
from longtalk.policies.view import Block, Run, View

__all__ = [
    "AllOf",
    "AnyOf",
    "Block",
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
    "OverExchanges",
    "OverMessages",
    "OverTokens",
    "OverWindow",
    "Policy",
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
