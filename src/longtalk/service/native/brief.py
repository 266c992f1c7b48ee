"""The brief: what is remembered, as lines with their sources; add, edit, revoke."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from longtalk.archive.line_sources import LineSource
from longtalk.archive.statements import LineStatements
from longtalk.conversation.brief import AsyncTalkBrief
from longtalk.errors import InputError, NotFound
from longtalk.memory.brief.lines import Line
from longtalk.policies import Memory
from longtalk.service.errors import ApiError, not_found, quote
from longtalk.service.native.conversations import find_info
from longtalk.service.native.objects import BranchQuery, Name, Text, clean
from longtalk.service.native.routes import ApiCall, Nothing, Route
from longtalk.service.native.talks import find_model, open_talk
from longtalk.stores.base import MAIN


class LineObject(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the brief."""

    id: str
    field: str
    text: str
    entry: str
    """The entry that it came from; empty if a client wrote it."""
    at: int
    """When it was first stated."""
    seen: int
    """When it was last stated."""


class FieldObject(msgspec.Struct, frozen=True, kw_only=True):
    """A field that lines can belong to."""

    name: str
    kind: str
    """`text` for one line, `list` for several."""
    most: int


class BriefObject(msgspec.Struct, frozen=True, kw_only=True):
    """The brief of a branch."""

    kept: bool
    """Whether the policy of the conversation keeps a brief, or an earlier one has left lines."""
    lines: list[LineObject]
    removed: list[LineObject]
    """Lines that were dropped, replaced or revoked, newest last."""
    fields: list[FieldObject]
    text: str
    """The brief as it is sent."""
    is_noted: bool = True
    """Whether the model of the last turn, or the default one, notes lines by itself; the smallest models don't."""


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that lines of the brief come from."""

    sources: list[LineSource]


class Statements(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that say what lines of the brief say, or said."""

    statements: list[LineStatements]


