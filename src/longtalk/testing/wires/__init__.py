"""Validators that check requests against the rules of each wire."""
