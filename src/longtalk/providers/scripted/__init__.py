"""A provider for tests that answers from a script."""
