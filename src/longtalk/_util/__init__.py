"""Helpers that know nothing about conversations: JSON bytes, threads, processes, folders."""
