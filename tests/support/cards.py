"""Answers with memory cards, on every wire, streamed in any pieces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from longtalk._util import json_bytes
from longtalk.testing import Step, says
from longtalk.wires import WIRES
from longtalk.wires.agents.wire import AgentWire
from tests.wires.agents.test_wire import (
    CLAUDE,
    GEMINI,
    begin,
    claude_end,
    claude_piece,
    claude_text,
    codex_end,
    codex_text,
    gemini_end,
    gemini_text,
)

OPEN, CLOSE = "<MEMORY_CARD>", "</MEMORY_CARD>"
SECRET = "marzipan"
"""A word that stands in cards and nowhere else."""
CONTENT = f'{{"goal":"{SECRET}"}}'
CARD = OPEN + CONTENT + CLOSE
CASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "none": ("Play <b>slowly</b>.", "Play <b>slowly</b>.", ()),
    "one": (f"Play.\n\n{CARD}", "Play.\n\n", (CONTENT,)),
    "two": (f"Play {CARD}a{CARD} scale.", "Play a scale.", (CONTENT, CONTENT)),
    "unclosed": (f"Play. {OPEN}{CONTENT}", "Play. ", (CONTENT,)),
    "nested": (f"Play {OPEN}{SECRET}{OPEN}{CLOSE}.{CLOSE}", "Play .", (SECRET + OPEN,)),
    "other case": (f"Play.< memory_Card >{SECRET}</Memory\\_card\n>", "Play.", (SECRET,)),
    "fenced": (f"```json\n{CARD}\n```", "```json\n\n```", (CONTENT,)),
    "cut off": ("Play.\n<MEMORY_CAR", "Play.\n", ()),
    "halves": (f"Play <mem{CARD}ory_card>!", "Play <mem\u200bory_card>!", (CONTENT,)),
}
"""A text, what is shown of it, and what its cards hold."""
_PLACE = "@@"


def split(text: str, *places: int) -> list[str]:
    return [text[start:stop] for start, stop in pairwise([0, *sorted(places), len(text)])]


def says_in(wire: str, pieces: Sequence[str], calls: Sequence[tuple[str, str, dict[str, str]]] = ()) -> Step:
    """An answer whose text comes in these pieces; of Codex, which prints none, whole."""
    to, text = WIRES[wire], "".join(pieces)
    if isinstance(to, AgentWire):
        lines = _lines(to, pieces, text)
        return Step(b"\n".join(lines), tuple(lines))
    made = says(_PLACE, wire=wire, pieces=1, calls=calls)
    place, whole = (json_bytes.encode(each) for each in (_PLACE, text))
    events = [each for each in made.events if isinstance(each, bytes)]
    first = next(i for i, data in enumerate(events) if place in data)
    streamed = [events[first].replace(place, json_bytes.encode(piece)) for piece in pieces]
    after = [data.replace(place, whole) for data in events[first + 1 :]]
    return Step(made.body.replace(place, whole), (*events[:first], *streamed, *after))


def _lines(wire: AgentWire, pieces: Sequence[str], text: str) -> list[bytes]:
    if wire is CLAUDE:
        return [begin(wire), *map(claude_piece, pieces), claude_text(text), claude_end(text)]
    if wire is GEMINI:
        return [begin(wire), *map(gemini_text, pieces), gemini_end()]
    return [begin(wire), codex_text(text), codex_end()]
