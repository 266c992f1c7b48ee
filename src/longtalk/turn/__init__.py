"""One turn: the loop of model calls and tools, its draft, its stream."""
