"""Compaction items: what stands for a conversation up to a point, as one opaque item that a later input begins with.

An item of a response that is stored names the place in its conversation, so that it is the same whenever it is shown,
and deletion and redaction reach it. An item of which nothing is stored has the shortened conversation, sealed for its
owner. Whose conversation a place is in comes from the caller alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from longtalk.context.epochs import Epoch
from longtalk.errors import BadState, Busy, Deleted, InputError
from longtalk.events import Compacted
from longtalk.service.errors import ApiError, conversation_locked
from longtalk.service.ids import Place, parse_place
from longtalk.service.turns import TurnOrder, read_shortened, write_shortened
from longtalk.stores.base import Store
from longtalk.transcript.standing import read_record
from longtalk.transcript.transcript import Entry

if TYPE_CHECKING:
    from longtalk.service.service import Service

COMPACTION = "compaction"
"""The type of the item, and the purpose for which its content is sealed."""
COMPACTS = "compacts"
"""Where it is stored that the client of a response has asked for compaction, and gets these items."""
NO_COMPACTIONS: Mapping[str, str] = MappingProxyType({})


async def write_content(service: Service, order: TurnOrder, event: Compacted) -> str:
    """Return the content of the item for a compaction in a turn."""
    if order.conversation is not None:
        return str(Place(event.entry, order.conversation))
    return await service.sealer.close(write_shortened(order, event), order.owner, COMPACTION)


async def open_content(service: Service, owner: str, content: str, where: str) -> bytes:
    """Return the state of what an item stands for. Raise `ApiError` unless it is one that the owner has got."""
    try:
        place = parse_place(content)
        if place is None:
            return await service.sealer.open(content, owner, COMPACTION)
        return await read_shortened(service.store, owner, place.conversation, place.entry)
    except Busy:
        raise conversation_locked() from None
    except (BadState, Deleted, InputError):
        # A conversation of another owner is answered like one that never existed.
        raise ApiError(400, "This compaction item is not valid.", param=where, code="invalid_value") from None


def read_compactions(
    store: Store, owner: str, conversation: str, branch: str, entries: Sequence[Entry] | None = None
) -> dict[str, str]:
    """Return the contents of the items of a branch, by the entry that each follows; of all, or before these entries."""
    names: Collection[str] | None = None if entries is None else {entry.parent or "" for entry in entries}
    found: dict[str, str] = {}
    for each in store.records(owner, conversation, branch, "epoch"):
        epoch = read_record(each.record, Epoch)
        if epoch is None or epoch.summary is None or epoch.summary.is_brief:
            continue
        if names is None or each.record.entry in names:
            found[each.record.entry] = str(Place(each.record.entry, conversation))
    return found


def make_compaction(id: str, content: str) -> dict[str, Any]:  # noqa: A002
    """Return the item."""
    return {"id": id, "type": COMPACTION, "encrypted_content": content}
