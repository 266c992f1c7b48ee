"""The text after the message of a turn: an instruction for that turn, and the data that memory adds.

Later requests of an epoch repeat a suffix that later entries depend on. Such a kept suffix is a record of the
transcript.
"""

from __future__ import annotations

import msgspec

from longtalk._util import json_bytes
from longtalk.tokens import Counter, count_message
from longtalk.transcript.standing import read_record
from longtalk.transcript.transcript import Record, Transcript
from longtalk.wires.protocol import Wire

DATA = "memory"
"""The tag around the data that memory adds after a message."""


class TurnSuffix(msgspec.Struct, frozen=True, omit_defaults=True):
    """The text after the message of one turn. Later requests of the epoch repeat it if later entries depend on it."""

    text: str
    place: int
    """The number of entries of the conversation that precede the suffix."""
    tokens: int = 0
    """The number of tokens, as counted locally."""
    data: str = ""
    """The data that memory added before the instruction."""
    asks: int = 0
    """The number of characters at the beginning of the text that request a memory card."""
    foreign: str = ""
    """The data that comes from other conversations. It is sent in one turn, and neither stored nor sent again."""

    @property
    def all_data(self) -> str:
        """The data that memory added, including what comes from other conversations."""
        return "\n".join(part for part in (self.foreign, self.data) if part)

    def remove_additions(self, wire: Wire, counter: Counter) -> TurnSuffix:
        """Return the suffix without what memory added, so with the instruction of the app alone."""
        rest = TurnSuffix(self.text[max(0, self.asks) :].lstrip("\n"), self.place)
        return msgspec.structs.replace(rest, tokens=sum(count_message(each, counter) for each in rest.pieces(wire)))

    def pieces(self, wire: Wire) -> list[bytes]:
        """Return the suffix as messages in the format of a wire."""
        data = [wire.quote(DATA, self.all_data)] if self.all_data else []
        return [*data, wire.write_instruction(self.text)] if self.text else data


def withhold_foreign(record: Record) -> Record:
    """Return a record as it is stored: a suffix without data from other conversations."""
    if record.kind != "aside" or b'"foreign"' not in record.data:
        return record
    suffix = read_record(record, TurnSuffix)
    if suffix is None:
        return record
    return Record(record.kind, record.entry, record.at, json_bytes.encode(msgspec.structs.replace(suffix, foreign="")))


def map_kept_suffixes(transcript: Transcript, current: int) -> dict[int, TurnSuffix]:
    """Return the kept suffixes after a position, by the number of entries of this transcript before each."""
    kept = list_kept_suffixes(transcript, current)
    if not kept:
        return {}
    suffixes = {transcript.index_of(suffix.place - 1) + 1: suffix for suffix in kept}
    # Nothing may stand between a call and its results.
    return {at: suffix for at, suffix in suffixes.items() if at >= len(transcript) or transcript[at].role != "tool"}


def list_kept_suffixes(transcript: Transcript, current: int) -> list[TurnSuffix]:
    """Return the kept suffixes after a position. Of several in one place, the newest counts."""
    found = transcript.records.read_all("aside", TurnSuffix)
    return list({suffix.place: suffix for suffix in found if suffix.place > current}.values()) if found else found


def find_kept_suffix(transcript: Transcript, tail: int) -> TurnSuffix | None:
    """Return the suffix after the first `tail` entries if later requests repeat it, else None."""
    if tail <= 0:
        return None
    position = transcript.position(tail - 1) + 1
    return next((suffix for suffix in list_kept_suffixes(transcript, position - 1) if suffix.place == position), None)


def keep_suffix(
    transcript: Transcript, suffix: TurnSuffix, tail: int, wire: Wire, counter: Counter, *, at: int
) -> Transcript:
    """Return the transcript with a suffix recorded, so that later requests of its epoch repeat it in the same place."""
    entry = transcript[tail - 1].id
    if any((record.kind, record.entry) == ("aside", entry) for record in transcript.records):
        return transcript
    tokens = sum(count_message(piece, counter) for piece in suffix.pieces(wire))
    data = json_bytes.encode(msgspec.structs.replace(suffix, tokens=tokens))
    return transcript.with_records((*transcript.records, Record("aside", entry, at, data)))
