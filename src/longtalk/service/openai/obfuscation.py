"""Random characters in the pieces of a stream, so that their size does not tell what is in them.

A client asks for them by `include_obfuscation`. They are added when an event is sent, and never stored.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator

_SIZE = 32
"""The size of a padded piece is a multiple of this."""
_FIELD = b',"obfuscation":"%b"}'
_PIECES = (b'.delta"', b'"chat.completion.chunk"')
"""What the beginning of a piece has, on both surfaces."""


def pad(event: bytes) -> bytes:
    """Return an event with a field of random characters if it is a piece of an answer."""
    if not event.endswith(b"}") or not any(mark in event[:160] for mark in _PIECES):
        return event
    missing = -(len(event) + len(_FIELD % b"") - 1) % _SIZE
    return event[:-1] + _FIELD % secrets.token_hex(_SIZE)[: missing or _SIZE].encode()


def pad_stream(chunks: AsyncGenerator[bytes, None], *, wanted: bool) -> AsyncIterator[bytes]:
    """Return a stream of server-sent events, with padded pieces if that is wanted."""
    return _pad_all(chunks) if wanted else chunks


async def _pad_all(chunks: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    async with contextlib.aclosing(chunks):
        async for chunk in chunks:
            yield b"\n\n".join(map(pad, chunk.split(b"\n\n")))
