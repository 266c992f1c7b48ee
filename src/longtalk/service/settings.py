"""The settings of the service: one typed model, read from a TOML file and overridden by the environment and by flags.

The file is `settings.toml` in the user's configuration folder, or the one that `LONGTALK_SETTINGS` names. API keys of
providers are in `credentials.toml` beside it, which only the user can read (`longtalk config set-key`).
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from longtalk._util import user_dirs
from longtalk._util.file_locks import change_file
from longtalk.errors import InputError
from longtalk.providers.registry import PROVIDERS

_log = logging.getLogger("longtalk")

ENVIRONMENT = "LONGTALK_"
"""The prefix of environment variables that override settings: `LONGTALK_STORE`, `LONGTALK_PORT` and so on."""
_TABLES = ("jwt", "limits", "models", "retention")
"""Settings that are tables: only the file can have them. `LONGTALK_MODELS` names the folder of the local models."""
_Count = Annotated[int, Meta(ge=0)]
_Amount = Annotated[float, Meta(ge=0)]


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model to which the settings give a name, with its policy, system text and address."""

    model: str
    """The model as `provider:model`."""
    policy: str = ""
    """What is sent, written as in Python: `Memory()`. Empty: the service's policy."""
    memory: dict[str, Any] = {}
    """The options of `Memory` as a table, in place of `policy`."""
    options: dict[str, Any] = {}
    system: str = ""
    """System text for requests that bring none."""
    base_url: str | None = None


class JwtSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings for accepting signed tokens (JWT) of another system instead of access keys."""

    issuer: str
    audience: str
    key_file: str
    """A file with the public key (PEM) that tokens are signed with."""
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    owner_claim: str = "sub"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits for each owner, counted by all processes together. 0 means that there is no limit."""

    body_bytes: Annotated[int, Meta(ge=1)] = 20_000_000
    """The largest body of a request; always limited."""
    json_depth: Annotated[int, Meta(ge=1)] = 100
    """How deep objects and arrays in a body may be nested; always limited."""
    requests_per_minute: _Count = 0
    concurrent_turns: _Count = 0
    tokens_per_day: _Count = 0
    """Tokens sent and received in a day (UTC)."""
    cost_per_day: _Amount = 0.0
    """US dollars in a day (UTC). Models without known prices are then refused."""


class RetentionRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of days without a change after which conversations are deleted. 0 keeps them."""

    days: _Amount = 0.0
    chain_days: _Amount = 0.0
    """For chains of responses that belong to no conversation; 0: as other conversations."""


class RetentionSettings(RetentionRule, frozen=True, forbid_unknown_fields=True):
    """The rule for all owners, and other rules for some of them."""

    owners: dict[str, RetentionRule] = {}

    @property
    def is_on(self) -> bool:
        """Whether anything is ever deleted."""
        return any(rule.days or rule.chain_days for rule in (self, *self.owners.values()))

    def find(self, owner: str) -> RetentionRule:
        """Return the rule for an owner."""
        return self.owners.get(owner, self)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of the service."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8086
    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    store: str = ""
    """A path or an address, as for `longtalk list --store`; empty for the SQLite file in the user's data folder."""
    default_model: str = "local"
    policy: str = "KeepAll()"
    """The policy of models that have none of their own."""
    models: dict[str, ModelSettings] = {}
    any_model: bool = True
    """Whether clients may name any `provider:model`, besides the names in `models`."""
    jwt: JwtSettings | None = None
    seal_file: str = ""
    """A TOML file with the keys that seal the states of clients: name = "64 hexadecimal digits", the newest first."""
    limits: Limits = Limits()
    retention: RetentionSettings = RetentionSettings()
    shutdown_seconds: _Count = 20
    """How long a process that is stopped lets turns go on before it hands them over."""
    access_log: bool = True
    """Whether `longtalk serve` writes a line to standard error for each request."""
    page: bool = True
    """Whether the web page is served at `/`."""
    telemetry: bool = False
    """Whether OpenTelemetry spans and metrics are sent to where the variables `OTEL_EXPORTER_OTLP_…` say."""
    telemetry_content: bool = False
    """Whether spans have what was said: system texts, messages, answers, arguments and results of tools."""
    cors_origins: list[str] = []
    allowed_hosts: list[str] = []
    """Names besides those of this machine under which clients on it may address the service."""
    root_path: str = ""
    trusted_proxies: list[str] = []


