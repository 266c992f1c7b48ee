"""Helpers that are independent of conversations: JSON bytes, threads, processes, folders."""
