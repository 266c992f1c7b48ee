"""The JSONL store, which keeps each conversation in a file that people can read."""

from longtalk.stores.jsonl.store import JSONL

__all__ = ["JSONL"]
