"""The JSONL store, which keeps each conversation in a human-readable file."""

from longtalk.stores.jsonl.store import JSONL

__all__ = ["JSONL"]
