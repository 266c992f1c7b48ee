"""Helpers for reading files: make excerpts for error messages, and build a main branch."""

from __future__ import annotations

from collections.abc import Sequence

from longtalk.stores.base import MAIN
from longtalk.tokens import Estimator
from longtalk.transcript.transcript import Entry, Turn, link_entries
from longtalk.transfer.conversation_export import BranchPart
from longtalk.turn.draft import add_token_counts


class UnknownFormat(ValueError):
    """Raised if Longtalk does not recognize the format of a file."""


def excerpt(found: bytes | str) -> str:
    """Return the beginning of a value for an error message: in quotes, with unprintable characters replaced.

    For data that is not text, return "binary data".
    """
    text = found[:160].decode("utf-8", "replace") if isinstance(found, bytes) else found
    plain = "".join(char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in text[:40])
    if plain.count("\ufffd") * 4 > len(plain):
        return "binary data"
    return f"'{plain}'"


def build_main_branch(exchanges: Sequence[tuple[Turn, Sequence[Entry]]]) -> BranchPart:
    """Link the entries of these exchanges, each with its turn, into a main branch, and count their tokens."""
    entries: list[Entry] = []
    for turn, members in exchanges:
        parent = entries[-1].id if entries else None
        entries += link_entries(parent, turn.id, 0, add_token_counts(members, Estimator()))
    return BranchPart(name=MAIN, entries=tuple(entries), turns=tuple(turn for turn, _ in exchanges))
