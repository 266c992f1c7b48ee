"""Events and system messages in Longtalk's own, neutral grammar.

Each wire, and sometimes each model, requires its own form for an event or for a system message inside the conversation.
So both are stored in a neutral form, `{"text": …}` with a `source` for events, and each wire renders them when it sends
them. Such an entry names `LONGTALK` as its wire.
"""

from __future__ import annotations

import re

from longtalk._util import json_bytes
from longtalk._util.lookalikes import CARD, neutralize
from longtalk.transcript.pack import OWN, Entry

LONGTALK = OWN


def event(text: str, *, source: str, at: int) -> Entry:
    """Return an entry for an event: something that the application reports and that no participant said."""
    native = json_bytes.encode({"source": source, "text": text})
    return Entry(kind="event", role="event", wire=LONGTALK, native=native, at=at)


def system(text: str, *, at: int) -> Entry:
    """Return an entry for a system message inside the conversation."""
    return Entry(role="system", wire=LONGTALK, native=json_bytes.encode({"text": text}), at=at)


def render_neutral(entry: Entry) -> str:
    """Return the text of an event or system message as it is sent to a model.

    An event is wrapped in a tag that names its source and time, and its text holds no tag that reads as one of
    Longtalk's. A system message is the app's own text, so only what reads as a memory card is changed in it.
    """
    content = json_bytes.text(json_bytes.fields(entry.native)["text"]) or ""
    if entry.kind != "event":
        return neutralize(content, CARD)
    import datetime as dt

    when = dt.datetime.fromtimestamp(entry.at / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    source = re.sub(r'[<>&"\x00-\x1f]', " ", read_source(entry.native))
    return f'<event source="{source}" time="{when}">\n{neutralize(content)}\n</event>'


def read_source(native: bytes) -> str:
    """Return the source of an event. A source that is not text, as in a forged state, is returned as JSON."""
    source = json_bytes.fields(native)["source"]
    text = json_bytes.text(source)
    return source.decode("utf-8", "replace") if text is None else text


def redact_neutral(entry: Entry, text: str) -> bytes:
    """Return the JSON of an event or system message with its text replaced by `text`. An event keeps its source."""
    source = {"source": json_bytes.fields(entry.native)["source"]} if entry.kind == "event" else {}
    return json_bytes.build({**source, "text": json_bytes.encode(text)})
