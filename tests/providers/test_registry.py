"""Names of models, looked up: address, key and wire, and errors that say what to do."""

import re

import pytest

from longtalk.errors import InputError
from longtalk.models import registry as models
from longtalk.providers.registry import PROVIDERS, complete_label, resolve
from longtalk.wires import WIRES

KEYED = sorted(name for name, address in PROVIDERS.items() if address.key_variable)
VARIABLES = {v for a in PROVIDERS.values() for v in (a.key_variable, a.other_key_variable, a.base_url_variable) if v}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_a_name_is_a_provider_and_a_model() -> None:
    found = resolve("groq:openai/gpt-oss-120b", api_key="k")
    assert (found.provider, found.model, found.label) == ("groq", "openai/gpt-oss-120b", "groq:openai/gpt-oss-120b")
    assert found.base_url == "https://api.groq.com/openai/v1"
    assert found.wire is WIRES["openai-chat"]


def test_openai_speaks_responses_unless_it_is_asked_for_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://proxy.example/v1")
    ours, chats = resolve("openai:gpt-5.6"), resolve("openai-chat:gpt-5.6")
    assert (ours.wire.name, chats.wire.name) == ("openai-responses", "openai-chat")
    assert (ours.base_url, ours.key) == (chats.base_url, chats.key) == ("https://proxy.example/v1", "k")
    assert ours.capabilities.window == chats.capabilities.window


def test_a_model_may_have_colons_in_its_name() -> None:
    assert resolve("ollama:qwen3:0.6b").model == "qwen3:0.6b"
    assert resolve("openrouter:deepseek/deepseek-r1:free", api_key="k").model == "deepseek/deepseek-r1:free"


def test_the_local_model_needs_neither_name_nor_key_nor_address() -> None:
    found = resolve("local")
    assert (found.provider, found.model, found.label, found.key, found.base_url) == ("local", "", "local", None, "")
    assert found.capabilities.window == 4096


def test_every_provider_speaks_a_wire_that_there_is() -> None:
    assert {address.wire for address in PROVIDERS.values()} <= set(WIRES)


def test_an_unknown_provider_is_stateless_and_gets_the_history() -> None:
    found = resolve("compatible:m", base_url="http://x/v1").capabilities
    assert (found.keeps_state, found.accepts_history, found.streaming, found.window) == (False, True, True, None)


def test_for_how_long_a_prefix_is_kept_is_known_of_the_providers_own_server() -> None:
    assert resolve("anthropic:claude-sonnet-5", api_key="k").capabilities.cache_seconds == 300
    assert resolve("anthropic:claude-sonnet-5", base_url="http://x").capabilities.cache_seconds is None
    assert resolve("anthropic:nobody", api_key="k").capabilities.cache_seconds is None


def test_for_how_long_a_prefix_is_kept_can_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_registered", {})
    models.register({"provider": "compatible", "name": "m", "cache_seconds": 3_600})
    assert resolve("compatible:m", base_url="http://x/v1").capabilities.cache_seconds == 3_600
    models.register({"provider": "compatible", "name": "m", "cache": "none"})
    assert resolve("compatible:m", base_url="http://x/v1").capabilities.cache_seconds is None


# Keys


@pytest.mark.parametrize("provider", KEYED)
def test_a_key_comes_from_the_vendors_own_variable(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(str(PROVIDERS[provider].key_variable), " sk-1\n")
    assert resolve(f"{provider}:m").key == "sk-1"


@pytest.mark.parametrize("provider", KEYED)
def test_a_missing_key_names_its_variable_and_its_argument(provider: str) -> None:
    with pytest.raises(
        InputError, match=rf"{provider} needs a key: pass api_key=, or set {PROVIDERS[provider].key_variable}"
    ):
        resolve(f"{provider}:m")


def test_a_blank_variable_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", " ")
    with pytest.raises(InputError, match="GROQ_API_KEY"):
        resolve("groq:m")


def test_an_explicit_key_wins_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from the variable")
    assert resolve("openai-chat:m", api_key="explicit").key == "explicit"


@pytest.mark.parametrize("provider", ["ollama", "vllm", "llamacpp", "lmstudio"])
def test_servers_of_your_own_need_no_key_and_take_one(provider: str) -> None:
    assert resolve(f"{provider}:m").key is None
    assert resolve(f"{provider}:m", api_key="k").key == "k"


def test_a_key_is_not_required_where_an_address_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve("openai-chat:m", base_url="http://127.0.0.1:9/v1").key is None
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert resolve("openai-chat:m").key is None
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert resolve("openai-chat:m").key == "k"


# Addresses


def test_an_address_comes_from_the_argument_else_the_variable_else_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve("openai-chat:m", api_key="k").base_url == "https://api.openai.com/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "https://proxy.example/v1/")
    assert resolve("openai-chat:m", api_key="k").base_url == "https://proxy.example/v1"
    assert resolve("openai-chat:m", base_url="http://here/v1", api_key="k").base_url == "http://here/v1"


def test_a_compatible_server_needs_an_address_and_the_error_says_so() -> None:
    with pytest.raises(InputError, match="base_url="):
        resolve("compatible:m")


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("", "https://generativelanguage.googleapis.com/v1beta"),
        ("https://generativelanguage.googleapis.com/", "https://generativelanguage.googleapis.com/v1beta"),
        ("https://proxy.example/google", "https://proxy.example/google/v1beta"),
        ("https://proxy.example/v1/", "https://proxy.example/v1"),
        ("https://proxy.example/v1alpha", "https://proxy.example/v1alpha"),
    ],
)
def test_an_address_of_gemini_needs_no_version(given: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", given)
    assert resolve("gemini:m", api_key="k").base_url == url
    monkeypatch.delenv("GOOGLE_GEMINI_BASE_URL")
    assert resolve("gemini:m", api_key="k", base_url=given).base_url == url


def test_a_key_of_gemini_may_be_in_either_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "second")
    assert resolve("gemini:m").key == "second"
    monkeypatch.setenv("GEMINI_API_KEY", "first")
    assert resolve("gemini:m").key == "first"


