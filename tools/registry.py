"""Build the model registry: `python tools/registry.py [WHEEL WHEEL] [--date 2026-11-15]`; `--check` only checks it.

The facts (numbers, names, flags) come from two packages, `genai-prices` and `litellm`, both MIT: see NOTICE. Their
wheels are read, never run; missing ones are downloaded with pip. The same wheels and the same date give the same bytes.

A price is left out if the two packages disagree about it, or if it changes with the time of day.
"""

from __future__ import annotations

import argparse
import ast
import datetime as dt
import gzip
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "src"))

from longtalk.models import registry as models  # noqa: E402
from longtalk.models.call_cost import Prices  # noqa: E402
from longtalk.providers.registry import PROVIDERS  # noqa: E402

FILE = Path(models.DATA_PATH)
MAX_BYTES = 150_000
PACKAGES = {"genai-prices": "genai_prices/data.py", "litellm": "litellm/model_prices_and_context_window_backup.json"}
LICENCE = "MIT"

# Longtalk's provider name: its names in genai-prices and litellm, and litellm's prefix of model names.
NAMES = {
    "openai": ("openai", "openai", ""),
    "anthropic": ("anthropic", "anthropic", ""),
    "gemini": ("google", "gemini", "gemini/"),
    "openrouter": ("openrouter", "openrouter", "openrouter/"),
    "groq": ("groq", "groq", "groq/"),
    "mistral": ("mistral", "mistral", "mistral/"),
    "deepseek": ("deepseek", "deepseek", "deepseek/"),
    "together": ("together", "together_ai", "together_ai/"),
    "xai": ("x-ai", "xai", "xai/"),
}
# Providers that can keep a conversation.
KEEPS_STATE = ("openai",)
MODELS_OF = {"openai-chat": "openai"}
# Providers that send thinking as blocks bound to their position, and as text. OpenRouter does either.
BOUND_THINKING = ("anthropic", "openai", "gemini")
TEXT_THINKING = ("openai-chat", "groq", "mistral", "deepseek", "together", "xai")
# How long a provider caches the start of a request after its last use: the shortest time that its docs state.
# Anthropic, "Prompt caching": 5 minutes after each use; an hour only if a request asks for it.
# OpenAI, "Prompt caching": 5 to 10 minutes, longer for some models and accounts; from GPT-5.5 on about 30 for all.
# Groq, "Prompt Caching": 2 hours. DeepSeek, "Context Caching": a few hours to a few days, so at least two hours.
# OpenRouter, "Prompt Caching": 5 minutes for Anthropic's models; for others it depends on the upstream provider.
# xAI, "Prompt Caching: Best Practices & FAQ", guarantees no time. Gemini, Mistral and Together state none.
CACHE_SECONDS = {"openai": 300, "openai-chat": 300, "anthropic": 300, "groq": 7_200, "deepseek": 7_200}
CACHE_SECONDS_OF = {"openai": (r"gpt-(5\.[5-9]|[6-9])", 1_800), "openrouter": (r"anthropic/", 300)}
# Models for other purposes than chats also have prices per token.
_OTHER_PURPOSES = re.compile(
    r"embed|whisper|tts|transcri|image|audio|realtime|moderation|ocr|voice|live|orpheus|rerank|lyria|banana"
    r"|davinci|babbage|curie|^text-|^ada$|instruct-?fim|translate|decider|guard|^clip|computer-use|robotics|streaming"
)

Row = dict[str, Any]
Rates = dict[int | None, Row]
"""Prices by the request length above which they apply; None is the base price."""


# Reading


