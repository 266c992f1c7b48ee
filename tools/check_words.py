"""Find words that the project avoids: `python tools/check_words.py [--count] [PATH …]`.

Each of these words hides the actor or has a plainer synonym. Without PATH, the check covers sources, docs, examples,
benches and tools, but not generated code or data. It prints each use and exits with status 1 if it finds one;
`--count` prints the number of uses per top-level folder instead.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
WORDS = {
    "somebody": "name the actor, such as the caller or the user",
    "nobody": "name the actor, or say that the value is unknown",
    "whoever": "name the actor",
    "anew": "write 'again'",
}
PLACES = ("src", "docs", "examples", "bench", "tools", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
SUFFIXES = frozenset({".lua", ".md", ".py", ".sql"})
SKIPPED = frozenset({"_sync", "data", "files", "fixtures", "samples"})
"""Folders of generated code and of data."""

# The argument of getpwnam is the name of a Unix account.
_PATTERN = re.compile(rf"(?<!getpwnam\(\")\b({'|'.join(WORDS)})\b", re.IGNORECASE)


def find_files(places: Sequence[Path]) -> Iterator[Path]:
    """Yield the files to check, without generated code, data and this program."""
    for place in places:
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            inside = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            skipped = SKIPPED.intersection(inside.parts[:-1]) or path == Path(__file__)
            if path.suffix in SUFFIXES and not skipped and path.is_file():
                yield path


def find_uses(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line number and the word of each use in a file."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for found in _PATTERN.finditer(line):
            yield number, found[0].lower()


def main(arguments: Sequence[str]) -> int:
    """Print the uses, or their number, and return the exit status."""
    given = [Path(argument).resolve() for argument in arguments if argument != "--count"]
    counts: Counter[str] = Counter()
    for path in find_files(given or [ROOT / place for place in PLACES]):
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        for number, word in find_uses(path):
            counts[name.parts[0]] += 1
            if "--count" not in arguments:
                print(f"{name}:{number}: '{word}': {WORDS[word]}")
    if "--count" in arguments:
        for place, count in counts.most_common():
            print(f"{count:6} {place}")
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
