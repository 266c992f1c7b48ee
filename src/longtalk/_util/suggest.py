"""Suggest the name that a mistyped one may have meant."""

from __future__ import annotations

from collections.abc import Iterable


def suggest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean …?" with the known name closest to this one; empty if none is close."""
    import difflib

    lower: dict[str, str] = {}
    for each in known:
        lower.setdefault(each.lower(), each)
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    return f" Did you mean {lower[found[0]]!r}?" if found else ""
