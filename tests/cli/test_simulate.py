"""`longtalk simulate` as a person uses it: files, stored conversations, policies as text, tables and JSON."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from longtalk import (
    Brief,
    Chat,
    Combine,
    Conversation,
    Economy,
    InputError,
    KeepAll,
    KeepLast,
    Memory,
    Recall,
    TokenBudget,
)
from longtalk.cli.command_flags import commands
from longtalk.cli.simulate import describe_cheapest, plot
from longtalk.policies import DigestTools, Policy, Summarize, WindowShare
from longtalk.policies.notation import format_policy, parse_policy
from longtalk.simulation.compare import POLICIES, simulate, transcript_of
from longtalk.testing import Scripted, says
from tests.cli.helpers import Terminal, longtalk, store_at

CHEAP = "openai-chat:gpt-5.4"
PAGE = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text()


def messages(turns: int, words: int = 100) -> list[dict[str, str]]:
    pairs = [(f"And bar {i}?", f"Bar {i}: {'slowly ' * words}") for i in range(turns)]
    said = [text for pair in pairs for text in pair]
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(messages(40)))
    return path


def run(*arguments: str | Path, said: bytes = b"") -> Result:
    done = CliRunner().invoke(commands, ["simulate", *map(str, arguments)], input=said)
    assert done.exception is None or isinstance(done.exception, SystemExit | InputError), done.exception
    return done


def lines(*arguments: str | Path, said: bytes = b"") -> list[list[str]]:
    done = run(*arguments, said=said)
    assert done.exit_code == 0, done.output
    return [line.split("\t") for line in done.stdout.splitlines()]


def objects(*arguments: str | Path) -> list[Any]:
    return [json.loads(line) for line in run(*arguments, "--json").stdout.split("\n") if line]


def stored(path: str, name: str, *pairs: tuple[str, str]) -> Conversation:
    held = Conversation(name, model=Scripted(*[says(answer) for _, answer in pairs]), store=store_at(path))
    for asked, _ in pairs:
        held.send(asked)
    return held


# What is played


def test_messages_are_played_under_some_policies_with_two_models(file: Path) -> None:
    found = lines(file)
    names = [*map(format_policy, POLICIES), "optimum"]
    assert [row[:2] for row in found] == [
        [model, name] for model in ("anthropic:claude-sonnet-5", CHEAP) for name in names
    ]
    assert {len(row) for row in found} == {10}
    assert [row[9] for row in found if row[1] == "optimum"] == ["1.00", "1.00"]


def test_a_stored_conversation_is_played(store: str) -> None:
    stored(store, "lesson", ("How?", "Slowly."), ("And then?", "Faster."))
    time.sleep(0.002)  # Times have milliseconds, and without an id the last conversation is played.
    stored(store, "other", ("Hello!", "Hi."))
    assert objects("lesson", "--store", store, "-m", CHEAP)[0]["totals"]["turns"] == 2
    assert objects("--store", store, "-m", CHEAP)[0]["totals"]["turns"] == 1


def test_another_branch_can_be_played(tmp_path: Path, environment: dict[str, str]) -> None:
    path = str(tmp_path / "talks.db")
    held = stored(path, "lesson", ("How?", "Slowly."))
    held.fork(name="aside")
    held.note("Something happened", source="app")
    assert objects("lesson", "--store", path, "--branch", "aside", "-m", CHEAP)[0]["totals"]["turns"] == 1
    done = longtalk("simulate", "lesson", "--store", path, "--branch", "none", environment=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert "has no branch 'none'" in done.stderr


def test_a_state_is_played(tmp_path: Path) -> None:
    path = tmp_path / "ada.talk"
    path.write_bytes(Chat(Scripted(says("Hi."))).send("Hello!").state)
    assert [row[5:7] for row in lines(path, "-m", CHEAP, "-p", "KeepAll()")] == [["0", "0"]] * 2


def test_standard_input_is_played() -> None:
    said = json.dumps({"model": "gpt-5.4", "messages": messages(2)}).encode()
    assert {row[0] for row in lines("-", said=said)} == {CHEAP}


def test_a_conversation_is_simulated_with_its_own_models(tmp_path: Path) -> None:
    path = tmp_path / "talks.db"
    for model in (CHEAP, "ollama:llama3.2", "anthropic:claude-sonnet-5", CHEAP):
        provider = Scripted(says("Hi."))
        provider.label = model
        Conversation("lesson", model=provider, store=store_at(path)).send("Hello!")
    assert list(dict.fromkeys(row[0] for row in lines("lesson", "--store", path))) == [
        CHEAP,
        "anthropic:claude-sonnet-5",
    ]


def test_a_file_goes_before_a_conversation_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored("talks.db", "lesson", ("How?", "Slowly."))
    Path("lesson").write_text(json.dumps(messages(3)))
    assert objects("lesson", "--store", "talks.db", "-m", CHEAP)[0]["totals"]["turns"] == 3
    Path("lesson").unlink()
    Path("lesson").mkdir()
    assert objects("lesson", "--store", "talks.db", "-m", CHEAP)[0]["totals"]["turns"] == 1


def test_the_system_text_of_a_stored_conversation_counts(tmp_path: Path) -> None:
    with store_at(tmp_path / "talks.db") as store:
        Conversation("talk", model=Scripted(says("So.")), store=store).send("How?", system="Be brief. " * 50)
    sizes = [
        objects("talk", "--store", tmp_path / "talks.db", "-m", CHEAP, *more)[0]["calls"][0]["tokens"]
        for more in ((), ("-s", "Be brief. " * 50), ("-s", ""))
    ]
    assert sizes[0] == sizes[1] > sizes[2]


def test_the_system_text_counts(file: Path) -> None:
    bare, told = (
        objects(file, "-m", CHEAP, *more)[0]["calls"][0]["tokens"] for more in ((), ("-s", "Be brief. " * 50))
    )
    assert told > bare + 100


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "the file is empty"),
        (b"[]", "the file contains no messages"),
        (b'[{"role": "user", "content": "Hi."}]', "the conversation has no answer to a message"),
        (b'{"messages": [{"role": "user", "content": "Hi."}]}\n' * 2, "contains 2 conversations"),
        (b"Hello!", "Can't read a conversation from"),
    ],
)
def test_input_that_can_not_be_simulated_is_reported_in_one_line(
    said: bytes, why: str, environment: dict[str, str]
) -> None:
    done = longtalk("simulate", "-", said=said, environment=environment)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert why in done.stderr


def test_what_is_not_there_is_told(environment: dict[str, str], file: Path) -> None:
    done = longtalk("simulate", "none.json", environment=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert "File not found. Conversation 'none.json' not found." in done.stderr
    done = longtalk("simulate", environment=environment)
    assert "This store has no conversations: check --store and --owner." in done.stderr
    done = longtalk("simulate", file, "-m", "ollama:none", environment=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert "The model 'ollama:none' is unknown" in done.stderr


def test_an_empty_conversation_is_reported(tmp_path: Path, environment: dict[str, str]) -> None:
    path = tmp_path / "talks.db"
    held = stored(str(path), "lesson", ("How?", "Slowly."))
    held.rewind(held.history()[0].id)
    done = longtalk("simulate", "lesson", "--store", path, environment=environment)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "nothing to simulate" in done.stderr


# Policies as text


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("KeepLast(6)", KeepLast(6)),
        (" KeepLast( limit = 6, sliding=True ) ", KeepLast(6, sliding=True)),
        ("Economy", Economy()),
        ("TokenBudget(8_000, to=None, digest=DigestTools(keep=3))", TokenBudget(8_000, digest=DigestTools(keep=3))),
        ("WindowShare(0.5)", WindowShare(0.5)),
        ("Memory()", Memory()),
        ("Memory(brief=Brief(100), recall=500)", Memory(brief=Brief(100), recall=500)),
    ],
)
def test_a_policy_is_written_as_in_python(text: str, policy: Policy) -> None:
    assert parse_policy(text) == policy


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Summarize(8_000, to=2_000), "Summarize(8_000, to=2_000)"),
        (Combine(KeepLast(20), TokenBudget(8_000)), "Combine(KeepLast(20), TokenBudget(8_000))"),
        (TokenBudget(900, digest=DigestTools()), "TokenBudget(900, digest=DigestTools())"),
        (WindowShare(0.5), "WindowShare(share=0.5)"),
        (KeepLast(6, sliding=True), "KeepLast(6, sliding=True)"),
        (Memory(), "Memory()"),
        (Memory(limit=8_000, capture="tool"), "Memory(limit=8_000, capture='tool')"),
        (Memory(recall=Recall(500, gate=False)), "Memory(recall=Recall(budget=500, gate=False))"),
        (Combine(KeepLast(20), Memory(Brief(90))), "Combine(KeepLast(20), Memory(brief=Brief(budget=90)))"),
    ],
)
def test_a_policy_is_shown_as_it_can_be_written(policy: Policy, text: str) -> None:
    assert format_policy(policy) == text
    assert repr(parse_policy(text)) == repr(policy)


@pytest.mark.parametrize("policy", POLICIES, ids=format_policy)
def test_what_json_calls_a_policy_can_be_written(policy: Policy) -> None:
    assert parse_policy(format_policy(policy)) == policy


@pytest.mark.parametrize(
    "text",
    [
        "",
        "KeepLast",
        "KeepLast(",
        "KeepLast()",
        "KeepLast(0)",
        "KeepLast(-1)",
        "KeepLast('6')",
        "KeepLast(6, to=7)",
        "KeepLast(6, 3, False, 1)",
        "KeepLast(limit=6, limit=6)",
        "KeepLast(*[6])",
        "KeepLast(**{'limit': 6})",
        "KeepLast(1 + 5)",
        "KeepLast(6).limit",
        "KeepLast(6)()",
        "TokenBudget(9, digest=6)",
        "Combine(6)",
        "DigestTools()",
        "Brief()",
        "Memory('tool')",
        "Memory(capture='magic')",
        "Memory(brief=Recall())",
        "Compactor(1, 2, 3)",
        "6",
        "keep_last",
        "__import__('os').system('true')",
        "().__class__",
        "lambda: 1",
        "(x := 1)",
        "f'{1}'",
        "KeepLast(6)\0",
        "\x1b[31mKeepLast(6)",
        "(" * 400 + "1" + ")" * 90,
        "(" * 240 + "1" + ")" * 240,
        "-" * 490 + "1",
        "Combine(" * 60 + ")" * 59,
        "Combine(" * 100_000,
        "9" * 6_000,
    ],
    ids=lambda text: text[:20],
)
def test_another_text_is_an_error_that_says_what_there_is(text: str) -> None:
    with pytest.raises(InputError, match=r"is not a policy: .+[.?] Examples: KeepAll\(\)") as raised:
        parse_policy(text)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 600


def test_a_wrong_policy_is_wrong_usage(file: Path, environment: dict[str, str]) -> None:
    done = longtalk("simulate", file, "-p", "__import__('os')", environment=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Examples: KeepAll()" in done.stderr


def test_given_policies_are_played_in_order(file: Path) -> None:
    given = ("-p", "TokenBudget(4_000)", "-p", "Combine(KeepLast(20), Economy)", "-m", CHEAP)
    assert [row[1] for row in lines(file, *given)] == [
        "TokenBudget(4_000)",
        "Combine(KeepLast(20), Economy())",
        "optimum",
    ]


# What is shown


def test_json_has_each_call(file: Path) -> None:
    keep, economy, best = objects(file, "-m", "anthropic:claude-sonnet-5", "-p", "KeepAll()", "-p", "Economy()")
    assert set(keep) == {"model", "policy", "totals", "calls", "receipts", "problem"}
    assert (keep["policy"], best["policy"], best["totals"]["ratio"]) == ("KeepAll()", "optimum", 1.0)
    assert set(keep["calls"][0]) == {
        "entry", "turn", "tokens", "cached", "written", "output", "cost", "summary", "begins"
    }  # fmt: skip
    for play in (keep, economy, best):
        assert play["totals"]["tokens"] == sum(call["tokens"] for call in play["calls"])
        assert play["totals"]["cost"] == pytest.approx(sum(call["cost"] for call in play["calls"]))
        assert play["totals"]["calls"] == len(play["calls"]) == 40 + play["totals"]["summaries"]
    assert len(economy["receipts"]) == economy["totals"]["epochs"] > 0


def test_an_unknown_cost_is_printed_as_a_dash(
    file: Path, tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "models.json"
    own.write_text('{"ollama:talker-2": {"window": 64000}}')
    environment = {**environment, "LONGTALK_MODELS": str(own)}
    done = longtalk("simulate", file, "-m", "ollama:talker-2", environment=environment)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert {(row[7], row[8]) for row in rows} == {("-", "-")}
    assert all(float(row[9]) > 0 for row in rows)
    monkeypatch.setenv("LONGTALK_MODELS", str(own))
    assert {each["totals"]["cost"] for each in objects(file, "-m", "ollama:talker-2")} == {None}


def test_an_incomplete_simulation_is_reported(tmp_path: Path, file: Path, environment: dict[str, str]) -> None:
    own = tmp_path / "models.json"
    own.write_text('{"ollama:tiny": {"window": 300, "prices": {"input": 1, "output": 1}}}')
    file.write_text(json.dumps([*messages(1, 10), *messages(2, 10)[2:], {"role": "user", "content": "word " * 900}]))
    with_answer = [*json.loads(file.read_text()), {"role": "assistant", "content": "Well."}]
    file.write_text(json.dumps(with_answer))
    given = ("simulate", file, "-m", "ollama:tiny", "-p", "KeepAll()")
    done = longtalk(*given, environment={**environment, "LONGTALK_MODELS": str(own)})
    assert done.returncode == 0
    assert [line.split("\t")[7:] for line in done.stdout.splitlines()] == [["-", "-", "-"]] * 2
    assert "KeepAll() with ollama:tiny stopped after 2 calls: The request is too long for" in done.stderr


def test_a_plot_has_a_block_for_each_value() -> None:
    assert plot([1, 4, 8, 5], 8, 10) == "▁▄█▅"
    assert plot([0, 8], 8, 10) == "▁█"


def test_a_plot_of_many_values_has_the_largest_of_neighbours() -> None:
    assert plot([1, 2, 3, 4, 5, 6, 7, 8], 8, 4) == "▂▄▆█"
    assert len(plot(range(1_000), 1_000, 33)) == 33


def test_nothing_is_nothing() -> None:
    assert plot([], 0, 10) == ""
    assert plot([0], 0, 10) == "▁"


def test_a_terminal_shows_what_the_page_shows(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands and the screen in docs/simulate.md."""
    block = re.search(r"^```text\n\$ (?P<made>.*)\n\$ longtalk (?P<command>.*)\n(?P<screen>(?s:.*?))```", PAGE, re.M)
    assert block is not None
    monkeypatch.chdir(tmp_path)
    subprocess.run(["sh", "-c", block["made"]], check=True)
    terminal = Terminal(shlex.split(block["command"]), {**environment, "COLUMNS": "100"})
    screen = [line.rstrip() for line in terminal.rest().splitlines()]
    assert terminal.exit_code() == 0
    terminal.close()
    assert [*screen[:-1], ""] == [*block["screen"].splitlines(), ""]
    assert screen[-1].startswith("The ratio compares")


