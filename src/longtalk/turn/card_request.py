"""Ask a small model for a memory card in a request of its own, whose answer is bound to a JSON schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from longtalk.memory.brief.schema import Brief
from longtalk.memory.cards.facts import SCHEMA, list_new_messages, make_card, render_facts_prompt
from longtalk.observation import Observer, log_suppressed
from longtalk.providers.base import AsyncProvider
from longtalk.transcript.transcript import Transcript
from longtalk.turn.provider_client import AsyncProviderClient
from longtalk.turn.summarizer import make_summary_options
from longtalk.wires.protocol import Preamble, Quirks
from longtalk.wires.schemas import OutputSchema

_MIN_ANSWER_LIMIT = 400
"""The number of tokens that the answer may have at least, whatever limit the app has set for answers."""


class CardAnswer(NamedTuple):
    """The result of a request for a card."""

    content: str = ""
    """The content of the card; "" if the request failed."""
    usage: bytes | None = None
    """The provider's usage report."""
    was_sent: bool = False


async def ask_for_card(
    transcript: Transcript,
    config: Brief,
    *,
    provider: AsyncProvider,
    options: Mapping[str, Any],
    quirks: Quirks,
    observer: Observer,
) -> CardAnswer:
    """Request a card about the user's new messages once. If that fails, the turn continues without a card."""
    wire, messages = provider.wire, list_new_messages(transcript)
    if not messages:
        return CardAnswer("{}")
    options = wire.sessionless_options(make_summary_options(options, longest=_MIN_ANSWER_LIMIT))
    with_schema = None if quirks.no_schemas else wire.add_schema(options, OutputSchema("facts", SCHEMA))
    if with_schema is None:
        return CardAnswer()
    body = wire.build_request(
        model=provider.model,
        preamble=Preamble(),
        pieces=(wire.write_user(render_facts_prompt(messages)),),
        mark=0,
        options=with_schema,
        quirks=wire.quirks_for(with_schema, quirks),
        stream=False,
    )
    client = AsyncProviderClient(provider)
    observer.begin_call("card")
    try:
        with observer:
            answer = client.understand(wire.parse, await client.send(body))
    except Exception as problem:
        log_suppressed("the request for a memory card failed", problem)
        return CardAnswer(was_sent=True)
    card = make_card(answer.view.text, messages, config) if answer.finish == "stop" else ""
    observer.end_call(answer.usage, error="" if card else "BadCard")
    return CardAnswer(card, answer.usage, was_sent=True)
