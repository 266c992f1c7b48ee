"""`longtalk tokens`: how many tokens files have, as `longtalk.tokens` counts them.

A file is plain text, chat messages as JSON (a list, an object with `messages`, or one to a line), or a Longtalk state.
What holds messages is counted message by message and told by role, and a request's `system` and `tools` on their own.
A file that can't be counted is told on standard error; the others are counted all the same, and the status is 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import click

from longtalk import _json
from longtalk.cli.files import read, shown, transcript
from longtalk.cli.out import one_line, put
from longtalk.errors import InputError
from longtalk.token_families import MODELS
from longtalk.tokens import Counter, Estimator, Exact, counter_for, of_message, of_preamble

Rows = dict[str, int]
"""Parts of a file, by what they are called, and their tokens."""

_STATE = b"\x89TL"


def run(*, files: Sequence[str], model: str, exact: bool) -> None:
    """Print the tokens of each file, and how they were counted."""
    counter: Estimator | Exact = counter_for(model)
    if exact:
        counter = Exact(counter.family)
    if not _known(model):
        _tell(f"no tokenizer is known for the model {model!r}: its tokens are counted as those of {counter.family}.")
    total = counted = parts = 0
    for name in files:
        try:
            tokens, rows = count(shown(name), read(name), counter)
        except InputError as problem:
            _tell(str(problem))
            continue
        total, counted, parts = total + tokens, counted + 1, parts + len(rows)
        put(f"{tokens:>10,}  {one_line(shown(name))}")
        for label, part in sorted(rows.items(), key=lambda item: -item[1]):
            put(f"{part:>10,}    {one_line(label)}")
    if counted and len(files) > 1:
        print(f"{total:>10,}  together{'' if counted == len(files) else f', {counted} of {len(files)} files'}")
    if counted:
        by_rule = "; what frames messages, calls, images and files by rule" if exact and parts else ""
        print(f"{'':10}  {'exact' if exact else 'estimated'}, family {counter.family}{by_rule}")
    if counted < len(files):
        raise SystemExit(2)


def count(name: str, data: bytes, counter: Counter) -> tuple[int, Rows]:
    """The tokens of a file's content, and those of its parts: of a request's system text and tools, and by role."""
    whole = _parsed(data)
    rows = _preamble(name, whole, counter) if isinstance(whole, dict) else {}
    roles: dict[str, list[int]] = {}
    held = transcript(name, data) if data.startswith(_STATE) else ()
    for role, native in [(entry.role, entry.native) for entry in held] or _messages(whole):
        roles.setdefault(role, []).append(of_message(native, counter))
    for role, costs in roles.items():
        rows[f"{role}, {len(costs):,} {'message' if len(costs) == 1 else 'messages'}"] = sum(costs)
    if rows:
        return sum(rows.values()), rows
    try:
        return counter.count(data.decode("utf-8-sig")), {}
    except UnicodeDecodeError:
        raise InputError(f"{name} is neither text nor messages nor a state of Longtalk: nothing to count.") from None


def _known(model: str) -> bool:
    """Whether it is the model's name that tells its family. The one called `local` is always the same."""
    provider, _, name = model.lower().partition(":")
    return model == "local" or any(re.search(pattern, name or provider) for pattern, _ in MODELS)


def _tell(problem: str) -> None:
    click.echo(f"longtalk: {problem}", err=True)


def _parsed(data: bytes) -> Any:
    """A file's JSON, or that of its lines as a list; None when it is neither."""
    if data.lstrip()[:1] not in (b"[", b"{"):
        return None
    try:
        return _json.value(data)
    except ValueError:
        pass
    try:
        return [_json.value(line) for line in data.splitlines() if line.strip()]
    except ValueError:
        return None


def _messages(whole: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The messages in a file with their roles; none when it is text, as other JSON is, a tool's result for example."""
    if isinstance(whole, dict):
        whole = [whole] if "role" in whole else _listed(whole)
    if _are_messages(whole):
        yield from ((_role(item), item) for item in whole)


def _listed(request: dict[str, Any]) -> Any:
    """The messages of a request; of one to OpenAI's Responses its items."""
    items = request.get("input")
    return items if isinstance(items, list) and any(map(_role, items)) else request.get("messages")


def _are_messages(found: Any) -> bool:
    return isinstance(found, list) and all(map(_role, found))


def _role(item: Any) -> str:
    """Who speaks. Items of Responses that nobody speaks have a type and an id of their call."""
    if not isinstance(item, dict):
        return ""
    role = item.get("role", item.get("type") if "call_id" in item or "encrypted_content" in item else None)
    return role if isinstance(role, str) else ""


def _preamble(name: str, request: dict[str, Any], counter: Counter) -> Rows:
    """What a request carries beside its messages."""
    rows: Rows = {}
    if "role" in request or not _are_messages(_listed(request)):
        return rows
    system, tools = request.get("system") or request.get("instructions"), request.get("tools")
    if system:
        rows["system"] = of_message({"content": system}, counter)
    if tools:
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise InputError(f"The tools in {name} are no list of objects: they can't be counted.")
        rows[f"tools, {len(tools):,}"] = of_preamble(None, tools, counter)
    return rows
