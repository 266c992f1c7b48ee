"""`longtalk tokens`: how many tokens files have, as `longtalk.tokens` counts them.

A file is plain text, chat messages as JSON (a list, an object with `messages`, or one to a line), or a Longtalk state.
What holds messages is counted message by message and told by role.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from longtalk import _json
from longtalk.errors import BadState, InputError
from longtalk.tokens import Counter, Exact, counter_for, of_message

Found = dict[str, tuple[int, int]]
"""By role: messages and tokens."""

_STATE = b"\x89TL"


def run(*, files: Sequence[str], model: str, exact: bool) -> None:
    """Print the tokens of each file."""
    counter: Counter = counter_for(model)
    if exact:
        counter = Exact(counter_for(model).family)
    total = 0
    for name in files:
        tokens, roles = count(name, _read(name), counter)
        total += tokens
        print(f"{tokens:>10,}  {'(standard input)' if name == '-' else name}")
        for role, (messages, part) in sorted(roles.items(), key=lambda item: -item[1][1]):
            print(f"{part:>10,}    {role}, {messages:,} {'message' if messages == 1 else 'messages'}")
    if len(files) > 1:
        print(f"{total:>10,}  together")


def count(name: str, data: bytes, counter: Counter) -> tuple[int, Found]:
    """The tokens of a file's content, and those of its messages by role."""
    messages = list(_messages(name, data))
    if not messages:
        try:
            return counter.count(data.decode("utf-8-sig")), {}
        except UnicodeDecodeError:
            raise InputError(
                f"{name} is neither text nor messages nor a state of Longtalk: nothing to count."
            ) from None
    roles: Found = {}
    for role, native in messages:
        before, tokens = roles.get(role, (0, 0))
        roles[role] = before + 1, tokens + of_message(native, counter)
    return sum(tokens for _, tokens in roles.values()), roles


def _read(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        with open(name, "rb") as file:
            return file.read()
    except OSError as problem:
        raise InputError(f"Can't read {name}: {problem.strerror}.") from None


def _messages(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """The messages in a file with their roles; none when it is text."""
    if data.startswith(_STATE):
        yield from _entries(name, data)
        return
    if data.lstrip()[:1] not in (b"[", b"{"):
        return
    try:
        whole: Any = _json.value(data)
        if isinstance(whole, dict):
            whole = [whole] if "role" in whole else whole.get("messages")
    except ValueError:
        try:
            whole = [_json.value(line) for line in data.splitlines() if line.strip()]
        except ValueError:
            return
    # Other JSON, a tool's result for example, is text.
    if isinstance(whole, list) and all(isinstance(item, dict) and isinstance(item.get("role"), str) for item in whole):
        yield from ((item["role"], _json.encode(item)) for item in whole)


def _entries(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    from longtalk.state import decode
    from longtalk.wires import NAMES

    try:
        transcript = decode(data, wires=NAMES, max_bytes=2**40)
    except BadState as problem:
        raise InputError(f"{name}: {problem}") from None
    yield from ((entry.role, entry.native) for entry in transcript)
