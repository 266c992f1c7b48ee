"""`ReplaceOldest`: its arguments, how it is recognized, and that its requests are valid."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from longtalk import InputError
from longtalk.policies import Compactor, OldEntry, OverTokens, ReplaceOldest
from longtalk.testing.policies import PolicyViolation, check_policy, transcript_of

MESSAGES = [
    {"role": role, "content": f"{i} {role} " + "and the arm is heavy " * 12}
    for i in range(20)
    for role in ("user", "assistant")
]


def shorten(earlier: str, entries: Sequence[OldEntry]) -> str:
    return " ".join([*earlier.split(), *(entry.text.split()[0] for entry in entries if entry.role == "user")])


def policy(write: Any = shorten) -> Compactor:
    return Compactor(OverTokens(900), (ReplaceOldest(write=write, length=100),), OverTokens(500))


def test_each_request_is_valid() -> None:
    played = check_policy(policy(), transcript_of(MESSAGES))
    assert played.epochs > 1
    assert played.requests == 20


def test_a_function_that_returns_no_text_fails_the_check() -> None:
    with pytest.raises(PolicyViolation, match="must return text"):
        check_policy(policy(lambda earlier, entries: None), transcript_of(MESSAGES))


def test_the_policy_is_recognized_in_another_process() -> None:
    code = "from tests.policies.test_replace_oldest import policy; print(repr(policy()))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == repr(policy())
    assert "shorten" in shown
    assert repr(policy()) != repr(policy(transcript_of))


@pytest.mark.parametrize(
    "settings", [{"write": "text"}, {"write": shorten, "length": 10}, {"write": shorten, "keep": -1}]
)
def test_a_wrong_argument_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ReplaceOldest(**settings)
