"""`longtalk stats`: a conversation, or all of them, in numbers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from longtalk.cli.out import one_line, put, put_json
from longtalk.cli.store import known, opened
from longtalk.stats import Stats


def run(*, store: str | None, owner: str, id: str | None, as_json: bool) -> None:  # noqa: A002
    """Print the numbers."""
    with opened(store, owner, whole=id is None) as archive:
        if id is not None:
            known(archive, id)
        stats = archive.stats(id)
        if as_json:
            put_json(msgspec.to_builtins(stats))
            return
        for name, value in _rows(stats):
            put(f"{name:15}  {one_line(value)}")


def _rows(stats: Stats) -> list[tuple[str, str]]:
    usage = stats.usage
    return [
        ("conversations", f"{stats.conversations:,}"),
        ("branches", f"{stats.branches:,}"),
        ("entries", f"{stats.entries:,}, {stats.bytes:,} bytes"),
        ("turns", f"{sum(stats.turns.values()):,}{_named(stats.turns)}"),
        ("models", f"{len(stats.models):,}{_named(stats.models)}"),
        ("tokens sent", f"{usage.input:,}, {usage.cached:,} of them cached"),
        ("tokens received", f"{usage.output:,}"),
    ]


def _named(counts: Mapping[str, int]) -> str:
    each = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
    return f" ({each})" if each else ""
