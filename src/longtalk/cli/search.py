"""`longtalk search`: print the entries that match the search words, best match first."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from itertools import islice

import msgspec

from longtalk._sync.archive.archive import Archive
from longtalk.archive.history import parse_terms
from longtalk.cli.filters import Filter
from longtalk.cli.output import escape_line, format_time, print_json, print_note, print_text
from longtalk.cli.store import find_conversation, open_archive
from longtalk.cli.tables import Column, cut, measure, print_table, wrap_line
from longtalk.stores.base import MAIN, SearchHit

_COLUMNS = tuple(map(Column, ("conversation", "entry", "role", "time", "text")))
BEFORE, AFTER = 40, 100
"""The number of characters that are shown at most before and after the first match."""


def run(
    *,
    store: str | None,
    owner: str,
    words: Sequence[str],
    limit: int,
    conversation: str | None,
    wanted: Filter,
    as_json: bool,
) -> None:
    """Print the matching entries made between the times of the filter. Exit with status 1 if there are none."""
    nothing = ""
    with open_archive(store, owner) as archive:
        if conversation is not None:
            find_conversation(archive, conversation)
        # What the filter leaves out does not count towards the limit.
        most = limit if limit and wanted.is_empty else sys.maxsize
        found = archive.search(" ".join(words), limit=most, conversation=conversation)
        if not wanted.is_empty:
            ids = wanted.select_without_times(archive)
            matching = (hit for hit in found if wanted.covers(hit.at) and (ids is None or hit.conversation in ids))
            found = list(islice(matching, limit or None))
        if not found:
            nothing = describe_nothing(archive, words, conversation) if wanted.is_empty else "No matches."
    if as_json:
        for hit in found:
            print_json(msgspec.to_builtins(hit))
    elif found:
        print_hits(found, words)
    if nothing:
        print_note(nothing)
        raise SystemExit(1)


def describe_nothing(archive: Archive, words: Sequence[str], conversation: str | None = None) -> str:
    """Return that nothing was found and, if a word is the beginning of longer ones, how to find these."""
    for word in dict.fromkeys(filter(str.isalnum, words)):
        if archive.search(f"{word}*", limit=1, conversation=conversation):
            return f"No matches. Only whole words match; '{word}*' also finds longer ones."
    return "No matches."


def print_hits(found: Sequence[SearchHit], words: Sequence[str]) -> None:
    """Print entries that match the words, each with an excerpt around its first match."""
    pattern = _compile_pattern(words)
    heads = [(hit.conversation, hit.entry, hit.role, format_time(hit.at)) for hit in found]
    room = max(20, shutil.get_terminal_size().columns)
    # On a narrow terminal, the match is near the beginning of the line, so that it is not cut off.
    before = min(BEFORE, room // 4) if sys.stdout.isatty() else BEFORE
    texts = [
        whole
        if sys.stdout.isatty() and measure(whole := " ".join(hit.text.split())) <= room - 4
        else excerpt(hit.text, pattern, before)
        for hit in found
    ]
    branches = [() if hit.branch == MAIN else (f"branch {hit.branch}",) for hit in found]
    if not sys.stdout.isatty():
        print_table(_COLUMNS, ((*head, text, *rest) for head, text, rest in zip(heads, texts, branches, strict=True)))
        return
    for head, text, branch in zip(heads, texts, branches, strict=True):
        # Ids and names of branches are there to be copied, so they are not cut.
        print_text("\n".join(wrap_line("  ".join(map(escape_line, (*head, *branch))), room)))
        # Highlight after escaping, so that only our own escape sequences reach the terminal.
        print(f"    {_highlight(cut(escape_line(text), room - 4), pattern)}")


def excerpt(text: str, pattern: re.Pattern[str] | None, before: int = BEFORE) -> str:
    """Return the text around the first match on one line, or the beginning of the text if there is no match."""
    text = " ".join(text.split())
    hit = pattern.search(text) if pattern else None
    start = max(0, hit.start() - before) if hit else 0
    stop = (hit.end() if hit else 0) + AFTER
    return f"{'…' if start else ''}{text[start:stop]}{'…' if stop < len(text) else ''}"


def _compile_pattern(words: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern that matches any of the words or phrases, ignoring case; None if they have no word characters.

    Used only for excerpts and highlighting: the store does the search, and may also match words that differ in accents.
    """
    terms = parse_terms(" ".join(words))
    parts = [r"\W+".join(map(re.escape, found)) for term in terms if (found := re.findall(r"\w+", term))]
    return re.compile("|".join(sorted(parts, key=len, reverse=True)), re.IGNORECASE) if parts else None


def _highlight(text: str, pattern: re.Pattern[str] | None) -> str:
    if pattern is None or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return text
    return pattern.sub(lambda found: f"\x1b[1m{found[0]}\x1b[0m", text)
