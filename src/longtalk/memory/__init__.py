"""Memory: briefs, memory cards, recall, outlines and summaries, which stand in for the older part of a conversation."""

from longtalk.memory.brief.schema import Brief, Field, Schema
from longtalk.memory.recall.config import Recall

__all__ = ["Brief", "Field", "Recall", "Schema"]
