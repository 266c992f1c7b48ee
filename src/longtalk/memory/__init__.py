"""Memory: briefs, memory cards, recall, outlines and summaries, which replace older exchanges in requests."""

from longtalk.memory.brief.schema import Brief, Field, Schema
from longtalk.memory.recall.config import Recall

__all__ = ["Brief", "Field", "Recall", "Schema"]
