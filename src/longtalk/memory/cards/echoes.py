"""Echoes: what a model's card repeats from the app's example, or from a card in the text of a user, a tool or an event.

The brief is what the assistant notes in its own words. A user or a web page may write a card too. It is made harmless
before it is sent, but a model may write it out again at the end of its answer, when a card was asked for. What it
repeats in this way is not taken over. The same goes for the example of a card that the app shows to the model.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk._util.lookalikes import neutralize_json
from longtalk.memory.brief.operations import Operation
from longtalk.transcript.pack import Entry
from longtalk.wires import text_if_readable

ECHO = "It repeats an example, or a card from a message that is not the assistant's."
_QUOTES = dict.fromkeys(map(ord, "'`\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"), '"')


class ForeignCards:
    """The cards that are not the model's: those in messages other than its answers, and the app's example of a card."""

    def __init__(self, entries: Iterable[Entry], *, example: str = "") -> None:
        runs = groupby(entries, lambda entry: entry.role == "assistant")
        said = [list(run) for is_answer, run in runs if not is_answer]
        # A card may be spread over several messages.
        forged = [run for run in said if any(neutralize_json(entry.native) != entry.native for entry in run)]
        texts = [part for run in forged for part in ("".join(map(text_if_readable, run)), *map(_join_strings, run))]
        self._text = "\n".join(filter(None, map(_normalize, (*texts, example))))

    def remove_echoes(self, operations: Sequence[Operation], content: str = "") -> list[Operation]:
        """Return the operations of a card with this content, without those that repeat a foreign card."""
        if not self._text or not operations:
            return list(operations)
        whole = _normalize(content)
        return [] if whole and whole in self._text else list(self._remove_texts(operations))

    def _remove_texts(self, operations: Iterable[Operation]) -> Iterator[Operation]:
        for operation in operations:
            texts = tuple(text for text in operation.texts if not self._quotes(text))
            if operation.answer and self._quotes(operation.answer):
                continue
            if texts or (not operation.texts and not self._quotes(operation.op)):
                yield msgspec.structs.replace(operation, texts=texts)

    def _quotes(self, text: str) -> bool:
        return f'"{_normalize(text)}"' in self._text


def _join_strings(entry: Entry) -> str:
    """Return all strings in a message, which include those of a result that is an object."""
    return "".join(_list_strings(json_bytes.value(entry.native)))


def _list_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield f'"{key}":'
            yield from (f'"{each}"',) if isinstance(each, str) else _list_strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from (f'"{each}"',) if isinstance(each, str) else _list_strings(each)


def _normalize(text: str) -> str:
    """Return a text in the form in which it is compared: without regard to case, white space, escapes and quotes."""
    text = unicodedata.normalize("NFKC", text).replace("&lt;", "<").replace("\\", "")
    return "".join(text.casefold().translate(_QUOTES).split())
