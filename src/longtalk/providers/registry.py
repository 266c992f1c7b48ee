"""Which providers there are: address, wire, where the key comes from, what they can do.

A model is named `provider:model`. Address and key come from the arguments, else from the variables that the
vendors' own SDKs read. What is not in this table can be reached as `compatible:MODEL` with a `base_url`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import msgspec

from longtalk.errors import InputError
from longtalk.providers.base import Capabilities
from longtalk.wires import AGENTS, WIRES
from longtalk.wires.base import Wire


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a provider is and how it is spoken to."""

    wire: str = "openai-chat"
    base_url: str | None = None
    base_url_variable: str | None = None
    key_variable: str | None = None
    """The key's environment variable; None for servers that need no key."""
    other_key_variable: str | None = None
    """Another one that may hold it."""
    capabilities: Capabilities = Capabilities()


_HOSTED = Capabilities(structured_output=True, cache=True)
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
    "ollama": Address(base_url="http://127.0.0.1:11434/v1", base_url_variable="OLLAMA_HOST"),
    "vllm": Address(base_url="http://127.0.0.1:8000/v1"),
    "llamacpp": Address(base_url="http://127.0.0.1:8080/v1"),
    "lmstudio": Address(base_url="http://127.0.0.1:1234/v1"),
    "compatible": Address(),
    "litellm": Address(),
    "claude-cli": Address(wire="claude-cli", capabilities=_AGENT),
    "gemini-cli": Address(wire="gemini-cli", capabilities=_AGENT),
    "codex-cli": Address(wire="codex-cli", capabilities=_AGENT),
    "local": Address(capabilities=Capabilities(tools=False, structured_output=True, cache=True, window=4096)),
}


_SERVERS = ("ollama", "vllm", "llamacpp", "lmstudio")
"""What they serve costs nothing by the token, as long as they run here."""


class Resolved(msgspec.Struct, frozen=True):
    """A model's name, taken apart and looked up."""

    provider: str
    model: str
    wire: Wire
    base_url: str
    key: str | None
    capabilities: Capabilities

    @property
    def account(self) -> str:
        import hashlib

        return hashlib.sha256(f"{self.base_url} {self.key or ''}".encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        return f"{self.provider}:{self.model}" if self.model else self.provider


def resolve(name: str, *, base_url: str | None = None, api_key: str | None = None) -> Resolved:
    """Look a model up. What is missing or unknown is an `InputError` that says what to do."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"The name of a model is Unicode, and {name!a} is not.") from None
    provider, colon, model = name.partition(":")
    address = PROVIDERS.get(provider)
    if address is None:
        form = "" if colon else "A model is named 'provider:model'. "
        raise InputError(f"There is no provider {provider!r}. {form}{_hint(provider)}")
    if not model and provider not in ("local", *AGENTS):
        raise InputError(f"Which model of {provider}? Name it as '{provider}:MODEL'.")
    if base_url is not None and not isinstance(base_url, str):
        raise InputError(f"`base_url` is text, not {type(base_url).__name__}.")
    given = base_url or _variable(address.base_url_variable)
    url = given or address.base_url or ""
    if not url and provider == "compatible":
        raise InputError("A 'compatible:' model needs base_url=, the address of its server, such as 'http://…/v1'.")
    if provider == "ollama":
        url = _ollama(url)
    if provider == "gemini":
        url = _gemini(url)
    key = _key(api_key or _variable(address.key_variable) or _variable(address.other_key_variable))
    if key is None and address.key_variable and not given:
        raise InputError(f"{provider} needs a key: pass api_key=, or set {address.key_variable}.")
    url = url.rstrip("/")
    hosted = address.key_variable is not None and url == address.base_url
    capabilities = _described(provider, model, url, address.capabilities, hosted=hosted)
    return Resolved(provider, model, WIRES[address.wire], url, key, capabilities)


def _described(provider: str, model: str, url: str, usual: Capabilities, *, hosted: bool) -> Capabilities:
    """What is known about this model, over what is usual at this provider.

    Nobody knows what another server takes for it, and for how long it keeps a prefix, unless it was said.
    """
    from longtalk.models import find, is_own
    from longtalk.prices import FREE

    prices = FREE if provider == "local" or (provider in _SERVERS and _is_here(url) and not _cloud(model)) else None
    found = find(f"{provider}:{model}" if model else provider)
    if found is None:
        return msgspec.structs.replace(usual, prices=prices, described=not hosted)
    told = hosted or is_own(found)
    if found.prices is not None and told:
        prices = found.prices
    limits = [limit for limit in (found.window, found.input_limit) if limit is not None]
    known = {
        "window": min(limits, default=None),
        "output_limit": found.output_limit,
        "tools": found.tools,
        "streaming": found.streaming,
        "structured_output": found.structured_output,
        "cache": None if found.cache is None else found.cache != "none",
        "cache_seconds": found.cache_seconds if told and found.cache != "none" else None,
        "keeps_state": found.keeps_state,
        "prices": prices,
    }
    return msgspec.structs.replace(usual, **{name: value for name, value in known.items() if value is not None})


def _is_here(url: str) -> bool:
    """Whether a server is on this machine."""
    return re.match(r"https?://(127(\.\d+){3}|localhost|\[::1\])(:\d+)?(/|$)", url) is not None


def _cloud(model: str) -> bool:
    """Whether Ollama passes a model on to a machine of its own, which is paid for."""
    return model.rpartition(":")[2].endswith("cloud")


def _key(key: object) -> str | None:
    """A key that fits into a header. One that doesn't is never quoted."""
    if key is None or key == "":
        return None
    if not isinstance(key, str):
        raise InputError(f"A key is text, not {type(key).__name__}.")
    key = key.strip()
    if not key.isascii() or not key.isprintable():
        raise InputError("The key has characters that no key has: check that it was copied whole and alone.")
    return key


def _variable(name: str | None) -> str | None:
    return os.environ.get(name, "").strip() or None if name else None


def _ollama(url: str) -> str:
    """OLLAMA_HOST as Ollama reads it: without a scheme its own port is meant, without a host this machine."""
    scheme, separator, rest = url.rstrip("/").rpartition("://")
    host, slash, path = rest.partition("/")
    host = re.sub(r"^(0\.0\.0\.0)?(?=:|$)", "127.0.0.1", host)
    if not separator and not re.search(r":\d+$", host):
        host += ":11434"
    url = f"{scheme or 'http'}://{host}{slash}{path}"
    return url if url.endswith("/v1") else f"{url}/v1"


def _gemini(url: str) -> str:
    """The vendor's own SDK takes an address without a version, and adds one."""
    url = url.rstrip("/")
    return url if re.search(r"/v\d+\w*$", url) else f"{url}/v1beta"


def _hint(provider: str) -> str:
    import difflib

    close = difflib.get_close_matches(provider, PROVIDERS, n=1, cutoff=0.5)
    near = f"Did you mean {close[0]!r}? " if close else ""
    return f"{near}Known are {', '.join(PROVIDERS)}; any OpenAI-compatible server is 'compatible:MODEL' with base_url=."
