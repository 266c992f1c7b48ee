"""Functions become tools, models' arguments become calls, and what came of a call becomes text."""

import asyncio
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import inspect
import json
import math
import os
import subprocess
import sys
from keyword import iskeyword
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.errors import ToolError
from longtalk.tools import ArgumentError, Tool, Toolbox, ToolContext, external_tool, render, render_error, tool

CONTEXT = ToolContext(call_id="c1", turn="t1", name="weather")


@tool
def weather(city: str, days: int = 3) -> dict[str, Any]:
    """The weather forecast.

    Args:
        city: name of the city
        days: how many days ahead
    """
    return {"city": city, "days": days}


@dataclasses.dataclass
class Place:
    name: str
    around: "list[Place]" = dataclasses.field(default_factory=list)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(TypedDict):
    width: int


class Pair(NamedTuple):
    left: int
    right: int


class Point(msgspec.Struct):
    x: float


def schema(function: Any) -> dict[str, Any]:
    return json.loads(Tool.from_function(function).schema)


def properties(function: Any) -> dict[str, Any]:
    return schema(function)["properties"]


def call(function: Any, arguments: Any = b"", context: ToolContext = CONTEXT) -> Any:
    raw = arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
    return Tool.from_function(function).bind(raw, context)()


def refusal(function: Any, arguments: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        call(function, arguments)
    return str(caught.value)


# --- what a model sees


def test_a_function_becomes_a_tool_with_its_name_text_and_schema():
    assert weather.name == "weather"
    assert weather.description == "The weather forecast."
    assert weather.schema == (
        b'{"type":"object","properties":{"city":{"type":"string","description":"name of the city"},'
        b'"days":{"type":"integer","description":"how many days ahead","default":3}},'
        b'"required":["city"],"additionalProperties":false}'
    )
    assert weather.idempotent is False
    assert weather.is_async is False


def test_a_tool_without_parameters_has_an_empty_schema():
    def now() -> str:
        return "noon"

    assert schema(now) == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert Tool.from_function(now).description == ""
    assert call(now) == "noon"


def test_a_tool_can_still_be_called_like_its_function():
    assert weather("Oslo", days=1) == {"city": "Oslo", "days": 1}


def test_a_tool_is_frozen():
    with pytest.raises(AttributeError):
        weather.name = "other"


def test_a_tool_of_a_tool_is_the_tool_itself():
    assert Tool.from_function(weather) is weather


def test_the_decorator_takes_settings():
    @tool(idempotent=True, name="look-up", description="Looks.")
    def find(key: str) -> str:
        """Something else."""
        return key

    assert (find.name, find.description, find.idempotent) == ("look-up", "Looks.", True)
    assert call(find, {"key": "k"}) == "k"


def test_settings_can_be_given_with_the_function():
    def find(key: str) -> str:
        """Finds."""
        return key

    made = tool(find, idempotent=True)
    assert (made.name, made.description, made.idempotent) == ("find", "Finds.", True)


def test_a_tool_made_from_a_tool_keeps_what_is_not_replaced():
    first = tool(weather, idempotent=True, description="Sun or rain.")
    again = tool(first, name="forecast")
    assert (again.name, again.description, again.idempotent) == ("forecast", "Sun or rain.", True)
    assert again.schema == weather.schema


def test_nested_types_are_defined_inside_the_schema():
    def go(place: Place, size: Size, point: Point, pair: Pair, colour: Colour = Colour.RED) -> None: ...

    made = schema(go)
    assert made["properties"]["place"] == {"$ref": "#/$defs/Place"}
    assert made["properties"]["colour"] == {"$ref": "#/$defs/Colour", "default": "red"}
    assert set(made["$defs"]) == {"Place", "Size", "Point", "Pair", "Colour"}
    assert made["$defs"]["Place"]["properties"]["around"]["items"] == {"$ref": "#/$defs/Place"}
    assert "title" not in made


def test_a_type_with_the_name_of_the_tool_keeps_its_own_name():
    def go(place: Place) -> None: ...

    assert list(schema(tool(go, name="Place"))["$defs"]) == ["Place"]


def test_plain_types_have_plain_schemas():
    def go(a: Literal["x", "y"], b: int | None, c: list[int], d: dict[str, float], e: dt.date) -> None: ...

    assert properties(go) == {
        "a": {"enum": ["x", "y"]},
        "b": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "c": {"type": "array", "items": {"type": "integer"}},
        "d": {"type": "object", "additionalProperties": {"type": "number"}},
        "e": {"type": "string", "format": "date"},
    }


def test_constraints_are_part_of_the_schema_and_are_checked():
    def go(n: Annotated[int, msgspec.Meta(ge=1)]) -> int:
        return n

    assert properties(go)["n"] == {"type": "integer", "minimum": 1}
    assert "$.n" in refusal(go, {"n": 0})


def test_defaults_are_part_of_the_schema_even_when_mutable():
    def go(a: list[int] = [1], b: Place = Place("Rome"), c: frozenset[str] = frozenset("zax")) -> None: ...  # noqa: B006, B008

    made = properties(go)
    assert made["a"]["default"] == [1]
    assert made["b"]["default"] == {"name": "Rome", "around": []}
    assert made["c"]["default"] == ["a", "x", "z"]


def test_the_schema_is_the_same_in_every_process():
    program = (
        "from longtalk.tools import tool\n"
        "def go(c: frozenset[str] = frozenset(['z', 'a', 'x', 'q'])) -> None: ...\n"
        "print(tool(go).schema.decode())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1


def test_a_default_that_json_does_not_know_is_left_out_of_the_schema_and_kept():
    missing = object()

    def go(n: int = missing) -> bool:  # type: ignore[assignment]
        return n is missing

    assert properties(go) == {"n": {"type": "integer"}}
    assert call(go) is True
    assert call(go, {"n": 1}) is False


def test_the_module_alone_does_not_import_asyncio():
    program = (
        "import importlib.util, sys, types\n"
        "package = types.ModuleType('longtalk')\n"  # in place of the real one, which imports all the rest
        "package.__path__ = importlib.util.find_spec('longtalk').submodule_search_locations\n"
        "sys.modules['longtalk'] = package\n"
        "import longtalk.tools\n"
        "print('asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"False"


# --- what docstrings and annotations say


def test_an_annotation_describes_a_parameter_better_than_the_docstring():
    def go(a: Annotated[int, "from text"], b: Annotated[int, msgspec.Meta(description="from meta")], c: int) -> None:
        """Goes.

        Args:
            a: from the docstring
            b: from the docstring
            c: from the docstring
        """

    said = {key: value["description"] for key, value in properties(go).items()}
    assert said == {"a": "from text", "b": "from meta", "c": "from the docstring"}


def test_google_docstrings_are_read():
    def go(city: str, days: int, tags: dict[str, str], plain: int, ctx: ToolContext) -> None:
        """Goes somewhere.

        And further.

        Note: this stays.

        Args:
            city (str, optional): name of
                the city
                official: yes

                (see the atlas)
            days: how many
            days ahead
            ctx: not for the model
            tags (dict[str, str]): labels (as in: maps)

        Returns:
            plain: nothing
        """

    made = Tool.from_function(go)
    assert made.description == "Goes somewhere.\n\nAnd further.\n\nNote: this stays."
    assert {key: value.get("description") for key, value in properties(go).items()} == {
        "city": "name of the city official: yes (see the atlas)",
        "days": "how many days ahead",
        "tags": "labels (as in: maps)",
        "plain": None,
    }


def test_text_after_a_google_section_belongs_to_no_parameter():
    def go(city: str) -> None:
        """Goes.

        Args:
            city: a name
        That is all.
            Really.
        """

    assert Tool.from_function(go).description == "Goes."
    assert properties(go)["city"]["description"] == "a name"


def test_numpy_docstrings_are_read():
    def go(city: str, x: int, y: int, z: int) -> None:
        """Goes.

        Parameters
        ----------
        city : str, optional
            name of
            the city
        x, y : int
            where
        z
            how high

        Returns
        -------
        z : int
            nothing

        Notes
        -----
        Long ago.
        """

    assert Tool.from_function(go).description == "Goes."
    assert {key: value["description"] for key, value in properties(go).items()} == {
        "city": "name of the city",
        "x": "where",
        "y": "where",
        "z": "how high",
    }


def test_an_unknown_numpy_section_ends_the_parameters():
    def go(city: str) -> None:
        """Goes.

        Parameters
        ----------
        city : str
            a name

        Usage
        -----
        city : not this
            nor this
        """

    assert properties(go)["city"]["description"] == "a name"


def test_sphinx_docstrings_are_read():
    def go(city: str, days: int, tags: dict[str, int]) -> None:
        """Goes to a :class:`Place`.

        :class:`Place` is a type.

        :param city: name of
            the city
        :type city: str
        :param int days: how many: at most 9
        :param dict[str, int] tags: labels
        :returns: nothing
            at all
        :raises ValueError: never

        The end.
        """

    assert Tool.from_function(go).description == "Goes to a :class:`Place`.\n\n:class:`Place` is a type."
    assert {key: value["description"] for key, value in properties(go).items()} == {
        "city": "name of the city",
        "days": "how many: at most 9",
        "tags": "labels",
    }


@pytest.mark.parametrize("section", ["Returns: a thing", "Returns:\n    a thing", "Raises\n------\nKeyError"])
def test_sections_about_results_are_not_part_of_the_description(section):
    def go() -> None: ...

    go.__doc__ = f"Goes.\n\n{section}\n"
    assert Tool.from_function(go).description == "Goes."


def test_a_word_like_a_section_in_a_sentence_is_no_section():
    def go() -> None:
        """Raises the volume.

        Parameters
        are not needed.
        """

    assert Tool.from_function(go).description == "Raises the volume.\n\nParameters\nare not needed."


# --- types in quotes


def test_types_in_quotes_are_resolved():
    def go(place: "Place", days: "int | None" = None) -> "Unknown":  # noqa: F821
        return place

    assert call(go, {"place": {"name": "Oslo"}}) == Place("Oslo")


def test_a_module_with_postponed_annotations_works():
    space: dict[str, Any] = {}
    source = "from __future__ import annotations\ndef go(n: int, *, names: list[str] = ()) -> Nothing: return n"
    exec(compile(source, "module", "exec"), space)
    assert call(space["go"], {"n": 4}) == 4


def test_types_of_a_function_that_still_runs_are_resolved():
    @dataclasses.dataclass
    class Outer:
        n: int

    def inside() -> Any:
        @dataclasses.dataclass
        class Inner:
            n: int

        @tool
        def go(outer: "Outer", inner: "Inner") -> int:
            return outer.n + inner.n

        return go

    assert call(inside(), {"outer": {"n": 1}, "inner": {"n": 2}}) == 3


def test_types_that_a_function_closes_over_are_resolved():
    def make() -> Any:
        @dataclasses.dataclass
        class Local:
            n: int

        def go(value: "Local") -> bool:
            return isinstance(value, Local)

        return go

    assert call(make(), {"value": {"n": 1}}) is True


def test_a_recursive_function_can_be_decorated_inside_a_function():
    @tool
    def count(n: "int") -> int:
        return n and 1 + count(n - 1)

    assert call(count, {"n": 3}) == 3


def test_a_type_that_cannot_be_resolved_is_refused():
    def go(thing: "Nowhere") -> None:  # noqa: F821
        ...

    with pytest.raises(ToolError, match=r"resolve the type of parameter `thing` of .*go\(\) .*Nowhere.*: import it"):
        Tool.from_function(go)


# --- everything that can be called


class Station:
    """A station."""

    def __init__(self, name: str) -> None:
        self.name = name

    def report(self, day: int) -> str:
        """Reports."""
        return f"{self.name} {day}"

    @classmethod
    def kind(cls, day: int) -> str:
        return f"{cls.__name__} {day}"

    @staticmethod
    def fixed(day: int) -> str:
        return f"fixed {day}"

    async def later(self, day: int) -> str:
        return f"{self.name} {day}"

    @staticmethod
    async def soon(day: int) -> int:
        return day

    def __call__(self, day: int) -> str:
        return f"{self.name} at {day}"


class Later:
    async def __call__(self, day: int) -> int:
        """Waits."""
        return day


def test_methods_of_every_kind_are_tools():
    station = Station("north")
    assert call(station.report, {"day": 1}) == "north 1"
    assert Tool.from_function(station.report).description == "Reports."
    assert call(Station.kind, {"day": 1}) == "Station 1"
    assert call(Station.fixed, {"day": 1}) == "fixed 1"
    assert call(Station.__dict__["fixed"], {"day": 1}) == "fixed 1"
    assert [Tool.from_function(f).name for f in (station.report, Station.kind, Station.fixed)] == [
        "report",
        "kind",
        "fixed",
    ]


def test_an_object_that_can_be_called_is_a_tool_named_after_its_class():
    made = Tool.from_function(Station("north"))
    assert (made.name, made.description) == ("Station", "A station.")
    assert call(made, {"day": 2}) == "north at 2"
    assert Tool.from_function(Later()).description == "Waits."


def test_a_partial_leaves_out_what_it_binds():
    def go(a: int, b: int, c: int = 3) -> tuple[int, int, int]:
        """Goes."""
        return a, b, c

    inner = functools.partial(go, b=2)
    inner.note = "not merged into the outer one"  # type: ignore[attr-defined]
    made = Tool.from_function(functools.partial(inner, 1))
    assert (made.name, made.description) == ("go", "Goes.")
    assert list(properties(made)) == ["c"]
    assert call(made, {"c": 5}) == (1, 2, 5)
    assert "unknown field" in refusal(made, {"b": 5})


def test_decorated_functions_keep_their_parameters():
    @functools.wraps(weather._function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        return ["traced", weather(*args, **kwargs)]

    assert Tool.from_function(traced).schema == weather.schema
    assert call(traced, {"city": "Oslo"})[0] == "traced"

    @functools.cache
    def slow(n: int) -> int:
        return n

    assert call(slow, {"n": 4}) == 4


def test_types_in_quotes_mean_what_they_mean_where_the_decorated_function_is():
    space: dict[str, Any] = {}
    exec("Plain = int\ndef go(n: 'Plain') -> int: return n", space)

    @functools.wraps(space["go"])
    def traced(*args: Any, **kwargs: Any) -> Any:
        return space["go"](*args, **kwargs)

    assert call(traced, {"n": 4}) == 4


@pytest.mark.parametrize(
    "function",
    [
        Station("s").later,
        Station.soon,
        Station.__dict__["soon"],
        functools.partial(Station("s").later),
        Later(),
        functools.partial(Later()),
    ],
)
def test_async_functions_of_every_kind_are_async_tools(function):
    made = Tool.from_function(function)
    assert made.is_async is True
    assert "4" in str(asyncio.run(made.bind(b'{"day":4}', CONTEXT)()))


def test_parameters_may_have_names_that_a_struct_would_not_allow():
    def go(self_: int, __x: int, __dict__: int, __post_init__: int) -> int:
        return self_ + __x + __dict__ + __post_init__

    assert call(go, {"self_": 1, "__x": 2, "__dict__": 3, "__post_init__": 4}) == 10


# --- what can't be a tool


def refused(function: Any, **settings: Any) -> str:
    with pytest.raises(ToolError) as caught:
        tool(function, **settings)
    return str(caught.value)


def test_star_args_are_refused():
    def go(*things: int) -> None: ...

    assert "`things`" in refused(go)
    assert "go() is variadic positional" in refused(go)


def test_star_star_kwargs_are_refused():
    def go(**things: int) -> None: ...

    assert "go() is variadic keyword" in refused(go)


def test_positional_only_parameters_are_refused():
    def go(a: int, /) -> None: ...

    assert "`a`" in refused(go)
    assert "positional-only" in refused(go)


def test_a_parameter_without_a_type_is_refused():
    def go(a) -> None: ...

    assert "go() has no type: write `a: str`" in refused(go)


def test_a_method_without_its_instance_is_refused():
    assert "`self` of Station.report() has no type: pass the method of an instance" in refused(Station.report)


class Opaque: ...


class Model(pydantic.BaseModel):
    n: int


@pytest.mark.parametrize("kind", [Opaque, Model, list[Opaque], complex, 3])
def test_a_type_without_a_schema_is_refused(kind):
    def go(a: int, thing: kind) -> None: ...

    text = refused(go)
    assert "\n" not in text
    assert "`thing` of" in text
    assert "dataclass" in text


def test_a_union_that_json_cannot_tell_apart_is_refused_with_the_reason():
    def go(thing: Place | Size) -> None: ...

    assert "more than one dict-like type" in refused(go)


def test_two_types_that_cannot_be_told_apart_by_name_are_refused():
    def make() -> Any:
        @dataclasses.dataclass
        class Twin:
            n: int

        return Twin

    one, two = make(), make()

    def go(a: one, b: two) -> None: ...

    assert "give each type a unique name" in refused(go)


def test_a_default_that_is_no_valid_text_is_refused():
    def go(a: str = "\ud800") -> None: ...

    assert "surrogates" in refused(go)


def test_a_lambda_is_refused_unless_it_gets_a_name():
    assert "'<lambda>' is not a valid tool name" in refused(lambda: 1)
    assert tool(lambda: 1, name="one").name == "one"


@pytest.mark.parametrize("name", ["a b", "x" * 65, "é", "a\n", "a.b"])
def test_a_name_that_wires_refuse_is_refused(name):
    assert "set one with tool(function, name=...)" in refused(weather, name=name)


@pytest.mark.parametrize("thing", [None, 3, "weather", {"name": "weather"}])
def test_what_cannot_be_called_is_refused(thing):
    assert f"a value of type {type(thing).__name__}" in refused(thing)


def test_a_class_is_refused():
    assert "not the class Place" in refused(Place)
    assert "not the class Place" in refused(functools.partial(Place, name="Oslo"))


def test_a_callable_without_a_signature_is_refused():
    class Odd:
        __signature__ = "none"

        def __call__(self) -> None: ...

    assert "no readable signature" in refused(Odd())


def test_a_builtin_with_untyped_parameters_is_refused():
    assert "`obj` of len() is positional-only" in refused(len)


def test_a_partial_of_a_tool_is_refused():
    assert "weather is already a tool" in refused(functools.partial(weather, days=1))


def test_two_contexts_are_refused():
    def go(a: ToolContext, b: ToolContext) -> None: ...

    assert "two ToolContext parameters, `a` and `b`" in refused(go)


def test_generators_are_refused():
    def go() -> Any:
        yield 1

    async def ago() -> Any:
        yield 1

    assert "return a list" in refused(go)
    assert "return a list" in refused(ago)


# --- the context of a call


@pytest.mark.parametrize("kind", [ToolContext, "ToolContext", ToolContext | None, Annotated[ToolContext, "this call"]])
def test_a_context_is_filled_in_and_not_shown_to_the_model(kind):
    def go(a: int, where: kind, b: int = 2) -> Any:
        return a, where, b

    assert list(properties(go)) == ["a", "b"]
    assert call(go, {"a": 1}) == (1, CONTEXT, 2)


def test_a_model_cannot_forge_the_context():
    def go(*, where: ToolContext) -> str:
        return where.call_id

    assert call(go) == "c1"
    assert "unknown field `where`" in refusal(go, {"where": {"call_id": "x", "turn": "x", "name": "x"}})


# --- arguments


def test_arguments_arrive_as_the_types_that_the_function_asks_for():
    def go(place: Place, colour: Colour, size: Size, point: Point, day: dt.date, price: decimal.Decimal) -> Any:
        return place, colour, size, point, day, price

    arguments = {
        "place": {"name": "Oslo", "around": [{"name": "Bergen"}]},
        "colour": "blue",
        "size": {"width": 3},
        "point": {"x": 1.5},
        "day": "2026-01-02",
        "price": "1.10",
    }
    assert call(go, arguments) == (
        Place("Oslo", [Place("Bergen")]),
        Colour.BLUE,
        {"width": 3},
        Point(1.5),
        dt.date(2026, 1, 2),
        decimal.Decimal("1.10"),
    )


@pytest.mark.parametrize("nothing", [b"", b"  \n", b"{}"])
def test_no_arguments_are_an_empty_object(nothing):
    def go(n: int = 7) -> int:
        return n

    assert call(go, nothing) == 7


def test_calls_do_not_share_a_mutable_default():
    def go(seen: list[int] = []) -> list[int]:  # noqa: B006
        seen.append(1)
        return seen

    assert call(go) == [1]
    assert call(go) == [1]


@pytest.mark.parametrize("days", [3.0, "3", 3])
def test_an_integer_may_be_written_loosely(days):
    assert call(weather, {"city": "Oslo", "days": days}) == {"city": "Oslo", "days": 3}


def test_text_that_looks_like_a_number_stays_text():
    assert call(weather, {"city": "007", "days": "3"})["city"] == "007"


def test_a_wrong_argument_is_explained_to_the_model():
    text = refusal(weather, {"city": "Oslo", "days": "many"})
    assert text == (
        "Wrong arguments for weather: Expected `int`, got `str` - at `$.days`. "
        "Parameters: city (string, required), days (integer)."
    )


def test_a_missing_argument_is_named():
    assert "missing required field `city`" in refusal(weather, {})


def test_an_unknown_argument_is_named():
    assert "unknown field `town`" in refusal(weather, {"city": "Oslo", "town": "Oslo"})


def test_a_tool_without_parameters_says_so():
    def now() -> None: ...

    assert refusal(now, {"zone": 1}).endswith("Parameters: none.")


def test_a_refusal_is_never_long():
    assert len(refusal(weather, {"x" * 1_000_000: 1})) < 1_200


def test_a_parameter_of_a_defined_type_points_to_the_schema():
    def go(place: Place) -> None: ...

    assert refusal(go, {}).endswith("Parameters: place (see its schema, required).")


@pytest.mark.parametrize(
    "arguments",
    [
        b'{"value":"\\ud800"}',
        b'{"\\udc00":1}',
        b'{"value":"\xff"}',
        b'{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[" * 100_000,
        b'{"value":' + b"9" * 5_000 + b"}",
        b'{"value":NaN}',
        b'{"value":Infinity}',
        b'{"value":1e400}',
        b'{"value":1',
        b"null",
        b"[]",
        b'"{}"',
        b"\x00",
    ],
)
@pytest.mark.parametrize("kind", [Any, int, float, str, list[Any]])
def test_broken_json_is_refused_like_any_wrong_argument(arguments, kind):
    def go(value: kind) -> None: ...

    assert refusal(go, arguments).startswith("Wrong arguments for go: ")


def test_half_a_surrogate_pair_is_explained():
    assert "lacks its other half" in refusal(weather, b'{"city":"\\uD83d"}')
    assert "lacks its other half" not in refusal(weather, b'{"city":"Os')


def test_deep_nesting_is_explained():
    def go(value: Any) -> None: ...

    assert "nested too deeply" in refusal(go, b'{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@pytest.mark.parametrize("text", ["nan", "-inf", "Infinity", " NaN"])
def test_text_is_never_read_as_a_number_that_is_none(text):
    def go(amount: float) -> float:
        return amount

    assert "$.amount" in refusal(go, {"amount": text})
    assert "$.amount" in refusal(go, json.dumps({"amount": text}).replace("n", "\\u006e").encode())


def test_a_type_that_refuses_itself_refuses_the_arguments():
    @dataclasses.dataclass
    class Even:
        n: int

        def __post_init__(self) -> None:
            raise LookupError("odd")

    def go(even: Even) -> None: ...

    assert "LookupError: odd" in refusal(go, {"even": {"n": 1}})


@given(st.binary() | st.binary(max_size=30).map(lambda middle: b'{"city":' + middle + b"}"))
def test_bind_raises_nothing_but_argument_errors(arguments):
    try:
        bound = weather.bind(arguments, CONTEXT)
    except ArgumentError as error:
        str(error).encode()
    else:
        assert isinstance(bound()["city"], str)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(ANYTHING | st.dictionaries(st.sampled_from(["city", "days", "x"]), ANYTHING))
def test_bind_takes_any_json_or_refuses_it(value):
    try:
        result = weather.bind(msgspec.json.encode(value), CONTEXT)()
    except ArgumentError:
        return
    assert isinstance(result["city"], str)
    assert type(result["days"]) is int


def echo(
    number: int,
    real: float,
    text: str,
    raw: bytes,
    when: dt.datetime,
    colour: Colour,
    place: Place,
    size: Size,
    pair: Pair,
    items: list[int | str | None],
    table: dict[str, bool],
    anything: Any,
) -> dict[str, Any]:
    return locals()


@given(
    st.fixed_dictionaries(
        {
            "number": st.integers(-(2**63), 2**63),
            "real": st.floats(allow_nan=False, allow_infinity=False),
            "text": st.text(),
            "raw": st.binary(),
            "when": st.datetimes(timezones=st.none() | st.just(dt.UTC)),
            "colour": st.sampled_from(Colour),
            "place": st.builds(Place, st.text(), st.lists(st.builds(Place, st.text()), max_size=2)),
            "size": st.fixed_dictionaries({"width": st.integers(-9, 9)}),
            "pair": st.builds(Pair, st.integers(-9, 9), st.integers(-9, 9)),
            "items": st.lists(st.integers(-9, 9) | st.text() | st.none()),
            "table": st.dictionaries(st.text(), st.booleans()),
            "anything": ANYTHING,
        }
    )
)
def test_a_call_gets_the_values_that_were_encoded(values):
    assert Tool.from_function(echo).bind(msgspec.json.encode(values), CONTEXT)() == values


TYPES = st.recursive(
    st.sampled_from([int, float, str, bool, bytes, Any, dt.date, Place, Colour, Size, Point, Pair]),
    lambda inner: inner.map(lambda t: list[t]) | inner.map(lambda t: dict[str, t]) | inner.map(lambda t: t | None),
    max_leaves=4,
)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(lambda s: not iskeyword(s)), TYPES))
def test_a_schema_is_json_that_resolves_and_is_the_same_each_time(hints):
    def go() -> None: ...

    go.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint) for name, hint in hints.items()]
    )
    made = schema(go)
    assert Tool.from_function(go).schema == Tool.from_function(go).schema
    assert list(made["properties"]) == list(hints)
    defined = made.get("$defs", {})
    for ref in str(made).split("'$ref': '")[1:]:
        assert ref.split("'")[0].removeprefix("#/$defs/") in defined


