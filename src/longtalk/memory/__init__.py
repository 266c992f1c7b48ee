"""Memory: briefs, memory cards, recall, outlines and summaries, which stand in for the older part of a conversation."""
