"""The address of a Redis server or cluster, and the import of the redis library, which is optional."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlsplit

from longtalk.errors import InputError, MissingExtra

Address = tuple[str, int]
"""The host and port of a node."""


class ServerAddress(NamedTuple):
    """The hosts and connection settings in the address of a Redis store."""

    addresses: tuple[Address, ...]
    settings: dict[str, Any]
    """Arguments for each connection: user, password, database and the options in the address."""

    @classmethod
    def parse(cls, url: str) -> ServerAddress:
        """Parse the address of a store.

        Several hosts, as in `redis://one:6379,two:6379`, are nodes of one cluster, or a master and its replicas.
        """
        library = import_redis()
        scheme, _, rest = url.partition("://")
        if scheme not in ("redis", "rediss"):
            raise InputError(f"A Redis address must start with redis:// or rediss://, not {scheme + '://'!r}.")
        try:
            all_hosts = urlsplit(url).netloc.rpartition("@")[2]
            hosts = all_hosts.split(",")
            parts = [urlsplit(f"//{host or 'localhost'}") for host in hosts]
            addresses = tuple((each.hostname or "localhost", each.port or 6379) for each in parts)
            # The redis library parses an address of one host.
            one_host = rest.replace(all_hosts, hosts[0], 1) if len(hosts) > 1 else rest
            settings = library.connection.parse_url(f"{scheme}://{one_host}")
        except ValueError:
            # The original error may quote the password, which must not get into a log.
            raise InputError("Invalid Redis address: use the form redis://user:password@host:6379/0.") from None
        for name in ("host", "port"):
            settings.pop(name, None)
        return cls(addresses, settings)


def import_redis() -> Any:
    """Return the `redis` module, or raise `MissingExtra` if it isn't installed."""
    try:
        import redis
        import redis.connection
    except ImportError:
        raise MissingExtra("A Redis store needs the redis library: pip install 'longtalk[redis]'.") from None
    return redis
