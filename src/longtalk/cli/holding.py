"""How a conversation is held: by which model, and with which policy, options and system text.

These are those of the command line, else those of the conversation's last turn, else the defaults of the settings file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from longtalk._sync.archive.archive import Archive
from longtalk._sync.providers.factory import connect
from longtalk._util.suggest import suggest
from longtalk.branches.settings import Settings
from longtalk.cli.local_model import prepare_model
from longtalk.cli.output import print_note
from longtalk.cli.store import choose_branch
from longtalk.errors import InputError, NotFound
from longtalk.policies import Policy
from longtalk.policies.notation import parse_policy
from longtalk.providers.base import Provider
from longtalk.providers.registry import complete_label
from longtalk.service.settings import ModelSettings, find_key, load_credentials
from longtalk.service.settings import Settings as ServiceSettings
from longtalk.stores.base import ConversationInfo


class Choices(NamedTuple):
    """What the command line says about how a conversation is held. None: as it was last held, else the default."""

    model: str | None = None
    base_url: str | None = None
    policy: Policy | None = None
    system: str | None = None


class Held(NamedTuple):
    """How a conversation is held: by which model, and with what."""

    model: str
    base_url: str | None
    policy: Policy
    options: Mapping[str, Any]
    system: str | None
    is_default: bool
    """Whether the small local model is used because nothing else was chosen, ever."""


def resolve(settings: ServiceSettings, choices: Choices, held: Settings | None, address: str | None = None) -> Held:
    """Return how a conversation is to be held, given how it was held in its last turn, and at which address."""
    model, base_url, policy, system = choices
    if model is None and held is not None:
        if held.own_address and base_url is None:
            base_url = address or _find_address(settings, held.model)
        chosen = ModelSettings(held.model)
    else:
        chosen = find_model_settings(settings, model or settings.default_model)
    if policy is None and chosen.policy:
        policy = parse_policy(chosen.policy)
    if policy is None and held is not None and held.policy is None:
        raise InputError(f"The policy {held.policy_text} can't be restored: pass --policy.")
    policy = policy or (held.policy if held is not None else None) or parse_policy(settings.policy)
    if system is None and chosen.system:
        system = chosen.system
    elif system is None and held is not None:
        system = held.system
        if held.is_system_missing:
            print_note("The system text of the last turn is not stored: pass it with -s to use it again.")
    return Held(
        model=chosen.model,
        base_url=base_url or chosen.base_url,
        policy=policy,
        options=chosen.options,
        system=system,
        is_default=chosen.model == "local" and model is None and held is None,
    )


def _find_address(settings: ServiceSettings, model: str) -> str:
    """Return the only address that the settings have for a model. Conversations don't store addresses."""
    found = {each.base_url for each in settings.models.values() if each.model == model and each.base_url}
    if len(found) != 1:
        raise InputError(
            f"The last turn used {model} at an address of its own: pass --base-url again, or -m. "
            f"`longtalk config alias NAME {model} --base-url URL` keeps it."
        )
    return found.pop()


def connect_model(held: Held, before: Settings | None = None) -> tuple[Provider, Mapping[str, Any]]:
    """Return the provider of a model, which the caller closes, and the options of its requests.

    These are the options of the last turn if the same model answered.
    """
    api_key = find_key(load_credentials(), held.model.partition(":")[0])
    # This names the model that `local` means, so that the conversation goes on with it and lists can be filtered by it.
    model = prepare_model(held.model)
    provider = connect(model, base_url=held.base_url, api_key=api_key)
    return provider, before.options if before is not None and before.model == provider.label else held.options


def find_model_settings(settings: ServiceSettings, name: str) -> ModelSettings:
    """Return the model that a name means: one of the settings, or a model with or without its provider."""
    if name in settings.models:
        return settings.models[name]
    try:
        return ModelSettings(complete_label(name))
    except InputError as problem:
        own = suggest(name, settings.models)
        text = f"There is no model or alias {name!r}.{own}" if own else str(problem)
        raise InputError(f"{text} `longtalk models WORDS` finds models.") from None


def find_settings(
    archive: Archive,
    id: str | None,  # noqa: A002
    branch: str | None,
) -> tuple[str | None, Settings | None]:
    """Return the conversation to continue, and how it was last held; None if it is new, or if that is not stored."""
    found = [each.id for each in archive.conversations(limit=1)] if id is None else [id]
    info = archive.store.info(archive.owner, found[0]) if found else None
    with contextlib.suppress(NotFound, InputError):
        if info is not None:
            return info.id, read_settings(archive, info, choose_branch(archive, info, branch))
    return None, None


def read_settings(archive: Archive, info: ConversationInfo, branch: str) -> Settings | None:
    """Return how a branch was last held. For one that was cut before its first message, what was cut off says that."""
    found = archive.settings(info.id, branch=branch)
    others = [] if found is not None else archive.store.branches(archive.owner, info.id)
    if all(head.size for head in others if head.branch == branch):
        return found
    others.sort(key=lambda head: head.updated, reverse=True)
    return next(filter(None, (archive.settings(info.id, branch=head.branch) for head in others)), None)
