"""The tags around a memory card: finds cards in an answer, and hides them.

A card stands between `<MEMORY_CARD>` and `</MEMORY_CARD>`. A tag may be in any letter case, with one blank at each
place where a blank may be, with a Markdown escape before its underscore, and with its slash at either end.

- The first closing tag ends a card. An opening tag inside one belongs to it; a closing tag outside is hidden alone.
- A card that is never closed hides all the rest. A tag that the end of an answer cuts in two (`<MEMORY_CA`) is hidden.
- It does not matter whether a card stands in a code fence, or how long it is.
- What is shown is exactly the text without its cards, and never has a tag in it. Where hiding a card would make one of
  the halves on its sides, a zero-width space parts them, and nowhere else.
"""

from __future__ import annotations

import re

LONGEST = 16_384
"""Characters of a card that are looked at. One with more is hidden like any other, and can't be read."""
MOST_CARDS = 64

_BLANKS = " \t\r\n"
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
    return "memo" in end.lower()


class CardFilter:
    """Takes an answer as it streams and gives what may be shown of it.

    The pieces that come out make `without_cards` of the whole, however it was split. Held back is only what may still
    become a tag: 12 characters, with blanks and slashes at most 19.

    `cards` are the contents found so far, each up to `LONGEST` characters and one more. `unclosed` says that the last
    one was not closed: it is there once the answer is over. While it is `calm`, text without a `<` comes out as it is,
    and need not be fed: that spares a call for each piece of most answers.
    """

    __slots__ = ("_content", "_held", "_inside", "_room", "_tail", "calm", "cards", "unclosed")

    def __init__(self) -> None:
        self.cards: list[str] = []
        self.unclosed = False
        self.calm = True
        self._inside = False
        self._held = ""
        self._tail = ""
        """The beginning of a tag at the end of what was shown: a card stands behind it, or may."""
        self._content: list[str] = []
        self._room = 0

    def feed(self, text: str) -> str:
        """What may be shown now."""
        if self.calm and "<" not in text:
            return text
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
            elif not closing:
                self._open()
                if alone:
                    self._close()
        end = max(at, _loose_end(rest))
        if self._tail and not self._inside and _PARTIAL.fullmatch(self._tail + rest[at:]):
            end = at
        shown.append(self._pass(rest[at:end]))
        self._held = rest[end:]
        self.calm = not (self._inside or self._held or self._tail)
        return "".join(shown)

    def end(self) -> str:
        """What is left to be shown when the answer is over."""
        held, tail, self._held, self._tail = self._held, self._tail, "", ""
        if self._inside:
            self.unclosed = True
            self._close()
            held = ""
        elif held.startswith("<") and _cut_tag(held):
            held = ""
        text = tail + held
        return (_MARK if _cut_tag(text[_loose_end(text) :]) else "") + held

    def _pass(self, text: str) -> str:
        """What may be shown of text up to a tag, or to the end of what came."""
        if not self._inside:
            joined = self._tail + text
            mark = _MARK if self._tail and _TAG.match(joined) else ""
            self._tail = joined[_loose_end(joined) :]
            return mark + text
        if kept := text[: self._room]:
            self._content.append(kept)
            self._room -= len(kept)
        return ""

    def _open(self) -> None:
        self._inside = True
        self._content, self._room = [], LONGEST + 1

    def _close(self) -> None:
        self._inside = False
        if len(self.cards) < MOST_CARDS:
            self.cards.append("".join(self._content))
        self._content = []


def parted(text: str) -> tuple[str, tuple[str, ...]]:
    """A text as it may be shown, and the contents of its cards."""
    if "<" not in text:
        return text, ()
    cards = CardFilter()
    shown = cards.feed(text) + cards.end()
    return shown, tuple(cards.cards)


def without_cards(text: str) -> str:
    """The text as it may be shown."""
    return parted(text)[0]


def cards_of(text: str) -> list[str]:
    """The contents of the cards in a text, in order. The last one may not have been closed."""
    return list(parted(text)[1])


def neutralised(text: str) -> str:
    """Text of users, tools and documents: what looks like a tag begins with another sign, so that it is none."""
    if "<" not in text:
        return text
    text = _LOOKALIKE.sub(lambda found: "‹" + found[0][1:], text)
    end = _loose_end(text)
    return text[:end] + "‹" + text[end + 1 :] if _cut_tag(text[end:]) else text
