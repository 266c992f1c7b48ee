"""Change the settings file: one value, or a model under a name of its own. Everything else in it stays as it is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from longtalk._util.file_locks import change_file
from longtalk._util.suggest import suggest
from longtalk.errors import InputError
from longtalk.service.settings import ModelSettings, Settings, explain_invalid, get_settings_path

_TABLE = re.compile(r"[ \t]*\[")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")


def set_setting(name: str, value: str) -> Path:
    """Store one setting, such as `default_model`; an empty value removes it. Return the path of the file."""
    fields = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    # The type of a setting with limits is annotated with them.
    known = [key for key, kind in fields.items() if getattr(kind, "__origin__", kind) in (str, int, bool)]
    if name not in known:
        raise InputError(
            f"There is no setting {name!r} that a command can change.{suggest(name, known)} "
            f"These can be changed: {', '.join(known)}."
        )
    try:
        typed: Any = msgspec.convert(value, fields[name], strict=False) if value else None
    except msgspec.ValidationError:
        raise InputError(f"{value!r} is not a valid value for the setting {name!r}.") from None

    def change(text: str) -> str:
        statements = _split(text)
        end = _find_table(statements, 0)
        top, was_set = _change_values(statements[:end], {name: typed} if value else {}, {name})
        if not value and not was_set:
            raise InputError(f"The setting {name!r} is not set in {get_settings_path()}.")
        if end < len(statements) and top.strip() and not top.endswith("\n\n"):
            top += "\n"
        return top + "".join(statements[end:])

    return _change(change)


def set_alias(name: str, model: ModelSettings | None) -> Path:
    """Give a model a name in the settings file, or remove the name if `model` is None. Return the path of the file."""
    if not name or ":" in name or not name.isprintable():
        raise InputError(f"{name!r} can't be the name of a model: use letters and digits, without a colon.")
    return _change(lambda text: _change_alias(text, name, model))


def _change_alias(text: str, name: str, model: ModelSettings | None) -> str:
    statements = _split(text)
    tables = {i: _read_path(each) for i, each in enumerate(statements) if _TABLE.match(each)}
    own = next((i for i, path in tables.items() if path == ["models", name]), None)
    parts = {path[2]: i for i, path in tables.items() if path[:2] == ["models", name] and len(path) > 2}
    if model is None and own is None:
        raise InputError(f"The settings have no model {name!r} in a table of its own: look into {get_settings_path()}.")
    if model is None and parts:
        raise InputError(
            f"The model {name!r} also has the table [models.{name}.{next(iter(parts))}] in {get_settings_path()}: "
            "remove it there first. Nothing was changed."
        )
    if model is not None and "options" in parts:
        # They are written into the table of the model, with those that this table had.
        start = parts.pop("options")
        statements[start : _find_end(statements, start)] = []
        return _change_alias("".join(statements), name, model)
    values = {
        key: value for key, value in (msgspec.to_builtins(model) if model else {}).items() if value and key not in parts
    }
    if own is None:
        lines = "".join(f"{key} = {_write(value)}\n" for key, value in values.items())
        return f"{text.rstrip()}\n\n[models.{_write(name)}]\n{lines}".lstrip()
    end = _find_end(statements, own)
    block = "" if model is None else _change_values(statements[own:end], values, {*ModelSettings.__struct_fields__})[0]
    return "".join((*statements[:own], block, *statements[end:]))


def _split(text: str) -> list[str]:
    """Return the statements of a TOML text: headers, values with all their lines, comments and empty lines."""
    statements: list[str] = []
    statement = ""
    for line in _LINES.findall(text):
        statement += line
        # A part of a value is no TOML.
        if _parse(statement) is not None:
            statements.append(statement)
            statement = ""
    return [*statements, statement] if statement else statements


def _parse(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _read_path(header: str) -> list[str]:
    """Return the names in the header of a table."""
    path: list[str] = []
    found: Any = _parse(header)
    while isinstance(found, dict) and found:
        [(name, found)] = found.items()
        path.append(name)
    return path


def _find_table(statements: list[str], start: int) -> int:
    """Return the index of the first header from `start` on, or the number of statements."""
    return next((i for i in range(start, len(statements)) if _TABLE.match(statements[i])), len(statements))


def _find_end(statements: list[str], start: int) -> int:
    """Return the index after a table. Comments right above the next header belong to that one."""
    end = following = _find_table(statements, start + 1)
    while following < len(statements) and end > start + 1 and statements[end - 1].lstrip().startswith("#"):
        end -= 1
    return end


def _change_values(statements: list[str], values: Mapping[str, Any], known: set[str]) -> tuple[str, bool]:
    """Return statements with new values for the `known` names, and whether one of these was there.

    A known name without a value is removed. Comments stay, and so does a value that is not changed.
    """
    made: list[str] = []
    left = dict(values)
    last, was_there = 0, False
    for each in statements:
        found = {} if _TABLE.match(each) else _parse(each) or {}
        name = next((key for key in found if key in known), None)
        was_there = was_there or name is not None
        if name is not None and name not in left:
            continue
        if name is not None and found[name] != (value := left.pop(name)):
            each = f"{name} = {_write(value)}{_find_comment(each, found)}\n"
        made.append(each if each.endswith("\n") else f"{each}\n")
        last = len(made) if each.strip() else last
    made[last:last] = [f"{name} = {_write(value)}\n" for name, value in left.items()]
    return "".join(made), was_there


def _find_comment(statement: str, values: Mapping[str, Any]) -> str:
    """Return the comment after the value of a statement, with the spaces before it."""
    ends = (found.start() for found in re.finditer(r"[ \t]*#", statement))
    return next((statement[end:].rstrip() for end in ends if _parse(statement[:end]) == values), "")


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{str(path)!r} can't be read: {problem}.") from None


def _write(value: Any) -> str:
    """Return a value in TOML. A JSON string without control characters is one of TOML, too."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_write(key)} = {_write(each)}" for key, each in value.items()) + " }"
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def _change(change: Callable[[str], str]) -> Path:
    """Replace the text of the settings file by `change(text)`, if that is valid."""
    path = get_settings_path()

    def read_and_change() -> str:
        text = change(_read(path))
        try:
            msgspec.convert(tomllib.loads(text), Settings, strict=False)
        except (tomllib.TOMLDecodeError, msgspec.ValidationError) as problem:
            what = explain_invalid(problem) if isinstance(problem, msgspec.ValidationError) else problem
            raise InputError(f"The settings in {path} would not be valid: {what}. Nothing was changed.") from None
        return text

    change_file(path, read_and_change, mode=0o666)
    return path
