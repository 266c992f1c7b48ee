"""Branches: list, fork, rewind."""

from __future__ import annotations

from typing import Any

import msgspec

from longtalk.branches.branch import AsyncBranch
from longtalk.branches.operations import fork_branch
from longtalk.branches.rewind import rewind_branch
from longtalk.policies import KeepAll
from longtalk.service.native.conversations import find_info
from longtalk.service.native.objects import Name
from longtalk.service.native.routes import ApiCall, Nothing, Route
from longtalk.stores.base import MAIN
from longtalk.transcript.transcript import TurnStatus


class BranchObject(msgspec.Struct, frozen=True, kw_only=True):
    """A branch, as the API returns it."""

    name: str
    entries: int
    """The number of its entries, with those that it shares with others."""
    source: str | None
    """The branch that it shares its first entries with; null for the first branch."""
    shared: int
    """The number of entries that it shares with `source`."""
    last_entry: str | None
    last_turn: str | None
    status: TurnStatus | None
    """The status of its last turn."""
    updated: int


class Branches(msgspec.Struct, frozen=True, kw_only=True):
    """All branches of a conversation, each after its source."""

    branches: list[BranchObject]


class Fork(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A new branch."""

    source: Name = MAIN
    at: Name | None = None
    """The entry or turn that it ends with; by default the last turn of `source`."""
    name: Name | None = None


class Rewind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where to cut a branch."""

    to: Name
    """The entry or turn that becomes its last."""


class Rewound(msgspec.Struct, frozen=True, kw_only=True):
    """A branch that was cut."""

    branch: str
    kept: str
    """The branch that keeps what was cut off."""


async def list_branches(call: ApiCall[Nothing, Nothing]) -> Branches:
    """List the branches, with where each of them forks."""
    return Branches(branches=await _read_branches(call))


async def fork(call: ApiCall[Nothing, Fork]) -> BranchObject:
    """Fork a branch: nothing is copied, and the first branch stays as it is."""
    given = call.body
    made = await fork_branch(await _open(call, given.source), given.at, name=given.name)
    return next(each for each in await _read_branches(call) if each.name == made.branch)


async def rewind(call: ApiCall[Nothing, Rewind]) -> Rewound:
    """Cut a branch after an entry or a turn. What was cut off stays on a new branch."""
    name = call.path["branch"]
    return Rewound(branch=name, kept=await rewind_branch(await _open(call, name), call.body.to))


async def _open(call: ApiCall[Any, Any], branch: str) -> AsyncBranch:
    info = await find_info(call)
    return AsyncBranch(call.service.store, call.caller.owner, info.id, branch, KeepAll(), create=False)


async def _read_branches(call: ApiCall[Any, Any]) -> list[BranchObject]:
    found = await call.archive.tree((await find_info(call)).id)
    return [
        BranchObject(
            name=each.head.branch,
            entries=each.head.size,
            source=each.source,
            shared=each.shared,
            last_entry=each.head.entry,
            last_turn=each.head.turn.id if each.head.turn else None,
            status=each.status,
            updated=each.head.updated,
        )
        for each in found
    ]


_ALL = "/conversations/{conversation}/branches"
ROUTES: tuple[Route[Any, Any], ...] = (
    Route("GET", _ALL, list_branches, answer=Branches),
    Route("POST", _ALL, fork, body=Fork, answer=BranchObject, status=201, errors=(409,)),
    Route("POST", _ALL + "/{branch}/rewind", rewind, body=Rewind, answer=Rewound, errors=(409,)),
)
