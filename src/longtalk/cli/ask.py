"""`longtalk ask`: ask one question, about piped text, files and images if there are any.

Only the answer is written to standard output, so that other programs can read it. Each question starts a conversation
of its own, which `-c` continues.
"""

from __future__ import annotations

import base64
import io
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from longtalk.cli.answers import print_stream, print_usage
from longtalk.cli.files import display_name, read_file
from longtalk.cli.output import print_note, print_text
from longtalk.cli.session import ChatSession, exit_on_signals, open_session
from longtalk.errors import InputError, LongtalkError
from longtalk.wires.convert import Image, render_part
from longtalk.wires.registry import find_family

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n(.*?)^[ \t]*\1[`~]*[ \t]*$", re.DOTALL | re.MULTILINE)
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)


def run(
    *,
    question: str,
    files: Sequence[str],
    images: Sequence[str],
    options: Sequence[tuple[str, str]],
    tools: Sequence[str],
    output: str | None,
    extract: bool,
    goes_on: bool,
    id: str | None,  # noqa: A002
    **choices: Any,
) -> None:
    """Ask the question, and print the answer. `choices` are those of `open_session`."""
    text = _compose(question, files)
    pictures = [_read_image(name) for name in images]
    if not text and not pictures:
        raise InputError("No question was given: write it after `longtalk ask`, or pipe it in.")
    arguments: dict[str, Any] = {
        "options": {name: _parse_option(value) for name, value in options} or None,
        "tools": [tool for name in tools for tool in _load_tools(name)],
        "output": _read_schema(output) if output is not None else None,
    }
    new = id is None and not goes_on
    with exit_on_signals(), open_session(id=id, new=new, stem="ask", **choices) as session:
        message: Any = [text, *(_render(session, each) for each in pictures)] if pictures else text
        try:
            _answer(session, message, arguments, extract=extract)
        except LongtalkError:
            session.delete_without_answer()
            raise


def _answer(session: ChatSession, message: Any, arguments: Mapping[str, Any], *, extract: bool) -> None:
    talk = session.ensure_stored()
    if extract or arguments["output"] is not None:
        reply = talk.send(message, system=session.system, on_busy="wait", **arguments)
        for notice in reply.notices:
            print_note(f"({notice.text})")
        print_text(_extract_code(reply.text) if extract else json.dumps(reply.output, ensure_ascii=False))
    else:
        reply = print_stream(talk.stream(message, system=session.system, on_busy="wait", **arguments))
    print_usage(reply)


def _compose(question: str, files: Sequence[str]) -> str:
    """Return the text of the message: each file under its name, piped text, and the question last."""
    parts = [f"{Path(name).name}:\n\n{_decode(name, read_file(name))}" for name in files if name != "-"]
    if "-" in files or not sys.stdin.isatty():
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        parts.append(sys.stdin.read())
    return "\n\n".join(part for each in (*parts, question) if (part := each.strip()))


def _decode(name: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InputError(f"{display_name(name)} is not text. Attach an image with -a.") from None


def _read_image(name: str) -> Image:
    data = read_file(name)
    kind = next((kind for start, kind in _KINDS if data.startswith(start)), None)
    if kind is None or (kind == "image/webp" and data[8:12] != b"WEBP"):
        raise InputError(f"{display_name(name)} is not a PNG, JPEG, GIF or WebP image.")
    return Image(kind, data=base64.b64encode(data).decode())


def _render(session: ChatSession, image: Image) -> Any:
    wire = session.provider.wire
    if not find_family(wire):
        raise InputError(f"{session.provider.label} does not accept images.")
    return render_part(wire, image)


def _parse_option(value: str) -> Any:
    """Return an option's value: JSON where it is JSON (0.2, true, [1]), else the text itself."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def _read_schema(name: str) -> Mapping[str, Any]:
    try:
        schema = json.loads(read_file(name))
    except ValueError as problem:
        raise InputError(f"{display_name(name)} is not valid JSON: {problem}.") from None
    if not isinstance(schema, dict):
        raise InputError(f"{display_name(name)} is not a JSON Schema: it must be an object.")
    return schema


def _load_tools(name: str) -> list[Callable[..., Any]]:
    """Return the public functions of a Python file, which is run."""
    import runpy

    read_file(name)
    try:
        found = runpy.run_path(name, run_name="longtalk_tools")
    except Exception as problem:
        raise InputError(f"{display_name(name)} can't be run: {type(problem).__name__}: {problem}.") from None
    tools = [
        value
        for key, value in found.items()
        if not key.startswith("_") and callable(value) and getattr(value, "__module__", "") == "longtalk_tools"
    ]
    if not tools:
        raise InputError(f"{display_name(name)} has no functions to use as tools.")
    return tools


def _extract_code(text: str) -> str:
    found = _FENCE.search(text)
    if found is None:
        raise InputError("The answer has no code block to extract. `longtalk show` prints all of it.")
    return found[2].rstrip("\n")
