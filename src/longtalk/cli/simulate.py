"""`longtalk simulate`: print the cost of a conversation under other policies, as a table, a plot or JSON."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from longtalk.cli.files import display_name, refuse_existing, write_file
from longtalk.cli.holding import find_model_settings
from longtalk.cli.import_ import read_conversations
from longtalk.cli.models import format_number
from longtalk.cli.output import ProgressCounter, escape_line, pluralize, print_json, print_note, print_text, wrap
from longtalk.cli.stats import format_dollars
from longtalk.cli.store import choose_branch, find_or_latest, open_archive
from longtalk.cli.tables import Column, cut, print_table
from longtalk.errors import InputError
from longtalk.models.call_cost import Prices
from longtalk.policies import Policy
from longtalk.policies.notation import format_policy
from longtalk.service.settings import load_settings
from longtalk.simulation.compare import (
    OPTIMUM,
    POLICIES,
    SimulatedModel,
    SimulatedRun,
    choose_models,
    simulate,
    transcript_of,
)
from longtalk.transfer.conversation_export import ConversationExport

_COLUMNS = (
    Column("policy", shortest=24),
    Column("tokens", is_number=True),
    Column("most", rank=3, is_number=True),
    Column("cached", rank=2, is_number=True),
    Column("epochs", rank=5, is_number=True),
    Column("summaries", rank=6, is_number=True),
    Column("cost", is_number=True),
    Column("a turn", rank=4, is_number=True),
    Column("ratio", rank=1, is_number=True),
)
_EVERYTHING = "KeepAll()"
_FORGETFUL = ("KeepLast", "KeepMessages", "TokenBudget", "WindowShare")
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
    plot_file: str | None,
    force: bool,
) -> None:
    """Simulate a conversation under each policy, and print what each policy would have sent and cost."""
    if plot_file is not None:
        if not plot_file.endswith((".svg", ".png")):
            raise InputError(f"--plot writes SVG or PNG, so {plot_file!r} must end in .svg or .png.")
        refuse_existing(Path(plot_file), force=force)
    conversation, branch, stored = _load_conversation(store, owner, transcript, branch)
    system = stored if system is None else system
    recorded = transcript_of(conversation, branch=branch)
    settings = load_settings()
    labels = [find_model_settings(settings, name).model for name in models] or choose_models(recorded)
    simulated = list(map(SimulatedModel.from_label, labels))
    policies = policies or POLICIES
    names = [*map(format_policy, policies), OPTIMUM]
    with ProgressCounter(len(simulated) * len(names), "replay") as progress:
        progress(0)
        results = simulate(recorded, models=simulated, policies=policies, system=system, progress=progress)
    rows: list[tuple[str, ...]] = []
    for i, model in enumerate(simulated):
        model_results = results[i * len(names) : (i + 1) * len(names)]
        if as_json:
            _print_results(names, model_results)
        elif sys.stdout.isatty():
            print_text("\n" if i else "", end="")
            _print_report(model, names, model_results)
        else:
            rows += [
                (result.model, name, *_format_result(result, model_results[-1]))
                for name, result in zip(names, model_results, strict=True)
            ]
        for name, result in zip(names, model_results, strict=True):
            if result.problem:
                calls = pluralize(len(result.calls), "call")
                print_note(f"longtalk: {name} with {result.model} stopped after {calls}: {result.problem}")
    if rows:
        print_table((Column("model"), *_COLUMNS), rows)
    if plot_file is not None:
        _write_plot(Path(plot_file), names, results)
    if not as_json:
        for i, model in enumerate(simulated):
            closing = describe_cheapest(names, results[i * len(names) : (i + 1) * len(names)])
            if closing:
                print_note(f"{model.label}: {closing}" if len(simulated) > 1 else closing)
        print_note(
            "The ratio compares the cost of requests and summaries with the optimum, which knows the conversation in "
            "advance. Answers cost the same under any policy. A policy that drops messages without a summary can be "
            "below 1."
        )


def describe_cheapest(names: Sequence[str], results: Sequence[SimulatedRun]) -> str:
    """Return a sentence on the cheapest policy, compared with sending everything; empty if there is no choice.

    `names` and `results` end with the optimum, which is left out: no policy knows a conversation in advance.
    """
    costs = {
        name: result.cost.total
        for name, result in zip(names[:-1], results[:-1], strict=True)
        if result.cost is not None and result.cost.total
    }
    if len(costs) < 2:
        return ""
    best = min(costs, key=lambda name: costs[name])
    if best == _EVERYTHING:
        return f"Cheapest for this conversation: {best}, sending everything."
    if _EVERYTHING not in costs:
        return f"Cheapest for this conversation: {best}."
    saved = {name: 1 - cost / costs[_EVERYTHING] for name, cost in costs.items()}
    sentence = f"Cheapest for this conversation: {best}, saves {saved[best]:.0%} against sending everything."
    if best.startswith(_FORGETFUL):
        other = max((name for name in costs if not name.startswith(_FORGETFUL)), key=lambda name: saved[name])
        does = "sending everything is the cheapest" if other == _EVERYTHING else f"{other} saves {saved[other]:.0%}"
        sentence += f" It forgets older messages; of those that don't, {does}."
    return sentence


def _write_plot(path: Path, names: Sequence[str], results: Sequence[SimulatedRun]) -> None:
    from longtalk.simulation.chart import to_png, to_svg

    is_one = len(results) == len(names)
    series = [
        (names[i % len(names)] if is_one else f"{result.model} {names[i % len(names)]}", result.prompts)
        for i, result in enumerate(results)
    ]
    title = "Tokens of each request, from first to last"
    picture = to_svg(f"{title}: {results[0].model}" if is_one else title, series)
    write_file(path, to_png(picture) if path.suffix == ".png" else picture.encode())
    print_note(f"Wrote {display_name(str(path))}.")


def _load_conversation(
    store: str | None, owner: str, name: str | None, branch: str | None
) -> tuple[ConversationExport, str | None, str | None]:
    """Return the conversation in the file `name` or, if there is no such file, with the id `name` in the store.

    If `name` is None, return the most recently changed conversation in the store. With it come its branch and
    its system text, as far as they are known.
    """
    if name is not None and (name == "-" or (os.path.exists(name) and not os.path.isdir(name))):
        talks = read_conversations(name)
        if len(talks) == 1:
            return talks[0], branch, None
        raise InputError(
            f"{display_name(name)} contains {pluralize(len(talks), 'conversation')}, but only one can be simulated. "
            "Import the file with `longtalk import`, and pass the id of the conversation."
        )
    with open_archive(store, owner) as archive:
        try:
            summary = find_or_latest(archive, name)
            branch = choose_branch(archive, summary, branch)
            held = archive.settings(summary.id, branch=branch)
            return archive.talk(summary.id), branch, held.system if held is not None else None
        except InputError as problem:
            raise InputError(f"{'' if name is None else 'File not found. '}{problem}") from None


def _print_report(model: SimulatedModel, names: Sequence[str], results: Sequence[SimulatedRun]) -> None:
    best = results[-1]
    counts = f"{pluralize(best.turns, 'turn')}, {pluralize(len(best.prompts), 'call')}"
    print_text(f"{escape_line(model.label)}  {counts}")
    room = shutil.get_terminal_size().columns
    print_text(wrap(_format_prices(model.prices), room))
    print_table(_COLUMNS, ((name, *_format_result(result, best)) for name, result in zip(names, results, strict=True)))
    print_text("\nTokens of each request, from first to last:")
    top = max(max(result.prompts, default=0) for result in results)
    label = min(max(map(len, names)), room // 2)
    width = max(10, room - label - len(f"{top:,}") - 4)
    for name, result in zip(names, results, strict=True):
        print_text(
            f"{cut(name, label):{label}}  {plot(result.prompts, top, width)}  {max(result.prompts, default=0):,}"
        )


def _format_result(result: SimulatedRun, best: SimulatedRun) -> tuple[str, ...]:
    # The cost of an incomplete replay would look too cheap.
    cost = None if result.problem else result.cost
    sums = (
        ("-", "-") if cost is None else (format_dollars(cost.total), format_dollars(cost.total / max(1, result.turns)))
    )
    ratio = _compute_ratio(result, best)
    return (
        f"{sum(result.prompts) / max(1, len(result.prompts)):,.0f}",
        f"{max(result.prompts, default=0):,}",
        f"{result.cached:.0%}",
        f"{result.epochs:,}",
        f"{result.summaries:,}",
        *sums,
        "-" if ratio is None else f"{ratio:.2f}",
    )


def _compute_ratio(result: SimulatedRun, best: SimulatedRun) -> float | None:
    """Return the cost relative to that of the optimum (`best`), or None if either run could not be completed."""
    return None if result.problem or best.problem or not best.weight else result.weight / best.weight


def _format_prices(prices: Prices | None) -> str:
    if prices is None:
        return "Prices unknown. A token read from the cache counts as 0.1 tokens sent, a token received as 5."
    each = {
        "sent": prices.input,
        "received": prices.output,
        "read from the cache": prices.cache_read,
        "written to the cache": prices.cache_write,
    }
    listed = ", ".join(f"${format_number(price)} {what}" for what, price in each.items() if price is not None)
    above = ", ".join(f"{tier.above:,}" for tier in prices.tiers)
    return f"Per million tokens: {listed}{f'; other prices above {above} tokens' if above else ''}"


def plot(values: Sequence[int], top: int, width: int) -> str:
    """Draw values between 0 and `top` as a row of at most `width` block characters.

    If there are more values than columns, each column shows the largest of its values.
    """
    count = min(width, len(values))
    groups = (values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count))
    return "".join(_BLOCKS[max(0, (max(group) * len(_BLOCKS) - 1) // max(1, top))] for group in groups)


def _print_results(names: Sequence[str], results: Sequence[SimulatedRun]) -> None:
    for name, result in zip(names, results, strict=True):
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
            for call in result.calls
        ]
        totals = {
            "turns": result.turns,
            "calls": len(result.calls),
            "summaries": result.summaries,
            "epochs": result.epochs,
            "tokens": result.usage.input,
            "cached": result.usage.cached,
            "written": result.usage.written,
            "output": result.usage.output,
            "cost": None if result.cost is None else result.cost.total,
            "weight": result.weight,
            "ratio": _compute_ratio(result, results[-1]),
        }
        receipts = msgspec.to_builtins(result.receipts)
        print_json(
            {
                "model": result.model,
                "policy": name,
                "totals": totals,
                "calls": calls,
                "receipts": receipts,
                "problem": result.problem,
            }
        )
