"""States that a client may hold: encrypted, authenticated, bound to their owner.

    header   in clear: magic, version, sizes, revision, times, expiry, salt, digests of owner and conversation, key id
    body     AES-256-GCM of the plain state, which authenticates the header too

Who holds a sealed state without the key sees its size, revision, times and key id, and can neither read nor change
it, nor use it for another owner or conversation. An older state is as genuine as a newer one: `min_revision`
refuses it. Opening authenticates first and parses nothing of the content. "expired", "wrong_owner",
"wrong_conversation" and "rewound" are therefore said of genuine states only, never of altered bytes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from longtalk.errors import BadState, InputError
from longtalk.state import SEALED, Peek, peek
from longtalk.transcript import now

if TYPE_CHECKING:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["REASONS", "BoundSeal", "Seal", "SealedPeek", "peek_sealed"]

VERSION = 1
KEY_BYTES = 32
MAX_KEY_ID = 64
REASONS = (
    "type",
    "not_sealed",
    "too_new",
    "truncated",
    "unknown_key",
    "tampered",
    "wrong_owner",
    "wrong_conversation",
    "expired",
    "rewound",
)
"""Why a sealed state is refused, in the order of the checks; "tampered" also where a header can't be genuine."""

_MAGIC = SEALED
_PLAIN_MAGIC = b"\x89TLK"
# magic, version, key id bytes, body bytes, revision, created, updated, expires, salt, digests of owner, conversation
_FIXED = struct.Struct("<4sBBIQqqq24s16s16s")
_SALT_BYTES = 24
_DIGEST_BYTES = 16
_TAG_BYTES = 16
_MAX_BODY = 2**31 - 1
"""What the cipher takes at once."""
_LONGEST = 10_000 * 365 * 86_400
"""In seconds: an expiry after that is a mistake, and might not fit."""
# Each state is sealed under a key of its own, derived from the master key and a random salt of 192 bits. No such key
# is used twice, however many states a master key seals, so no pair of key and nonce can repeat: one nonce will do.
_NONCE = bytes(12)
_WHOLE = "Store and send it whole and unchanged (a binary field, or base64 in a text one)"


class SealedPeek(msgspec.Struct, frozen=True):
    """What a sealed state says of itself in clear. Only `Seal.open` proves that it is true."""

    version: int
    """Of the seal, not of the state inside."""
    revision: int
    created: int
    """When the conversation began, in milliseconds since 1970."""
    updated: int
    """When the state inside was made."""
    size: int
    """Bytes as handed in."""
    key: str
    """The id of the key that opens it."""
    expires: int
    """In milliseconds since 1970; 0: never."""


