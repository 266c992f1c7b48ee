"""Encode a transcript as opaque bytes, and decode it.

    prefix   fixed size: magic, version, flags, revision, times, sizes, checksums
    index    msgpack: the pack's index, turns, records, shed ranges
    array    the JSON of the entries, unchanged

If index and array are larger than `COMPRESS_OVER` bytes, they are compressed together. Decoding trusts nothing: sizes
are checked before memory is allocated, checksums before parsing, and every entry must be exactly one JSON object. Every
problem is reported as a `BadState` that carries the original bytes. `READERS` maps versions to readers; a state of a
newer version is rejected with an error that gives the version. Version 1 is the JSON of the earlier Go library. Shed
parts (`shedding.py`) have the same format with a flag, so a part is never read as a state, nor a state as a part.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import Annotated, Any

import msgspec

from longtalk.errors import BadState
from longtalk.state.sealed_header import PLAIN, SEALED, peek_sealed
from longtalk.transcript.pack import Pack, checksum
from longtalk.transcript.pack_index import MAX_ENTRIES, PackIndex
from longtalk.transcript.ranges import Ranges
from longtalk.transcript.transcript import Record, Transcript, TurnIndex, Turns

VERSION = 2
MAX_BYTES = 64 * 1024 * 1024
MAX_RATIO = 1_000
COMPRESS_OVER = 64 * 1024

_ZSTD, _PART = 1, 2
# The fields: magic, version, flags, revision, created, updated, stored bytes, index bytes, array bytes, entries, two
# checksums.
_PREFIX = struct.Struct("<4sBBxxQqqQQQIII")
_CHECK = struct.Struct("<I")
_START = _PREFIX.size + _CHECK.size


class Peek(msgspec.Struct, frozen=True):
    """The properties of a state that can be read without decoding its content."""

    version: int
    revision: int
    created: int
    """When the conversation began, in milliseconds since 1970."""
    updated: int
    """When this state was made, in milliseconds since 1970. Apps can use it to expire conversations."""
    size: int
    """The size of the state in bytes."""
    entries: int = 0
    """The number of entries; 0 if it is unknown, as for a sealed state."""
    content: int = 0
    """The size of the uncompressed content in bytes; 0 if it is unknown, as for a sealed state."""
    part: bool = False
    """True if these bytes are known to be a part that was shed from a state, rather than a state."""


class _Body(msgspec.Struct, frozen=True, array_like=True):
    index: PackIndex
    turns: TurnIndex
    records: Annotated[tuple[Record, ...], msgspec.Meta(max_length=MAX_ENTRIES)]
    shed: Ranges = Ranges()


_encode_body = msgspec.msgpack.Encoder().encode
_decode_body = msgspec.msgpack.Decoder(_Body).decode


def encode(transcript: Transcript, *, part: bool = False, compress_over: int = COMPRESS_OVER) -> bytes:
    """Return this transcript as the bytes of a state or, with `part`, of a shed part.

    Content of more than `compress_over` bytes is compressed.
    """
    stored, crc = _written(transcript)
    index = stored[0]
    raw, flags = sum(map(len, stored)), _PART if part else 0
    if raw > compress_over:
        squeezed = _compress(b"".join(stored))
        # Data that shrinks beyond the ratio that readers accept (as a zip bomb does) stays uncompressed.
        if raw // MAX_RATIO < len(squeezed) < raw:
            stored, flags = (squeezed,), flags | _ZSTD
    prefix = _PREFIX.pack(
        PLAIN,
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


def _written(transcript: Transcript) -> tuple[tuple[bytes | memoryview, ...], int]:
    """Return the uncompressed index and array of a state in pieces, and the checksum of the array."""
    grown, tail, crc = transcript.pack.grow(transcript.fresh)
    index = _encode_body(_Body(grown, transcript.turns.to_index(), transcript.records, transcript.shed))
    return (index, memoryview(transcript.pack.array)[:-1], tail), crc


def decode(state: bytes, *, wires: frozenset[str], part: bool = False, max_bytes: int = MAX_BYTES) -> Transcript:
    """Return the transcript in a state or, with `part`, in a shed part; raise `BadState` if the bytes are invalid.

    `wires` are the names of the wires that entries may have; `max_bytes` limits the uncompressed size.
    """
    state = _plain(state)
    if len(state) > max_bytes:
        raise _bad(state, "too_large", f"it has {len(state)} bytes, the limit is {max_bytes}: raise `max_state`")
    return READERS[_version(state)](state, wires, part, max_bytes)


def digest(transcript: Transcript) -> bytes:
    """Return the digest that `digest_of` would return for this transcript, encoded as a shed part."""
    found = hashlib.sha256()
    for piece in _written(transcript)[0]:
        found.update(piece)
    return found.digest()


def digest_of(part: bytes) -> bytes:
    """Return the SHA-256 digest of the uncompressed content of a shed part."""
    _, flags, _, _, _, _, index, array, *_ = _prefix(part)
    body = part[_START:]
    return hashlib.sha256(_decompress(body, index + array) if flags & _ZSTD else body).digest()


def peek(state: bytes) -> Peek:
    """Return the version, revision, times and sizes of a state without decoding its content."""
    state = _plain(state)
    if state.startswith(SEALED):
        seen = peek_sealed(state)
        return Peek(seen.version, seen.revision, seen.created, seen.updated, seen.size)
    if _version(state) < VERSION:
        return Peek(version=1, revision=1, created=0, updated=0, size=len(state), content=len(state))
    _, flags, revision, created, updated, _, index, array, entries, _, _ = _prefix(state)
    return Peek(
        version=VERSION,
        revision=revision,
        created=created,
        updated=updated,
        entries=entries,
        size=len(state),
        content=index + array,
        part=bool(flags & _PART),
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
        from longtalk.state.legacy_v1 import version_of

        version = version_of(state)
    elif len(state) > len(PLAIN) and state.startswith(PLAIN):
        version = state[len(PLAIN)]
    elif state.startswith(SEALED):
        raise _bad(state, "unknown_key", "it is sealed, and there is no `seal` to open it with")
    elif PLAIN.startswith(state[: len(PLAIN)]):
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


def _read(state: bytes, wires: frozenset[str], part: bool, max_bytes: int) -> Transcript:
    _, flags, revision, created, updated, stored, index, array, entries, index_crc, array_crc = _prefix(state)
    raw, squeezed = index + array, flags & _ZSTD
    if flags & ~(_ZSTD | _PART):
        raise _bad(state, "corrupt", "its flags are unknown")
    if bool(flags & _PART) is not part:
        raise _mistaken(state, part)
    if len(state) - _START != stored:
        reason = "truncated" if len(state) - _START < stored else "corrupt"
        raise _bad(state, reason, f"it should have {stored} bytes of content and has {len(state) - _START}")
    if raw > max_bytes:
        raise _bad(state, "too_large", f"it unpacks to {raw} bytes, the limit is {max_bytes}: raise `max_state`")
    if revision >= 2**63:
        raise _bad(state, "corrupt", "its revision can't be true")
    if entries > MAX_ENTRIES:
        raise _bad(state, "too_large", f"it has {entries} entries, the limit is {MAX_ENTRIES}")
    if (raw > MAX_RATIO * max(stored, 1) and squeezed) or (raw != stored and not squeezed):
        raise _bad(state, "corrupt", "its sizes can't be true")
    try:
        body = memoryview(_decompress(state[_START:], raw) if squeezed else state)[0 if squeezed else _START :]
        if zlib.crc32(body[:index]) != index_crc or checksum(body[index:]) != array_crc:
            raise ValueError("a checksum is wrong")
        read = _decode_body(body[:index])
        pack = Pack(read.index, body[index:], array_crc)
        if len(pack) != entries:
            raise ValueError("it does not hold as many entries as it says")
        pack.check(wires)
        read.turns.check()
        read.shed.check(entries, len(read.turns.ids), part=part)
        if part and read.records:
            raise ValueError("it holds records, which never leave a state")
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
        shed=read.shed,
    )


def _read_v1(state: bytes, wires: frozenset[str], part: bool, max_bytes: int) -> Transcript:  # noqa: ARG001
    from longtalk.state.legacy_v1 import read

    if part:
        raise _mistaken(state, part)
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


def _mistaken(state: bytes, part: bool) -> BadState:
    if part:
        return _bad(state, "wrong_part", "it is a state, and not what one has shed")
    return _bad(state, "part", "it is what a state has shed; `join` it with its state")


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
        # One byte more than announced is enough to detect a false size.
        out: bytes = reader.decompress(data, max_length=size + 1)
    except zstd.ZstdError as problem:
        raise ValueError(f"its compressed content is damaged ({problem})") from None
    if len(out) != size or not reader.eof or reader.unused_data:
        raise ValueError("its compressed content has another size than announced")
    return out
