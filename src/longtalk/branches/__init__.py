"""Branches of a stored conversation: load, fork, rewind and change them, and write turns to them under a lease."""
