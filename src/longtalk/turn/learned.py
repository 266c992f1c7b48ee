"""What a conversation learns from a provider's errors: what the server refuses, and how large the model's window is.

Both are stored as records of the conversation, by the name of the model. So are notices that are shown only once.
"""

from __future__ import annotations

import msgspec

from longtalk._util import json_bytes
from longtalk.context.compose import Context
from longtalk.context.epochs import MOST_WINDOW, read_windows
from longtalk.errors import ContextOverflow, ProviderError
from longtalk.notices import Notice
from longtalk.transcript.transcript import Transcript
from longtalk.turn.draft import Draft
from longtalk.wires.protocol import Quirks
from longtalk.wires.schemas import is_schema_refused

_NO_QUIRKS = Quirks()
_LEAST_WINDOW = 256
"""The smallest number, in tokens, that is accepted as a window. Smaller numbers in an error mean something else."""


def read_quirks(transcript: Transcript, label: str) -> Quirks:
    """Return what this conversation has learned about the server of a model."""
    known = _NO_QUIRKS
    # A record that can't be decoded is skipped: what it says is learned again.
    for by_label in transcript.records.read_all("quirks", dict[str, Quirks]):
        known = by_label.get(label, known)
    return known


def learn_quirks(
    draft: Draft, problem: ProviderError, known: Quirks, label: str, *, has_schema: bool = False
) -> Draft | None:
    """Return the draft with the quirk that an error reveals recorded; None if a changed request would not help.

    `has_schema` says that the request had a schema for the answer.
    """
    if problem.status not in (400, 404, 422, 500):
        return None
    transcript = draft.transcript
    here = msgspec.structs.replace(known, opaque_void=transcript.index_of(known.opaque_void))
    found = draft.wire.learn_from_error(problem.body, [e.native for e in transcript], here)
    if found is None and has_schema and is_schema_refused(problem.body):
        found = msgspec.structs.replace(here, no_schemas=True)
    if found is None:
        return None
    # Record a position and not an index, because indexes change when older entries leave the state.
    void = transcript.position(found.opaque_void) if found.opaque_void > here.opaque_void else known.opaque_void
    data = json_bytes.encode({label: msgspec.structs.replace(found, opaque_void=void)})
    text = (
        f"{label} refused a part of this request, so the request was sent again in a form that it accepts. "
        f"The error was: {problem.body[:300].decode('utf-8', 'replace')}"
    )
    draft = draft.notice(Notice("server_refused", text, data))
    return msgspec.structs.replace(draft, transcript=draft.transcript.add_record("quirks", data))


def learn_window(draft: Draft, problem: ContextOverflow, context: Context, label: str, usual: int | None) -> Draft:
    """Return the draft with the model's window recorded, as learned from a request that was refused as too long."""
    known = read_windows(draft.transcript)
    before = known.get(label) or usual
    window = problem.window if problem.window and _LEAST_WINDOW <= problem.window <= MOST_WINDOW else before
    tokens = max(min(problem.tokens or 0, MOST_WINDOW), context.tokens)
    if window is None or window < _LEAST_WINDOW:
        window = max(_LEAST_WINDOW, tokens * 3 // 4)
    transcript = draft.transcript.add_record("window", json_bytes.encode({**known, label: window}), replace=True)
    transcript = draft.anchor(transcript, max(tokens, window + 1), refused=True)
    return msgspec.structs.replace(draft, transcript=transcript)


def report_unknown_model(draft: Draft, window: int | None) -> Draft:
    """Return the draft with a notice that the model is not in the registry, unless the conversation has that notice.

    `window` is the size of the model's window, if it is known.
    """
    model = draft.turn.model
    what = "its price is unknown" if window else "its window and its price are unknown"
    provider, _, name = model.partition(":")
    how = f'longtalk.models.register({{"provider": "{provider}", "name": "{name}", "window": …, "prices": …}})'
    notice = Notice("unknown_model", f"{model} is not in the list of models, so {what}. To add it, call {how}.")
    return report_once(draft, notice, about=model)


def report_once(draft: Draft, notice: Notice, *, about: str = "") -> Draft:
    """Return the draft with a notice, unless the conversation already had one of this kind about the same thing."""
    data = json_bytes.encode({"notice": notice.kind, "about": about})
    if any(record.kind == "reported" and record.data == data for record in draft.transcript.records):
        return draft
    return msgspec.structs.replace(draft.notice(notice), transcript=draft.transcript.add_record("reported", data))
