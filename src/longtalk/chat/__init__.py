"""A turn on a state that the caller holds."""
