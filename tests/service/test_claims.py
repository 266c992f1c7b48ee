"""Which process runs a run, also when the clock is set or the machine has slept."""

from __future__ import annotations

import asyncio
import time

import pytest

from longtalk.service.claims import KIND, Claims
from longtalk.service.run import Run, RunName
from longtalk.service.runs import Runs
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.transcript.transcript import now

NAME = RunName("ada", "r")


class Clock:
    """The clocks of this machine. `sleep` lets one go on while the other stands still."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asleep, self.awake = 0.0, 0.0
        wall, monotonic = time.time, time.monotonic
        patch.setattr(time, "time", lambda: wall() + self.asleep + self.awake)
        patch.setattr(time, "monotonic", lambda: monotonic() + self.awake)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_after_a_jump_of_the_clock_claims_may_be_late_for_a_while(clock: Clock) -> None:
    claims = Claims(InMemoryStorage())
    assert not claims.may_be_late
    clock.awake += 3_600
    assert not claims.may_be_late
    clock.asleep += 150
    assert claims.may_be_late
    clock.awake += 29
    assert claims.may_be_late
    clock.awake += 2
    assert not claims.may_be_late
    clock.asleep -= 150
    assert not claims.may_be_late


def test_a_run_is_not_taken_over_before_its_process_could_renew_its_claim_after_a_jump(clock: Clock) -> None:
    ahead = 0
    storage = InMemoryStorage(lambda: now() + ahead)
    claim = Claims(storage).claim(NAME)
    assert claim is not None
    other, played = Runs(storage), list[Run]()

    async def play(run: Run) -> None:
        played.append(run)

    async def check() -> None:
        nonlocal ahead
        assert await other.is_running(NAME)
        # Its claim has expired, and it lives.
        ahead, clock.asleep = 150_000, 150
        assert storage.get(KIND, NAME.to_key()) is None
        assert await other.is_running(NAME)
        assert await other.take_over(NAME, play, parked=False) is None
        # It has not renewed it, so it is dead.
        clock.awake += 31
        assert not await other.is_running(NAME)
        await other.aclose()

    asyncio.run(check())
    assert played == []