def test_a_terminal_shows_how_many_replays_are_done(file: Path, environment: dict[str, str]) -> None:
    terminal = Terminal(["simulate", str(file), "-m", CHEAP, "-p", "KeepAll()"], environment | {"TERM": "xterm"})
    terminal.wait_for("0 of 2 replays")
    terminal.rest()
    assert terminal.exit_code() == 0
    terminal.close()


def test_each_replay_is_reported_when_it_is_done() -> None:
    counts: list[int] = []
    recorded = transcript_of(json.dumps(messages(2)).encode())
    simulate(recorded, models=[CHEAP], policies=[KeepAll(), KeepLast(2)], progress=counts.append)
    assert counts == [1, 2, 3]


def test_nothing_is_fetched(file: Path, environment: dict[str, str]) -> None:
    """No model is asked, and nothing that could ask one is imported."""
    code = (
        "import socket, sys\n"
        "def refuse(*_, **__): raise AssertionError('a connection')\n"
        "socket.socket.connect = socket.create_connection = refuse\n"
        "from longtalk.cli.command_flags import commands\n"
        "commands.main(sys.argv[1:], standalone_mode=False)\n"
        "assert not {'httpx2', 'cryptography'} & sys.modules.keys()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "simulate", str(file)], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 14), done.stderr


# What is best


def test_the_closing_sentence_names_the_cheapest_policy(file: Path) -> None:
    done = run(file, "-m", CHEAP, "-p", "KeepAll()", "-p", "KeepLast(2)")
    costs = [each["totals"]["cost"] for each in objects(file, "-m", CHEAP, "-p", "KeepAll()", "-p", "KeepLast(2)")]
    name = "KeepLast(2)" if costs[1] < costs[0] else "KeepAll()"
    saved = f"saves {1 - costs[1] / costs[0]:.0%} against" if name == "KeepLast(2)" else ""
    assert f"Cheapest for this conversation: {name}, {saved}" in done.stderr
    assert "Cheapest" not in run(file, "-m", CHEAP, "-p", "KeepAll()").stderr
    among = run(file, "-m", CHEAP, "-p", "KeepLast(2)", "-p", "KeepLast(9)").stderr
    assert "Cheapest for this conversation: Keep" in among


def test_beside_a_policy_that_forgets_the_cheapest_that_does_not_is_named() -> None:
    def cost(total: float) -> Any:
        return SimpleNamespace(cost=SimpleNamespace(total=total))

    names = ["KeepAll()", "KeepLast(10)", "Memory()", "optimum"]
    closing = describe_cheapest(names, [cost(2.0), cost(1.0), cost(1.5), cost(1.2)])
    assert closing.endswith("saves 50% against sending everything. It forgets older messages; of those that don't, "
                            "Memory() saves 25%.")  # fmt: skip
    closing = describe_cheapest(names, [cost(2.0), cost(1.0), cost(2.5), cost(1.2)])
    assert closing.endswith("of those that don't, sending everything is the cheapest.")


def test_a_plot_is_written_as_svg_and_not_overwritten(file: Path, tmp_path: Path) -> None:
    import xml.etree.ElementTree as ET

    picture = tmp_path / "tokens.svg"
    given = (file, "-m", CHEAP, "-p", "KeepAll()", "--plot", picture)
    assert run(*given).exit_code == 0
    root = ET.fromstring(picture.read_text())
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    assert "already exists" in str(run(*given).exception)
    assert run(*given, "--force", "-m", "anthropic:claude-sonnet-5").exit_code == 0
    assert "anthropic:claude-sonnet-5 KeepAll()" in picture.read_text()
    assert "must end in .svg or .png" in str(run(file, "--plot", tmp_path / "tokens.gif").exception)


def test_a_plot_is_written_as_png(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = tmp_path / "tokens.png"
    given = (file, "-m", CHEAP, "-p", "KeepAll()", "--plot", picture)
    assert run(*given).exit_code == 0
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(data[16:20], "big") == 1_620
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    assert "longtalk[plot]" in str(run(*given, "--force").exception)
    assert picture.read_bytes() == data


@pytest.mark.parametrize(
    ("given", "meant"),
    [(("-p", "Keeplst(3)"), "KeepLast"), (("-m", "anthropic:claude-sonet-5"), "anthropic:claude-sonnet-5")],
)
def test_mistyped_policies_and_models_are_suggested(file: Path, given: tuple[str, str], meant: str) -> None:
    done = run(file, *given)
    assert f"Did you mean {meant!r}?" in (str(done.exception) + done.stderr)


def test_models_are_named_as_for_a_question(file: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    longtalk("config", "alias", "mine", CHEAP, environment=environment)
    for name, label in (
        ("claude-sonnet-5", "anthropic:claude-sonnet-5"),
        ("mine", CHEAP),
        ("local:0.5b", "local:0.5b"),
    ):
        done = longtalk("simulate", file, "-m", name, "-p", "KeepAll()", environment=environment)
        rows = [line.split("\t") for line in done.stdout.splitlines()]
        assert ({row[0] for row in rows}, done.returncode) == ({label}, 0), done.stderr
        assert all(row[7] != "-" for row in rows)
