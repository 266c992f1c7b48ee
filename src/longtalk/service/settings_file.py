"""Change the settings file: one value, or a model under a name of its own. Everything else in it stays as it is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from longtalk._util.file_locks import change_file
from longtalk._util.suggest import suggest
from longtalk.errors import InputError
from longtalk.service.settings import ModelSettings, Settings, explain_invalid, get_settings_path

_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


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
        first = _TABLE.search(text)
        end = first.start() if first else len(text)
        top = _remove_line(text[:end], name)
        if value:
            top = f"{top.rstrip()}\n{name} = {_write(typed)}\n".lstrip() + ("\n" if first else "")
        return top + text[end:]

    return _change(change)


def set_alias(name: str, model: ModelSettings | None) -> Path:
    """Give a model a name in the settings file, or remove the name if `model` is None. Return the path of the file."""
    if not name or ":" in name or not name.isprintable():
        raise InputError(f"{name!r} can't be the name of a model: use letters and digits, without a colon.")
    return _change(lambda text: _change_alias(text, name, model))


def _change_alias(text: str, name: str, model: ModelSettings | None) -> str:
    start = rf"^[ \t]*\[models\.(?:{re.escape(name)}|{re.escape(_write(name))})"
    found = re.search(start + r"\][^\n]*\n?", text, re.MULTILINE)
    if found:
        following = _TABLE.search(text, found.end())
        text = text[: found.start()] + (text[following.start() :] if following else "")
    elif model is None:
        raise InputError(f"The settings have no model {name!r}.")
    if model is not None:
        # They are written into the table of the model, with those that this table had.
        text = re.sub(start + r"\.options\][^\n]*(?:\n(?![ \t]*\[)[^\n]*)*\n?", "", text, flags=re.MULTILINE)
    tables = re.findall(start + r"\.([^\].\n]+)[^\]\n]*\]", text, re.MULTILINE)
    if model is None and tables:
        raise InputError(
            f"The model {name!r} also has the table [models.{name}.{tables[0]}] in {get_settings_path()}: remove it "
            "there first. Nothing was changed."
        )
    if model is not None:
        values = {key: value for key, value in msgspec.to_builtins(model).items() if value and key not in tables}
        lines = "".join(f"{key} = {_write(value)}\n" for key, value in values.items())
        text = f"{text.rstrip()}\n\n[models.{_write(name)}]\n{lines}".lstrip()
    return text


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{str(path)!r} can't be read: {problem}.") from None


def _remove_line(text: str, name: str) -> str:
    return re.sub(rf"^[ \t]*{re.escape(name)}[ \t]*=[^\n]*\n?", "", text, flags=re.MULTILINE)


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
