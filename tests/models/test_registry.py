"""Test facts about models: found by full name, overridden field by field, and never guessed."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Chat, Conversation, InputError, KeepLast, Reply
from longtalk.errors import RequestRefused
from longtalk.models import registry as models
from longtalk.models.call_cost import FREE, Prices
from longtalk.models.registry import Model, find, register
from longtalk.providers.registry import PROVIDERS, resolve
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, says

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def forget_registered() -> Iterator[None]:
    yield
    models._registered.clear()


@pytest.fixture
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the user's file."""
    path = tmp_path / "models.json"
    monkeypatch.setenv("LONGTALK_MODELS", str(path))
    return path


def find_known(label: str) -> Model:
    found = find(label)
    assert found is not None, label
    return found


def find_prices(label: str) -> Prices:
    prices = find_known(label).prices
    assert prices is not None
    return prices


# The data file


def test_the_file_is_sane_and_has_what_the_script_would_write() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "registry.py", "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_longtalk_reads_none_of_it() -> None:
    program = "import sys, longtalk; print([m for m in sys.modules if m.startswith('longtalk.models.')])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"


def test_a_server_of_ones_own_needs_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    models._load_data.cache_clear()
    models._load_provider.cache_clear()
    monkeypatch.setattr(models, "DATA_PATH", "/no/such/file")
    assert [find(name) for name in ("local", "ollama:llama3.2", "compatible:m")] == [None] * 3
    with pytest.raises(FileNotFoundError):
        find("anthropic:claude-sonnet-5")
    models._load_data.cache_clear()
    models._load_provider.cache_clear()


@pytest.mark.parametrize("provider", sorted(set(PROVIDERS) - set(models._PROVIDERS_WITHOUT_MODELS)))
def test_each_hosted_provider_has_models_with_windows_and_prices(provider: str) -> None:
    listed = list(models.models(provider=provider))
    assert {model.provider for model in listed} == {provider}
    assert any(model.window and model.prices for model in listed)


def test_facts_are_of_the_model_not_of_its_family() -> None:
    assert find_known("openai-chat:gpt-4o").window != find_known("openai-chat:gpt-5.6").window
    assert find_known("anthropic:claude-sonnet-5").cache == "marks"
    assert find_known("openai-chat:gpt-5.6").cache == "automatic"
    assert find_prices("anthropic:claude-haiku-5-5").tiers
    assert find_prices("anthropic:claude-sonnet-5").cache_write_1h == 2 * find_prices("anthropic:claude-sonnet-5").input


def test_the_same_model_is_another_one_over_another_wire() -> None:
    chat, responses = find_known("openai-chat:gpt-5.6"), find_known("openai:gpt-5.6")
    assert (chat.prices, chat.window) == (responses.prices, responses.window)
    assert (chat.keeps_state, responses.keeps_state) == (False, True)
    assert (chat.binds_thinking, responses.binds_thinking) == (False, True)


@pytest.mark.parametrize(
    ("label", "seconds"),
    [
        ("anthropic:claude-sonnet-5", 300),
        ("openai-chat:gpt-4o", 300),
        ("openai-chat:gpt-5.5", 1_800),
        ("openai-chat:gpt-5.6", 1_800),
        ("openai:gpt-6-sol", 1_800),
        ("groq:openai/gpt-oss-120b", 7_200),
        ("deepseek:deepseek-chat", 7_200),
        ("openrouter:anthropic/claude-sonnet-5", 300),
        ("openrouter:openai/gpt-5.5", None),
        ("xai:grok-3", None),
    ],
)
def test_a_prefix_is_kept_as_long_as_the_model_or_else_its_provider_says(label: str, seconds: int | None) -> None:
    found = find_known(label)
    assert found.cache != "none"
    assert found.cache_seconds == seconds


def test_what_is_not_cached_is_kept_for_no_time() -> None:
    uncached = [model for model in models.models() if model.cache == "none"]
    assert {model.provider for model in uncached} >= {"anthropic", "openai", "groq", "deepseek"}
    assert {model.cache_seconds for model in uncached} == {None}


