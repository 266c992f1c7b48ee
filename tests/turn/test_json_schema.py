"""The check of answers against a JSON Schema."""

from __future__ import annotations

from typing import Any

import pytest

from longtalk import Chat, InputError
from longtalk.testing import Scripted, says
from longtalk.turn.json_schema import check_value

POINT = {"type": "object", "properties": {"x": {"type": "integer", "minimum": 0}}, "required": ["x"]}
TREE = {
    "type": "object",
    "properties": {"left": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "name": {"type": "string", "maxLength": 3}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ({"x": 1}, POINT),
        ({"x": 2.0}, POINT),
        ({"left": {"left": None, "name": "abc"}}, TREE),
        ([1, "a"], {"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 2}),
        ("b", {"enum": ["a", "b"]}),
        ("ab", {"pattern": "^a"}),
        (1, {"oneOf": [{"type": "string"}, {"const": 1}]}),
        (3, {"$ref": "#/nowhere"}),
        ("x", {"pattern": "("}),
        ({"y": 1}, {"type": "object", "additionalProperties": {"type": "integer"}}),
    ],
)
def test_a_value_that_matches_passes(value: Any, schema: Any) -> None:
    check_value(value, schema)


@pytest.mark.parametrize(
    ("value", "schema", "problem"),
    [
        ({}, POINT, "lacks 'x'"),
        ({"x": True}, POINT, "must be of type integer"),
        ({"x": 1.5}, POINT, "must be of type integer"),
        ({"x": -1}, POINT, "at least 0"),
        ({"left": {"left": 1}}, TREE, "'left' of 'left' of the answer must be of type object"),
        ({"name": "abcd"}, TREE, "at most 3"),
        ({"other": 1}, TREE, "is not allowed"),
        ([1], {"type": "array", "minItems": 2}, "at least 2"),
        ([1, "a"], {"items": {"type": "integer"}}, r"the answer\[1\]"),
        ("c", {"enum": ["a"]}, "one of"),
        (True, {"const": 1}, "must be 1"),
        ("b", {"pattern": "^a"}, "must match"),
        (1, {"allOf": [{"type": "string"}]}, "type string"),
        ([], {"type": "object"}, "type object"),
    ],
)
def test_a_value_that_does_not_match_is_refused_with_its_place(value: Any, schema: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        check_value(value, schema)


def test_a_schema_that_refers_to_itself_for_ever_ends() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        check_value(1, {"$ref": "#"})


def test_the_output_of_a_turn_can_be_a_json_schema() -> None:
    provider = Scripted(says('{"x": "no"}'), says('{"x": 3}'))
    reply = Chat(provider).send("Where?", output={"title": "Point", **POINT})
    assert reply.output == {"x": 3}
    assert [notice.kind for notice in reply.notices] == ["output_refused"]


def test_the_json_schema_of_an_output_is_that_of_an_object() -> None:
    with pytest.raises(InputError, match="set its `type` to 'object'"):
        Chat(Scripted()).send("Where?", output={"type": "array"})
