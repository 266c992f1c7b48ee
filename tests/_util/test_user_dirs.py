"""The user's folders on each system."""

import os

import platformdirs
import pytest
from platformdirs.macos import MacOS
from platformdirs.unix import Unix
from platformdirs.windows import Windows

from longtalk._util import user_dirs as folders
from longtalk.errors import InputError
from longtalk.models import registry

VARIABLES = ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("system", "data", "cache", "config"),
    [
        (Unix, ".local/share/longtalk", ".cache/longtalk", ".config/longtalk"),
        (
            MacOS,
            "Library/Application Support/longtalk",
            "Library/Caches/longtalk",
            "Library/Application Support/longtalk",
        ),
        (Windows, "AppData/Local/longtalk", "AppData/Local/longtalk/Cache", "AppData/Roaming/longtalk"),
    ],
)
def test_each_system_has_its_own(
    system: type, data: str, cache: str, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = os.path.expanduser("~")
    if system is Windows:
        home = "C:/Users/Ada"
        monkeypatch.setenv("WIN_PD_OVERRIDE_LOCAL_APPDATA", f"{home}/AppData/Local")
        monkeypatch.setenv("WIN_PD_OVERRIDE_APPDATA", f"{home}/AppData/Roaming")
    monkeypatch.setattr(platformdirs, "PlatformDirs", system)
    assert folders.data() == f"{home}/{data}"
    assert folders.cache() == f"{home}/{cache}"
    assert folders.config() == f"{home}/{config}"


@pytest.mark.skipif(os.name == "nt", reason="XDG_* is of Unix and macOS")
def test_the_environment_goes_first_unless_it_is_relative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/srv/data")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/srv/config/")
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setattr(platformdirs, "PlatformDirs", Unix)
    assert folders.data() == "/srv/data/longtalk"
    assert folders.config() == "/srv/config/longtalk"
    assert folders.cache() == os.path.expanduser("~/.cache/longtalk")


@pytest.mark.skipif(os.name == "nt", reason="Windows always has the folder of a user")
def test_a_user_without_a_home_folder_is_told_to_set_one_and_has_no_models_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("LONGTALK_MODELS", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(InputError, match="no home folder: set HOME"):
        folders.data()
    assert not registry._read_overrides()
