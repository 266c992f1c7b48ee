"""The model on this machine: its provider, the engine that runs it in a child process, and its weights."""
