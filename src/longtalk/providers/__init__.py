"""Providers, which send requests to models and return the answers."""
