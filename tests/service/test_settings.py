"""Settings and API keys that several processes change at the same time, such as commands and the page."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from longtalk.errors import InputError
from longtalk.providers.registry import PROVIDERS
from longtalk.service.settings import ModelSettings, load_credentials, load_settings
from longtalk.service.settings_file import set_alias, set_setting

_CHANGE = """
import sys
from longtalk.service.settings import ModelSettings, store_credential
from longtalk.service.settings_file import set_alias

print(flush=True)
sys.stdin.readline()
for name in sys.argv[1:]:
    store_credential(name, f"sk-{name}")
    set_alias(name, ModelSettings(f"{name}:m"))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the settings of the test in a folder of its own."""
    monkeypatch.setenv("LONGTALK_SETTINGS", str(tmp_path / "config" / "settings.toml"))
    return tmp_path / "config"


def start(names: Sequence[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _CHANGE, *names]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_what_two_processes_store_at_the_same_time_is_all_there(folder: Path) -> None:
    names = [*PROVIDERS]
    processes = [start(names[::2]), start(names[1::2])]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert load_credentials() == {name: f"sk-{name}" for name in names}
    assert load_settings().models.keys() == set(names)
    assert stat.S_IMODE((folder / "credentials.toml").stat().st_mode) == 0o600
    assert {each.name for each in folder.iterdir()} == {
        "credentials.toml",
        ".credentials.toml.lock",
        "settings.toml",
        ".settings.toml.lock",
    }


def test_a_change_keeps_the_permissions_of_the_file_and_a_link_to_it(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    real = tmp_path / "dotfiles.toml"
    real.write_text("port = 1\n")
    real.chmod(0o640)
    (folder / "settings.toml").symlink_to(real)
    set_alias("tutor", ModelSettings("groq:m"))
    assert (folder / "settings.toml").is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert load_settings().models["tutor"].model == "groq:m"


def test_options_that_a_model_has_in_a_table_of_their_own_are_replaced(folder: Path) -> None:
    folder.mkdir()
    table = '[models.tutor]\nmodel = "groq:m"\n\n[models.tutor.options]\nstop = ["A"]\nseed = 1\n\n'
    (folder / "settings.toml").write_text(table + "[limits]\nconcurrent_turns = 3\n")
    set_alias("tutor", ModelSettings("groq:m", options={"stop": ["B"]}))
    assert load_settings().models["tutor"].options == {"stop": ["B"]}
    assert load_settings().limits.concurrent_turns == 3


def test_values_of_several_lines_stay_when_another_one_is_changed(folder: Path) -> None:
    folder.mkdir()
    file = folder / "settings.toml"
    origins = 'cors_origins = [\n  "http://a",  # ours\n  "http://[::1]",\n]\n'
    file.write_text(f'{origins}port = 1  # mine\nroot_path = """\n[x]\nport = 2"""\n')
    before = load_settings()
    set_setting("port", "9000")
    assert file.read_text() == f'{origins}port = 9000  # mine\nroot_path = """\n[x]\nport = 2"""\n'
    assert load_settings() == msgspec.structs.replace(before, port=9000)
    set_setting("root_path", "")
    assert file.read_text() == f"{origins}port = 9000  # mine\n"


def test_a_model_is_changed_in_its_place_and_comments_stay(folder: Path) -> None:
    folder.mkdir()
    file = folder / "settings.toml"
    table = '# My teacher\n[models.tutor]\n# slow\nmodel = "groq:m"\nsystem = """\n[Note]\nBe brief."""  # why\n'
    rest = "\n# The rest\n[limits]\nconcurrent_turns = 3\n"
    file.write_text(table + rest)
    set_alias("tutor", ModelSettings("groq:n", system="Teach.", policy="KeepLast(3)"))
    assert file.read_text() == (
        '# My teacher\n[models.tutor]\n# slow\nmodel = "groq:n"\nsystem = "Teach."  # why\n'
        'policy = "KeepLast(3)"\n' + rest
    )
    set_alias("tutor", None)
    assert file.read_text().endswith(rest.lstrip())
    assert load_settings().models == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port = 99999", "port: Expected `int` <= 65535. Change it in "),
        ("workers = 0", "workers: Expected `int` >= 1. Change it in "),
        ("[limits]\nconcurrent_turns = -1", "limits.concurrent_turns: Expected `int` >= 0"),
        ("[retention]\ndays = -1", "retention.days: Expected `float` >= 0"),
        ("prot = 1", "unknown field `prot`. Change it in "),
    ],
)
def test_a_setting_that_can_not_be_used_is_named_with_its_file(folder: Path, text: str, said: str) -> None:
    folder.mkdir()
    (folder / "settings.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        load_settings()
    assert said in str(caught.value)
    assert str(folder) in str(caught.value)


def test_a_variable_or_an_option_that_can_not_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTALK_PORT", "many")
    with pytest.raises(InputError, match=r"port: .*Change it in LONGTALK_PORT\."):
        load_settings()
    with pytest.raises(InputError, match=r"port: .*Change it in the options\."):
        load_settings(port=-1)


def test_a_table_is_not_taken_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTALK_LIMITS", "60")
    with pytest.raises(InputError, match="LONGTALK_LIMITS can't be used: `limits` is a table"):
        load_settings()
