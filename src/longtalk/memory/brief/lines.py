"""The lines of a brief, and how they are rendered.

`BriefContent` is an immutable list of lines in the order in which they were stated. Each is rendered as "key: text".
Fields of kind "text" come first, so that new items of lists are added at the end. No text can close the tag around the
brief or look like another line.

Two texts are the same line if they differ only in case, white space or punctuation. A line's id is a hash of its field
and its normalized text, so the same line has the same id wherever it is stated.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import unicodedata
from collections.abc import Iterable

import msgspec

from longtalk._util import json_bytes, typed_json
from longtalk._util.lookalikes import neutralize
from longtalk.memory.brief.schema import Brief, Schema
from longtalk.wires.text import wrap_in_tag

TAG = "brief"
_MAX_COMPARED_CHARS = 4_000
"""The number of characters of each line that are compared; later characters are ignored."""
_MAX_LINES = 2_000
_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), " ")
_TAG_START = re.compile(r"<(?=\s*[/!?]?\s*[^\W\d])")
_WIDE_PUNCTUATION = re.compile("[、。，！？；：「」『』（）【】《》・]")
_DASHES = frozenset("-–—*•·")
_PUNCTUATION = ".,;:!?…\"'“”„‘’«»()[]{}`*_"
_TRAILING = " ,;:.-–—…"


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a brief: one item of a list field, or the text of a text field."""

    id: str
    """A short id, which stays the same as long as the line exists."""
    field: str
    text: str
    entry: str = ""
    """The id of the conversation entry that the line came from; empty if the app wrote the line."""
    at: int = 0
    """When the line was first stated, in milliseconds."""
    seen: int = 0
    """When the line was last stated, in milliseconds. A field with too many lines loses those stated longest ago."""
    rank: int = msgspec.field(default=0, name="place")
    """The place of the line, from 0, in the last card that stated it. Models put what matters most first."""
    shown: int = 0
    """How many characters of the line are sent; 0 for all."""


class BriefContent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lines of a brief, in the order in which they were stated."""

    lines: tuple[Line, ...] = ()
    revoked: tuple[str, ...] = ()
    """Ids of lines that the app has revoked, so that the model can't add them again."""


def encode(content: BriefContent) -> bytes:
    """Encode the content of a brief as JSON."""
    return json_bytes.encode(content)


def decode(data: bytes) -> BriefContent | None:
    """Decode the content of a brief from JSON; return None if the JSON is not valid content."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        content = typed_json.decode(data, BriefContent)
        ids = {line.id for line in content.lines}
        return content if len(ids) == len(content.lines) <= _MAX_LINES else None
    return None


def render_brief(content: BriefContent, config: Brief) -> str:
    """Return the brief as it is sent, inside its tags; empty if it has no lines.

    The token budget is not checked here, because `apply` has already fitted the content into it.
    """
    keys = {field.name: field.key for field in config.schema.fields}
    lines = [line for line in sort_lines(content.lines, config.schema) if line.field in keys]
    return enclose(render_line(keys[line.field], line.text, line.shown) for line in lines)


def sort_lines(lines: Iterable[Line], schema: Schema) -> list[Line]:
    """Return lines in the order in which they are sent.

    Lines of text fields come first, in the order of the schema. Lines of list fields follow in their given order.
    """
    texts = {field.name: i for i, field in enumerate(schema.fields) if field.kind == "text"}
    return sorted(lines, key=lambda line: texts.get(line.field, len(texts) + len(schema.fields)))


def enclose(lines: Iterable[str]) -> str:
    """Return rendered lines inside the tags of a brief; empty if there are no lines."""
    body = "\n".join(lines)
    return wrap_in_tag(TAG, body) if body else ""


def parse_brief_lines(texts: Iterable[str]) -> set[str]:
    """Return the rendered lines of all briefs in these texts."""
    bodies = [part.partition(f"\n</{TAG}>")[0] for text in texts for part in text.split(f"<{TAG}>\n")[1:]]
    return {line for body in bodies for line in body.splitlines()}


def render_line(key: str, text: str, shown: int) -> str:
    """Return a line as it is sent, with at most `shown` characters of its text (0 for all)."""
    text = clean_line(shorten(text, shown) if shown > 0 else text)
    return f"{key}: {escape_tags(text)}"


def escape_tags(text: str) -> str:
    """Return the text with each bracket that could begin a tag replaced by "&lt;"."""
    return _TAG_START.sub("&lt;", neutralize(text))


def shorten(text: str, length: int) -> str:
    """Return a text cut to at most `length` characters plus an ellipsis, at the end of a word if possible."""
    if len(text) <= length:
        return text
    head = text[: max(1, length)]
    blank = head.rfind(" ")
    if blank > len(head) // 2 and not text[len(head)].isspace():
        head = head[:blank]
    return f"{head.rstrip(_TRAILING) or head}…"


def clean_line(text: str) -> str:
    """Return a text on one line, without control characters or lone surrogates."""
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return " ".join(text.translate(_CONTROLS).split())


def normalize(text: str) -> str:
    """Return a text in the form in which lines are compared: without regard to case, white space and punctuation.

    Signs inside a word or number (3.5) and signs that carry meaning (C#, -5) are kept.
    """
    text = text[:_MAX_COMPARED_CHARS].replace("&lt;", "<")
    words = _WIDE_PUNCTUATION.sub(" ", unicodedata.normalize("NFKC", text).casefold()).split()
    stripped = [word.strip(_PUNCTUATION) for word in words if not _DASHES.issuperset(word)]
    return " ".join(filter(None, stripped)) or " ".join(words)


def make_line_id(field: str, normalized: str) -> str:
    """Return the id of a line, given the name of its field ("" for any field) and its normalized text."""
    return hashlib.blake2b(f"{field}\n{normalized}".encode("utf-8", "replace"), digest_size=5).hexdigest()
