"""Memory card tags: find the memory cards at the end of an answer and hide them.

A memory card is a note that the model writes at the end of its answer, between `<MEMORY_CARD>` and `</MEMORY_CARD>`. A
tag may be in any letter case, with single blanks inside its brackets, with a Markdown escape before its underscore, and
with its slash at either end.

- A card ends an answer if only blanks, backticks (of a code block or span around it) and other cards follow it.
  Anywhere else, what looks like a card is text: an answer may explain cards, in prose or in code.
- The last opening tag before a closing tag opens the card. A card may have any content and any length.
- An answer that breaks off inside a card ends with an unclosed card: an opening tag with `{` after it, or with nothing.
  A tag that the end cuts in two (`<MEMORY_CA`) is hidden too.
- An opening tag with a single backtick after it (the name of the tag, as code) is text wherever it stands.
- The visible text is exactly the answer without these cards.
"""

from __future__ import annotations

import re

MAX_CARD_CHARS = 16_384
"""The maximum length of a card. A longer card is hidden like any other, but its content is not used."""
MAX_CARDS = 64

_BLANKS = " \t\r\n"
_B = f"[{_BLANKS}]?"
_TAG = re.compile(rf"<{_B}(/?){_B}MEMORY\\?_CARD{_B}(/?){_B}>", re.I | re.A)
_OTHER = re.compile(f"[^{_BLANKS}`]")
"""A character that may not follow a card at the end of an answer."""
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
    """A filter that removes the memory cards at the end of an answer while the answer streams.

    Joined, the returned pieces equal `remove_cards` of the whole answer, no matter how the stream was split. Outside a
    card, the filter holds back only text that may still become a tag: 13 characters, or a few more with blanks, slashes
    and backticks. From an opening tag on, it holds back the text until it is clear whether a card ends the answer.

    After `end`, `cards` holds the contents of the hidden cards, each cut after `MAX_CARD_CHARS` + 1 characters, and
    `unclosed` says whether the last card had no closing tag. While `is_idle` is True, `feed` returns text without a `<`
    unchanged, so the caller can skip the call. That covers most pieces of most answers.
    """

    __slots__ = ("_held", "_is_closed", "_pieces", "cards", "is_idle", "unclosed")

    def __init__(self) -> None:
        self.cards: list[str] = []
        self.unclosed = False
        self.is_idle = True
        self._held = ""
        """Text that may still become a tag."""
        self._pieces: list[str] = []
        """The text from the first tag that may open a card at the end; empty outside of cards."""
        self._is_closed = False
        """Whether the last tag in `_pieces` has closed a card."""

    def feed(self, text: str) -> str:
        """Process the next piece of the answer and return the text that can be shown now."""
        if self.is_idle and "<" not in text:
            return text
        text, self._held = self._held + text, ""
        shown: list[str] = []
        at = 0
        while at < len(text):
            if not self._pieces:
                at = self._read_text(text, at, shown)
            elif self._is_closed:
                at = self._read_after_card(text, at, shown)
            else:
                at = self._read_card(text, at)
        self.is_idle = not (self._pieces or self._held)
        return "".join(shown)

    def end(self) -> str:
        """End the answer and return the remaining text."""
        text, self._pieces, self._held, self.is_idle = "".join(self._pieces) + self._held, [], "", True
        shown, cards, unclosed = _hide_cards(text)
        self.cards, self.unclosed = [*self.cards, *cards], self.unclosed or unclosed
        return shown

    def _read_text(self, text: str, at: int, shown: list[str]) -> int:
        """Read the text up to an opening tag, add it to `shown`, and return the position after the tag."""
        start = at
        while tag := _TAG.search(text, at):
            is_name = False if tag[1] else _is_name(text, tag.end())
            if is_name is None:
                shown.append(text[start : tag.start()])
                return self._hold(text, tag.start())
            if not tag[1] and not is_name:
                shown.append(text[start : tag.start()])
                self._pieces, self._is_closed = [tag[0]], bool(tag[2])
                return tag.end()
            at = tag.end()
        end = max(at, _find_incomplete_tag(text))
        shown.append(text[start:end])
        return self._hold(text, end)

    def _read_card(self, text: str, at: int) -> int:
        """Read the text up to the next closing tag into the card, and return the position after the tag."""
        closing = next((tag for tag in _TAG.finditer(text, at) if tag[1] or tag[2]), None)
        end = closing.end() if closing else max(at, _find_incomplete_tag(text))
        self._pieces.append(text[at:end])
        self._is_closed = closing is not None
        return end if closing else self._hold(text, end)

    def _read_after_card(self, text: str, at: int, shown: list[str]) -> int:
        """Read the text after a card until it is clear that no card ends the answer here, or another one begins."""
        start, at = at, _skip_after_card(text, at)
        tag = _TAG.match(text, at)
        is_name = False if tag is None or tag[1] else _is_name(text, tag.end())
        if at == len(text) or is_name is None or (tag is None and _PARTIAL.fullmatch(text, at)):
            self._pieces.append(text[start:at])
            return self._hold(text, at)
        if tag is not None and not is_name:
            self._pieces.append(text[start : tag.end()])
            self._is_closed = bool(tag[1] or tag[2])
            return tag.end()
        shown += [*self._pieces, text[start:at]]
        self._pieces = []
        return at

    def _hold(self, text: str, at: int) -> int:
        """Hold back the rest of the text and return the position of its end."""
        self._held = text[at:]
        return len(text)


