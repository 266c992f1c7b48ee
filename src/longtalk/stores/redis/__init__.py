"""The Redis store, on a single server or on a cluster."""

from longtalk.stores.redis.connection import NotReplicated
from longtalk.stores.redis.store import Redis

__all__ = ["NotReplicated", "Redis"]
