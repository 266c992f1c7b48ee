"""Validators of requests, one for each wire, and the conformance suite for a wire of your own (`suite`)."""
