"""Memory card tags: find the memory cards in an answer and hide them.

A memory card is a note that the model writes into its answer, between `<MEMORY_CARD>` and `</MEMORY_CARD>`. A tag may
be in any letter case, with single blanks inside its brackets, with a Markdown escape before its underscore, and with
its slash at either end.

- The first closing tag ends a card. An opening tag inside a card is content; a closing tag outside a card is hidden.
- A card without a closing tag hides the rest of the answer. An incomplete tag at the very end of the answer
  (`<MEMORY_CA`) is hidden.
- Cards inside code fences, and cards of any length, are hidden too.
- The visible text is exactly the answer without its cards, and never contains a tag. If removing a card would join
  two halves of a tag, a zero-width space separates them.
"""

from __future__ import annotations

import re

MAX_CARD_CHARS = 16_384
"""The maximum length of a card. A longer card is hidden like any other, but its content is not used."""
MAX_CARDS = 64

_BLANKS = " \t\r\n"
_ZERO_WIDTH_SPACE = "\u200b"
_B = f"[{_BLANKS}]?"
_BEGIN = rf"<{_B}(/?){_B}MEMORY\\?_CARD"
_TAG = re.compile(rf"{_BEGIN}{_B}(/?){_B}>", re.I | re.A)
_LOOKALIKE = re.compile(_BEGIN, re.I | re.A)
_TAG_LONGEST = len(r"< / MEMORY\_CARD / >")


def _compile_partial_tag() -> re.Pattern[str]:
    """Return a pattern that matches every possible beginning of a tag."""
    rest = f"{_B}/?{_B}"
    for letter in reversed(("M", "E", "M", "O", "R", r"Y\\?", "_", "C", "A", "R", "D")):
        rest = f"(?:{letter}{rest})?"
    return re.compile(f"<{_B}/?{_B}{rest}", re.I | re.A)


_PARTIAL = _compile_partial_tag()


def _find_incomplete_tag(text: str) -> int:
    """Return the position of an incomplete tag at the end of the text, or the length of the text if there is none."""
    start = text.rfind("<", max(0, len(text) - _TAG_LONGEST))
    return start if start >= 0 and _PARTIAL.fullmatch(text, start) else len(text)


def _is_surely_tag(end: str) -> bool:
    """Return True if the beginning of a tag is long enough that it can't be the beginning of anything else."""
    return "memo" in end.lower()


class CardFilter:
    """A filter that removes memory cards from an answer while it streams.

    Joined, the returned pieces equal `remove_cards` of the whole answer, no matter how the stream was split. The filter
    holds back only text that may still become a tag: at most 19 characters.

    `cards` holds the contents of the cards found so far, at most `MAX_CARDS`, each cut after `MAX_CARD_CHARS` + 1
    characters. After `end`, `unclosed` says whether the last card had no closing tag. While `is_idle` is True, `feed`
    returns text without a `<` unchanged, so the caller can skip the call. That covers most pieces of most answers.
    """

    __slots__ = ("_content", "_held", "_inside", "_room", "_tail", "cards", "is_idle", "unclosed")

    def __init__(self) -> None:
        self.cards: list[str] = []
        self.unclosed = False
        self.is_idle = True
        self._inside = False
        self._held = ""
        self._tail = ""
        """An incomplete tag at the end of the text returned so far, which the text after a card could complete."""
        self._content: list[str] = []
        self._room = 0

    def feed(self, text: str) -> str:
        """Process the next piece of the answer and return the text that can be shown now."""
        if self.is_idle and "<" not in text:
            return text
        rest = self._held + text
        shown, at = [], 0
        for tag in _TAG.finditer(rest):
            is_closing, is_empty_card = bool(tag[1]), bool(tag[2])
            if self._inside and not (is_closing or is_empty_card):
                continue
            shown.append(self._take_text(rest[at : tag.start()]))
            at = tag.end()
            if self._inside:
                self._close()
            elif not is_closing:
                self._open()
                if is_empty_card:
                    self._close()
        end = max(at, _find_incomplete_tag(rest))
        if self._tail and not self._inside and _PARTIAL.fullmatch(self._tail + rest[at:]):
            end = at
        shown.append(self._take_text(rest[at:end]))
        self._held = rest[end:]
        self.is_idle = not (self._inside or self._held or self._tail)
        return "".join(shown)

    def end(self) -> str:
        """End the answer and return the text that was held back and is not part of a card or tag."""
        held, tail, self._held, self._tail = self._held, self._tail, "", ""
        if self._inside:
            self.unclosed = True
            self._close()
            held = ""
        elif held.startswith("<") and _is_surely_tag(held):
            held = ""
        text = tail + held
        return (_ZERO_WIDTH_SPACE if _is_surely_tag(text[_find_incomplete_tag(text) :]) else "") + held

    def _take_text(self, text: str) -> str:
        """Return the text if it is outside a card. Inside a card, add the text to the card's content and return ""."""
        if not self._inside:
            joined = self._tail + text
            mark = _ZERO_WIDTH_SPACE if self._tail and _TAG.match(joined) else ""
            self._tail = joined[_find_incomplete_tag(joined) :]
            return mark + text
        if kept := text[: self._room]:
            self._content.append(kept)
            self._room -= len(kept)
        return ""

    def _open(self) -> None:
        self._inside = True
        self._content, self._room = [], MAX_CARD_CHARS + 1

    def _close(self) -> None:
        self._inside = False
        if len(self.cards) < MAX_CARDS:
            self.cards.append("".join(self._content))
        self._content = []


def split_cards(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a text without its memory cards, and the contents of the cards."""
    if "<" not in text:
        return text, ()
    cards = CardFilter()
    shown = cards.feed(text) + cards.end()
    return shown, tuple(cards.cards)


def remove_cards(text: str) -> str:
    """Return a text without its memory cards."""
    return split_cards(text)[0]


def list_cards(text: str) -> list[str]:
    """Return the contents of the memory cards in a text, in order. The last card may lack its closing tag."""
    return list(split_cards(text)[1])


def neutralize_tags(text: str) -> str:
    """Return a text in which nothing reads as a memory card tag: the `<` of each possible tag becomes `‹`.

    Text from users, tools and documents passes through this function, because only the model may write cards.
    """
    if "<" not in text:
        return text
    text = _LOOKALIKE.sub(lambda found: "‹" + found[0][1:], text)
    end = _find_incomplete_tag(text)
    return text[:end] + "‹" + text[end + 1 :] if _is_surely_tag(text[end:]) else text
