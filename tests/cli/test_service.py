"""`longtalk serve`, `keys` and `config`, as processes."""

from __future__ import annotations

import json
import re
import signal
import socket
import stat
import subprocess
from pathlib import Path

import httpx2
import openai
import pytest

from longtalk.cli.serve import _announce
from longtalk.service.settings import Settings
from tests.cli.helpers import LONGTALK, longtalk, streamed
from tests.support.loopback import Loopback


@pytest.fixture
def home(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return {**environment, "XDG_CONFIG_HOME": str(tmp_path / "config")}


def test_a_key_is_made_listed_and_revoked(home: dict[str, str]) -> None:
    made = longtalk("keys", "add", "laptop", "--owner", "ada", "--days", "3", environment=home)
    assert re.fullmatch(r"lt_[\w-]{43}\n", made.stdout)
    (listed,) = map(json.loads, longtalk("keys", "list", "--json", environment=home).stdout.splitlines())
    assert (listed["name"], listed["owner"], "digest" in listed) == ("laptop", "ada", False)
    assert longtalk("keys", "revoke", listed["id"], environment=home).returncode == 0
    again = longtalk("keys", "revoke", listed["id"], environment=home)
    assert (again.returncode, "There is no access key" in again.stderr) == (1, True)
    assert longtalk("keys", "list", environment=home).stdout == ""


def test_a_pipe_gets_a_line_for_each_key_and_no_header(home: dict[str, str]) -> None:
    longtalk("keys", "add", "laptop", environment=home)
    (line,) = longtalk("keys", "list", environment=home).stdout.splitlines()
    assert "laptop" in line


def test_a_port_in_use_is_an_error_and_not_announced(home: dict[str, str], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = longtalk("serve", "--port", port, "-m", "ollama:x", "--store", str(tmp_path / "s.db"), environment=home)
    assert done.returncode == 1
    assert f"Can't listen on 127.0.0.1, port {port}: Address already in use" in done.stderr
    assert "serves on" not in done.stderr


def test_the_key_of_a_provider_is_stored_for_the_user_alone(home: dict[str, str], tmp_path: Path) -> None:
    assert longtalk("config", "set-key", "anthropic", said="sk-secret\n", environment=home).returncode == 0
    (file,) = (tmp_path / "config").rglob("credentials.toml")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() == '"anthropic" = "sk-secret"\n'
    shown = longtalk("config", "show", environment=home)
    assert "anthropic" in shown.stderr
    assert "sk-secret" not in shown.stdout + shown.stderr
    done = longtalk("config", "set-key", "anthropic", said="\n", environment=home)
    assert (done.returncode, "`longtalk config unset anthropic`" in done.stderr) == (1, True)
    longtalk("config", "unset", "anthropic", environment=home)
    assert file.read_text() == ""


def test_settings_are_changed_and_the_rest_of_the_file_stays(home: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "config" / "longtalk" / "settings.toml"
    file.parent.mkdir(parents=True)
    file.write_text("# mine\nport = 9000  # a comment\ndefault_model = 'a:b'\n\n[limits]\nbody_bytes = 9\n")
    longtalk("config", "set", "default_model", "ollama:x", environment=home)
    longtalk("config", "alias", "tutor", "ollama:y", "-p", "KeepLast(3)", "-s", 'Say "du".', environment=home)
    assert file.read_text() == (
        '# mine\nport = 9000  # a comment\ndefault_model = "ollama:x"\n\n[limits]\nbody_bytes = 9\n\n'
        '[models."tutor"]\nmodel = "ollama:y"\npolicy = "KeepLast(3)"\nsystem = "Say \\"du\\"."\n'
    )
    shown = json.loads(longtalk("config", "show", environment=home).stdout)
    assert (shown["default_model"], shown["models"]["tutor"]["system"]) == ("ollama:x", 'Say "du".')
    longtalk("config", "alias", "tutor", "ollama:z", environment=home)
    assert file.read_text().endswith('[models."tutor"]\nmodel = "ollama:z"\n')
    before = file.read_text()
    assert longtalk("config", "alias", "tutor", environment=home).stdout.startswith("tutor\tollama:z")
    assert longtalk("config", "set", "default_model", environment=home).stdout == "ollama:x\n"
    assert file.read_text() == before
    longtalk("config", "set", "default_model", "tutor", environment=home)
    noted = longtalk("config", "unset", "tutor", environment=home).stderr
    assert "It is still your default model." in noted
    longtalk("config", "unset", "default_model", environment=home)
    assert file.read_text().strip() == "# mine\nport = 9000  # a comment\n\n[limits]\nbody_bytes = 9"


def test_the_settings_of_the_service_are_shown_when_they_are_set(home: dict[str, str]) -> None:
    shown = json.loads(longtalk("config", "show", environment=home).stdout)
    assert list(shown) == ["store", "default_model", "policy", "models"]
    longtalk("config", "set", "port", "9000", environment=home)
    assert json.loads(longtalk("config", "show", environment=home).stdout) == {**shown, "port": 9000}


def test_a_named_model_brings_its_policy_and_system_text_to_a_chat(
    home: dict[str, str], loopback: Loopback, tmp_path: Path
) -> None:
    loopback.say(streamed("One."), streamed("Two."))
    options = ["--base-url", loopback.url, "-s", "Be brief.", "-p", "KeepLast(3)"]
    longtalk("config", "alias", "tutor", "compatible:m", *options, environment=home)
    longtalk("config", "set", "default_model", "tutor", environment=home)
    longtalk("config", "set-key", "compatible", said="sk-stored\n", environment=home)
    assert longtalk("ask", "Hi.", environment=home).stdout == "One.\n"
    assert longtalk("ask", "-c", "-m", "tutor", "Again.", environment=home).stdout == "Two.\n"
    messages = [each["content"] for each in json.loads(loopback.requests[-1])["messages"]]
    assert messages == ["Be brief.", "Hi.", "One.", "Again."]
    assert loopback.headers[-1]["authorization"] == "Bearer sk-stored"


def test_a_model_whose_memory_has_a_table_is_not_removed_in_part(home: dict[str, str], tmp_path: Path) -> None:
    longtalk("config", "alias", "tutor", "ollama:y", environment=home)
    file = tmp_path / "config" / "longtalk" / "settings.toml"
    text = file.read_text("utf-8") + "\n[models.tutor.memory]\nrecall = {}\n"
    file.write_text(text, "utf-8")
    done = longtalk("config", "unset", "tutor", environment=home)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "models.tutor" in done.stderr
    assert "Nothing was changed" in done.stderr
    assert file.read_text("utf-8") == text


def test_options_of_a_model_are_changed_and_its_tables_stay(home: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "config" / "longtalk" / "settings.toml"
    longtalk("config", "alias", "tutor", "ollama:y", environment=home)
    file.write_text(file.read_text() + "\n[models.tutor.options]\nseed = 7\n\n[models.tutor.memory]\nlimit = 9000\n")
    done = longtalk("config", "alias", "tutor", "-o", "temperature", "0", environment=home)
    assert done.returncode == 0, done.stderr
    made = json.loads(longtalk("config", "show", "models", environment=home).stdout)["tutor"]
    assert (made["options"], made["memory"]) == ({"seed": 7, "temperature": 0}, {"limit": 9000})


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("config", "set", "jwt", "x"), "There is no setting 'jwt' that a command can change"),
        (("config", "set", "port", "70000"), "'70000' is not a valid value for the setting 'port'"),
        (("config", "set", "port", "many"), "'many' is not a valid value for the setting 'port'"),
        (("config", "set", "policy", "Nonsense()"), "is not a policy"),
        (("config", "alias", "a:b", "ollama:x"), "can't be the name of a model"),
        (("config", "alias", "tutor", "llama3"), "No known provider has a model 'llama3'"),
        (("config", "alias", "tutor"), "There is no alias 'tutor'."),
        (("config", "alias", "openai", "ollama:x"), "'openai' is a provider: choose another name for the alias"),
        (("config", "alias", "list", "ollama:x"), "'list' is a word of this command"),
        (("config", "set-key", "nothing"), "Unknown provider 'nothing'"),
        (("serve", "--check", "--settings", "nowhere.toml"), "does not exist"),
        (("serve", "--check", "--host", "0.0.0.0"), "Make a key"),
        (("serve", "--check", "-m", "nothing:x"), "nothing"),
        (("serve", "--check", "-p", "Nonsense()"), "is not a policy"),
    ],
)
def test_what_can_not_be_done_is_said_in_one_line(home: dict[str, str], words: tuple[str, ...], problem: str) -> None:
    done = longtalk(*words, environment=home)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert problem in done.stderr


def test_an_alias_named_like_a_provider_is_removed_without_its_key(home: dict[str, str], tmp_path: Path) -> None:
    longtalk("config", "set-key", "anthropic", said="sk-1", environment=home)
    (tmp_path / "config" / "longtalk" / "settings.toml").write_text("[models.anthropic]\nmodel = 'ollama:x'\n")
    done = longtalk("config", "unset", "anthropic", environment=home)
    assert "Removed the alias anthropic" in done.stderr
    assert "The API key of the provider anthropic stays." in done.stderr
    assert "Removed the API key of anthropic" in longtalk("config", "unset", "anthropic", environment=home).stderr


@pytest.mark.parametrize(
    ("text", "problem"),
    [("port = 'x'", "port"), ("nonsense = 1", "nonsense"), ("port = ", "not valid TOML"), ("[models.a]", "model")],
)
def test_wrong_settings_are_named(home: dict[str, str], tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    done = longtalk("serve", "--check", "--settings", str(tmp_path / "s.toml"), environment=home)
    assert done.returncode == 1
    assert problem in done.stderr


def test_right_settings_can_be_used(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        "[models.tutor]\nmodel = 'ollama:x'\npolicy = 'Memory()'\n[limits]\nbody_bytes = 9\n"
    )
    done = longtalk("serve", "--check", "--settings", str(tmp_path / "s.toml"), environment=home)
    assert (done.returncode, "can be used" in done.stderr) == (0, True)
    shown = longtalk("config", "show", "--settings", tmp_path / "s.toml", environment={**home, "LONGTALK_PORT": "99"})
    assert json.loads(shown.stdout)["port"] == 99


@pytest.mark.slow
def test_the_service_remembers_after_a_restart_and_stops_when_told(
    home: dict[str, str], loopback: Loopback, tmp_path: Path
) -> None:
    loopback.say(streamed("With pleasure."), streamed("With pleasure."))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*LONGTALK, "serve", "--port", str(port), "-m", "ollama:x", "--store", str(tmp_path / "s.db")]
    last = ""
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client:
        for text in ("I'm Ada.", "Who am I?"):
            with subprocess.Popen(command, env={**home, "OLLAMA_HOST": loopback.url}, stderr=subprocess.PIPE) as server:
                assert server.stderr is not None
                assert f"serves on http://127.0.0.1:{port}/v1" in server.stderr.readline().decode()
                assert f"curl http://127.0.0.1:{port}/v1/responses" in server.stderr.readline().decode()
                # Once the address is announced, a client can connect.
                assert httpx2.get(f"http://127.0.0.1:{port}/readyz", timeout=60).status_code == 200
                made = client.responses.create(model="ollama:x", input=text, previous_response_id=last or openai.omit)
                last = made.id
                server.send_signal(signal.SIGINT)
                assert server.wait(30) in (0, 130, -signal.SIGINT)
    assert made.output_text == "With pleasure."
    assert b"I'm Ada." in loopback.requests[-1]


@pytest.mark.slow
def test_several_workers_share_the_port_that_is_announced(home: dict[str, str], tmp_path: Path) -> None:
    command = [*LONGTALK, "serve", "--port", "0", "--workers", "2", "-m", "ollama:x", "--store", str(tmp_path / "s.db")]
    with subprocess.Popen(command, env=home, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        found = next(filter(None, (re.search(r"serves on (http://[\d.:]+)/v1", line) for line in server.stderr)))
        assert httpx2.get(f"{found[1]}/readyz", timeout=60).status_code == 200
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


def test_serve_opens_the_page_in_a_browser_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    for display, page in (("", True), (":0", False), (":0", True)):
        monkeypatch.setenv("DISPLAY", display)
        _announce(Settings(page=page), 8086, needs_key=False, open_page=True)
    assert "The page is at http://127.0.0.1:8086/\n" in capsys.readouterr().err
    assert opened == ["http://127.0.0.1:8086/"]
