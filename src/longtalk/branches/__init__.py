"""Branches of a stored conversation: heads, forks, leases in use, writing a turn."""