def test_the_time_of_a_cache_is_overridden_alone(user_file: Path) -> None:
    label, named = "anthropic:claude-sonnet-5", {"provider": "anthropic", "name": "claude-sonnet-5"}
    user_file.write_text("{}")
    before = find_known(label)
    user_file.write_text(json.dumps({label: {"cache_seconds": 3_600}}))
    assert find_known(label) == msgspec.structs.replace(before, cache_seconds=3_600)
    register({**named, "window": 5_000})
    assert (find_known(label).window, find_known(label).cache_seconds) == (5_000, 3_600)
    register({**named, "cache_seconds": None})
    assert (find_known(label).window, find_known(label).cache_seconds) == (5_000, None)
    with pytest.raises(InputError, match="cache_seconds"):
        register({**named, "cache_seconds": 0})


# Names


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("anthropic:claude-sonnet-5", "claude-sonnet-5"),
        ("anthropic:Claude-Sonnet-5", "claude-sonnet-5"),
        ("anthropic:claude-sonnet-5-20260101", "claude-sonnet-5"),
        ("anthropic:claude-sonnet-5@20260101", "claude-sonnet-5"),
        ("anthropic:claude-sonnet-5-latest", "claude-sonnet-5"),
        ("openai-chat:gpt-5.6", "gpt-5.6-sol"),
        ("openai-chat:gpt-5.6-2026-03-01", "gpt-5.6-sol"),
        ("openai-chat:gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("openrouter:anthropic/claude-sonnet-5", "anthropic/claude-sonnet-5"),
        ("openrouter:anthropic/claude-sonnet-5-20260101", "anthropic/claude-sonnet-5"),
        ("together:META-LLAMA/Llama-3.3-70B-Instruct-Turbo", "meta-llama/Llama-3.3-70B-Instruct-Turbo"),
        ("openai-chat:ft:gpt-4o-2024-08-06:acme::abc", "ft:gpt-4o-2024-08-06"),
    ],
)
def test_a_model_is_found_by_its_names_and_without_its_date(asked: str, name: str) -> None:
    found = find_known(asked)
    assert (found.provider, found.name) == (asked.partition(":")[0], name)
    assert found.prices is not None or "Llama" in name


@pytest.mark.parametrize(
    "asked",
    [
        *("openai-chat:gpt", "openai-chat:gpt-5.6-", "openai-chat:gpt-5.6-x", "openai-chat:gpt-5.6x", "openai-chat:"),
        *("anthropic:claude", "anthropic:claude-sonnet-5-2026", "anthropic:claude-sonnet-5-20261301"),
        *("anthropic:claude-sonnet-5-2026-02-40", "anthropic:claude-sonnet-5:fast", "anthropic:gpt-5.6"),
        *("openrouter:claude-sonnet-5", "openrouter:anthropic/claude"),
        *("nobody:claude-sonnet-5", "claude-sonnet-5", "", ":", "local", "ollama:gpt-oss", "compatible:gpt-5.6"),
    ],
)
def test_a_beginning_of_a_name_is_no_name(asked: str) -> None:
    assert find(asked) is None


@pytest.mark.parametrize("asked", ["openrouter:anthropic/claude-sonnet-5:nitro", "openai-chat:ft:gpt-5.6:acme::abc"])
def test_a_variant_has_the_window_of_its_model_and_no_price(asked: str) -> None:
    assert find_known(asked).window
    assert find_known(asked).prices is None


def test_a_free_variant_is_known_to_be_free() -> None:
    free = [model for model in models.models(":free", provider="openrouter") if model.prices]
    assert free
    assert all(model.prices.free for model in free if model.prices)


names = st.sampled_from([model.name for model in models.models()])


