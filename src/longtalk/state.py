"""A transcript as opaque bytes, and back.

    prefix   fixed size: magic, version, flags, revision, times, sizes, checksums
    index    msgpack: the pack's index, turns, records
    array    the entries' JSON, as it came

Above `COMPRESS_OVER` bytes index and array are compressed together. Reading trusts nothing: sizes are bounded
before memory is taken, checksums come before parsing, and every entry is proved to be one JSON object. Whatever
is wrong is a `BadState` that carries the original bytes. Versions are read by a table, `READERS`; a newer one is
refused by name. Version 1 is the JSON of the earlier Go library.
"""

from __future__ import annotations

import struct
import zlib
from typing import Annotated, Any

import msgspec

from longtalk.errors import BadState
from longtalk.pack import MAX_ENTRIES, Index, Pack, checksum
from longtalk.transcript import Record, Transcript, TurnIndex, Turns

VERSION = 2
MAX_BYTES = 64 * 1024 * 1024
MAX_RATIO = 1_000
COMPRESS_OVER = 64 * 1024

_MAGIC = b"\x89TLK"
SEALED = b"\x89TLS"
"""How a sealed state begins: see `seal.py`."""
_ZSTD = 1
# magic, version, flags, revision, created, updated, stored bytes, index bytes, array bytes, entries, two checksums
_PREFIX = struct.Struct("<4sBBxxQqqQQQIII")
_CHECK = struct.Struct("<I")
_START = _PREFIX.size + _CHECK.size


class Peek(msgspec.Struct, frozen=True):
    """What can be told of a state without reading its content."""

    version: int
    revision: int
    created: int
    """When the conversation began, in milliseconds since 1970."""
    updated: int
    """When this state was made: a caller that wants to expire conversations reads it here."""
    size: int
    """Bytes as handed in."""
    entries: int = 0
    """How many there are; 0 where that can't be told, as of a sealed state."""
    content: int = 0
    """Bytes when unpacked, where that can be told."""


class _Body(msgspec.Struct, frozen=True, array_like=True):
    index: Index
    turns: TurnIndex
    records: Annotated[tuple[Record, ...], msgspec.Meta(max_length=MAX_ENTRIES)]


_encode_body = msgspec.msgpack.Encoder().encode
_decode_body = msgspec.msgpack.Decoder(_Body).decode


def encode(transcript: Transcript, *, compress_over: int = COMPRESS_OVER) -> bytes:
    """The state that holds this transcript."""
    grown, tail, crc = transcript.pack.grow(transcript.fresh)
    index = _encode_body(_Body(grown, transcript.turns.packed(), transcript.records))
    stored: tuple[bytes | memoryview, ...] = (index, memoryview(transcript.pack.array)[:-1], tail)
    raw, flags = sum(map(len, stored)), 0
    if raw > compress_over:
        squeezed = _compress(b"".join(stored))
        # What shrinks more than a reader accepts (a bomb would) is kept plain.
        if raw // MAX_RATIO < len(squeezed) < raw:
            stored, flags = (squeezed,), _ZSTD
    prefix = _PREFIX.pack(
        _MAGIC,
        VERSION,
        flags,
        transcript.revision,
        transcript.created,
        transcript.updated,
        sum(map(len, stored)),
        len(index),
        raw - len(index),
        len(transcript),
        zlib.crc32(index),
        crc,
    )
    return b"".join((prefix, _CHECK.pack(zlib.crc32(prefix)), *stored))


def decode(state: bytes, *, wires: frozenset[str], max_bytes: int = MAX_BYTES) -> Transcript:
    """The transcript that this state holds. `wires` are the names that an entry's wire may have."""
    state = _plain(state)
    if len(state) > max_bytes:
        raise _bad(state, "too_large", f"it has {len(state)} bytes, the limit is {max_bytes}: raise `max_state`")
    return READERS[_version(state)](state, wires, max_bytes)


def peek(state: bytes) -> Peek:
    """Version, revision, times and sizes of a state, without reading its content."""
    state = _plain(state)
    if state.startswith(SEALED):
        from longtalk.seal import peek_sealed

        seen = peek_sealed(state)
        return Peek(seen.version, seen.revision, seen.created, seen.updated, seen.size)
    if _version(state) < VERSION:
        return Peek(version=1, revision=1, created=0, updated=0, size=len(state), content=len(state))
    _, _, revision, created, updated, _, index, array, entries, _, _ = _prefix(state)
    return Peek(
        version=VERSION,
        revision=revision,
        created=created,
        updated=updated,
        entries=entries,
        size=len(state),
        content=index + array,
    )


def _plain(state: bytes) -> bytes:
    if isinstance(state, bytes | bytearray | memoryview):
        return bytes(state)
    raise BadState(
        f"A state is bytes, as `reply.state` gave them, not {type(state).__name__}: "
        "store them as they are (a binary column, or base64 in a text one).",
        reason="type",
        state=state,
    )


