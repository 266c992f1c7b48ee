"""Capture: ask the model for cards, and update the brief with the cards or tool calls that it returns.

A card that can't be read, or of which no operation can be applied, changes nothing, and the request for it counts as
failed. When too many of the last requests have failed, the other capture mode is used from the next epoch on. The mode
does not change within an epoch, because tools are part of the cached prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk.errors import InputError
from longtalk.memory.brief.app_lines import with_app_lines
from longtalk.memory.brief.apply import apply
from longtalk.memory.brief.corrections import add_corrections
from longtalk.memory.brief.lines import Line
from longtalk.memory.brief.operations import Operation, parse_operations, to_list
from longtalk.memory.brief.record import BriefRecord, CaptureMode, CardKind, read_brief_record, with_brief_record
from longtalk.memory.brief.schema import Brief
from longtalk.memory.cards.echoes import ECHO, ForeignCards
from longtalk.memory.cards.profile_lines import apply_to_profile, remove_repeated
from longtalk.memory.cards.prompt import CATCH_UP, limit_tokens, read_card, render_card_prompt, render_instruction
from longtalk.memory.profile.config import Profile
from longtalk.tokens import Counter
from longtalk.tools import Tool, tool
from longtalk.transcript.transcript import Transcript
from longtalk.wires import text_if_readable

TOOL_NAME = "update_memory"
_MAX_MODE_CHANGES = 2
"""How many times the capture mode may change: once to the other mode, and once back."""
_MAX_ENTRIES_READ = 200
"""The maximum number of entries, counted from the newest, that are searched for the origin of a line."""

_replace = msgspec.structs.replace


def check_example(example: str, config: Brief) -> None:
    """Raise `InputError` unless the example is empty or a memory card that the brief accepts as a whole."""
    if not isinstance(example, str):
        raise InputError(f"`example` of Memory must be a memory card as a JSON string, not {type(example).__name__}.")
    if not example.strip():
        return
    parsed = read_card(example)
    if isinstance(parsed, str):
        raise InputError(f'`example` of Memory must be a memory card such as {{"goal":"…"}}, but it is {parsed}.')
    operations, refused = parsed
    unknown = [each.field for each in operations if each.field and config.schema.find(each.field) is None]
    if refused or unknown or not operations:
        cause = f"The brief has no field {unknown[0]!r}." if unknown else " ".join(refused) or "It has no notes."
        raise InputError(f"`example` of Memory is not a usable memory card: {cause}")


def render_card_request(
    config: Brief, mode: CaptureMode, *, catch_up: bool, instruction: str = "", example: str = ""
) -> str:
    """Return the instruction that asks the model for a card or, in "tool" mode, for a call of the memory tool.

    With `catch_up`, the model is asked for everything that the brief lacks, otherwise for the changes of this turn.
    `instruction` replaces the default text, and `example` is a card that shows what good notes look like.
    """
    if mode == "tool":
        call = f"call {TOOL_NAME} once"
        asks = instruction.strip() or f"Before you answer, {call} with {{scope}}. Do not mention it."
        text = render_instruction(asks, catch_up=catch_up)
        text = text if call in text else f"{text} To do so, {call}."
        return f'{text} An example of its arguments: {{"changes":{example.strip()}}}' if example.strip() else text
    return render_card_prompt(
        _describe_fields(config),
        lists=_select_list_keys(config),
        catch_up=catch_up,
        instruction=instruction,
        example=example,
    )


def parse_card_request(text: str) -> CardKind:
    """Return which kind of card an instruction asks for, or "" if it asks for none."""
    asks = "<MEMORY_CARD>" in text or f"call {TOOL_NAME} once" in text
    return "" if not asks else "catch_up" if CATCH_UP in text else "small"


@lru_cache(maxsize=16)
def make_memory_tool(config: Brief) -> Tool:
    """Return the tool that a model calls to update the brief. Its parameters have the types of the brief's fields."""

    def update_memory(changes: dict[str, Any], remove: Any = None, resolve: Any = None) -> dict[str, Any]:
        removed = [{"op": "remove", "text": remove}] if remove else []
        resolved = [{**each, "op": "resolve"} if isinstance(each, dict) else each for each in to_list(resolve)]
        operations = [*to_list(changes.get("ops")), *removed, *resolved]
        return {**changes, "ops": operations} if operations else changes

    text = "Note what matters later in this conversation. Lists get the items that are new."
    made = tool(update_memory, name=TOOL_NAME, description=text, idempotent=True)
    return _replace(made, schema=json_bytes.encode(_make_tool_schema(config)))


