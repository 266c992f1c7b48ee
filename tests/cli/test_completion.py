"""Shell completion with a real bash, and the help that every command has."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from longtalk import Conversation
from longtalk.cli.service_flags import commands
from longtalk.testing import Scripted, says
from tests.cli.helpers import LONGTALK, longtalk, store_at


def complete(line: str, environment: dict[str, str]) -> list[str]:
    """Return what bash offers after this line, whose last word is not complete."""
    script = (
        'eval "$(longtalk completion bash)"\n'
        f"COMP_LINE={shlex.quote(line)}; COMP_POINT=${{#COMP_LINE}}\n"
        "_longtalk_completion longtalk\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    path = f"{Path(LONGTALK[0]).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], env={**environment, "PATH": path}, capture_output=True, text=True, timeout=120
    )
    assert not done.stderr or "compopt: not currently executing completion function" in done.stderr, done.stderr
    return [each for each in done.stdout.split("\n") if each]


@pytest.fixture
def known(tmp_path: Path, environment: dict[str, str]) -> dict[str, str]:
    """Return an environment with a store that has conversations with unusual names."""
    store = store_at(tmp_path / "talks.db")
    for name in ("my trip, and more", "it's", "a:b"):
        Conversation(name, model=Scripted(says("Hi.")), store=store).send("Hello!")
    Conversation("my trip, and more", model=Scripted(says("Hi.")), store=store).fork(name="by sea")
    store.close()
    return {**environment, "LONGTALK_STORE": str(tmp_path / "talks.db")}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("longtalk show my", r"my\ trip\,\ and\ more"),
        (r"longtalk show my\ tr", r"my\ trip\,\ and\ more"),
        ('longtalk show "my tr', "my trip, and more"),
        ("longtalk show it", r"it\'s"),
        (r"longtalk show my\ trip\,\ and\ more -b by", r"by\ sea"),
        ("longtalk show a:", "b"),
        ("longtalk show 'a:", "a:b"),
        ("longtalk ask -m anthropic:claude-sonnet-4-6", "claude-sonnet-4-6"),
        ("longtalk models default claude-sonnet-4-6", "claude-sonnet-4-6"),
        ("longtalk models def", "default"),
        ("longtalk simulate my", r"my\ trip\,\ and\ more"),
    ],
)
def test_bash_gets_values_quoted_as_the_line_is(line: str, found: str, known: dict[str, str]) -> None:
    assert complete(line, known) == [found.replace(r"\,", ",")]


def test_entries_are_completed_with_their_texts(known: dict[str, str]) -> None:
    asked = {"_LONGTALK_COMPLETE": "zsh_complete", "COMP_WORDS": "longtalk rewind a:b ", "COMP_CWORD": "3"}
    done = subprocess.run(LONGTALK, env={**known, **asked}, capture_output=True, text=True, timeout=120)
    kind, last, text, *first = done.stdout.splitlines()
    assert (kind, last[-2:], text, first[2]) == ("plain", "-1", "assistant: Hi.", "user: Hello!")
    assert complete(f"longtalk edit a:b {last}", known) == [last]
    assert complete(f"longtalk edit a:b {last} {last}", known) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("longtalk ask -m local -o temper", ["temperature"]),
        ("longtalk -m openai:m -o max_out", ["max_output_tokens"]),
        ("longtalk chat -o stop_s", []),
        ("longtalk chat -m anthropic:m -o stop_s", ["stop_sequences"]),
        ("longtalk ask -m local -o temperature t", []),
    ],
)
def test_bash_completes_the_options_of_the_model(line: str, found: list[str], environment: dict[str, str]) -> None:
    assert complete(line, environment) == found


def test_bash_completes_commands_ids_and_branches(tmp_path: Path, environment: dict[str, str]) -> None:
    store = store_at(tmp_path / "talks.db")
    talk = Conversation("lesson-7", model=Scripted(says("Hi.")), store=store)
    talk.send("Hello!")
    talk.fork(name="aside")
    store.close()
    known = {**environment, "LONGTALK_STORE": str(tmp_path / "talks.db")}
    assert complete("longtalk bran", known) == ["branches"]
    for command in ("fork", "show", "ask --id"):
        assert complete(f"longtalk {command} les", known) == ["lesson-7"], command
    assert complete("longtalk fork lesson-7 --branch a", known) == ["aside"]


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --")])
def test_each_shell_has_a_script(shell: str, word: str) -> None:
    assert word in CliRunner().invoke(commands, ["completion", shell]).stdout


def test_without_a_store_no_id_is_completed(tmp_path: Path) -> None:
    from longtalk.cli.completion import complete_ids

    command = commands.commands["fork"]
    context = click.Context(command)
    context.params["store"] = str(tmp_path / "none.db")
    assert complete_ids(context, command.params[0], "") == []


def walk(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from walk(command, *path, name)


@pytest.mark.parametrize(("name", "command"), list(walk(commands)))
def test_each_command_has_an_example_in_its_help(name: str, command: click.Command) -> None:
    examples = (command.help or "").partition("\b\n")[2]
    assert f"longtalk {name}" in examples


@pytest.mark.parametrize(
    ("typed", "offered"), [("logs", "longtalk show"), ("prompt", "longtalk ask"), ("shwo", "show")]
)
def test_names_of_other_tools_and_mistyped_ones_lead_to_the_command(typed: str, offered: str) -> None:
    done = CliRunner().invoke(commands, [typed])
    assert done.exit_code == 2
    assert offered in done.stderr


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("longtalk config set def", ["default_model"]),
        ("longtalk config set-key anth", ["anthropic"]),
        ("longtalk config alias fr", ["french"]),
        ("longtalk config unset fr", ["french"]),
        ("longtalk ask -m fren", ["french"]),
        ("longtalk -m claude-sonnet-4-6", ["claude-sonnet-4-6"]),
        ("longtalk -m anthropic:claude-sonnet-4-6", ["claude-sonnet-4-6"]),
        ("longtalk --schem", ["--schema"]),
    ],
)
def test_bash_completes_models_settings_and_providers(line: str, found: list[str], environment: dict[str, str]) -> None:
    longtalk("config", "alias", "french", "-s", "Answer in French.", environment=environment)
    assert complete(line, environment) == found


@pytest.mark.parametrize("line", ["ask -f no", "-f no", "import no", "chat --store no", "simulate no"])
def test_the_shell_completes_the_names_of_files(line: str, environment: dict[str, str]) -> None:
    words = f"longtalk {line}".split(" ")
    asked = {"_LONGTALK_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(LONGTALK, env={**environment, **asked}, capture_output=True, text=True, timeout=120)
    assert "file,no" in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("longtalk ask -m local:", ["1.5b", "0.5b", "135m"]),
        ("longtalk chat -p Mem", [r"Memory\(\)"]),
        ("longtalk simulate -p KeepL", [r"KeepLast\(6\)"]),
        ("longtalk serve -p Econ", [r"Economy\(\)"]),
    ],
)
def test_bash_completes_local_models_and_policies(line: str, found: list[str], environment: dict[str, str]) -> None:
    assert complete(line, environment) == found


def test_after_local_a_file_can_be_completed(environment: dict[str, str]) -> None:
    asked = {"_LONGTALK_COMPLETE": "bash_complete", "COMP_WORDS": "longtalk -m local:./m", "COMP_CWORD": "2"}
    done = subprocess.run(LONGTALK, env={**environment, **asked}, capture_output=True, text=True, timeout=120)
    assert "file,local:./m" in done.stdout.splitlines()