def _skip_after_card(text: str, at: int) -> int:
    """Return the position of the first character that may not follow a card at the end of an answer."""
    found = _OTHER.search(text, at)
    return found.start() if found else len(text)


def _is_name(text: str, end: int) -> bool | None:
    """Return True if the tag that ends here is only mentioned, as code; None if the text so far can't decide it."""
    after = text[end : end + 3]
    return None if after in ("", "`", "``") and end + len(after) == len(text) else after[:1] == "`" and after != "```"


def _hide_cards(text: str) -> tuple[str, list[str], bool]:
    """Return a text without the cards at its end, their contents, and whether the last card is unclosed."""
    cut = _find_incomplete_tag(text)
    end = stop = cut if _is_surely_tag(text[cut:]) else len(text)
    tags = [tag for tag in _TAG.finditer(text) if tag[1] or not _is_name(text, tag.end())]
    after, cards, unclosed = list[str](), list[str](), False
    while tags:
        tag = tags.pop()
        content = text[tag.end() : end]
        start = tag.start()
        if tag[1] or tag[2]:
            if _skip_after_card(content, 0) < len(content) or not (tags or tag[2]):
                break
            after.append(content)
            if tags and not (tags[-1][1] or tags[-1][2]):
                opening = tags.pop()
                cards.append(text[opening.end() : start])
                start = opening.start()
            elif tag[2]:
                cards.append("")
        elif _may_be_json(content):
            unclosed = unclosed or end == stop
            cards.append(content)
        else:
            break
        end = start
    contents = [card[: MAX_CARD_CHARS + 1] for card in reversed(cards)]
    return text[:end] + "".join(reversed(after)), contents[:MAX_CARDS], unclosed


def _may_be_json(content: str) -> bool:
    """Return True if the content of an unclosed card, which may be in a code block, begins as JSON or is empty."""
    content = content.lstrip()
    if content.startswith("```"):
        content = content.strip("`").removeprefix("json").lstrip()
    return content[:1] in ("", "{")


def split_cards(text: str) -> tuple[str, tuple[str, ...]]:
    """Return an answer without the memory cards at its end, and the contents of these cards."""
    if "<" not in text:
        return text, ()
    cards = CardFilter()
    shown = cards.feed(text) + cards.end()
    return shown, tuple(cards.cards)


def remove_cards(text: str) -> str:
    """Return an answer without the memory cards at its end."""
    return split_cards(text)[0]


def list_cards(text: str) -> list[str]:
    """Return the contents of the memory cards at the end of an answer, in order. The last one may be unclosed."""
    return list(split_cards(text)[1])
