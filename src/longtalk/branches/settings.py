"""How a stored conversation is held: model, options, policy, system text and tools of its last turn.

The turn that changes any of these adds a record of the kind `settings` to its branch. A system text with its tools is
stored once: later records name it by its digest. It is the app's data and no part of the transcript. No keys, addresses
or other credentials are stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk.errors import InputError
from longtalk.policies import Policy
from longtalk.policies.encoding import decode_policy, encode_policy
from longtalk.transcript.standing import Record, read_record
from longtalk.turn.draft import Draft
from longtalk.turn.sent import SentCall, StoredCall, TurnSettings, digest_bytes, digest_epoch
from longtalk.wires.options import answer_token_limit
from longtalk.wires.protocol import Preamble, Quirks

KIND = "settings"
SUFFIXES = "suffix"
_MAX_KNOWN = 16
"""How many system texts of earlier records a record names, so that they are not stored again."""
_SECRET = re.compile(
    r"(api|auth|access|bearer|refresh|session)?(key|token)s?|authorization(token)?|(extra|default|http)?headers?"
    r"|passwords?|passwd|(client)?secrets?(key)?|credentials?|cookies?|apisecret|secretaccesskey"
)
"""The names of options that hold credentials, in small letters and without anything between."""
_policies: dict[str, dict[str, Any] | None] = {}


class ToolDefinition(msgspec.Struct, frozen=True):
    """A tool as the model saw it."""

    name: str
    description: str
    schema: bytes
    """The JSON Schema of the parameters, encoded as JSON."""
    is_strict: bool = False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a conversation was held in its last turn."""

    model: str
    """The model, in the form `provider:model`."""
    options: dict[str, Any]
    """The options that were given, without credentials."""
    policy: Policy | None
    """The policy; None if it can't be restored, since it has parts from outside this package."""
    policy_text: str
    """The policy as text."""
    system: str | None
    """The system text; None if there was none, or if it is not stored: see `problems`."""
    tools: tuple[ToolDefinition, ...]
    """The definitions of the tools."""
    preamble: str
    """A digest of the system text and the tools."""
    system_length: int
    """The number of characters of the system text."""
    problems: tuple[str, ...] = ()
    """What is not restored, and why, as sentences."""
    own_address: bool = False
    """Whether the app had given an address or a client of its own, so that `model` alone does not lead there."""
    answer_limit: int | None = None
    """The maximum length of an answer, in tokens, that the options set, or else the provider's own; None for none."""

    @property
    def is_system_missing(self) -> bool:
        """Whether there was a system text that is not stored."""
        return self.system is None and self.system_length > 0


