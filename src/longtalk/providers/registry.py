"""The known providers: their addresses, wires, key variables and capabilities.

A model is named `provider:model`. Its address and key come from the arguments or, if those are missing, from the
environment variables that the vendors' own SDKs read. A model on any other OpenAI-compatible server is named
`compatible:MODEL` and needs a `base_url`. An installed package can bring another provider, as an entry point of the
group "longtalk.providers".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from longtalk._util.plugins import Plugins
from longtalk.errors import InputError
from longtalk.providers.base import Capabilities
from longtalk.wires import AGENTS, WIRES
from longtalk.wires.protocol import Wire

if TYPE_CHECKING:
    from longtalk.models.registry import Model


class MissingKey(InputError):
    """Raised if a provider needs an API key and neither the caller nor the environment has one."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's address and wire, and the environment variables for its address and its key."""

    wire: str = "openai-chat"
    base_url: str | None = None
    base_url_variable: str | None = None
    key_variable: str | None = None
    """The environment variable that holds the key; None for servers that need no key."""
    other_key_variable: str | None = None
    """Another environment variable that may hold the key; None if there is no other."""
    capabilities: Capabilities = Capabilities()


_HOSTED = Capabilities(structured_output=True, cache=True)
_SERVER = Capabilities(structured_output=True)
_AGENT = Capabilities(keeps_state=True, accepts_history=False, tools=False)

PROVIDERS: Mapping[str, Address] = {
    "openai": Address(
        wire="openai-responses",
        base_url="https://api.openai.com/v1",
        base_url_variable="OPENAI_BASE_URL",
        key_variable="OPENAI_API_KEY",
        capabilities=_HOSTED,
    ),
    "openai-chat": Address(
        base_url="https://api.openai.com/v1",
        base_url_variable="OPENAI_BASE_URL",
        key_variable="OPENAI_API_KEY",
        capabilities=_HOSTED,
    ),
    "anthropic": Address(
        wire="anthropic",
        base_url="https://api.anthropic.com",
        base_url_variable="ANTHROPIC_BASE_URL",
        key_variable="ANTHROPIC_API_KEY",
        capabilities=_HOSTED,
    ),
    "gemini": Address(
        wire="gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        base_url_variable="GOOGLE_GEMINI_BASE_URL",
        key_variable="GEMINI_API_KEY",
        other_key_variable="GOOGLE_API_KEY",
        capabilities=_HOSTED,
    ),
    "openrouter": Address(
        base_url="https://openrouter.ai/api/v1", key_variable="OPENROUTER_API_KEY", capabilities=_HOSTED
    ),
    "groq": Address(base_url="https://api.groq.com/openai/v1", key_variable="GROQ_API_KEY", capabilities=_HOSTED),
    "mistral": Address(base_url="https://api.mistral.ai/v1", key_variable="MISTRAL_API_KEY", capabilities=_HOSTED),
    "deepseek": Address(base_url="https://api.deepseek.com/v1", key_variable="DEEPSEEK_API_KEY", capabilities=_HOSTED),
    "together": Address(base_url="https://api.together.xyz/v1", key_variable="TOGETHER_API_KEY", capabilities=_HOSTED),
    "xai": Address(base_url="https://api.x.ai/v1", key_variable="XAI_API_KEY", capabilities=_HOSTED),
    "ollama": Address(base_url="http://127.0.0.1:11434/v1", base_url_variable="OLLAMA_HOST", capabilities=_SERVER),
    "vllm": Address(base_url="http://127.0.0.1:8000/v1", capabilities=_SERVER),
    "llamacpp": Address(base_url="http://127.0.0.1:8080/v1", capabilities=_SERVER),
    "lmstudio": Address(base_url="http://127.0.0.1:1234/v1", capabilities=_SERVER),
    "compatible": Address(capabilities=_SERVER),
    "litellm": Address(),
    "claude-cli": Address(wire="claude-cli", capabilities=_AGENT),
    "gemini-cli": Address(wire="gemini-cli", capabilities=_AGENT),
    "codex-cli": Address(wire="codex-cli", capabilities=_AGENT),
    "local": Address(
        capabilities=Capabilities(tools=False, structured_output=True, images=False, cache=True, window=4096)
    ),
}


ProviderMaker: TypeAlias = Callable[..., Any]
"""A function of a package that returns a provider.

It is called as `make(model, base_url=…, api_key=…, client=…, is_async=…)`, with what the caller passed to the chat.
"""


def _check_provider(name: str, value: Any) -> Address | ProviderMaker:
    if not isinstance(value, Address) and not callable(value):
        raise InputError(f"{name!r} must be offered as an Address or a function that makes a provider, not {value!r}.")
    found: Address | ProviderMaker = value
    return found


_OFFERED: Plugins[Address | ProviderMaker] = Plugins({}, "longtalk.providers", _check_provider)
"""The providers that installed packages offer."""


def find_maker(name: str) -> ProviderMaker | None:
    """Return the function of a package that makes the provider of a model name, or None if there is none."""
    provider = name.partition(":")[0]
    found = None if provider in PROVIDERS else _OFFERED.get(provider)
    return None if found is None or isinstance(found, Address) else found


