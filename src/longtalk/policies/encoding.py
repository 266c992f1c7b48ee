"""Policies as data, so that a stored conversation can remember the policy that it is held under.

Only the policies, triggers and strategies of this package are encoded, by their names: reading data never imports or
calls anything else. A policy that holds something of the app's own, such as a function, can't be encoded.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from longtalk.errors import InputError
from longtalk.memory.brief.schema import Brief, Field, Schema
from longtalk.memory.profile.config import Profile
from longtalk.memory.recall.config import Recall
from longtalk.policies.base import Compactor, Policy
from longtalk.policies.combine import Combine
from longtalk.policies.cut_current import CutCurrent
from longtalk.policies.digest_tools import DigestTools
from longtalk.policies.drop_oldest import DropOldest
from longtalk.policies.economy import Economy
from longtalk.policies.keep_all import KeepAll
from longtalk.policies.keep_last import KeepLast, KeepMessages
from longtalk.policies.limits import AllOf, AnyOf, OverExchanges, OverMessages, OverTokens, OverWindow
from longtalk.policies.memory import Memory
from longtalk.policies.summarize import Summarize, SummarizeOldest
from longtalk.policies.token_budget import TokenBudget, WindowShare

_STRUCTS: dict[str, type[msgspec.Struct]] = {
    kind.__name__: kind
    for kind in (
        *(KeepAll, KeepLast, KeepMessages, TokenBudget, WindowShare, Summarize, Economy, Memory, Compactor),
        *(CutCurrent, DigestTools, DropOldest, SummarizeOldest, Brief, Schema, Field, Profile, Recall),
        *(OverExchanges, OverMessages, OverTokens, OverWindow),
    )
}
_GROUPS: dict[str, tuple[type, str]] = {
    "Combine": (Combine, "policies"),
    "AnyOf": (AnyOf, "triggers"),
    "AllOf": (AllOf, "triggers"),
}
"""Classes that take any number of parts, and the attribute that has them."""


def encode_policy(policy: Policy) -> dict[str, Any] | None:
    """Return a policy as JSON data, or None if reading the data would not yield the same policy."""
    try:
        data = cast("dict[str, Any]", _encode(policy))
        return data if repr(decode_policy(data)) == repr(policy) else None
    except (InputError, TypeError, RecursionError):
        return None


def decode_policy(data: Any) -> Policy:
    """Return the policy that `encode_policy` has encoded. Raises `InputError` if the data is invalid."""
    try:
        policy = _decode(data)
    except (TypeError, RecursionError) as problem:
        raise InputError(f"The stored policy can't be read: {problem}.") from None
    if not hasattr(policy, "compactors"):
        raise InputError(f"The stored data does not describe a policy: {policy!r}.")
    return cast("Policy", policy)


def _encode(value: Any) -> Any:
    name = type(value).__name__
    if _STRUCTS.get(name) is type(value):
        fields = {field.name: field for field in msgspec.structs.fields(value)}
        changed = {key: getattr(value, key) for key in fields if getattr(value, key) != fields[key].default}
        return {"type": name, **{key: _encode(each) for key, each in changed.items()}}
    if name in _GROUPS and _GROUPS[name][0] is type(value):
        return {"type": name, "of": [_encode(each) for each in getattr(value, _GROUPS[name][1])]}
    if isinstance(value, tuple):
        return [_encode(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{name} can't be encoded")


def _decode(data: Any) -> Any:
    if isinstance(data, list):
        return tuple(_decode(each) for each in data)
    if not isinstance(data, dict):
        return data
    name, values = data.get("type"), {key: _decode(each) for key, each in data.items() if key != "type"}
    if name in _GROUPS:
        return _GROUPS[name][0](*values["of"]) if isinstance(values.get("of"), tuple) else None
    if name not in _STRUCTS:
        raise TypeError(f"{name!r} is unknown")
    return _STRUCTS[name](**values)
