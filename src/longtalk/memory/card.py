"""The memory card: a note that a model writes at the end of its answer, which no reader sees.

It stands between `<MEMORY_CARD>` and `</MEMORY_CARD>` and holds JSON. A tag may be in any letter case, with one blank
at each place where a blank may be, with a Markdown escape before its underscore, and with its slash at either end.

- The first closing tag ends a card. An opening tag inside one belongs to it; a closing tag outside is hidden alone.
- A card that is never closed hides all the rest. A tag that the end of an answer cuts in two (`<MEMORY_CA`) is hidden.
- It does not matter whether a card stands in a code fence, or how long it is.
- Of the white space on the two sides of a card the longer one stays; none stays at the beginning or the end of an
  answer. Up to eight characters of it on either side are held back for that, and dropped at the end.
- What is shown never has a tag in it. Where hiding a card would make one of the halves on its sides, a zero-width
  space parts them.

All here is pure: text in, text and values out. Nothing raises for anything a model may write.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from longtalk.tokens import Counter

CARD_TOKENS = 120
CATCH_UP_TOKENS = 300
LONGEST = 16_384
"""Characters of a card that are looked at. One with more is hidden like any other, and can't be read."""
MOST_CARDS = 64
MOST_OPS = 64

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


Kind = Literal["set", "add", "remove", "resolve", "clear"]


class Op(msgspec.Struct, frozen=True):
    """One change of the brief. `field` is a name or a wire key as the model wrote it; `texts` are single lines."""

    op: Kind
    field: str
    texts: tuple[str, ...] = ()


class Card(msgspec.Struct, frozen=True):
    """What a card says: its operations in order, and how many there were that could not be understood."""

    ops: tuple[Op, ...] = ()
    refused: int = 0


_SIGNS: dict[str, Kind] = {"=": "set", "+": "add", "-": "remove", "~": "resolve", "!": "clear"}
_KINDS: dict[str, Kind] = {kind: kind for kind in _SIGNS.values()}
_TEXT_KEYS = ("text", "texts", "items", "value")
_FIELD_LONGEST = 64
# Strings are passed over, also one that is not closed, so that each character is looked at once.
_COMMA = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|,(?=\s*[}\]])', re.S)


def read_card(content: str) -> Card | str:
    """The operations of a card, or why it can't be read: empty, too long, not JSON, nested too deeply, no operations.

    There are three forms, which may be mixed:

    - operations: `{"ops": [{"op": "add", "field": "decisions", "text": "…"}, …]}`, or the list alone
    - compact: `{"+d": "…", "-d": ["…", "…"], "~q": "…", "=g": "…", "!f": 1}`: the sign says add, remove, resolve, set
      or clear
    - plain: `{"goal": "…", "decisions": ["…"]}` sets whole fields. What is empty there counts as not mentioned: models
      write it for "nothing new".

    A code fence around it, commas too many and line ends in strings are forgiven. A doubled key counts twice.
    """
    if len(content) > LONGEST:
        return "too long"
    bare = _unfenced(content.strip())
    if not bare:
        return "empty"
    try:
        found = _changes(_parsed(bare))
    except ValueError:
        return "not JSON"
    except RecursionError:
        return "nested too deeply"
    ops = [op for ops in found for op in ops or ()]
    refused = found.count(None) + len(ops[MOST_OPS:])
    return "no operations" if refused and not ops else Card(tuple(ops[:MOST_OPS]), refused)


def _unfenced(text: str) -> str:
    if not text.startswith("```"):
        return text
    text = text.strip("`").strip()
    return text[4:].strip() if text[:4].lower() == "json" else text


def _parsed(text: str) -> Any:
    """JSON, an object as a tuple of its members and a number as it was written. Raises `ValueError`."""
    import json

    decoder = json.JSONDecoder(
        object_pairs_hook=tuple, parse_int=str, parse_float=str, parse_constant=str, strict=False
    )
    try:
        return decoder.decode(text)
    except ValueError:
        return decoder.decode(_COMMA.sub(lambda found: "" if found[0] == "," else found[0], text))


