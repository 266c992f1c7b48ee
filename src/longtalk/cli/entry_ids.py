"""The ids of entries and turns on the command line: which words look like one, and how one is told about them."""

from __future__ import annotations

import re

_FORMS = re.compile(r"#?\d+[.:]?|\w+-\d+\w*|(?=[a-z]*\d)[a-z0-9]{12}")
"""Numbers, ids of entries, and ids of turns that have a digit, also mistyped ones."""
_ENTRY = re.compile(r"[a-z2-9]{12}-\d+")
LOOKS = "An id looks like q3vft5cmxl2a-0"


def looks_like_id(word: str) -> bool:
    """Return True if a word may be meant as the id of an entry or turn, or as the number of a message."""
    return _FORMS.fullmatch(word) is not None


def is_entry_id(word: str) -> bool:
    """Return True if a word has exactly the form of an entry's id."""
    return _ENTRY.fullmatch(word) is not None


def describe_missing(word: str) -> str:
    """Return that a branch has no such entry, how the ids look, and which command prints them."""
    return f"This branch has no entry or turn {word!r}. {LOOKS}; `longtalk show` prints the ids."
