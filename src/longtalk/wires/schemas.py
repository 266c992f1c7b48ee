"""The JSON Schema of an answer that a turn asks for, in its original form and in the strict form for some providers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from longtalk._util import json_bytes

_STRUCTURE = ("type", "enum", "const", "$ref")
_NESTED = ("items", "anyOf", "properties", "$defs")
_CONSTRAINTS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern"),
    *("format", "minItems", "maxItems", "uniqueItems", "contentEncoding"),
)
"""Keywords that not every provider accepts. The decoder checks them, and the model reads them in the description."""
_UNSUPPORTED = ("prefixItems", "patternProperties", "unevaluatedProperties", "not", "if", "dependentSchemas")
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_REFUSED = re.compile(
    r"response_?format|json.?schema|structured.?output|text\.format|output_config|output_format"
    r"|response_?(?:json_?)?schema|response.?mime.?type",
    re.IGNORECASE,
)


class OutputSchema(msgspec.Struct, frozen=True):
    """The schema of an answer. Its root is an object."""

    name: str
    """A name of letters, digits, `_` and `-`."""
    schema: Mapping[str, Any]

    def make_strict(self, *, all_required: bool) -> dict[str, Any] | None:
        """Return the schema with objects closed, and with only the keywords that strict providers accept.

        With `all_required`, each object requires all of its properties. Returns None if the schema has a part that has
        no strict form, such as a mapping with any keys.
        """
        try:
            return _make_strict(self.schema, all_required=all_required)
        except _NoStrictForm:
            return None


def is_schema_refused(error: bytes) -> bool:
    """Return True if an error says that the server does not accept a schema for the answer, or not this one."""
    return _REFUSED.search(error.decode("utf-8", "replace")) is not None


class _NoStrictForm(Exception):
    pass


def _make_strict(schema: Any, *, all_required: bool) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or any(key in schema for key in _UNSUPPORTED):
        raise _NoStrictForm
    schema = dict(schema)
    if len(schema.get("allOf", ())) == 1:
        schema = {**schema.pop("allOf")[0], **schema}
    if "oneOf" in schema:
        schema["anyOf"] = schema.pop("oneOf")
    if "$ref" in schema and "properties" not in schema:
        # Next to a reference, strict providers accept no other keyword.
        return {"$ref": schema["$ref"]}
    strict = {key: schema[key] for key in _STRUCTURE if key in schema}
    values = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]
    if values and "type" not in schema:
        types = list(dict.fromkeys(_TYPES.get(type(value), "string") for value in values))
        strict["type"] = types[0] if len(types) == 1 else types
    for key in _NESTED:
        if isinstance(inner := schema.get(key), Mapping) and key != "items":
            strict[key] = {name: _make_strict(each, all_required=all_required) for name, each in inner.items()}
        elif isinstance(inner, list):
            strict[key] = [_make_strict(each, all_required=all_required) for each in inner]
        elif inner is not None:
            strict[key] = _make_strict(inner, all_required=all_required)
    if schema.get("type") == "object":
        if schema.get("additionalProperties") not in (None, False) or "properties" not in schema:
            raise _NoStrictForm
        strict["additionalProperties"] = False
        strict["required"] = list(schema["properties"]) if all_required else list(schema.get("required", ()))
    elif schema.get("type") == "array" and "items" not in strict:
        raise _NoStrictForm
    if not strict:
        # Any value is allowed.
        raise _NoStrictForm
    limits = {key: schema[key] for key in _CONSTRAINTS if key in schema}
    notes = [schema.get("description", ""), json_bytes.encode(limits).decode() if limits else ""]
    if description := " ".join(note for note in notes if note):
        strict["description"] = description
    return strict