# --- toolboxes


def test_a_toolbox_keeps_functions_and_tools_in_order():
    def now() -> None: ...

    box = Toolbox.from_functions([weather, now], allow_async=False)
    assert box.names == ("weather", "now")
    assert [made.name for made in box] == ["weather", "now"]
    assert len(box) == 2
    assert box
    assert box.get("weather") is weather
    assert box.get("other") is None


def test_an_empty_toolbox_is_false():
    assert not Toolbox.from_functions((), allow_async=False)


def test_a_toolbox_is_frozen():
    with pytest.raises(AttributeError):
        Toolbox.from_functions((), allow_async=False)._tools = {}


def test_a_toolbox_can_be_made_of_a_toolbox():
    box = Toolbox.from_functions([weather], allow_async=False)
    assert Toolbox.from_functions(box, allow_async=True) == box


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ToolError, match="Two tools are named weather"):
        Toolbox.from_functions([weather, weather], allow_async=False)


def test_an_async_tool_is_refused_in_a_sync_chat():
    async def later() -> None: ...

    with pytest.raises(ToolError, match="later is async: use AsyncChat, or make it a plain function"):
        Toolbox.from_functions([later], allow_async=False)
    assert Toolbox.from_functions([later], allow_async=True).names == ("later",)


def test_a_single_function_is_no_list_of_tools():
    with pytest.raises(ToolError, match=r"tools=\[\.\.\.\]"):
        Toolbox.from_functions(weather, allow_async=False)  # type: ignore[arg-type]


