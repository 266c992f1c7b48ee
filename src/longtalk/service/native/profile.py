"""The profile of the caller: what all conversations know about the user, as lines with their sources; and privacy."""

from __future__ import annotations

from typing import Any

import msgspec

from longtalk.archive.owner_profile import AsyncOwnerProfile
from longtalk.memory.profile.config import Profile
from longtalk.memory.profile.lines import ProfileLine
from longtalk.service.errors import not_found, quote
from longtalk.service.native.brief import EditLine, FieldObject
from longtalk.service.native.conversations import find_info
from longtalk.service.native.objects import Name, Text, clean
from longtalk.service.native.routes import ApiCall, Nothing, Route


class SourceObject(msgspec.Struct, frozen=True, kw_only=True):
    """Where a line was stated."""

    conversation: str
    branch: str
    entry: str
    at: int
    """When it was first stated there."""


class ProfileLineObject(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the profile."""

    id: str
    field: str
    text: str
    at: int
    """When it was first stated."""
    seen: int
    """When it was last stated."""
    sources: list[SourceObject]
    """The entries that it came from, newest first; empty if a client wrote it."""
    edited: bool
    """Whether a client has replaced the text that was stated."""


class ProfileObject(msgspec.Struct, frozen=True, kw_only=True):
    """The profile of the caller."""

    kept: bool
    """Whether the policy of a model of this service keeps a profile. A conversation may have another policy."""
    lines: list[ProfileLineObject]
    """All lines, oldest first."""
    fields: list[FieldObject]


class AddProfileLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A line to add. In a field with one line, it replaces what clients have written there."""

    field: Name
    text: Text


class PrivacyObject(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whether a conversation is private: it neither adds to the profile nor uses it or other conversations."""

    private: bool


async def retrieve(call: ApiCall[Nothing, Nothing]) -> ProfileObject:
    """Return the profile."""
    return await _read(call)


async def add(call: ApiCall[Nothing, AddProfileLine]) -> ProfileObject:
    """Add a line to the profile. A line that was revoked may come back so."""
    await _open(call).add(call.body.field, call.body.text)
    return await _read(call)


async def edit(call: ApiCall[Nothing, EditLine]) -> ProfileObject:
    """Replace the text of a line. It keeps its sources, and is gone with the last of them."""
    await _open(call).replace(await _find_line(call), call.body.text)
    return await _read(call)


async def revoke(call: ApiCall[Nothing, Nothing]) -> ProfileObject:
    """Remove a line for good: the model can't add it again."""
    await _open(call).revoke(await _find_line(call))
    return await _read(call)


async def retrieve_privacy(call: ApiCall[Nothing, Nothing]) -> PrivacyObject:
    """Return whether a conversation is private."""
    return PrivacyObject(private=await call.archive.private((await find_info(call)).id))


async def set_privacy(call: ApiCall[Nothing, PrivacyObject]) -> PrivacyObject:
    """Make a conversation private, or end that. What it has added to the profile is then not in it any more."""
    await call.archive.set_private((await find_info(call)).id, call.body.private)
    return call.body


def _open(call: ApiCall[Any, Any]) -> AsyncOwnerProfile:
    return call.archive.profile(call.service.models.profile)


async def _find_line(call: ApiCall[Any, Any]) -> str:
    """Return the id of the line that the path of a call names."""
    line = call.path["line"]
    if all(each.id != line for each in await _open(call).lines()):
        raise not_found(f"Line {quote(line)}")
    return line


async def _read(call: ApiCall[Any, Any]) -> ProfileObject:
    kept = call.service.models.profile
    fields = (kept or Profile()).schema.fields
    return ProfileObject(
        kept=kept is not None,
        lines=[_to_line(line) for line in await _open(call).lines()],
        fields=[FieldObject(name=each.name, kind=each.kind, most=each.cap) for each in fields],
    )


def _to_line(line: ProfileLine) -> ProfileLineObject:
    return ProfileLineObject(
        id=line.id,
        field=line.field,
        text=clean(line.text),
        at=line.at,
        seen=line.seen,
        sources=[SourceObject(**msgspec.structs.asdict(each)) for each in line.sources],
        edited=line.is_edited,
    )


_PRIVACY = "/conversations/{conversation}/privacy"
ROUTES: tuple[Route[Any, Any], ...] = (
    Route("GET", "/profile", retrieve, answer=ProfileObject),
    Route("POST", "/profile", add, body=AddProfileLine, answer=ProfileObject, errors=(409,)),
    Route("PATCH", "/profile/{line}", edit, body=EditLine, answer=ProfileObject),
    Route("DELETE", "/profile/{line}", revoke, answer=ProfileObject),
    Route("GET", _PRIVACY, retrieve_privacy, answer=PrivacyObject),
    Route("PUT", _PRIVACY, set_privacy, body=PrivacyObject, answer=PrivacyObject),
)
