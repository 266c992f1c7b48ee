"""The folders of the user, as each system has them."""

import os

import pytest

from longtalk import folders


@pytest.mark.parametrize(
    ("platform", "data", "cache", "config"),
    [
        ("linux", ".local/share", ".cache", ".config"),
        ("darwin", "Library/Application Support", "Library/Caches", "Library/Application Support"),
        ("win32", "AppData/Local", "AppData/Local", "AppData/Roaming"),
    ],
)
def test_each_system_has_its_own(
    platform: str, data: str, cache: str, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "LOCALAPPDATA", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    home = os.path.expanduser("~")
    assert (folders.data(), folders.cache()) == (f"{home}/{data}/longtalk", f"{home}/{cache}/longtalk")
    assert folders.config() == f"{home}/{config}/longtalk"


def test_the_environment_goes_first_unless_it_is_relative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", "/srv/data")
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert folders.data() == "/srv/data/longtalk"
    assert folders.cache() == os.path.expanduser("~/.cache/longtalk")
