"""The conformance suite for providers. Run it against a provider of your own."""

from longtalk.testing.providers.script import over_http
from longtalk.testing.providers.suite import CASES, check_provider

__all__ = ["CASES", "check_provider", "over_http"]
