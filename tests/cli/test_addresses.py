"""Commands on a store that has an address."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from longtalk.cli.store import describe_location
from longtalk.stores.redis.store import Redis
from longtalk.testing.stores.harness import ConversationDriver
from longtalk.transcript.transcript import new_id
from tests.cli.helpers import longtalk
from tests.support import redis_server


def test_commands_take_the_address_of_a_redis_server(environment: dict[str, str]) -> None:
    url, owner = redis_server.single().url, new_id()
    with closing(Redis(url)) as store:
        ConversationDriver(store, owner, "lesson").say("Where is the lighthouse?", "In Porto.")
        there = ("--store", url, "--owner", owner)
        assert "lesson" in longtalk("list", *there, environment=environment).stdout
        assert "Porto" in longtalk("search", "lighthouse porto", *there, environment=environment).stdout
        assert longtalk("delete", "lesson", "--yes", *there, environment=environment).returncode == 0
        assert store.head(owner, "lesson") is None


def test_a_password_is_shown_by_no_command(environment: dict[str, str], tmp_path: Path) -> None:
    port = redis_server.free_ports(1)[0]
    done = longtalk("list", "--store", f"redis://ada:hunter2@127.0.0.1:{port}", environment=environment)
    assert done.returncode != 0
    assert str(port) in done.stderr
    assert "hunter2" not in done.stdout + done.stderr
    assert describe_location("rediss://ada:hun@ter2@host:1/0") == "rediss://host:1/0"
    assert describe_location(str(tmp_path)) == str(tmp_path)