def main() -> None:
    """Build and check the registry, or only check it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("wheels", nargs="*", type=Path)
    parser.add_argument("--date", type=dt.date.fromisoformat, default=dt.datetime.now(dt.UTC).date())
    parser.add_argument("--check", action="store_true", help="Only check the existing file.")
    given = parser.parse_args()
    # The user's own overrides must not change the result.
    setattr(models, "_overrides", dict)  # noqa: B010
    if not given.check:
        with tempfile.TemporaryDirectory() as folder:
            wheels = {
                _parse_name(path)[0]: path for path in [*given.wheels, *_download_missing(given.wheels, Path(folder))]
            }
            FILE.parent.mkdir(exist_ok=True)
            FILE.write_bytes(compress(build(wheels, given.date)))
    problems = check()
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        raise SystemExit(1)
    count = sum(1 for _ in models.models())
    print(f"{FILE.relative_to(ROOT)}: {FILE.stat().st_size:,} bytes, {count:,} models")


def _parse_name(wheel: Path) -> tuple[str, str]:
    name, version = wheel.name.split("-")[:2]
    return name.replace("_", "-"), version


def _download_missing(wheels: list[Path], folder: Path) -> list[Path]:
    missing = sorted({*PACKAGES} - {_parse_name(path)[0] for path in wheels})
    if missing:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*pip, "--dest", str(folder), *missing], check=True)
    return sorted(folder.glob("*.whl"))


def build(wheels: dict[str, Path], date: dt.date) -> Row:
    """Return the content of the registry file."""
    read = {name: zipfile.ZipFile(wheels[name]).read(path) for name, path in PACKAGES.items()}
    genai = {provider["id"]: provider["models"] for provider in _parse_table(read["genai-prices"])}
    litellm = json.loads(read["litellm"], parse_float=Decimal)
    providers: dict[str, Row] = {}
    for name, address in PROVIDERS.items():
        facts = {key: getattr(address, key) for key in ("wire", "base_url", "base_url_variable", "key_variable")}
        providers[name] = {key: value for key, value in facts.items() if value is not None}
    for name in KEEPS_STATE:
        providers[name]["keeps_state"] = True
    for name, same in MODELS_OF.items():
        providers[name]["models_of"] = same
    for name in TEXT_THINKING:
        providers[name]["binds_thinking"] = False
    for name, seconds in CACHE_SECONDS.items():
        providers[name] = {**providers[name], "cache_seconds": seconds}
    for name, (theirs, others, prefix) in NAMES.items():
        chat = {
            key.removeprefix(prefix): row
            for key, row in litellm.items()
            if row.get("litellm_provider") == others and key.startswith(prefix)
        }
        found, aliases = collect_models(name, genai[theirs], chat, date)
        found = {model: _with_cache_time(name, model, row) for model, row in found.items()}
        providers[name] = {**providers[name], "models": found, "aliases": aliases}
    sources = [{"package": name, "version": _parse_name(wheels[name])[1], "licence": LICENCE} for name in PACKAGES]
    return {"format": 1, "built": date.isoformat(), "sources": sources, "providers": providers}


def compress(file: Row) -> bytes:
    """Return the compressed file; equal content gives equal bytes."""
    return gzip.compress(_encode(file), 9, mtime=0)


def _encode(file: Row) -> bytes:
    return json.dumps(file, sort_keys=True, separators=(",", ":")).encode()


def _parse_table(source: bytes) -> list[Row]:
    """Return the table in a Python file without running the file."""
    table = next(node for node in ast.parse(source).body if isinstance(node, ast.AnnAssign))
    value: list[Row] = _parse_literal(table.value)
    return value


def _parse_literal(node: ast.expr | None) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_parse_literal(each) for each in node.elts]
    if isinstance(node, ast.Dict):
        return {_parse_literal(key): _parse_literal(value) for key, value in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.Call):
        kind = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        values = [_parse_literal(each) for each in node.args]
        if kind == "Decimal":
            return Decimal(values[0])
        if kind == "date":
            return dt.date(*values)
        return {"kind": kind, **{word.arg: _parse_literal(word.value) for word in node.keywords}}
    return None


# A provider's models


def collect_models(
    provider: str, genai: list[Row], litellm: dict[str, Row], date: dt.date
) -> tuple[Row, dict[str, str]]:
    """Return the models of a provider, and the aliases of their names."""
    rows: dict[str, Row] = {}
    group: dict[str, str] = {}
    for model in genai:
        names = [model["id"], *(name for name in _list_names(model["match"]) if name != model["id"])]
        names = [name for name in names if _is_chat_model(provider, name, litellm)]
        described = next((litellm[name] for name in names if name in litellm), {})
        same = _is_consistent(_read_genai_rates(model, date), _read_litellm_rates(described))
        for name in names:
            row = _make_row(provider, name, model, litellm.get(name, described if same else {}), date)
            if row and name not in rows:
                rows[name], group[name] = row, names[0]
    for name, said in litellm.items():
        if name not in rows and _is_chat_model(provider, name, litellm) and "input_cost_per_token" in said:
            row = _make_row(provider, name, {}, said, date)
            if row:
                rows[name] = row
    aliases: dict[str, str] = {}
    for name, row in rows.items():
        bases = [base for base in models._list_undated_names(name)[1:] if rows.get(base) == row and base not in aliases]
        main = group.get(name, name)
        if bases:
            # A lookup finds it without its date.
            aliases[name] = ""
        elif main != name and rows.get(main) == row and main not in aliases:
            aliases[name] = main
    found = {name: row for name, row in rows.items() if name not in aliases}
    return found, {name: main for name, main in aliases.items() if main}


def _list_names(match: Row) -> Iterator[str]:
    if match["kind"] == "ClauseEquals":
        yield match["equals"]
    elif match["kind"] == "ClauseOr":
        for each in match["or_"]:
            yield from _list_names(each)


def _is_chat_model(provider: str, name: str, litellm: dict[str, Row]) -> bool:
    """Return True if the name is that of a model for conversations."""
    said = litellm.get(name, {})
    if said.get("mode", "chat") not in ("chat", "responses"):
        return False
    if "text" not in said.get("supported_output_modalities", ("text",)):
        return False
    if not re.fullmatch(r"[\w./:@+~-]*\w", name) or (provider == "openrouter") > ("/" in name):
        return False
    if provider == "gemini" and "claude" in name:
        return False
    if ":" in name and not name.startswith("ft:") and not (provider == "openrouter" and name.endswith(":free")):
        return False
    return not _OTHER_PURPOSES.search(name.lower().rpartition("/")[2])


def _make_row(provider: str, name: str, genai: Row, litellm: Row, date: dt.date) -> Row:
    """Return the facts about a model, or an empty row if there are none."""
    context = genai.get("context_window")
    sent, answer = _read_count(litellm, "max_input_tokens"), _read_count(litellm, "max_output_tokens")
    prices = _merge_prices(provider, name, genai, litellm, date)
    row: Row = {}
    if context and sent and sent < context and sent + (answer or 0) == context:
        row |= {"window": context, "input_limit": sent}
    elif context or sent:
        row["window"] = min(each for each in (context, sent) if each)
    if answer and answer < row.get("window", 0):
        row["output_limit"] = answer
    if not row and not prices:
        return {}
    flags = {"tools": "function_calling", "streaming": "native_streaming", "structured_output": "response_schema"}
    for ours, theirs in flags.items():
        if isinstance(litellm.get(f"supports_{theirs}"), bool):
            row[ours] = litellm[f"supports_{theirs}"]
    if prices or litellm:
        cached = bool(litellm.get("supports_prompt_caching")) or "cache_read" in prices
        marks = provider == "anthropic" or name.split("/")[0] == "anthropic"
        row["cache"] = "none" if not cached else "marks" if marks else "automatic"
    if provider in BOUND_THINKING and litellm.get("supports_reasoning"):
        row["binds_thinking"] = True
    if prices:
        # Drop tiers above the window, which may have become smaller.
        tiers = [tier for tier in prices.pop("tiers", ()) if tier["above"] < row.get("window", tier["above"] + 1)]
        row["prices"] = {**prices, **({"tiers": tiers} if tiers else {})}
    return row


def _with_cache_time(provider: str, name: str, row: Row) -> Row:
    """Return the row with the model's own cache time, if it has one."""
    pattern, seconds = CACHE_SECONDS_OF.get(provider, ("$^", 0))
    kept = row.get("cache", "none") != "none" and re.match(pattern, name)
    return {**row, "cache_seconds": seconds} if kept else row


