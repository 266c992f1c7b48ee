"""Recall: find older entries of a conversation that are relevant to a new message."""
