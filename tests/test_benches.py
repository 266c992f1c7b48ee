"""Benches play to their end, say what they measured, and notice what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import traces
from longtalk.policies import Compactor, KeepAll, OverExchanges
from longtalk.wires import WIRES


def goals(text: str) -> dict[str, Any]:
    said = json.loads(text.splitlines()[-1])
    assert said["bench"] == "traces"
    return {goal["name"]: goal for goal in said["goals"]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "traces.json"
    path.write_text(json.dumps([{"traj": messages} for messages in traces.made_up(3)]))
    return path


def test_traces_are_played_from_a_file(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: traces.POLICIES[name] for name in ("keep all", "last 1", "300 tokens, digests")}
    monkeypatch.setattr(traces, "POLICIES", few)
    traces.main([str(file), "--limit", "2"])
    said = capsys.readouterr().out
    assert said.startswith("2 conversations")
    assert said.count("last 1 ") == len(WIRES)
    assert goals(said)["violations"] == {"name": "violations", "value": 0, "goal": 0, "met": True}


def test_a_violation_is_counted_and_shown(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    helpless = Compactor(OverExchanges(1), (), OverExchanges(1))
    monkeypatch.setattr(traces, "POLICIES", {"keep all": KeepAll(), "helpless": helpless})
    traces.main([str(file)])
    said = capsys.readouterr().out
    assert "Violation: helpless on anthropic, conversation 0: over 1 exchange" in said
    assert goals(said)["violations"]["value"] == 3 * len(WIRES)
    assert not goals(said)["violations"]["met"]


def test_traces_that_are_made_up_are_the_same_each_time_and_use_tools() -> None:
    assert traces.made_up(2) == traces.made_up(2)
    roles = [message["role"] for messages in traces.made_up(2) for message in messages]
    assert {"system", "user", "assistant", "tool"} == set(roles)


def test_there_are_policies_of_every_kind() -> None:
    kinds = {type(policy).__name__ for policy in traces.POLICIES.values()}
    assert {"KeepAll", "KeepLast", "KeepMessages", "TokenBudget", "WindowShare", "Combine", "Compactor"} <= kinds
    assert len(traces.POLICIES) >= 14


def test_calls_that_share_an_id_are_told_apart_on_the_other_wire() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    rounds = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ]
    made = [json.loads(native) for native in traces.natives([*rounds, *rounds], "anthropic")]
    assert [message["content"][0].get("id") for message in made] == ["toolu_1", None, "toolu_2", None]
    assert [message["content"][0].get("tool_use_id") for message in made] == [None, "toolu_1", None, "toolu_2"]