# --- results


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        ({"é": [1, None]}, '{"é":[1,null]}'),
        (Place("Oslo"), '{"name":"Oslo","around":[]}'),
        (Point(1.0), '{"x":1.0}'),
        (Colour.RED, '"red"'),
        (decimal.Decimal("1.10"), '"1.10"'),
        (dt.date(2026, 1, 2), '"2026-01-02"'),
        ({7}, "[7]"),
        (10**30, "1" + "0" * 30),
    ],
)
def test_a_result_is_rendered_as_text_or_json(result, text):
    assert render(result) == text


def test_text_of_a_subclass_is_rendered_as_plain_text():
    class Word(str, enum.Enum):  # noqa: UP042
        YES = "yes"

    assert render(Word.YES) == "yes"
    assert type(render(Word.YES)) is str


def test_lone_surrogates_in_results_are_replaced():
    assert render("a\ud800b") == "a\ufffdb"
    result = render({"\ud800": ["é", "\udc00", Place("\ud800"), float("nan")], dt.date(2026, 1, 2): 2})
    assert json.loads(result) == {"\ufffd": ["é", "\ufffd", {"name": "\ufffd", "around": []}, None], "2026-01-02": 2}


def test_the_halves_of_a_pair_are_joined():
    assert render("\ud83d\ude00") == "\U0001f600"


