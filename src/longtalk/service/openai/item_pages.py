"""Pages of items: what the query of a list asks for, and the items of a conversation, read turn by turn.

A list of the newest items reads the newest turns only, however long the conversation is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

import msgspec
from starlette.requests import Request

from longtalk.service.errors import ApiError, not_found, quote
from longtalk.service.http import read_number
from longtalk.service.ids import split_item_id
from longtalk.service.openai.client_tools import CallForm, list_forms, read_call_forms
from longtalk.service.openai.compactions import COMPACTS, NO_COMPACTIONS, read_compactions
from longtalk.service.openai.fields import ENCRYPTED, check_include
from longtalk.service.openai.items import Item, place_items, to_items
from longtalk.stores.base import MAIN, Store
from longtalk.transcript.transcript import Entry

_WINDOW = 64
"""How many entries are read at a time; later reads are larger."""
_LARGEST_WINDOW = 4_096
_DELETED = "deleted_items"
"""Where the ids of the deleted items of an entry are stored, in its metadata."""


class _Turn(NamedTuple):
    """The entries of a turn that are listed, and the forms of the client's tools if it was a response."""

    entries: list[Entry]
    forms: Mapping[str, CallForm] | None
    calls: Mapping[str, CallForm]
    """The forms in which the client has sent calls and results."""
    deleted: Mapping[str, Sequence[str]]
    """The ids of deleted items, by the entry that they were of."""
    compactions: Mapping[str, str] = NO_COMPACTIONS
    start: int = 0
    """The position of the first entry."""

    def to_items(self, stop: int | None = None, *, encrypted: bool = False) -> list[Item]:
        forms = {self.entries[0].turn: self.forms}
        return to_items(
            self.entries[:stop],
            forms,
            encrypted=encrypted,
            calls=self.calls,
            deleted=self.deleted,
            compactions=self.compactions,
        )


class FoundItem(NamedTuple):
    """An item of a conversation."""

    item: Item
    entry: Entry
    """The entry that contains it."""
    position: int
    """The position of the entry."""
    together: tuple[str, ...]
    """The ids, in the conversation, of all items of the entry."""


class PageQuery(msgspec.Struct, frozen=True):
    """Which items of a list are asked for."""

    limit: int = 20
    newest_first: bool = True
    after: str | None = None
    """The id of the item before the first one of the page."""
    encrypted: bool = False
    """Whether reasoning items include the encrypted form."""


def read_page_query(request: Request) -> PageQuery:
    """Return the `limit`, `order` and `after` of a request. Raises `ApiError` if one of them is invalid."""
    query, include = request.query_params, read_include(request)
    limit, order = read_number(query.get("limit", "20")) or 0, query.get("order", "desc")
    if not 1 <= limit <= 100:
        raise ApiError(400, "`limit` must be a number from 1 to 100.", param="limit")
    if order not in ("asc", "desc"):
        raise ApiError(400, "`order` must be 'asc' or 'desc'.", param="order")
    return PageQuery(limit, order == "desc", query.get("after") or None, ENCRYPTED in include)


def read_include(request: Request) -> list[str]:
    """Return what the query of a request asks to include. Raises `ApiError` for what is not known."""
    include = [*request.query_params.getlist("include"), *request.query_params.getlist("include[]")]
    check_include(include)
    return include


def paginate(items: list[Item], query: PageQuery) -> Item:
    """Return a page of items that are given oldest first."""
    listed = iter(items[::-1] if query.newest_first else items)
    if query.after is not None and all(item["id"] != query.after for item in listed):
        raise _no_such_item(query.after)
    return _make_page(listed, query)


def read_page(store: Store, owner: str, conversation: str, query: PageQuery) -> Item:
    """Return a page of the items of a conversation."""
    turns = _read_turns(store, owner, conversation, newest_first=query.newest_first)
    rest: list[Item] = []
    if query.after is not None:
        name = _find_name(query.after, conversation)
        found = next((turn for turn in turns if _may_have(turn.entries, name)), None)
        listed = iter(_render(found, query) if found is not None else [])
        if all(item["id"] != name for item in listed):
            raise _no_such_item(query.after)
        rest = list(listed)
    later = (item for turn in turns for item in _render(turn, query))
    listed = islice((item for part in (rest, later) for item in part), query.limit + 1)
    return _make_page(place_items(listed, conversation), query)


def iterate_items_before(store: Store, owner: str, conversation: str, branch: str, stop: int) -> Iterator[Item]:
    """Yield the items of the first `stop` entries of a branch, newest first, with ids as in the conversation."""
    for turn in _read_turns(store, owner, conversation, newest_first=True, branch=branch, stop=stop):
        yield from reversed(turn.to_items())


def find_item(store: Store, owner: str, conversation: str, name: str, *, encrypted: bool = False) -> FoundItem:
    """Return an item of a conversation.

    `encrypted` includes the encrypted reasoning. Raises `ApiError` if the conversation has no such item.
    """
    given, name = name, _find_name(name, conversation)
    for turn in _read_turns(store, owner, conversation, newest_first=True):
        if _may_have(turn.entries, name):
            item = next((each for each in turn.to_items(encrypted=encrypted) if each["id"] == name), None)
            if item is not None:
                # The item belongs to the first entry with which it appears.
                sizes = range(1, len(turn.entries) + 1)
                size = next(i for i in sizes if any(each["id"] == name for each in turn.to_items(i)))
                before = {each["id"] for each in turn.to_items(size - 1)}
                together = tuple(each["id"] for each in turn.to_items(size) if each["id"] not in before)
                [placed] = place_items([item], conversation)
                return FoundItem(placed, turn.entries[size - 1], turn.start + size - 1, together)
    raise not_found(f"Item {quote(given)}")


