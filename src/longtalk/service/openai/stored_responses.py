"""Responses that were made before, read from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from longtalk._util.concurrency import call_store
from longtalk.archive.redaction import is_redacted
from longtalk.events import PartEnd, ToolCall
from longtalk.service.errors import ApiError, from_stored_error
from longtalk.service.ids import ResponseId, is_chain
from longtalk.service.openai.client_tools import CallForm, list_forms, read_call_forms
from longtalk.service.openai.compactions import COMPACTION, COMPACTS, NO_COMPACTIONS, read_compactions
from longtalk.service.openai.fields import ENCRYPTED
from longtalk.service.openai.items import Item, place_items, to_input_item, to_items, to_output_items
from longtalk.service.openai.response_events import ResponseEvents
from longtalk.service.openai.response_object import find_status, find_usage, make_response
from longtalk.stores.base import KeyedTurn, Store
from longtalk.transcript.transcript import Entry, Turn
from longtalk.usage import Usage
from longtalk.wires import WIRES

_STEP = 32
_DELETED = "deleted"
HISTORY = "history"
"""Where the number of entries is stored that the request has added before its turn."""


class StoredResponse:
    """A turn that was requested as a response, with its entries and what the request said."""

    def __init__(
        self,
        id: ResponseId,  # noqa: A002
        keyed: KeyedTurn,
        entries: list[Entry],
        meta: Mapping[str, Any],
        entry_meta: dict[str, Any],
        history: Sequence[Entry] = (),
        compactions: Mapping[str, str] = NO_COMPACTIONS,
    ) -> None:
        self.id = id
        self.turn: Turn = keyed.turn
        self.branch = keyed.branch
        self._entries = entries
        self._history = history
        self.compactions = compactions
        """The contents of the compaction items, by the entry that each follows."""
        self._echo = dict(meta)
        self._entry_meta = entry_meta
        self._model = str(self._echo.pop("model", keyed.turn.model))

    @property
    def usage(self) -> Usage:
        """The tokens of all model calls of the turn."""
        answers = [entry for entry in self._entries if entry.role == "assistant"]
        wire = WIRES[answers[-1].wire] if answers and answers[-1].wire in WIRES else WIRES["openai-chat"]
        return sum(map(wire.read_usage, self.turn.usage), Usage())

    @property
    def is_encrypted(self) -> bool:
        """Whether the request has asked for encrypted reasoning."""
        return ENCRYPTED in self._echo.get("include", ())

    @property
    def _tools(self) -> dict[str, CallForm]:
        return list_forms(self._echo.get("tools", ()))

    def to_output_items(self, *, encrypted: bool = False) -> list[Item]:
        """Return the answers of the turn that were saved, as items, with encrypted reasoning if that is asked for."""
        items = self._make_items(self._tools, encrypted=encrypted)
        return place_items(items, self.id.conversation)

    def _make_items(self, tools: Mapping[str, CallForm], *, encrypted: bool) -> list[Item]:
        return to_output_items(
            self._entries, self.turn.id, tools=tools, encrypted=encrypted, compactions=self.compactions
        )

    def to_object(self, *, interrupted: bool = False, encrypted: bool = False) -> Item:
        """Return the response object. `interrupted` says that the process that ran the turn has died.

        `encrypted` includes the encrypted reasoning.
        """
        status, reason = ("failed", None) if interrupted else find_status(self.turn)
        error = self._find_error(interrupted=interrupted) if status == "failed" else None
        return make_response(
            str(self.id),
            model=self._model,
            created=self.turn.started,
            echo=self._echo,
            status=status,
            output=self.to_output_items(encrypted=encrypted),
            usage=find_usage(self.turn, self.usage, status),
            error=error,
            reason=reason,
            completed=self.turn.ended if status == "completed" else None,
        )

    def to_events(self, *, interrupted: bool = False, encrypted: bool = False) -> list[bytes]:
        """Return the events of the response, with each text in one piece. The arguments are as for `to_object`."""
        events = ResponseEvents(
            str(self.id),
            self.turn.id,
            model=self._model,
            echo=self._echo,
            tools=self._tools,
            created=self.turn.started,
            encrypted=encrypted,
        )
        made = events.begin(queued=bool(self._echo.get("background")))
        plain = {name: CallForm(name) for name in self._tools}
        for item in self._make_items(plain, encrypted=encrypted):
            # Neighbours of the same kind, from two answers, stay two items.
            made += events.close()
            if item["type"] == COMPACTION:
                made += events.add_compaction(item["encrypted_content"])
            elif item["type"] == "reasoning":
                text, raw = ("".join(part["text"] for part in item.get(name, ())) for name in ("summary", "content"))
                made += events.feed(PartEnd("reasoning", text, raw, sealed=item.get("encrypted_content", "")))
            elif item["type"] == "message":
                refusal = "".join(part.get("refusal", "") for part in item["content"])
                text = "".join(part.get("text", "") for part in item["content"])
                found = [each for part in item["content"] for each in part.get("annotations", ())]
                phase = item.get("phase", "")
                made += events.feed(PartEnd("message", text, phase=phase, refusal=refusal, citations=tuple(found)))
            elif item["type"] == "function_call":
                made += events.feed(ToolCall(item["call_id"], item["name"], item["arguments"].encode()))
        status, reason = ("failed", None) if interrupted else find_status(self.turn)
        error = self._find_error(interrupted=interrupted)
        return made + events.end(
            status,
            usage=find_usage(self.turn, self.usage, status),
            reason=reason,
            error=error if status == "failed" else None,
            completed=self.turn.ended if status == "completed" else None,
        )

    def _find_error(self, *, interrupted: bool) -> ApiError:
        """Return why the response has failed."""
        if self.turn.error and not interrupted:
            return from_stored_error(self.turn.error)
        return ApiError(500, "The turn was interrupted.", code="interrupted")

    def to_input_items(self) -> list[Item]:
        """Return the items that the request contained, oldest first."""
        said = takewhile(lambda entry: entry.role != "assistant", self._entries)
        calls = read_call_forms(self._entry_meta)
        items = to_items(self._history, {}, calls=calls)
        items += [item for entry in said if (item := to_input_item(entry, calls)) is not None]
        return place_items(items, self.id.conversation)

    @property
    def is_redacted(self) -> bool:
        """Whether something of the response was erased after its end, which its events may still contain."""
        return self.turn.status != "running" and any(map(is_redacted, self._entries))

    async def delete(self, store: Store, owner: str) -> bool:
        """Delete the response. Return True if it was the last one of a chain, which can be deleted with its turns."""
        conversation = self.id.conversation
        meta = {**self._entry_meta, "response": {**self._echo, "model": self._model, _DELETED: True}}
        entry = self._entries[0].id
        await call_store(store, lambda: store.describe(owner, conversation, meta, entry=entry))
        return is_chain(conversation) and await call_store(store, lambda: _is_empty(store, owner, conversation))


def _is_empty(store: Store, owner: str, conversation: str) -> bool:
    """Return True if all responses of a chain were deleted."""
    metas = (_read_meta(store, owner, conversation, keyed) for keyed in store.keyed_turns(owner, conversation))
    return all(meta.get("response", {}).get(_DELETED) for meta in metas)


def _read_meta(store: Store, owner: str, conversation: str, keyed: KeyedTurn) -> dict[str, Any]:
    found = store.metas(owner, conversation, keyed.branch, keyed.position, keyed.position + 1)
    return found.get(keyed.position, {})


async def find_response(store: Store, owner: str, id: ResponseId) -> StoredResponse | None:  # noqa: A002
    """Return a response of an owner, or None if there is none, it was deleted, or its turn has not begun."""
    found: StoredResponse | None = await call_store(store, lambda: _read_response(store, owner, id))
    return found


def _read_response(store: Store, owner: str, id: ResponseId) -> StoredResponse | None:  # noqa: A002
    keyed = store.keyed_turn(owner, id.conversation, id.key)
    if keyed is None:
        return None
    meta = _read_meta(store, owner, id.conversation, keyed)
    given = meta.get("response")
    if not isinstance(given, dict) or given.get(_DELETED):
        return None
    count = given.get(HISTORY, 0)
    history: Sequence[Entry] = ()
    if count:
        start = max(0, keyed.position - count)
        history = store.read(owner, id.conversation, keyed.branch, start, keyed.position).entries()
    entries: list[Entry] = []
    while True:
        start = keyed.position + len(entries)
        pack = store.read(owner, id.conversation, keyed.branch, start, start + _STEP)
        new = list(takewhile(lambda entry: entry.turn == keyed.turn.id, pack.entries()))
        entries += new
        if len(new) < _STEP:
            break
    compactions = NO_COMPACTIONS
    if given.get(COMPACTS):
        compactions = read_compactions(store, owner, id.conversation, keyed.branch, entries)
    return StoredResponse(id, keyed, entries, given, meta, history, compactions)
