"""The larger models come from the first source that has them, whole, with the publisher's sum, or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from longtalk.errors import InputError
from longtalk.providers.local import catalog, download, weights
from longtalk.providers.local.wheels import Weights, _extract_error
from tests.providers.local.test_weights import write_wheel
from tests.support.http_server import HttpHandler, HttpServer

DATA = b"GGUF" + bytes(range(256)) * 4_000


class Hub(HttpServer):
    """A hub that has one file, and can send a part of it only."""

    def __init__(self) -> None:
        hub = self
        self.data = DATA
        self.status = 200
        self.ranges: list[str] = []
        self.cut_at: int | None = None

        class Handler(HttpHandler):
            def do_GET(self) -> None:
                asked = self.headers["range"]
                hub.ranges.append(asked)
                if hub.status != 200:
                    self.send_whole(hub.status, b"{}")
                    return
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
                data = hub.data[start:]
                self.send_head(206, {"content-length": str(len(data))})
                self.wfile.write(data[: hub.cut_at])
                if hub.cut_at is not None:
                    self.hang_up()

        super().__init__(Handler)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> catalog.LocalModel:
    """A model of a megabyte in place of the 0.5B one, which `local` means."""
    made = catalog.MODELS["0.5b"]._replace(size=len(DATA))
    monkeypatch.setitem(catalog.MODELS, "0.5b", made)
    published = download.Published("qwen/model/tiny.gguf", hashlib.sha256(DATA).hexdigest())
    monkeypatch.setitem(download.PUBLISHED, "0.5b", published)
    monkeypatch.setenv("LONGTALK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LONGTALK_LOCAL", "0.5b")
    return made


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Weights]:
    """The same bytes in two wheels, in a folder that is all that pip knows of the world."""
    half = len(DATA) // 2
    listed = []
    for number, data in ((1, DATA[:half]), (2, DATA[half:])):
        made = write_wheel(tmp_path / "index", member=f"x/part{number}.bin", name=f"tiny-part{number}", data=data)
        listed.append(made._replace(name=f"part{number}.bin", size=len(data)))
    monkeypatch.setattr(download, "_list_parts", lambda _: listed)
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    for name, value in {"CONFIG_FILE": os.devnull, "NO_INDEX": "1", "FIND_LINKS": str(tmp_path / "index")}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return listed


def list_files() -> list[str]:
    return sorted(os.listdir(weights.weights_folder()))


def test_the_hub_is_asked_first(model: Any, hub: Hub, parts: Any) -> None:
    path = weights.find_weights("")
    assert Path(path).read_bytes() == DATA
    assert list_files() == ["default.txt", "tiny.gguf"]
    assert weights.find_weights("0.5b") == path
    assert len(hub.ranges) == 1


def test_a_download_that_was_cut_off_goes_on_where_it_was(
    model: Any, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_list_parts", lambda _: [])
    hub.cut_at = 500_000
    with pytest.raises(InputError, match="the hub can't be reached"):
        weights.find_weights("0.5b")
    hub.cut_at = None
    assert Path(weights.find_weights("0.5b")).read_bytes() == DATA
    first, second = (int(each.removeprefix("bytes=").removesuffix("-")) for each in hub.ranges)
    assert (first, 0 < second <= 500_000) == (0, True)


@pytest.mark.parametrize("fault", ["missing", "wrong", "too large"])
def test_where_the_hub_fails_the_parts_are_joined(model: Any, hub: Hub, parts: Any, fault: str) -> None:
    hub.status = 404 if fault == "missing" else 200
    hub.data = {"wrong": DATA[:-1] + b"x", "too large": DATA * 2}.get(fault, DATA)
    assert Path(weights.find_weights("")).read_bytes() == DATA
    assert list_files() == ["default.txt", "tiny.gguf"]


def test_parts_that_are_there_are_not_downloaded_again(
    model: Any, hub: Hub, parts: list[Weights], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.status = 500
    good = list(parts)
    parts[1] = parts[1]._replace(wheel_sha256="0" * 64)
    with pytest.raises(InputError, match="can't be downloaded"):
        weights.find_weights("0.5b")
    parts[:] = [good[0]._replace(wheel_sha256="0" * 64), good[1]]
    assert Path(weights.find_weights("0.5b")).read_bytes() == DATA


def test_bytes_with_another_sum_are_never_accepted(
    model: Any, hub: Hub, parts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(download.PUBLISHED, "0.5b", download.PUBLISHED["0.5b"]._replace(sha256="0" * 64))
    with pytest.raises(InputError, match="does not have the publisher's SHA-256 sum"):
        weights.find_weights("0.5b")
    assert list_files() == []


def test_where_no_source_has_it_the_smallest_model_answers_with_a_notice(
    model: Any, hub: Hub, parts: list[Weights], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    hub.status = 503
    parts[0] = parts[0]._replace(wheel_sha256="0" * 64)
    monkeypatch.setattr(weights, "SMOLLM2", write_wheel(tmp_path / "index"))
    assert Path(weights.find_weights("")).name == "tiny.gguf"
    assert "the hub answers 503" in capfd.readouterr().err
    assert "default.txt" not in list_files()


def test_a_folder_that_can_not_be_written_is_named(model: Any, hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(InputError, match=r"can't be stored in .*cache.*Set LONGTALK_CACHE"):
        weights.find_weights("")


def test_nothing_is_downloaded_onto_a_disk_with_too_little_space(
    model: Any, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=model.size))
    with pytest.raises(InputError, match=r"can't be stored in .*: No space left on device\. Set LONGTALK_CACHE"):
        weights.find_weights("")
    assert hub.ranges == []


def test_a_crash_of_pip_is_told_by_its_last_line() -> None:
    said = b"ERROR: Exception:\nTraceback (most recent call last):\n  File x\nOSError: No space left on device\n"
    assert _extract_error(said) == "OSError: No space left on device"


def test_the_list_of_parts_adds_up_to_the_published_size() -> None:
    for name in download.PUBLISHED:
        assert sum(part.size for part in download._list_parts(name)) == catalog.MODELS[name].size
