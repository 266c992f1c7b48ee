"""Memory: briefs, memory cards, recall, outlines and summaries, which replace older exchanges in requests."""

from longtalk.memory.brief.schema import Brief, Field, Schema
from longtalk.memory.profile.config import Profile
from longtalk.memory.recall.config import Recall

__all__ = ["Brief", "Field", "Profile", "Recall", "Schema"]