def _read_count(row: Row, key: str) -> int | None:
    value = row.get(key)
    return int(value) if isinstance(value, int | Decimal) and value > 0 else None


# Prices

RATES = {
    "input": ("input_mtok", "input_cost_per_token{}"),
    "output": ("output_mtok", "output_cost_per_token{}"),
    "cache_read": ("cache_read_mtok", "cache_read_input_token_cost{}"),
    "cache_write": ("cache_write_mtok", "cache_creation_input_token_cost{}"),
    "cache_write_1h": ("cache_write_1h_mtok", "cache_creation_input_token_cost_above_1hr{}"),
}


def _merge_prices(provider: str, name: str, genai: Row, litellm: Row, date: dt.date) -> Row:
    """Return the prices on which both packages agree, or those of the only one that has prices."""
    if provider == "openrouter" and name.endswith(":free"):
        return dict.fromkeys(RATES, 0)
    first, second = _read_genai_rates(genai, date), _read_litellm_rates(litellm)
    if first is None or second is None:
        return {}
    # genai-prices says "above" and litellm "from": use the thresholds of genai-prices.
    second = {above if above is None or above - 1 not in first else above - 1: each for above, each in second.items()}
    if not first or not second:
        return _to_file_form(first or second)
    if not _is_consistent(first, second):
        print(f"{provider}:{name}: prices left out because the sources disagree")
        return {}
    merged: Rates = {}
    for above in {*first, *second}:
        one, other = first.get(above, {}), second.get(above, {})
        unsure = [key for key in RATES if key in one and key in other and not _is_near(one[key], other[key])]
        merged[above] = {key: rate for key, rate in {**other, **one}.items() if key not in unsure}
    return _to_file_form(merged)