def _changes(value: Any) -> list[list[Op] | None]:
    """What each member or element says; None for what could not be understood."""
    if isinstance(value, list):
        return [_operation(item) for item in value]
    if not isinstance(value, tuple):
        return [None]
    found: list[list[Op] | None] = []
    for key, member in value:
        if key == "ops" and isinstance(member, list):
            found += map(_operation, member)
        else:
            sign = _SIGNS.get(key[:1])
            found.append(_made(sign or "set", key[1:] if sign else key, member))
    return found


def _operation(value: Any) -> list[Op] | None:
    """One of the long form. It has to say what it is about."""
    if not isinstance(value, tuple):
        return None
    members = dict(value)
    name, field = members.get("op"), members.get("field")
    kind = _KINDS.get(name.lower()) if isinstance(name, str) else None
    if kind is None or not isinstance(field, str):
        return None
    text = next((members[key] for key in _TEXT_KEYS if key in members), None)
    return _made(kind, field, text) or None


def _made(kind: Kind, field: str, value: Any) -> list[Op] | None:
    """An operation; an empty list if it would change nothing."""
    field = _line(field)
    if not 0 < len(field) <= _FIELD_LONGEST:
        return None
    if kind == "clear":
        return [Op(kind, field)]
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(text, str) for text in values):
        return None
    texts = tuple(filter(None, map(_line, values)))
    return [Op(kind, field, texts)] if texts else []


def _line(text: str) -> str:
    """On one line, without halves of characters, and harmless when it is sent back."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return neutralised(" ".join(whole.split()))


def oversized(content: str, counter: Counter, *, catch_up: bool = False) -> bool:
    """Whether a card has more tokens than it may have, its tags not counted."""
    return len(content) > LONGEST or counter.count(content) > (CATCH_UP_TOKENS if catch_up else CARD_TOKENS)


class Tally(msgspec.Struct, frozen=True):
    """How often a card was asked for in vain, over the last `WINDOW` asks: one sign each, `x` for a failure."""

    WINDOW = 40
    LEAST = 20
    """So many asks are needed for a judgement: with fewer, one failure would be above `SHARE`."""
    SHARE = 0.05

    marks: str = ""

    def asked(self, *, failed: bool) -> Tally:
        """With one more ask."""
        return Tally((self.marks + ("x" if failed else "."))[-self.WINDOW :])

    @property
    def asks(self) -> int:
        return len(self.marks)

    @property
    def failures(self) -> int:
        return self.marks.count("x")

    @property
    def share(self) -> float:
        """How many of the asks failed, from 0 to 1."""
        return self.failures / self.asks if self.marks else 0.0

    @property
    def too_many(self) -> bool:
        """Whether another way of capture should be tried."""
        return self.asks >= self.LEAST and self.share > self.SHARE


def request(fields: Mapping[str, str], *, lists: Collection[str] = (), catch_up: bool = False) -> str:
    """The words at the tail of a request that ask for a card.

    `fields` are the wire keys, each with what the field holds; `lists` are the keys of those that hold several items.
    A small card says what this turn changed; a catch-up card also what the brief lacks of all turns before.
    """
    keys = ", ".join(f"{key} = {' '.join(says.split())}" for key, says in fields.items())
    texts = [f'"{key}":"…"' for key in fields if key not in lists][:1]
    items = [f'"+{key}":["…"]' for key in fields if key in lists][:1]
    scope = "what of this conversation matters later and is not in the brief" if catch_up else "what this turn changed"
    signs = "A key alone replaces its text."
    if items:
        signs += f" For lists ({', '.join(key for key in fields if key in lists)}) put a sign before the key:"
        signs += " + add, - remove, ~ resolved."
    return (
        f"After your answer, as the very last thing, note {scope}, in this form:\n"
        f"<MEMORY_CARD>{{{','.join(texts + items)}}}</MEMORY_CARD>\n"
        f"Keys: {keys}. {signs} Short phrases, at most {150 if catch_up else 60} words; {{}} if there is nothing. "
        "It is taken out before anyone reads the answer: don't mention it."
    )
