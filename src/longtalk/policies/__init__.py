"""What a context keeps of a transcript."""

from longtalk.policies.base import Policy
from longtalk.policies.keep_all import KeepAll

__all__ = ["KeepAll", "Policy"]
