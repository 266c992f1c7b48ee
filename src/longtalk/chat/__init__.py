"""Chat: turns on a conversation whose state the caller keeps."""
