"""Schemas of answers in the strict form that some providers require."""

from __future__ import annotations

from typing import Any

import pytest

from longtalk.wires.schemas import OutputSchema, is_schema_refused


def strict(part: Any, *, all_required: bool = True) -> Any:
    """Return the strict form of a property with this schema, or None if there is none."""
    schema = {"type": "object", "properties": {"x": part}, "required": []}
    made = OutputSchema("X", schema).make_strict(all_required=all_required)
    return made and made["properties"]["x"]


@pytest.mark.parametrize(
    "part",
    [
        {},
        True,
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "array"},
        {"type": "array", "prefixItems": [{"type": "integer"}], "items": False},
        {"anyOf": [{"type": "integer"}, {}]},
        {"type": "object", "properties": {}, "patternProperties": {"a": {"type": "integer"}}},
    ],
)
def test_a_schema_that_allows_any_content_has_no_strict_form(part: Any) -> None:
    assert strict(part) is None


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "integer", "title": "X", "default": 1}, {"type": "integer"}),
        ({"type": "string", "pattern": "a+"}, {"type": "string", "description": '{"pattern":"a+"}'}),
        (
            {"type": "string", "description": "A.", "minLength": 1},
            {"type": "string", "description": 'A. {"minLength":1}'},
        ),
        ({"oneOf": [{"type": "null"}, {"type": "string"}]}, {"anyOf": [{"type": "null"}, {"type": "string"}]}),
        ({"allOf": [{"$ref": "#/$defs/A"}], "default": None}, {"$ref": "#/$defs/A"}),
        ({"$ref": "#/$defs/A", "description": "An A."}, {"$ref": "#/$defs/A"}),
        ({"enum": ["a", None]}, {"enum": ["a", None], "type": ["string", "null"]}),
        ({"const": 1}, {"const": 1, "type": "integer"}),
        ({"type": "array", "items": {"type": "string", "default": ""}}, {"type": "array", "items": {"type": "string"}}),
    ],
)
def test_only_keywords_that_strict_providers_accept_are_kept(part: Any, expected: Any) -> None:
    assert strict(part) == expected


def test_a_property_may_have_the_name_of_a_keyword() -> None:
    part = {"type": "object", "properties": {"default": {"type": "integer"}, "not": {"type": "string"}}}
    assert strict(part)["properties"] == part["properties"]
    assert strict(part)["required"] == ["default", "not"]
    assert strict(part, all_required=False)["required"] == []


@pytest.mark.parametrize(
    "error",
    [
        b"This response_format type is unavailable now",
        b"Unsupported parameter: 'text.format' is not supported with this model.",
        b"output_config.format: Extra inputs are not permitted",
        b"Invalid JSON payload received. Unknown name \"responseJsonSchema\" at 'generation_config'",
        b"Function calling with a response mime type: 'application/json' is unsupported",
        b"'claude-x' does not support structured outputs",
    ],
)
def test_a_refusal_of_a_schema_is_recognized(error: bytes) -> None:
    assert is_schema_refused(error)
    assert not is_schema_refused(b"messages.1: all messages must have non-empty content")
