"""The manifest of a request, which says for each entry of a conversation whether it was sent, and why."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from longtalk._util import typed_json

Verdict = Literal["sent", "held", "recalled", "summarised", "handed_out", "left_out"]

CUT = "cut to head and tail"
DIGEST = "tool digest"
MIDDLE = "the middle of many events"
SUMMARY = "summary"
BRIEF = "brief"
OUTLINE = "outline"
FORGOTTEN = "noted a forgotten line"
"""The reason of an exchange that is left out because a memory card in it states a line that was forgotten."""
EXCLUDED = "excluded"
PINNED = "pinned"
CARD = "memory card left out"
"""The reason of an answer that is sent without its memory card, because a line in it was corrected or forgotten."""
MATCHED = "fits the message"
PROMOTED = "recalled often"


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run of consecutive entries that a request treats alike, from position `first` to `last`, both included."""

    first: int
    last: int
    verdict: Verdict
    reason: str
    tokens: int = 0
    """The estimated number of tokens of these entries as sent, or of the full entries if they were not sent."""
    keep: int = 0
    """If a text was shortened to its beginning and end, the number of characters that remain; otherwise 0."""

    @property
    def is_gone(self) -> bool:
        """True if these entries are whole exchanges that were left out or replaced by a summary, brief or outline."""
        if self.verdict == "summarised":
            return self.reason in (SUMMARY, BRIEF, OUTLINE)
        return self.verdict == "left_out" and self.reason != MIDDLE

    @property
    def is_digest(self) -> bool:
        """True if these entries are tool calls and results that were replaced by a short digest."""
        return self.verdict == "summarised" and not self.is_gone


class StoredManifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The manifest of a turn's last request and the cost of all its model calls, in the form that stores keep."""

    tokens: int = 0
    """The number of tokens of the request, estimated from what the provider reported for earlier requests."""
    epoch: int = 0
    """The position at which the epoch of the request began. Requests of the same epoch share their beginning."""
    runs: tuple[tuple[Any, ...], ...] = ()
    """All runs of the manifest, or only those from position `epoch` on if the epoch's record has the earlier ones.

    Each item has the `first`, `last` and `tokens` of a `Run`. To keep manifests small, `verdict`, `reason` and `keep`
    are added only if the entries were not simply sent unchanged.
    """
    cost: float | None = None
    """The cost of all model calls of the turn in US dollars, at the prices of that day; None if it is unknown."""
    summary: int = 0
    """The number of tokens of the summary at the start of the request; with memory, of the brief and outlines there."""
    brief: int = 0
    """The number of tokens of the brief, which are also counted in `summary`."""
    outline: int = 0
    """The number of tokens of the outlines, which are also counted in `summary`."""
    recall: int = 0
    """The number of tokens of the recalled passages, which come after the user's message."""
    calls: tuple[dict[str, Any], ...] = ()
    """How each request of the turn was made, in the form of `turn/sent.py`."""
    settings: str = ""
    """The digest of the settings under which the turn was made, which a record of the branch has."""
    recall_why: str = ""
    """Why this much was recalled, or nothing, in words; empty if the history was not searched."""


def read_manifest(data: bytes) -> StoredManifest:
    """Return the decoded manifest, or an empty manifest if `data` is empty or can't be decoded."""
    try:
        return typed_json.decode(data, StoredManifest) if data else StoredManifest()
    except ValueError:
        return StoredManifest()