@given(st.sampled_from([*PROVIDERS, "openai", "gemini", "nobody"]), names | st.text(max_size=20), st.text(max_size=6))
def test_what_is_found_is_of_the_provider_that_was_asked_for(provider: str, name: str, more: str) -> None:
    for label in (f"{provider}:{name}", f"{provider}:{name}{more}"):
        found = find(label)
        assert found is None or found.provider == provider


def test_a_model_is_found_by_each_of_its_names() -> None:
    for model in models.models(provider="openai-chat"):
        assert [find(f"openai-chat:{name}") for name in model.aliases] == [model] * len(model.aliases)


# Searching


def test_a_search_finds_all_words_in_names_and_aliases() -> None:
    assert [model.name for model in models.models("SONNET claude 5-5", provider="anthropic")] == ["claude-sonnet-5-5"]
    assert "gpt-5.6-sol" in [model.name for model in models.models("gpt-5-6", provider="openai-chat")]
    assert list(models.models("no such model")) == []


def test_a_search_finds_what_was_registered() -> None:
    register({"provider": "compatible", "name": "talker-2", "window": 64_000})
    register({"provider": "anthropic", "name": "claude-sonnet-5", "window": 1})
    assert [model.label for model in models.models("talker")] == ["compatible:talker-2"]
    assert next(model.window for model in models.models("claude-sonnet-5", provider="anthropic")) == 1


def test_a_provider_that_there_is_not_is_an_error_that_names_a_near_one() -> None:
    with pytest.raises(InputError, match=r"unknown provider 'antropic'. Did you mean 'anthropic'\?"):
        list(models.models(provider="antropic"))


# Registering


def test_a_mapping_goes_over_what_is_known_field_by_field() -> None:
    before = find_known("anthropic:claude-haiku-5-5")
    assert before.prices is not None
    after = register({"provider": "anthropic", "name": "claude-haiku-5-5", "window": 5, "prices": {"cache_read": 0}})
    assert after == msgspec.structs.replace(
        before, window=5, prices=msgspec.structs.replace(before.prices, cache_read=0.0, tiers=())
    )
    assert find_known("anthropic:claude-haiku-5-5-20260101") is after
    again = register({"provider": "anthropic", "name": "claude-haiku-5-5", "tools": False})
    assert (again.window, again.tools) == (5, False)


def test_a_model_is_taken_whole() -> None:
    register(Model(provider="anthropic", name="claude-sonnet-5", window=7))
    assert find_known("anthropic:claude-sonnet-5") == Model(provider="anthropic", name="claude-sonnet-5", window=7)


def test_null_makes_unknown() -> None:
    register({"provider": "anthropic", "name": "claude-sonnet-5", "prices": None, "window": None})
    assert (find_known("anthropic:claude-sonnet-5").prices, find_known("anthropic:claude-sonnet-5").window) == (
        None,
        None,
    )


def test_other_names_of_a_registered_model_are_names_of_it() -> None:
    made = register({"provider": "vllm", "name": "Talker", "aliases": ["talker-2"], "window": 9})
    assert find("vllm:talker-2") is find("vllm:talker") is find("vllm:Talker-2-20260101") is made
    assert find("ollama:talker-2") is None


def test_an_alias_stands_on_its_model_and_leaves_that_alone() -> None:
    before = find_known("openai-chat:gpt-5.6-sol")
    made = register({"provider": "openai-chat", "name": "gpt-5.6", "window": 5})
    assert (made.name, made.window, made.prices) == ("gpt-5.6", 5, before.prices)
    assert find_known("openai-chat:gpt-5.6") is made
    assert find_known("openai-chat:gpt-5.6-sol") == before
    assert find_known("openai:gpt-5.6").window == before.window


