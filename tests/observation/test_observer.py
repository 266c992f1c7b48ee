"""Observations as values, and the logger."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from longtalk import AsyncChat, Chat, InputError
from longtalk.observation import Observation, log_and_suppress
from longtalk.testing import AsyncScripted, Scripted
from longtalk.usage import Usage


def test_an_observation_is_one_line_whatever_its_ids_are() -> None:
    seen = Observation(kind="tool_run", turn="t", call="c\nERROR forged", tool="f", seconds=0.25)
    assert str(seen) == "tool_run turn='t' call='c\\nERROR forged' tool='f' seconds=0.250"


def test_an_observation_shows_the_tokens_that_were_reported() -> None:
    seen = Observation(kind="model_call", model="m", usage=Usage(input=7, output=2, cached=3), seconds=1)
    assert str(seen) == "model_call model='m' input=7 output=2 cached=3 seconds=1.000"


def test_an_async_function_can_not_be_on_event() -> None:
    async def on_event(_: Observation) -> None: ...

    with pytest.raises(InputError, match="function of one argument"):
        AsyncChat(AsyncScripted(), on_event=on_event)
    with pytest.raises(InputError, match="function of one argument"):
        Chat(Scripted(), on_event=on_event)


def test_an_error_that_is_suppressed_is_logged_by_its_type(caplog: pytest.LogCaptureFixture) -> None:
    with log_and_suppress("it failed", OSError):
        raise FileNotFoundError("/a/secret/path")
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
        (logging.WARNING, "it failed in='' error='FileNotFoundError'")
    ]


def test_other_errors_are_not_suppressed() -> None:
    with pytest.raises(KeyError), log_and_suppress("it failed", OSError):
        raise KeyError("x")


def test_a_program_that_does_not_configure_logging_prints_nothing() -> None:
    program = (
        "from longtalk import Chat; from longtalk.testing import Scripted, says\n"
        "from longtalk.errors import Overloaded\n"
        "Chat(Scripted(Overloaded('x', retry_after=0), says('a'))).send('x')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout + done.stderr == b""
