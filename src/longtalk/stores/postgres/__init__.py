"""The PostgreSQL store, which many processes on many machines can share."""

from longtalk.stores.postgres.store import Postgres

__all__ = ["Postgres"]
