"""The tags around a memory card: finds cards in an answer, and hides them.

A card stands between `<MEMORY_CARD>` and `</MEMORY_CARD>`. A tag may be in any letter case, with one blank at each
place where a blank may be, with a Markdown escape before its underscore, and with its slash at either end.

- The first closing tag ends a card. An opening tag inside one belongs to it; a closing tag outside is hidden alone.
- A card that is never closed hides all the rest. A tag that the end of an answer cuts in two (`<MEMORY_CA`) is hidden.
- It does not matter whether a card stands in a code fence, or how long it is.
- Of the white space on the two sides of a card the longer one stays; none stays at the beginning or the end of an
  answer. Up to eight characters of it on either side are held back for that, and dropped at the end.
- What is shown never has a tag in it. Where hiding a card would make one of the halves on its sides, a zero-width
  space parts them.
"""

from __future__ import annotations

import re

LONGEST = 16_384
"""Characters of a card that are looked at. One with more is hidden like any other, and can't be read."""
MOST_CARDS = 64

_BLANKS = " \t\r\n"
_WHITE = 8
_MARK = "\u200b"
_B = f"[{_BLANKS}]?"
_BEGIN = rf"<{_B}(/?){_B}MEMORY\\?_CARD"
_TAG = re.compile(rf"{_BEGIN}{_B}(/?){_B}>", re.I | re.A)
_LOOKALIKE = re.compile(_BEGIN, re.I | re.A)
_TAG_LONGEST = len(r"< / MEMORY\_CARD / >")


def _partial() -> re.Pattern[str]:
    """What may still become a tag: any beginning of one."""
    rest = f"{_B}/?{_B}"
    for letter in reversed(("M", "E", "M", "O", "R", r"Y\\?", "_", "C", "A", "R", "D")):
        rest = f"(?:{letter}{rest})?"
    return re.compile(f"<{_B}/?{_B}{rest}", re.I | re.A)


_PARTIAL = _partial()


def _loose_end(text: str) -> int:
    """Where the beginning of a tag stands that the text ends in the middle of; its length if there is none."""
    start = text.rfind("<", max(0, len(text) - _TAG_LONGEST))
    return start if start >= 0 and _PARTIAL.fullmatch(text, start) else len(text)


def _cut_tag(end: str) -> bool:
    """Whether the beginning of a tag is long enough to be nothing else."""
    return "_" in end


class CardFilter:
    """Takes an answer as it streams and gives what may be shown of it.

    The pieces that come out make `without_cards` of the whole, however it was split. Held back is what may still become
    a tag (12 characters, with blanks and slashes at most 19) and white space that may stand around a card.

    `cards` are the contents found so far, each up to `LONGEST` characters and one more. `unclosed` says that the last
    one was not closed: it is there once the answer is over.
    """

    __slots__ = ("_content", "_held", "_inside", "_page", "_room", "cards", "unclosed")

    def __init__(self) -> None:
        self.cards: list[str] = []
        self.unclosed = False
        self._page = _Page()
        self._inside = False
        self._held = ""
        self._content: list[str] = []
        self._room = 0

    def feed(self, text: str) -> str:
        """What may be shown now."""
        rest = self._held + text
        shown, at = [], 0
        for tag in _TAG.finditer(rest):
            closing, alone = bool(tag[1]), bool(tag[2])
            if self._inside and not (closing or alone):
                continue
            shown.append(self._pass(rest[at : tag.start()]))
            at = tag.end()
            if self._inside:
                self._close()
            else:
                self._open()
                self._inside = not (closing or alone)
                if alone and not closing:
                    self._close()
        end = max(at, _loose_end(rest))
        shown.append(self._pass(rest[at:end]))
        self._held = rest[end:]
        return "".join(shown)

    def end(self) -> str:
        """What is left to be shown when the answer is over."""
        held, self._held = self._held, ""
        if self._inside:
            self.unclosed = True
            self._close()
        elif _cut_tag(held):
            self._page.card()
        elif held:
            return self._page.show(held) + self._page.end()
        return self._page.end()

    def _pass(self, text: str) -> str:
        if not self._inside:
            return self._page.show(text)
        if kept := text[: self._room]:
            self._content.append(kept)
            self._room -= len(kept)
        return ""

    def _open(self) -> None:
        self._page.card()
        self._content, self._room = [], LONGEST + 1

    def _close(self) -> None:
        self._inside = False
        if len(self.cards) < MOST_CARDS:
            self.cards.append("".join(self._content))
        self._content = []


class _Page:
    """What is shown, and what becomes of white space around cards."""

    __slots__ = ("_gap", "_tail", "_white")

    def __init__(self) -> None:
        self._white = ""
        """The newest white space: not shown yet, since a card may follow."""
        self._gap: str | None = None
        """The longest white space beside the cards that came after the last text. None if none came."""
        self._tail = ""
        """The newest of what was shown."""

    def card(self) -> None:
        """Here a card was hidden."""
        self._gap = max(self._gap or "", self._white, key=len)
        self._white = ""

    def show(self, text: str) -> str:
        """What may be shown now of text that stands outside of cards."""
        text = self._white + text
        shown = text.rstrip(_BLANKS)
        white = text[len(shown) :]
        if shown and self._gap is not None:
            shown = self._joined(shown, self._gap)
            self._gap = None
        elif self._gap is not None and not self._tail:
            white = ""
        if len(white) > _WHITE:
            # Longer than what stood before the card, so it is the one that stays.
            shown += (self._mark() if self._gap is not None else "") + white[:-_WHITE]
            self._gap = None if self._gap is None else ""
        self._white = white[-_WHITE:]
        self._tail = (self._tail + shown)[-_TAG_LONGEST:]
        return shown

    def end(self) -> str:
        """What is left to be shown at the end."""
        after_card, white = self._gap is not None, self._white
        self._gap, self._white = None, ""
        if not after_card:
            return white
        return _MARK if _cut_tag(self._tail[_loose_end(self._tail) :]) else ""

    def _joined(self, text: str, gap: str) -> str:
        """The first text after a card, with the white space that stays before it."""
        bare = text.lstrip(_BLANKS)
        if not self._tail:
            return bare
        return self._mark() + max(gap, text[: -len(bare)], key=len) + bare

    def _mark(self) -> str:
        return _MARK if _loose_end(self._tail) < len(self._tail) else ""


def without_cards(text: str) -> str:
    """The text as it may be shown."""
    cards = CardFilter()
    return cards.feed(text) + cards.end()


def cards_of(text: str) -> list[str]:
    """The contents of the cards in a text, in order. The last one may not have been closed."""
    cards = CardFilter()
    cards.feed(text)
    cards.end()
    return cards.cards


def neutralised(text: str) -> str:
    """Text of users, tools and documents: what looks like a tag begins with another sign, so that it is none."""
    if "<" not in text:
        return text
    text = _LOOKALIKE.sub(lambda found: "‹" + found[0][1:], text)
    end = _loose_end(text)
    return text[:end] + "‹" + text[end + 1 :] if _cut_tag(text[end:]) else text
