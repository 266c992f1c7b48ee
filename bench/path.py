"""The path of one turn: which modules it goes through, how many functions it calls, what it reads more than once.

    python -m bench.path

One warm turn after 20 others, with a model that answers at once: on a state, on SQLite, and on SQLite with `Memory()`.
Counted are the modules of Longtalk that are entered, the calls of Python functions (a function of a library counts
too, one that is written in C does not), the records that are decoded, and the plans and requests that are made.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import longtalk
from bench.turns import ANSWERS, MESSAGES, Figure, Model
from longtalk import Chat, Conversation
from longtalk.policies import KeepAll, Memory
from longtalk.stores.sqlite.store import SQLite

TURNS = 20
GOALS = {"a state": 410, "SQLite": 440, "SQLite with Memory": 1_840}
"""Half of the calls that each turn made before it had one path."""
MODULES = {"a state": 21, "SQLite": 26, "SQLite with Memory": 39}
"""Half of the modules that each turn entered then."""
_ROOT = str(Path(longtalk.__file__).parent)
_COUNTED = ("read_record", "make_plan", "compose", "fingerprint_policy", "find_epoch")


def count_calls(turn: Callable[[], Any]) -> tuple[set[str], Counter[str]]:
    """Run a turn; return the modules that it enters, and how often it calls each function of Longtalk and in all."""
    modules: set[str] = set()
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        calls["all"] += 1
        code = frame.f_code
        if code.co_filename.startswith(_ROOT):
            calls["own"] += 1
            modules.add(code.co_filename)
            calls[code.co_name] += 1

    sys.setprofile(note)
    try:
        turn()
    finally:
        sys.setprofile(None)
    return modules, calls


def main() -> None:
    """Print the table and the goals."""
    print(f"One turn after {TURNS}, in numbers")
    figures: list[Figure] = []
    columns = ("modules", "calls", "own calls", *_COUNTED)
    print(f"{'':22}" + "".join(f"{column:>20}" for column in columns))
    for name, turn in _list_turns():
        modules, calls = count_calls(turn)
        numbers = (len(modules), calls["all"], calls["own"], *(calls[each] for each in _COUNTED))
        print(f"{name:22}" + "".join(f"{number:>20,}" for number in numbers))
        figures.append(Figure(f"calls of a turn on {name}", calls["all"], GOALS[name]))
        figures.append(Figure(f"modules of a turn on {name}", len(modules), MODULES[name]))
    print(json.dumps({"bench": "path", "goals": [figure.to_json() for figure in figures]}))


def _list_turns() -> list[tuple[str, Callable[[], Any]]]:
    chat = Chat(Model(itertools.repeat(ANSWERS[1])))
    state: bytes | None = None
    for i in range(TURNS):
        state = chat.send(MESSAGES[i], state=state).state
    turns: list[tuple[str, Callable[[], Any]]] = [("a state", lambda: chat.send("One more", state=state).state)]
    for name, policy in (("SQLite", KeepAll()), ("SQLite with Memory", Memory())):
        folder = tempfile.mkdtemp()
        talk = Conversation(
            "talk", model=Model(itertools.repeat(ANSWERS[1])), store=SQLite(f"{folder}/talks.db"), policy=policy
        )
        for i in range(TURNS):
            talk.send(MESSAGES[i])
        turns.append((name, lambda talk=talk: talk.send("One more")))  # type: ignore[misc]
    return turns


if __name__ == "__main__":
    main()