class _StoredTool(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    description: str
    schema: msgspec.Raw
    is_strict: bool = False


class _StoredPreamble(msgspec.Struct, frozen=True, omit_defaults=True):
    system: str | None = None
    tools: tuple[_StoredTool, ...] = ()


class StoredSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of a turn in the form in which a record has them."""

    label: str
    model: str
    reader: str
    wire: str
    policy_text: str
    policy: dict[str, Any] | None = None
    options: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    schema: dict[str, Any] | None = None
    """All options of a request that has a schema for its answer, if the turn sent one."""
    has_secrets: bool = False
    """Whether options were left out, because they hold credentials."""
    own_address: bool = False
    keeps_texts: bool = True
    preamble: str = ""
    """The digest of the system text and the tools that were given."""
    length: int = 0
    """The number of characters of the system text."""
    preambles: dict[str, _StoredPreamble] = {}
    """The system texts with their tools that this record stores, by digest."""
    known: tuple[str, ...] = ()
    """The digests of those that earlier records of the path have stored."""

    def digest(self) -> str:
        """Return a digest of everything but the stored texts."""
        return digest_bytes(json_bytes.encode(msgspec.structs.replace(self, preambles={}, known=())))


class StoredSuffixes(msgspec.Struct, frozen=True):
    """What followed the message in the requests of a turn: each different pair of an instruction and data."""

    turn: str
    of: tuple[tuple[str, str], ...]


def note_turn(
    draft: Draft, before: StoredSettings | None, known: Iterable[Record]
) -> tuple[list[Record], list[dict[str, Any]], str]:
    """Return what a store keeps of how a turn was made: new records, its calls for the manifest, and its settings.

    `before` are the settings of the branch, and `known` the records that the store has. The settings are returned as
    their digest. All are empty if no request was sent.
    """
    given = draft.settings
    if given is None or not draft.sent:
        return [], [], ""
    settings = _make_settings(draft, given, before)
    digest = settings.digest()
    entry, at = draft.transcript[-1].id, draft.transcript[-1].at
    # An epoch may have begun and ended between two commits.
    epochs = {json_bytes.encode(call.epoch) for call in draft.sent if digest_epoch(call.epoch)}
    if epochs:
        epochs -= {record.data for record in (*known, *draft.transcript.records) if record.kind == "epoch"}
    records = [Record("epoch", entry, at, data) for data in sorted(epochs)]
    if before is None or settings.preambles or digest != before.digest():
        records.append(Record(KIND, entry, at, json_bytes.encode(settings)))
    suffixes: list[tuple[str, str]] = []
    calls = []
    for call in draft.sent:
        number = 0
        if call.suffix is not None:
            pair = (call.suffix.text, call.suffix.data)
            suffixes += [] if pair in suffixes else [pair]
            number = suffixes.index(pair) + 1
        preamble = call.preamble.digest()
        stored = StoredCall(
            body=call.body,
            size=call.size,
            tail=call.tail,
            epoch=digest_epoch(call.epoch),
            suffix=number,
            kept=call.is_kept,
            preamble="" if preamble == settings.preamble else preamble,
            quirks=None if call.quirks == Quirks() else call.quirks,
            held=call.held,
            handle=call.handle,
            schema=call.schema is not None,
            stream=call.is_streamed,
            foreign=_has_foreign_text(call),
        )
        calls.append(msgspec.to_builtins(stored))
    if suffixes and given.keep_preamble:
        records.append(Record(SUFFIXES, entry, at, json_bytes.encode(StoredSuffixes(draft.turn.id, tuple(suffixes)))))
    return records, calls, digest


def _has_foreign_text(call: SentCall) -> bool:
    head = call.epoch.summary
    return bool((call.suffix and call.suffix.foreign) or (head and head.profile))


def _make_settings(draft: Draft, given: TurnSettings, before: StoredSettings | None) -> StoredSettings:
    schema = next((call.schema for call in draft.sent if call.schema is not None), None)
    options, defaults, full = (_remove_secrets(each) for each in (given.options, given.defaults, schema or {}))
    known = () if before is None else tuple(dict.fromkeys((*before.known, *before.preambles)))[-_MAX_KNOWN:]
    used = {given.preamble.digest(): given.preamble, **{call.preamble.digest(): call.preamble for call in draft.sent}}
    # What a policy adds for one request alone is not stored.
    policy = getattr(given.policy, "stored", given.policy)
    text = repr(policy)
    if text not in _policies:
        if len(_policies) > 100:
            _policies.clear()
        _policies[text] = encode_policy(policy)
    return StoredSettings(
        label=given.label,
        model=given.model,
        reader=given.reader,
        wire=given.wire,
        policy_text=text,
        policy=_policies[text],
        options=options,
        defaults=defaults,
        schema=None if schema is None else full,
        has_secrets=(options, defaults, full) != (given.options, given.defaults, schema or {}),
        own_address=given.own_address,
        keeps_texts=given.keep_preamble,
        preamble=given.preamble.digest(),
        length=len(given.preamble.system or ""),
        preambles={digest: _store_preamble(each) for digest, each in used.items() if digest not in known}
        if given.keep_preamble
        else {},
        known=known if given.keep_preamble else (),
    )


def _store_preamble(preamble: Preamble) -> _StoredPreamble:
    return _StoredPreamble(
        preamble.system,
        tuple(
            _StoredTool(tool.name, tool.description, msgspec.Raw(tool.schema), tool.is_strict)
            for tool in preamble.tools
        ),
    )


def _remove_secrets(value: Any) -> Any:
    """Return options without members that hold credentials, at any depth."""
    if isinstance(value, Mapping):
        return {
            key: _remove_secrets(each)
            for key, each in value.items()
            if not _SECRET.fullmatch(re.sub(r"[^a-z]", "", str(key).lower()))
        }
    return type(value)(map(_remove_secrets, value)) if type(value) in (list, tuple) else value


def find_settings(records: Iterable[Record]) -> StoredSettings | None:
    """Return the newest settings among records, which are in order; None if there are none that can be read."""
    found = [record for record in records if record.kind == KIND]
    return read_record(found[-1], StoredSettings) if found else None


def read_preambles(records: Iterable[StoredSettings]) -> dict[str, tuple[str | None, tuple[ToolDefinition, ...]]]:
    """Return all stored system texts with their tools, by digest."""
    return {
        digest: (
            stored.system,
            tuple(
                ToolDefinition(tool.name, tool.description, bytes(tool.schema), tool.is_strict) for tool in stored.tools
            ),
        )
        for each in records
        for digest, stored in each.preambles.items()
    }


def restore_settings(stored: StoredSettings, others: Iterable[StoredSettings] = ()) -> Settings:
    """Return stored settings as the app gets them. `others` are earlier ones, which may have the system text."""
    system, tools = read_preambles([*others, stored]).get(stored.preamble, (None, None))
    policy, problems = None, []
    try:
        policy = decode_policy(stored.policy) if stored.policy is not None else None
    except InputError as problem:
        problems.append(str(problem))
    if policy is None and not problems:
        problems.append(f"The policy {stored.policy_text} has parts from outside longtalk: give it again.")
    if tools is None:
        problems.append("The system text and the tools are not stored: they were not to be kept, or they were removed.")
    if stored.has_secrets:
        problems.append("Options that hold credentials are not stored: give them again.")
    if stored.own_address:
        problems.append("The address or the client of the model is not stored: give it again.")
    return Settings(
        model=stored.label,
        options=stored.options,
        answer_limit=answer_token_limit({**stored.defaults, **stored.options}),
        policy=policy,
        policy_text=stored.policy_text,
        system=system,
        tools=tools or (),
        preamble=stored.preamble,
        system_length=stored.length,
        problems=tuple(problems),
        own_address=stored.own_address,
    )


def remove_texts(stored: StoredSettings) -> StoredSettings:
    """Return settings without any stored text."""
    return msgspec.structs.replace(stored, preambles={}, known=())
