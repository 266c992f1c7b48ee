"""A word search in a transcript that has no index, such as one decoded from a state.

The search scans the raw JSON without parsing it, so a match may also be part of a word or the name of a JSON member.
Such matches do no harm, because ranking reads the parsed text. Tool results are never returned.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from longtalk.memory.recall.protocol import Matches, SearchTerm
from longtalk.transcript.pack import Entry
from longtalk.transcript.transcript import Transcript

__all__ = ["TranscriptScan"]

_WORD_END = rb"(?![a-z0-9])"


class TranscriptScan:
    """An `EntrySource` that searches a transcript for words."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self.size = len(transcript)
        pack, fresh = transcript.pack, [entry.native for entry in transcript.fresh]
        # In JSON, a newline is written as a backslash and "n", which would look like the first letter of the next word.
        self._text = b" ".join((bytes(pack.array), *fresh)).lower().replace(rb"\n", b"  ")
        sizes = (len(native) + 1 for native in fresh)
        self._starts = array("Q", (*pack.offsets()[:-1], *accumulate(sizes, initial=len(pack.array) + 1)))
        self._tool_shapes = {code for code, (_, role, _) in enumerate(pack.index.shapes) if role == "tool"}

    def pick(self, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        return [[self._transcript[i] for i in range(start, min(stop, self.size))] for start, stop in ranges]

    def to_position(self, i: int) -> int:
        return self._transcript.position(i)

    def matches(self, terms: Sequence[SearchTerm], most: int) -> list[Matches]:
        """Return, for each term, the entries that match it, like `Store.matches`; if more than `most`, the newest."""
        matches: list[Matches] = []
        for term in terms:
            positions = {i for pattern in _compile_patterns(term) for i in self._find_entries(pattern)}
            readable = sorted(i for i in positions if not self._is_tool_result(i))
            matches.append(Matches(tuple(readable[max(0, len(readable) - most) :]), len(readable)))
        return matches

    def _find_entries(self, pattern: re.Pattern[bytes]) -> Iterator[int]:
        """Yield the indexes of the entries in which the pattern matches at the beginning of a word."""
        text, starts, last = self._text, self._starts, -1
        for found in pattern.finditer(text):
            at = found.start()
            if not text[at - 1 : at].isalpha():
                i = bisect_right(starts, at) - 1
                if last < i < self.size:
                    yield i
                    last = i

    def _is_tool_result(self, i: int) -> bool:
        packed = len(self._transcript.pack)
        if i < packed:
            return self._transcript.pack.index.shape[i] in self._tool_shapes
        return self._transcript.fresh[i - packed].role == "tool"


def _compile_patterns(term: SearchTerm) -> list[re.Pattern[bytes]]:
    """Return patterns that match all forms of a term. Each begins with literal characters, which are found fastest."""
    forms = [(form, _WORD_END) for word in term.words for form in _list_json_spellings(word)]
    forms += [(form, b"") for beginning in term.beginnings for form in _list_json_spellings(beginning)]
    groups: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for form, end in forms:
        groups.setdefault(form[:2], []).append((form, end))
    patterns = []
    for group in groups.values():
        first, last = min(group)[0], max(group)[0]
        shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
        root = first[:shared]
        rests = (re.escape(form[len(root) :]) + end for form, end in group)
        patterns.append(re.compile(re.escape(root) + b"(?:" + b"|".join(dict.fromkeys(rests)) + b")"))
    return patterns


def _list_json_spellings(form: str) -> set[bytes]:
    """Return all ways in which a word may be written in JSON whose ASCII letters are in lower case."""
    if form.isascii():
        return {form.encode()} if form.strip() else set()
    cases = {form, form.capitalize(), form.upper()}
    escaped = {
        "".join(c if c.isascii() else f"\\u{ord(c):04x}" for c in case).encode()
        for case in cases
        if max(case) < "\U00010000"
    }
    return {case.encode("utf-8", "surrogatepass").lower() for case in cases} | {each.lower() for each in escaped}
