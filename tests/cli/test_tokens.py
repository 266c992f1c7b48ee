"""`longtalk tokens` as a person uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from longtalk import Chat, InputError, Seal, tool
from longtalk.cli.command_flags import commands
from longtalk.testing import Scripted, says
from longtalk.tokens import CheckedCounter, Estimator, Exact, count_message, count_preamble, counter_for
from tests.cli.helpers import Terminal, longtalk

MESSAGES = [
    {"role": "system", "content": "You teach the violin."},
    {"role": "user", "content": "How do I hold the bow?"},
    {"role": "assistant", "content": "With a round thumb, and as lightly as you can."},
    {"role": "user", "content": "Thank you!"},
]


def practice_plan(days: int, piece: str) -> list[str]:
    """A plan for practising."""
    return []


PLAN = tool(practice_plan)
TOLD = {"name": PLAN.name, "description": PLAN.description}
ANTHROPIC = {**TOLD, "input_schema": json.loads(PLAN.schema), "cache_control": {"type": "ephemeral"}}
OPENAI = {"type": "function", "function": {**TOLD, "parameters": json.loads(PLAN.schema), "strict": True}}


def invoke(*arguments: str | Path, said: bytes = b"") -> Result:
    return CliRunner().invoke(commands, ["tokens", *map(str, arguments)], input=said)


def run(*arguments: str | Path, said: bytes = b"") -> list[list[str]]:
    """The counts that are printed; how they were counted, which comes last, is left out."""
    done = invoke(*arguments, said=said)
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    *lines, how = done.stdout.splitlines()
    assert how.split()[0] in ("estimated,", "exact,")
    return [line.replace(",", "").split() for line in lines]


def parts(request: Any, model: str) -> dict[str, int]:
    """The rows of a request, by their first word."""
    return {row[1]: int(row[0]) for row in run("-", "-m", model, said=json.dumps(request).encode())}


def costs(counter: Estimator | Exact) -> list[int]:
    return [count_message(json.dumps(message).encode(), counter) for message in MESSAGES]


def test_text_is_counted_as_text(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("Bow, rosin, strings.\n")
    tokens = str(Estimator().count("Bow, rosin, strings.\n"))
    assert run(path) == [[tokens, str(path)]]
    assert run("-", said=path.read_bytes()) == [[tokens, "(standard", "input)"]]
    assert run(path, path)[-1] == [str(2 * int(tokens)), "total"]


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


@pytest.mark.parametrize("model", ["anthropic:claude-sonnet-5", "openai-chat:gpt-5.6", "ollama:qwen3"])
@pytest.mark.parametrize("form", [ANTHROPIC, OPENAI, {"type": "function", **OPENAI["function"]}])  # type: ignore[dict-item]
def test_the_system_text_and_the_tools_of_a_request_are_counted_on_their_own(form: Any, model: str) -> None:
    counter = counter_for(model)
    messages = [{"role": "user", "content": "How do I hold the bow?"}]
    found = parts({"system": "You teach the violin.", "tools": [form, form], "messages": messages}, model)
    assert found == {
        "(standard": sum(found.values()) - found["(standard"],
        "system": count_preamble("You teach the violin.", [], counter),
        "tools": count_preamble(None, [PLAN, PLAN], counter),
        "user": count_message(messages[0], counter),
    }


def test_a_request_of_the_responses_wire_is_counted_item_by_item() -> None:
    counter = counter_for("openai:gpt-5.6")
    call = {"type": "function_call", "call_id": "c", "name": "plan", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "ok"}
    said = {"role": "user", "content": "How do I hold the bow?"}
    found = parts({"instructions": "You teach.", "input": [said, call, result]}, "openai:gpt-5.6")
    assert found == {
        "(standard": sum(found.values()) - found["(standard"],
        "system": count_preamble("You teach.", [], counter),
        "user": count_message(said, counter),
        "function_call": count_message(call, counter),
        "function_call_output": count_message(result, counter),
    }


def test_a_system_text_in_blocks_is_the_text_in_them() -> None:
    blocks = [
        {"type": "text", "text": said, "cache_control": {"type": "ephemeral"}} for said in ("You teach.", "Well.")
    ]
    found = parts({"system": blocks, "messages": MESSAGES[1:]}, "anthropic:claude-sonnet-5")
    assert found["system"] == count_preamble("You teach.\nWell.", [], counter_for("anthropic:claude-sonnet-5"))


def test_a_request_with_no_messages_yet_still_has_its_preamble() -> None:
    assert sorted(parts({"messages": [], "tools": [ANTHROPIC], "system": "S"}, "gpt-5.6")) == [
        "(standard",
        "system",
        "tools",
    ]


def test_the_field_and_a_message_with_that_role_are_two_rows() -> None:
    said = json.dumps({"system": "Be brief.", "messages": MESSAGES}).encode()
    rows = [row[1:] for row in run("-", said=said)]
    assert ["system"] in rows
    assert ["system", "1", "message"] in rows


def test_an_empty_preamble_has_no_rows() -> None:
    for empty in ({"system": "", "tools": []}, {"system": None, "tools": None}):
        assert sorted(parts({"messages": MESSAGES[1:], **empty}, "gpt-5.6")) == ["(standard", "assistant", "user"]


def test_a_providers_own_tool_counts_by_what_is_set_in_it() -> None:
    few, more = (
        count_preamble(None, [{"type": "web_search_20250305", "name": "web_search", **more}], Exact("qwen"))
        for more in ({}, {"allowed_domains": ["violin.example", "cello.example"]})
    )
    assert 0 < few < more


def test_tools_that_are_none_are_refused() -> None:
    for tools in (7, ["plan"], {"plan": 1}):
        done = invoke("-", said=json.dumps({"messages": MESSAGES, "tools": tools}).encode())
        assert done.exit_code == 2
        assert "`tools` in (standard input)" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "how"),
    [
        ((), "estimated, tokenizer o200k"),
        (("-m", "anthropic:claude-sonnet-5"), "estimated, tokenizer claude"),
        (("-m", "ollama:qwen3", "--exact"), "exact, tokenizer qwen"),
    ],
)
def test_how_it_was_counted_is_said_last(arguments: tuple[str, ...], how: str) -> None:
    assert invoke("-", *arguments, said=b"Hello!").stdout.splitlines()[-1].strip() == how


def test_what_is_not_exact_about_messages_is_said() -> None:
    said = json.dumps(MESSAGES).encode()
    assert "by rule" in invoke("-", "-m", "ollama:qwen3", "--exact", said=said).stdout
    assert "by rule" not in invoke("-", "-m", "ollama:qwen3", said=said).stdout


@pytest.mark.parametrize(
    ("model", "family"), [("ollama:unknown", "cl100k"), ("openai-chat:unknown", "o200k"), ("unknown", "cl100k")]
)
def test_an_unknown_model_is_told_with_what_stands_in_for_it(model: str, family: str) -> None:
    done = invoke("-", "-m", model, said=b"Hello!")
    assert done.exit_code == 0
    assert model in done.stderr
    assert family in done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_a_known_model_needs_no_words() -> None:
    for model in ("local", "ollama:llama3.2", "Claude-Opus-4.7", "openai-chat:gpt-5.6"):
        assert invoke("-", "-m", model, said=b"Hello!").stderr == ""


def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    first, garbage, last = tmp_path / "first", tmp_path / "garbage", tmp_path / "last"
    first.write_text("Bow, rosin, strings.")
    garbage.write_bytes(b"\xff\x00\xfe")
    last.write_text("Peg.")
    done = invoke(first, tmp_path / "nowhere", garbage, last)
    assert done.exit_code == 2
    costs = [Estimator().count(path.read_text()) for path in (first, last)]
    assert [line.split() for line in done.stdout.splitlines()][:3] == [
        [str(costs[0]), str(first)],
        [str(costs[1]), str(last)],
        [str(sum(costs)), "total,", "2", "of", "4", "files"],
    ]
    problems = done.stderr.splitlines()
    assert [problem.startswith("longtalk: ") for problem in problems] == [True, True]
    assert "nowhere: No such file" in problems[0]
    assert "not UTF-8 text, chat messages" in problems[1]


def test_the_program_ends_with_status_2_too(tmp_path: Path) -> None:
    program = str(Path(sys.executable).parent / "longtalk")
    done = subprocess.run(
        [program, "tokens", "nowhere", "-"], input="Hello!", capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "(standard input)" in done.stdout
    assert done.stderr == "longtalk: Can't read nowhere: No such file or directory.\n"


def test_where_nothing_was_counted_nothing_is_printed(tmp_path: Path) -> None:
    assert invoke(tmp_path / "a", tmp_path / "b").stdout == ""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such a name")
def test_a_name_that_is_no_text_can_be_shown(tmp_path: Path) -> None:
    path = tmp_path / "b\udcffw"
    path.write_text("Peg.")
    assert run(path)[0][0] == str(Estimator().count("Peg."))


def test_files_that_can_not_be_counted_exit_with_status_2(tmp_path: Path) -> None:
    garbage, sealed, damaged = tmp_path / "garbage", tmp_path / "sealed", tmp_path / "damaged"
    garbage.write_bytes(b"\xff\x00\xfe garbage")
    damaged.write_bytes(b"\x89TLK\x02 damaged")
    seal = Seal({"k": Seal.new_key()})
    sealed.write_bytes(Chat(Scripted(says("Hi."))).send("Hello!", seal=seal.to(owner="ada")).state)
    for arguments, said in (
        ([tmp_path / "nowhere"], "No such file"),
        ([tmp_path], "Is a directory"),
        ([garbage], "not UTF-8 text, chat messages"),
        ([sealed], "sealed"),
        ([damaged], "can't be read"),
        ([garbage, "--exact", "-m", "anthropic:claude-sonnet-5"], "No exact tokenizer for 'claude'"),
    ):
        done = CliRunner().invoke(commands, ["tokens", *map(str, arguments)])
        assert done.exit_code == 2
        assert said in done.output


def test_without_a_file_the_pipe_is_counted_and_a_terminal_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert CliRunner().invoke(commands, ["tokens"], input="one two").stdout.split()[1:3] == ["(standard", "input)"]
    done = CliRunner().invoke(commands, ["tokens", "hello there"])
    assert "To count the tokens of a text, pipe it in." in done.stderr
    terminal = Terminal(["tokens"], {**os.environ, "TERM": "dumb"})
    assert "Name a file, or pipe a text in." in terminal.rest()
    assert terminal.exit_code() == 2


def test_the_help_of_tokens_has_an_example() -> None:
    assert "longtalk tokens notes.md" in CliRunner().invoke(commands, ["tokens", "--help"]).output


# What `longtalk.tokens` takes


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_may_be_a_mapping(message: dict[str, str]) -> None:
    cost = count_message(json.dumps(message).encode(), Estimator())
    assert count_message(message, Estimator()) == cost
    assert count_message(MappingProxyType(message), Estimator()) == cost


def test_bytes_that_are_no_json_count_by_their_size() -> None:
    frame = count_message({}, Estimator())
    assert count_message(b"zzz", Estimator()) == frame
    assert count_message(b"z" * 400, Estimator()) == frame + 100


def test_invalid_messages_are_rejected() -> None:
    endless: dict[str, Any] = {}
    endless["content"] = endless
    for wrong, said in (
        ("How do I hold the bow?", r"not str; .*counter\.count"),
        (None, "not NoneType"),
        ([MESSAGES[0]], "not list"),
        ({"role": "user", "content": object()}, "can't be written as JSON"),
        (endless, "can't be written as JSON"),
    ):
        with pytest.raises(InputError, match=said):
            count_message(wrong, Estimator())  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["o200k", "qwen", "claude"])
def test_tools_may_be_functions_or_what_requests_have(family: str) -> None:
    counter = Estimator(family)
    cost = count_preamble("You teach.", [PLAN], counter)
    for form in (practice_plan, ANTHROPIC, OPENAI, MappingProxyType(OPENAI)):
        assert count_preamble("You teach.", [form], counter) == cost
    with pytest.raises(InputError, match="A tool must be a function"):
        count_preamble(None, ["plan"], counter)  # type: ignore[list-item]


class Says:
    def __init__(self, number: Any) -> None:
        self.number = number

    def count(self, text: str) -> Any:
        return self.number


@pytest.mark.parametrize("number", [7, 7.4, 6.6])
def test_what_a_chats_counter_says_is_rounded(number: float) -> None:
    assert Chat(Scripted(says("Hi.")), counter=Says(number)).send("Hello!").text == "Hi."
    assert CheckedCounter(Says(number)).count("Hello!") == 7


@pytest.mark.parametrize("number", [None, "7", -3, float("nan"), float("inf"), 2**50])
def test_a_chats_counter_that_makes_no_sense_is_refused(number: Any) -> None:
    with pytest.raises(InputError, match="must return a positive number"):
        Chat(Scripted(says("Hi.")), counter=Says(number)).send("Hello!")


def test_a_chats_counter_can_count() -> None:
    with pytest.raises(InputError, match="`counter` must have a method"):
        Chat(Scripted(), counter=len)  # type: ignore[arg-type]


def test_an_alias_names_a_model(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("Bows need rosin.")
    longtalk("config", "alias", "mine", "anthropic:claude-sonnet-5", environment=environment)
    found = [
        longtalk("tokens", tmp_path / "a.md", "-m", name, environment=environment)
        for name in ("mine", "claude-sonnet-5", "anthropic:claude-sonnet-5")
    ]
    assert len({(done.stdout, done.stderr) for done in found}) == 1
    assert found[0].returncode == 0
