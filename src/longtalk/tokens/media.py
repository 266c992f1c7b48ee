"""Count the tokens of images, PDFs and audio by the rules that providers publish. Base64 is never counted as text.

The number of tokens of an image depends on its size in pixels, which is read from its header:

- OpenAI: 85 tokens, plus 170 for each tile of 512 by 512, after shrinking to at most 2,048 on the long side and 768 on
  the short side.
- Claude: one token per 750 pixels, after shrinking to at most 1,568 on the long side (2,576 for newer models).
- Gemini: 258 tokens for each tile of 768 by 768; 258 in total for a small image.

An image of unknown size counts as 1,024 by 1,024. A PDF has 2,500 tokens per page (258 for Gemini); its page objects
are counted or, if none are found, one page is assumed for every 60 kB. Audio has 10 tokens per second (32 for Gemini);
its length comes from its header or, without one, from an assumed rate of 16 kB per second.
"""

from __future__ import annotations

import binascii
import re

_PAGE = rb"/Type\s{0,9}/Page(?!s)"


def count_blob_tokens(family: str, media_type: str, data: str, detail: object = None) -> int | str:
    """Return the number of tokens of a file encoded in base64, or the decoded text if it is a text file.

    The type of the file is taken from its first bytes and from `media_type`. `detail` is OpenAI's option for images.
    """
    start = decode_base64(data[:4096])
    if start.startswith(b"%PDF") or "pdf" in media_type:
        content = decode_base64(data)
        pages = len(re.findall(_PAGE, content)) or max(1, len(content) // 60_000)
        return pages * (258 if family == "gemma" else 2_500)
    if media_type.startswith("audio") or start[8:12] == b"WAVE" or start.startswith(b"ID3"):
        rate = int.from_bytes(start[28:32], "little") if start[8:12] == b"WAVE" else 16_000
        seconds = len(data) * 3 / 4 / max(rate, 1_000)
        return 1 + round(seconds * (32 if family == "gemma" else 10))
    if media_type.startswith(("text/", "application/json")):
        return decode_base64(data).decode("utf-8", "replace")
    if start.startswith(b"\xff\xd8"):
        start = decode_base64(data[: 1 << 18])  # a JPEG's preview may precede its size
    return count_image_tokens(family, read_image_size(start), detail)


def count_image_tokens(family: str, size: tuple[int, int] | None, detail: object = None) -> int:
    """Return the number of tokens of an image. `size` is its width and height in pixels; None means unknown."""
    width, height = map(float, size or (1024, 1024))
    if family.startswith("claude"):
        side, most = (2576, 5_000) if family == "claude" else (1568, 1_600)
        scale = min(1, side / max(width, height))
        return min(most, 1 + int(width * height * scale * scale / 750))
    if family == "gemma":
        small = max(width, height) <= 384
        return 258 if small else 258 * _count_tiles(width, height, 768, 64)
    if detail == "low":
        return 85
    scale = min(1, 2048 / max(width, height))
    scale = min(scale, 768 / min(width, height))
    return 85 + 170 * _count_tiles(width * scale, height * scale, 512, 16)


def _count_tiles(width: float, height: float, side: int, most: int) -> int:
    return min(most, -int(-width // side) * -int(-height // side))


def decode_base64(data: str) -> bytes:
    """Return the decoded bytes, or b"" if the data is not base64. An incomplete last group of characters is ignored."""
    try:
        return binascii.a2b_base64(data[: len(data) // 4 * 4].replace("-", "+").replace("_", "/"))
    except ValueError:
        return b""


def read_image_size(data: bytes) -> tuple[int, int] | None:
    """Return the width and height from the header of a PNG, GIF, WebP or JPEG, or None if they can't be read."""
    size = (0, 0)
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        size = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    elif data.startswith((b"GIF87a", b"GIF89a")):
        size = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        if data[12:16] == b"VP8X":
            size = int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        elif data[12:16] == b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            size = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        else:
            width, height = int.from_bytes(data[26:28], "little"), int.from_bytes(data[28:30], "little")
            size = width & 0x3FFF, height & 0x3FFF
    elif data.startswith(b"\xff\xd8"):
        size = _read_jpeg_size(data)
    return size if 0 < size[0] < 1 << 20 and 0 < size[1] < 1 << 20 else None


def _read_jpeg_size(data: bytes) -> tuple[int, int]:
    position = 2
    while position + 9 < len(data) and data[position] == 0xFF:
        marker, length = data[position + 1], int.from_bytes(data[position + 2 : position + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = data[position + 5 : position + 7], data[position + 7 : position + 9]
            return int.from_bytes(width, "big"), int.from_bytes(height, "big")
        position += 2 + max(length, 2)
    return 0, 0
