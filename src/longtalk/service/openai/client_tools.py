"""The tools that a client runs. Providers know them as functions, whatever form they have in the Responses API.

- A *namespace* is a group of functions. Each becomes a function whose name begins with that of the group.
- A *custom* tool takes free text. It becomes a function with one argument, the text.

The calls of a model are shown to the client in the form in which it has declared the tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from longtalk._util import json_bytes
from longtalk.errors import ToolError
from longtalk.service.errors import ApiError, quote
from longtalk.tools import Tool, external_tool

_CALLS = "client_calls"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_TEXT = "input"
_TEXT_SCHEMA = {"type": "object", "properties": {_TEXT: {"type": "string"}}, "required": [_TEXT]}


class CallForm(msgspec.Struct, frozen=True):
    """What calls of a tool look like to the client."""

    name: str
    namespace: str = ""
    is_custom: bool = False


def list_forms(tools: Iterable[Any]) -> dict[str, CallForm]:
    """Return the forms of a client's tools, by the names under which providers know them."""
    forms: dict[str, CallForm] = {}
    for tool in tools:
        kind, name = tool.get("type", "function"), str(tool.get("name", ""))
        if kind == "namespace":
            inner = list_forms(tool.get("tools") or ())
            forms |= {_join(name, each): msgspec.structs.replace(inner[each], namespace=name) for each in inner}
        elif kind in ("function", "custom"):
            forms[name] = CallForm(name, is_custom=kind == "custom")
    return forms


def list_call_forms(items: Iterable[bytes]) -> dict[str, CallForm]:
    """Return the forms of calls and results that a client sends in another form than that of a function, by call id."""
    forms: dict[str, CallForm] = {}
    for item in items:
        if b'"custom_tool_call' not in item and b'"namespace"' not in item:
            continue
        fields = json_bytes.value(item)
        kind, id_, namespace = fields.get("type"), fields.get("call_id"), fields.get("namespace") or ""
        if kind in ("custom_tool_call", "custom_tool_call_output") or (kind == "function_call" and namespace):
            forms.setdefault(id_, CallForm(fields.get("name") or "", namespace, is_custom=kind != "function_call"))
    return forms


def write_call_forms(forms: Mapping[str, CallForm]) -> dict[str, Any]:
    """Return the forms of calls as metadata of the first entry of their turn; see `read_call_forms`."""
    return {_CALLS: msgspec.to_builtins(forms)} if forms else {}


def read_call_forms(meta: Mapping[str, Any]) -> dict[str, CallForm]:
    """Return the forms of calls in an entry's metadata."""
    given = meta.get(_CALLS)
    if not isinstance(given, Mapping):
        return {}
    try:
        return msgspec.convert(given, dict[str, CallForm])
    except msgspec.ValidationError:
        # An app has metadata of the same name.
        return {}


def make_functions(tools: Iterable[Any], where: str, namespace: str = "") -> list[Tool]:
    """Return a client's tools as functions. Raises `ApiError` for a tool that only OpenAI's own servers run.

    `where` names their place in the request, for errors. A search that may not use the web has nothing to search in
    here, so it is left out.
    """
    made: list[Tool] = []
    for i, tool in enumerate(tools):
        place = f"{where}[{i}]"
        if not isinstance(tool, Mapping):
            raise ApiError(400, f"`{place}` must be an object.", param=place, code="invalid_type")
        kind, name = tool.get("type", "function"), _join(namespace, tool.get("name", ""))
        if kind == "namespace" and isinstance(tool.get("tools"), list):
            made += make_functions(tool["tools"], f"{place}.tools", name)
        elif kind == "custom":
            described = {"type": "function", "name": name, "parameters": _TEXT_SCHEMA}
            made.append(make_function({**tool, **described, "description": _describe_custom(tool)}, place))
        elif kind != "web_search" or tool.get("external_web_access") is not False:
            made.append(make_function({**tool, "name": name}, place))
    if not namespace:
        check_names(made, where)
    return made


def check_names(tools: Iterable[Tool], where: str, inner: str = "") -> None:
    """Raise `ApiError` if two tools have the same name. `where` names their list, `inner` the place of the name."""
    names: list[str] = []
    for i, tool in enumerate(tools):
        if tool.name in names:
            message, param = f"Two of `{where}` are named {tool.name!r}.", f"{where}[{i}]{inner}.name"
            raise ApiError(400, message, param=param, code="invalid_value")
        names.append(tool.name)


