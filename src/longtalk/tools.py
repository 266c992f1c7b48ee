"""Python functions as tools that a model can call.

A `Tool` is an immutable value made from a typed function: its name, its description, the JSON Schema of its parameters,
and how to call it. Problems with the function are reported to the programmer when the tool is made (`ToolError`).
Problems with a model's arguments are reported to the model when they are bound (`ArgumentError`). Nothing here runs a
tool: `Tool.bind` returns a callable that makes the call. `render` and `render_error` describe the outcome to the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, overload

import msgspec

from longtalk._util import json_bytes
from longtalk._util.docstrings import parse_docstring
from longtalk._util.signatures import read_message, read_parameters, repair_text
from longtalk.errors import ToolError

Function: TypeAlias = Callable[..., Any]

_NAME = "[a-zA-Z0-9_-]{1,64}"  # what every wire accepts


class ToolContext(msgspec.Struct, frozen=True):
    """Information about a tool call. A tool receives it in a parameter annotated with this type.

    `call_id` stays the same if a call is run again, for example after a crash: use it as the idempotency key of an
    order, a payment or a message. `turn` is the id of the turn that made the call, `name` the tool's name.
    """

    call_id: str
    turn: str
    name: str


class ArgumentError(Exception):
    """Raised if a model calls a tool with invalid arguments. The message is written for the model."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that a model can call. The tool can also be called directly, like the function itself.

    `schema` is the JSON Schema of the parameters, encoded as JSON. `idempotent` says whether a call may be run again if
    its outcome is unknown. `is_external` says that the caller runs the call, after the turn.
    """

    name: str
    description: str
    schema: bytes
    idempotent: bool
    is_async: bool
    _function: Function
    _arguments: type[msgspec.Struct]
    _context: str | None
    is_external: bool = False
    is_strict: bool = False
    """Whether the provider is asked to keep the arguments to the schema exactly, where its wire has that."""

    @staticmethod
    def from_function(function: Function) -> Tool:
        """Return a tool made from a function. A tool is returned unchanged."""
        return function if isinstance(function, Tool) else tool(function)

    def __repr__(self) -> str:
        return f"<Tool {self.name}({', '.join(self._arguments.__struct_encode_fields__)}): {self.description[:60]!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def bind(self, arguments: bytes, context: ToolContext) -> Callable[[], Any]:
        """Check a model's arguments and return a callable that runs the tool with them.

        The callable of an async tool returns an awaitable. Raises `ArgumentError` if the arguments are invalid.
        """
        from functools import partial

        kind = self._arguments
        try:
            values = _decode(arguments if arguments.strip() else b"{}", kind)
        except Exception as error:  # a dataclass may raise errors of its own
            raise ArgumentError(self._explain_error(arguments, error)) from error
        slots = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
        by_name = {name: getattr(values, slot) for name, slot in slots}
        if self._context is not None:
            by_name[self._context] = context
        return partial(self._function, **by_name)

    def _explain_error(self, arguments: bytes, error: Exception) -> str:
        problem = read_message(error) if isinstance(error, msgspec.MsgspecError) else render_error(error)
        if isinstance(error, RecursionError):
            problem = "The JSON is nested too deeply"
        elif problem == "Input data was truncated" and b"\\ud" in arguments.lower():
            problem += ", or a \\ud… escape lacks its other half"  # the decoder reports both in the same words
        schema = msgspec.json.decode(self.schema)
        expected = [
            f"{name} ({field.get('type', 'see its schema')}{', required' if name in schema['required'] else ''})"
            for name, field in schema["properties"].items()
        ]
        return f"Wrong arguments for {self.name}: {problem}. Parameters: {', '.join(expected) or 'none'}."


class Toolbox(msgspec.Struct, frozen=True):
    """The tools of a chat, in order, each with a unique name."""

    _tools: dict[str, Tool]

    @staticmethod
    def from_functions(items: Iterable[Function], *, allow_async: bool) -> Toolbox:
        """Return a toolbox made from functions and tools.

        Raises `ToolError` if two tools have the same name, or if one is async and `allow_async` is False.
        """
        if not isinstance(items, Iterable):
            raise ToolError(f"tools= must be a list of functions, not {_describe_value(items)}: write tools=[...].")
        tools: dict[str, Tool] = {}
        for new in map(Tool.from_function, items):
            if new.name in tools:
                raise ToolError(f"Two tools are named {new.name}: rename one with tool(function, name=...).")
            if new.is_async and not allow_async:
                raise ToolError(f"{new.name} is async: use AsyncChat, or make it a plain function.")
            tools[new.name] = new
        return Toolbox(tools)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def is_external(self, name: str) -> bool:
        """Return True if there is an external tool with this name, which the caller runs."""
        return name in self._tools and self._tools[name].is_external

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)


@overload
def tool(function: Function, *, name: str = "", description: str = "", idempotent: bool = False) -> Tool: ...
@overload
def tool(*, name: str = "", description: str = "", idempotent: bool = False) -> Callable[[Function], Tool]: ...
def tool(function: Any = msgspec.UNSET, *, name: str = "", description: str = "", idempotent: bool = False) -> Any:
    """Make a tool from a typed function: `@tool`, `@tool(idempotent=True)` or `tool(function, name="…")`.

    The name and the description default to the name and the docstring of the function. Parameters are described by
    `Annotated[type, "text"]` or, without it, by the docstring. If `function` is already a tool, the result is a new
    tool with the same name and description, unless the call sets others.
    """
    if function is msgspec.UNSET:
        return lambda function: tool(function, name=name, description=description, idempotent=idempotent)
    if isinstance(function, Tool):
        name, description = name or function.name, description or function.description
        function, idempotent = function._function, idempotent or function.idempotent
    return _build(function, name, description, idempotent)


def external_tool(name: str, description: str, schema: Mapping[str, Any], *, strict: bool = False) -> Tool:
    """Make a tool that your program runs after the turn. `schema` is the JSON Schema of its parameters, an object.

    A turn in which the model calls the tool ends with these calls in `reply.calls`. To continue, send a `ToolOutput`
    for each. `strict` asks the provider to keep the arguments to the schema exactly; Gemini has no such mode.
    """
    import re

    if not (isinstance(name, str) and re.fullmatch(_NAME, name) and isinstance(description, str)):
        raise ToolError(f"An external tool needs a name ({_NAME}) and a description, not {name!r} and {description!r}.")
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise ToolError(f'The schema of {name} must be a JSON Schema of an object: {{"type": "object", …}}.')
    try:
        encoded = json_bytes.encode({"properties": {}, **schema})
    except Exception as error:
        raise ToolError(
            f"The schema of {name} can't be written as JSON ({read_message(error)}): use only strings, numbers, "
            "lists and dicts."
        ) from error
    made = tool(_run_elsewhere, name=name, description=description)
    return msgspec.structs.replace(made, schema=encoded, is_external=True, is_strict=strict)


def _run_elsewhere() -> None:
    raise ToolError("Longtalk does not run external tools: run the call in your program, and send a ToolOutput.")


def render(result: object) -> str:
    """Return the text that a model receives for a tool's result: a string as it is, any other value as JSON.

    None becomes `null`, not a word like "done", because only the tool knows whether None means success or "not found".
    Raises `TypeError` if the value can't be written as JSON.
    """
    if isinstance(result, str):
        return repair_text(result)
    try:
        return json_bytes.encode(result).decode()
    except Exception as error:
        raise TypeError(
            f"The tool returned {_describe_value(result)} that can't be written as JSON ({read_message(error)}): "
            "return text, numbers, lists, dicts or dataclasses."
        ) from error


def render_error(error: BaseException) -> str:
    """Return the text that a model receives for an exception: its type and the beginning of its message."""
    return f"{type(error).__name__}: {read_message(error)}".removesuffix(": ")


def _identity(value: Any) -> Any:
    return value


def _describe_value(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a value of type {type(value).__name__}"


def _decode(arguments: bytes, kind: type[msgspec.Struct]) -> msgspec.Struct:
    try:
        return msgspec.json.decode(arguments, type=kind)
    except msgspec.ValidationError:
        import re

        # Models write 3.0 or "3" for an integer, so decode again less strictly. That mode also reads "nan" as a number,
        # and NaN passes every range check of a tool. The search runs on re-encoded JSON, so that no escape hides it.
        if re.search(rb'"\s*[+-]?(nan|inf|infinity)\s*"', msgspec.json.encode(msgspec.json.decode(arguments)), re.I):
            raise
        return msgspec.json.decode(arguments, type=kind, strict=False)


def _build(function: Any, name: str, description: str, idempotent: bool) -> Tool:
    import inspect
    import re
    from copy import deepcopy
    from functools import partial

    source, bound = function, set[str]()
    while isinstance(source, partial):
        bound |= source.keywords.keys()
        source = source.func
    if isinstance(source, type) or not callable(source):
        raise ToolError(f"A tool must be a function or a callable object, not {_describe_value(source)}.")
    if isinstance(source, Tool):
        raise ToolError(
            f"{source.name} is already a tool: make the partial from its function, then a tool from the partial."
        )
    name = name or getattr(source, "__name__", type(source).__name__)
    if not re.fullmatch(_NAME, name):
        raise ToolError(f"{name!r} is not a valid tool name ({_NAME}): set one with tool(function, name=...).")
    where = f"{getattr(source, '__qualname__', name)}()"
    doc = source.__doc__
    if isinstance(source, staticmethod):
        source = source.__func__
    elif not inspect.isroutine(source):
        source = type(source).__call__
        doc = source.__doc__ or doc
    if inspect.isgeneratorfunction(source) or inspect.isasyncgenfunction(source):
        raise ToolError(f"{where} is a generator, but a tool returns one result: return a list instead.")

    text, descriptions = parse_docstring(repair_text(doc or ""))
    context: str | None = None
    fields: list[tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    defaults: dict[str, Any] = {}
    for parameter, hint in read_parameters(function, source, bound, where):
        key, default = parameter.name, parameter.default
        if _is_context(hint):
            if context is not None:
                raise ToolError(f"{where} has two ToolContext parameters, `{context}` and `{key}`: remove one.")
            context = key
            continue
        descriptions[key] = next(
            (n for n in getattr(hint, "__metadata__", ()) if isinstance(n, str)), descriptions.get(key, "")
        )
        try:
            msgspec.json.schema_components([hint])
        except Exception as error:
            reason = read_message(error).rpartition("\n")[2]
            raise ToolError(
                f"Parameter `{key}` of {where} has a type without a JSON Schema ({reason}): use a dataclass instead."
            ) from error
        names[slot := f"p{len(fields)}"] = key  # some parameter names are not valid as struct fields
        if default is parameter.empty:
            fields.append((slot, hint, msgspec.field()))
            continue
        copy: Function = deepcopy  # calls must not share a mutable default
        try:
            defaults[key] = msgspec.to_builtins(default, order="deterministic")
        except Exception:  # a sentinel object means nothing to a model, and a copy of it would no longer be identical
            copy = _identity
        fields.append((slot, hint, msgspec.field(default_factory=partial(copy, default))))

    arguments = msgspec.defstruct(f"{name}.arguments", fields, rename=names, kw_only=True, forbid_unknown_fields=True)
    try:
        (top,), types = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
        schema = types.pop(top["$ref"].removeprefix("#/$defs/"))
        del schema["title"]
        for key, property_ in schema["properties"].items():
            if descriptions[key]:
                property_.setdefault("description", descriptions[key])
            if key in defaults:
                property_["default"] = defaults[key]
        encoded = msgspec.json.encode(schema | ({"$defs": types} if types else {}))
    except Exception as error:
        raise ToolError(
            f"The parameters of {where} have no JSON Schema ({render_error(error)}): give each type a unique name."
        ) from error
    return Tool(
        name=name,
        description=repair_text(description) or text,
        schema=encoded,
        idempotent=idempotent,
        is_async=inspect.iscoroutinefunction(source),
        _function=function,
        _arguments=arguments,
        _context=context,
    )


def _is_context(hint: Any) -> bool:
    from types import UnionType
    from typing import Annotated, Union, get_args, get_origin

    return hint is ToolContext or (get_origin(hint) in (Annotated, Union, UnionType) and ToolContext in get_args(hint))
