"""All wires by name. Entries, states and exports store the name of their wire, so a name never changes.

An installed package can bring another wire, as an entry point of the group "longtalk.wires".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from longtalk._util.plugins import Plugins
from longtalk.errors import InputError
from longtalk.wires.agents import claude_cli, codex_cli, gemini_cli
from longtalk.wires.anthropic import wire as anthropic
from longtalk.wires.gemini import wire as gemini
from longtalk.wires.neutral import LONGTALK
from longtalk.wires.openai_chat import wire as openai_chat
from longtalk.wires.openai_responses import wire as openai_responses
from longtalk.wires.protocol import Wire

_HTTP: tuple[Wire, ...] = (openai_chat.WIRE, openai_responses.WIRE, anthropic.WIRE, gemini.WIRE)
_AGENTS: tuple[Wire, ...] = (claude_cli.WIRE, gemini_cli.WIRE, codex_cli.WIRE)

HTTP_WIRES: Mapping[str, Wire] = {wire.name: wire for wire in _HTTP}
AGENTS: Mapping[str, Wire] = {wire.name: wire for wire in _AGENTS}


def _check_wire(name: str, wire: Any) -> Wire:
    if isinstance(wire, type) or getattr(wire, "name", None) != name or not hasattr(wire, "build_request"):
        raise InputError(f"The wire {name!r} must be an object with this `name` and the methods of Wire, not {wire!r}.")
    found: Wire = wire
    return found


WIRES: Plugins[Wire] = Plugins({**HTTP_WIRES, **AGENTS}, "longtalk.wires", _check_wire)


class _WireNames(Collection[str]):
    """The names of all wires, without loading those that packages offer."""

    def __contains__(self, name: object) -> bool:
        return name == LONGTALK or name in WIRES

    def __iter__(self) -> Iterator[str]:
        return iter((*WIRES.list_names(), LONGTALK))

    def __len__(self) -> int:
        return len(WIRES.list_names()) + 1


NAMES = _WireNames()
"""The name of every wire that an entry may have, including the neutral grammar of events and system messages."""


def find_family(wire: Wire) -> str:
    """Return the name of the HTTP wire that a wire is or is derived from, or "" if it has its own grammar."""
    if wire.name in HTTP_WIRES:
        return wire.name
    return next((name for name, own in HTTP_WIRES.items() if isinstance(wire, type(own))), "")
