"""Answers with memory cards on every wire, streamed in any pieces."""

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
"""A word that occurs only in cards."""
CONTENT = f'{{"goal":"{SECRET}"}}'
CARD = OPEN + CONTENT + CLOSE
CASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "none": ("Play <b>slowly</b>.", "Play <b>slowly</b>.", ()),
    "one": (f"Play.\n\n{CARD}", "Play.\n\n", (CONTENT,)),
    "two": (f"Play.{CARD}\n{CARD}", "Play.\n", (CONTENT, CONTENT)),
    "in the middle": (f"Play {CARD}a{CARD} scale.", f"Play {CARD}a{CARD} scale.", ()),
    "named": (f"Write `{OPEN}` here.", f"Write `{OPEN}` here.", ()),
    "in prose": (f"Cards begin with {OPEN}, always.", f"Cards begin with {OPEN}, always.", ()),
    "in prose before one": (f"Write {OPEN} here.\n{CARD}", f"Write {OPEN} here.\n", (CONTENT,)),
    "unclosed": (f"Play. {OPEN}{CONTENT}", "Play. ", (CONTENT,)),
    "nested": (f"Play {OPEN}{CONTENT}{OPEN}{SECRET}{CLOSE}{CLOSE}", "Play ", (CONTENT, SECRET)),
    "other case": (f"Play.< memory_Card >{SECRET}</Memory\\_card\n>", "Play.", (SECRET,)),
    "fenced": (f"```json\n{CARD}\n```", "```json\n\n```", (CONTENT,)),
    "cut off": ("Play.\n<MEMORY_CAR", "Play.\n", ()),
    "halves": (f"Play <mem{CARD}ory_card>!", f"Play <mem{CARD}ory_card>!", ()),
}
"""For each case: a text, the part of it that is shown under `Memory`, and the contents of its cards."""
_PLACEHOLDER = "@@"


def split(text: str, *positions: int) -> list[str]:
    """Return the parts of a text between these positions."""
    return [text[start:stop] for start, stop in pairwise([0, *sorted(positions), len(text)])]


def says_in(wire: str, pieces: Sequence[str], calls: Sequence[tuple[str, str, dict[str, str]]] = ()) -> Step:
    """Return an answer whose text is streamed in these pieces, or sent whole by Codex, which doesn't stream."""
    to, text = WIRES[wire], "".join(pieces)
    if isinstance(to, AgentWire):
        lines = _lines(to, pieces, text)
        return Step(b"\n".join(lines), tuple(lines))
    template = says(_PLACEHOLDER, wire=wire, pieces=1, calls=calls)
    placeholder, whole = (json_bytes.encode(each) for each in (_PLACEHOLDER, text))
    events = [each for each in template.events if isinstance(each, bytes)]
    first = next(i for i, data in enumerate(events) if placeholder in data)
    streamed = [events[first].replace(placeholder, json_bytes.encode(piece)) for piece in pieces]
    after = [data.replace(placeholder, whole) for data in events[first + 1 :]]
    return Step(template.body.replace(placeholder, whole), (*events[:first], *streamed, *after))


def _lines(wire: AgentWire, pieces: Sequence[str], text: str) -> list[bytes]:
    if wire is CLAUDE:
        return [begin(wire), *map(claude_piece, pieces), claude_text(text), claude_end(text)]
    if wire is GEMINI:
        return [begin(wire), *map(gemini_text, pieces), gemini_end()]
    return [begin(wire), codex_text(text), codex_end()]
