"""Choose conversations by the time of their last change, by model and by metadata."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from longtalk._sync.archive.archive import Archive
from longtalk.errors import InputError
from longtalk.stores.base import ConversationInfo

_PAGE = 200
_AGO = re.compile(r"(\d{1,4}) ?([hdw])[a-z]*(?: ago)?")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24}


class Filter(NamedTuple):
    """What a conversation must match. The times are in milliseconds since 1970; `end` is not included."""

    start: int | None = None
    end: int | None = None
    model: str | None = None
    meta: Mapping[str, Any] = {}

    @property
    def is_empty(self) -> bool:
        """Return True if every conversation matches."""
        return self == Filter()

    def covers(self, at: int) -> bool:
        """Return True if a time is between start and end."""
        return (self.start is None or at >= self.start) and (self.end is None or at < self.end)

    def select(self, archive: Archive) -> Iterator[ConversationInfo]:
        """Yield the conversations that match, most recently changed first, and read no more than the caller takes."""
        last: ConversationInfo | None = None
        while page := archive.conversations(limit=_PAGE, after=last, meta=self.meta):
            yield from (each for each in page if self._matches(archive, each))
            last = page[-1]
            if self.start is not None and last.updated < self.start:
                return

    def select_all(self, archive: Archive) -> list[ConversationInfo]:
        """Return all conversations that match. None is missed, even if conversations change meanwhile."""
        return [each for each in archive.every(meta=self.meta) if self._matches(archive, each)]

    def select_without_times(self, archive: Archive) -> set[str] | None:
        """Return the ids of the conversations with this model and metadata; None if these are not restricted."""
        if self.model is None and not self.meta:
            return None
        return {each.id for each in self._replace(start=None, end=None).select_all(archive)}

    def _matches(self, archive: Archive, summary: ConversationInfo) -> bool:
        return self.covers(summary.updated) and (self.model is None or _has_model(archive, summary.id, self.model))


def parse_filter(*, since: str | None, until: str | None, model: str | None, meta: Sequence[str]) -> Filter:
    """Return the filter that the options describe. Raise `InputError` if a value is invalid."""
    start = None if since is None else parse_time(since, "--since")
    end = None if until is None else _parse_end(until)
    if start is not None and end is not None and start >= end:
        raise InputError(f"--since {since} is after --until {until}: nothing can match.")
    return Filter(start, end, model, dict(map(_parse_meta, meta)))


def parse_time(text: str, option: str, *, other: str = "") -> int:
    """Return a date or time in milliseconds since 1970. `other` is what the option takes besides, for the error."""
    return _to_milliseconds(_parse_moment(text, option, other), text, option)


def _parse_moment(text: str, option: str, other: str = "") -> dt.datetime:
    """Return a date or time, which may also be given as the distance from now: today, yesterday, 3d."""
    word = text.strip().lower()
    if word in ("today", "yesterday"):
        return dt.datetime.combine(dt.date.today() - dt.timedelta(days=word == "yesterday"), dt.time())
    if ago := _AGO.fullmatch(word):
        return dt.datetime.now() - dt.timedelta(hours=int(ago[1]) * _HOURS[ago[2]])
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{option} must be a date such as 2026-11-16, today or 3d{other}, not {text!r}.") from None


def _to_milliseconds(moment: dt.datetime, text: str, option: str) -> int:
    try:
        # A time without a zone is local time.
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise InputError(f"{option} {text} is outside the range of dates of this machine.") from None


def _parse_end(text: str) -> int:
    """Return the first millisecond after a time or, if it is a date, after that day."""
    moment = _parse_moment(text, "--until")
    try:
        if text.strip().lower() not in ("today", "yesterday"):
            dt.date.fromisoformat(text)
    except ValueError:
        return _to_milliseconds(moment, text, "--until") + 1
    try:
        return _to_milliseconds(moment + dt.timedelta(days=1), text, "--until")
    except OverflowError:
        raise InputError(f"--until {text} is outside the range of dates of this machine.") from None


def _has_model(archive: Archive, id: str, model: str) -> bool:  # noqa: A002
    """Return True if a turn on any branch was answered by a model whose name contains this text, ignoring case."""
    wanted = model.casefold()
    return any(
        wanted in turn.model.casefold()
        for head in archive.store.branches(archive.owner, id)
        for _, turn in archive.store.turns(archive.owner, id, head.branch, 0, head.size)
    )


def _parse_meta(text: str) -> tuple[str, Any]:
    """Split `key=value` into key and value. The value is parsed as JSON if possible, and is a string otherwise."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--meta must be KEY=VALUE, not {text!r}.")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value
