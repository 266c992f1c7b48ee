"""The grammars that providers speak, by name."""

from collections.abc import Mapping

from longtalk.wires import anthropic, openai_chat
from longtalk.wires.base import LONGTALK, Wire

WIRES: Mapping[str, Wire] = {wire.name: wire for wire in (openai_chat.WIRE, anthropic.WIRE)}
NAMES = frozenset((*WIRES, LONGTALK))
