"""The data types of a conversation: entries (messages and events), packs of encoded entries, turns and records."""
