"""One turn of a conversation: the loop of model calls and tool runs, the draft that it builds, and its stream."""