def _is_consistent(one: Rates | None, other: Rates | None) -> bool:
    """Return True if input and output prices match wherever both sources have them."""
    if not one or not other:
        return True
    both = [above for above in one if above in other]
    return all(_is_near(one[above][key], other[above][key]) for above in both for key in ("input", "output"))


def _is_near(one: Decimal, other: Decimal) -> bool:
    return abs(one - other) <= max(one, other) * Decimal("0.02")


def _read_genai_rates(model: Row, date: dt.date) -> Rates | None:
    """Return the prices from genai-prices, empty if it has none, or None if they depend on the time of day."""
    prices = model.get("prices", {})
    if isinstance(prices, list):
        held: Row = {}
        for each in prices:
            when = each.get("constraint") or {}
            if when.get("kind") == "TimeOfDateConstraint":
                return None
            if not when or when["start_date"] <= date:
                held = each["prices"]
        prices = held
    starts: set[int | None] = {None}
    for value in prices.values():
        if isinstance(value, dict):
            starts |= {tier["start"] for tier in value["tiers"]}
    found = {}
    for start in starts:
        rates = {}
        for ours, (theirs, _) in RATES.items():
            value = prices.get(theirs)
            if isinstance(value, dict):
                reached = [tier for tier in value["tiers"] if start is not None and tier["start"] <= start]
                value = max(reached, key=lambda tier: tier["start"])["price"] if reached else value["base"]
            if value is not None:
                rates[ours] = value
        found[start] = rates
    return _drop_incomplete(found)


def _read_litellm_rates(row: Row) -> Rates | None:
    """Return the prices from litellm, empty if it has none, or None if they depend on the time of day."""
    if "off_peak_pricing" in row:
        return None
    tiers = (re.fullmatch(r"input_cost_per_token_above_(\d+)k_tokens", key) for key in row)
    starts = {int(tier[1]) * 1000 for tier in tiers if tier}
    found = {}
    for start in (None, *starts):
        above = f"_above_{start // 1000}k_tokens" if start else ""
        keys = {ours: theirs.format(above) for ours, (_, theirs) in RATES.items()}
        found[start] = {ours: Decimal(row[key]) * 1_000_000 for ours, key in keys.items() if row.get(key) is not None}
    return _drop_incomplete(found)


def _drop_incomplete(rates: Rates) -> Rates:
    """Return the prices if they are complete and not all zero; zero often means unknown."""
    whole = all({"input", "output"} <= each.keys() for each in rates.values())
    return rates if whole and any(rates[None].values()) else {}


