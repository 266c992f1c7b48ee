"""Rebuild what a past turn of a stored conversation has sent, byte for byte.

Each request is composed again from the entries and records of its branch, as `context/prepare.py` has composed it, and
compared with the digest that was stored when it was sent. So a request that is returned is the one that was sent; where
that is not possible, the reason is returned instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from longtalk._util import json_bytes, typed_json
from longtalk.branches.settings import (
    KIND,
    SUFFIXES,
    Settings,
    StoredSettings,
    StoredSuffixes,
    find_settings,
    read_preambles,
    remove_texts,
    restore_settings,
)
from longtalk.context.compose import compose
from longtalk.context.epochs import Epoch
from longtalk.context.suffixes import TurnSuffix
from longtalk.errors import InputError, NotFound
from longtalk.memory.profile.config import Profile
from longtalk.memory.profile.lines import TurnProfile, render_unsent_lines, with_turn_profile
from longtalk.memory.summary import Summary
from longtalk.policies.base import get_profile, read_rules
from longtalk.policies.encoding import decode_policy
from longtalk.stores.base import MAIN, Store
from longtalk.transcript.pack import Entry
from longtalk.transcript.standing import Record, Standing, read_record
from longtalk.transcript.transcript import Transcript, Turn, now
from longtalk.turn.sent import StoredCall, digest_body, digest_bytes, digest_epoch
from longtalk.wires import WIRES
from longtalk.wires.protocol import Preamble, Quirks

NO_CALL = "No model was called in this turn: its messages were imported or appended."
NOT_ENDED = "The turn is running, or its process was killed before it was stored how the turn was sent."
NOT_STORED = "How it was sent is not stored: the turn was imported, or made by an earlier version."
OF_OTHERS = (
    "It had text from other conversations of the owner, which is not stored with this one, and what they say about the "
    "user today does not yield the same bytes."
)
FOR_SUMMARY = "It asked for a summary. Such requests are not rebuilt."
_CHANGED = (
    "What is stored does not yield the same bytes: an entry was redacted, or another version of longtalk has sent it."
)


ReadProfile = Callable[[Profile, str], TurnProfile]
"""Returns the owner's profile for a configuration and the label of a model."""


class SentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a past turn."""

    model: str
    """The model that it was sent to, in the form `provider:model`; empty if that is unknown."""
    body: bytes | None
    """The JSON that was sent, byte for byte; None if it can't be rebuilt."""
    is_streamed: bool = False
    problem: str = ""
    """Why it can't be rebuilt; empty if it was."""


class _Manifest(msgspec.Struct, frozen=True):
    """The part of a manifest that is needed here."""

    calls: tuple[StoredCall, ...] = ()
    settings: str = ""


class _Unknown(Exception):
    """Raised with the reason why a request can't be rebuilt."""


def read_settings(
    store: Store, owner: str, conversation: str, branch: str = MAIN, turn: str | None = None
) -> Settings | None:
    """Return the settings of a turn, by default of a branch's last, or None if they are unknown.

    Raises `NotFound` if there is no such branch.
    """
    head = store.head(owner, conversation, branch)
    if head is None:
        raise NotFound(f"Branch {branch!r} of conversation {conversation!r} not found.")
    newest = find_settings(placed.record for placed in head.records)
    if turn is not None:
        wanted = _read_manifest(store.manifest(owner, conversation, turn)).settings
        if newest is None or newest.digest() != wanted:
            stored = [
                read_record(each.record, StoredSettings) for each in store.records(owner, conversation, branch, KIND)
            ]
            newest = next((each for each in reversed(stored) if each and each.digest() == wanted), None)
    if newest is None:
        return None
    others: list[StoredSettings] = []
    if newest.preamble in newest.known:
        placed = store.records(owner, conversation, branch, KIND)
        others = [found for each in placed if (found := read_record(each.record, StoredSettings))]
    return restore_settings(newest, others)