def _make_tool_schema(config: Brief) -> dict[str, Any]:
    """Return the JSON schema of the memory tool's parameters."""
    texts = {"type": "array", "items": {"type": "string"}}
    fields: dict[str, Any] = {}
    for field in config.schema.fields:
        about = field.name.replace("_", " ") + (", all of them" if field.kind == "list" and field.whole else "")
        fields[field.key] = {**(texts if field.kind == "list" else {"type": "string"}), "description": about}
    answered = {"text": {"type": "string"}, "answer": {"type": "string"}}
    question = {"type": "object", "properties": answered, "required": ["text"]}
    return {
        "type": "object",
        "properties": {
            "changes": {"type": "object", "properties": fields, "description": "What is new, by field."},
            "remove": {**texts, "description": "Items of lists that no longer hold."},
            "resolve": {"type": "array", "items": question, "description": "Questions of lists that are answered."},
        },
        "required": ["changes"],
    }


def _describe_fields(config: Brief) -> dict[str, str]:
    return {field.key: field.name.replace("_", " ") for field in config.schema.fields}


def _select_list_keys(config: Brief) -> list[str]:
    return [field.key for field in config.schema.fields if field.kind == "list"]


def apply_cards(
    transcript: Transcript,
    cards: Sequence[str],
    config: Brief,
    counter: Counter,
    *,
    requested: str,
    at: int,
    example: str = "",
    profile: Profile | None = None,
    foreign: str = "",
) -> tuple[Transcript, bool]:
    """Update the brief with `cards`, the contents of the memory cards in the last answer.

    `requested` is the kind of card that was requested, and `at` the time in milliseconds. What repeats a card in the
    text of a user or a tool, or the `example` that the model was shown, is refused. Lines for the fields of `profile`
    are kept apart from the brief. `foreign` is what the request quoted from other conversations: notes that only repeat
    it are left out. Return the new transcript, and whether any card was usable.
    """
    is_usable = False
    dropped: tuple[Line, ...] = ()
    foreign_cards = ForeignCards(transcript, example=example)
    for content in cards:
        parsed = read_card(content)
        if isinstance(parsed, str):
            continue
        own = foreign_cards.remove_echoes(parsed[0], content)
        operations = limit_tokens(own, counter, catch_up=requested == "catch_up")
        refused = [*parsed[1], *([ECHO] if own != parsed[0] else [])]
        refused += ["It is too long."] if len(operations) < len(own) else []
        updated = _apply_changes(
            transcript,
            operations,
            refused,
            config,
            counter,
            covers=True,
            at=at,
            already_dropped=dropped,
            profile=profile,
            foreign=foreign,
        )
        transcript, is_usable = updated[0], is_usable or updated[1]
        if updated[1]:
            dropped = read_brief_record(transcript).dropped
    return transcript, is_usable


def apply_tool_call(
    transcript: Transcript,
    changes: object,
    config: Brief,
    counter: Counter,
    *,
    requested: str,
    at: int,
    example: str = "",
    profile: Profile | None = None,
    foreign: str = "",
) -> tuple[Transcript, str]:
    """Update the brief with the changes that the model passed to the memory tool.

    `requested` is the kind of card that was requested, or "" if none was. If it is "", older entries do not count as
    covered by the brief. `at` is the time in milliseconds, and `example` the card that the model was shown. `profile`
    and `foreign` mean the same as for `apply_cards`. Return the new transcript, and the reason why the call was refused
    ("" if it was accepted).
    """
    operations, refused = parse_operations(changes)
    own = ForeignCards(transcript, example=example).remove_echoes(operations)
    operations, refused = own, [*refused, *([ECHO] if own != operations else [])]
    updated, applied = _apply_changes(
        transcript,
        operations,
        refused,
        config,
        counter,
        covers=bool(requested),
        at=at,
        profile=profile,
        foreign=foreign,
    )
    return updated, "" if applied else " ".join(refused) or "None of these changes could be applied."