@pytest.mark.parametrize(
    "wrong",
    [
        *({}, {"provider": "ollama"}, {"name": "m"}, {"provider": 5, "name": "m"}, {"provider": "ollama", "name": 5}),
        *({"window": 0}, {"window": -1}, {"window": 1.5}, {"window": True}, {"window": "64k"}, {"window": 10**30}),
        *({"windows": 5}, {"cache": "some"}, {"tools": "yes"}, {"aliases": "m"}, {"aliases": [1]}, {5: 5}),
        *({"prices": 5}, {"prices": {}}, {"prices": {"input": 1}}, {"prices": {"input": -1, "output": 1}}),
        *({"prices": {"input": price, "output": 1}} for price in (math.nan, math.inf, 1e300, "1", True, None)),
        *({"prices": {"input": 1, "output": 1, "tiers": tiers}} for tiers in (5, [5], [{}], [{"above": 0}])),
    ],
)
def test_what_is_no_description_is_refused_and_changes_nothing(wrong: dict[Any, Any]) -> None:
    usual = {} if {"provider", "name"} & wrong.keys() or not wrong else {"provider": "ollama", "name": "m"}
    with pytest.raises(InputError):
        register({**usual, **wrong})
    assert models._registered == {}


@pytest.mark.parametrize(
    "wrong", [5, None, "ollama:m", Model(provider="nobody", name="m"), Model(provider="ollama", name="m", window=-1)]
)
def test_only_models_are_registered(wrong: Any) -> None:
    with pytest.raises(InputError):
        register(wrong)
    assert models._registered == {}


# The user's own file


def test_the_file_goes_over_the_data_and_what_is_registered_over_both(user_file: Path) -> None:
    label = "anthropic:claude-sonnet-5"
    before = find_without_overrides(user_file, label)
    user_file.write_text(json.dumps({label: {"window": 5, "tools": False}, "ollama:talker:7b": {"window": 4_096}}))
    assert find_known(label) == msgspec.structs.replace(before, window=5, tools=False)
    assert find_known("ollama:talker:7b").window == 4_096
    register({"provider": "anthropic", "name": "claude-sonnet-5", "window": 6})
    assert (find_known(label).window, find_known(label).tools) == (6, False)


def find_without_overrides(user_file: Path, label: str) -> Model:
    user_file.write_text("{}")
    return find_known(label)


def test_the_file_is_read_again_when_it_has_changed(user_file: Path) -> None:
    user_file.write_text('{"ollama:m": {"window": 10}}')
    assert find_known("ollama:m").window == 10
    user_file.write_text('{"ollama:m": {"window": 1000}}')
    assert find_known("ollama:m").window == 1_000


def test_the_file_is_in_the_config_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert find("ollama:m") is None
    (tmp_path / "longtalk").mkdir()
    (tmp_path / "longtalk" / "models.json").write_text('{"ollama:m": {"window": 10}}')
    assert find_known("ollama:m").window == 10


def test_a_file_that_the_environment_names_must_be_there(user_file: Path) -> None:
    with pytest.raises(InputError, match=r"LONGTALK_MODELS names .*models\.json"):
        find("local")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b'{"ollama:m": {"window": NaN}}', "not valid JSON"),
        (b'{"ollama:m": {"window": 1e999}}', "JSON|window"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"ollama:m":' * 100_000, "not valid JSON"),
        (b"[]", "must contain a JSON object"),
        (b'"ollama:m"', "must contain a JSON object"),
        (b'{"ollama:m": 5}', "the facts about 'ollama:m' must be an object, not int"),
        (b'{"ollama:m": {"windw": 5}}', "windw"),
        (b'{"ollama:m": {"window": "64k"}}', r"\$\.window"),
        (b'{"ollama:m": {"prices": {"input": 1}}}', "output"),
        (b'{"ollama:m": {"prices": {"input": -1, "output": 1}}}', r"\$\.prices\.input"),
        (b'{"ollama:m": {"provider": "anthropic"}}', "name another model, 'anthropic:m'"),
        (b'{"ollama:m": {"name": "n"}}', "name another model, 'ollama:n'"),
        (b'{"olama:m": {}}', "Did you mean 'ollama'"),
        (b'{"ollama": {}}', "is a provider, not a model"),
        (b'{"": {}}', "unknown provider ''"),
        (b'{"\\ud800:m": {}}', "JSON|provider"),
        (b"{}" + b" " * 5_000_000, "5,000,002 bytes"),
    ],
)
def test_a_broken_file_is_an_error_that_names_it_and_says_why(user_file: Path, said: bytes, why: str) -> None:
    user_file.write_bytes(said)
    for _ in range(2):
        with pytest.raises(InputError, match=why) as caught:
            Chat("ollama:m")
        assert str(user_file) in str(caught.value)


