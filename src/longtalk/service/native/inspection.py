"""See what the model sees: history, manifests, exact requests, costs, topics, settings."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from longtalk.archive.metrics import Metrics
from longtalk.archive.recalled import RecalledEntry
from longtalk.context.costs import CostReceipt
from longtalk.memory.recall.topics import Topic
from longtalk.models import registry
from longtalk.service.native.conversations import find_info
from longtalk.service.native.objects import BranchQuery, EntryObject, Name, clean, to_entry
from longtalk.service.native.routes import ApiCall, Nothing, Route
from longtalk.stores.base import MAIN
from longtalk.transcript.manifest import Run


class HistoryQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page of a history, from its end."""

    branch: Name = MAIN
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    before: Annotated[int, msgspec.Meta(ge=0, le=2**31)] | None = None
    """Only entries at lower positions: `before` of the later page."""


class HistoryPage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of a branch, oldest first. No turn is cut, so there may be a few more than `limit`."""

    entries: list[EntryObject]
    before: int | None
    """What to pass as `before` for the page before this one; null at the beginning."""


class ManifestObject(msgspec.Struct, frozen=True, kw_only=True):
    """How the last request of a turn treated each entry of the conversation."""

    turn: str
    branch: str
    runs: list[Run]
    """Runs of entries with the same verdict and reason, by their positions; empty if nothing is stored."""
    metrics: Metrics | None
    """The tokens of each part; null if no model was called."""
    window: int | None
    """The tokens that the model accepts, with its answer; null if unknown."""


class RequestObject(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a turn."""

    model: str
    body: str | None
    """The JSON that was sent, byte for byte; null if it can't be rebuilt."""
    is_streamed: bool
    problem: str
    """Why it can't be rebuilt; empty if it was."""


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn has sent, one request for each model call."""

    requests: list[RequestObject]


class RecalledList(msgspec.Struct, frozen=True, kw_only=True):
    """What was recalled for a turn's message, best first."""

    recalled: list[RecalledEntry]