class Seal:
    """Seals states and opens them again.

    `keys` are 32 random bytes each (`Seal.new_key()`), by an id that stands in the sealed bytes in clear. The first
    one seals, all of them open. To change keys add the new one at the end, on every server; then put it first; then
    drop the old one when its states have expired. `expires_after` is in seconds, counted from the sealing.
    """

    __slots__ = ("_expires_after", "_key_id", "_keys")

    def __init__(self, keys: Mapping[str, bytes], *, expires_after: float | None = None) -> None:
        self._keys = _checked(keys)
        self._key_id = next(iter(self._keys))
        if expires_after is not None and not (isinstance(expires_after, int | float) and 0 < expires_after <= _LONGEST):
            raise InputError(
                "`expires_after` is a number of seconds above 0, or None for states that never expire, "
                f"not {expires_after!r}."
            )
        self._expires_after = expires_after

    @staticmethod
    def new_key() -> bytes:
        """A new random key. Make it once and keep it with the app's other secrets."""
        return os.urandom(KEY_BYTES)

    def to(self, *, owner: str = "", conversation: str = "", min_revision: int = 0) -> BoundSeal:
        """This seal for one owner and conversation: what a chat is given for a call."""
        return BoundSeal(self, owner, conversation, min_revision)

    def close(self, state: bytes, *, owner: str = "", conversation: str = "") -> bytes:
        """The state, sealed. It opens for this owner and this conversation only; nothing of either can be read."""
        seen = _peek(state)
        if seen.size > _MAX_BODY - _TAG_BYTES:
            raise InputError(f"A state of {seen.size} bytes can't be sealed, the limit is {_MAX_BODY - _TAG_BYTES}.")
        key_id = self._key_id.encode()
        salt = os.urandom(_SALT_BYTES)
        secret, binding = _derived(self._keys[self._key_id], salt)
        fixed = _FIXED.pack(
            _MAGIC,
            VERSION,
            len(key_id),
            seen.size + _TAG_BYTES,
            seen.revision,
            seen.created,
            seen.updated,
            0 if self._expires_after is None else now() + int(self._expires_after * 1_000),
            salt,
            _digest(binding, "owner", owner),
            _digest(binding, "conversation", conversation),
        )
        header = fixed + key_id
        cipher, _ = _aes_gcm()
        return header + cipher(secret).encrypt(_NONCE, bytes(state), header)

    def open(self, sealed: bytes, *, owner: str = "", conversation: str = "", min_revision: int = 0) -> bytes:
        """The plain state that was sealed for this owner and this conversation; else `BadState` says why not.

        An older state of the same conversation opens too. Where that matters keep the newest revision
        (`peek_sealed(…).revision` of what `close` gave) and hand it in as `min_revision`.
        """
        sealed = _bytes(sealed)
        header, key_id = _header(sealed)
        if key_id not in self._keys:
            raise _refused(
                sealed,
                "unknown_key",
                f"its key {key_id!r} is not one of this Seal's. Keep a key until the last state that it sealed has "
                "expired; if there never was such a key, the bytes were changed",
            )
        secret, binding = _derived(self._keys[key_id], header.salt)
        whose = _digest(binding, "owner", owner)
        which = _digest(binding, "conversation", conversation)
        start = _FIXED.size + header.key_id_bytes
        cipher, invalid = _aes_gcm()
        try:
            state = cipher(secret).decrypt(_NONCE, memoryview(sealed)[start:], sealed[:start])
        except (invalid, ValueError):
            raise _refused(
                sealed,
                "tampered",
                f"its bytes were changed, or the key {key_id!r} is not the one that it was sealed with. "
                "Don't use it; if it came back as it was sent, compare the keys",
            ) from None
        # From here on the header is known to be genuine, so what is said of it is true.
        from hmac import compare_digest

        if not compare_digest(whose, header.owner):
            raise _refused(
                sealed,
                "wrong_owner",
                "it was sealed for another `owner`, or for none. Hand in the same owner as when it was sealed, "
                "and never one that the client names",
            )
        if not compare_digest(which, header.conversation):
            raise _refused(
                sealed,
                "wrong_conversation",
                "it was sealed for another `conversation`, or for none. Hand in the same one as when it was sealed",
            )
        if header.expires and (late := now() - header.expires) >= 0:
            raise _refused(
                sealed,
                "expired",
                f"it expired {late // 1_000} seconds ago. Begin a new conversation, or seal with a longer "
                "`expires_after`",
            )
        if header.revision < min_revision:
            raise _refused(
                sealed,
                "rewound",
                f"it has revision {header.revision}, below the {min_revision} that is asked for. "
                "Hand in the newest state of the conversation",
            )
        return state


class BoundSeal(msgspec.Struct, frozen=True):
    """A seal for one owner and one conversation: see `Seal.to`."""

    seal: Seal
    owner: str = ""
    conversation: str = ""
    min_revision: int = 0

    def close(self, state: bytes) -> bytes:
        return self.seal.close(state, owner=self.owner, conversation=self.conversation)

    def open(self, sealed: bytes) -> bytes:
        return self.seal.open(sealed, owner=self.owner, conversation=self.conversation, min_revision=self.min_revision)


def peek_sealed(sealed: bytes) -> SealedPeek:
    """Revision, times, size, key id and expiry of a sealed state, without a key. Nothing of it is verified."""
    sealed = _bytes(sealed)
    header, key_id = _header(sealed)
    return SealedPeek(
        version=header.version,
        revision=header.revision,
        created=header.created,
        updated=header.updated,
        size=len(sealed),
        key=key_id,
        expires=header.expires,
    )


class _Header(msgspec.Struct, frozen=True, gc=False):
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


