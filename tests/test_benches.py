"""Benches play to their end, say what they measured, and notice what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import (
    bill,
    copying,
    local,
    months,
    path,
    profile,
    recall,
    recall_index,
    recall_left_out,
    stream,
    traces,
    turns,
    turns_served,
)
from longtalk.memory.recall.config import Recalled
from longtalk.memory.recall.gain import Evidence
from longtalk.memory.recall.index import Weights
from longtalk.memory.recall.reranking import load_model
from longtalk.policies import Compactor, KeepAll, OverExchanges
from longtalk.wires import HTTP_WIRES
from tools.ranker import train


def goals(text: str) -> dict[str, Any]:
    said = json.loads(text.splitlines()[-1])
    known = ("bill", "copying", "local", "months", "profile", "recall", "recall_index", "stream", "traces")
    assert said["bench"] in (*known, "turns postgres", "turns redis")
    return {goal["name"]: goal for goal in said["goals"]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "traces.json"
    path.write_text(json.dumps([{"traj": messages} for messages in traces.generate_conversations(3)]))
    return path


def test_traces_are_played_from_a_file(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: traces.POLICIES[name] for name in ("keep all", "last 1", "300 tokens, digests")}
    monkeypatch.setattr(traces, "POLICIES", few)
    traces.main([str(file), "--limit", "2"])
    said = capsys.readouterr().out
    assert said.startswith("2 conversations")
    assert said.count("last 1 ") == len(HTTP_WIRES)
    assert goals(said)["violations"] == {"name": "violations", "value": 0, "goal": 0, "met": True}


def test_a_violation_is_counted_and_shown(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    helpless = Compactor(OverExchanges(1), (), OverExchanges(1))
    monkeypatch.setattr(traces, "POLICIES", {"keep all": KeepAll(), "helpless": helpless})
    traces.main([str(file)])
    said = capsys.readouterr().out
    assert "Violation: helpless on anthropic, conversation 0: The request is over 1 exchange" in said
    assert goals(said)["violations"]["value"] == 3 * len(HTTP_WIRES)
    assert not goals(said)["violations"]["met"]


def test_traces_that_are_made_up_are_the_same_each_time_and_use_tools() -> None:
    assert traces.generate_conversations(2) == traces.generate_conversations(2)
    roles = [message["role"] for messages in traces.generate_conversations(2) for message in messages]
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
    made = [json.loads(native) for native in traces.to_wire([*rounds, *rounds], "anthropic")]
    assert [message["content"][0].get("id") for message in made] == ["toolu_1", None, "toolu_2", None]
    assert [message["content"][0].get("tool_use_id") for message in made] == [None, "toolu_1", None, "toolu_2"]


def test_the_cost_of_a_profile_is_measured_on_few_conversations(capsys: pytest.CaptureFixture[str]) -> None:
    profile.main(["--conversations", "5", "10"])
    said = capsys.readouterr().out
    assert said.startswith("conversations   no profile")
    assert goals(said)["CPU time that a profile adds to a turn, ms"]["value"] > 0


@pytest.mark.slow
def test_bills_of_made_up_conversations_are_near_the_optimum(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Recall takes nine tenths of the time, and has its own test.
    monkeypatch.setattr(bill, "POLICIES", {name: each for name, each in bill.POLICIES.items() if name != "Memory"})
    monkeypatch.setattr(bill, "MEMORY_POLICIES", ("Memory, no recall",))
    bill.main(["--limit", "1"])
    found = goals(capsys.readouterr().out)
    assert 1.0 <= found["Economy against the optimum, average"]["value"] <= 1.05
    assert found["Economy against the optimum, worst"]["value"] <= 1.10
    assert found["Economy against cached replay, with tools, worst"]["value"] <= 1.02
    assert found["receipts, median error"]["value"] < 0.25
    assert found["Memory, no recall against the optimum, worst"]["value"] <= 1.05
    assert found["Memory, no recall against the optimum, long talks, average"]["value"] <= 0.95


@pytest.mark.slow
def test_the_bill_of_memory_with_recall_is_near_the_optimum(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: bill.POLICIES[name] for name in ("replay, cached", "Economy", "Memory")}
    monkeypatch.setattr(bill, "POLICIES", few)
    monkeypatch.setattr(bill, "MEMORY_POLICIES", ("Memory",))
    monkeypatch.setattr(bill, "MODELS", bill.MODELS[:1])
    bill.main(["--limit", "1"])
    found = goals(capsys.readouterr().out)
    assert found["Memory against the optimum, worst"]["value"] <= 1.05
    assert found["Memory against the optimum, long talks, average"]["value"] <= 0.95


def test_bills_are_made_of_each_kind_of_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bill, "MODELS", bill.MODELS[:1])
    (tmp_path / "agent.json").write_text(
        json.dumps([{"traj": messages} for messages in traces.generate_conversations(1)])
    )
    said = [{"role": ("user", "assistant")[i % 2], "content": "word " * 30, "time": None} for i in range(20)]
    (tmp_path / "talk.jsonl").write_text(json.dumps({"messages": said}))
    talk: dict[str, Any] = {"speaker_a": "Ada", "speaker_b": "Bo"}
    for number in (1, 2):
        talk[f"session_{number}_date_time"] = f"1:56 pm on {number} May, 2023"
        talk[f"session_{number}"] = [{"speaker": ("Ada", "Bo")[i % 2], "text": f"word {i}"} for i in range(6)]
    (tmp_path / "months.json").write_text(json.dumps([{"conversation": talk}]))
    bill.main([str(tmp_path / name) for name in ("agent.json", "talk.jsonl", "months.json")])
    text = capsys.readouterr().out
    for kind in ("agent: 1", "talk: 1", "months: 1", "months, own clock: 1"):
        assert f"{kind} conversations" in text
    assert len(goals(text)) == 10


def test_a_streamed_event_is_measured_on_each_wire(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "ROUNDS", 1)
    stream.main(["--events", "20"])
    found = goals(capsys.readouterr().out)
    assert set(found) == {f"{wire}, a turn against a bare read" for wire in HTTP_WIRES}
    assert all(goal["value"] > 0 for goal in found.values())


def test_recall_is_measured_on_files_of_both_kinds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [("D1:1", "Ada", "I play the violin."), ("D1:2", "Bo", "Since when?"), ("D1:3", "Ada", "Since school.")]
    said = {
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [{"dia_id": name, "speaker": who, "text": text} for name, who, text in turns],
    }
    asked = [{"question": "Since when does Ada play the violin?", "evidence": ["D1:1; D:1:03"], "category": 1}]
    people = tmp_path / "people.json"
    people.write_text(json.dumps([{"conversation": said, "qa": asked}]))
    messages = [
        {"id": 7, "role": "user", "time": "March-15-2024", "content": "Name a river in France."},
        {"id": 8, "role": "assistant", "time": None, "content": "The Loire is the longest river."},
    ]
    questions = [{"ability": "knowledge_update", "question": "Which river is the longest?", "evidence": [7, 8]}]
    chat = tmp_path / "chat.jsonl"
    chat.write_text(json.dumps({"messages": messages, "questions": questions}) + "\n")
    recall.main([str(people), str(chat)])
    said = capsys.readouterr().out
    found = goals(said)
    assert {found[f"{name}, recall at 300"]["value"] for name in ("LoCoMo", "BEAM")} == {100.0}
    floors = [line.split()[2] for line in said.splitlines() if line.startswith("floor (BM25)")]
    assert floors == ["100.0", "100.0"]
    monkeypatch.setattr(recall_index, "SIZES", (20, 300))
    recall_index.main([str(people), str(chat)])
    shares = [goal["value"] for name, goal in goals(capsys.readouterr().out).items() if "disk" in name]
    assert len(shares) == 2
    assert min(shares) > 0


@pytest.mark.slow
def test_recall_is_compared_with_what_the_other_conversations_would_choose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_STEPS", 2), ("DIALOGUES", 1), ("CHATS", 1)):
        monkeypatch.setattr(train, name, value)
    monkeypatch.setattr(recall_left_out, "list_variants", lambda: [Weights(pair=0.6)])
    things = ("violin", "bicycle", "garden", "kitchen", "novel", "holiday", "puppy", "guitar")
    talks = []
    for who, other in (("Ada", "Bo"), ("Cy", "Di"), ("Eve", "Fay"), ("Gus", "Hal"), ("Ira", "Jo")):
        turns = [
            (f"D1:{i}", (who, other)[i % 2], f"{who} and {other} like the {each}.") for i, each in enumerate(things)
        ]
        said = [{"dia_id": name, "speaker": speaker, "text": text} for name, speaker, text in turns]
        asked = [
            {"question": f"Does {who} like the {each}?", "evidence": [f"D1:{i}"], "category": 1}
            for i, each in enumerate(things)
        ]
        talks.append(
            {"conversation": {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": said}, "qa": asked}
        )
    path = tmp_path / "people.json"
    path.write_text(json.dumps(talks))
    recall.main(["--left-out", str(path)])
    said = capsys.readouterr().out
    ways = ("as shipped", "weights", "ranker", "features", "form", "gate")
    assert [said.count(f"\n{way:12}LoCoMo [") for way in ways] == [4, 2, 2, 2, 2, 2]
    shipped = [line for line in said.splitlines() if line.startswith("as shipped")]
    assert [line.endswith("LoCoMo [100.0, 100.0, 100.0, 100.0]") for line in shipped] == [True, False, True, False]


def test_the_gate_that_is_fitted_tells_questions_about_a_conversation_from_others() -> None:
    def observe(match: float, *, is_own: bool) -> recall_left_out.Observed:
        found = Evidence(match, match, 0.0, 1.0, names_speaker=False, refers_back=False)
        return recall_left_out.Observed(found, 0.5, is_own, lambda _: Recalled(), lambda _: 0.0)

    own, others = (
        [observe(0.6 + i / 50, is_own=True) for i in range(9)],
        [observe(0.2 + i / 50, is_own=False) for i in range(9)],
    )
    needs = recall_left_out.fit_gate([*own, *others])([*own, *others, observe(0.0, is_own=True)])
    assert min(needs[:9]) > 0.5 > max(needs[9:18])
    assert needs[18] == 0.5


def test_each_hand_set_weight_is_varied_alone() -> None:
    variants = list(recall_left_out.list_variants())
    fields = [name for name in Weights.__struct_fields__ if name != "part"]
    changed = [[name for name in fields if getattr(each, name) != getattr(Weights(), name)] for each in variants]
    assert changed == [[name] for name in fields for _ in range(2)]


def test_each_feature_of_the_ranker_and_each_kind_of_them_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_STEPS", 2), ("DIALOGUES", 1), ("CHATS", 1)):
        monkeypatch.setattr(train, name, value)
    shipped = load_model()
    found = recall_left_out.list_without_features(shipped)
    assert found.pop("none") is shipped
    for name, model in found.items():
        assert set(shipped.features) - set(model.features) == set(name.split(" + "))
    assert set(shipped.features) <= set(found)
    assert "own + borrowed + relative + place" in found


def test_each_kind_of_features_has_features_of_the_ranker() -> None:
    assert {name for kind in recall_left_out._KINDS for name in kind} <= set(load_model(by_meaning=True).features)


def test_recall_without_data_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    recall.main([])
    said = capsys.readouterr().out
    assert said.startswith("No data")
    assert goals(said) == {}


@pytest.mark.slow
def test_a_conversation_of_months_is_bounded_and_remembers(capsys: pytest.CaptureFixture[str]) -> None:
    months.main(["--turns", "600"])
    found = goals(capsys.readouterr().out)
    # How long a turn takes is for the bench to say.
    assert [goal["met"] for name, goal in found.items() if "CPU" not in name] == [True] * 4


@pytest.mark.parametrize("store", ["postgres", "redis"])
def test_a_turn_on_a_server_is_two_trips_however_long_the_conversation(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(turns_served, "SIZES", (5, 60))
    monkeypatch.setattr(turns_served, "ROUNDS", 1)
    turns.main(["--store", store])
    found = goals(capsys.readouterr().out)
    assert [found[f"round trips of a {how} turn"]["value"] for how in ("warm", "cold")] == [2, 4]


def test_copies_are_counted_and_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for more in ([], ["--to", "postgres"], ["--to", f"{tmp_path}/middle/"]):
        copying.main(["--count", "25", *more])
        said = capsys.readouterr().out
        assert goals(said)["identical conversations"] == {
            "name": "identical conversations",
            "value": 25,
            "goal": 25,
            "met": True,
        }
    assert "from SQLite to JSONL" in said


def test_the_path_of_a_turn_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    path.main()
    *table, goals = capsys.readouterr().out.splitlines()
    assert [row.split("  ")[0] for row in table[2:]] == ["a state", "SQLite", "SQLite with Memory"]
    assert all(figure["value"] > 10 for figure in json.loads(goals)["goals"])


def test_the_exam_of_local_models_counts_what_is_right_and_in_which_person() -> None:
    assert local.is_right("You live in bergen.", "Bergen")
    assert local.is_in_right_person("Your name is Ada.")
    assert not local.is_in_right_person("My name is Ada, and you?")
    assert not local.is_in_right_person("Ada.")
    assert all(len(facts) == 20 for facts in local.FACTS)


@pytest.mark.slow
def test_the_exam_examines_models_that_are_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "GOALS", {"135m": {"facts": 40}})
    local.main(["--limit", "1", "--parts", "facts", "tools"])
    said = capsys.readouterr().out
    assert "of   2   goal 2" in said
    assert goals(said)["135m, facts"]["goal"] == 2


def test_the_exam_without_weights_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LONGTALK_CACHE", str(tmp_path))
    local.main([])
    assert capsys.readouterr().out.startswith("No weights")
