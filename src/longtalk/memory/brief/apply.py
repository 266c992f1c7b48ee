"""Apply operations to a brief.

If an operation can't be applied, `apply` records the reason and continues with the next one. A line that is stated
again stays the same line, but counts as the newest. The operations are defined in `operations.py`, the fields that an
app declares in `schema.py`, and lines and their rendering in `lines.py`; `budget.py` decides which lines are kept when
the budget is short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from longtalk.memory.brief.budget import fit_budget
from longtalk.memory.brief.lines import BriefContent, Line, clean_line, make_line_id, normalize
from longtalk.memory.brief.operations import MAX_TEXTS, Operation, quote
from longtalk.memory.brief.schema import Brief, Field, Schema
from longtalk.tokens import Counter

_MAX_REVOKED = 200
"""The maximum number of ids of revoked lines that a brief remembers."""

_replace = msgspec.structs.replace


class ApplyResult(msgspec.Struct, frozen=True):
    """The result of applying operations to a brief."""

    content: BriefContent
    dropped: tuple[Line, ...] = ()
    """Lines that did not fit the budget, and the originals of lines that were cut. All are archived and searchable."""
    removed: tuple[Line, ...] = ()
    """Lines that operations removed or replaced."""
    refused: tuple[str, ...] = ()
    """The reasons why operations were refused, one sentence each."""


def apply(
    content: BriefContent,
    changes: Sequence[Operation],
    config: Brief,
    counter: Counter,
    *,
    entry: str = "",
    at: int = 0,
) -> ApplyResult:
    """Apply the changes to the content of a brief, and fit the result into the token budget.

    `entry` is the id of the conversation entry that the changes come from; it is empty for changes by the app. `at` is
    the time of the changes in milliseconds. Without changes, the content is only fitted into the budget again, which
    has an effect if the configuration or the counter has changed.
    """
    editor = _Editor(content, config.schema, entry, at)
    for change in _limit_texts(changes):
        editor.apply_operation(change)
    if (texts := sum(map(_count_texts, changes))) > MAX_TEXTS:
        editor.refused.append(f"Only the first {MAX_TEXTS} of {texts} texts were applied.")
    lines, dropped = fit_budget(editor.list_in_order(content), config, counter)
    content = BriefContent(_renumber(lines, at), tuple(editor.revoked)[-_MAX_REVOKED:])
    return ApplyResult(content, tuple(dropped), tuple(editor.removed.values()), tuple(editor.refused))


def _renumber(lines: Sequence[Line], at: int) -> tuple[Line, ...]:
    """Return the lines. Those last stated at the time `at` get new ranks from 0 on, in the order of their old ranks."""
    new = sorted((line for line in lines if line.seen == at), key=lambda line: line.rank)
    ranks = {line.id: rank for rank, line in enumerate(new)}
    return tuple(_replace(line, rank=ranks.get(line.id, line.rank)) for line in lines)


def _count_texts(change: Operation) -> int:
    """Return the number of texts in an operation; an operation without texts counts as one."""
    return max(1, len(change.texts))


def _limit_texts(changes: Sequence[Operation]) -> Iterator[Operation]:
    """Yield changes with at most `MAX_TEXTS` texts in total. The last of them may lose some of its texts."""
    remaining = MAX_TEXTS
    for change in changes:
        if remaining > 0:
            yield change if len(change.texts) <= remaining else _replace(change, texts=change.texts[:remaining])
        remaining -= _count_texts(change)


def list_line_ids(line: Line) -> tuple[str, ...]:
    """Return all ids by which a line can be revoked.

    These are its own id, the id of its present text in its field, and the id of that text in any field.
    """
    normalized = normalize(line.text)
    return line.id, make_line_id(line.field, normalized), make_line_id("", normalized)


class _Editor:
    """The content of a brief while operations are applied to it."""

    def __init__(self, content: BriefContent, schema: Schema, entry: str, at: int) -> None:
        self.schema, self.entry, self.at = schema, entry, at
        self.stated: dict[str, int] = {}
        """The lines that the changes have stated so far, by id, with their places in the order of the changes."""
        self.lines = {line.id: line for line in content.lines}
        self.revoked = dict.fromkeys(content.revoked)
        self.removed: dict[str, Line] = {}
        """The lines removed so far, by id. A line that a later change states again is restored from here."""
        self.refused: list[str] = []
        self.normalized = {line.id: normalize(line.text) for line in content.lines}
        # A line that was cut keeps the id of its full text, so it is found by both texts.
        self.line_ids = {make_line_id(line.field, self.normalized[line.id]): line.id for line in content.lines}
        self.line_ids |= {line.id: line.id for line in content.lines}

    def list_in_order(self, content: BriefContent) -> list[Line]:
        """Return the current lines: first the lines of the old content in their old order, then the new lines."""
        old_positions = {line.id: i for i, line in enumerate(content.lines)}
        size = len(old_positions)
        return sorted(self.lines.values(), key=lambda line: old_positions.get(line.id, size + line.rank))

    def apply_operation(self, change: Operation) -> None:
        """Apply one operation; if that is not possible, add the reason to `refused`."""
        field = self.schema.find(change.field)
        if field is None and (change.field or change.op not in ("remove", "resolve", "revoke")):
            self.refused.append(f"The brief has no field {quote(change.field)}.")
        elif change.op in ("remove", "resolve", "revoke"):
            self._remove_lines(change, field)
        elif field is not None:
            self._write_field(change, field)

    def _write_field(self, change: Operation, field: Field) -> None:
        """Apply an operation that clears a field, replaces its texts, or adds texts to it."""
        if change.op == "clear":
            self._keep_only(field, ())
        elif change.op not in ("set", "add", "plain"):
            self.refused.append(f"Unknown operation {quote(change.op)}.")
        elif not (texts := [text for text in map(clean_line, change.texts) if text]):
            self.refused.append(f"{quote(change.op)} needs a text for {field.name!r}.")
        elif field.kind == "list":
            replaces = change.op == "set" or (change.op == "plain" and field.whole)
            self._add_texts(field, texts, replace=replaces)
        elif len(texts) == 1:
            self._add_texts(field, texts, replace=True)
        else:
            self.refused.append(f"{field.name!r} takes one text, not {len(texts)}.")

    def _add_texts(self, field: Field, texts: list[str], *, replace: bool) -> None:
        """Add texts to a field; with `replace`, remove all other lines of the field."""
        ids = [self._state_line(field, text) for text in texts]
        if replace and any(ids):
            self._keep_only(field, ids)

    def _state_line(self, field: Field, text: str) -> str:
        """Add a line with this text to a field or, if the field has such a line, mark that line as stated again.

        Return the id of the line, or "" if the model may not add the text because the app has revoked it.
        """
        normalized = normalize(text)
        field_id = make_line_id(field.name, normalized)
        any_field_id = make_line_id("", normalized)
        if self.entry and (field_id in self.revoked or any_field_id in self.revoked):
            self.refused.append(f"{quote(text)} was revoked by the app.")
            return ""
        self.revoked.pop(field_id, None)
        self.revoked.pop(any_field_id, None)
        own_id = self.line_ids.setdefault(field_id, field_id)
        line = self.lines.get(own_id) or self.removed.pop(own_id, None)
        if line is None:
            line = Line(field_id, field.name, text, self.entry, self.at)
            self.normalized[field_id] = normalized
        # A line that these changes state twice keeps its first place.
        rank = self.stated.setdefault(own_id, len(self.stated))
        self.lines[own_id] = _replace(line, seen=max(line.seen, self.at), rank=rank)
        return own_id

    def _keep_only(self, field: Field, ids: Iterable[str]) -> None:
        """Remove all lines of a field, except those with the given ids."""
        kept = set(ids)
        for line in list(self.lines.values()):
            if line.field == field.name and line.id not in kept:
                self._drop_line(line)

    def _drop_line(self, line: Line) -> None:
        self.removed[line.id] = self.lines.pop(line.id)

    def _remove_lines(self, change: Operation, field: Field | None) -> None:
        """Apply an operation that removes lines: from `field`, or from any field if `field` is None.

        If the operation resolves a question, its answer is added to the brief.
        """
        if not change.texts and field is not None and field.kind == "text":
            self._keep_only(field, ())
        elif not change.texts:
            self.refused.append(f"{quote(change.op)} needs the text of a line.")
        question_field = field
        for text in change.texts:
            line = self._find_line(text, field)
            if line is None:
                continue
            question_field = self.schema.find(line.field)
            self._drop_line(line)
            if change.op == "revoke":
                self.revoked |= dict.fromkeys(list_line_ids(line))
        if change.op == "resolve" and (answer := clean_line(change.answer)):
            self._add_answer(answer, question_field)

    def _find_line(self, text: str, field: Field | None) -> Line | None:
        """Return the line with this text or id or, if there is none, the only line that begins with this text.

        `field` limits the search to one field. If no line or several lines match, add the reason to `refused` and
        return None.
        """
        normalized = normalize(clean_line(text))
        fields = [field] if field else self.schema.fields
        names = {field.name for field in fields}
        ids = {self.line_ids.get(make_line_id(name, normalized), "") for name in names} | {text.strip()}
        found = [self.lines[i] for i in ids if i in self.lines and self.lines[i].field in names]
        if not found and normalized:
            lines = [line for line in self.lines.values() if line.field in names]
            found = [line for line in lines if self.normalized[line.id].startswith(normalized)]
        if len(found) == 1:
            return found[0]
        self.refused.append(f"{quote(text)} matches {f'{len(found)} lines' if found else 'no line'}.")
        return None

    def _add_answer(self, answer: str, field: Field | None) -> None:
        """Add the answer to a resolved question to the field in which the schema keeps such answers.

        `field` is the question's field. If it is None, because the question was not found and no field was named, the
        first field for answers in the schema is used.
        """
        names = [field.answers] if field else [each.answers for each in self.schema.fields if each.answers]
        target = self.schema.find(names[0]) if names else None
        if target is None:
            self.refused.append(f"No field of the brief takes the answer {quote(answer)}.")
        else:
            self._add_texts(target, [answer], replace=False)