class MetricsList(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens and the cost of each turn of a branch, oldest first."""

    metrics: list[Metrics]


class Receipts(msgspec.Struct, frozen=True, kw_only=True):
    """What each compaction that was made to save money has cost and saved, oldest first."""

    receipts: list[CostReceipt]


class EpochObject(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction: what the requests from here on begin with."""

    start: int
    """The number of entries before it."""
    reason: str
    summary: str
    """The summary or the brief in place of older exchanges; empty if there is none."""
    runs: list[Run]
    """How the entries before `start` are sent."""
    tokens: int


class Epochs(msgspec.Struct, frozen=True, kw_only=True):
    """The compactions of a branch, oldest first."""

    epochs: list[EpochObject]


class Topics(msgspec.Struct, frozen=True, kw_only=True):
    """The topics of a branch, in order."""

    topics: list[Topic]


class ToolObject(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as the model saw it."""

    name: str
    description: str
    parameters: dict[str, Any]


class SettingsObject(msgspec.Struct, frozen=True, kw_only=True):
    """How a branch was held in its last turn. All is empty if that is not stored."""

    model: str = ""
    policy: str = ""
    options: dict[str, Any] = {}
    system: str | None = None
    tools: list[ToolObject] = []
    problems: list[str] = []
    """What is not restored, and why."""


async def read_history(call: ApiCall[HistoryQuery, Nothing]) -> HistoryPage:
    """Return a page of a branch's history, the newest first."""
    info, query = await find_info(call), call.query
    found = await call.archive.history(info.id, branch=query.branch, limit=query.limit, before=query.before)
    before = found[0].position if found and found[0].position else None
    return HistoryPage(entries=[to_entry(each) for each in found], before=before)


async def read_manifest(call: ApiCall[BranchQuery, Nothing]) -> ManifestObject:
    """Return how a turn's last request treated each entry, and why."""
    info, name = await find_info(call), call.path["turn"]
    turn = await call.archive.turn(info.id, name, branch=call.query.branch)
    runs = await call.archive.manifest(info.id, name, branch=turn.branch)
    figures = await call.archive.metrics(info.id, branch=turn.branch)
    model = registry.find(turn.turn.model)
    return ManifestObject(
        turn=name,
        branch=turn.branch,
        runs=list(runs),
        metrics=next((each for each in figures if each.turn == name), None),
        window=None if model is None else model.window,
    )


async def read_requests(call: ApiCall[BranchQuery, Nothing]) -> Requests:
    """Return the exact requests of a turn."""
    info = await find_info(call)
    found = await call.archive.request(info.id, call.path["turn"], branch=call.query.branch)
    return Requests(
        requests=[
            RequestObject(
                model=each.model,
                body=None if each.body is None else each.body.decode("utf-8", "replace"),
                is_streamed=each.is_streamed,
                problem=each.problem,
            )
            for each in found
        ]
    )


async def read_recalled(call: ApiCall[BranchQuery, Nothing]) -> RecalledList:
    """Return what was recalled for a turn's message, with scores and the words that led to it."""
    info = await find_info(call)
    found = await call.archive.recalled(info.id, call.path["turn"], branch=call.query.branch)
    cleaned = [msgspec.structs.replace(each, words=tuple(map(clean, each.words))) for each in found]
    return RecalledList(recalled=cleaned)


async def read_metrics(call: ApiCall[BranchQuery, Nothing]) -> MetricsList:
    """Return the tokens of each part and the cost of each turn."""
    info = await find_info(call)
    return MetricsList(metrics=await call.archive.metrics(info.id, branch=call.query.branch))


async def read_receipts(call: ApiCall[BranchQuery, Nothing]) -> Receipts:
    """Return the receipts of compactions: predicted, actual, saved."""
    info = await find_info(call)
    return Receipts(receipts=await call.archive.receipts(info.id, branch=call.query.branch))


async def read_epochs(call: ApiCall[BranchQuery, Nothing]) -> Epochs:
    """Return what each compaction has replaced, and by what."""
    info = await find_info(call)
    found = await call.archive.epochs(info.id, branch=call.query.branch)
    return Epochs(
        epochs=[
            EpochObject(
                start=each.start,
                reason=each.reason,
                summary=clean(each.summary.text) if each.summary else "",
                runs=list(each.runs),
                tokens=each.tokens,
            )
            for each in found
        ]
    )


async def read_topics(call: ApiCall[BranchQuery, Nothing]) -> Topics:
    """Return the topics of a branch as a timeline."""
    info = await find_info(call)
    return Topics(topics=await call.archive.topics(info.id, branch=call.query.branch))


async def read_settings(call: ApiCall[BranchQuery, Nothing]) -> SettingsObject:
    """Return model, policy, options, system text and tools of a branch's last turn."""
    info = await find_info(call)
    found = await call.archive.settings(info.id, branch=call.query.branch)
    if found is None:
        return SettingsObject()
    return SettingsObject(
        model=found.model,
        policy=found.policy_text,
        options=found.options,
        system=None if found.system is None else clean(found.system),
        tools=[
            ToolObject(name=each.name, description=each.description, parameters=msgspec.json.decode(each.schema))
            for each in found.tools
        ],
        problems=list(found.problems),
    )


_ONE = "/conversations/{conversation}"
_TURN = _ONE + "/turns/{turn}"
ROUTES: tuple[Route[Any, Any], ...] = (
    Route("GET", _ONE + "/history", read_history, query=HistoryQuery, answer=HistoryPage),
    Route("GET", _TURN + "/manifest", read_manifest, query=BranchQuery, answer=ManifestObject),
    Route("GET", _TURN + "/requests", read_requests, query=BranchQuery, answer=Requests),
    Route("GET", _TURN + "/recalled", read_recalled, query=BranchQuery, answer=RecalledList),
    Route("GET", _ONE + "/metrics", read_metrics, query=BranchQuery, answer=MetricsList),
    Route("GET", _ONE + "/receipts", read_receipts, query=BranchQuery, answer=Receipts),
    Route("GET", _ONE + "/epochs", read_epochs, query=BranchQuery, answer=Epochs),
    Route("GET", _ONE + "/topics", read_topics, query=BranchQuery, answer=Topics),
    Route("GET", _ONE + "/settings", read_settings, query=BranchQuery, answer=SettingsObject),
)
