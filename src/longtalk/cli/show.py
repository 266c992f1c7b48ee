"""`longtalk show`: what was said in a conversation, or in a state file, for reading."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from longtalk.cli import files
from longtalk.cli.out import put, put_json, when
from longtalk.cli.store import branch_of, known_or_newest, opened
from longtalk.said import Said, read
from longtalk.wires import WIRES


def run(
    *,
    store: str | None,
    owner: str,
    id: str | None,  # noqa: A002
    branch: str | None,
    state: str | None,
    as_json: bool,
) -> None:
    """Print a conversation."""
    if state is not None:
        said = read(files.transcript(files.shown(state), files.read(state)))
    else:
        with opened(store, owner) as archive:
            summary = known_or_newest(archive, id)
            said = archive.history(summary.id, branch=branch_of(summary, branch))
    if as_json:
        for each in said:
            members = {
                name: getattr(each, name) for name in ("id", "turn", "role", "at", "mark", "meta", "wire", "text")
            }
            put_json(msgspec.to_builtins(members), native=each.native)
    else:
        put_said(said)


def put_said(said: Sequence[Said]) -> None:
    """Entries for reading. Texts are indented: none can look like the head of another entry."""
    for number, each in enumerate(said):
        put("\n" if number else "", end="")
        odd = f"  ({each.mark})" if each.mark else ""
        put(f"{when(each.at, seconds=True)}  {_who(each)}  {each.id}{odd}")
        for part in (each.text, *_beside(each)):
            if part.strip():
                put("\n".join(f"    {line}".rstrip(" ") for line in part.strip("\r\n").split("\n")))


def _who(said: Said) -> str:
    if said.role != "event":
        return said.role
    try:
        return f"event of {' '.join(json.loads(said.native)['source'].split())}"
    except (ValueError, LookupError, TypeError, AttributeError):
        return said.role


def _beside(said: Said) -> list[str]:
    """What a model did beside its text: what it refused, what it called."""
    if said.wire not in WIRES:
        return []
    try:
        view = WIRES[said.wire].view(said.native)
    except (ValueError, LookupError, TypeError):
        return []
    calls = [f"→ {call.name}({call.arguments.decode('utf-8', 'replace')})" for call in view.calls]
    return [view.refusal, *calls]
