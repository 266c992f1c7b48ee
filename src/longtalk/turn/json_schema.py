"""Check a value against a JSON Schema, limited to the keywords that providers accept for structured output.

The keywords are those of structured output: types, properties, items, enumerations, alternatives, references, and the
limits of numbers, texts and lists. Other keywords are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_DEEPEST = 100


def check_value(value: Any, schema: Mapping[str, Any]) -> None:
    """Raise a `ValueError` that says where the value does not match the schema, if it does not."""
    _check(value, schema, schema, "the answer", 0)


def _check(value: Any, schema: Any, root: Mapping[str, Any], where: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"{where} is nested too deeply")
    if schema is False:
        raise ValueError(f"{where} is not allowed")
    if not isinstance(schema, Mapping):
        return
    if isinstance(reference := schema.get("$ref"), str):
        _check(value, _resolve(reference, root), root, where, depth + 1)
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(kinds, list) and not any(_is_type(value, kind) for kind in kinds):
        raise ValueError(f"{where} must be of type {' or '.join(map(str, kinds))}")
    if "enum" in schema and not any(_equal(value, each) for each in schema["enum"]):
        raise ValueError(f"{where} must be one of {schema['enum']!r}")
    if "const" in schema and not _equal(value, schema["const"]):
        raise ValueError(f"{where} must be {schema['const']!r}")
    for each in schema.get("allOf", ()):
        _check(value, each, root, where, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        if schema.get(keyword):
            _check_any(value, schema[keyword], root, where, depth)
    if isinstance(value, dict):
        _check_object(value, schema, root, where, depth)
    elif isinstance(value, list):
        _check_limits(len(value), schema, "minItems", "maxItems", f"the number of items of {where}")
        for i, each in enumerate(value):
            _check(each, schema.get("items"), root, f"{where}[{i}]", depth + 1)
    elif isinstance(value, str):
        _check_limits(len(value), schema, "minLength", "maxLength", f"the length of {where}")
        if isinstance(pattern := schema.get("pattern"), str) and not _matches(pattern, value):
            raise ValueError(f"{where} must match {pattern!r}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_limits(value, schema, "minimum", "maximum", where)


def _check_object(
    value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], where: str, depth: int
) -> None:
    properties = schema.get("properties") or {}
    missing = next((name for name in schema.get("required", ()) if name not in value), None)
    if missing is not None:
        raise ValueError(f"{where} lacks {missing!r}")
    for name, each in value.items():
        inner = properties.get(name, schema.get("additionalProperties"))
        _check(each, inner, root, f"{name!r} of {where}", depth + 1)


def _check_any(value: Any, schemas: Any, root: Mapping[str, Any], where: str, depth: int) -> None:
    problem: ValueError | None = None
    for each in schemas:
        try:
            _check(value, each, root, where, depth + 1)
        except ValueError as found:
            problem = problem or found
        else:
            return
    if problem is not None:
        raise problem


def _check_limits(number: float, schema: Mapping[str, Any], least: str, most: str, what: str) -> None:
    if isinstance(limit := schema.get(least), int | float) and number < limit:
        raise ValueError(f"{what} must be at least {limit}")
    if isinstance(limit := schema.get(most), int | float) and number > limit:
        raise ValueError(f"{what} must be at most {limit}")


def _is_type(value: Any, kind: Any) -> bool:
    if isinstance(value, bool):
        return bool(kind == "boolean")
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(str(kind), (object,)))


def _equal(value: Any, other: Any) -> bool:
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return True


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    """Return the part of the schema that a reference names, or None if it names none."""
    found: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found