_LOCAL_SERVERS = ("ollama", "vllm", "llamacpp", "lmstudio")
"""Servers whose models cost nothing per token if they run on this machine."""


class ResolvedModel(msgspec.Struct, frozen=True):
    """A model with everything that a provider needs to send requests to it."""

    provider: str
    model: str
    wire: Wire
    base_url: str
    key: str | None
    capabilities: Capabilities

    def __repr__(self) -> str:
        # The address and the key may be secret.
        return f"{type(self).__name__}({self.label!r})"

    @property
    def account(self) -> str:
        """A digest of the address and the key."""
        import hashlib

        return hashlib.sha256(f"{self.base_url} {self.key or ''}".encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """The name of the model, in the form `provider:model`."""
        return f"{self.provider}:{self.model}" if self.model else self.provider


def resolve(name: str, *, base_url: str | None = None, api_key: str | None = None) -> ResolvedModel:
    """Return the address, wire, key and capabilities of a model.

    Raise `InputError` if the provider is unknown, or if the model, address or key is missing.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"The model name {name!a} is not valid Unicode: remove its lone surrogates.") from None
    provider, colon, model = name.partition(":")
    address = PROVIDERS.get(provider) or _OFFERED.get(provider)
    if not isinstance(address, Address):
        if colon:
            raise InputError(f"Unknown provider {provider!r}. {_suggest_provider(provider)}")
        hint = suggest_label(name) or _suggest_provider(name)
        raise InputError(f"Unknown model {name!r}. A model is named 'provider:model'. {hint}")
    if not model and provider not in ("local", *AGENTS):
        raise InputError(f"No model is named for {provider}: write '{provider}:MODEL'.")
    if base_url is not None and not isinstance(base_url, str):
        raise InputError(f"`base_url` must be a string, not {type(base_url).__name__}.")
    custom_url = base_url or _read_variable(address.base_url_variable)
    url = custom_url or address.base_url or ""
    if not url and provider == "compatible":
        raise InputError("A 'compatible:' model needs base_url=, the address of its server, such as 'http://…/v1'.")
    if provider == "ollama":
        url = _complete_ollama_url(url)
    if provider == "gemini":
        url = _complete_gemini_url(url)
    key = _check_key(api_key or _read_variable(address.key_variable) or _read_variable(address.other_key_variable))
    if key is None and address.key_variable and not custom_url:
        raise MissingKey(f"{provider} needs a key: pass api_key=, or set {address.key_variable}.")
    url = url.rstrip("/")
    hosted = address.key_variable is not None and url == address.base_url
    capabilities = _find_capabilities(provider, model, url, address.capabilities, hosted=hosted)
    wire = WIRES.get(address.wire)
    if wire is None:
        known = ", ".join(WIRES.list_names())
        raise InputError(f"{provider} speaks the unknown wire {address.wire!r}. Known: {known}.")
    return ResolvedModel(provider, model, wire, url, key, capabilities)


def _find_capabilities(provider: str, model: str, url: str, default: Capabilities, *, hosted: bool) -> Capabilities:
    """Return the provider's default capabilities, updated with what is known about this model.

    The prices and cache times that come with Longtalk apply only at the provider's own address (`hosted`). Those that
    the user registered apply everywhere.
    """
    from longtalk.models.call_cost import FREE
    from longtalk.models.registry import find, is_overridden

    prices = (
        FREE
        if provider == "local"
        or (provider in _LOCAL_SERVERS and _is_on_this_machine(url) and not _is_ollama_cloud(model))
        else None
    )
    found = find(f"{provider}:{model}" if model else provider)
    if found is None:
        return msgspec.structs.replace(default, prices=prices, described=not hosted)
    trusted = hosted or is_overridden(found)
    if found.prices is not None and trusted:
        prices = found.prices
    limits = [limit for limit in (found.window, found.input_limit) if limit is not None]
    known = {
        "window": min(limits, default=None),
        "output_limit": found.output_limit,
        "tools": found.tools,
        "streaming": found.streaming,
        "structured_output": found.structured_output,
        "cache": None if found.cache is None else found.cache != "none",
        "cache_seconds": found.cache_seconds if trusted and found.cache != "none" else None,
        "keeps_state": found.keeps_state,
        "prices": prices,
        "listed_prices_apply": prices is not None or found.prices is None,
    }
    return msgspec.structs.replace(default, **{name: value for name, value in known.items() if value is not None})


def _is_on_this_machine(url: str) -> bool:
    return re.match(r"https?://(127(\.\d+){3}|localhost|\[::1\])(:\d+)?(/|$)", url) is not None


def _is_ollama_cloud(model: str) -> bool:
    """Return True if Ollama runs this model on its own paid servers."""
    return model.rpartition(":")[2].endswith("cloud")


def _check_key(key: object) -> str | None:
    """Return the key without surrounding blanks, or None if it is empty.

    Raise `InputError` if the key can't be sent in a header. The message does not quote the key.
    """
    if key is None or key == "":
        return None
    if not isinstance(key, str):
        raise InputError(f"`api_key` must be a string, not {type(key).__name__}.")
    key = key.strip()
    if not key.isascii() or not key.isprintable():
        raise InputError(
            "The API key contains invalid characters: check that you copied the whole key and nothing else."
        )
    return key


def _read_variable(name: str | None) -> str | None:
    return os.environ.get(name, "").strip() or None if name else None


def _complete_ollama_url(url: str) -> str:
    """Return the API address for an `OLLAMA_HOST` value, which may lack the scheme, the host or the port."""
    scheme, separator, rest = url.rstrip("/").rpartition("://")
    host, slash, path = rest.partition("/")
    host = re.sub(r"^(0\.0\.0\.0)?(?=:|$)", "127.0.0.1", host)
    if not separator and not re.search(r":\d+$", host):
        host += ":11434"
    url = f"{scheme or 'http'}://{host}{slash}{path}"
    return url if url.endswith("/v1") else f"{url}/v1"


def _complete_gemini_url(url: str) -> str:
    """Return the address with the API version appended if it has none, as Google's SDK does."""
    url = url.rstrip("/")
    return url if re.search(r"/v\d+\w*$", url) else f"{url}/v1beta"


def _split_name(name: str) -> list[str]:
    return re.split(r"[-_/.:@ ]", name.lower())


def list_known(words: str = "") -> list[Model]:
    """Return the known models of the built-in providers whose names contain all words.

    Vendors come before the providers that resell their models, names that have the words as parts of their own before
    others, higher versions before lower ones, and names with little else before longer ones.
    """
    from longtalk.models import registry

    wanted = set(_split_name(words))
    providers = list(PROVIDERS)

    def rank(model: Model) -> tuple[int, bool, bool, list[float], int]:
        name = re.sub(r"\d{4}-\d\d-\d\d", "", model.name)
        # Longer numbers are sizes and dates.
        version = [-float(each) for each in re.findall(r"(?<![\w.])\d{1,2}(?:\.\d{1,2})?(?![\w.])", name)]
        others = not wanted <= set(_split_name(model.name))
        return providers.index(model.provider), ":" in name, others, [*version, 0.0], len(model.name)

    return sorted((each for each in registry.models(words) if each.provider in PROVIDERS), key=rank)


def complete_label(name: str) -> str:
    """Return the full name of a model that may lack its provider.

    Raise `InputError` unless exactly one provider is known to have a model of this name. OpenAI's two count as one.
    """
    if ":" in name or name in PROVIDERS or name in _OFFERED.list_names():
        return name
    from longtalk.models import registry

    shared = {provider for provider, each in registry.providers().items() if each.models_of}
    found = [f"{each}:{name}" for each in PROVIDERS if each not in shared and registry.find(f"{each}:{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"Several providers have a model {name!r}: write {' or '.join(map(repr, found))}.")
    # A letter or two are in the name of almost any model.
    hint = (suggest_label(name) if len(name) > 2 else "") or _suggest_near(name)
    raise InputError(f"No known provider has a model {name!r}: write it as provider:model. {hint}")


_FAMILIES = ("gpt", "claude", "opus", "sonnet", "haiku", "gemini", "grok")
"""Words for the models of vendors that alone serve them. A name with other words may be that of a model of Ollama."""


def _suggest_near(name: str) -> str:
    """Return "Did you mean …?" with the known model whose name is closest, or with a model of Ollama."""
    import difflib

    labels = {each.name: each.label for each in reversed(list_known())}
    near = difflib.get_close_matches(name, labels, n=1, cutoff=0.9)
    newest = "" if near else _find_newest(name)
    near = near or difflib.get_close_matches(name, labels, n=1, cutoff=0.75)
    return f"Did you mean {(newest or (labels[near[0]] if near else f'ollama:{name}'))!r}?"


def _find_newest(name: str) -> str:
    """Return the newest model of the family that a name has, such as gpt-99; empty if it has another word or none."""
    import difflib

    words = [difflib.get_close_matches(each, _FAMILIES, n=1, cutoff=0.8) for each in re.findall("[a-z]+", name.lower())]
    if not words or not all(words):
        return ""
    # A slash is in the names that resellers give to models.
    found = (each.label for each in list_known(" ".join(each[0] for each in words)) if "/" not in each.name)
    return next(found, "")


def suggest_label(name: str) -> str:
    """Return "Did you mean …?" with the full name of a model that was named without its provider."""
    known = list_known(name) if name else []
    exact = [f"{each.provider}:{name}" for each in known if name in (each.name, *each.aliases)]
    found = exact or [each.label for each in known if name in each.name.rpartition("/")[2]]
    return f"Did you mean '{found[0]}'?" if found else ""


def _suggest_provider(provider: str) -> str:
    import difflib

    names = [*PROVIDERS, *_OFFERED.list_names()]
    close = difflib.get_close_matches(provider, names, n=1, cutoff=0.65)
    near = f"Did you mean {close[0]!r}? " if close else ""
    known = ", ".join(names)
    return f"{near}Known: {known}; for other OpenAI-compatible servers, use 'compatible:MODEL' with base_url=."
