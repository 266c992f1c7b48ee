"""`longtalk search`: entries that hold some words, the best first."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

import msgspec

from longtalk.cli.out import one_line, put, put_json, put_table, say, when
from longtalk.cli.store import known, opened
from longtalk.said import terms_of
from longtalk.stores.base import MAIN, Hit

BEFORE, AFTER = 40, 100
"""How many characters are shown around a word that was found."""


def run(
    *, store: str | None, owner: str, words: Sequence[str], limit: int, conversation: str | None, as_json: bool
) -> None:
    """Print what was found; without any the status is 1."""
    with opened(store, owner) as archive:
        if conversation is not None:
            known(archive, conversation)
        found = archive.search(" ".join(words), limit=limit or sys.maxsize, conversation=conversation)
    if as_json:
        for hit in found:
            put_json(msgspec.to_builtins(hit))
    elif found:
        _put(found, _pattern(words))
    if not found:
        say("Nothing was found.")
        raise SystemExit(1)


def _put(found: Sequence[Hit], pattern: re.Pattern[str] | None) -> None:
    heads = [(hit.conversation, hit.entry, hit.role, when(hit.at)) for hit in found]
    texts = [around(hit.text, pattern) for hit in found]
    aside = [() if hit.branch == MAIN else (f"branch {hit.branch}",) for hit in found]
    if not sys.stdout.isatty():
        put_table((*head, text, *other) for head, text, other in zip(heads, texts, aside, strict=True))
        return
    for head, text, other in zip(heads, texts, aside, strict=True):
        put("  ".join(map(one_line, (*head, *other))))
        # Marked behind the escaping: the marks are ours.
        print(f"    {_marked(one_line(text), pattern)}")


def around(text: str, pattern: re.Pattern[str] | None) -> str:
    """The text around the first word that was found, in one line."""
    text = " ".join(text.split())
    hit = pattern.search(text) if pattern else None
    start = max(0, hit.start() - BEFORE) if hit else 0
    stop = (hit.end() if hit else 0) + AFTER
    return f"{'…' if start else ''}{text[start:stop]}{'…' if stop < len(text) else ''}"


def _pattern(words: Sequence[str]) -> re.Pattern[str] | None:
    """Any of the words or phrases, whatever their case. Stores know more (accents): those are found and not marked."""
    terms = terms_of(" ".join(words))
    parts = [r"\W+".join(map(re.escape, found)) for term in terms if (found := re.findall(r"\w+", term))]
    return re.compile("|".join(sorted(parts, key=len, reverse=True)), re.IGNORECASE) if parts else None


def _marked(text: str, pattern: re.Pattern[str] | None) -> str:
    if pattern is None or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return text
    return pattern.sub(lambda found: f"\x1b[1m{found[0]}\x1b[0m", text)
