"""All wires by name. Entries, states and exports store the name of their wire, so a name never changes."""

from __future__ import annotations

from collections.abc import Mapping

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
WIRES: Mapping[str, Wire] = {**HTTP_WIRES, **AGENTS}
NAMES = frozenset((*WIRES, LONGTALK))
"""The name of every wire that an entry may have, including the neutral grammar of events and system messages."""
