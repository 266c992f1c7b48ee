"""Read `conversations.json` from a zip archive.

Archives may come from an untrusted source, so sizes and compression methods are checked before anything is unpacked: a
small archive must not be able to fill the memory. The total unpacked size of its files is limited in relation to the
size of the archive, because an archive may list the same data many times.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

from longtalk.errors import InputError

MAX_BYTES = 2_000_000_000
"""The maximum number of bytes to unpack from one archive."""
ALLOWED_BYTES, ALLOWED_RATIO = 100_000_000, 50
"""An archive of N bytes may unpack to at most `ALLOWED_BYTES + ALLOWED_RATIO * N` bytes. JSON rarely exceeds 20 * N."""
_CHUNK = 1 << 20
# With other methods, zipfile does not limit the size of its output; no supported tool uses them for exports.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UNPACK = "Unpack it, and import its conversations.json."


def unpack(source: bytes | Path) -> list[bytes]:
    """Return the content of `conversations.json` in an archive, or of its numbered parts in order.

    Raises `InputError` if the archive is damaged, encrypted or too large.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source) as archive:
            parts = [each for each in archive.infolist() if _is_part(each.filename)]
            parts.sort(key=lambda each: each.filename)
            size = len(source) if isinstance(source, bytes) else source.stat().st_size
            _check_sizes(parts, size)
            return [_read_member(archive, each) for each in parts]
    except NotImplementedError as problem:
        raise InputError(f"The archive can't be read: {problem}. {_UNPACK}") from None
    except RuntimeError:
        raise InputError(f"The archive has a password. {_UNPACK}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as problem:
        raise InputError(f"The archive is damaged ({problem or 'it ends too early'}): download it again.") from None


def _is_part(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last.startswith("conversations") and last.endswith(".json") and not name.startswith("__MACOSX")


def _check_sizes(parts: list[zipfile.ZipInfo], size: int) -> None:
    """Raise `InputError` if the unpacked files would be too large, or their compression is not supported.

    `size` is the number of bytes of the archive.
    """
    unpacked = sum(each.file_size for each in parts)
    if unpacked > MAX_BYTES:
        raise InputError(
            f"The archive would unpack to more than {MAX_BYTES:,} bytes. Unpack it, and import its files one by one."
        )
    if unpacked > (limit := ALLOWED_BYTES + ALLOWED_RATIO * size):
        raise InputError(
            f"The archive is suspiciously compressed: its {size:,} bytes would unpack to {unpacked:,}, and the limit "
            f"for an archive of this size is {limit:,}. If you trust it, unpack it yourself, and import its "
            "conversations.json."
        )
    for each in parts:
        if each.compress_type not in _METHODS:
            raise InputError(f"The archive uses an unsupported compression method. {_UNPACK}")


def _read_member(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> bytes:
    """Return the unpacked content of a file in an archive. It can't exceed the declared size, where `zipfile` stops."""
    content = io.BytesIO()
    with archive.open(part) as packed:
        while step := packed.read(_CHUNK):
            content.write(step)
    return content.getvalue()
