"""Read the header of a sealed state, for which no key is needed.

The header has the revision, times, expiry and key id of the state. Nothing in it can be trusted until `Seal.open` has
authenticated the state.
"""

from __future__ import annotations

import struct

import msgspec

from longtalk.errors import BadState

SEALED = b"\x89TLS"
"""The first bytes of every sealed state."""
PLAIN = b"\x89TLK"
"""The first bytes of every plain state."""
VERSION = 1
MAX_KEY_ID = 64
# The fields: magic, version, key id bytes, body bytes, revision, created, updated, expires, salt, digests of owner and
# conversation.
FIXED = struct.Struct("<4sBBIQqqq24s16s16s")
TAG_BYTES = 16
MAX_BODY = 2**31 - 1
"""The maximum number of bytes that the cipher encrypts at once."""
_WHOLE = "Store and send it whole and unchanged (in a binary field, or as base64 in a text field)"


class SealedPeek(msgspec.Struct, frozen=True):
    """The unencrypted properties of a sealed state. They can't be trusted until `Seal.open` has authenticated them."""

    version: int
    """The version of the seal's format, which is independent of the version of the state inside."""
    revision: int
    created: int
    """When the conversation began, in milliseconds since 1970."""
    updated: int
    """When the state inside was made, in milliseconds since 1970."""
    size: int
    """The size of the sealed state in bytes."""
    key: str
    """The id of the key that opens the state."""
    expires: int
    """When the sealed state expires, in milliseconds since 1970; 0 if it never expires."""


def peek_sealed(sealed: bytes) -> SealedPeek:
    """Return the revision, times, size, key id and expiry of a sealed state. No key is needed.

    None of these values is authenticated.
    """
    sealed = to_bytes(sealed)
    header, key_id = read_header(sealed)
    return SealedPeek(
        version=header.version,
        revision=header.revision,
        created=header.created,
        updated=header.updated,
        size=len(sealed),
        key=key_id,
        expires=header.expires,
    )


class SealedHeader(msgspec.Struct, frozen=True, gc=False):
    """The fields of the header of a sealed state, in the order in which they are stored."""

    magic: bytes
    version: int
    key_id_bytes: int
    body_bytes: int
    revision: int
    created: int
    updated: int
    expires: int
    salt: bytes
    owner: bytes
    conversation: bytes


def read_header(sealed: bytes) -> tuple[SealedHeader, str]:
    """Return the header and the key id of a sealed state; raise `BadState` if they are malformed.

    Sizes are checked, but nothing is authenticated.
    """
    if not sealed.startswith(SEALED) and not SEALED.startswith(sealed):
        kind = "it is a plain state" if sealed.startswith(PLAIN) else "its first bytes are not those of a sealed state"
        raise cannot_open(
            sealed,
            "not_sealed",
            f"{kind}, so its origin is unknown. Open only the exact bytes that `close` returned",
        )
    if len(sealed) > len(SEALED) and sealed[len(SEALED)] > VERSION:
        raise cannot_open(
            sealed,
            "too_new",
            f"its seal has version {sealed[len(SEALED)]}, but this version of longtalk opens only up to {VERSION}. "
            "Upgrade longtalk",
        )
    if len(sealed) < FIXED.size:
        raise cannot_open(sealed, "truncated", f"it ends inside its header. {_WHOLE}")
    header = SealedHeader(*FIXED.unpack_from(sealed))
    # `close` never writes a header that is rejected below. Sizes are only compared, so a forged header can't cause a
    # large allocation.
    if (
        header.version != VERSION
        or not 0 < header.key_id_bytes <= MAX_KEY_ID
        or not TAG_BYTES <= header.body_bytes <= MAX_BODY
    ):
        raise cannot_open(sealed, "tampered", f"its header was changed. {_WHOLE}")
    missing = FIXED.size + header.key_id_bytes + header.body_bytes - len(sealed)
    if missing > 0:
        raise cannot_open(sealed, "truncated", f"{missing} of its bytes are missing. {_WHOLE}")
    if missing < 0:
        raise cannot_open(sealed, "tampered", f"it has {-missing} bytes too many. {_WHOLE}")
    try:
        return header, sealed[FIXED.size : FIXED.size + header.key_id_bytes].decode()
    except UnicodeDecodeError:
        raise cannot_open(sealed, "tampered", f"its key id was changed. {_WHOLE}") from None


def to_bytes(sealed: bytes) -> bytes:
    """Return a sealed state as `bytes`; raise `BadState` if the value is not binary data."""
    if isinstance(sealed, bytes | bytearray | memoryview):
        return bytes(sealed)
    raise cannot_open(
        sealed,
        "type",
        f"it must be the bytes that `close` returned, not {type(sealed).__name__}. Decode it if it came as base64 text",
    )


def cannot_open(sealed: bytes, reason: str, what: str) -> BadState:
    """Return a `BadState` with this reason and message, for the caller to raise."""
    return BadState(f"This sealed state can't be opened: {what}.", reason=reason, state=sealed)
