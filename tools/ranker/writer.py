"""What writes generated conversations: the phrases of `phrases.txt`, and a writer that chooses among them."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from longtalk.memory.recall.index import Unit

__all__ = ["DAY", "FOLDER", "PHRASES", "SLOT", "Fact", "Talk", "Writer"]

FOLDER = Path(__file__).parent
DAY = 86_400
SLOT = re.compile(r"\{(\w+)\}")
_START = int(datetime(2021, 1, 1, tzinfo=UTC).timestamp())
_CHOICE = re.compile(r"\[([^\[\]]*)\]")


class Talk(msgspec.Struct, frozen=True):
    """A conversation with its questions, and the positions that answer each."""

    units: list[Unit]
    questions: list[tuple[str, frozenset[int]]]


class Fact(msgspec.Struct):
    """The phrases for a kind of fact: what is said (s), how it is asked for (a, r), and questions (q, w, m)."""

    name: str
    topic: str
    phrases: dict[str, list[str]] = {}


class Phrases:
    """The phrases of `phrases.txt`."""

    def __init__(self) -> None:
        self.pools: dict[str, list[str]] = {}
        self.facts: list[Fact] = []
        self.words: dict[str, list[str]] = {}
        self.lists: dict[str, list[str]] = {}
        self.details: list[list[str]] = []
        """For each kind of detail: how it is asked for, how it is told, and questions about it."""
        for line in (FOLDER / "phrases.txt").read_text("utf-8").splitlines():
            if not line or line.startswith("#"):
                continue
            head, _, rest = line.partition(": ")
            kind, _, name = head.partition(" ")
            if kind == "pool":
                self.pools[name] = rest.split(", ")
            elif kind == "fact":
                self.facts.append(Fact(name, rest, {}))
            elif kind == "chatter":
                self.words[name] = rest.split()
            elif len(kind) == 1:
                self.facts[-1].phrases.setdefault(kind, []).append(rest)
            elif kind == "detail":
                self.details.append(_split_outside(rest))
            else:
                self.lists[kind] = _split_outside(rest)


def _split_outside(text: str) -> list[str]:
    """Split a text at each "|" that is not in brackets."""
    return re.split(r"\|(?![^\[]*\])", text)


PHRASES = Phrases()


class Writer:
    """Writes a conversation of random style."""

    def __init__(self, random: random.Random) -> None:
        self.random = random
        self.units: list[Unit] = []
        self.questions: list[tuple[str, frozenset[int]]] = []
        self.at = _START + random.randrange(900) * DAY

    def fill(self, text: str, values: dict[str, str]) -> str:
        """Return a phrase with its choices made and its values filled in. New values are added to `values`."""
        text = self.choose(text)

        def draw(match: re.Match[str]) -> str:
            name = match[1]
            if name not in values and name in PHRASES.pools:
                values[name] = self.random.choice(PHRASES.pools[name])
            return values.get(name, match[0])

        text = re.sub(r"\{P's\}", lambda _: values.get("P's", "my"), text)
        text = " ".join(SLOT.sub(draw, text).split())
        return text[:1].upper() + text[1:]

    def say(self, role: str, text: str, name: str = "") -> int:
        """Add a message, and return its position."""
        self.units.append(Unit(len(self.units), role, text, self.at, name))
        return len(self.units) - 1

    def ask(self, question: str, evidence: Sequence[int]) -> None:
        """Add a question with the positions that answer it."""
        if evidence:
            self.questions.append((question, frozenset(evidence)))

    def choose(self, text: str) -> str:
        """Return a phrase with its choices made."""
        while match := _CHOICE.search(text):
            text = text[: match.start()] + self.random.choice(match[1].split("|")) + text[match.end() :]
        return text

    def pick(self, name: str) -> str:
        """Return one of the phrases of a list, with its choices made."""
        return self.choose(self.random.choice(PHRASES.lists[name]))

    def phrase_date(self, at: int) -> str:
        """Return a day in one of several forms."""
        day = datetime.fromtimestamp(at, UTC)
        return self.random.choice(
            (
                f"{day:%B} {day.day}, {day.year}",
                f"{day.day} {day:%B} {day.year}",
                f"{day:%Y-%m-%d}",
                f"{day:%B} {day.day}",
            )
        )

    def chance(self, share: float) -> bool:
        """Return True in this share of cases."""
        return self.random.random() < share