class ChangeObject(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the brief. A line that was edited is removed, and added with its new text."""

    at: int
    added: list[LineObject]
    removed: list[LineObject]
    revoked: list[str]
    """The ids of lines that the model can't add again from here on."""


class BriefHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a brief, oldest first."""

    changes: list[ChangeObject]


class AddLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A line to add. In a field with one line, it replaces that."""

    field: Name
    text: Text
    branch: Name = MAIN


class ChangeQuery(BranchQuery, frozen=True, forbid_unknown_fields=True):
    """The branch whose line is changed."""

    everywhere: bool = False
    """Whether to change it on all branches that have the line from the same entry."""


class EditLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The new text of a line."""

    text: Text


async def retrieve(call: ApiCall[BranchQuery, Nothing]) -> BriefObject:
    """Return the brief."""
    return await _read(call, call.query.branch)


async def list_sources(call: ApiCall[BranchQuery, Nothing]) -> Sources:
    """List the messages that the lines come from, those that were removed too."""
    branch = call.query.branch
    info = await find_info(call)
    try:
        brief = await _open(call, branch)
    except NotFound:
        raise
    except InputError:
        return Sources(sources=[])
    lines = [*await brief.lines(), *await brief.archived()]
    return Sources(sources=await call.archive.line_sources(info.id, lines, branch=branch))


async def list_statements(call: ApiCall[BranchQuery, Nothing]) -> Statements:
    """List which messages say what each line says, or still say what was corrected, forgotten or removed."""
    try:
        found = await (await _open(call, call.query.branch)).statements()
    except NotFound:
        raise
    except InputError:
        found = []
    texts = [{"text": clean(each.text), "now": clean(each.now)} for each in found]
    return Statements(
        statements=[msgspec.structs.replace(each, **more) for each, more in zip(found, texts, strict=True)]
    )


async def list_changes(call: ApiCall[BranchQuery, Nothing]) -> BriefHistory:
    """List what was added to the brief, removed and revoked, oldest change first."""
    try:
        found = await (await _open(call, call.query.branch)).changes()
    except NotFound:
        raise
    except InputError:
        found = []
    return BriefHistory(
        changes=[
            ChangeObject(
                at=each.at,
                added=[_to_line(line) for line in each.added],
                removed=[_to_line(line) for line in each.removed],
                revoked=list(each.revoked),
            )
            for each in found
        ]
    )


async def add(call: ApiCall[Nothing, AddLine]) -> BriefObject:
    """Add a line to the brief."""
    given = call.body
    await (await _open(call, given.branch)).add(given.field, given.text)
    return await _read(call, given.branch)


async def edit(call: ApiCall[ChangeQuery, EditLine]) -> BriefObject:
    """Replace the text of a line."""
    brief, line = await _open(call, call.query.branch), call.path["line"]
    if all(each.id != line for each in await brief.lines()):
        raise not_found(f"Line {quote(line)}")
    await brief.replace(line, call.body.text, everywhere=call.query.everywhere)
    return await _read(call, call.query.branch)


async def revoke(call: ApiCall[ChangeQuery, Nothing]) -> BriefObject:
    """Remove a line for good: the model can't add it again."""
    brief, line = await _open(call, call.query.branch), call.path["line"]
    if all(each.id != line for each in (*await brief.lines(), *await brief.archived())):
        raise not_found(f"Line {quote(line)}")
    await brief.revoke(line, everywhere=call.query.everywhere)
    return await _read(call, call.query.branch)


async def restore(call: ApiCall[ChangeQuery, Nothing]) -> BriefObject:
    """Put back a line that was removed, with its source and its dates."""
    brief, line = await _open(call, call.query.branch), call.path["line"]
    if all(each.id != line for each in await brief.archived()):
        raise not_found(f"Line {quote(line)}")
    await brief.restore(line, everywhere=call.query.everywhere)
    return await _read(call, call.query.branch)


async def _open(call: ApiCall[Any, Any], branch: str) -> AsyncTalkBrief:
    """Return the brief, also if the policy of the last turn keeps none but an earlier one has left lines.

    Raises `InputError` if there is no brief.
    """
    talk = await open_talk(call, branch)
    try:
        return talk.brief
    except InputError:
        brief = (await open_talk(call, branch, policy=Memory())).brief
        if await brief.archived() or await brief.lines():
            return brief
        raise


async def _read(call: ApiCall[Any, Any], branch: str) -> BriefObject:
    try:
        brief = await _open(call, branch)
    except NotFound:
        raise
    except InputError:
        return BriefObject(kept=False, lines=[], removed=[], fields=[], text="")
    return BriefObject(
        kept=True,
        lines=[_to_line(line) for line in await brief.lines()],
        removed=[_to_line(line) for line in await brief.archived()],
        fields=[FieldObject(name=each.name, kind=each.kind, most=each.cap) for each in brief.fields],
        text=clean(await brief.text()),
        is_noted=await _notes_lines(call, branch),
    )


async def _notes_lines(call: ApiCall[Any, Any], branch: str) -> bool:
    """Return False if the model that would answer next writes no memory cards."""
    settings = await call.archive.settings((await find_info(call)).id, branch=branch)
    with contextlib.suppress(ApiError):
        return find_model(call, None, settings, sends=False).provider.capabilities.cards != "none"
    return True


def _to_line(line: Line) -> LineObject:
    return LineObject(id=line.id, field=line.field, text=clean(line.text), entry=line.entry, at=line.at, seen=line.seen)


_ALL = "/conversations/{conversation}/brief"
ROUTES: tuple[Route[Any, Any], ...] = (
    Route("GET", _ALL, retrieve, query=BranchQuery, answer=BriefObject),
    Route("GET", _ALL + "/sources", list_sources, query=BranchQuery, answer=Sources),
    Route("GET", _ALL + "/statements", list_statements, query=BranchQuery, answer=Statements),
    Route("GET", _ALL + "/changes", list_changes, query=BranchQuery, answer=BriefHistory),
    Route("POST", _ALL, add, body=AddLine, answer=BriefObject, errors=(409,)),
    Route("PATCH", _ALL + "/{line}", edit, query=ChangeQuery, body=EditLine, answer=BriefObject),
    Route("DELETE", _ALL + "/{line}", revoke, query=ChangeQuery, answer=BriefObject),
    Route("POST", _ALL + "/{line}/restore", restore, query=ChangeQuery, answer=BriefObject, errors=(409,)),
)
