"""Leave out what a memory card only repeats from elsewhere, and apply what it says about the user to the profile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import msgspec

from longtalk.memory.brief.apply import apply
from longtalk.memory.brief.lines import Line, make_line_id, normalize
from longtalk.memory.brief.operations import Operation
from longtalk.memory.brief.record import BriefRecord, read_brief_record
from longtalk.memory.brief.schema import Brief
from longtalk.memory.profile.config import Profile
from longtalk.memory.profile.lines import SentLine, read_turn_profile
from longtalk.tokens import Counter
from longtalk.transcript.transcript import Transcript
from longtalk.wires import text_if_readable

_MAX_REPLACED = 100
"""The maximum number of lines of other conversations that a record replaces."""
_SPEAKER = frozenset(["user"])
"""The term by which notes and quotes name the user, which says nothing about where a note comes from."""
FindOrigins = Callable[[Sequence[Line]], Sequence[Line]]

_replace = msgspec.structs.replace


def remove_repeated(
    operations: Sequence[Operation], transcript: Transcript, start: int, foreign: str = ""
) -> list[Operation]:
    """Return the operations without texts that only repeat what the request said from elsewhere.

    That is the lines of the profile from other conversations, and `foreign`, what the request quoted from them.
    Otherwise, deleting what a line comes from would not remove the line. A text is kept if one message of this branch,
    at index `start` or later, states all of what it repeats, or if the branch has noted it before.
    """
    others = {line.said for line in _list_others(transcript)}
    if not others and not foreign:
        return list(operations)
    from longtalk.memory.terms import extract_terms

    record = read_brief_record(transcript)
    noted = {make_line_id("", normalize(line.text)) for line in (*record.content.lines, *record.profile.lines)}
    quoted = frozenset(extract_terms(foreign))

    @cache
    def list_stated() -> list[frozenset[str]]:
        entries = [transcript[i] for i in range(start, len(transcript))]
        # What an answer says may be repeated too.
        return [frozenset(extract_terms(text_if_readable(each))) for each in entries if each.role != "assistant"]

    def is_repeated(text: str) -> bool:
        said, terms = make_line_id("", normalize(text)), frozenset(extract_terms(text)) - _SPEAKER
        repeated = terms if said in others else terms & quoted
        if said not in others:
            if said in noted or not repeated or 2 * len(repeated) < len(terms):
                return False
            # A word that only this conversation has says that the text is about more than the quote.
            if any((terms - quoted) & stated for stated in list_stated()):
                return False
        return not any(repeated <= stated for stated in list_stated())

    kept = []
    for each in operations:
        if each.op in ("set", "add", "plain") and any(map(is_repeated, each.texts)):
            texts = tuple(text for text in each.texts if not is_repeated(text))
            if not texts:
                continue
            # A list that is replaced must not lose what it has just been told to keep.
            each = _replace(each, op="add" if each.op == "set" else each.op, texts=texts)
        if each.answer and is_repeated(each.answer):
            each = _replace(each, answer="")
        kept.append(each)
    return kept


def apply_to_profile(
    record: BriefRecord,
    operations: Sequence[Operation],
    config: Brief,
    profile: Profile,
    counter: Counter,
    *,
    transcript: Transcript,
    at: int,
    find_origins: FindOrigins,
) -> tuple[BriefRecord, list[Operation], list[str]]:
    """Apply the operations on fields of the profile to a record.

    Return the new record, the remaining operations, which are for the brief, and the reasons why some were refused.
    """
    own = [each for each in operations if _is_for_profile(each, record, config, profile, counter)]
    if not own:
        return record, list(operations), []
    rest = [each for each in operations if each not in own]
    others = {line.said: line.id for line in _list_others(transcript)}
    replaced = dict(record.replaced)
    refused: list[str] = []
    content = record.profile
    for each in own:
        applied = apply(content, [each], profile.brief, counter, entry=transcript.head or "", at=at)
        content = applied.content
        elsewhere = [others[said] for text in each.texts if (said := make_line_id("", normalize(text))) in others]
        if each.op in ("remove", "resolve") and elsewhere:
            # The line comes from another conversation or branch, which does not change.
            replaced |= dict.fromkeys(elsewhere, at)
        else:
            refused += applied.refused
    content = _replace(content, lines=tuple(find_origins(content.lines)))
    replaced = dict(list(replaced.items())[-_MAX_REPLACED:])
    return _replace(record, profile=content, replaced=replaced), rest, refused


def _list_others(transcript: Transcript) -> list[SentLine]:
    """Return the lines of the turn's profile that only other conversations, or other branches, state."""
    own = {line.id for line in read_brief_record(transcript).profile.lines}
    return [line for line in read_turn_profile(transcript).lines if line.id not in own]


def _is_for_profile(change: Operation, record: BriefRecord, config: Brief, profile: Profile, counter: Counter) -> bool:
    if change.field:
        return config.schema.find(change.field) is None and profile.schema.find(change.field) is not None
    # Without a field, an operation is for the brief if the brief has such a line.
    return bool(change.texts) and bool(apply(record.content, [change], config, counter).refused)
