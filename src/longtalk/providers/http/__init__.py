"""Providers that are reached over HTTP, with JSON requests and server-sent events."""
