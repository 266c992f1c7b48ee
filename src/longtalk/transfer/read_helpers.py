"""Helpers for reading files: excerpts for error messages, and building a main branch from exchanges."""

from __future__ import annotations

from collections.abc import Sequence

from longtalk.stores.base import MAIN
from longtalk.tokens import Estimator
from longtalk.transcript.transcript import Entry, Turn, link_entries
from longtalk.transfer.conversation_export import BranchPart
from longtalk.turn.draft import add_token_counts


class UnknownFormat(ValueError):
    """An error raised for a file in none of the formats that Longtalk reads."""


def excerpt(found: bytes | str) -> str:
    """Return the beginning of a value in quotes, made printable, for an error message.

    For data that is not text, return "binary data".
    """
    text = found[:160].decode("utf-8", "replace") if isinstance(found, bytes) else found
    plain = "".join(char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in text[:40])
    if plain.count("\ufffd") * 4 > len(plain):
        return "binary data"
    return f"'{plain}'"


def build_main_branch(exchanges: Sequence[tuple[Turn, Sequence[Entry]]]) -> BranchPart:
    """Return a main branch with these exchanges, each a turn with its entries, in order."""
    entries: list[Entry] = []
    for turn, members in exchanges:
        parent = entries[-1].id if entries else None
        entries += link_entries(parent, turn.id, 0, add_token_counts(members, Estimator()))
    return BranchPart(name=MAIN, entries=tuple(entries), turns=tuple(turn for turn, _ in exchanges))
