"""What a conversation keeps of its older messages: a brief, memory cards, recall, outlines and summaries."""
