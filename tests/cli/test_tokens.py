"""`longtalk tokens` as a person uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from longtalk import Chat, Seal
from longtalk.cli.commands import commands
from longtalk.testing import Scripted, says
from longtalk.tokens import Estimator, Exact, counter_for, of_message

MESSAGES = [
    {"role": "system", "content": "You teach the violin."},
    {"role": "user", "content": "How do I hold the bow?"},
    {"role": "assistant", "content": "With a round thumb, and as lightly as you can."},
    {"role": "user", "content": "Thank you!"},
]


def run(*arguments: str | Path, said: bytes = b"") -> list[list[str]]:
    done = CliRunner().invoke(commands, ["tokens", *map(str, arguments)], input=said)
    assert done.exit_code == 0, done.output
    return [line.replace(",", "").split() for line in done.output.splitlines()]


def costs(counter: Estimator | Exact) -> list[int]:
    return [of_message(json.dumps(message).encode(), counter) for message in MESSAGES]


def test_text_is_counted_as_text(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("Bow, rosin, strings.\n")
    tokens = str(Estimator().count("Bow, rosin, strings.\n"))
    assert run(path) == [[tokens, str(path)]]
    assert run("-", said=path.read_bytes()) == [[tokens, "(standard", "input)"]]
    assert run(path, path)[-1] == [str(2 * int(tokens)), "together"]


def test_the_command_is_installed(tmp_path: Path) -> None:
    program = str(Path(sys.executable).parent / "longtalk")
    done = subprocess.run([program, "tokens", "-"], input="Hello!", capture_output=True, text=True, timeout=60)
    assert done.stdout.split()[0] == str(Estimator().count("Hello!"))


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(MESSAGES),
        json.dumps({"model": "m", "messages": MESSAGES}, indent=2),
        "\n".join(map(json.dumps, MESSAGES)) + "\n",
    ],
    ids=["a list", "a request", "lines"],
)
def test_messages_are_counted_one_by_one_and_told_by_role(content: str, tmp_path: Path) -> None:
    path = tmp_path / "messages.json"
    path.write_text(content)
    system, user, assistant, thanks = costs(Estimator())
    first, *roles = run(path)
    assert first == [str(system + user + assistant + thanks), str(path)]
    assert sorted(roles) == sorted(
        [
            [str(system), "system", "1", "message"],
            [str(user + thanks), "user", "2", "messages"],
            [str(assistant), "assistant", "1", "message"],
        ]
    )


def test_one_message_alone_is_a_message(tmp_path: Path) -> None:
    assert run("-", said=json.dumps(MESSAGES[1]).encode())[1][1:] == ["user", "1", "message"]


@pytest.mark.parametrize("content", ['{"a": 1}', "[1, 2]", "{ not json", '{"messages": 7}', "[not\njson]"])
def test_other_json_is_text(content: str) -> None:
    assert run("-", said=content.encode()) == [[str(Estimator().count(content)), "(standard", "input)"]]


def test_a_model_and_exactness_can_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "messages.json"
    path.write_text(json.dumps(MESSAGES))
    claude = counter_for("anthropic:claude-sonnet-5")
    assert run(path, "-m", "anthropic:claude-sonnet-5")[0][0] == str(sum(costs(claude)))
    assert run(path, "-m", "ollama:qwen3", "--exact")[0][0] == str(sum(costs(Exact("qwen"))))


def test_a_state_is_counted_by_role(tmp_path: Path) -> None:
    path = tmp_path / "x.talk"
    state = Chat(Scripted(says("With a round thumb."))).send("How do I hold the bow?").state
    path.write_bytes(state)
    (total, _), *roles = run(path)
    assert sorted(role[1] for role in roles) == ["assistant", "user"]
    assert int(total) == sum(int(role[0]) for role in roles)


def test_what_is_wrong_is_said_and_the_status_is_2(tmp_path: Path) -> None:
    garbage, sealed, damaged = tmp_path / "garbage", tmp_path / "sealed", tmp_path / "damaged"
    garbage.write_bytes(b"\xff\x00\xfe garbage")
    damaged.write_bytes(b"\x89TLK\x02 damaged")
    seal = Seal({"k": Seal.new_key()})
    sealed.write_bytes(Chat(Scripted(says("Hi."))).send("Hello!", seal=seal.to(owner="ada")).state)
    for arguments, said in (
        ([tmp_path / "nowhere"], "No such file"),
        ([tmp_path], "Is a directory"),
        ([garbage], "neither text nor messages"),
        ([sealed], "sealed"),
        ([damaged], "can't be read"),
        ([garbage, "--exact", "-m", "anthropic:claude-sonnet-5"], "no exact tokenizer 'claude'"),
        ([], "Missing argument"),
    ):
        done = CliRunner().invoke(commands, ["tokens", *map(str, arguments)])
        assert done.exit_code == 2
        assert said in done.output


def test_its_help_has_an_example() -> None:
    assert "longtalk tokens notes.md" in CliRunner().invoke(commands, ["tokens", "--help"]).output
