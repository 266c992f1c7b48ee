"""How much of a prompt the engine has read, which it reports on request in events of their own."""

from __future__ import annotations

import msgspec


class _Progress(msgspec.Struct):
    total: int
    processed: int


class _Event(msgspec.Struct):
    prompt_progress: _Progress | None = None


def ask_for_progress(body: bytes) -> bytes:
    """Return a request whose streamed response also reports the progress."""
    return body[:-1] + b',"return_progress":true}'


def read_progress(data: bytes) -> tuple[int, int] | None:
    """Return the tokens read so far and those in all; None for an event of the answer."""
    if b'"prompt_progress"' not in data:
        return None
    try:
        progress = msgspec.json.decode(data, type=_Event).prompt_progress
    except msgspec.MsgspecError:
        return None
    return None if progress is None else (progress.processed, progress.total)
