"""`longtalk tokens`: count the tokens in files.

A file is plain text, chat messages as JSON (a list, an object with `messages`, or one message per line), or a state.
Messages are counted one by one and reported by role; a request's `system` and `tools` are reported separately. A file
that can't be counted is reported on standard error, the other files are counted, and the command exits with status 2.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from longtalk._util import json_bytes
from longtalk.cli.files import decode_state, display_name, read_file
from longtalk.cli.holding import find_model_settings
from longtalk.cli.output import escape_line, print_json, print_note, print_text
from longtalk.errors import InputError
from longtalk.service.settings import load_settings
from longtalk.tokens import Counter, Estimator, Exact, count_message, count_preamble, counter_for
from longtalk.tokens.families import MODEL_PATTERNS

Rows = dict[str, int]
"""The number of tokens in each part of a file, by the label of the part."""

_STATE = b"\x89TL"


def run(*, files: Sequence[str], model: str, exact: bool, as_json: bool) -> None:
    """Print the number of tokens in each file, and how they were counted."""
    with contextlib.suppress(InputError):
        # An unknown name is counted by its words, with a warning.
        model = find_model_settings(load_settings(), model).model
    counter: Estimator | Exact = counter_for(model)
    if exact:
        counter = Exact(counter.family)
    if not _has_tokenizer(model):
        _print_warning(f"the tokenizer of model {model!r} is unknown; counting with that of {counter.family}.")
    total = counted = parts = 0
    for name in files:
        try:
            tokens, rows = count_file(display_name(name), read_file(name), counter)
        except InputError as problem:
            _print_warning(str(problem) + ("" if " " not in name else " To count the tokens of a text, pipe it in."))
            continue
        total, counted, parts = total + tokens, counted + 1, parts + len(rows)
        if as_json:
            unit = {"exact": exact, "family": counter.family}
            print_json({"file": display_name(name), "tokens": tokens, "parts": rows, **unit})
            continue
        print_text(f"{tokens:>10,}  {escape_line(display_name(name))}")
        for label, part in sorted(rows.items(), key=lambda item: -item[1]):
            print_text(f"{part:>10,}    {escape_line(label)}")
    if counted and len(files) > 1 and not as_json:
        print(f"{total:>10,}  total{'' if counted == len(files) else f', {counted} of {len(files)} files'}")
    if counted and not as_json:
        by_rule = "; message framing, calls, images and files by rule" if exact and parts else ""
        print(f"{'':10}  {'exact' if exact else 'estimated'}, tokenizer {counter.family}{by_rule}")
    if counted < len(files):
        raise SystemExit(2)


def count_file(name: str, data: bytes, counter: Counter) -> tuple[int, Rows]:
    """Return the number of tokens in a file, and in each of its parts: system text, tools, and messages by role."""
    content = _parse(data)
    rows = _count_preamble(name, content, counter) if isinstance(content, dict) else {}
    roles: dict[str, list[int]] = {}
    transcript = decode_state(name, data) if data.startswith(_STATE) else ()
    for role, native in [(entry.role, entry.native) for entry in transcript] or _find_messages(content):
        roles.setdefault(role, []).append(count_message(native, counter))
    for role, costs in roles.items():
        rows[f"{role}, {len(costs):,} {'message' if len(costs) == 1 else 'messages'}"] = sum(costs)
    if rows:
        return sum(rows.values()), rows
    try:
        return counter.count(data.decode("utf-8-sig")), {}
    except UnicodeDecodeError:
        raise InputError(f"Can't count {name}: it is not UTF-8 text, chat messages or a Longtalk state.") from None


def _has_tokenizer(model: str) -> bool:
    """Return True if the tokenizer family of a model is known from its name, or the model is `local`."""
    provider, _, name = model.lower().partition(":")
    return model == "local" or any(re.search(pattern, name or provider) for pattern, _ in MODEL_PATTERNS)


def _print_warning(problem: str) -> None:
    print_note(f"longtalk: {problem}")


def _parse(data: bytes) -> Any:
    """Parse a file as JSON, or as a list if it is JSON Lines; return None if it is neither."""
    if data.lstrip()[:1] not in (b"[", b"{"):
        return None
    try:
        return json_bytes.value(data)
    except ValueError:
        pass
    try:
        return [json_bytes.value(line) for line in data.splitlines() if line.strip()]
    except ValueError:
        return None


def _find_messages(content: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the role and message for each message in the JSON of a file; nothing if it has no messages."""
    if isinstance(content, dict):
        content = [content] if "role" in content else _list_messages(content)
    if _are_messages(content):
        yield from ((_find_role(item), item) for item in content)


def _list_messages(request: dict[str, Any]) -> Any:
    """Return the list of messages in a request: its `input` (OpenAI's Responses format) or its `messages`."""
    items = request.get("input")
    return items if isinstance(items, list) and any(map(_find_role, items)) else request.get("messages")


def _are_messages(found: Any) -> bool:
    return isinstance(found, list) and all(map(_find_role, found))


def _find_role(item: Any) -> str:
    """Return the role of a message, or the type of a Responses item without a role; "" for anything else."""
    if not isinstance(item, dict):
        return ""
    role = item.get("role", item.get("type") if "call_id" in item or "encrypted_content" in item else None)
    return role if isinstance(role, str) else ""


def _count_preamble(name: str, request: dict[str, Any], counter: Counter) -> Rows:
    """Return the tokens in the system text and the tools of a request; empty if the JSON is not a request."""
    rows: Rows = {}
    if "role" in request or not _are_messages(_list_messages(request)):
        return rows
    system, tools = request.get("system") or request.get("instructions"), request.get("tools")
    if system:
        rows["system"] = count_message({"content": system}, counter)
    if tools:
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise InputError(f"Can't count `tools` in {name}: it must be a list of objects.")
        rows[f"tools, {len(tools):,}"] = count_preamble(None, tools, counter)
    return rows
