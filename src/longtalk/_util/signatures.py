"""Read the parameters of a function from which a tool is made, and the messages of its errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from longtalk.errors import ToolError

if TYPE_CHECKING:
    from inspect import Parameter


def read_parameters(function: Any, source: Any, bound: set[str], where: str) -> Iterator[tuple[Parameter, Any]]:
    """Yield the parameters that a model has to fill in, each with its resolved type.

    Raises `ToolError` for a parameter that has no usable type or can't be passed by name.
    """
    import inspect
    from types import SimpleNamespace
    from typing import get_type_hints

    lazy: dict[str, Any] = {}
    if sys.version_info >= (3, 14):  # pragma: no cover
        from annotationlib import Format

        lazy["annotation_format"] = Format.FORWARDREF  # an unresolvable type must not hide the others
    try:
        signature = inspect.signature(function, **lazy)
    except (TypeError, ValueError) as error:
        raise ToolError(f"{where} has no readable signature: wrap it in a function.") from error
    source = inspect.unwrap(source)
    local_names = _find_local_names(source)
    for key, parameter in signature.parameters.items():
        if key in bound:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            kind = parameter.kind.description
            raise ToolError(
                f"Parameter `{key}` of {where} is {kind}, but models pass arguments by name: make it an ordinary "
                "parameter."
            )
        if parameter.annotation is parameter.empty:
            remedy = "pass the method of an instance" if key in ("self", "cls") else f"write `{key}: str`, for example"
            raise ToolError(f"Parameter `{key}` of {where} has no type: {remedy}.")
        try:
            # Resolve each one separately, so that an unknown return type, which is not needed, does no harm.
            holder = SimpleNamespace(__annotations__={key: parameter.annotation})
            hint = get_type_hints(holder, getattr(source, "__globals__", {}), local_names, include_extras=True)[key]
        except Exception as error:
            raise ToolError(
                f"Can't resolve the type of parameter `{key}` of {where} ({read_message(error)}): "
                "import it in its module."
            ) from error
        yield parameter, hint


def _find_local_names(function: Any) -> dict[str, Any]:
    """Return the local names that a quoted annotation may refer to.

    These are the closure variables of the function, and the local variables of the running calls in which it is
    defined.
    """
    code, frame = getattr(function, "__code__", None), sys._getframe().f_back
    names: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars if code else (), getattr(function, "__closure__", None) or (), strict=True):
        with suppress(ValueError):  # not assigned yet, such as the name of the function being decorated
            names[name] = cell.cell_contents
    while code and frame:
        if code in frame.f_code.co_consts:  # this frame defined it
            names, code = {**frame.f_locals, **names}, frame.f_code
        frame = frame.f_back
    return names


def read_message(error: BaseException) -> str:
    """Return the message of an error, shortened; empty if it can't be read."""
    try:
        message = repair_text(str(error))
    except Exception:  # a broken __str__ must not hide the failure that it should describe
        return ""
    return message if len(message) <= 1_000 else message[:1_000] + "…"


def repair_text(text: str) -> str:
    """Return the text as a plain `str` that UTF-8 can encode: join surrogate pairs, replace lone surrogates."""
    try:
        return text.encode().decode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
