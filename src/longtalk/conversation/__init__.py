"""A turn on a conversation that a store holds, and the work in the background."""
