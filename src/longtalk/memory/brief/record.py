"""The stored state of a brief: a record of the branch, replaced whenever the brief changes.

Besides the content of the brief, a record stores how many entries the cards cover and how the last requests for cards
turned out. A store also keeps the records that were replaced. Each record has the lines that were dropped when it was
made, so no dropped line is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from longtalk._util import json_bytes
from longtalk.memory.brief.corrections import Correction
from longtalk.memory.brief.lines import BriefContent, Line
from longtalk.transcript.ranges import Ranges
from longtalk.transcript.standing import Standing
from longtalk.transcript.transcript import Record, Transcript

KIND = "memory"
"""The record kind of brief records."""
CaptureMode: TypeAlias = Literal["sentinel", "tool"]
"""How a model reports lines for the brief: in a card at the end of its answer, or by calling a tool."""
CardKind: TypeAlias = Literal["", "small", "catch_up"]
"""Which card to request: "" for none, "small" for this turn, "catch_up" for everything that the brief lacks."""
_MAX_LINES = 500
"""The maximum number of lines in a record. No schema allows more."""
MAX_FAILED_REQUESTS = 2
"""The number of consecutive card requests without a card after which a summary is requested instead."""


class CardTally(msgspec.Struct, frozen=True):
    """The outcomes of the most recent requests for cards, at most `WINDOW` of them."""

    WINDOW = 40
    MIN_REQUESTS = 20
    """The number of requests from which `MAX_FAILED_SHARE` applies.

    Before, a single failure could exceed that share.
    """
    MAX_FAILED_SHARE = 0.05
    """The share of failures above which the capture mode changes."""
    MAX_EARLY_FAILURES = 6
    """The number of failures that changes the mode before `MIN_REQUESTS`, if at least half of all requests failed."""

    marks: str = ""
    """One character per request, oldest first: `x` for a failure, `.` for a success."""
    refused: int = 0
    """The number of changes that the model requested and that were refused so far, such as for unknown fields."""

    def with_outcome(self, *, failed: bool) -> CardTally:
        """Return the tally with the outcome of one more request added."""
        return CardTally((self.marks + ("x" if failed else "."))[-self.WINDOW :], self.refused)

    @property
    def asks(self) -> int:
        """The number of requests for cards in the tally."""
        return len(self.marks)

    @property
    def failures(self) -> int:
        """The number of requests in the tally that were answered without a usable card."""
        return self.marks.count("x")

    @property
    def share(self) -> float:
        """The share of requests in the tally that failed, from 0 to 1."""
        return self.failures / self.asks if self.marks else 0.0

    @property
    def fails_too_often(self) -> bool:
        """Whether so many requests failed that the other capture mode should be tried."""
        fails_early = self.failures >= self.MAX_EARLY_FAILURES and self.share >= 0.5
        return fails_early or (self.asks >= self.MIN_REQUESTS and self.share > self.MAX_FAILED_SHARE)


class BriefRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The state of a brief at one point in a conversation, as it is stored."""

    content: BriefContent = msgspec.field(default=BriefContent(), name="notes")
    covers: int = 0
    """The number of entries that the cards cover, counted from the start of the conversation."""
    raw: int = 0
    """The position from which exchanges were sent unchanged when a card was last requested."""
    asks: int = 0
    """The number of consecutive requests that the model has answered without a card since `raw` last changed."""
    marks: str = ""
    """The outcomes of the last requests for cards, in the format of `CardTally.marks`."""
    capture_mode: CaptureMode | None = msgspec.field(default=None, name="way")
    """The capture mode to use from the next epoch on; None for the configured mode."""
    mode_changes: int = msgspec.field(default=0, name="turned")
    """The number of times that the capture mode has changed."""
    edition: int = 0
    """The number of edits that removed or redacted lines. A head with a different edition must not be sent again."""
    dropped: tuple[Line, ...] = ()
    """The lines that the last change to the brief dropped."""
    refused: int = 0
    """The number of changes by the model that were refused so far."""
    profile: BriefContent = BriefContent()
    """The lines that this conversation contributes to the profile of its owner."""
    replaced: dict[str, int] = {}
    """The ids of lines of the profile that the model has removed here, each with the time in milliseconds."""
    corrections: tuple[Correction, ...] = ()
    """What lines said before they were corrected or forgotten, oldest first."""

    def count_asks_since(self, raw: int) -> int:
        """Return the number of consecutive card requests that failed while `raw` had this value."""
        return self.asks if self.raw == raw else 0

    @property
    def tally(self) -> CardTally:
        """The outcomes of the most recent requests for cards, as a `CardTally`."""
        return CardTally(self.marks, self.refused)


def read_brief_record(transcript: Transcript) -> BriefRecord:
    """Return the latest brief record of a transcript, or an empty record if there is none or it is inconsistent."""
    record = transcript.records.read_latest(KIND, BriefRecord)
    return record if record is not None and _is_consistent(record, transcript) else BriefRecord()


def read_brief_record_at(records: Iterable[Record], size: int) -> BriefRecord:
    """Return the brief record that was valid when the conversation had `size` entries and these records."""
    # Only the number of entries is needed here, so they are all marked as shed.
    missing = Ranges(entries=((0, size),) if size else ())
    return read_brief_record(Transcript(records=Standing(records), shed=missing))


def with_brief_record(transcript: Transcript, record: BriefRecord) -> Transcript:
    """Return the transcript with this brief record in place of the previous one."""
    return transcript.add_record(KIND, json_bytes.encode(record), replace=True)


def _is_consistent(record: BriefRecord, transcript: Transcript) -> bool:
    """Return True if the brief record can belong to this conversation. An imported record may belong to another."""
    ids = {line.id for line in record.content.lines}
    return (
        len(ids) == len(record.content.lines) <= _MAX_LINES
        and 0 <= record.covers <= transcript.size
        and len(record.marks) <= CardTally.WINDOW
    )


def redact_since(record: BriefRecord, at: int, position: int) -> BriefRecord:
    """Return the record without lines that may quote a redacted entry.

    These are all lines that the model added at or after `at`, the time of the entry in milliseconds. `position` is the
    position of the entry in the conversation.
    """

    def is_earlier(line: Line) -> bool:
        return not line.entry or line.at < at

    def remove_later(content: BriefContent) -> BriefContent:
        return msgspec.structs.replace(content, lines=tuple(filter(is_earlier, content.lines)))

    content = remove_later(record.content)
    # A correction whose new text is in no line that is left may quote the entry, too.
    left = {"", *(line.text for line in content.lines)}
    return msgspec.structs.replace(
        record,
        content=content,
        profile=remove_later(record.profile),
        covers=min(record.covers, position),
        edition=record.edition + 1,
        dropped=(),
        corrections=tuple(each for each in record.corrections if is_earlier(each.old) and each.text in left),
    )