def endless() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    "result", [object(), {(1, 2): 3}, [Opaque()], iter([1]), endless(), ["\ud800", Opaque()], Opaque]
)
def test_a_result_that_json_does_not_know_is_refused(result):
    with pytest.raises(TypeError, match=r"can't be written as JSON .*: return text, numbers"):
        render(result)


@given(st.text(st.characters(exclude_categories=[])) | st.lists(st.text(st.characters(exclude_categories=[]))))
def test_rendered_text_can_always_be_encoded(result):
    text = render(result)
    text.encode()
    if isinstance(result, list):
        assert len(json.loads(text)) == len(result)


@given(ANYTHING.filter(lambda value: not isinstance(value, str)))
def test_rendered_json_says_what_was_returned(value):
    again = json.loads(render(value))
    assert again == value or math.isclose(again, value)


# --- failures


def test_a_failure_names_the_type_and_the_message():
    assert render_error(ValueError("no such city")) == "ValueError: no such city"


def test_a_failure_without_a_message_is_its_type():
    assert render_error(TimeoutError()) == "TimeoutError"


def test_a_long_failure_is_cut():
    assert render_error(ValueError("x" * 5_000)) == "ValueError: " + "x" * 1_000 + "…"


def test_a_failure_that_cannot_describe_itself_is_its_type():
    class OddError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert render_error(OddError()) == "OddError"


