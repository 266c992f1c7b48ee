"""The conformance suite for stores. Run it against a store of your own."""

from longtalk.testing.stores.suite import CASES, check_store

__all__ = ["CASES", "check_store"]
