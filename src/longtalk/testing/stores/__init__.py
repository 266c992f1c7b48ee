"""The store conformance suite, which you can run against a store of your own."""

from longtalk.testing.stores.suite import CASES, check_store

__all__ = ["CASES", "check_store"]
