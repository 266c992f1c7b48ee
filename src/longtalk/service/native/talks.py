"""The stored conversation that a route works on, opened as it was last held."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from longtalk.branches.settings import Settings
from longtalk.conversation.conversation import AsyncConversation
from longtalk.policies import Policy
from longtalk.policies.notation import parse_policy
from longtalk.service.errors import ApiError
from longtalk.service.models import ServedModel
from longtalk.service.native.conversations import find_info
from longtalk.service.native.routes import ApiCall


async def open_talk(call: ApiCall[Any, Any], branch: str, *, policy: Policy | None = None) -> AsyncConversation:
    """Return the conversation that the path of a call names, with the model and the policy of its last turn.

    `policy` replaces that policy.
    """
    info = await find_info(call)
    settings = await call.archive.settings(info.id, branch=branch)
    model = find_model(call, None, settings, sends=False)
    return AsyncConversation(
        info.id,
        model=model.provider,
        owner=call.caller.owner,
        store=call.service.store,
        branch=branch,
        create=False,
        policy=policy or model.policy,
        options=model.options,
    )


def find_model(
    call: ApiCall[Any, Any],
    name: str | None,
    settings: Settings | None,
    policy: str | None = None,
    *,
    sends: bool = True,
) -> ServedModel:
    """Return the model of a turn: the one that is named, else that of the last turn if it is served, else the default.

    The policy is the one that is given, else that of the last turn, else that of the model. The model of the last turn
    keeps the options and the system text of that turn. Another model without a system text of its own goes on with the
    one that was given to the conversation. `sends` means the same as for `Models.find`.
    """
    models, caller = call.service.models, call.caller
    chosen = models.find(name, allowed=caller.models, sends=sends) if name is not None else None
    if chosen is None and settings is not None:
        names = [each for each in models.names if not caller.models or each in caller.models]
        for each in (*names, settings.model):
            with contextlib.suppress(ApiError):
                found = models.find(each, allowed=caller.models)
                if found.provider.label == settings.model:
                    # A name may stand for the same model with another system text.
                    chosen = msgspec.structs.replace(
                        found, system=settings.system or "", options=settings.options or {}
                    )
                    break
    chosen = chosen or models.find(caller.models[0] if caller.models else None, allowed=caller.models, sends=sends)
    if settings is not None and settings.system and not chosen.system and not _is_of_model(call, settings.system):
        chosen = msgspec.structs.replace(chosen, system=settings.system)
    if policy is not None:
        return msgspec.structs.replace(chosen, policy=parse_policy(policy))
    if settings is not None and settings.policy is not None:
        return msgspec.structs.replace(chosen, policy=settings.policy)
    return chosen


def _is_of_model(call: ApiCall[Any, Any], system: str) -> bool:
    """Return True if a system text belongs to a served model, and not to the conversation."""
    for name in call.service.models.names:
        with contextlib.suppress(ApiError):
            if call.service.models.find(name).system == system:
                return True
    return False
