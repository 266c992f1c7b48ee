"""What a brief says: lines, each of which knows where it came from.

`Notes` are lines in the order in which they were said, and never change; `encode` and `decode` keep them in a record.
On the wire (`wire`) each line stands by itself behind the key of its field, texts before lists, so that what is added
comes last. Nothing in a line can end the note or pass for another line.

Two texts are the same line if they differ in case, white space or punctuation only. The id of a line is made of its
field and of what is then left, so that the same line has the same id wherever it is said.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import unicodedata
from collections.abc import Iterable

import msgspec

from longtalk import _json
from longtalk.memory.schema import Brief, Schema
from longtalk.wires.base import quoted

TAG = "brief"
_COMPARED = 4_000
"""Characters in which two lines differ, or never."""
_MOST_LINES = 2_000
_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), " ")
_TAG_START = re.compile(r"<(?=\s*[/!?]?\s*[^\W\d])")
_WIDE = re.compile("[、。，！？；：「」『』（）【】《》・]")
_DASHES = frozenset("-–—*•·")
_EDGES = ".,;:!?…\"'“”„‘’«»()[]{}`*_"
_ENDS = " ,;:.-–—…"


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a brief."""

    id: str
    """Short, and the same for as long as the line is there."""
    field: str
    text: str
    entry: str = ""
    """The entry that it came from; empty if the app wrote it."""
    at: int = 0
    """When it was first said, in milliseconds."""
    seen: int = 0
    """When it was last said: what has not been for long goes first."""
    place: int = 0
    """Where in the card it was then: models say first what matters most."""
    shown: int = 0
    """How many of its characters there is room for on the wire; 0 for all."""


class Notes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lines of a brief, in the order in which they were said."""

    lines: tuple[Line, ...] = ()
    revoked: tuple[str, ...] = ()
    """Ids of lines that only the app may say again."""

    def of(self, field: str) -> tuple[Line, ...]:
        """The lines of a field."""
        return tuple(line for line in self.lines if line.field == field)


def encode(notes: Notes) -> bytes:
    """Notes as JSON, for a record."""
    return _json.encode(notes)


def decode(data: bytes) -> Notes | None:
    """Notes from JSON; None if it says something else: it may have come from elsewhere."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        notes = msgspec.json.decode(data, type=Notes)
        ids = {line.id for line in notes.lines}
        return notes if len(ids) == len(notes.lines) <= _MOST_LINES else None
    return None


def wire(notes: Notes, config: Brief) -> str:
    """The brief as a request carries it, within its budget as the last `apply` counted; nothing without lines."""
    keys = {field.name: field.key for field in config.schema.fields}
    lines = [line for line in in_order(notes.lines, config.schema) if line.field in keys]
    return enclosed(shown_line(keys[line.field], line.text, line.shown) for line in lines)


def in_order(lines: Iterable[Line], schema: Schema) -> list[Line]:
    """Lines as they stand on the wire: texts as the schema has them, then lists as they were said."""
    texts = {field.name: i for i, field in enumerate(schema.fields) if field.kind == "text"}
    return sorted(lines, key=lambda line: texts.get(line.field, len(texts) + len(schema.fields)))


def enclosed(lines: Iterable[str]) -> str:
    """Lines between tags; nothing without lines."""
    body = "\n".join(lines)
    return quoted(TAG, body) if body else ""


def told_in(texts: Iterable[str]) -> set[str]:
    """The lines of all briefs in these texts."""
    bodies = [part.partition(f"\n</{TAG}>")[0] for text in texts for part in text.split(f"<{TAG}>\n")[1:]]
    return {line for body in bodies for line in body.splitlines()}


def shown_line(key: str, text: str, shown: int) -> str:
    """A line as it stands on the wire."""
    text = cleaned(shortened(text, shown) if shown > 0 else text)
    return f"{key}: {harmless(text)}"


def harmless(text: str) -> str:
    """A text in which nothing can pass for a tag."""
    return _TAG_START.sub("&lt;", text)


def shortened(text: str, length: int) -> str:
    """A text of at most so many characters and an ellipsis, cut at a word where there are words."""
    if len(text) <= length:
        return text
    head = text[: max(1, length)]
    blank = head.rfind(" ")
    if blank > len(head) // 2 and not text[len(head)].isspace():
        head = head[:blank]
    return f"{head.rstrip(_ENDS) or head}…"


def cleaned(text: str) -> str:
    """A text in one line, without control characters and half characters."""
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return " ".join(text.translate(_CONTROLS).split())


def normal(text: str) -> str:
    """A text as it is compared: without differences of case, white space and punctuation.

    What stands inside of a word or a number is no punctuation (3.5), nor are other signs (C#, -5).
    """
    text = text[:_COMPARED].replace("&lt;", "<")
    words = _WIDE.sub(" ", unicodedata.normalize("NFKC", text).casefold()).split()
    bare = [word.strip(_EDGES) for word in words if not _DASHES.issuperset(word)]
    return " ".join(filter(None, bare)) or " ".join(words)


def line_id(field: str, plain: str) -> str:
    """The id of a line, of its text as it is compared."""
    return hashlib.blake2b(f"{field}\n{plain}".encode("utf-8", "replace"), digest_size=5).hexdigest()