def rebuild_turn(
    store: Store,
    owner: str,
    conversation: str,
    turn: str,
    branch: str = MAIN,
    *,
    read_profile: ReadProfile | None = None,
) -> list[SentRequest]:
    """Return the requests of a turn, in order: the bytes of each, or the reason why they can't be rebuilt.

    Requests for summaries come last. `read_profile` reads the lines of the owner's profile, whose texts are not stored
    with the conversation. Raises `NotFound` if no branch has the turn.
    """
    names = [head.branch for head in store.branches(owner, conversation)]
    first: list[SentRequest] | None = None
    # A turn of another branch has other epochs and settings than this one.
    for name in sorted(names, key=lambda each: (each != branch, each)):
        head = store.head(owner, conversation, name)
        turns = [] if head is None else store.turns(owner, conversation, name, 0, head.size)
        if head is None or all(each.id != turn for _, each in turns):
            continue
        manifest = _read_manifest(store.manifest(owner, conversation, turn))
        records = [placed.record for placed in store.records(owner, conversation, name)]
        summaries = _list_summary_requests([each for _, each in turns], turn, records)
        if not manifest.calls:
            made = next(each for _, each in turns if each.id == turn)
            return [SentRequest(model=made.model, body=None, problem=_explain(made)), *summaries]
        size = max(call.size for call in manifest.calls)
        entries = store.read(owner, conversation, name, 0, size).entries()
        rebuilt = rebuild_requests(turn, manifest, entries, records, read_profile=read_profile)
        first = first or [*rebuilt, *summaries]
        if all(request.body is not None for request in rebuilt):
            return [*rebuilt, *summaries]
    if first is None:
        raise NotFound(f"Turn {turn!r} of conversation {conversation!r} not found.")
    return first


def _read_manifest(data: bytes | None) -> _Manifest:
    try:
        return typed_json.decode(data or b"{}", _Manifest)
    except ValueError:
        return _Manifest()


def _explain(turn: Turn) -> str:
    """Return why it is not known what a turn has sent."""
    if not turn.model:
        return NO_CALL
    return NOT_ENDED if turn.status == "running" else NOT_STORED


def _list_summary_requests(turns: Sequence[Turn], turn: str, records: Sequence[Record]) -> list[SentRequest]:
    """Return a request without its bytes for each summary that a model has written between this turn and the next."""
    index = next(i for i, each in enumerate(turns) if each.id == turn)
    start, stop = turns[index].started, turns[index + 1].started if index + 1 < len(turns) else now() + 1
    found = [read_record(record, Summary) for record in records if record.kind == "summary"]
    return [
        SentRequest(model=each.model, body=None, problem=FOR_SUMMARY)
        for each in found
        if each is not None and each.model and not each.is_brief and start <= each.at < stop
    ]


def rebuild_requests(
    turn: str,
    manifest: _Manifest,
    entries: Sequence[Entry],
    records: Sequence[Record],
    *,
    read_profile: ReadProfile | None = None,
) -> list[SentRequest]:
    """Return the requests of a turn, given its manifest, and the entries and records of its branch."""
    stored = [found for record in records if record.kind == KIND and (found := read_record(record, StoredSettings))]
    settings = next((each for each in reversed(stored) if each.digest() == manifest.settings), None)
    requests = []
    for call in manifest.calls:
        label = settings.label if settings is not None else ""
        request = SentRequest(model=label, body=None, is_streamed=call.stream)
        try:
            if settings is None:
                raise _Unknown("Its settings are no longer stored: a redaction removed them.")
            profile = _read_profile(settings, read_profile) if call.foreign else None
            body = _rebuild(call, turn, settings, stored, entries, records, profile)
            requests.append(msgspec.structs.replace(request, body=body))
        except _Unknown as problem:
            requests.append(msgspec.structs.replace(request, problem=str(problem)))
    return requests


