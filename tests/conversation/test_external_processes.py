"""A process that dies between a call of an external tool and its result. This file is also its program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longtalk import Chat, Conversation, ToolOutput, external_tool
from longtalk.stores.base import Store
from longtalk.stores.jsonl import JSONL
from longtalk.stores.sqlite import SQLite
from longtalk.testing import Scripted, says, validate
from longtalk.wires import HTTP_WIRES, WIRES
from tests.support.matrix import thin

PAY = external_tool("pay", "Pay a bill.", {"type": "object", "properties": {"sum": {"type": "integer"}}})
CALLS = [("c1", "pay", {"sum": 5}), ("c2", "look", {"what": "It"})]
FAR = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Good morning."}]
FAR_ON_GEMINI = [
    {"role": "user", "parts": [{"text": "Hello."}]},
    {"role": "model", "parts": [{"text": "Good morning."}]},
]

# Each wire, streamed and not, in a state and in SQLite; each other store once.
CASES = [
    *product(["state", "sqlite"], sorted(HTTP_WIRES), [False, True]),
    ("jsonl", "anthropic", True),
    ("postgres", "openai-responses", False),
    ("redis", "gemini", True),
]


class Paid(msgspec.Struct):
    total: int


def look(what: str) -> str:
    return f"{what} was found"


def open_named(kind: str, address: list[str]) -> Store:
    if kind == "postgres":
        from longtalk.stores.postgres import Postgres

        return Postgres(address[0], schema=address[1])
    if kind == "redis":
        from longtalk.stores.redis import Redis

        return Redis(address[0], prefix=address[1])
    return JSONL(address[0]) if kind == "jsonl" else SQLite(address[0])


def run_turn(talk: Any, message: Any, *, stream: bool, **arguments: Any) -> Any:
    """Run a turn and return its reply."""
    return [*talk.stream(message, **arguments)][-1].reply if stream else talk.send(message, **arguments)


def die(kind: str, wire: str, stream: bool, address: list[str]) -> None:
    provider = Scripted(says(None, calls=CALLS, wire=wire), wire=WIRES[wire])
    before = FAR_ON_GEMINI if wire == "gemini" else FAR
    if kind == "state":
        chat = Chat(provider, tools=[PAY, look])
        reply = run_turn(chat, "Pay.", stream=stream, state=chat.append(before, state=b""))
        Path(address[0]).write_bytes(reply.state)
    else:
        talk = Conversation("c", model=provider, store=open_named(kind, address), tools=[PAY, look])
        talk.append(before)
        run_turn(talk, "Pay.", stream=stream)
    os.kill(os.getpid(), signal.SIGKILL)


def make_address(kind: str, folder: Path) -> list[str]:
    """Return where the state or the store is, for both processes."""
    if kind == "postgres":
        from tests.support.postgres_server import server

        return [server().url(), server().schema()]
    if kind == "redis":
        from tests.support.redis_server import single

        return [single().url, f"p{os.getpid()}"]
    return [str(folder / kind)]


@pytest.mark.parametrize(
    "case", thin(CASES, ("state", "openai-chat", False), ("sqlite", "openai-chat", False)), ids=str
)
def test_a_new_process_goes_on_with_the_result(case: tuple[str, str, bool], tmp_path: Path) -> None:
    kind, wire, stream = case
    address = make_address(kind, tmp_path)
    program = [sys.executable, "-m", __name__, json.dumps([kind, wire, stream, address])]
    died = subprocess.run(program, check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL
    provider = Scripted(says('{"total": 5}', wire=wire), wire=WIRES[wire])
    outputs = [ToolOutput("c1", "done")]
    if kind == "state":
        chat, state = Chat(provider, tools=[PAY, look]), Path(address[0]).read_bytes()
        reply = run_turn(chat, outputs, stream=stream, state=state, output=Paid)
    else:
        with closing(open_named(kind, address)) as store:
            talk = Conversation("c", model=provider, store=store, tools=[PAY, look])
            reply = run_turn(talk, outputs, stream=stream, output=Paid)
            assert [entry.text for entry in talk.history()][:2] == ["Hello.", "Good morning."]
    assert reply.output == Paid(5)
    validate(provider.requests[0], wire=wire)
    for text in (b"Good morning.", b"It was found", b"done"):
        assert text in provider.requests[0]
    assert b"Not run" not in provider.requests[0]


if __name__ == "__main__":
    die(*json.loads(sys.argv[1]))
