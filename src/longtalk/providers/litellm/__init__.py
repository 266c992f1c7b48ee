"""Providers that are reached through LiteLLM."""
