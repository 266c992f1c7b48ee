"""Corrections: what lines of a brief said before they were corrected or forgotten.

Earlier messages go on saying it. Recall quotes a passage that says what was corrected together with its correction, and
no passage that says what was forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from longtalk.memory.brief.lines import BriefContent, Line, make_line_id, normalize

_MAX_CORRECTIONS = 40
"""The maximum number of corrections that a brief remembers; the newest stay."""


class Correction(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line that says something else now, or that the app has had forgotten."""

    old: Line
    text: str = ""
    """What the line says now; empty if it was forgotten."""


def add_corrections(
    known: Iterable[Correction], before: BriefContent, after: BriefContent, removed: Iterable[Line]
) -> tuple[Correction, ...]:
    """Return the corrections of a brief after a change that removed these lines.

    A line that was revoked is forgotten, unless the change has put another line into its field: that corrects it. A
    line that the change only removed is corrected by a new line of its field that repeats at least half of its words.
    """
    old_ids = {line.id for line in before.lines}
    new = [line for line in after.lines if line.id not in old_ids]
    revoked = set(after.revoked).difference(before.revoked)
    found = list(known)
    for line in removed:
        in_field = [each for each in new if each.field == line.field]
        if revoked.isdisjoint((line.id, _identify(line.text))):
            in_field = [each for each in in_field if _corrects(each.text, line.text)]
            if not in_field:
                continue
        text = in_field[-1].text if in_field else ""
        found = [msgspec.structs.replace(each, text=text) if each.text == line.text else each for each in found]
        found.append(Correction(line, text))
    present = {_identify(line.text) for line in after.lines}
    latest = {_identify(each.old.text): each for each in found}
    return tuple(each for name, each in latest.items() if name not in present)[-_MAX_CORRECTIONS:]


def make_correction_finder(corrections: Iterable[Correction]) -> Callable[[str], Correction | None]:
    """Return a function that returns the newest correction of something that a text still says; None if there is none.

    The words of the corrections are determined once, for all texts.
    """
    from longtalk.memory.terms import extract_terms

    known = [
        (each, frozenset(extract_terms(each.old.text)), frozenset(extract_terms(each.text)))
        for each in reversed([*corrections])
    ]

    def find(text: str) -> Correction | None:
        terms = frozenset(extract_terms(text)) if known else frozenset()
        for each, old, now in known:
            # What states the correction itself often repeats what it corrects.
            if 2 * len(terms & old) > len(old) and prefers_old(terms, old, now):
                return each
        return None

    return find


def prefers_old(terms: frozenset[str], old: frozenset[str], now: frozenset[str]) -> bool:
    """Return True if a text with these terms has more of those that were corrected than of those that hold now."""
    return len(terms & (old - now)) > len(terms & (now - old))


def list_corrected_ids(corrections: Iterable[Correction]) -> frozenset[str]:
    """Return the ids, in the form that does not depend on the field, of what was corrected and not forgotten."""
    return frozenset(_identify(each.old.text) for each in corrections if each.text)


def _corrects(new: str, old: str) -> bool:
    """Return True if a new text repeats at least half of the words of an old one, and not all of them."""
    from longtalk.memory.terms import extract_terms

    terms = frozenset(extract_terms(old))
    shared = len(terms & frozenset(extract_terms(new)))
    return len(terms) <= 2 * shared < 2 * len(terms)


def _identify(text: str) -> str:
    return make_line_id("", normalize(text))