def mark_deleted(store: Store, owner: str, conversation: str, found: FoundItem) -> None:
    """Note that an item was deleted, with all items of its entry, so that it is not listed any more."""
    place = found.position
    meta = store.metas(owner, conversation, MAIN, place, place + 1).get(place, {})
    store.describe(owner, conversation, {**meta, _DELETED: list(found.together)}, entry=found.entry.id)


def find_items(
    store: Store, owner: str, names: Collection[str], *, conversation: str, branch: str = MAIN
) -> dict[str, Item]:
    """Return those of some items that an owner has, by their ids.

    They may be of any conversation and branch; this branch of `conversation` is where an id of two of them is meant.
    """
    places: dict[str, dict[str, str]] = {}
    for name in names:
        item, place = split_item_id(name)
        places.setdefault(conversation if place is None else place, {})[item] = name
    found: dict[str, Item] = {}
    for place, items in places.items():
        first = branch if place == conversation else MAIN
        others = sorted(head.branch for head in store.branches(owner, place) if head.branch != first)
        for each in (first, *others):
            turns = _read_turns(store, owner, place, newest_first=True, branch=each)
            picked = _pick_items(turns, items.keys())
            found |= {items.pop(item): value for item, value in picked.items()}
            if not items:
                break
    return found


def find_items_of(entries: Iterable[Entry], names: Collection[str]) -> dict[str, Item]:
    """Return those of some items that show these entries, by their ids."""
    items = {split_item_id(name)[0]: name for name in names}
    turns = (_Turn(each, None, {}, {}) for each in _split_by_turn(list(entries)))
    return {items[item]: value for item, value in _pick_items(turns, items.keys()).items()}


def _pick_items(turns: Iterable[_Turn], names: Collection[str]) -> dict[str, Item]:
    """Return those of some items that are in these turns, by their ids. Later turns are not read when all are found."""
    found: dict[str, Item] = {}
    stems = {name.partition("_")[2] for name in names}
    stems |= {stem.rpartition("_")[0] for stem in stems}
    for turn in turns:
        if turn.entries[0].turn in stems or any(entry.id in stems for entry in turn.entries):
            found |= {item["id"]: item for item in turn.to_items(encrypted=True) if item["id"] in names}
        if len(found) == len(names):
            break
    return found


def _find_name(name: str, conversation: str) -> str:
    """Return the id that an item has in a conversation; one that names another conversation is none of its items."""
    item, place = split_item_id(name)
    return name if place not in (None, conversation) else item


def _read_turns(
    store: Store, owner: str, conversation: str, *, newest_first: bool, branch: str = MAIN, stop: int | None = None
) -> Iterator[_Turn]:
    """Yield the entries of each turn of a branch, or of its first `stop` entries, read in windows that grow."""
    if stop is None:
        head = store.head(owner, conversation, branch)
        stop = head.size if head else 0
    size, done, window = stop, 0, _WINDOW
    kept: list[Entry] = []
    forms: dict[str, Mapping[str, CallForm]] = {}
    calls: dict[str, dict[str, CallForm]] = {}
    deleted: dict[str, dict[str, Sequence[str]]] = {}
    compacting: set[str] = set()
    compactions: Mapping[str, str] = {}
    while done < size:
        count = min(window, size - done)
        start = size - done - count if newest_first else done
        read = list(store.read(owner, conversation, branch, start, start + count).entries())
        if len(read) < count:
            return
        for position, meta in store.metas(owner, conversation, branch, start, start + count).items():
            name = read[position - start].turn
            if isinstance(meta.get("response"), dict):
                forms[name] = list_forms(meta["response"].get("tools", ()))
                if meta["response"].get(COMPACTS):
                    compacting.add(name)
                    compactions = compactions or read_compactions(store, owner, conversation, branch)
            if _DELETED in meta:
                deleted.setdefault(name, {})[read[position - start].id] = meta[_DELETED]
            known = calls.setdefault(name, {})
            # A result names no tool, so its call counts.
            known |= {id_: form for id_, form in read_call_forms(meta).items() if form.name or id_ not in known}
        done, window = done + count, min(2 * window, _LARGEST_WINDOW)
        listed = [*read, *kept] if newest_first else [*kept, *read]
        first = start if newest_first else start - len(kept)
        groups = _split_by_turn(listed)
        placed = list(zip(groups, accumulate(map(len, groups), initial=first), strict=False))
        if newest_first:
            placed.reverse()
        # The last turn of a window may go on in the next one.
        kept = placed.pop()[0] if done < size else []
        for each, place in placed:
            name = each[0].turn
            items = compactions if name in compacting else NO_COMPACTIONS
            yield _Turn(each, forms.get(name), calls.get(name, {}), deleted.get(name, {}), items, place)


def _split_by_turn(entries: list[Entry]) -> list[list[Entry]]:
    groups: list[list[Entry]] = []
    for entry in entries:
        if not groups or groups[-1][-1].turn != entry.turn:
            groups.append([])
        groups[-1].append(entry)
    return groups


def _may_have(turn: list[Entry], item: str) -> bool:
    """Return True if the id of an item can be of this turn: it contains the id of the turn or of an entry."""
    name = item.partition("_")[2]
    return name.rpartition("_")[0] == turn[0].turn or any(entry.id == name for entry in turn)


def _render(turn: _Turn, query: PageQuery) -> list[Item]:
    items = turn.to_items(encrypted=query.encrypted)
    return items[::-1] if query.newest_first else items


def _make_page(listed: Iterable[Item], query: PageQuery) -> Item:
    found = list(islice(listed, query.limit + 1))
    page = found[: query.limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(found) > len(page),
    }


def _no_such_item(name: str) -> ApiError:
    return ApiError(400, f"There is no item {quote(name)} here.", param="after")