def _to_file_form(rates: Rates) -> Row:
    """Return the prices in the form of the file."""
    if not rates:
        return {}
    made = {
        above: {key: _to_number(rate) for key, rate in _drop_impossible(each).items()} for above, each in rates.items()
    }
    tiers = [{"above": above, **each} for above, each in sorted((a, e) for a, e in made.items() if a is not None)]
    return {**made[None], **({"tiers": tiers} if tiers else {})}


def _drop_impossible(rates: Row) -> Row:
    """Return the rates without impossible ones: cache writes below the input price, cache reads above it."""
    odd = {key for key in ("cache_write", "cache_write_1h") if rates.get(key, rates["input"]) < rates["input"]}
    odd |= {"cache_read"} if rates.get("cache_read", 0) > rates["input"] else set()
    return {key: rate for key, rate in rates.items() if key not in odd}


def _to_number(value: Decimal) -> int | float:
    whole = int(value)
    return whole if whole == value else float(value)


# Checking


def check() -> list[str]:
    """Return the problems of the existing file."""
    data = FILE.read_bytes()
    problems = []
    if len(data) > MAX_BYTES:
        problems.append(f"The file has {len(data):,} bytes; at most {MAX_BYTES:,} are allowed.")
    plain = gzip.decompress(data)
    # Compressed bytes differ between versions of zlib, so compare the content.
    if _encode(json.loads(plain)) != plain or any(data[4:8]):
        problems.append("The file differs from what this script writes.")
    said = models._load_data()
    if [(each.package, each.licence) for each in said.sources] != [(name, LICENCE) for name in PACKAGES]:
        problems.append("The file does not name its sources.")
    notice = (ROOT / "NOTICE").read_text()
    problems += [f"NOTICE does not name {each.package}." for each in said.sources if each.package not in notice]
    dt.date.fromisoformat(said.built)
    rows = models.providers()
    for name, address in PROVIDERS.items():
        for key in ("wire", "base_url", "base_url_variable", "key_variable"):
            if name not in rows or getattr(rows[name], key) != getattr(address, key):
                problems.append(f"{name}: {key} differs between the file and providers/registry.py.")
    for name, row in rows.items():
        if row.cache_seconds != CACHE_SECONDS.get(name):
            problems.append(f"{name}: cache_seconds differs between the file and this script.")
    problems += [f"{name}: unknown provider." for name in rows if name not in PROVIDERS]
    problems += [f"{name}: no models." for name in NAMES if next(models.models(provider=name), None) is None]
    for model in models.models():
        problems += [f"{model.label}: {problem}" for problem in _check_model(model)]
    return problems


def _check_model(model: models.Model) -> Iterator[str]:
    if models.find(model.label) != model:
        yield "not found by its own name"
    for alias in model.aliases:
        if models.find(f"{model.provider}:{alias}") != model:
            yield f"not found by its alias {alias}"
    if model.window is None and model.prices is None:
        yield "neither a window nor prices"
    if model.window is not None and not 1_000 <= model.window <= 20_000_000:
        yield f"implausible window: {model.window:,}"
    if model.input_limit is not None and model.input_limit >= (model.window or 0):
        yield f"input limit {model.input_limit:,} is not below the window"
    if model.output_limit is not None and model.output_limit >= (model.window or 0):
        yield f"output limit {model.output_limit:,} is not below the window"
    if model.cache_seconds is not None and (model.cache == "none" or not 60 <= model.cache_seconds <= 604_800):
        yield f"cache time of {model.cache_seconds:,} seconds does not fit the cache kind {model.cache}"
    if model.prices is not None:
        yield from _check_prices(model.prices)


def _check_prices(prices: Prices) -> Iterator[str]:
    for rates in (prices, *prices.tiers):
        if max(rates.input, rates.output) > 1_000:
            yield f"implausible price of a million tokens: {max(rates.input, rates.output)}"
        if rates.cache_read is not None and rates.cache_read > rates.input:
            yield f"cache reads cost {rates.cache_read}, more than input at {rates.input}"
        if rates.cache_write is not None and not rates.input <= rates.cache_write <= 4 * rates.input:
            yield f"cache writes cost {rates.cache_write}, implausible for input at {rates.input}"


if __name__ == "__main__":
    main()
