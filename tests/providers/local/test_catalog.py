"""Which model `local` means on a machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from longtalk.errors import InputError
from longtalk.providers.local import catalog


@pytest.fixture(autouse=True)
def _undecided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LONGTALK_CACHE", str(tmp_path))
    monkeypatch.delenv("LONGTALK_LOCAL")


@pytest.mark.parametrize(
    ("memory", "name"), [(24_000_000_000, "1.5b"), (6_000_000_000, "1.5b"), (5_999_999_999, "0.5b")]
)
def test_the_memory_decides(monkeypatch: pytest.MonkeyPatch, memory: int, name: str) -> None:
    monkeypatch.setattr(catalog, "read_memory", lambda: memory)
    assert catalog.choose_default() == name


def test_a_choice_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "read_memory", lambda: 10**12)
    catalog.record_default("0.5b")
    assert catalog.choose_default() == "0.5b"


def test_a_record_that_names_no_model_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "read_memory", lambda: 10**12)
    catalog.record_default("9b")
    assert catalog.choose_default() == "1.5b"


def test_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.record_default("0.5b")
    monkeypatch.setenv("LONGTALK_LOCAL", "135M")
    assert catalog.choose_default() == "135m"
    monkeypatch.setenv("LONGTALK_LOCAL", "7b")
    with pytest.raises(InputError, match=r"LONGTALK_LOCAL is '7b': set it to one of 1.5b, 0.5b, 135m"):
        catalog.choose_default()


def test_models_are_found_by_name() -> None:
    assert [catalog.find_model(name) for name in ("1.5B", "smollm2", "135m")] == [
        catalog.MODELS["1.5b"],
        catalog.MODELS["135m"],
        catalog.MODELS["135m"],
    ]
    assert catalog.find_model("/path/model.gguf") is None


def test_the_memory_is_at_most_that_of_the_machine() -> None:
    assert 0 < catalog.read_memory() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(("name", "calls"), [("1.5b", True), ("0.5b", True), ("135m", False)])
def test_only_the_larger_models_are_given_tools(name: str, calls: bool) -> None:
    from longtalk.providers.local.provider import AsyncLocal
    from longtalk.providers.registry import resolve

    assert AsyncLocal(resolve(f"local:{name}")).capabilities.tools is calls
