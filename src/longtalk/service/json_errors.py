"""Errors about a value of a body that has the wrong type, in the words of JSON and with the field's path."""

from __future__ import annotations

import re
from typing import NamedTuple

from longtalk.service.errors import shorten

_TYPES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "object": "an object",
    "array": "an array",
    "null": "null",
}
_MEASURES = {"int": ("integer", "value"), "str": ("string", "length"), "array": ("array", "length")}
"""The words of error codes for values out of bounds."""
_QUOTED = re.compile(r"`([^`]*)`")


class ValueProblem(NamedTuple):
    """What is wrong with a value of a request, in the form of the public API's errors."""

    message: str
    param: str | None
    code: str


def describe(problem: str) -> ValueProblem:
    """Return the message, the field and the code for a text of msgspec about a value."""
    problem, _, at = problem.partition(" - at `")
    path, inner, _ = at.removeprefix("$").removeprefix(".").removesuffix("`").partition("[...]")
    what, field, name = problem.partition(" field `")
    problem, path, name = shorten(problem, 300), shorten(path, 200), shorten(name.rstrip("`"), 100)
    if field:
        # The object lacks a field, or has one that is unknown.
        path = ".".join(filter(None, (path, name)))
        if "missing" in what:
            return ValueProblem(f"`{path}` is missing.", path, "missing_required_parameter")
        return ValueProblem(f"`{path}` is not a field of this request.", path, "unknown_parameter")
    subject = f"`{path}`" if path else "The body"
    if inner:
        subject = f"A value of {subject}"
    if problem.startswith("Expected "):
        wanted, got, given = problem.removeprefix("Expected ").partition(", got ")
        text = f"must be {_name_types(wanted)}" + (f", not {_name_types(given)}" if got else "")
    elif problem.startswith("Invalid enum value "):
        text = f"can't be {problem.removeprefix('Invalid enum value ')}"
    else:
        text = f"is wrong: {problem}"
    return ValueProblem(f"{subject} {text}.", path or None, _find_code(problem))


def _find_code(problem: str) -> str:
    if not problem.startswith("Expected "):
        return "invalid_value"
    kind, _, bound = problem.removeprefix("Expected `").partition("`")
    what, measure = _MEASURES.get(kind.partition(" ")[0], ("decimal", "value"))
    if ">" in bound:
        return f"{what}_below_min_{measure}"
    return f"{what}_above_max_{measure}" if "<" in bound else "invalid_type"


def _name_types(text: str) -> str:
    """Return types of msgspec, such as "`str | null`", as words; what follows them stays."""

    def name(found: re.Match[str]) -> str:
        kinds = [_TYPES.get(kind, f"`{kind}`") for kind in found[1].split(" | ")]
        return " or ".join(kinds)

    text = _QUOTED.sub(name, text)
    return re.sub(r"([<>]=?) (\S+)", _name_bound, text)


def _name_bound(found: re.Match[str]) -> str:
    words = {"<=": "of at most", ">=": "of at least", "<": "below", ">": "above"}
    return f"{words[found[1]]} {found[2].removesuffix('.0')}"