def _header(sealed: bytes) -> tuple[_Header, str]:
    """The header and its key id, within bounds, not yet authenticated."""
    if not sealed.startswith(_MAGIC) and not _MAGIC.startswith(sealed):
        kind = "it is a plain state" if sealed.startswith(_PLAIN_MAGIC) else "it does not begin like one"
        raise _refused(
            sealed,
            "not_sealed",
            f"{kind}, so anybody could have made it. Open only what `close` gave, as the same bytes",
        )
    if len(sealed) > len(_MAGIC) and sealed[len(_MAGIC)] > VERSION:
        raise _refused(
            sealed,
            "too_new",
            f"its seal has version {sealed[len(_MAGIC)]}, this longtalk opens up to {VERSION}. Upgrade longtalk",
        )
    if len(sealed) < _FIXED.size:
        raise _refused(sealed, "truncated", f"it ends inside its header. {_WHOLE}")
    header = _Header(*_FIXED.unpack_from(sealed))
    # Nothing below is ever written by `close`. Sizes are only compared: no memory is taken on the word of a header.
    if (
        header.version != VERSION
        or not 0 < header.key_id_bytes <= MAX_KEY_ID
        or not _TAG_BYTES <= header.body_bytes <= _MAX_BODY
    ):
        raise _refused(sealed, "tampered", f"its header was changed. {_WHOLE}")
    missing = _FIXED.size + header.key_id_bytes + header.body_bytes - len(sealed)
    if missing > 0:
        raise _refused(sealed, "truncated", f"{missing} of its bytes are missing. {_WHOLE}")
    if missing < 0:
        raise _refused(sealed, "tampered", f"it has {-missing} bytes too many. {_WHOLE}")
    try:
        return header, sealed[_FIXED.size : _FIXED.size + header.key_id_bytes].decode()
    except UnicodeDecodeError:
        raise _refused(sealed, "tampered", f"its key id was changed. {_WHOLE}") from None


def _derived(master: bytes, salt: bytes) -> tuple[bytes, bytes]:
    """The keys of one state: one encrypts it, the other binds owner and conversation.

    Owner and conversation get a key per state too, so that two states of one owner have nothing in common.
    """
    from hashlib import blake2b

    both = blake2b(salt, key=master, digest_size=2 * KEY_BYTES, person=b"longtalk seal").digest()
    return both[:KEY_BYTES], both[KEY_BYTES:]


def _digest(binding: bytes, what: str, value: str) -> bytes:
    from hashlib import blake2b

    if not isinstance(value, str):
        raise InputError(f"`{what}` is text, or empty for none, not {type(value).__name__}.")
    # Any text is a name, even one that is not Unicode (half an emoji from a client).
    name = value.encode("utf-8", "surrogatepass")
    return blake2b(name, key=binding, digest_size=_DIGEST_BYTES, person=what.encode()).digest()


def _checked(keys: Mapping[str, bytes]) -> dict[str, bytes]:
    # Keys are named by number here: ids and keys in the wrong places must not put a key into a message.
    if not isinstance(keys, Mapping) or not keys:
        raise InputError("A Seal needs at least one key, as {id: key}: `Seal({'2025-01': Seal.new_key()})`.")
    for number, (key_id, key) in enumerate(keys.items(), 1):
        try:
            size = len(key_id.encode())
        except (AttributeError, UnicodeEncodeError):
            size = 0
        if not 0 < size <= MAX_KEY_ID:
            raise InputError(f"The id of key {number} of a Seal must be text of 1 to {MAX_KEY_ID} bytes of UTF-8.")
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            found = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
            raise InputError(
                f"Key {number} of a Seal must be {KEY_BYTES} random bytes, not {found}: make one by `Seal.new_key()`, "
                "and decode it if it is kept as text (bytes.fromhex)."
            )
    return dict(keys)


def _peek(state: bytes) -> Peek:
    if isinstance(state, bytes | bytearray | memoryview) and bytes(state[: len(_MAGIC)]) == _MAGIC:
        raise InputError("This state is sealed already: `open` it first, or hand it on as it is.")
    try:
        return peek(state)
    except BadState as problem:
        raise InputError(f"Only a state can be sealed, as `reply.state` gave it. {problem}") from None


def _bytes(sealed: bytes) -> bytes:
    if isinstance(sealed, bytes | bytearray | memoryview):
        return bytes(sealed)
    raise _refused(
        sealed,
        "type",
        f"it is bytes, as `close` gave them, not {type(sealed).__name__}. Decode it if it came as text (base64)",
    )


def _refused(sealed: bytes, reason: str, what: str) -> BadState:
    return BadState(f"This sealed state can't be opened: {what}.", reason=reason, state=sealed)


def _aes_gcm() -> tuple[type[AESGCM], type[InvalidTag]]:
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise InputError("Sealing needs an extra: pip install 'longtalk[seal]'.") from None
    return AESGCM, InvalidTag
