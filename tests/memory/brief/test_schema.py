"""Test that the schema of a brief is checked when it is created."""

from typing import Any

import msgspec
import pytest

from longtalk.errors import InputError
from longtalk.memory.brief.schema import GENERAL, Brief, Field, Schema


def test_the_general_schema_has_what_most_conversations_need() -> None:
    names = [field.name for field in GENERAL.fields]
    assert names == ["goal", "constraints", "decisions", "open_questions", "facts", "topics"]


def test_a_field_goes_by_its_name_unless_told_otherwise() -> None:
    assert Field("goal").key == "goal"
    assert Field("goal", key="g").key == "g"


def test_a_text_has_one_item_and_a_list_some() -> None:
    assert Field("goal", "text").cap == 1
    assert Field("facts").cap == 8
    assert Field("facts", floor=12).cap == 12


@pytest.mark.parametrize("called", ["open_questions", "open questions", "Open-Questions", "OPEN", " open "])
def test_a_field_is_found_by_name_and_key(called: str) -> None:
    found = GENERAL.find(called)
    assert found is not None
    assert found.name == "open_questions"


@pytest.mark.parametrize("called", ["", "_", "questions", "x" * 10**6, "\ud800"])
def test_what_is_not_there_is_not_found(called: str) -> None:
    assert GENERAL.find(called) is None


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"name": "open questions"}, "letters, digits and underscores"),
        ({"name": ""}, "letters, digits and underscores"),
        ({"name": "_"}, "letters, digits and underscores"),
        ({"name": 5}, "letters, digits and underscores"),
        ({"name": "x" * 41}, "letters, digits and underscores"),
        ({"name": "ops"}, "use that name for their operations"),
        *(({"name": sign + "facts"}, "letters, digits and underscores") for sign in "=+-~!"),
        *(({"key": sign + "f"}, "The key of 'facts'") for sign in "=+-~!"),
        ({"key": "Ops"}, "use that name for their operations"),
        ({"key": "a:b"}, "The key of 'facts'"),
        ({"kind": "set"}, "'text' or 'list'"),
        ({"cap": -1}, "The cap of 'facts'"),
        ({"cap": 501}, "The cap of 'facts'"),
        ({"cap": True}, "The cap of 'facts'"),
        ({"cap": "6"}, "The cap of 'facts'"),
        ({"kind": "text", "cap": 2}, "from 1 to 1"),
        ({"cap": 3, "floor": 4}, "The floor of 'facts' must be an integer from 0 to 3"),
        ({"floor": "2"}, "The floor of 'facts'"),
        ({"item": 0}, "`item` of .facts., in tokens"),
        ({"value": 1.5}, "The value of 'facts'"),
        ({"whole": 1}, "True or False"),
        ({"answers": None}, "the name of a field"),
    ],
)
def test_a_field_that_makes_no_sense_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        Field(**{"name": "facts"} | wrong)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ((), "at least one"),
        (None, "not None"),
        ("goal", "not 'g'"),
        ((Field("goal"), "facts"), "not 'facts'"),
        ((Field("goal"), Field("Goal")), "share the name or key"),
        ((Field("goal"), Field("facts", key="goal")), "share the name or key"),
        ((Field("a", cap=300), Field("b", cap=300)), "600 lines"),
        ((Field("a", answers="b"),), "another list of the schema"),
        ((Field("a", answers="a"),), "another list of the schema"),
        ((Field("a", answers="b"), Field("b", "text")), "another list of the schema"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(fields: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        Schema(fields)


@pytest.mark.parametrize("wrong", [{"budget": 0}, {"budget": "200"}, {"budget": 10**6}, {"schema": None}])
def test_a_brief_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Brief(**wrong)


def test_a_brief_reads_the_same_each_time() -> None:
    fields = [Field("goal", "text"), Field("techniques", cap=6, floor=3)]
    assert repr(Brief(300, Schema(tuple(fields)))) == repr(Brief(300, Schema(fields)))  # type: ignore[arg-type]
    assert repr(Brief()) == repr(Brief(200, GENERAL))
    assert repr(Brief()) != repr(Brief(201))
    assert "0x" not in repr(Brief())


def test_a_brief_does_not_change() -> None:
    with pytest.raises(AttributeError):
        Brief().budget = 5  # type: ignore[misc]
    assert hash(Brief()) == hash(Brief())
    assert msgspec.structs.replace(Brief(), budget=5) == Brief(5)
