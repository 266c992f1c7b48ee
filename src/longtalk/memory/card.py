"""The memory card: a note that a model writes at the end of its answer, which no reader sees.

It stands between tags (`sentinel.py`) and holds JSON, which says what changes (`operations.py`). Here it is asked for,
its text is read, and it is counted how often it was asked for in vain. Nothing raises for anything a model may write.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from longtalk.memory.operations import Operation, listed, operations
from longtalk.memory.sentinel import LONGEST
from longtalk.tokens import Counter

CATCH_UP = "what of this conversation matters later and is not in the brief"
"""What a card that catches up is asked for."""
CARD_TOKENS = 120
CATCH_UP_TOKENS = 300

# Strings are passed over, also one that is not closed, so that each character is looked at once.
_COMMA = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|,(?=\s*[}\]])', re.S)


def read_card(content: str) -> tuple[list[Operation], list[str]] | str:
    """The operations of a card and what was refused of it; or why it is none: a word or two.

    A code fence around it, commas too many and line ends in strings are forgiven. A number is a text, as it was
    written. What a doubled key has counts together.
    """
    if len(content) > LONGEST:
        return "too long"
    bare = _unfenced(content.strip())
    if not bare:
        return "empty"
    try:
        value = _parsed(bare)
    except ValueError:
        return "not JSON"
    except RecursionError:
        return "nested too deeply"
    return operations(value)


def _unfenced(text: str) -> str:
    if not text.startswith("```"):
        return text
    text = text.strip("`").strip()
    return text[4:].strip() if text[:4].lower() == "json" else text


def _parsed(text: str) -> object:
    """The JSON value that a text is. Raises `ValueError`."""
    import json

    decoder = json.JSONDecoder(
        object_pairs_hook=_joined, parse_int=str, parse_float=str, parse_constant=str, strict=False
    )
    try:
        return decoder.decode(text)
    except ValueError:
        return decoder.decode(_COMMA.sub(lambda found: "" if found[0] == "," else found[0], text))


def _joined(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. Where a key is doubled, a list of all that it has."""
    made: dict[str, Any] = {}
    for key, value in members:
        made[key] = [*listed(made[key]), *listed(value)] if key in made else value
    return made


def within(changes: Sequence[Operation], counter: Counter, *, catch_up: bool = False) -> list[Operation]:
    """As many of the changes as a card may hold, by their tokens: what comes first matters most."""
    left = CATCH_UP_TOKENS if catch_up else CARD_TOKENS
    made: list[Operation] = []
    for change in changes:
        texts: list[str] = []
        for text in change.texts:
            left -= counter.count(text) + 1
            if left >= 0:
                texts.append(text)
        left -= counter.count(change.answer) if change.answer else 0
        if left >= 0 or texts:
            made.append(msgspec.structs.replace(change, texts=tuple(texts)))
    return made


class Tally(msgspec.Struct, frozen=True):
    """How often a card was asked for in vain, over the last `WINDOW` asks: one sign each, `x` for a failure."""

    WINDOW = 40
    LEAST = 20
    """So many asks are needed for a judgement: with fewer, one failure would be above `SHARE` …"""
    SHARE = 0.05
    HOPELESS = 6
    """… but so many failures are enough, if at least half of all asks were."""

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
        hopeless = self.failures >= self.HOPELESS and self.share >= 0.5
        return hopeless or (self.asks >= self.LEAST and self.share > self.SHARE)


def request(fields: Mapping[str, str], *, lists: Collection[str] = (), catch_up: bool = False) -> str:
    """The words at the tail of a request that ask for a card.

    `fields` are the wire keys, each with what the field holds; `lists` are the keys of those that hold several items.
    A small card says what this turn changed; a catch-up card also what the brief lacks of all turns before.
    """
    texts = [f'"{key}":"…"' for key in fields if key not in lists][:1]
    items = [f'"+{key}":["…"]' for key in fields if key in lists][:1]
    scope = CATCH_UP if catch_up else "what this turn changed"
    return (
        f"End your answer with a note of {scope}, which nobody else sees:\n"
        f"<MEMORY_CARD>{{{','.join(texts + items)}}}</MEMORY_CARD>\n"
        f"{keys(fields, lists=lists)} Short phrases, at most {120 if catch_up else 45} words; {{}} if there is nothing."
    )


def keys(fields: Mapping[str, str], *, lists: Collection[str] = ()) -> str:
    """What the keys of a card mean, and what can be done with them."""
    single = [_key(key, says) for key, says in fields.items() if key not in lists]
    several = [_key(key, says) for key, says in fields.items() if key in lists]
    parts = [f"Keys: {', '.join(single)}."] if single else []
    if several:
        parts.append(f"Lists: {', '.join(several)}; + adds, - removes, ~ resolves.")
    return " ".join(parts)


def _key(key: str, says: str) -> str:
    says = " ".join(says.split())
    return key if says in (key, f"{key}s") else f"{key} ({says})"
