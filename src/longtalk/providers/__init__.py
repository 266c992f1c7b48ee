"""Providers: they send requests to models and return the answers."""
