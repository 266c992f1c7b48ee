"""The suite for providers, with a real model behind each of the ways in which its engine can be spoken to."""

from __future__ import annotations

from typing import Any

import pytest

from longtalk import AsyncChat, Chat
from longtalk.providers.local.engine import get_engine
from longtalk.providers.local.weights import find_weights
from longtalk.testing.providers.suite import CASES, Blocking, check_provider

SHORT = {"max_tokens": 24, "temperature": 0}
WAYS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "chat": ("llamacpp:local", "/v1", SHORT),
    "responses": ("openai:local", "/v1", {"max_output_tokens": 24, "temperature": 0}),
    "messages": ("anthropic:local", "", SHORT),
}
SCRIPTED = [case.name for case in CASES if case.scripted]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_engine_keeps_the_contract_over_three_wires(way: str) -> None:
    name, path, options = WAYS[way]
    running = get_engine(find_weights(""), context=4096)
    report = check_provider(
        lambda: Chat(name, base_url=running.url + path, api_key=running.key).provider, options=options
    )
    report.raise_for_failures()
    assert list(report.skipped) == SCRIPTED


@pytest.mark.slow
def test_the_local_provider_keeps_the_contract() -> None:
    report = check_provider(lambda: Chat("local").provider, options=SHORT)
    report.raise_for_failures()
    assert list(report.skipped) == SCRIPTED


@pytest.mark.slow
def test_the_async_local_provider_keeps_the_contract() -> None:
    report = check_provider(lambda: Blocking(AsyncChat("local").provider), options=SHORT)
    report.raise_for_failures()
    assert list(report.skipped) == SCRIPTED
