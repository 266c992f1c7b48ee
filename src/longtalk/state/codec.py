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
from collections.abc import Container
from typing import Annotated, Any

import msgspec

from longtalk.errors import BadState
from longtalk.state.sealed_header import PLAIN, SEALED, peek_sealed
from longtalk.transcript.pack import Pack, checksum
from longtalk.transcript.pack_check import check_pack
from longtalk.transcript.pack_index import MAX_ENTRIES, PackIndex
from longtalk.transcript.ranges import Ranges
from longtalk.transcript.standing import Standing
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
    stored, crc = _encode_content(transcript)
    index = stored[0]
    raw, flags = sum(map(len, stored)), _PART if part else 0
    if raw > compress_over:
        compressed = _compress(b"".join(stored))
        # Data that shrinks beyond the ratio that readers accept (as a zip bomb does) stays uncompressed.
        if raw // MAX_RATIO < len(compressed) < raw:
            stored, flags = (compressed,), flags | _ZSTD
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


def _encode_content(transcript: Transcript) -> tuple[tuple[bytes | memoryview, ...], int]:
    """Return the uncompressed index and array of a state in pieces, and the checksum of the array."""
    grown, tail, crc = transcript.pack.grow(transcript.fresh)
    index = _encode_body(_Body(grown, transcript.turns.to_index(), transcript.records, transcript.shed))
    return (index, memoryview(transcript.pack.array)[:-1], tail), crc


def decode(
    state: bytes,
    *,
    wires: Container[str],
    part: bool = False,
    max_bytes: int = MAX_BYTES,
    is_authentic: bool = False,
) -> Transcript:
    """Return the transcript in a state or, with `part`, in a shed part; raise `BadState` if the bytes are invalid.

    `wires` are the names of the wires that entries may have; `max_bytes` limits the uncompressed size. `is_authentic`
    says that a seal has proved that Longtalk wrote these very bytes. Then the checksums and the JSON of each entry,
    which were right when the state was sealed, are not checked again.
    """
    state = _to_bytes(state)
    if len(state) > max_bytes:
        raise _bad_state(
            state,
            "too_large",
            f"it has {len(state)} bytes, but the limit is {max_bytes}; to open it, raise `max_state`",
        )
    if (version := _read_version(state)) == VERSION:
        return _read(state, wires, part, max_bytes, is_authentic=is_authentic)
    return READERS[version](state, wires, part, max_bytes)


def is_empty(state: bytes) -> bool:
    """Return True if the value is an empty byte string, which is the state of a conversation without messages."""
    return isinstance(state, bytes | bytearray | memoryview) and len(state) == 0


def digest_part(transcript: Transcript) -> bytes:
    """Return the digest that `digest_encoded_part` returns for this transcript once it is encoded as a shed part."""
    digest = hashlib.sha256()
    for piece in _encode_content(transcript)[0]:
        digest.update(piece)
    return digest.digest()


def digest_encoded_part(part: bytes) -> bytes:
    """Return the SHA-256 digest of the uncompressed content of a shed part."""
    _, flags, _, _, _, _, index, array, *_ = _read_prefix(part)
    body = part[_START:]
    return hashlib.sha256(_decompress(body, index + array) if flags & _ZSTD else body).digest()


def peek(state: bytes) -> Peek:
    """Return the version, revision, times and sizes of a state without decoding its content."""
    state = _to_bytes(state)
    if is_empty(state):
        return Peek(version=VERSION, revision=0, created=0, updated=0, size=0)
    if state.startswith(SEALED):
        seen = peek_sealed(state)
        return Peek(seen.version, seen.revision, seen.created, seen.updated, seen.size)
    if _read_version(state) < VERSION:
        return Peek(version=1, revision=1, created=0, updated=0, size=len(state), content=len(state))
    _, flags, revision, created, updated, _, index, array, entries, _, _ = _read_prefix(state)
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


def _to_bytes(state: bytes) -> bytes:
    if isinstance(state, bytes | bytearray | memoryview):
        return bytes(state)
    raise BadState(
        f"A state must be the bytes of `reply.state`, not {type(state).__name__}. "
        "Store them unchanged: in a binary column, or as base64 in a text column.",
        reason="type",
        state=state,
    )


def _read_version(state: bytes) -> int:
    if state[:1] in (b"{", b" ", b"\n", b"\r", b"\t"):
        from longtalk.state.legacy_v1 import read_version

        version = read_version(state)
    elif len(state) > len(PLAIN) and state.startswith(PLAIN):
        version = state[len(PLAIN)]
    elif state.startswith(SEALED):
        raise _bad_state(state, "unknown_key", "the state is sealed; pass the `seal` that opens it")
    elif PLAIN.startswith(state[: len(PLAIN)]):
        raise _bad_state(state, "truncated", "the state ends after its first few bytes")
    else:
        raise _bad_state(state, "corrupt", "the first bytes are not those of a state")
    if version > VERSION:
        raise _bad_state(
            state,
            "too_new",
            f"the state has version {version}, but this version of longtalk reads only up to {VERSION}: upgrade "
            "longtalk",
        )
    if version not in READERS:
        raise _bad_state(state, "corrupt", f"the state has version {version}, which does not exist")
    return version


