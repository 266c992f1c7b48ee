"""Conversation: turns on a stored conversation, and summaries written in the background."""