def test_a_failure_can_always_be_encoded():
    assert render_error(ValueError("\ud800")) == "ValueError: \ufffd"


def test_an_external_tool_has_the_schema_that_it_is_given():
    made = external_tool("pay", "Pay.", {"type": "object", "properties": {"sum": {"type": "integer"}}, "$comment": "x"})
    assert (made.name, made.description, made.is_external) == ("pay", "Pay.", True)
    assert json.loads(made.schema) == {"type": "object", "properties": {"sum": {"type": "integer"}}, "$comment": "x"}


def test_an_external_tool_without_parameters_has_empty_ones():
    assert json.loads(external_tool("pay", "", {"type": "object"}).schema) == {"properties": {}, "type": "object"}


@pytest.mark.parametrize(
    ("name", "description", "schema"),
    [
        ("no spaces", "", {"type": "object"}),
        ("", "", {"type": "object"}),
        (None, "", {"type": "object"}),
        ("pay", None, {"type": "object"}),
        ("pay", "", {"type": "string"}),
        ("pay", "", {}),
        ("pay", "", b"{}"),
        ("pay", "", {"type": "object", "properties": {1j: 2}}),
    ],
)
def test_an_external_tool_that_no_model_could_call_is_refused(name: Any, description: Any, schema: Any):
    with pytest.raises(ToolError):
        external_tool(name, description, schema)


def test_an_external_tool_and_a_function_can_not_have_the_same_name():
    def pay() -> str:
        return ""

    with pytest.raises(ToolError, match="Two tools are named pay"):
        Toolbox.from_functions([pay, external_tool("pay", "", {"type": "object"})], allow_async=False)
