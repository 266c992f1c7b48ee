"""`longtalk models` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from longtalk.cli.command_flags import commands
from longtalk.models import registry as models
from tests.cli.helpers import Terminal, longtalk

FACTS = {
    "window": 64_000,
    "output_limit": 8_000,
    "cache": "automatic",
    "prices": {"input": 0.5, "output": 1.25, "tiers": [{"above": 32_000, "input": 1, "output": 2}]},
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "models.json"
    path.write_text(json.dumps({"ollama:talker-2": FACTS, "ollama:talker-1": {}}))
    monkeypatch.setenv("LONGTALK_MODELS", str(path))
    return path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(commands, ["models", *arguments])


def test_a_line_has_limits_and_prices_and_a_dash_where_nothing_is_known(own: Path) -> None:
    done = invoke("talker")
    assert done.stdout.splitlines() == [
        "ollama:talker-1\t-\t-\t-\t-\t-\t-\t-\t-",
        "ollama:talker-2\t64000\t8000\tautomatic\t0.5\t1.25\t-\t-\tabove 32,000: 1 in, 2 out",
    ]
    assert done.stderr == "2 models. Prices are in US dollars per million tokens.\n"


def test_json_has_all_that_is_known(own: Path) -> None:
    line = json.loads(invoke("talker-2", "--json").stdout)
    assert line == {"label": "ollama:talker-2", "provider": "ollama", "name": "talker-2", **FACTS}


def test_without_a_query_all_are_listed(own: Path) -> None:
    local, listed = (found := [line.split("\t")[0] for line in invoke().stdout.splitlines()])[:3], found[3:]
    assert local == ["local:1.5b", "local:0.5b", "local:135m"]
    assert listed == [model.label for model in models.models()]
    assert len(listed) > 1_000


def test_ready_models_are_local_or_have_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [line.split("\t")[0] for line in invoke("--ready").stdout.splitlines()] == [
        "local:1.5b",
        "local:0.5b",
        "local:135m",
    ]
    assert "--ready" in invoke().stderr
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    found = {line.split(":")[0] for line in invoke("--ready").stdout.splitlines()}
    assert found == {"local", "anthropic"}


def test_a_model_without_a_key_is_not_ready() -> None:
    done = invoke("gpt-5.6", "--ready")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "`longtalk config set-key PROVIDER`" in done.stderr


def test_the_words_that_users_of_llm_know_are_understood(own: Path) -> None:
    assert invoke("list", "talker-2").stdout == invoke("talker-2").stdout
    assert invoke("list").stdout == invoke().stdout


def test_the_models_of_this_machine_are_listed_with_the_one_that_local_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTALK_LOCAL", "0.5b")
    done = invoke("local", "qwen")
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["local:1.5b", "local:0.5b"]
    assert "`local` is local:0.5b on this machine" in done.stderr
    assert json.loads(invoke("135m", "--provider", "local", "--json").stdout)["label"] == "local:135m"


def test_the_default_model_is_printed_and_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LONGTALK_SETTINGS", str(tmp_path / "settings.toml"))
    assert invoke("default").stdout == "local\n"
    assert invoke("default", "openai:gpt-5.6").exit_code == 0
    assert invoke("default").stdout == "openai:gpt-5.6\n"
    assert "Did you mean 'openai:gpt-4o-mini'?" in str(invoke("default", "4o-mini").exception)


def test_a_provider_has_its_own(own: Path) -> None:
    lines = invoke("--provider", "ollama").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["ollama:talker-1", "ollama:talker-2"]
    assert {line.split(":")[0] for line in invoke("--provider", "groq").stdout.splitlines()} == {"groq"}


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_no_matches_exit_with_status_1(own: Path, more: tuple[str, ...]) -> None:
    done = invoke("no", "such", "model", *more)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "run `longtalk models`" in done.stderr


def test_a_wrong_provider_and_a_broken_file_are_one_line(environment: dict[str, str], tmp_path: Path) -> None:
    done = longtalk("models", "--provider", "grok", environment=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Did you mean 'groq'?" in done.stderr
    (tmp_path / "config" / "longtalk").mkdir(parents=True)
    (tmp_path / "config" / "longtalk" / "models.json").write_text("{")
    done = longtalk("models", environment=environment)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "config/longtalk/models.json" in done.stderr


def test_columns_have_names_on_a_terminal(environment: dict[str, str], own: Path) -> None:
    terminal = Terminal(["models", "talker-2"], {**environment, "LONGTALK_MODELS": str(own), "COLUMNS": "120"})
    head, line, *_ = terminal.rest().splitlines()
    assert head.split() == ["model", "window", "answer", "cache", "in", "out", "cached", "written", "long", "requests"]
    assert line.index("64,000") == head.index("window")
    assert terminal.exit_code() == 0
    terminal.close()


@pytest.mark.parametrize(
    ("words", "offered"),
    [(("sonet",), "'sonnet'"), (("claude", "sonet"), "'claude sonnet'"), (("gpt", "sonnet"), ""), (("zzzz",), "")],
)
def test_mistyped_words_are_corrected(words: tuple[str, ...], offered: str) -> None:
    assert (f"Did you mean {offered}?" if offered else "matches. To list") in invoke(*words).stderr


def test_a_name_of_the_user_is_explained(environment: dict[str, str]) -> None:
    longtalk("config", "alias", "small", "ollama:llama3.2", environment=environment)
    assert "small is your alias for ollama:llama3.2." in longtalk("models", "small", environment=environment).stderr