def test_what_is_known_of_geminis_models_is_taken() -> None:
    found = resolve("gemini:gemini-2.5-pro", api_key="k")
    assert found.wire is WIRES["gemini"]
    assert (found.capabilities.window, found.capabilities.prices is None) == (1_048_576, False)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000/v1"),
        ("http://0.0.0.0:8000", "http://127.0.0.1:8000/v1"),
        (":8000", "http://127.0.0.1:8000/v1"),
        ("box", "http://box:11434/v1"),
        ("box/", "http://box:11434/v1"),
        ("box:8000", "http://box:8000/v1"),
        ("10.0.0.0", "http://10.0.0.0:11434/v1"),
        ("[::1]", "http://[::1]:11434/v1"),
        ("[::1]:8000", "http://[::1]:8000/v1"),
        ("http://box", "http://box/v1"),
        ("http://box:8000/", "http://box:8000/v1"),
        ("https://box.example/ollama", "https://box.example/ollama/v1"),
        ("https://ollama.com/v1/", "https://ollama.com/v1"),
    ],
)
def test_the_variable_of_ollama_is_read_as_ollama_reads_it(
    host: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert resolve("ollama:m").base_url == url


def test_an_explicit_address_of_ollama_wins_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "box")
    assert resolve("ollama:m", base_url="http://other:1").base_url == "http://other:1/v1"


# Names that are wrong


@pytest.mark.parametrize(
    ("name", "near"),
    [("openai-char:gpt", "openai-chat"), ("olama:m", "ollama"), ("mistrall:m", "mistral"), ("lm-studio:m", "lmstudio")],
)
def test_an_unknown_provider_suggests_a_near_one(name: str, near: str) -> None:
    with pytest.raises(InputError, match=f"Unknown provider .* Did you mean '{near}'"):
        resolve(name)


def test_a_model_without_its_provider_is_found() -> None:
    with pytest.raises(InputError, match=r"Unknown model 'gpt-5'\. .*Did you mean 'openai:gpt-5'\?"):
        resolve("gpt-5")


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("gpt-5.6", "openai:gpt-5.6"),
        ("claude-sonnet-5", "anthropic:claude-sonnet-5"),
        ("claude-sonnet-4-5-20250929", "anthropic:claude-sonnet-4-5-20250929"),
        ("local", "local"),
        ("claude-cli", "claude-cli"),
        ("ollama:x", "ollama:x"),
        ("nosuch:x", "nosuch:x"),
    ],
)
def test_a_name_that_one_provider_has_is_completed(name: str, full: str) -> None:
    assert complete_label(name) == full


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("llama3.2", "Did you mean 'ollama:llama3.2'?"),
        ("claude-sonnet", "Did you mean 'anthropic:claude-sonnet-5-5'?"),
        ("claud-sonnet-5", "Did you mean 'anthropic:claude-sonnet-5'?"),
        ("gpt-99", "Did you mean 'openai:gpt-"),
        ("haiku-99", "Did you mean 'anthropic:claude-haiku-"),
        ("grok-99", "Did you mean 'xai:grok-"),
        ("gemma99", "Did you mean 'ollama:gemma99'?"),
        ("openai/gpt-oss-120b", "Several providers have a model"),
    ],
)
def test_a_name_that_is_not_clear_is_refused_with_the_names_it_may_mean(name: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        complete_label(name)


@pytest.mark.parametrize("name", ["", ":m", "model", "zzzzzzzz:m", "LOCAL"])
def test_an_unknown_provider_lists_those_that_there_are_and_the_way_to_any_other(name: str) -> None:
    with pytest.raises(InputError, match=r"Known: .*openrouter.*'compatible:MODEL' with base_url="):
        resolve(name)


@pytest.mark.parametrize("name", ["ollama", "ollama:"])
def test_a_provider_without_a_model_says_how_to_name_one(name: str) -> None:
    with pytest.raises(InputError, match="'ollama:MODEL'"):
        resolve(name)
