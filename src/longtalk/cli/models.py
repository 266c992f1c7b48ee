"""`longtalk models`: the models that are known, with their limits and prices."""

from __future__ import annotations

import sys

import msgspec

from longtalk.cli.out import number, put_json, put_table, say
from longtalk.models import Model, models

_HEAD = ("model", "window", "answer", "cache", "in", "out", "cached", "written", "long requests")


def run(*, words: tuple[str, ...], provider: str | None, as_json: bool) -> None:
    """Print a line for each model."""
    found = list(models(" ".join(words), provider=provider))
    if not found:
        say("No model that is known is called like this: `longtalk models` lists all.")
        raise SystemExit(1)
    if as_json:
        for model in found:
            put_json({"label": model.label, **msgspec.to_builtins(model)})
        return
    # Whoever reads it from a pipe wants models alone.
    put_table([*([_HEAD] if sys.stdout.isatty() else []), *map(_row, found)])
    say(f"{number(len(found), 'model')}. Prices are US dollars for a million tokens.")


def _row(model: Model) -> tuple[str, ...]:
    limits = (shown(model.window), shown(model.output_limit), model.cache or "-")
    if model.prices is None:
        return (model.label, *limits, "-", "-", "-", "-", "-")
    prices = (model.prices.input, model.prices.output, model.prices.cache_read, model.prices.cache_write)
    longer = [f"above {tier.above:,}: {shown(tier.input)} in, {shown(tier.output)} out" for tier in model.prices.tiers]
    return (model.label, *limits, *map(shown, prices), "; ".join(longer) or "-")


def shown(value: float | None) -> str:
    """A number; `-` where it is not known."""
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.12g}"
