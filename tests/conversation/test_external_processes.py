"""A process that dies between a call of an external tool and its result. This file is also its program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from longtalk import Chat, Conversation, ToolOutput, external_tool
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import Scripted, says, validate

PAY = external_tool("pay", "Pay a bill.", {"type": "object", "properties": {"sum": {"type": "integer"}}})
CALLS = [("c1", "pay", {"sum": 5}), ("c2", "look", {"what": "It"})]


def look(what: str) -> str:
    return f"{what} was found"


def die(how: str, place: Path) -> None:
    provider = Scripted(says(None, calls=CALLS))
    if how == "state":
        place.write_bytes(Chat(provider, tools=[PAY, look]).send("Pay.").state)
    else:
        Conversation("c", model=provider, store=SQLite(place), tools=[PAY, look]).send("Pay.")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("how", ["state", "sqlite"])
def test_a_new_process_goes_on_with_the_result(how: str, tmp_path: Path) -> None:
    place = tmp_path / how
    died = subprocess.run([sys.executable, __file__, how, str(place)], check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL
    provider = Scripted(says("Paid."))
    outputs = [ToolOutput("c1", "done")]
    if how == "state":
        reply: object = Chat(provider, tools=[PAY, look]).send(outputs, state=place.read_bytes()).text
    else:
        with closing(SQLite(place)) as store:
            reply = Conversation("c", model=provider, store=store, tools=[PAY, look]).send(outputs).text
    assert reply == "Paid."
    validate(provider.requests[0])
    assert b"It was found" in provider.requests[0]
    assert b"Not run" not in provider.requests[0]


if __name__ == "__main__":
    die(sys.argv[1], Path(sys.argv[2]))
