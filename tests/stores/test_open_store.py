"""Opening a store by its name: addresses, paths, and names that are refused."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from longtalk.errors import InputError
from longtalk.stores import open_store
from longtalk.stores.base import Commit


@pytest.mark.parametrize(
    "name",
    [
        "mysql://ann:hunter2@db/app",
        "postgersql://ann:hunter2@db/app",
        "http://ann:hunter2@db/app",
        "postgresql+asyncpg://ann:hunter2@db/app",
        " mysql://ann:hunter2@db/app/",
    ],
)
def test_an_unknown_address_is_not_opened_as_a_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"Use postgres://, postgresql://, redis://, rediss:// or a path") as caught:
        open_store(name)
    assert name.strip().partition("://")[0] in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["host=/tmp dbname=x password=hunter2", "password=hunter2 host=db", "dbname = x"])
def test_a_connection_string_is_not_opened_as_a_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="postgresql://user@host:5432/name") as caught:
        open_store(name)
    assert "hunter2" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["./mysql://talks.db", "a:b.db", "my-password=x.db"])
def test_other_names_are_paths(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(open_store(name)) as store:
        store.write("", "lesson", Commit(expect=0, at=1))
    assert Path(name).is_file()
