"""Answers that were cut off before the provider had reported their usage count by estimate."""

from __future__ import annotations

import pytest

from longtalk import Archive, Conversation
from longtalk.errors import Overloaded
from longtalk.events import Text
from longtalk.models import registry
from longtalk.models.call_cost import FREE, Prices
from longtalk.providers.base import Capabilities
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, Step, says
from longtalk.usage import Usage
from longtalk.wires import WIRES

STORY = says("Once upon a time there was a violin.")
USED = {"prompt_tokens": 50, "completion_tokens": 25}
CALL = says("Let me see.", calls=[("c1", "lookup", {"q": "violins"})], usage=USED)
BROKEN = Step(b"", (*STORY.events[:3], Overloaded("gone")))
PRICES = Prices(input=1_000, output=2_000)


def lookup(q: str) -> str:
    """Look something up."""
    return f"about {q}"


@pytest.fixture
def store() -> InMemory:
    return InMemory()


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the model prices."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr(registry, "_registered", {})
    registry.register({"provider": "openai", "name": "teller", "prices": {"input": 1_000, "output": 2_000}})


def talk(
    store: InMemory, *steps: Step | Overloaded, prices: Prices | None = PRICES, wire: str = "openai-chat"
) -> Conversation:
    model = Scripted(*steps, wire=WIRES[wire])
    model.label = "openai:teller"
    model.capabilities = Capabilities(prices=prices)
    return Conversation("c", model=model, store=store, tools=[lookup])


def stop(one: Conversation) -> None:
    """Stop an answer after its first text."""
    with one.stream("Tell me a story.") as stream:
        for event in stream:
            if isinstance(event, Text):
                break


@pytest.mark.usefixtures("known")
def test_a_stopped_answer_counts_with_its_request_and_what_had_come(store: InMemory) -> None:
    one = talk(store, STORY)
    stop(one)
    (turn,) = one.metrics()
    answer = next(iter(store.read("", "c", "main", 1, 2).entries()))
    assert (turn.status, turn.calls, turn.estimated) == ("interrupted", 1, True)
    assert turn.usage == Usage(input=turn.total, output=answer.tokens)
    assert min(turn.total, answer.tokens) > 0
    assert turn.cost == pytest.approx((1_000 * turn.total + 2_000 * answer.tokens) / 1_000_000)
    stats = Archive(store).stats("c")
    assert (stats.usage, stats.cost, stats.estimated, stats.unpriced) == (turn.usage, turn.cost, 1, 0)
    (day,) = Archive(store).daily("c")
    assert (day.usage, day.cost, day.estimated, day.unpriced) == (turn.usage, turn.cost, 1, 0)


@pytest.mark.usefixtures("known")
def test_the_estimate_is_added_to_the_calls_that_were_reported(store: InMemory) -> None:
    one = talk(store, CALL, BROKEN)
    with pytest.raises(Overloaded), one.stream("Tell me a story.") as stream:
        list(stream)
    (turn,) = one.metrics()
    answer = list(store.read("", "c", "main", 0, 9).entries())[-1]
    assert (turn.status, turn.calls, turn.estimated) == ("failed", 2, True)
    assert turn.usage == Usage(input=50 + turn.total, output=25 + answer.tokens)
    assert turn.cost == pytest.approx((1_000 * turn.usage.input + 2_000 * turn.usage.output) / 1_000_000)


@pytest.mark.usefixtures("known")
def test_an_export_keeps_what_the_estimate_comes_from(store: InMemory) -> None:
    one = talk(store, STORY)
    stop(one)
    before, other = one.metrics(), Archive(InMemory())
    other.load(Archive(store).export("c", "jsonl"))
    assert other.metrics("c") == before


def test_without_known_prices_the_cost_of_an_estimate_is_unknown(store: InMemory) -> None:
    one = talk(store, STORY)
    stop(one)
    (turn,) = one.metrics()
    assert (turn.estimated, turn.cost) == (True, None)
    assert Archive(store).stats("c").unpriced == 1


@pytest.mark.usefixtures("known")
def test_a_stopped_answer_of_a_free_model_stays_free(store: InMemory) -> None:
    one = talk(store, STORY, prices=FREE)
    stop(one)
    (turn,) = one.metrics()
    assert (turn.estimated, turn.cost) == (True, 0.0)


@pytest.mark.usefixtures("known")
def test_a_request_that_was_refused_counts_nothing(store: InMemory) -> None:
    one = talk(store, *[Overloaded("busy", retry_after=0)] * 3)
    with pytest.raises(Overloaded):
        one.send("Tell me a story.")
    assert [(turn.usage, turn.estimated) for turn in one.metrics()] == [(Usage(), False)]
    assert Archive(store).stats("c").estimated == 0


def test_a_cut_answer_whose_usage_was_reported_is_not_estimated(store: InMemory) -> None:
    one = talk(store, says("Once upon a time there was a violin.", wire="anthropic"), wire="anthropic")
    stop(one)
    (turn,) = one.metrics()
    assert (turn.usage.input, turn.calls, turn.estimated) == (10, 1, False)


@pytest.mark.usefixtures("known")
def test_prices_do_not_hold_at_another_address(store: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    one = talk(store, STORY)
    stop(one)
    assert one.metrics()[0].cost is not None
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert one.metrics()[0].cost is None
