"""The inputs of a simulation: the recorded conversation, the model to simulate, and how tokens are counted."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import msgspec

from longtalk._util.suggest import suggest
from longtalk.context.costs import CACHE_SECONDS, Ratios, compute_ratios
from longtalk.context.measure import MAX_ANSWER_ROOM
from longtalk.errors import InputError
from longtalk.models import registry
from longtalk.models.call_cost import FREE, Prices
from longtalk.providers.registry import PROVIDERS
from longtalk.tokens import Counter, count_message, count_preamble, counter_for
from longtalk.transcript.transcript import Transcript
from longtalk.wires import WIRES
from longtalk.wires.entries import read_text
from longtalk.wires.neutral import LONGTALK
from longtalk.wires.protocol import Preamble, Wire

_PAUSE = 60_000
"""The assumed time between two entries in milliseconds, if the conversation has no usable times."""


class SimulatedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model to simulate: its prices, context window and cache."""

    label: str
    prices: Prices | None = None
    window: int | None = None
    caches: bool = True
    cache_seconds: int = CACHE_SECONDS

    @classmethod
    def from_label(cls, label: str) -> SimulatedModel:
        """Return the model with this label from the registry; raise `InputError` if it is unknown."""
        found = registry.find(label)
        if found is None and label.partition(":")[0] == "local":
            return cls(label=label, prices=FREE, window=PROVIDERS["local"].capabilities.window)
        if found is None:
            hint = suggest(label, (each.label for each in registry.models("")))
            raise InputError(
                f"The model {label!r} is unknown.{hint} `longtalk models` lists the known models; to add one, describe "
                "it in models.json in your config folder."
            )
        limits = [limit for limit in (found.window, found.input_limit) if limit is not None]
        return cls(
            label=label,
            prices=found.prices,
            window=min(limits, default=None),
            caches=found.cache != "none",
            cache_seconds=found.cache_seconds or CACHE_SECONDS,
        )

    @property
    def ratios(self) -> Ratios:
        """The cost of each kind of token, relative to an uncached input token."""
        return compute_ratios(self.prices, 0, caches=self.caches)

    @property
    def answer(self) -> int:
        """The number of tokens in the context window that are reserved for an answer."""
        return min((self.window or 0) // 8, MAX_ANSWER_ROOM)

    @property
    def bills_writes(self) -> bool:
        """Whether the provider reports tokens written to its cache and bills them at a price of their own."""
        return self.ratios.write != 1


class Trace:
    """The recorded conversation to replay: its entries, their times, and the positions of the model's answers."""

    def __init__(self, transcript: Transcript, system: str | None) -> None:
        entries = list(transcript)
        if not entries:
            raise InputError("There is nothing to simulate: the conversation is empty.")
        wires = transcript.wires() - {LONGTALK}
        if len(wires) > 1 or not all(wire in WIRES for wire in wires):
            raise InputError(
                "Only a conversation in one message format (wire) that Longtalk knows can be simulated, "
                f"not {', '.join(sorted(wires))}."
            )
        self.wire: Wire = WIRES[wires.pop() if wires else "openai-chat"]
        while system is None and entries and entries[0].role == "system":
            system = read_text(entries.pop(0))
        self.skipped = len(transcript) - len(entries)
        """The number of entries at the start that became the system text."""
        self.preamble = Preamble(system=system)
        self.entries = entries
        self.answers = [i for i, entry in enumerate(entries) if entry.role == "assistant" and i]
        """The positions of the model's answers, except one at the very start, which no request preceded."""
        if not self.answers:
            raise InputError("There is nothing to simulate: the conversation has no answer to a message.")
        at = [entry.at for entry in entries]
        is_usable = at == sorted(at) and at[0] > 0 and at[-1] > at[0]
        self.at = at if is_usable else [_PAUSE * (1 + i) for i in range(len(entries))]


class CachedCounter:
    """A counter of the tokens of messages that remembers its results. `preamble` is the number for the preamble."""

    def __init__(self, counter: Counter, preamble: Preamble) -> None:
        self.counter = counter
        self.preamble = count_preamble(preamble.system, preamble.tools, counter)
        self.count = lru_cache(maxsize=None)(lambda native: count_message(native, counter))


class ReplaySetup:
    """The inputs of a replay: the conversation, the model, and how to count tokens and make summaries."""

    def __init__(
        self, trace: Trace, model: SimulatedModel, summary: Callable[[int, int, Counter], str], reports: Counter | None
    ) -> None:
        self.trace = trace
        self.model = model
        self.summary = summary
        """A function that returns a placeholder summary, with the parameters of `placeholder_summary`."""
        self.estimated = CachedCounter(counter_for(model.label), trace.preamble)
        self.reported = self.estimated if reports is None else CachedCounter(reports, trace.preamble)