def test_a_folder_or_a_pipe_is_no_file(user_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(user_file)
    with pytest.raises(InputError, match="must be a regular JSON file"):
        find("local")
    monkeypatch.setenv("LONGTALK_MODELS", str(tmp_path))
    with pytest.raises(InputError, match="must be a regular JSON file"):
        find("local")
    monkeypatch.setenv("LONGTALK_MODELS", "/dev/zero")
    with pytest.raises(InputError, match="must be a regular JSON file"):
        find("local")


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda each: (
            st.lists(each)
            | st.dictionaries(st.sampled_from(["ollama:m", "window", "prices", "input", "tiers", "x"]), each)
        ),
    )
)
def test_whatever_is_in_the_file_is_read_or_refused(said: Any) -> None:
    for fields in (said, {"prices": said}, {"window": said}):
        try:
            models._make_override(
                "ollama", "m", fields if isinstance(fields, dict) else {"aliases": fields}, {}, "This"
            )
        except InputError as problem:
            assert "This" in str(problem)


# What a chat makes of it


def test_a_provider_can_what_its_model_can(user_file: Path) -> None:
    user_file.write_text("{}")
    found = resolve("openai-chat:gpt-5.6", api_key="k").capabilities
    model = find_known("openai-chat:gpt-5.6")
    assert (found.window, found.output_limit, found.prices) == (model.input_limit, model.output_limit, model.prices)
    assert (found.tools, found.structured_output, found.cache, found.described) == (True, True, True, True)
    fields = {"tools": False, "streaming": False, "structured_output": False, "cache": "none", "keeps_state": True}
    register({"provider": "openai-chat", "name": "gpt-5.6", "window": 50, "input_limit": None, **fields})
    found = resolve("openai-chat:gpt-5.6", api_key="k").capabilities
    assert (found.window, found.tools, found.streaming) == (50, False, False)
    assert (found.structured_output, found.cache, found.keeps_state) == (False, False, True)


def test_what_is_not_known_is_as_usual_at_its_provider() -> None:
    found = resolve("groq:nobody", api_key="k").capabilities
    usual = PROVIDERS["groq"].capabilities
    assert found == msgspec.structs.replace(usual, described=False)
    assert (found.window, found.prices, found.tools) == (None, None, True)


def test_a_window_is_the_chats() -> None:
    register({"provider": "ollama", "name": "m", "window": 8_192})
    assert Chat("ollama:m")._engine._window == 8_192
    assert Chat("ollama:m", window=5)._engine._window == 5


@pytest.mark.parametrize("name", ["local", "local:/m.gguf", "ollama:m", "vllm:m", "llamacpp:m", "lmstudio:m"])
def test_what_runs_here_is_free(name: str) -> None:
    assert resolve(name).capabilities.prices == FREE


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("ollama:m", "https://ollama.com"),
        ("ollama:m", "http://localhost.example/v1"),
        ("ollama:gpt-oss:120b-cloud", None),
        ("ollama:kimi:cloud", None),
        ("vllm:m", "http://10.0.0.7:8000/v1"),
        ("compatible:m", "http://127.0.0.1:4000/v1"),
        ("openai-chat:gpt-5.6", "http://127.0.0.1:4000/v1"),
        ("anthropic:claude-sonnet-5", "https://gateway.example"),
    ],
)
def test_what_another_server_takes_is_not_known_unless_it_was_said(name: str, url: str | None) -> None:
    assert resolve(name, base_url=url).capabilities.prices is None
    provider, _, model = name.partition(":")
    register({"provider": provider, "name": model, "prices": {"input": 1, "output": 2}})
    prices = resolve(name, base_url=url).capabilities.prices
    assert prices is not None
    assert (prices.input, prices.output) == (1, 2)


