"""Validators of requests, one for each wire."""