def _rebuild(
    call: StoredCall,
    turn: str,
    settings: StoredSettings,
    stored: Sequence[StoredSettings],
    entries: Sequence[Entry],
    records: Sequence[Record],
    profile: TurnProfile | None,
) -> bytes:
    if call.foreign and profile is None:
        raise _Unknown(OF_OTHERS)
    if settings.has_secrets:
        raise _Unknown("Its options hold credentials, which are not stored.")
    wire = WIRES.get(settings.wire)
    if wire is None:
        raise _Unknown(f"The wire {settings.wire!r} is unknown: install the package that provides it.")
    preamble = _find_preamble(call.preamble or settings.preamble, settings, stored)
    suffix = _find_suffix(call.suffix, turn, settings, records)
    epoch, began = _find_epoch(call.epoch, records)
    if len(entries) < call.size:
        raise _Unknown("Its branch was cut, and no branch has all of its entries.")
    quirks = call.quirks or Quirks()
    options: Mapping[str, Any] = {**settings.defaults, **settings.options}
    if call.schema and settings.schema is not None:
        options = settings.schema

    def render(is_repeated: Callable[[Record], bool], order: int, newer: str) -> bytes:
        repeated = [record for record in records[::order] if record.kind == "aside" and is_repeated(record)]
        transcript = Transcript(fresh=tuple(entries[: call.size]), records=Standing(repeated))
        transcript = with_turn_profile(transcript, profile)
        data = "" if suffix is None else msgspec.structs.replace(suffix, foreign=newer).all_data
        context = compose(
            transcript,
            epoch=epoch,
            wire=wire,
            quirks=quirks,
            preamble=preamble,
            reader=settings.reader,
            instruction=suffix.text if suffix is not None else None,
            tail=call.tail,
            held=call.held,
            data=data,
        )
        return wire.build_request(
            model=settings.model,
            preamble=preamble,
            pieces=context.pieces,
            mark=context.mark,
            options=wire.session_options(options, call.handle),
            quirks=quirks,
            stream=call.stream,
        )

    def was_there(record: Record) -> bool:
        repeated = read_record(record, TurnSuffix)
        return repeated is not None and (repeated.place < call.tail or (call.kept and repeated.place == call.tail))

    # An epoch that begins because of an exclusion forgets what followed earlier messages.
    for is_repeated in (was_there, lambda record: was_there(record) and record.at >= began):
        # Of several suffixes in one place, the last counts: later requests may have had a shorter one.
        for order in (1, -1):
            # The lines of the profile that the head lacks may all have been added since.
            for newer in dict.fromkeys((render_unsent_lines(profile, epoch.summary) if profile else "", "")):
                body = render(is_repeated, order, newer)
                if digest_body(body) == call.body:
                    return body
    raise _Unknown(OF_OTHERS if call.foreign else _CHANGED)


def _read_profile(settings: StoredSettings, read_profile: ReadProfile | None) -> TurnProfile | None:
    """Return the owner's profile as a request under these settings would have it today; None if that is unknown."""
    try:
        policy = decode_policy(settings.policy) if settings.policy is not None else None
    except InputError:
        return None
    config = get_profile(read_rules(policy).keeper) if policy is not None else None
    return None if config is None or read_profile is None else read_profile(config, settings.label)


def _find_preamble(digest: str, settings: StoredSettings, stored: Sequence[StoredSettings]) -> Preamble:
    found = read_preambles(stored).get(digest)
    if found is not None:
        return Preamble(system=found[0], tools=cast("Any", found[1]))
    if digest == Preamble().digest():
        return Preamble()
    if not settings.keeps_texts:
        raise _Unknown("Its system text and tools are not stored because of keep_preamble=False.")
    raise _Unknown("Its system text and tools were removed.")


def _find_suffix(number: int, turn: str, settings: StoredSettings, records: Sequence[Record]) -> TurnSuffix | None:
    if not number:
        return None
    for record in reversed(records):
        found = read_record(record, StoredSuffixes) if record.kind == SUFFIXES else None
        if found is not None and found.turn == turn and number <= len(found.of):
            return TurnSuffix(found.of[number - 1][0], 0, data=found.of[number - 1][1])
    if not settings.keeps_texts:
        raise _Unknown("The text after the message is not stored because of keep_preamble=False.")
    raise _Unknown("The text after the message is no longer stored: a redaction removed it.")


def _find_epoch(digest: str, records: Sequence[Record]) -> tuple[Epoch, int]:
    """Return an epoch, and when it began."""
    if not digest:
        return Epoch(""), 0
    for record in reversed(records):
        epoch = read_record(record, Epoch) if record.kind == "epoch" else None
        if epoch is not None and digest in (digest_bytes(record.data), digest_epoch(epoch)):
            return epoch, record.at
    raise _Unknown("Its epoch is no longer stored: a redaction removed it.")


def strip_settings(transcript: Transcript, stored: StoredSettings) -> Transcript:
    """Return a transcript with settings recorded, without any of their texts."""
    return transcript.add_record(KIND, json_bytes.encode(remove_texts(stored)))
