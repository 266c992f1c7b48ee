"""What a question of `longtalk ask` brings along: piped text, files, images, tools and the schema of the answer."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import mimetypes
import os
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from longtalk.cli.files import display_name, read_file
from longtalk.cli.output import print_note, shorten
from longtalk.cli.text_files import find_text_files
from longtalk.errors import InputError
from longtalk.wires.convert import Image

_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)
_URL = re.compile(r"https?://", re.IGNORECASE)
_FUNCTION = re.compile(r"^\s*(async\s+)?def\s+\w+\s*\(", re.MULTILINE)
_FIELD = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\s+(?P<kind>\w+))?\s*(?::\s*(?P<about>.*))?", re.DOTALL)
_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_LONG_TYPES = {long: short for short, long in _TYPES.items()}
"""Other names of types, and what they are called here."""
_TOOLS_MODULE = "longtalk_tools"


class Question(NamedTuple):
    """The text of a question, and the images that belong to it."""

    text: str
    images: list[Image]


def read_question(words: str, files: Sequence[str], images: Sequence[str]) -> Question:
    """Return the question: each file under its name, piped text, and the words last. A piped image is one, too."""
    found = find_text_files([each for each in files if each != "-"])
    parts = [f"{name}:\n\n{_read_text(path)}" for path, name in found]
    pictures = [_read_image(name) for name in images]
    if "-" not in images and ("-" in files or (sys.stdin is not None and not sys.stdin.isatty())):
        piped = _read_pipe()
        kind = _detect_image(piped)
        if kind is not None:
            pictures.append(_make_image(kind, piped))
        elif b"\0" in piped:
            raise InputError("What is piped in is neither text nor a PNG, JPEG, GIF or WebP image.")
        else:
            parts.append(io.TextIOWrapper(io.BytesIO(piped), "utf-8", "replace").read())
            if not _is_text(piped):
                print_note(
                    "(What is piped in is not all UTF-8: what can't be read is sent as �. Latin-1 can be read with: "
                    "… | iconv -f latin1 -t utf-8 | longtalk …)"
                )
    return Question("\n\n".join(part for each in (*parts, words) if (part := each.strip())), pictures)


def _read_pipe() -> bytes:
    return sys.stdin.buffer.read() if isinstance(sys.stdin, io.TextIOWrapper) else sys.stdin.read().encode()


def _read_text(name: str) -> str:
    if _URL.match(name):
        raise InputError(f"{name} is not a file. To ask about it: curl -s {name} | longtalk ask …")
    data = read_file(name)
    if _is_text(data):
        return data.decode()
    what = f"{display_name(name)} is not text"
    if _detect_image(data):
        raise InputError(f"{what}, but an image: attach it with -a.")
    if b"\0" in data:
        raise InputError(f"{what}, so it can't be sent.")
    raise InputError(
        f"{what} in UTF-8. If it is Latin-1: iconv -f latin1 -t utf-8 {shlex.quote(display_name(name))} | longtalk …"
    )


def _is_text(data: bytes) -> bool:
    with contextlib.suppress(UnicodeDecodeError):
        data.decode()
        return b"\0" not in data
    return False


def _read_image(name: str) -> Image:
    if _URL.match(name):
        kind = mimetypes.guess_type(name.partition("?")[0])[0] or ""
        return Image(kind if kind.startswith("image/") else "image/jpeg", url=name)
    data = read_file(name)
    kind = _detect_image(data) or ""
    if not kind:
        hint = " Add a text file with -f." if _is_text(data) else ""
        raise InputError(f"{display_name(name)} is not a PNG, JPEG, GIF or WebP image.{hint}")
    return _make_image(kind, data)


def _make_image(kind: str, data: bytes) -> Image:
    return Image(kind, data=base64.b64encode(data).decode())


def _detect_image(data: bytes) -> str | None:
    kind = next((kind for start, kind in _KINDS if data.startswith(start)), None)
    return None if kind == "image/webp" and data[8:12] != b"WEBP" else kind


def read_schema(given: str) -> Mapping[str, Any]:
    """Return the JSON Schema that an option names: a file, the schema itself, or fields such as `name, age int`."""
    if not os.path.exists(given) and given != "-":
        if given.lstrip().startswith("{"):
            return _parse_schema(given, "--schema")
        if re.search(r"[\s,:]", given.strip()) and not given.endswith(".json"):
            return _parse_fields(given)
        if given.isidentifier():
            raise InputError(f"There is no file {given!r}. For a schema of one field, write --schema '{given} str'.")
    return _parse_schema(read_file(given), display_name(given))


def _parse_schema(text: str | bytes, name: str) -> Mapping[str, Any]:
    try:
        schema = json.loads(text)
    except ValueError as problem:
        raise InputError(f"{name} is not valid JSON: {problem}.") from None
    if not isinstance(schema, dict):
        raise InputError(f"{name} is not a JSON Schema: it must be an object.")
    return schema


def _parse_fields(text: str) -> Mapping[str, Any]:
    """Return the schema of an object with these fields, separated by commas or, if there are several, by lines."""
    fields: dict[str, Any] = {}
    for part in filter(str.strip, text.strip().split("\n" if "\n" in text.strip() else ",")):
        found = _FIELD.fullmatch(part.strip())
        kind = _find_type(found["kind"] or "str") if found else ""
        # A number may describe a field, such as that of a phone.
        mixed = found is not None and found["kind"] is None and (found["about"] or "").strip() not in ("", "number")
        if found is None or not kind or (mixed and _find_type(found["about"].strip())):
            raise InputError(
                f"{shorten(part.strip(), 60)!r} is not a field of a schema.{_suggest_field(part)} Write NAME, "
                f"NAME TYPE or NAME TYPE: DESCRIPTION, with a type of {', '.join(_TYPES)}. Or name a file with a "
                "JSON Schema."
            )
        about = {"description": found["about"].strip()} if (found["about"] or "").strip() else {}
        fields[found["name"]] = {"type": _TYPES[kind], **about}
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _find_type(word: str) -> str:
    """Return the type that a word names; empty if it names none."""
    lower = word.lower()
    return lower if lower in _TYPES else _LONG_TYPES.get(lower, "")


def _suggest_field(part: str) -> str:
    """Return " Did you mean …?" with the field that two words stand for: `int age`, `age: int`, `age integr`."""
    words = re.findall(r"\w+", part)
    if len(words) != 2:
        return ""
    name, kind = reversed(words) if _find_type(words[0]) else words
    near = _find_type(kind) or next(iter(get_close_matches(kind.lower(), (*_TYPES, *_LONG_TYPES), n=1)), "")
    return f" Did you mean '{name} {_find_type(near)}'?" if near and name.isidentifier() else ""


def load_tools(given: str) -> list[Callable[..., Any]]:
    """Return the public functions of a Python file, or of Python code, which is run."""
    is_code = _FUNCTION.search(given) is not None and not os.path.exists(given)
    name = "The code" if is_code else display_name(given)
    if not is_code and not given.endswith(".py") and not os.path.exists(given):
        raise InputError(
            f"Can't read {name}: a tool is a function in a Python file. For a model saved with a system text, use "
            "-m NAME (`longtalk config alias` saves one)."
        )
    try:
        if is_code:
            found: dict[str, Any] = {"__name__": _TOOLS_MODULE}
            exec(compile(given, "<functions>", "exec"), found)  # noqa: S102
        else:
            read_file(given)
            found = runpy.run_path(given, run_name=_TOOLS_MODULE)
    except InputError:
        raise
    except Exception as problem:
        raise InputError(f"{name} can't be run: {type(problem).__name__}: {problem}.") from None
    tools = [
        value
        for key, value in found.items()
        if not key.startswith("_") and callable(value) and getattr(value, "__module__", "") == _TOOLS_MODULE
    ]
    if not tools:
        raise InputError(f"{name} has no functions to use as tools.")
    return tools
