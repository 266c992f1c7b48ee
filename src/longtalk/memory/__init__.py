"""What a conversation remembers beyond the messages that are sent: each part a file of its own."""