def _read_prefix(state: bytes) -> tuple[Any, ...]:
    if len(state) < _START:
        raise _bad_state(state, "truncated", "the state ends inside its prefix")
    if zlib.crc32(state[: _PREFIX.size]) != _CHECK.unpack_from(state, _PREFIX.size)[0]:
        raise _bad_state(state, "corrupt", "the checksum of the state's prefix is wrong")
    return _PREFIX.unpack_from(state)[1:]


def _read(state: bytes, wires: Container[str], part: bool, max_bytes: int, *, is_authentic: bool = False) -> Transcript:
    _, flags, revision, created, updated, stored, index, array, entries, index_crc, array_crc = _read_prefix(state)
    raw, is_compressed = index + array, flags & _ZSTD
    if flags & ~(_ZSTD | _PART):
        raise _bad_state(state, "corrupt", "the state has unknown flags")
    if bool(flags & _PART) is not part:
        raise _wrong_kind(state, part)
    if len(state) - _START != stored:
        reason = "truncated" if len(state) - _START < stored else "corrupt"
        why = f"the state should have {stored} bytes of content, but has {len(state) - _START}"
        raise _bad_state(state, reason, why)
    if raw > max_bytes:
        raise _bad_state(
            state,
            "too_large",
            f"the state has {raw} bytes uncompressed, and the limit is {max_bytes}: raise `max_state`",
        )
    if revision >= 2**63:
        raise _bad_state(state, "corrupt", "the revision of the state is too large")
    if entries > MAX_ENTRIES:
        raise _bad_state(state, "too_large", f"the state has {entries} entries, and the limit is {MAX_ENTRIES}")
    if (raw > MAX_RATIO * max(stored, 1) and is_compressed) or (raw != stored and not is_compressed):
        raise _bad_state(state, "corrupt", "the sizes in the state's prefix contradict each other")
    try:
        body = memoryview(_decompress(state[_START:], raw) if is_compressed else state)[
            0 if is_compressed else _START :
        ]
        if not is_authentic and (zlib.crc32(body[:index]) != index_crc or checksum(body[index:]) != array_crc):
            raise ValueError("a checksum is wrong")
        content = _decode_body(body[:index])
        pack = Pack(content.index, body[index:], array_crc)
        if len(pack) != entries:
            raise ValueError("its number of entries is wrong")
        check_pack(pack, wires, is_authentic=is_authentic)
        content.turns.check()
        content.shed.check(entries, len(content.turns.ids), part=part)
        if part and content.records:
            raise ValueError("the part has records, but a shed part never does")
    except LookupError as problem:
        why = f"the state has entries of the unknown wire {problem.args[0]!r}: upgrade longtalk"
        raise _bad_state(state, "unknown_wire", why) from None
    except RecursionError:
        raise _bad_state(state, "corrupt", "the index of the state is nested too deeply") from None
    except ValueError as problem:
        raise _bad_state(state, "corrupt", str(problem)) from None
    return Transcript(
        pack=pack,
        turns=Turns(content.turns),
        records=Standing(content.records),
        revision=revision,
        created=created,
        updated=updated,
        shed=content.shed,
    )


def _read_v1(state: bytes, wires: Container[str], part: bool, max_bytes: int) -> Transcript:  # noqa: ARG001
    from longtalk.state.legacy_v1 import read

    if part:
        raise _wrong_kind(state, part)
    try:
        return read(state)
    except LookupError as problem:
        raise _bad_state(state, "unknown_wire", f"the provider {problem.args[0]!r} of the state is unknown") from None
    except OverflowError as problem:
        raise _bad_state(state, "too_large", str(problem)) from None
    except ValueError as problem:
        raise _bad_state(state, "corrupt", str(problem)) from None


READERS = {1: _read_v1, VERSION: _read}


def _bad_state(state: bytes, reason: str, what: str) -> BadState:
    return BadState(f"This state can't be read: {what}.", reason=reason, state=state)


def _wrong_kind(state: bytes, part: bool) -> BadState:
    if part:
        return _bad_state(state, "wrong_part", "the value is a state, not a part that a state has shed")
    return _bad_state(state, "part", "the value is a part that a state has shed; use `join` to put it back")


def _import_zstd() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from backports import zstd
    return zstd


def _compress(data: bytes) -> bytes:
    zstd = _import_zstd()
    compressed: bytes = zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})
    return compressed


def _decompress(data: bytes, size: int) -> bytes:
    zstd = _import_zstd()
    reader = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 23})
    try:
        # One byte more than announced is enough to detect a false size.
        out: bytes = reader.decompress(data, max_length=size + 1)
    except zstd.ZstdError as problem:
        raise ValueError(f"the compressed content is damaged ({problem})") from None
    if len(out) != size or not reader.eof or reader.unused_data:
        raise ValueError("the compressed content does not have the announced size")
    return out
