"""The table `[models.NAME.memory]`: the options of `Memory`, with those of brief and recall in tables inside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk._util.suggest import suggest
from longtalk.errors import InputError
from longtalk.memory.brief.schema import Brief, Field, Schema
from longtalk.memory.profile.config import Profile
from longtalk.memory.recall.config import Recall
from longtalk.policies import Memory
from longtalk.service.json_errors import describe

_PARTS: Mapping[tuple[type, str], type] = {
    (Memory, "brief"): Brief,
    (Memory, "recall"): Recall,
    (Memory, "profile"): Profile,
    (Brief, "schema"): Schema,
    (Profile, "schema"): Schema,
    (Schema, "fields"): Field,
}


def read_memory(values: Mapping[str, Any], where: str) -> Memory:
    """Return the policy that a table describes. Raises `InputError` that names the option that is wrong."""
    _check_names(values, Memory, where)
    try:
        return msgspec.convert(values, Memory)
    except msgspec.ValidationError as problem:
        raise InputError(f"{where}: {describe(str(problem))[0]}") from None
    except InputError as problem:
        raise InputError(f"{where}: {problem}") from None


def _check_names(values: Any, kind: type, where: str) -> None:
    """Raise `InputError` for an option that there is not, in this table or in one inside it."""
    if isinstance(values, Sequence) and not isinstance(values, str):
        for each in values:
            _check_names(each, kind, where)
    if not isinstance(values, Mapping):
        return
    known = [field.name for field in msgspec.structs.fields(kind)]
    for name, value in values.items():
        if name not in known:
            hint = suggest(name, known) or f" These can be set: {', '.join(known)}."
            raise InputError(f"{where}: there is no option {name!r}.{hint}")
        if (kind, name) in _PARTS:
            _check_names(value, _PARTS[kind, name], f"{where}.{name}")
