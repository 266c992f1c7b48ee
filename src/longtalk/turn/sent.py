"""What a turn on a stored conversation sends, noted so that each request can be rebuilt later, byte for byte.

A request is a function of entries and records that the store has anyway, and of a few values that it does not have: how
many entries there were, the preamble, the options, the text after the message. `SentCall` notes these, with a digest of
the request's bytes, by which a rebuilt request is known to be the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk.context.epochs import Epoch
from longtalk.context.prepare import Prepared
from longtalk.context.suffixes import TurnSuffix, find_kept_suffix
from longtalk.policies import Policy
from longtalk.wires.protocol import Handle, Preamble, Quirks

_WHOLE = 65_536
_HEAD = 16_384
_TAIL = 49_152


class TurnSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn is held: what its requests have in common."""

    label: str
    """The model, in the form `provider:model`."""
    model: str
    reader: str
    """The account, as a digest, and the model."""
    wire: str
    options: Mapping[str, Any]
    """The options that the app has given."""
    defaults: Mapping[str, Any]
    """The provider's own options, which apply unless the app has given others."""
    policy: Policy
    preamble: Preamble
    """The system text and the tools that the app has given."""
    own_address: bool = False
    """Whether the app has given an address or a client of its own, so that the label alone does not lead there."""
    keep_preamble: bool = True
    """Whether texts may be stored: the system text, the definitions of tools, and what follows the message."""


class SentCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a turn."""

    body: str
    """A digest of the request's bytes."""
    size: int
    """The number of entries of the conversation at the time."""
    tail: int
    """The number of entries up to the user's message."""
    epoch: Epoch
    suffix: TurnSuffix | None
    """What followed the message; None if nothing did."""
    is_kept: bool
    """Whether the suffix was recorded before, because later requests repeat it."""
    preamble: Preamble
    """The preamble as it was sent, with what memory added to it."""
    quirks: Quirks
    held: int
    """The number of entries that the provider had."""
    handle: Handle | None
    schema: Mapping[str, Any] | None
    """All options, if a schema for the answer is among them; None otherwise."""
    is_streamed: bool


class StoredCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of a turn in the form in which a manifest has it. Texts are left to records, where redaction is."""

    body: str
    size: int
    tail: int
    epoch: str = ""
    """The digest of the epoch; empty for the one that sends everything."""
    suffix: int = 0
    """The number of the suffix in the turn's record of suffixes, from 1 on; 0 if nothing followed the message."""
    kept: bool = False
    preamble: str = ""
    """The digest of the preamble, if it differs from the turn's."""
    quirks: Quirks | None = None
    held: int = 0
    handle: Handle | None = None
    schema: bool = False
    stream: bool = False
    foreign: bool = False
    """Whether the request had text from other conversations of the owner, which is not stored."""


def note_call(
    body: bytes,
    prepared: Prepared,
    *,
    held: int,
    handle: Handle | None,
    schema: Mapping[str, Any] | None,
    is_streamed: bool,
) -> SentCall:
    """Return the note of a request that is about to be sent."""
    transcript, tail, recipient = prepared.transcript, prepared.tail, prepared.recipient
    return SentCall(
        body=digest_body(body),
        size=transcript.size,
        tail=transcript.position(tail - 1) + 1 if tail > 0 else 0,
        epoch=prepared.plan.epoch,
        suffix=prepared.added.make_suffix(transcript, tail, recipient.instruction) if tail > 0 else None,
        is_kept=find_kept_suffix(transcript, tail) is not None,
        preamble=prepared.preamble,
        quirks=recipient.quirks,
        held=held,
        handle=handle,
        schema=schema,
        is_streamed=is_streamed,
    )


def digest_body(body: bytes) -> str:
    """Return a digest by which a request that is built again can be compared with the one that was sent.

    Of a long request, its length, its beginning and its end count: between them are stored messages, which have
    checksums of their own, and a turn must not cost more the longer the conversation is.
    """
    if len(body) <= _WHOLE:
        return digest_bytes(body)
    return digest_bytes(b"%d %s%s" % (len(body), body[:_HEAD], body[-_TAIL:]))


def digest_bytes(data: bytes) -> str:
    """Return a short digest of bytes."""
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def digest_epoch(epoch: Epoch) -> str:
    """Return a digest of an epoch; empty for the one that sends everything."""
    return digest_bytes(json_bytes.encode(epoch)) if epoch.start or epoch.runs else ""
