"""Archives (zip) that people have downloaded, and that anybody may have made: what is in one is looked at before it is
unpacked, and a small file does not become a large one in memory."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

from longtalk.errors import InputError

MOST = 2_000_000_000
"""How many bytes may come out of an archive."""
_SURE, _RATIO = 100_000_000, 200
_STEP = 1 << 20
# The others unpack without a bound, whatever the archive says of their sizes; no export comes in them.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def unpacked(source: bytes | Path) -> list[bytes]:
    """`conversations.json` in an archive or its numbered parts, in their order. `InputError` for what is damaged."""
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
    """Refuse what would fill the memory."""
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
    """What is in a part. Step by step, so that no more comes out than it is said to hold."""
    made = io.BytesIO()
    with held.open(part) as packed:
        while step := packed.read(_STEP):
            made.write(step)
    return made.getvalue()
