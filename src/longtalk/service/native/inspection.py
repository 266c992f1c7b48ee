"""See what the model sees: history, manifests, exact requests, costs, topics, settings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Annotated, Any

import msgspec

from longtalk._util.concurrency import run_in_thread
from longtalk.archive.history import StoredTurn
from longtalk.archive.metrics import Metrics
from longtalk.archive.recalled import RecalledEntry
from longtalk.branches.rebuild import SentRequest
from longtalk.context.costs import CostReceipt
from longtalk.context.epochs import list_runs
from longtalk.context.measure import find_answer_room
from longtalk.context.token_limit import find_compaction_point, find_history_limit
from longtalk.memory.recall.topics import Topic
from longtalk.policies.notation import format_policy
from longtalk.service.native.conversations import find_info
from longtalk.service.native.objects import BranchQuery, EntryObject, Name, clean, to_entry
from longtalk.service.native.routes import ApiCall, Nothing, Route
from longtalk.stores.base import MAIN
from longtalk.tokens import Counter, count_message, counter_for
from longtalk.transcript.manifest import Run
from longtalk.usage import Usage
from longtalk.wires import read_usage


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
    costs: dict[str, float | None]
    """The cost of each turn of the page in which a model was called, in US dollars, by its id; null if unknown."""


class ManifestObject(msgspec.Struct, frozen=True, kw_only=True):
    """How the last request of a turn treated each entry of the conversation."""

    turn: str
    branch: str
    runs: list[Run]
    """Runs of entries with the same verdict and reason, by their positions; empty if nothing is stored.

    A request that is not sent yet has none for the new message.
    """
    metrics: Metrics | None
    """The tokens of each part; null if no model was called."""
    message: int
    """The tokens of the turn's own entries in the request: the new message, and calls with their results."""
    window: int | None
    """The tokens that the model accepts, with its answer; null if unknown."""
    reserved: int | None
    """The tokens of the window that are kept free for the answer; null if the window is unknown."""
    limit: int | None
    """The number of tokens above which the turn's policy shortens a request, whatever it costs; null for none."""
    history_limit: int | None
    """The part of `limit` that is for the history, where the policy counts the history alone; null if it does not."""
    policy: str
    """The policy of the turn; empty if it is not stored."""
    rules: list[str]
    """When the policy shortens a request, in words."""
    system: str
    """The system text; empty if there was none, or if it is not stored."""
    tools: list[str]
    """The names of the tools that the model was offered."""
    lacks_key: str = ""
    """The provider of a request that is not sent yet, if it has no API key; else empty."""


class RequestObject(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a turn."""

    model: str
    body: str | None
    """The JSON that was sent, byte for byte; null if it can't be rebuilt."""
    is_streamed: bool
    problem: str
    """Why it can't be rebuilt; empty if it was."""
    usage: Usage | None
    """The tokens that the provider reported; null if unknown."""
    cached_until: int | None
    """About how many characters of the body the provider has read from its cache, by its report; null if unknown."""


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
    """Return a page of a branch's history, newest first."""
    info, query = await find_info(call), call.query
    found = await call.archive.history(info.id, branch=query.branch, limit=query.limit, before=query.before)
    before = found[0].position if found and found[0].position else None
    costs: dict[str, float | None] = {}
    if found:
        costs = await call.archive.costs(info.id, query.branch, found[0].position, found[-1].position + 1)
    return HistoryPage(entries=[to_entry(each) for each in found], before=before, costs=costs)


async def read_manifest(call: ApiCall[BranchQuery, Nothing]) -> ManifestObject:
    """Return how a turn's last request treated each entry, and why."""
    info, name = await find_info(call), call.path["turn"]
    turn = await call.archive.turn(info.id, name, branch=call.query.branch)
    runs = await call.archive.manifest(info.id, name, branch=turn.branch)
    start = turn.entries[0].position if turn.entries else 0
    figures = await call.archive.metrics(info.id, branch=turn.branch, start=start, stop=start + 1)
    metrics = next((each for each in figures if each.turn == name), None)
    settings = await call.archive.settings(info.id, branch=turn.branch, turn=name)
    policy = None if settings is None else settings.policy
    window = call.service.models.find_window(turn.turn.model)
    message = count_sent(turn, runs)
    answer = settings.answer_limit if settings else None
    outside = max(0, metrics.total - metrics.history - metrics.summary + message) if metrics else 0
    return ManifestObject(
        turn=name,
        branch=turn.branch,
        runs=list(runs),
        metrics=metrics,
        message=message,
        window=window,
        reserved=None if window is None else find_answer_room(window, answer),
        limit=None if policy is None else find_compaction_point(policy, window, outside),
        history_limit=None if policy is None else find_history_limit(policy, window, outside),
        policy="" if settings is None else format_policy(policy) if policy else settings.policy_text,
        rules=[] if policy is None else [str(each.over) for each in policy.compactors],
        system=clean(settings.system or "") if settings else "",
        tools=[each.name for each in settings.tools] if settings else [],
    )


def count_sent(turn: StoredTurn, runs: Sequence[Run]) -> int:
    """Return the tokens of a turn's own entries in its last request, whose manifest is `runs`."""
    counter = counter_for(turn.turn.model)
    stop = runs[-1].last + 1 if runs else 0
    return sum(count_message(each.native, counter) for each in turn.entries if each.position < stop)


async def read_requests(call: ApiCall[BranchQuery, Nothing]) -> Requests:
    """Return the exact requests of a turn."""
    info, name = await find_info(call), call.path["turn"]
    found = await call.archive.request(info.id, name, branch=call.query.branch)
    turn = (await call.archive.turn(info.id, name, branch=call.query.branch)).turn
    # Requests for summaries, whose tokens are not among the turn's, come last. A call that was tried again has no
    # report of its own for each attempt.
    reports = [read_usage(raw, turn.model.partition(":")[0]) for raw in turn.usage]
    usages = reports if len(reports) <= len(found) else []
    pairs = list(zip_longest(found, usages))
    requests: list[RequestObject] = await run_in_thread(lambda: [_to_request(*each) for each in pairs])
    return Requests(requests=requests)


def _to_request(sent: SentRequest, usage: Usage | None) -> RequestObject:
    body = None if sent.body is None else sent.body.decode("utf-8", "replace")
    return RequestObject(
        model=sent.model,
        body=body,
        is_streamed=sent.is_streamed,
        problem=sent.problem,
        usage=usage,
        cached_until=None if body is None or usage is None else find_cached_end(body, usage, counter_for(sent.model)),
    )


def find_cached_end(body: str, usage: Usage, counter: Counter) -> int | None:
    """Return about how many characters of a request were read from the cache: a share of its tokens as counted here.

    None if the provider has not reported tokens.
    """
    if not usage.input:
        return None
    step = max(1, len(body) // _CHUNKS)
    sizes = [counter.count(body[i : i + step]) for i in range(0, len(body), step)]
    wanted, end = sum(sizes) * min(1.0, usage.cached / usage.input), 0
    for size in sizes:
        if wanted < size:
            return min(len(body), end + round(step * wanted / max(1, size)))
        wanted, end = wanted - size, end + step
    return len(body)


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
                runs=list(list_runs(each)),
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
        policy=format_policy(found.policy) if found.policy else found.policy_text,
        options=found.options,
        system=None if found.system is None else clean(found.system),
        tools=[
            ToolObject(name=each.name, description=each.description, parameters=msgspec.json.decode(each.schema))
            for each in found.tools
        ],
        problems=list(found.problems),
    )


_CHUNKS = 200
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
