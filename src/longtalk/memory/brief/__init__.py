"""The brief: structured notes about what matters in a conversation, kept within a token budget."""
