"""Wrap a text between words while it arrives, for a terminal."""

from __future__ import annotations

import re
import shutil
import sys

from longtalk.cli.output import LineEnds, can_move_cursor, escape
from longtalk.cli.tables import measure

_WIDE = "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\U00020000-\U0003fffd"
"""The letters of scripts that have no spaces between words, as ranges."""
_PART = re.compile(rf"\n|[ \t]+|[{_WIDE}]|[^ \t\n{_WIDE}]+")
_WIDE_PART = re.compile(f"[{_WIDE}]")
_FENCE = re.compile(r"\s*(```|~~~)")
_LONGEST = 20
"""The cells of a usual word. What has more room than this is printed at once, without its end."""
_LONGEST_START = 500
"""How many characters of a line are looked at for a fence, and how many of a word are held back at most."""


def adapt_text() -> WordWrap | LineEnds | None:
    """Return what adapts a text to standard output: nothing but a terminal needs it."""
    if not sys.stdout.isatty():
        return None
    return WordWrap(shutil.get_terminal_size().columns) if can_move_cursor() else LineEnds()


class WordWrap:
    """Breaks the lines of a text between words. Blocks of code stay as they are, so that they can be copied."""

    def __init__(self, columns: int) -> None:
        self._room = max(1, columns)
        self._ends = LineEnds()
        self._column = 0
        self._blanks = self._word = ""
        """What is not printed yet."""
        self._is_inside = False
        """Whether the beginning of the word is printed already."""
        self._line = ""
        self._is_code = False

    def add(self, piece: str) -> str:
        """Return what to print next of a text. The end of a word that may not fit is held back."""
        return "".join(map(self._place, _PART.findall(escape(self._ends.add(piece)))))

    def end(self) -> str:
        """Return what was held back."""
        return "".join(map(self._place, _PART.findall(escape(self._ends.end())))) + self._print_word()

    def _place(self, part: str) -> str:
        if part == "\n":
            text = self._print_word() + part
            if _FENCE.match(self._line):
                self._is_code = not self._is_code
            self._column, self._blanks, self._is_inside, self._line = 0, "", False, ""
            return text
        if len(self._line) < _LONGEST_START:
            self._line += part
        if self._is_code:
            return part
        if part.isspace():
            text = self._print_word()
            # What would leave the line shows nothing.
            self._blanks, self._is_inside = (self._blanks + part)[: self._room], False
            return text
        if _WIDE_PART.match(part):
            # A line may be broken before and after each of these.
            text = self._print_word()
            self._word, self._is_inside = part, False
            text += self._print_word()
            self._is_inside = False
            return text
        self._word += part
        used = self._column + measure(self._blanks) + measure(self._word)
        # It is clear where the word goes as soon as it surely fits, or does not. So little of a long one is held back.
        is_clear = used + _LONGEST <= self._room or used > self._room or len(self._word) > _LONGEST_START
        return self._print_word() if is_clear else ""

    def _print_word(self) -> str:
        if not self._word:
            return ""
        cells = measure(self._blanks) + measure(self._word)
        text = self._blanks + self._word
        if self._column and not self._is_inside and self._column + cells > self._room:
            text, cells, self._column = f"\n{self._word}", measure(self._word), 0
        # The terminal breaks a word that is longer than a line.
        self._column = (self._column + cells - 1) % self._room + 1
        self._blanks, self._word, self._is_inside = "", "", True
        return text
