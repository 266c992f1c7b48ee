"""What `tools/registry.py` makes of its sources: facts that both agree on, and the same bytes each time."""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "registry.py"
DATE = dt.date(2026, 11, 15)

TABLE = """
raise SystemExit("nobody runs this")
providers: list[Provider] = [
    Provider(id='anthropic', models=[
        ModelInfo(
            id='one', match=ClauseOr(or_=[ClauseEquals(equals='uno'), ClauseStartsWith(starts_with='one')]),
            context_window=1000000,
            prices=[
                ConditionalPrice(prices=ModelPrice(input_mtok=Decimal('9'), output_mtok=Decimal('9'))),
                ConditionalPrice(
                    constraint=StartDateConstraint(start_date=date(2026, 1, 1)),
                    prices=ModelPrice(
                        input_mtok=TieredPrices(base=Decimal('0.1'), tiers=[Tier(start=200000, price=Decimal('0.2'))]),
                        output_mtok=Decimal('0.3'), cache_write_mtok=Decimal('0.05'),
                    ),
                ),
                ConditionalPrice(
                    constraint=StartDateConstraint(start_date=date(2027, 1, 1)),
                    prices=ModelPrice(input_mtok=Decimal('7'), output_mtok=Decimal('7')),
                ),
            ],
        ),
        ModelInfo(
            id='night', match=ClauseEquals(equals='night'), context_window=5000,
            prices=[
                ConditionalPrice(prices=ModelPrice(input_mtok=Decimal('1'), output_mtok=Decimal('1'))),
                ConditionalPrice(
                    constraint=TimeOfDateConstraint(start_time=time(1, 0), end_time=time(4, 0)),
                    prices=ModelPrice(input_mtok=Decimal('2'), output_mtok=Decimal('2')),
                ),
            ],
        ),
        ModelInfo(
            id='quarrel', match=ClauseEquals(equals='quarrel'), context_window=5000,
            prices=ModelPrice(input_mtok=Decimal('1'), output_mtok=Decimal('1')),
        ),
        ModelInfo(id='embed-1', match=ClauseEquals(equals='embed-1'), prices=ModelPrice(input_mtok=Decimal('1'))),
    ]),
    OTHERS
]
"""


def said(sent: float, received: float, **more: Any) -> dict[str, Any]:
    prices = {"input_cost_per_token": sent / 1e6, "output_cost_per_token": received / 1e6}
    return {"litellm_provider": "anthropic", "mode": "chat", "max_input_tokens": 5_000, **prices, **more}


FACTS = {
    "one": said(
        0.1,
        0.3,
        max_input_tokens=900_000,
        max_output_tokens=100_000,
        cache_read_input_token_cost=1e-8,
        supports_function_calling=True,
        supports_reasoning=True,
    ),
    "quarrel": said(2, 1),
    "alone": said(1, 2, max_output_tokens=5_000),
    "alone-20260101": said(1, 2, max_output_tokens=5_000),
    "alone-20250101": said(3, 4),
    "nothing": said(0, 0),
    "painter": said(1, 2, mode="image_generation"),
    "elsewhere": {**said(1, 2), "litellm_provider": "azure"},
}


@pytest.fixture
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("registry_tool", TOOL)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wheels(tmp_path: Path, tool: Any) -> dict[str, Path]:
    others = ", ".join(
        f"Provider(id={theirs!r}, models=[])" for theirs, *_ in tool.NAMES.values() if theirs != "anthropic"
    )
    table = TABLE.replace("OTHERS", others)
    made = {}
    for name, text in (("genai-prices", table), ("litellm", json.dumps(FACTS))):
        made[name] = tmp_path / f"{name.replace('-', '_')}-1.2.3-py3-none-any.whl"
        with zipfile.ZipFile(made[name], "w") as wheel:
            wheel.writestr(tool.PACKAGES[name], text)
    return made


@pytest.fixture
def rows(tool: Any, wheels: dict[str, Path]) -> dict[str, Any]:
    found: dict[str, Any] = tool.build(wheels, DATE)["providers"]["anthropic"]["models"]
    return found


def test_what_both_say_is_put_together_as_it_is_on_that_day(rows: dict[str, Any]) -> None:
    assert rows["one"] == {
        "window": 1_000_000,
        "input_limit": 900_000,
        "output_limit": 100_000,
        "tools": True,
        "cache": "marks",
        "binds_thinking": True,
        "prices": {
            "input": 0.1,
            "output": 0.3,
            "cache_read": 0.01,
            "tiers": [{"above": 200_000, "input": 0.2, "output": 0.3}],
        },
    }


def test_what_they_disagree_about_and_what_changes_by_the_hour_has_no_price(rows: dict[str, Any]) -> None:
    assert [(rows[name]["window"], rows[name].get("prices")) for name in ("quarrel", "night")] == [(5_000, None)] * 2


def test_zero_is_no_price(rows: dict[str, Any]) -> None:
    assert "prices" not in rows["nothing"]


def test_a_dated_model_is_listed_where_it_differs(rows: dict[str, Any]) -> None:
    assert {name for name in rows if name.startswith("alone")} == {"alone", "alone-20250101"}
    assert "output_limit" not in rows["alone"]


def test_only_models_that_talk_and_are_there_are_listed(rows: dict[str, Any]) -> None:
    assert not {"painter", "elsewhere", "embed-1"} & rows.keys()


def test_the_file_names_its_sources_and_other_names_of_models(tool: Any, wheels: dict[str, Path]) -> None:
    file = tool.build(wheels, DATE)
    assert file["built"] == "2026-11-15"
    assert file["sources"] == [
        {"package": name, "version": "1.2.3", "licence": "MIT"} for name in ("genai-prices", "litellm")
    ]
    assert file["providers"]["anthropic"]["aliases"] == {"uno": "one"}
    assert file["providers"]["openai-chat"]["models_of"] == "openai"
    assert file["providers"]["openai-chat"]["cache_seconds"] == 300


@pytest.mark.parametrize(
    ("provider", "name", "seconds"),
    [
        ("openai", "gpt-5.4", None),
        ("openai", "gpt-5.5-pro", 1_800),
        ("openai", "gpt-6.1-sol", 1_800),
        ("openrouter", "anthropic/claude-sonnet-5", 300),
        ("openrouter", "openai/gpt-5.5", None),
        ("groq", "gpt-6", None),
    ],
)
def test_a_model_is_cached_for_its_own_time_where_that_is_stated(
    tool: Any, provider: str, name: str, seconds: int | None
) -> None:
    assert tool._with_cache_time(provider, name, {"cache": "automatic"}).get("cache_seconds") == seconds
    assert tool._with_cache_time(provider, name, {"cache": "none"}) == {"cache": "none"}


def test_the_same_sources_give_the_same_bytes(tool: Any, wheels: dict[str, Path]) -> None:
    assert tool.compress(tool.build(wheels, DATE)) == tool.compress(tool.build(wheels, DATE))
