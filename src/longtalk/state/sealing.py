"""Seal states that clients keep: encrypt and authenticate them, and bind them to an owner and a conversation.

    header   plain: magic, version, sizes, revision, times, expiry, salt, digests of owner and conversation, key id
    body     AES-256-GCM of the plain state, which authenticates the header too

Without the key, a client that holds a sealed state sees its size, revision, times and key id, but can neither read nor
change it, nor use it for another owner or conversation. An older state of a conversation is as genuine as a newer one;
pass `min_revision` to reject it. Opening authenticates a state before anything else, and parses none of its content.
The reasons "expired", "wrong_owner", "wrong_conversation" and "rewound" are therefore given for genuine states only,
never for altered bytes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from longtalk.errors import BadState, InputError, MissingExtra
from longtalk.state.codec import Peek, decode, peek
from longtalk.state.sealed_header import (
    FIXED,
    MAX_BODY,
    MAX_KEY_ID,
    SEALED,
    TAG_BYTES,
    VERSION,
    SealedPeek,
    cannot_open,
    peek_sealed,
    read_header,
    to_bytes,
)
from longtalk.transcript.transcript import now

if TYPE_CHECKING:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["REASONS", "BoundSeal", "Seal", "SealedPeek", "peek_sealed"]

KEY_BYTES = 32
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
"""The reasons for rejecting a sealed state, in the order of the checks. "tampered" also covers an invalid header."""

_SALT_BYTES = 24
_DIGEST_BYTES = 16
_LONGEST = 10_000 * 365 * 86_400
"""The longest accepted `expires_after`, in seconds; a larger value is probably a mistake, and might overflow."""
# Each state is sealed under a key of its own, derived from the master key and a random salt of 192 bits. No such key is
# used twice, however many states a master key seals. A pair of key and nonce therefore never repeats, and the nonce can
# be constant.
_NONCE = bytes(12)


class Seal:
    """A set of keys that seals states and opens sealed states.

    `keys` maps key ids to keys of 32 random bytes (`Seal.new_key()`). Anyone who holds a sealed state can read the id
    of its key. The first key seals new states; every key opens the states that it sealed. To rotate keys, add the new
    key at the end on every server, then move it to the front, and remove the old key after its states have expired.
    `expires_after` is the lifetime of a sealed state in seconds; None means that sealed states never expire.
    """

    __slots__ = ("_expires_after", "_key_id", "_keys")

    def __init__(self, keys: Mapping[str, bytes], *, expires_after: float | None = None) -> None:
        self._keys = _check_keys(keys)
        self._key_id = next(iter(self._keys))
        if expires_after is not None and not (isinstance(expires_after, int | float) and 0 < expires_after <= _LONGEST):
            raise InputError(
                "`expires_after` must be a number of seconds above 0, or None for states that never expire, "
                f"not {expires_after!r}."
            )
        self._expires_after = expires_after

    @staticmethod
    def new_key() -> bytes:
        """Return a new random key. Create it once and keep it with the app's other secrets."""
        return os.urandom(KEY_BYTES)

    def to(self, *, owner: str = "", conversation: str = "", min_revision: int = 0) -> BoundSeal:
        """Return this seal bound to one owner and conversation, for the `seal` argument of other functions.

        The bound seal rejects states whose revision is lower than `min_revision`.
        """
        return BoundSeal(self, owner, conversation, min_revision)

    def close(self, state: bytes, *, owner: str = "", conversation: str = "") -> bytes:
        """Return the state sealed for this owner and conversation.

        The sealed state can be opened only with the same owner and conversation, and reveals neither. Raises
        `InputError` if the state can't be read: what is sealed is trusted when it is opened.
        """
        _check_content(state)
        return self.close_encoded(state, owner=owner, conversation=conversation)

    def close_encoded(self, state: bytes, *, owner: str = "", conversation: str = "") -> bytes:
        """Seal a state that this process has encoded itself, so that its content need not be checked."""
        seen = _peek_plain(state)
        if seen.size > MAX_BODY - TAG_BYTES:
            raise InputError(f"A state of {seen.size} bytes can't be sealed; the limit is {MAX_BODY - TAG_BYTES}.")
        key_id = self._key_id.encode()
        salt = os.urandom(_SALT_BYTES)
        secret, binding = _derive_keys(self._keys[self._key_id], salt)
        fixed = FIXED.pack(
            SEALED,
            VERSION,
            len(key_id),
            seen.size + TAG_BYTES,
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
        """Open a state that was sealed for this owner and conversation, and return the plain state.

        Raises `BadState` if the sealed state was altered, has expired, or was sealed for another owner or conversation.
        An older state of the same conversation opens too. To reject it, remember the newest revision
        (`peek_sealed(…).revision` of the result of `close`) and pass it as `min_revision`.
        """
        sealed = to_bytes(sealed)
        header, key_id = read_header(sealed)
        if key_id not in self._keys:
            raise cannot_open(
                sealed,
                "unknown_key",
                f"it was sealed with the key {key_id!r}, which this Seal does not have. Keep each key until every "
                "state that was sealed with it has expired. If you never had such a key, the bytes were changed",
            )
        secret, binding = _derive_keys(self._keys[key_id], header.salt)
        whose = _digest(binding, "owner", owner)
        which = _digest(binding, "conversation", conversation)
        start = FIXED.size + header.key_id_bytes
        cipher, invalid = _aes_gcm()
        try:
            state = cipher(secret).decrypt(_NONCE, memoryview(sealed)[start:], sealed[:start])
        except (invalid, ValueError):
            raise cannot_open(
                sealed,
                "tampered",
                f"its bytes were changed, or the key {key_id!r} is not the one that it was sealed with. "
                "Don't use it; if the bytes are unchanged, compare the keys",
            ) from None
        # The header is authenticated from here on, so these errors are reliable.
        from hmac import compare_digest

        if not compare_digest(whose, header.owner):
            raise cannot_open(
                sealed,
                "wrong_owner",
                "it was sealed for another `owner`, or for none. Pass the same owner as to `close`, "
                "and never one that the client sent",
            )
        if not compare_digest(which, header.conversation):
            raise cannot_open(
                sealed,
                "wrong_conversation",
                "it was sealed for another `conversation`, or for none. Pass the same conversation as to `close`",
            )
        if header.expires and (late := now() - header.expires) >= 0:
            raise cannot_open(
                sealed,
                "expired",
                f"it expired {late // 1_000} seconds ago. Begin a new conversation, or seal with a longer "
                "`expires_after`",
            )
        if header.revision < min_revision:
            raise cannot_open(
                sealed,
                "rewound",
                f"its revision {header.revision} is older than `min_revision` ({min_revision}). "
                "Pass the newest state of the conversation",
            )
        return state


class BoundSeal(msgspec.Struct, frozen=True):
    """A seal bound to one owner and one conversation; see `Seal.to`."""

    seal: Seal
    owner: str = ""
    conversation: str = ""
    min_revision: int = 0

    def close(self, state: bytes) -> bytes:
        """Return the state sealed for this owner and conversation; see `Seal.close`."""
        return self.seal.close(state, owner=self.owner, conversation=self.conversation)

    def close_encoded(self, state: bytes) -> bytes:
        """Seal a state that this process has encoded itself; see `Seal.close_encoded`."""
        return self.seal.close_encoded(state, owner=self.owner, conversation=self.conversation)

    def open(self, sealed: bytes) -> bytes:
        """Return the plain state in a sealed state; see `Seal.open`."""
        return self.seal.open(sealed, owner=self.owner, conversation=self.conversation, min_revision=self.min_revision)


def _derive_keys(master: bytes, salt: bytes) -> tuple[bytes, bytes]:
    """Derive the two keys for one state: one encrypts it, the other binds it to its owner and conversation.

    Since both keys are different for each state, two states of the same owner have no visible bytes in common.
    """
    from hashlib import blake2b

    both = blake2b(salt, key=master, digest_size=2 * KEY_BYTES, person=b"longtalk seal").digest()
    return both[:KEY_BYTES], both[KEY_BYTES:]


def _digest(binding: bytes, what: str, value: str) -> bytes:
    from hashlib import blake2b

    if not isinstance(value, str):
        raise InputError(f'`{what}` must be a string, or "" for none, not {type(value).__name__}.')
    # Any text is accepted as a name, even if it is not valid Unicode, such as half an emoji from a client.
    name = value.encode("utf-8", "surrogatepass")
    return blake2b(name, key=binding, digest_size=_DIGEST_BYTES, person=what.encode()).digest()


def _check_keys(keys: Mapping[str, bytes]) -> dict[str, bytes]:
    # Errors refer to keys by number: if a caller swaps ids and keys, a secret key must not appear in a message.
    if not isinstance(keys, Mapping) or not keys:
        raise InputError("A Seal needs at least one key, as {id: key}: `Seal({'2025-01': Seal.new_key()})`.")
    for number, (key_id, key) in enumerate(keys.items(), 1):
        try:
            size = len(key_id.encode())
        except (AttributeError, UnicodeEncodeError):
            size = 0
        if not 0 < size <= MAX_KEY_ID:
            raise InputError(f"Key {number} of a Seal: its id must be text of 1 to {MAX_KEY_ID} bytes in UTF-8.")
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            found = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
            raise InputError(
                f"Key {number} of a Seal must be {KEY_BYTES} random bytes, not {found}: create one with "
                "`Seal.new_key()`, and decode a key that is stored as text, for example with bytes.fromhex."
            )
    return dict(keys)


def _peek_plain(state: bytes) -> Peek:
    if isinstance(state, bytes | bytearray | memoryview) and bytes(state[: len(SEALED)]) == SEALED:
        raise InputError("This state is sealed already. Pass it on unchanged, or open it first.")
    try:
        return peek(state)
    except BadState as problem:
        raise InputError(f"Only a state (`reply.state`) can be sealed. {problem}") from None


class _AnyWire:
    """A set that contains every name, because a process may seal states in wires that it does not know."""

    def __contains__(self, name: object) -> bool:
        return True


ANY_WIRE = _AnyWire()


def _check_content(state: bytes) -> None:
    """Raise `InputError` unless these bytes are a state, or a part of one, that can be read."""
    seen = _peek_plain(state)
    if seen.size == 0:
        return
    try:
        decode(state, wires=ANY_WIRE, part=seen.part, max_bytes=sys.maxsize)
    except BadState as problem:
        raise InputError(f"Only a state (`reply.state`) can be sealed. {problem}") from None


def _aes_gcm() -> tuple[type[AESGCM], type[InvalidTag]]:
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise MissingExtra("Sealing needs an extra: pip install 'longtalk[seal]'.") from None
    return AESGCM, InvalidTag