def _version(state: bytes) -> int:
    if state[:1] in (b"{", b" ", b"\n", b"\r", b"\t"):
        from longtalk.state_v1 import version_of

        version = version_of(state)
    elif len(state) > len(_MAGIC) and state.startswith(_MAGIC):
        version = state[len(_MAGIC)]
    elif state.startswith(SEALED):
        raise _bad(state, "unknown_key", "it is sealed, and there is no `seal` to open it with")
    elif _MAGIC.startswith(state[: len(_MAGIC)]):
        raise _bad(state, "truncated", "it ends in its first bytes")
    else:
        raise _bad(state, "corrupt", "it does not begin like a state")
    if version > VERSION:
        raise _bad(
            state,
            "too_new",
            f"it has version {version}, this longtalk reads up to {VERSION}: upgrade longtalk to read it",
        )
    if version not in READERS:
        raise _bad(state, "corrupt", f"there is no version {version}")
    return version


def _prefix(state: bytes) -> tuple[Any, ...]:
    if len(state) < _START:
        raise _bad(state, "truncated", "it ends inside its prefix")
    if zlib.crc32(state[: _PREFIX.size]) != _CHECK.unpack_from(state, _PREFIX.size)[0]:
        raise _bad(state, "corrupt", "the checksum of its prefix is wrong")
    return _PREFIX.unpack_from(state)[1:]


def _read(state: bytes, wires: frozenset[str], max_bytes: int) -> Transcript:
    _, flags, revision, created, updated, stored, index, array, entries, index_crc, array_crc = _prefix(state)
    raw = index + array
    if flags & ~_ZSTD:
        raise _bad(state, "corrupt", "its flags are unknown")
    if len(state) - _START != stored:
        reason = "truncated" if len(state) - _START < stored else "corrupt"
        raise _bad(state, reason, f"it should have {stored} bytes of content and has {len(state) - _START}")
    if raw > max_bytes:
        raise _bad(state, "too_large", f"it unpacks to {raw} bytes, the limit is {max_bytes}: raise `max_state`")
    if revision >= 2**63:
        raise _bad(state, "corrupt", "its revision can't be true")
    if entries > MAX_ENTRIES:
        raise _bad(state, "too_large", f"it has {entries} entries, the limit is {MAX_ENTRIES}")
    if (raw > MAX_RATIO * max(stored, 1) and flags) or (raw != stored and not flags):
        raise _bad(state, "corrupt", "its sizes can't be true")
    try:
        body = memoryview(_decompress(state[_START:], raw) if flags else state)[0 if flags else _START :]
        if zlib.crc32(body[:index]) != index_crc or checksum(body[index:]) != array_crc:
            raise ValueError("a checksum is wrong")
        read = _decode_body(body[:index])
        pack = Pack(read.index, body[index:], array_crc)
        if len(pack) != entries:
            raise ValueError("it does not hold as many entries as it says")
        pack.check(wires)
        read.turns.check()
    except LookupError as problem:
        raise _bad(state, "unknown_wire", f"it holds entries of the wire {problem.args[0]!r}") from None
    except RecursionError:
        raise _bad(state, "corrupt", "its index is nested too deeply") from None
    except ValueError as problem:
        raise _bad(state, "corrupt", str(problem)) from None
    return Transcript(
        pack=pack,
        turns=Turns(read.turns),
        records=read.records,
        revision=revision,
        created=created,
        updated=updated,
    )


def _read_v1(state: bytes, wires: frozenset[str], max_bytes: int) -> Transcript:  # noqa: ARG001
    from longtalk.state_v1 import read

    try:
        return read(state)
    except LookupError as problem:
        raise _bad(state, "unknown_wire", f"its provider is {problem.args[0]!r}") from None
    except OverflowError as problem:
        raise _bad(state, "too_large", str(problem)) from None
    except ValueError as problem:
        raise _bad(state, "corrupt", str(problem)) from None


READERS = {1: _read_v1, VERSION: _read}


def _bad(state: bytes, reason: str, what: str) -> BadState:
    return BadState(f"This state can't be read: {what}.", reason=reason, state=state)


def _zstd() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from backports import zstd
    return zstd


def _compress(data: bytes) -> bytes:
    zstd = _zstd()
    squeezed: bytes = zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})
    return squeezed


def _decompress(data: bytes, size: int) -> bytes:
    zstd = _zstd()
    reader = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 23})
    try:
        # One byte more than announced is enough to see that the announcement was false.
        out: bytes = reader.decompress(data, max_length=size + 1)
    except zstd.ZstdError as problem:
        raise ValueError(f"its compressed content is damaged ({problem})") from None
    if len(out) != size or not reader.eof or reader.unused_data:
        raise ValueError("its compressed content has another size than announced")
    return out