def _apply_changes(
    transcript: Transcript,
    operations: list[Operation],
    refused: list[str],
    config: Brief,
    counter: Counter,
    *,
    covers: bool,
    at: int,
    already_dropped: tuple[Line, ...] = (),
    profile: Profile | None = None,
    foreign: str = "",
) -> tuple[Transcript, bool]:
    """Return the transcript with these operations applied to its brief, and whether at least one was accepted.

    The record counts refused operations. `refused` has the reasons why other parts of the card were refused. If
    `covers` is set, the brief covers all entries afterwards. `already_dropped` has the lines that earlier cards of the
    same answer dropped.
    """
    record = read_brief_record(transcript)
    if refused and not operations:
        return with_brief_record(transcript, _replace(record, refused=record.refused + len(refused))), False
    # These changes must count as newer than every line, whatever the clock says.
    at = max(at, 1 + max((line.seen for line in (*record.content.lines, *record.profile.lines)), default=0))
    find_origins = partial(_with_origins, record=record, transcript=transcript)
    given, before, failed = len(operations), record, list[str]()
    operations = remove_repeated(operations, transcript, _find_first_read(record, transcript), foreign)
    if profile is not None:
        record, operations, failed = apply_to_profile(
            record, operations, config, profile, counter, transcript=transcript, at=at, find_origins=find_origins
        )
    applied = apply(record.content, operations, config, counter, entry=transcript.head or "", at=at)
    failed += applied.refused
    count = before.refused + len(refused) + len(failed)
    is_unchanged = applied.content == record.content and record == before
    if given and len(failed) >= given and is_unchanged:
        return with_brief_record(transcript, _replace(before, refused=count)), False
    record = _replace(
        record,
        refused=count,
        content=_replace(applied.content, lines=tuple(find_origins(applied.content.lines))),
        covers=transcript.size if covers else record.covers,
        asks=0 if covers else record.asks,
        dropped=(*already_dropped, *applied.removed, *applied.dropped),
        corrections=add_corrections(record.corrections, record.content, applied.content, applied.removed),
    )
    changed = with_brief_record(transcript, record)
    return with_app_lines(changed, applied.dropped, applied.removed, merge=True), True


def _with_origins(lines: Sequence[Line], record: BriefRecord, transcript: Transcript) -> Sequence[Line]:
    """Return the lines, each new one with `entry` set to the conversation entry that shares the most terms with it.

    If no entry shares at least half of its terms, a new line keeps its present `entry`.
    """
    known_ids = {line.id for line in (*record.content.lines, *record.profile.lines)}
    if all(line.id in known_ids for line in lines):
        return lines
    from longtalk.memory.terms import extract_terms

    entries = [transcript[i] for i in range(_find_first_read(record, transcript), len(transcript) - 1)]
    entry_terms = [(entry.id, frozenset(extract_terms(text_if_readable(entry)))) for entry in entries]
    return [
        line
        if line.id in known_ids
        else _replace(line, entry=_find_origin(line, frozenset(extract_terms(line.text)), entry_terms))
        for line in lines
    ]


def _find_first_read(record: BriefRecord, transcript: Transcript) -> int:
    """Return the index of the first entry that a new card may be about."""
    return max(transcript.index_of(record.covers), len(transcript) - _MAX_ENTRIES_READ, 0)


def _find_origin(line: Line, line_terms: frozenset[str], entries: Sequence[tuple[str, frozenset[str]]]) -> str:
    """Return the id of the entry that shares the most terms with a line; of several such entries, the first.

    `entries` has the ids and terms of the entries. If none shares at least half of `line_terms`, return `line.entry`.
    """
    shared = [(len(line_terms & entry_terms), entry) for entry, entry_terms in entries]
    most_shared = max((count for count, _ in shared), default=0)
    if not line_terms or 2 * most_shared < len(line_terms):
        return line.entry
    return next(entry for count, entry in shared if count == most_shared)


def record_card_outcome(
    transcript: Transcript, *, succeeded: bool, raw: int, mode: CaptureMode, can_switch: bool
) -> tuple[Transcript, CaptureMode | None]:
    """Record whether a request for a card succeeded, and change the capture mode if too many have failed.

    `raw` is the position from which exchanges are sent unchanged, `mode` is the present capture mode, and `can_switch`
    says that the other mode is available. Return the new transcript and, if the mode changes, the capture mode to use
    from the next epoch on, else None.
    """
    record = read_brief_record(transcript)
    tally = record.tally.with_outcome(failed=not succeeded)
    asks = 0 if succeeded else record.count_asks_since(raw) + 1
    record = _replace(record, marks=tally.marks, raw=raw, asks=asks, dropped=record.dropped if succeeded else ())
    new_mode: CaptureMode | None = None
    is_pending = record.capture_mode not in (None, mode)
    if tally.fails_too_often and can_switch and not is_pending and record.mode_changes < _MAX_MODE_CHANGES:
        new_mode = "sentinel" if mode == "tool" else "tool"
        record = _replace(record, capture_mode=new_mode, mode_changes=record.mode_changes + 1, marks="")
    return with_brief_record(transcript, record), new_mode
