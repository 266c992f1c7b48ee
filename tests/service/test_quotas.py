"""Tokens and cost per day: counted for each owner by all processes, refused above the limit until midnight."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest

from longtalk.models.call_cost import Prices
from longtalk.observation import Observation
from longtalk.providers.base import Capabilities
from longtalk.service.errors import ApiError
from longtalk.service.models import ServedModel
from longtalk.service.quotas import DayUsage, Quotas
from longtalk.service.settings import Limits, Settings
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, says
from longtalk.usage import Usage
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve
from tests.service.test_runs import Waiting

USAGE = {"prompt_tokens": 900, "completion_tokens": 100, "total_tokens": 1000}
DAY = 24 * 3_600_000


def scripted(*texts: str) -> AsyncScripted:
    """Return a provider whose answers take 1,000 tokens each and cost 19 cents."""
    provider = AsyncScripted(*(says(text, usage=USAGE) for text in texts))
    provider.capabilities = Capabilities(prices=Prices(input=100, output=1000))
    return provider


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (Limits(tokens_per_day=2000), "tokens_per_day_exceeded"),
        (Limits(cost_per_day=0.38), "cost_per_day_exceeded"),
    ],
)
def test_once_the_limit_of_a_day_is_reached_the_next_turn_is_refused(serve: Serve, limits: Limits, code: str) -> None:
    client = serve(settings=Settings(limits=limits), m=scripted("One.", "Two.", "Three.")).client(max_retries=5)
    client.responses.create(model="m", input="1")
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": "2"}])
    with pytest.raises(openai.RateLimitError) as caught:
        client.responses.create(model="m", input="3")
    assert caught.value.code == code
    assert 1 <= int(caught.value.response.headers["retry-after"]) <= 86_401


def test_a_cancelled_turn_counts_with_what_the_provider_has_reported(serve: Serve) -> None:
    usage = {"input_tokens": 900, "output_tokens": 3}
    provider = Waiting(says("One two three.", wire="anthropic", usage=usage), wire=HTTP_WIRES["anthropic"])
    served = serve(settings=Settings(limits=Limits(tokens_per_day=900)), m=provider)
    client = served.client()
    made = client.responses.create(model="m", input="Count.", background=True)
    assert provider.began.wait(60)
    ended = client.responses.cancel(made.id)
    assert ended.usage is not None
    assert (ended.status, ended.usage.input_tokens) == ("cancelled", 900)
    with pytest.raises(openai.RateLimitError):
        client.responses.create(model="m", input="On.")


def test_all_processes_count_together(serve: Serve, tmp_path: Path) -> None:
    settings = Settings(limits=Limits(tokens_per_day=1000))
    one, other = (serve(store=SQLite(tmp_path / "t.db"), settings=settings, m=scripted("Hi.")) for _ in range(2))
    one.client().responses.create(model="m", input="1")
    with pytest.raises(openai.RateLimitError):
        other.client().responses.create(model="m", input="2")


def test_a_model_without_known_prices_is_refused_where_cost_is_limited(serve: Serve) -> None:
    client = serve(settings=Settings(limits=Limits(cost_per_day=5)), m=AsyncScripted(says("Hi."))).client()
    with pytest.raises(openai.BadRequestError, match="prices of 'm' are unknown") as caught:
        client.responses.create(model="m", input="1")
    assert caught.value.code == "price_unknown"


def quotas_at(times: list[int], storage: Any = None) -> Quotas:
    return Quotas(Limits(tokens_per_day=10), storage or InMemoryStorage(lambda: times[0]), clock=lambda: times[0])


def count(quotas: Quotas, owner: str, tokens: int) -> None:
    policy: Any = None
    on_event = quotas.observe(owner, ServedModel("m", scripted(), policy, {}, ""), {})
    assert on_event is not None
    on_event(Observation(kind="model_call", usage=Usage(input=tokens)))


def test_the_count_begins_again_at_midnight() -> None:
    async def use() -> None:
        times = [DAY - 10_000]
        quotas = quotas_at(times)
        count(quotas, "ada", 10)
        await quotas.store("ada")
        with pytest.raises(ApiError) as caught:
            await quotas.check("ada")
        assert caught.value.headers == {"retry-after": "10"}
        await quotas.check("bob")
        times[0] = DAY
        await quotas.check("ada")

    asyncio.run(use())


def test_parallel_turns_lose_no_tokens() -> None:
    async def use() -> None:
        storage = InMemoryStorage(lambda: 0)
        several = [quotas_at([0], storage) for _ in range(3)]
        for quotas in several * 10:
            count(quotas, "ada", 1)
        await asyncio.gather(*(quotas.store("ada") for quotas in several))
        assert await several[0].read("ada") == DayUsage(30, 0.003)

    asyncio.run(use())


def test_what_could_not_be_stored_is_stored_later() -> None:
    class Failing(InMemoryStorage):
        fails = True

        def put(self, *given: Any, **more: Any) -> Any:
            if self.fails:
                raise OSError("full")
            return super().put(*given, **more)

    async def use() -> None:
        storage = Failing(lambda: 0)
        quotas = quotas_at([0], storage)
        count(quotas, "ada", 10)
        await quotas.store("ada")
        with pytest.raises(ApiError):
            await quotas.check("ada")
        storage.fails = False
        await quotas.store("ada")
        assert (await quotas.read("ada")).tokens == 10

    asyncio.run(use())
