"""Test the download of the word vectors: from the first source that has them, with the publisher's sums, or not at all.

The hub is a server on this machine, and the package index a folder that holds one tiny wheel.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longtalk.memory.recall import embeddings, vector_files
from longtalk.memory.recall.vector_files import VectorFile, find_files
from longtalk.providers.local.folder import weights_folder
from tests.support.http_server import HttpHandler, HttpServer

CONTENT = {"model.safetensors": b"vectors" * 50_000, "tokenizer.json": b"{}" * 1_000}
TAG = "cp313-abi3-manylinux_2_28_x86_64"


class Hub(HttpServer):
    """A hub that has the files, and can send a part of one only."""

    def __init__(self) -> None:
        hub = self
        self.files = dict(CONTENT)
        self.asked: list[tuple[str, str]] = []
        self.cut_at: int | None = None

        class Handler(HttpHandler):
            def do_GET(self) -> None:
                name, wanted = self.path.rpartition("/")[2], self.headers["range"]
                hub.asked.append((name, wanted))
                if name not in hub.files:
                    self.send_whole(404, b"{}")
                    return
                data = hub.files[name][int(wanted.removeprefix("bytes=").removesuffix("-")) :]
                self.send_head(206, {"content-length": str(len(data))})
                self.wfile.write(data[: hub.cut_at])
                if hub.cut_at is not None:
                    self.hang_up()

        super().__init__(Handler)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A hub and a package index with tiny files, and an empty cache."""
    files = tuple(VectorFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in CONTENT.items())
    monkeypatch.setattr(vector_files, "_FILES", files)
    monkeypatch.setattr(vector_files, "_WHEEL", "tiny-vectors==1.0")
    monkeypatch.setattr(vector_files, "_WHEEL_SHA256", write_wheel(tmp_path / "index"))
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    for name, value in {"CONFIG_FILE": os.devnull, "NO_INDEX": "1", "FIND_LINKS": str(tmp_path / "index")}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("LONGTALK_CACHE", str(tmp_path / "cache"))
    with Hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def write_wheel(folder: Path) -> str:
    """Write a wheel for another Python than this one, which has the files, and return its sum."""
    info = "tiny_vectors-1.0.dist-info"
    files = {f"tiny/_vendor/{name}": data for name, data in CONTENT.items()}
    files[f"{info}/METADATA"] = b"Metadata-Version: 2.1\nName: tiny-vectors\nVersion: 1.0\n"
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode()
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]).encode()
    folder.mkdir()
    path = folder / f"tiny_vectors-1.0-{TAG}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def list_folder() -> set[str]:
    return set(os.listdir(os.path.join(weights_folder(), vector_files.NAME))) - {"lock"}


def read_files(folder: str | None) -> dict[str, bytes]:
    assert folder is not None
    return {name: (Path(folder) / name).read_bytes() for name in CONTENT}


def test_the_files_come_from_the_hub_once(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    assert read_files(find_files()) == CONTENT
    assert find_files() == os.path.join(weights_folder(), vector_files.NAME)
    assert hub.asked == [(name, "bytes=0-") for name in CONTENT]
    assert list_folder() == set(CONTENT)
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.count("Downloading word vectors for recall by meaning (once): potion-base-8M, 0 MB, into") == 1


def test_a_download_from_the_hub_that_was_cut_off_goes_on_where_it_was(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_files, "_WHEEL_SHA256", "0" * 64)
    hub.cut_at = 100_000
    assert find_files() is None
    hub.cut_at = None
    monkeypatch.setattr(vector_files, "_PAUSE", 0)
    assert read_files(find_files()) == CONTENT
    start = int(hub.asked[1][1].removeprefix("bytes=").removesuffix("-"))
    assert 0 < start <= 100_000


@pytest.mark.parametrize("fault", ["missing", "wrong"])
def test_where_the_hub_fails_the_files_come_from_a_wheel_for_another_python(hub: Hub, fault: str) -> None:
    if fault == "missing":
        hub.files.clear()
    else:
        hub.files["tokenizer.json"] = b"[]" * 1_000
    assert read_files(find_files()) == CONTENT
    assert list_folder() == set(CONTENT)


def test_files_with_other_sums_are_never_accepted(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = tuple(file._replace(sha256="0" * 64) for file in vector_files._FILES)
    monkeypatch.setattr(vector_files, "_FILES", wrong)
    assert find_files() is None
    assert list_folder() == {"failed"}
    said = capfd.readouterr().err
    assert said.count("model.safetensors does not have the publisher's SHA-256 sum") == 2
    assert "Recall by meaning uses the word vectors of WordLlama" in said


def test_after_a_failure_no_other_download_is_tried_for_a_while(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.files.clear()
    monkeypatch.setattr(vector_files, "_WHEEL_SHA256", "0" * 64)
    assert find_files() is None
    asked = len(hub.asked)
    assert find_files() is None
    assert len(hub.asked) == asked
    hub.files.update(CONTENT)
    monkeypatch.setattr(vector_files, "_PAUSE", 0)
    assert read_files(find_files()) == CONTENT


def test_of_several_at_the_same_time_one_downloads_and_the_others_wait(hub: Hub) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: find_files(), range(4)))
    assert [read_files(each) for each in found] == [CONTENT] * 4
    assert len(hub.asked) == len(CONTENT)


def test_a_folder_that_can_not_be_written_is_named(hub: Hub, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cache").write_text("")
    assert find_files() is None
    assert "The word vectors can't be stored in" in capfd.readouterr().err


def test_a_user_without_a_home_folder_gets_the_vectors_of_the_extra(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("LONGTALK_CACHE")
    monkeypatch.setattr("platformdirs.user_cache_dir", fail)
    assert find_files() is None
    assert "set HOME to an absolute path. Until then, recall by meaning uses" in capfd.readouterr().err


def test_without_the_files_the_vectors_of_the_extra_are_used(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.files.clear()
    monkeypatch.setattr(vector_files, "_WHEEL_SHA256", "0" * 64)
    embeddings.load_model.cache_clear()
    try:
        model = embeddings.load_model()
        assert (model.name, model.embedding.shape) == ("l2_supercat_256", (32_000, 256))
    finally:
        embeddings.load_model.cache_clear()