def get_settings_path() -> Path:
    """Return the path of the settings file."""
    named = os.environ.get("LONGTALK_SETTINGS")
    return Path(named) if named else Path(user_dirs.config()) / "settings.toml"


def get_credentials_path() -> Path:
    """Return the path of the file with the API keys of providers."""
    return get_settings_path().with_name("credentials.toml")


def load_settings(path: Path | None = None, **flags: Any) -> Settings:
    """Return the settings: those of the file, overridden by environment variables and then by flags that are not None.

    Raises `InputError` if the file can't be read or a setting is unknown or invalid. A missing file has no settings,
    unless `path` names it.
    """
    source = path or get_settings_path()
    values = _read_toml(source, must_exist=path is not None)
    for field in msgspec.structs.fields(Settings):
        variable = ENVIRONMENT + field.name.upper()
        given = os.environ.get(variable)
        if given is not None and field.name not in _TABLES:
            values[field.name] = [each for each in given.split(",") if each] if "list" in str(field.type) else given
        elif given is not None and field.name != "models":
            raise InputError(f"{variable} can't be used: `{field.name}` is a table. Set it in {source}.")
    values |= {name: value for name, value in flags.items() if value is not None}
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as problem:
        what = explain_invalid(problem)
        name = what.partition(":")[0]
        variable = ENVIRONMENT + name.upper()
        where = "the options" if flags.get(name) is not None else variable if variable in os.environ else source
        raise InputError(f"The settings can't be used: {what}. Change it in {where}.") from None


def explain_invalid(problem: msgspec.ValidationError) -> str:
    """Return what is wrong with settings, after the name of the setting where it is known."""
    what, _, path = str(problem).partition(" - at `$.")
    return f"{path.removesuffix('`')}: {what}" if path else what


def load_credentials() -> dict[str, str]:
    """Return the API keys of providers that the user has stored, by provider."""
    values = _read_toml(get_credentials_path(), must_exist=False)
    try:
        return msgspec.convert(values, dict[str, str])
    except msgspec.ValidationError:
        raise InputError("credentials.toml must have one line for each provider: name = 'key'.") from None


def find_key(keys: Mapping[str, str], provider: str) -> str | None:
    """Return the stored key of a provider, or of one with the same variable: `openai` and `openai-chat` share a key."""
    address = PROVIDERS.get(provider)
    variable = address.key_variable if address is not None else None
    same = [name for name, each in PROVIDERS.items() if variable and each.key_variable == variable]
    return next((keys[name] for name in (provider, *same) if name in keys), None)


class Credentials:
    """The stored API keys of providers. The file is read again when it has changed, so new keys need no restart."""

    def __init__(self) -> None:
        self._stamp: tuple[int, ...] | None = None
        self._keys: dict[str, str] = {}

    def get(self, provider: str) -> str | None:
        """Return the stored key of a provider, or None if there is none."""
        stamp = _read_stamp(get_credentials_path())
        if stamp != self._stamp:
            try:
                self._keys = load_credentials()
            except InputError as problem:
                # An editor may just be saving the file.
                _log.warning("the stored API keys can't be read, so those read before stay in use: %s", problem)
            self._stamp = stamp
        return find_key(self._keys, provider)


def _read_stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


def check_credential(provider: str, key: str) -> None:
    """Raise `InputError` for an unknown provider, and for a key that can't be one; the error does not contain it."""
    if provider not in PROVIDERS:
        raise InputError(f"Unknown provider {provider!r}. Known providers: {', '.join(PROVIDERS)}.")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise InputError(
            "The API key contains spaces, control characters or letters that keys don't have: "
            "check that you copied only the key."
        )


def store_credential(provider: str, key: str) -> Path:
    """Store the API key of a provider in a file that only the user can read; an empty key removes it.

    Raises `InputError` for an unknown provider, and for a key that can't be one.
    """
    check_credential(provider, key)
    path = get_credentials_path()

    def change() -> str:
        values = load_credentials()
        values.pop(provider, None)
        if key:
            values[provider] = key
        return "".join(f"{_quote(name)} = {_quote(value)}\n" for name, value in sorted(values.items()))

    change_file(path, change, mode=0o600)
    return path


def _quote(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _read_toml(path: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        read: Mapping[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if must_exist:
            raise InputError(f"The settings file {str(path)!r} does not exist.") from None
        return {}
    except OSError as problem:
        raise InputError(f"{str(path)!r} can't be read: {problem.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InputError(f"{str(path)!r} is not valid TOML: {problem}.") from None
    return dict(read)
