"""Look-alikes: text of users and tools that reads as a tag that only Longtalk writes.

What the app says, and what memory adds, stands between tags such as `<event>` in messages of the user role, on every
wire that has no role for it. So the same tag in the text of a user, a tool or a web page is made harmless before it is
sent: its bracket becomes `&lt;`. The stored text does not change.

A look-alike is a bracket and the name of a tag, as far as a model would plausibly read them so: in any letter case,
with slashes and white space before the name, with brackets and letters that look the same, with invisible characters
between the letters, and with the JSON escape of a bracket. The beginning of a tag at the end of a text is one too,
because another part or message may complete it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from functools import cache

CARD = ("memory_card",)
TAGS = (
    *("brief", "done_so_far", "earlier_conversation", "earlier_summary", "earlier_tool_calls", "event", "instruction"),
    *("left_out", "memory", "outline", "recalled", "summary_request", "system", *CARD),
)
"""The names of the tags that Longtalk writes into requests."""

_BRACKETS = "<\u02c2\u1438\u16b2\u2039\u227a\u2329\u276c\u276e\u2770\u27e8\u29fc\u3008\ufe64\uff1c"
_ENCODED = tuple(bracket.encode() for bracket in _BRACKETS[1:])
_INVISIBLE = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff"
)
_LATIN = "abcdehiklmnopstuvxy"
_LIKE_LATIN = (
    "\u0430\u0432\u0441\u0501\u0435\u04bb\u0456\u043a\u04cf\u043c\u043f\u043e\u0440\u0455\u0442\u0446\u0475\u0445\u0443",
    "\u03b1\u03b2\u03f2\u03b4\u03b5\u0570\u03b9\u03ba\u01c0\u03bc\u03b7\u03bf\u03c1\u03c3\u03c4\u03c5\u03bd\u03c7\u03b3",
    "\u1d00\u0299\u1d04\u1d05\u1d07\u029c\u026a\u1d0b\u029f\u1d0d\u0274\u1d0f\u1d18\ua731\u1d1b\u1d1c\u1d20\u03be\u028f",
)
"""Cyrillic and Greek letters, and small capitals, that look like the letters of `_LATIN`."""
_LETTERS = {ord(like): latin for letters in _LIKE_LATIN for latin, like in zip(_LATIN, letters, strict=True)}
_LETTERS |= {0x131: "i", 0x433: "r", 0x280: "r", 0xA730: "f"}
_SEPARATOR = re.compile(r"\\?[-_\u2010-\u2015]")
_KEYS = rb'("(?:tool_call_id|tool_use_id|call_id|id|name)"\s*+:\s*+)?+'
_WINDOW = 64


def neutralize(text: str, names: tuple[str, ...] = TAGS) -> str:
    """Return a text in which nothing reads as a tag with one of these names: the bracket of each becomes `&lt;`."""
    if "<" not in text and not _may_hold_other(text):
        return text
    patterns = _compile(names)

    def replace(found: re.Match[str]) -> str:
        start = patterns.gap.match(text, found.end())
        return "&lt;" if start and _begins_name(text, start.end(), patterns) else found[0]

    return patterns.bracket.sub(replace, text)


def neutralize_json(native: bytes, keep: Collection[str] = ()) -> bytes:
    """Return a JSON object in whose strings nothing reads as a tag of Longtalk's. All other bytes stay as they are.

    A call id or name that is in `keep` is not changed, because it has to match that of the call.
    """
    if not _may_hold(native):
        return native

    def replace(found: re.Match[bytes]) -> bytes:
        key, token = found[1] or b"", found[2]
        if not _may_hold(token):
            return found[0]
        import json

        text = json.loads(token.decode("utf-8", "replace"), strict=False)
        harmless = neutralize(text)
        if harmless == text or (key and text in keep):
            return found[0]
        # Half a surrogate pair can't be encoded, so it stays an escape.
        encoded = _surrogates().sub(lambda half: f"\\u{ord(half[0]):04x}", json.dumps(harmless, ensure_ascii=False))
        return key + encoded.encode()

    return _compile_string().sub(replace, native)


def _may_hold_other(text: str) -> bool:
    """Return True if a text without `<` may hold another bracket."""
    if "\\" in text and "3" in text:
        return True
    return not text.isascii() and any(bracket in text for bracket in _BRACKETS[1:])


def _may_hold(data: bytes) -> bool:
    """Return True if JSON may hold a bracket. This is a fast check, which most messages fail."""
    if b"<" in data or b"\\u" in data or b"\\x" in data:
        return True
    return not data.isascii() and any(bracket in data for bracket in _ENCODED)


class _Patterns:
    """The patterns for the tags of some names."""

    def __init__(self, names: tuple[str, ...]) -> None:
        gap = rf"[\s/\\{_INVISIBLE}]*+"
        begins = "|".join(sorted({name[:3] for name in names}))
        first = "".join(sorted({name[0] for name in names}))
        follows = rf"(?={gap}(?:{begins}|(?:[{first}][a-z]?+)?+(?:[^\x20-\x7e]|\Z)))"
        self.bracket = re.compile(rf"(?:[{_BRACKETS}]|(?<!\\)\\++(?:u003|x3)c){follows}", re.IGNORECASE)
        """A bracket after which one of the names may follow."""
        self.gap = re.compile(gap)
        self.spellings = tuple({name.replace("_", separator): None for name in names for separator in ("_", "", " ")})
        spelled = "|".join(name.replace("_", rf"(?:{_SEPARATOR.pattern}|\s)?") for name in names)
        self.name = re.compile(rf"(?:{spelled})(?![\w-])", re.IGNORECASE)
        """One of the names, in plain letters."""


_compile = cache(_Patterns)


@cache
def _compile_string() -> re.Pattern[bytes]:
    return re.compile(_KEYS + rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")', re.DOTALL)


@cache
def _surrogates() -> re.Pattern[str]:
    return re.compile("[\ud800-\udfff]")


@cache
def _compile_invisible() -> re.Pattern[str]:
    return re.compile(f"[{_INVISIBLE}]+")


def _begins_name(text: str, at: int, patterns: _Patterns) -> bool:
    """Return True if one of the names stands at a position of a text, or if the text ends with the beginning of one."""
    if patterns.name.match(text, at):
        return True
    size = _WINDOW
    while True:
        window, is_whole = text[at : at + size], at + size >= len(text)
        if not is_whole and window.isascii() and not _compile_invisible().search(window):
            return False
        seen = _fold(window)
        after = [seen[len(name) : len(name) + 1] for name in patterns.spellings if seen.startswith(name)]
        if any(char and char != "_" and not char.isalnum() for char in after) or (is_whole and "" in after):
            return True
        begins = any(name.startswith(seen.rstrip("\\")) for name in patterns.spellings)
        if is_whole or not (begins or "" in after):
            return is_whole and begins
        # Many invisible characters stand between the letters.
        size *= 4


def _fold(text: str) -> str:
    """Return a text with the letters that its own look like, in lower case and without invisible characters."""
    if not text.isascii() or not text.isprintable():
        text = unicodedata.normalize("NFKD", _compile_invisible().sub("", text)).casefold().translate(_LETTERS)
        text = "".join(char for char in text if not unicodedata.combining(char))
    return _SEPARATOR.sub("_", text.lower())
