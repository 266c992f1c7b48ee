"""Deletion and redaction in the Redis store, and the lookup of an entry by its id."""

from __future__ import annotations

from longtalk.stores._paths import is_on_path
from longtalk.stores._redaction import get_turn_id, redact_turn
from longtalk.stores.base import DeletionReceipt, KeyedRequest
from longtalk.stores.redis.command import Command
from longtalk.stores.redis.commit import Changes
from longtalk.stores.redis.connection import Client
from longtalk.stores.redis.tree import (
    Keys,
    Tree,
    decode_entry_id,
    decode_locations,
    decode_name,
    decode_request,
    decode_rows,
    decode_runs,
    decode_turn,
    encode,
    encode_request,
    select_head_records,
)
from longtalk.transcript.pack import checksum
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import now


def plan_deletion(client: Client, keys: Keys, tree: Tree, conversation: str) -> tuple[DeletionReceipt, Changes]:
    """Return a receipt for the deletion of a conversation, and the changes that delete it (see `Store.delete`)."""
    turns, records = client.read(Command("HLEN", (), [keys.turns]), Command("HLEN", (), [keys.locations]))
    changes = Changes(keys, tree)
    for key in (*(keys.get_entries_key(segment) for segment in tree.segments), *keys.all):
        changes.add("DEL", key)
    receipt = DeletionReceipt(
        conversation=conversation,
        entries=tree.get_number("entries"),
        turns=turns,
        records=records,
        branches=len(tree.branches),
        at=now(),
    )
    return receipt, changes


def find_entry(client: Client, keys: Keys, tree: Tree, entry: str) -> list[tuple[int, int, int]]:
    """Return where the entry with this id is stored: its segment, its position, and its index in the segment's list.

    There are several such places only if different entries on different branches have the same id.
    """
    turn, _, count = entry.rpartition("-")
    if not count.isdecimal() or not count.isascii() or len(count) > 10:
        return []
    found: list[tuple[int, int, int]] = []
    for segment, first, number in decode_runs(client.read(Command("HGET", (turn,), [keys.runs]))[0]):
        if int(count) < number or segment not in tree.segments:
            continue
        position = first + int(count) - number
        index = position - tree.segments[segment].start
        value = client.read(Command("LINDEX", (index,), [keys.get_entries_key(segment)]))[0]
        if value is not None and decode_entry_id(value) == entry:
            found.append((segment, position, index))
    return found


def plan_redaction(client: Client, keys: Keys, tree: Tree, entry: str, native: bytes) -> Changes | None:
    """Return the changes that redact an entry (see `Store.redact`), or None if the entry doesn't exist."""
    stored = find_entry(client, keys, tree, entry)
    if not stored:
        return None
    changes = Changes(keys, tree)
    for segment, position, index in stored:
        key = keys.get_entries_key(segment)
        value = client.read(Command("LINDEX", (index,), [key]))[0]
        if value is None:
            # Another process is deleting the conversation.
            return None
        changes.add("LSET", key, index, encode((*decode_rows([value])[0][:-2], native, checksum(native))))
        changes.add("HDEL", keys.metas, f"{segment}:{position}")
    locations = decode_locations(client.read(Command("HGETALL", (), [keys.locations]))[0])
    remaining = []
    for location in locations:
        path = tree.trace_path(location.segment, location.position + 1) if kind_of(location.kind).quotes_entries else []
        if not any(is_on_path(path, segment, position) for segment, position, _ in stored):
            remaining.append(location)
        else:
            changes.add("HDEL", keys.records, location.number)
            changes.add("HDEL", keys.locations, location.number)
    for name, branch in tree.branches.items():
        path = tree.trace_path(branch.segment, branch.size)
        if any(is_on_path(path, segment, position) for segment, position, _ in stored):
            records = " ".join(map(str, select_head_records(remaining, path)))
            changes.add("HSET", keys.conversation, f"v:{name}", branch.revision + 1, f"p:{name}", records)
    turns, requests = client.read(Command("HGETALL", (), [keys.turns]), Command("HGETALL", (), [keys.requests]))
    for name, value in zip(turns[::2], turns[1::2], strict=True):
        turn = decode_turn(value)
        if (redacted := redact_turn(turn)) != turn:
            changes.add("HSET", keys.turns, name, encode(redacted))
    for name, value in zip(requests[::2], requests[1::2], strict=True):
        request, asked, made_on, position = decode_request(decode_name(name), value)
        if asked == get_turn_id(entry):
            data = encode_request(KeyedRequest(request.key, ""), asked, made_on)
            changes.add("HSET", keys.requests, name, b"%d:%s" % (position, data))
    changes.add("HINCRBY", keys.conversation, "redacted", 1)
    return changes