def test_a_provider_at_its_own_address_has_its_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.openai.com/v1/")
    assert resolve("openai-chat:gpt-5.6").capabilities.prices == find_prices("openai-chat:gpt-5.6")


def make_client() -> httpx2.Client:
    return httpx2.Client(transport=httpx2.MockTransport(lambda _: httpx2.Response(200, content=says("Hello.").body)))


def test_an_unknown_hosted_model_is_reported_once() -> None:
    chat = Chat("groq:nobody", api_key="k", client=make_client())
    first = chat.send("Hello")
    second = chat.send("Hello", state=first.state)
    notice = first.notices[0]
    assert notice.kind == "unknown_model"
    assert "its window and its price are unknown" in notice.text
    assert 'longtalk.models.register({"provider": "groq", "name": "nobody"' in notice.text
    assert (len(first.notices), second.notices, first.cost) == (1, (), None)


def list_kinds(reply: Reply) -> list[str]:
    return [notice.kind for notice in reply.notices]


def test_each_state_of_a_shared_chat_is_told_once_of_an_unknown_model() -> None:
    chat = Chat("groq:nobody", api_key="k", client=make_client())
    for _ in range(2):
        first = chat.send("Hello")
        second = chat.send("Hello", state=first.state)
        assert (list_kinds(first), list_kinds(second)) == (["unknown_model"], [])


def test_each_stored_conversation_is_told_once_of_each_unknown_model() -> None:
    store, told = InMemory(), []
    for id in ("one", "two"):  # noqa: A001
        for name in ("groq:nobody", "groq:nobody", "groq:other", "groq:nobody"):
            talk = Conversation(id, model=name, store=store, api_key="k", client=make_client(), policy=KeepLast(1))
            told.append(list_kinds(talk.send("Hello")))
    assert told == [["unknown_model"], [], ["unknown_model"], []] * 2


def test_a_turn_that_failed_leaves_the_unknown_model_to_be_told_of() -> None:
    answers = [httpx2.Response(200, content=says("Hello.").body), httpx2.Response(400)]
    client = httpx2.Client(transport=httpx2.MockTransport(lambda _: answers.pop()))
    chat = Chat("groq:nobody", api_key="k", client=client)
    with pytest.raises(RequestRefused):
        chat.send("Hello")
    assert list_kinds(chat.send("Hello")) == ["unknown_model"]


def test_with_a_given_window_only_the_unknown_price_is_reported() -> None:
    notice = Chat("groq:nobody", api_key="k", client=make_client(), window=9_000).send("Hello").notices[0]
    assert "nobody is not in the list of models, so its price is unknown" in notice.text


def test_a_model_that_is_known_is_not_told_of_and_has_a_cost() -> None:
    reply = Chat("groq:openai/gpt-oss-120b", api_key="k", client=make_client()).send("Hello")
    prices = find_prices("groq:openai/gpt-oss-120b")
    assert reply.notices == ()
    assert reply.cost is not None
    assert reply.cost.total == pytest.approx((10 * prices.input + 5 * prices.output) / 1e6)
    register({"provider": "groq", "name": "nobody"})
    assert Chat("groq:nobody", api_key="k", client=make_client()).send("Hello").notices == ()


def test_other_models_are_not_told_of() -> None:
    own_server = {"base_url": "http://127.0.0.1:9/v1", "client": make_client()}
    for name in ("compatible:m", "ollama:m", "groq:nobody"):
        assert Chat(name, **own_server).send("Hello").notices == ()  # type: ignore[arg-type]
    assert Chat(Scripted(says("Hello."))).send("Hello").notices == ()
