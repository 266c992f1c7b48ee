"""The CPU time of importing Longtalk, relative to `import sqlite3, json`, which most programs of this kind import.

Each figure is the whole CPU time of a new interpreter, with byte-compiled modules. The rounds are interleaved and the
least time counts. `import longtalk` alone loads neither the sync nor the async classes, so the goal is about a program
that uses the sync ones. Heavy libraries are imported at first use: none of them may be loaded here.
"""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
from pathlib import Path

import longtalk

ROUNDS = 25
GOALS = {"longtalk": 4.0, "Chat, Conversation, Archive": 6.0}
"""How many times the CPU time of `import sqlite3, json` an import may take."""
PROGRAMS = {
    "nothing": "pass",
    "sqlite3, json": "import sqlite3, json",
    "longtalk": "import longtalk",
    "Chat": "from longtalk import Chat",
    "Chat, Conversation, Archive": "from longtalk import Archive, Chat, Conversation",
}
LARGEST = list(PROGRAMS.values())[-1]
HEAVY = ("anthropic", "anyio", "asyncio", "click", "cryptography", "httpx2", "numpy", "openai", "rich", "xllamacpp")


def measure_cpu(program: str) -> float:
    """Return the CPU time of an interpreter that runs this program, in milliseconds."""
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", program], os.environ)
    _, status, used = os.wait4(child, 0)
    if status:
        raise RuntimeError(f"{program!r} failed")
    return (used.ru_utime + used.ru_stime) * 1e3


def list_loaded() -> list[str]:
    """Return the heavy libraries that the sync classes load."""
    program = f"{LARGEST}; import sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()


def main() -> None:
    """Run the benchmark and print its figures and goals."""
    compileall.compile_dir(Path(longtalk.__file__).parent, quiet=1)
    for program in PROGRAMS.values():
        measure_cpu(program)
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, program in PROGRAMS.items():
            best[name] = min(measure_cpu(program), best.get(name, float("inf")))
    base = best["sqlite3, json"]
    print(f"CPU of a new interpreter in milliseconds, the least of {ROUNDS} rounds.\n")
    print(f"{'import':30}{'CPU':>8}{'times':>8}")
    for name, spent in best.items():
        print(f"{name:30}{spent:8.1f}{spent / base:8.2f}")
    heavy = list_loaded()
    print(f"\nHeavy libraries that are loaded: {', '.join(heavy) or 'none'} (of {', '.join(HEAVY)}).")
    goals = [
        {
            "name": f"CPU against sqlite3 and json, {name}",
            "value": round(best[name] / base, 2),
            "goal": goal,
            "met": best[name] <= goal * base,
        }
        for name, goal in GOALS.items()
    ]
    goals += [
        {"name": "heavy libraries imported", "value": len(heavy), "goal": 0, "met": not heavy},
    ]
    print(json.dumps({"bench": "imports", "goals": goals}))


if __name__ == "__main__":
    main()