def make_function(tool: Mapping[str, Any], where: str) -> Tool:
    """Return a function that the client runs. `where` names its place in the request, for errors."""
    if tool.get("type", "function") != "function":
        kind = tool.get("type")
        message = f"Tools of the type {quote(str(kind))} are not supported here: functions and custom tools are."
        raise ApiError(400, message, param=f"{where}.type", code="unsupported_value")
    name, description, schema = tool.get("name"), tool.get("description"), tool.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        code = "missing_required_parameter" if name in (None, "") else "invalid_value"
        message = f"`{where}.name` must be a name of 1 to 64 letters, digits, underscores and dashes."
        raise ApiError(400, message, param=f"{where}.name", code=code)
    if description is not None and not isinstance(description, str):
        raise ApiError(
            400, f"`{where}.description` must be a string.", param=f"{where}.description", code="invalid_type"
        )
    try:
        schema = schema or {"type": "object", "properties": {}}
        return external_tool(name, description or "", schema, strict=tool.get("strict") is True)
    except ToolError as problem:
        raise ApiError(400, str(problem), param=f"{where}.parameters", code="invalid_function_parameters") from None


class Choice(NamedTuple):
    """Which of the client's tools the model may call, and whether it must."""

    tools: list[Tool]
    choice: str | Mapping[str, Any] | None


def choose_tools(tools: list[Tool], choice: Any, where: str = "tool_choice") -> Choice:
    """Return the tools that a choice allows, and the choice as a word or a function of one of them.

    The provider is sent only the tools that are allowed. Raises `ApiError` for a choice of a tool that is not there.
    """
    if choice is None or isinstance(choice, str):
        if choice == "required" and not tools:
            raise ApiError(400, f"`{where}` can be 'required' only with `tools`.", param=where, code="invalid_value")
        return Choice(tools, choice)
    inner = choice.get("allowed_tools") if isinstance(choice.get("allowed_tools"), Mapping) else choice
    if choice.get("type") == "allowed_tools":
        mode, listed = inner.get("mode", "auto"), inner.get("tools")
        if mode not in ("auto", "required") or not isinstance(listed, list) or not listed:
            raise _wrong_choice(where)
        names = {_read_choice(each, tools, where) for each in listed}
        return Choice([tool for tool in tools if tool.name in names], mode)
    return Choice(tools, {"type": "function", "name": _read_choice(choice, tools, where)})


def _read_choice(choice: Any, tools: Iterable[Tool], where: str) -> str:
    """Return the name of a tool that a choice names."""
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if kind not in ("function", "custom"):
        raise _wrong_choice(where)
    inner = choice.get(kind)
    name = (inner if isinstance(inner, Mapping) else choice).get("name")
    if not any(tool.name == name for tool in tools):
        message = f"`{where}` names {quote(str(name))}, which is not among `tools`."
        raise ApiError(400, message, param=where, code="invalid_value")
    return str(name)


def _wrong_choice(where: str) -> ApiError:
    message = f"`{where}` must be 'auto', 'required', 'none', or name tools of this request by their type and name."
    return ApiError(400, message, param=where, code="invalid_value")


def to_function_item(item: bytes) -> bytes:
    """Return a call that a client sends, or its result, in the form of a function. Other items stay as they are."""
    if b'"custom_tool_call' not in item and b'"namespace"' not in item:
        return item
    fields = json_bytes.value(item)
    kind, namespace = fields.get("type"), fields.pop("namespace", None)
    if kind == "custom_tool_call_output":
        return json_bytes.encode({**fields, "type": "function_call_output"})
    if kind == "custom_tool_call":
        text = fields.pop("input", "")
        fields |= {"type": "function_call", "arguments": json_bytes.encode({_TEXT: text}).decode()}
    elif kind != "function_call" or not namespace:
        return item
    return json_bytes.encode({**fields, "name": _join(namespace, fields.get("name"))})


def read_custom_input(arguments: str) -> str:
    """Return the text that a model passes to a custom tool."""
    try:
        given = json_bytes.value(arguments.encode())
    except ValueError:
        return arguments
    text = given.get(_TEXT) if isinstance(given, dict) else None
    return text if isinstance(text, str) else arguments


def _describe_custom(tool: Mapping[str, Any]) -> str:
    """Return the description of a custom tool, with the grammar of its text if it has one."""
    form = tool.get("format")
    grammar = form.get("definition") if isinstance(form, Mapping) else None
    texts = [tool.get("description") or "", f"`{_TEXT}` must follow this grammar:\n{grammar}" if grammar else ""]
    return "\n\n".join(text for text in texts if text)


def _join(namespace: object, name: object) -> str:
    return f"{namespace}__{name}" if namespace else str(name)
