"""Make the sample conversation: play `sample_script.txt` through a real conversation under `Memory`.

    python tools/make_sample.py

The model is scripted, and so are the clock and the usage that it reports: tokens are estimated from the requests, and
what two requests within ten minutes have in common is reported as cached.
"""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

from longtalk import Archive, Brief, Conversation, Memory
from longtalk.models import registry
from longtalk.providers.base import Capabilities
from longtalk.providers.scripted.script import Step, says
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted
from longtalk.tokens import Estimator

SCRIPT = Path(__file__).with_name("sample_script.txt")
TARGET = Path(__file__).parents[1] / "src/longtalk/transfer/data/sample.json.gz"
MODEL = "gpt-5.4"
SYSTEM = "You help an adult who learns the violin. Be practical and friendly, and answer briefly."
CARD = {
    "goal": "play the Bach Minuet in G for her father's birthday",
    "+facts": [
        "Ada, 41, violin since January",
        "left thumb cramped; Kun shoulder rest two turns higher fixed it",
        "Dominant strings since May, 62 euros",
    ],
    "+constraints": ["practise 20 minutes on weekdays, not late: the neighbour has a baby"],
    "+decisions": ["birthday is 26 September"],
}
CARDS = (
    CARD,
    {"+facts": ["teacher Marta Oliveira, Thursdays 17:00"]},
    {
        "-decisions": ["birthday is 26 September"],
        "+decisions": ["birthday is 19 September (corrected)", "minuet: eight bars a week"],
    },
    {"+decisions": ["duet with her sister Nora, cello; rehearsals 5 and 12 September"]},
    {"+facts": ["the neighbour agreed to half past eight"], "+topics": ["stage nerves"]},
)
_clock = [0]


class SampleModel(Scripted):
    """A scripted model that reports usage, and adds the next memory card when a request asks for one."""

    label = f"openai-chat:{MODEL}"
    model = MODEL

    def __init__(self) -> None:
        known = registry.find(self.label)
        super().__init__(window=known.window if known else None)
        self.capabilities = Capabilities(
            window=self.capabilities.window, prices=known.prices if known else None, cache=True, cache_seconds=600
        )
        self.answers: list[tuple[str | None, list[Any]]] = []
        self.cards = list(CARDS)
        self._last = (b"", 0)

    def _take_step(self, body: bytes) -> Step:
        self.requests.append(body)
        text, calls = self.answers.pop(0)
        if b"End your answer with a note of" in body and text and self.cards:
            text += f"\n<MEMORY_CARD>{json.dumps(self.cards.pop(0))}</MEMORY_CARD>"
        before, at = self._last
        same = len(os.path.commonprefix([before, body])) if _clock[0] - at < 600_000 else 0  # noqa: RUF071
        count = Estimator().count
        sent, cached = count(body.decode()), count(body[:same].decode(errors="ignore"))
        out = count(text or "") + 20 * len(calls)
        self._last, _clock[0] = (body, _clock[0]), _clock[0] + 2_000 + 15 * out
        usage = {
            "prompt_tokens": sent,
            "completion_tokens": out,
            "total_tokens": sent + out,
            "prompt_tokens_details": {"cached_tokens": min(cached, sent) if same else 0},
        }
        return says(text, calls=calls, usage=usage)


def metronome(bars: str, week: int) -> dict[str, int]:  # noqa: ARG001
    """Return the metronome setting for these bars in a week of the plan."""
    return {"bpm": 60, "next": 66}


def make() -> bytes:
    """Play the script, and return the export of the conversation."""
    model, store = SampleModel(), InMemory()
    policy = Memory(brief=Brief(budget=200), recent=500, recall=400, limit=1_500)
    talk = Conversation("sample-violin", model=model, store=store, policy=policy, tools=[metronome])
    edits = ""
    for block in SCRIPT.read_text().split("\n@ ")[1:]:
        lines = block.splitlines()
        _set_clock(lines[0])
        user = next(line[2:] for line in lines if line.startswith("U "))
        answer = next(line[2:].replace("\\n", "\n") for line in lines if line.startswith("A "))
        for call in (line[2:].split(" => ")[0] for line in lines if line.startswith("T ")):
            name, _, arguments = call.partition(" ")
            model.answers.append((None, [("call_1", name, arguments)]))
        model.answers.append((answer, []))
        talk.send(user, system=SYSTEM)
        if "vibrato before" in user:
            edits = [each.id for each in talk.history() if each.role == "user"][-1]
            model.answers.append(("Only if the minuet is steady at 84 by then. If it is, begin with slow rocking.", []))
            talk.edit(edits, "Should I learn vibrato in September, if there is time left?", system=SYSTEM)
        for note in (line[2:] for line in lines if line.startswith("N ")):
            day, hour, source, text = note.split(" ", 3)
            _set_clock(f"{day} {hour}")
            talk.note(text, source=source)
    archive = Archive(store)
    archive.set_metadata("sample-violin", {"title": "Sample: Ada learns the violin", "sample": True})
    return archive.export("sample-violin", "json").encode()


def _set_clock(when: str) -> None:
    _clock[0] = round(dt.datetime.fromisoformat(f"{when}+00:00").timestamp() * 1000)


if __name__ == "__main__":
    time.time_ns = lambda: _clock[0] * 1_000_000
    data = make()
    TARGET.write_bytes(gzip.compress(data, mtime=0))
    print(f"{TARGET.name}: {len(data):,} bytes, {TARGET.stat().st_size:,} compressed")
