"""Normalized words of a text, for stores that search without an index of their own."""

from __future__ import annotations

import re

from longtalk.memory.terms import fold

# Chinese, Japanese and Korean are written without spaces, so each character is a word.
_NO_SPACES = r"[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]"
_WORD = re.compile(rf"(?=\w){_NO_SPACES}|(?:(?!{_NO_SPACES})\w)+")


def normalize_words(text: str) -> str:
    """Return the words of a text in lower case and without accents, with a space before and after each word.

    A text contains a word if the normalized text contains the normalized word.
    """
    return f" {' '.join(_WORD.findall(fold(text)))} "


def normalize_term(term: str) -> str:
    """Return the normalized words of a search term. The last one is a beginning if the term ends with `*`.

    A beginning has no space after it, so that a text with a longer word contains it, too.
    """
    words = normalize_words(term)
    return words.rstrip(" ") if term.endswith("*") else words


def is_beginning(form: str) -> bool:
    """Return True if the last word of a normalized search term may be only the beginning of a word."""
    return not form.endswith(" ")
