"""Read `conversations.json` from a zip archive.

Archives may come from an untrusted source, so sizes, compression ratios and methods are checked before anything is
unpacked: a small archive must not be able to fill the memory.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

from longtalk.errors import InputError

MOST = 2_000_000_000
"""The maximum number of bytes to unpack from one archive."""
_SURE, _RATIO = 100_000_000, 200
_STEP = 1 << 20
# zipfile unpacks other methods without a bound on the output, and no tool uses them for its exports.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def unpack(source: bytes | Path) -> list[bytes]:
    """Return the content of `conversations.json` in an archive, or of its numbered parts in order.

    Raises `InputError` if the archive is damaged, encrypted or too large.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source) as held:
            parts = [each for each in held.infolist() if _is_part(each.filename)]
            parts.sort(key=lambda each: each.filename)
            _check(parts)
            return [_content(held, each) for each in parts]
    except NotImplementedError as problem:
        raise InputError(f"The archive can't be read: {problem}. Unpack it, and take its conversations.json.") from None
    except RuntimeError:
        raise InputError("The archive has a password: unpack it, and take its conversations.json.") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as problem:
        raise InputError(f"The archive can't be read, it is damaged ({problem or 'it ends too soon'}).") from None


def _is_part(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last.startswith("conversations") and last.endswith(".json") and not name.startswith("__MACOSX")


def _check(parts: list[zipfile.ZipInfo]) -> None:
    """Raise `InputError` for files that would be too large when unpacked or use an unsupported compression."""
    if sum(each.file_size for each in parts) > MOST:
        raise InputError(f"The archive holds more than {MOST:,} bytes: unpack it, and take its files one by one.")
    for each in parts:
        if each.file_size > _SURE and each.file_size > _RATIO * each.compress_size:
            raise InputError(
                f"The archive is not unpacked: {each.compress_size:,} bytes of it would become {each.file_size:,}. "
                "If you trust it, unpack it, and take its conversations.json."
            )
        if each.compress_type not in _METHODS:
            raise InputError(
                "The archive is packed in a way that is not read here: unpack it, and take its conversations.json."
            )


def _content(held: zipfile.ZipFile, part: zipfile.ZipInfo) -> bytes:
    """Return the unpacked content of a file in an archive, at most as many bytes as the archive declares."""
    made = io.BytesIO()
    with held.open(part) as packed:
        while step := packed.read(_STEP):
            made.write(step)
    return made.getvalue()
