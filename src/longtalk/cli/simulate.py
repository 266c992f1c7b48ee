"""`longtalk simulate`: what a conversation would have cost, as tables and plots, or as JSON."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

import msgspec

from longtalk import models as registry
from longtalk.cli import load
from longtalk.cli.files import shown as shown_file
from longtalk.cli.models import shown
from longtalk.cli.out import number, one_line, put, put_json, put_table, say
from longtalk.cli.policies import shown as shown_policy
from longtalk.cli.stats import dollars
from longtalk.cli.store import known_or_newest, opened
from longtalk.errors import InputError
from longtalk.policies import Policy
from longtalk.portable import Talk
from longtalk.prices import Prices
from longtalk.simulate import OPTIMUM, POLICIES, Play, Table, simulate, transcript_of
from longtalk.transcript import Transcript

_HEAD = ("policy", "tokens", "most", "cached", "epochs", "summaries", "cost", "a turn", "ratio")
_MODELS = ("anthropic:claude-sonnet-5", "openai-chat:gpt-5.4")
_FEW = 3
_BLOCKS = "▁▂▃▄▅▆▇█"


def run(
    *,
    store: str | None,
    owner: str,
    transcript: str | None,
    branch: str | None,
    models: Sequence[str],
    policies: Sequence[Policy],
    system: str | None,
    as_json: bool,
) -> None:
    """Play a conversation, and print what each policy would have sent and cost."""
    said = transcript_of(_talk(store, owner, transcript), branch=branch)
    tables = [Table.of(model) for model in models or _models(said)]
    policies = policies or POLICIES
    plays = simulate(said, models=tables, policies=policies, system=system)
    names = [*map(shown_policy, policies), OPTIMUM]
    for i, table in enumerate(tables):
        some = plays[i * len(names) : (i + 1) * len(names)]
        if as_json:
            _put_json(some)
        elif sys.stdout.isatty():
            put("\n" if i else "", end="")
            _put_table(table, names, some)
        else:
            # Whoever reads it from a pipe wants lines alone.
            put_table([(play.model, name, *_row(play, some[-1])) for name, play in zip(names, some, strict=True)])
        for name, play in zip(names, some, strict=True):
            if play.problem:
                say(f"longtalk: {name} with {play.model} ends after {number(len(play.calls), 'call')}: {play.problem}")
    if not as_json:
        say(
            "The ratio is to the optimum, which knows when summaries cost least: of what is sent and what summaries "
            "take, since answers cost the same under any policy. One that leaves out without a summary can be below it."
        )


def _talk(store: str | None, owner: str, name: str | None) -> Talk:
    """The conversation in a file or, where there is none of this name, in the store."""
    if name is not None and (name == "-" or (os.path.exists(name) and not os.path.isdir(name))):
        talks = load.talks(name)
        if len(talks) == 1:
            return talks[0]
        raise InputError(
            f"{shown_file(name)} holds {number(len(talks), 'conversation')}, and one is played: take them in with "
            "`longtalk import`, and name it."
        )
    with opened(store, owner) as archive:
        try:
            return archive.talk(known_or_newest(archive, name).id)
        except InputError as problem:
            raise InputError(f"{'' if name is None else 'There is no such file. '}{problem}") from None


def _models(said: Transcript) -> Sequence[str]:
    """The models that it was held with, the last one first, if anybody knows what they cost."""
    found = []
    for label in dict.fromkeys(turn.model for turn in reversed(said.turns)):
        # A request body names a model without its provider.
        model = registry.find(label) or registry.find(f"openai-chat:{label}")
        if model is not None and model.prices is not None and model.label not in found:
            found.append(model.label)
    return found[:_FEW] or _MODELS


def _put_table(table: Table, names: Sequence[str], plays: Sequence[Play]) -> None:
    best = plays[-1]
    put(f"{one_line(table.label)}  {number(best.turns, 'turn')}, {number(len(best.prompts), 'call')}")
    put(_priced(table.prices))
    put_table([_HEAD, *((name, *_row(play, best)) for name, play in zip(names, plays, strict=True))])
    put("\nTokens of each request, from the first to the last:")
    top = max(max(play.prompts, default=0) for play in plays)
    label = max(map(len, names))
    width = max(10, shutil.get_terminal_size().columns - label - len(f"{top:,}") - 4)
    for name, play in zip(names, plays, strict=True):
        put(f"{name:{label}}  {plot(play.prompts, top, width)}  {max(play.prompts, default=0):,}")


def _row(play: Play, best: Play) -> tuple[str, ...]:
    # Of half a conversation a sum would look cheap.
    cost = None if play.problem else play.cost
    sums = ("-", "-") if cost is None else (dollars(cost.total), dollars(cost.total / max(1, play.turns)))
    ratio = _ratio(play, best)
    return (
        f"{sum(play.prompts) / max(1, len(play.prompts)):,.0f}",
        f"{max(play.prompts, default=0):,}",
        f"{play.cached:.0%}",
        f"{play.epochs:,}",
        f"{play.summaries:,}",
        *sums,
        "-" if ratio is None else f"{ratio:.2f}",
    )


def _ratio(play: Play, best: Play) -> float | None:
    """What a play costs against the optimum; None where one of them has no end."""
    return None if play.problem or best.problem or not best.weight else play.weight / best.weight


def _priced(prices: Prices | None) -> str:
    if prices is None:
        return "Nobody knows its prices: a token read from the cache counts 0.1 of one sent, one received 5."
    each = {
        "sent": prices.input,
        "received": prices.output,
        "read from the cache": prices.cache_read,
        "written to it": prices.cache_write,
    }
    told = ", ".join(f"${shown(price)} {what}" for what, price in each.items() if price is not None)
    above = ", ".join(f"{tier.above:,}" for tier in prices.tiers)
    return f"A million tokens: {told}{f'; other prices above {above} tokens' if above else ''}"


def plot(values: Sequence[int], top: int, width: int) -> str:
    """Values as blocks, from 0 to `top`; where there are too many, the largest of neighbours."""
    count = min(width, len(values))
    groups = (values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count))
    return "".join(_BLOCKS[max(0, (max(group) * len(_BLOCKS) - 1) // max(1, top))] for group in groups)


def _put_json(plays: Sequence[Play]) -> None:
    for play in plays:
        calls = [
            {
                "entry": call.entry,
                "turn": call.turn,
                "tokens": call.usage.input,
                "cached": call.usage.cached,
                "written": call.usage.written,
                "output": call.usage.output,
                "cost": None if call.cost is None else call.cost.total,
                "summary": call.summary,
                "begins": call.begins,
            }
            for call in play.calls
        ]
        totals = {
            "turns": play.turns,
            "calls": len(play.calls),
            "summaries": play.summaries,
            "epochs": play.epochs,
            "tokens": play.usage.input,
            "cached": play.usage.cached,
            "written": play.usage.written,
            "output": play.usage.output,
            "cost": None if play.cost is None else play.cost.total,
            "weight": play.weight,
            "ratio": _ratio(play, plays[-1]),
        }
        receipts = msgspec.to_builtins(play.receipts)
        put_json(
            {
                "model": play.model,
                "policy": play.policy,
                "totals": totals,
                "calls": calls,
                "receipts": receipts,
                "problem": play.problem,
            }
        )
