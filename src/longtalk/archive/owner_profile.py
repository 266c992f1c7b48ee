"""The profile of an owner, for the app to read and change: what all of the owner's conversations know about them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from longtalk._util.concurrency import call_store
from longtalk.archive.profile_reading import change_owner_record, read_profile_lines
from longtalk.errors import InputError
from longtalk.memory.brief.apply import list_line_ids
from longtalk.memory.brief.lines import Line, clean_line, make_line_id, normalize
from longtalk.memory.profile.config import Profile
from longtalk.memory.profile.lines import OwnerRecord, ProfileLine
from longtalk.stores.base import Store
from longtalk.transcript.transcript import now

_MAX_CHARS = 1_000
_MAX_LINES = 100
"""The maximum number of lines that the app may write into a profile."""
_MAX_REVOKED = 10_000

_replace = msgspec.structs.replace


class AsyncOwnerProfile:
    """The profile of one owner. A change affects the next request of each of the owner's conversations."""

    def __init__(self, store: Store, owner: str, config: Profile) -> None:
        self._store = store
        self._owner = owner
        self._config = config

    async def lines(self) -> list[ProfileLine]:
        """Return all lines, oldest first, each with the entries that it came from; those of the app have none."""
        found: list[ProfileLine] = await call_store(self._store, lambda: read_profile_lines(self._store, self._owner))
        return found

    async def add(self, field: str, text: str) -> ProfileLine:
        """Add a line to a field, such as "preferences", and return it. A line that was revoked may come back so."""
        found = self._config.schema.find(field) if isinstance(field, str) else None
        if found is None:
            names = ", ".join(each.name for each in self._config.schema.fields)
            raise InputError(f"The profile has no field {field!r}: its fields are {names}.")
        said, at = _check_text(text), now()
        line = Line(make_line_id(found.name, normalize(said)), found.name, said, at=at, seen=at)

        def change(record: OwnerRecord) -> OwnerRecord:
            own = [each for each in record.lines if each.id != line.id]
            if found.kind == "text":
                own = [each for each in own if each.field != found.name]
            if len(own) >= _MAX_LINES:
                raise InputError(f"The app may write at most {_MAX_LINES} lines into a profile: revoke some.")
            again = list_line_ids(line)
            revoked = tuple(each for each in record.revoked if each not in again)
            return _replace(record, lines=(*own, line), revoked=revoked)

        await self._change(change)
        return ProfileLine(id=line.id, field=line.field, text=line.text, at=at, seen=at)

    async def replace(self, line: str, text: str) -> ProfileLine:
        """Replace the text of a line, given by its id, and return the line.

        The line keeps its sources: if it came from conversations, it is gone with the last of them.
        """
        found, said, at = await self._find(line), _check_text(text), now()

        def change(record: OwnerRecord) -> OwnerRecord:
            if found.sources:
                return _replace(record, edits={**record.edits, line: said})
            own = [_replace(each, text=said, seen=at) if each.id == line else each for each in record.lines]
            return _replace(record, lines=tuple(own))

        await self._change(change)
        if found.sources:
            return _replace(found, text=said, is_edited=True)
        return _replace(found, text=said, seen=at)

    async def revoke(self, line: str) -> ProfileLine:
        """Remove a line for good, given by its id, and return it: only the app can add it again."""
        found = await self._find(line)
        ids = (*list_line_ids(Line(found.id, found.field, found.text)),)

        def change(record: OwnerRecord) -> OwnerRecord:
            revoked = tuple(dict.fromkeys((*record.revoked, *ids)))[-_MAX_REVOKED:]
            edits = {each: text for each, text in record.edits.items() if each != line}
            own = tuple(each for each in record.lines if each.id != line)
            return _replace(record, lines=own, revoked=revoked, edits=edits)

        await self._change(change)
        return found

    async def _find(self, line: str) -> ProfileLine:
        found = next((each for each in await self.lines() if each.id == line), None)
        if found is None:
            raise InputError(f"The profile has no line with the id {line!r}. Take the id from `lines`.")
        return found

    async def _change(self, change: Callable[[OwnerRecord], OwnerRecord]) -> None:
        await call_store(self._store, lambda: change_owner_record(self._store, self._owner, change))


def _check_text(text: object) -> str:
    """Return the text of a line on one line. Raises `InputError` if it is no text, is empty or too long."""
    if not isinstance(text, str) or not (cleaned := clean_line(text)):
        raise InputError(f"A line of the profile must be a non-empty string, not {text!r}.")
    if len(cleaned) > _MAX_CHARS:
        raise InputError(f"A line of the profile may have at most {_MAX_CHARS:,} characters, not {len(cleaned):,}.")
    return cleaned
