"""Words in a transcript that nobody has indexed, such as one that a state carries.

Its JSON is looked through as it lies, without reading it: what is found may be a part of a word, or the name of a
member, and who looks closer will see that. Of what tools gave nothing is found.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from longtalk.pack import Entry
from longtalk.stores.base import Holding, Sought
from longtalk.transcript import Transcript

__all__ = ["Scanned"]

_END = rb"(?![a-z0-9])"


class Scanned:
    """A transcript as a path that can be looked through."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self.size = len(transcript)
        pack, fresh = transcript.pack, [entry.native for entry in transcript.fresh]
        # Line ends are two characters in JSON, of which the second one would look like a part of the next word.
        self._text = b" ".join((bytes(pack.array), *fresh)).lower().replace(rb"\n", b"  ")
        sizes = (len(native) + 1 for native in fresh)
        self._starts = array("Q", (*pack.offsets()[:-1], *accumulate(sizes, initial=len(pack.array) + 1)))
        self._tools = {code for code, (_, role, _) in enumerate(pack.index.shapes) if role == "tool"}

    def pick(self, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        return [[self._transcript[i] for i in range(start, min(stop, self.size))] for start, stop in ranges]

    def place(self, i: int) -> int:
        return self._transcript.place(i)

    def holding(self, sought: Sequence[Sought], most: int) -> list[Holding]:
        """See `Store.holding`."""
        found: list[Holding] = []
        for each in sought:
            places = {i for pattern in _patterns(each) for i in self._having(pattern)}
            said = sorted(i for i in places if not self._is_result(i))
            found.append(Holding(tuple(said[max(0, len(said) - most) :]), len(said)))
        return found

    def _having(self, pattern: re.Pattern[bytes]) -> Iterator[int]:
        """The entries that have this where a word begins."""
        text, starts, last = self._text, self._starts, -1
        for found in pattern.finditer(text):
            at = found.start()
            if not text[at - 1 : at].isalpha():
                i = bisect_right(starts, at) - 1
                if last < i < self.size:
                    yield i
                    last = i

    def _is_result(self, i: int) -> bool:
        packed = len(self._transcript.pack)
        if i < packed:
            return self._transcript.pack.index.shape[i] in self._tools
        return self._transcript.fresh[i - packed].role == "tool"


def _patterns(sought: Sought) -> list[re.Pattern[bytes]]:
    """What to look for. Each pattern begins with letters, since that is looked for fastest."""
    forms = [(form, _END) for word in sought.words for form in _written(word)]
    forms += [(form, b"") for beginning in sought.beginnings for form in _written(beginning)]
    alike: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for form, end in forms:
        alike.setdefault(form[:2], []).append((form, end))
    found = []
    for some in alike.values():
        least, most = min(some)[0], max(some)[0]
        size = next((i for i, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), len(least))
        root = least[:size]
        rests = (re.escape(form[len(root) :]) + end for form, end in some)
        found.append(re.compile(re.escape(root) + b"(?:" + b"|".join(dict.fromkeys(rests)) + b")"))
    return found


def _written(form: str) -> set[bytes]:
    """How a word may be written in JSON, in small letters where those are of ASCII."""
    if form.isascii():
        return {form.encode()} if form.strip() else set()
    cases = {form, form.capitalize(), form.upper()}
    escaped = {
        "".join(c if c.isascii() else f"\\u{ord(c):04x}" for c in case).encode()
        for case in cases
        if max(case) < "\U00010000"
    }
    return {case.encode("utf-8", "surrogatepass").lower() for case in cases} | {each.lower() for each in escaped}
