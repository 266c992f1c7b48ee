"""The validator knows the rules of a wire by itself: each broken one is named, and what is fine passes."""

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from longtalk.testing import WireViolation, validate

USER = {"role": "user", "content": "Hello."}
ANSWER = {"role": "assistant", "content": "Hi."}


def calling(*ids: Any, content: Any = None) -> dict[str, Any]:
    calls = [{"id": key, "type": "function", "function": {"name": "f", "arguments": "{}"}} for key in ids]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "5"}


def check(*messages: Any, **more: Any) -> None:
    validate(json.dumps({"model": "m", "messages": messages, **more}).encode())


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [{"role": "system", "content": "Teach."}, USER, ANSWER, USER],
        [{"role": "developer", "content": "Teach."}, USER],
        [USER, calling("a"), result("a")],
        [USER, calling("a", "b"), result("b"), result("a"), ANSWER],
        [USER, calling("a", content="I'll look."), result("a"), calling("b"), result("b"), ANSWER],
        [USER, calling("a"), result("a"), USER],
        # The same id may come again once its call is answered.
        [USER, calling("a"), result("a"), calling("a"), result("a")],
        [USER, {"role": "assistant", "content": None, "refusal": "No."}],
        [USER, {"role": "assistant", "refusal": "No."}],
        [USER, {"role": "assistant", "content": None, "audio": {"id": "a"}}],
        [USER, {"role": "assistant", "content": "", "tool_calls": []}],
        [USER, {"role": "assistant", "content": "x", "tool_calls": None, "unknown": {"x": 1}}],
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]}],
        # Neither alternation nor a user at the beginning is a rule of this wire.
        [ANSWER, ANSWER, USER, USER, {"role": "system", "content": "x"}],
    ],
)
def test_what_servers_take_passes(messages: list[Any]) -> None:
    check(*messages)


@pytest.mark.parametrize(
    ("rule", "messages"),
    [
        ("messages", []),
        ("role", [{"content": "x"}]),
        ("role", [{"role": "event", "content": "x"}]),
        ("role", [{"role": "", "content": "x"}]),
        ("role", [USER, "x"]),
        ("role", [USER, None]),
        # A call has its results right behind it, all of them.
        ("CC1", [USER, calling("a")]),
        ("CC1", [USER, calling("a", "b"), result("a")]),
        ("CC1", [USER, calling("a", "b"), result("a"), USER, result("b")]),
        ("CC1", [USER, calling("a"), USER, result("a")]),
        ("CC1", [USER, calling("a"), {"role": "system", "content": "x"}, result("a")]),
        ("CC1", [USER, calling("a"), ANSWER]),
        ("CC1", [USER, calling("a", "a"), result("a")]),
        ("CC1", [USER, calling("")]),
        ("CC1", [USER, calling(None)]),
        ("CC1", [USER, {"role": "assistant", "content": None, "tool_calls": [{"function": {}}]}]),
        ("CC1", [USER, {"role": "assistant", "content": None, "tool_calls": ["x"]}]),
        # A result has its call.
        ("CC2", [USER, result("a")]),
        ("CC2", [result("a")]),
        ("CC2", [USER, ANSWER, result("a")]),
        ("CC2", [USER, calling("a"), result("a"), result("a")]),
        ("CC2", [USER, calling("a"), result("b")]),
        ("CC2", [USER, calling("a"), {"role": "tool", "content": "5"}]),
        ("CC2", [{**calling("a"), "role": "user", "content": "x"}]),
        ("content", [{"role": "user"}]),
        ("content", [{"role": "user", "content": None}]),
        ("content", [{"role": "user", "content": 5}]),
        ("content", [{"role": "user", "content": []}]),
        ("content", [{"role": "user", "content": ["x"]}]),
        ("content", [{"role": "user", "content": [{"text": "x"}]}]),
        ("content", [USER, {"role": "assistant", "content": None}]),
        ("content", [USER, {"role": "assistant"}]),
        ("content", [USER, {"role": "assistant", "content": [], "refusal": "No."}]),
        ("content", [USER, {"role": "assistant", "content": None, "tool_calls": []}]),
        ("content", [USER, calling("a"), {"role": "tool", "tool_call_id": "a", "content": None}]),
    ],
)
def test_what_breaks_one_rule_is_refused_by_its_name(rule: str, messages: list[Any]) -> None:
    with pytest.raises(WireViolation) as caught:
        check(*messages)
    assert caught.value.rule == rule
    assert str(caught.value).startswith(f"{rule}: ")


def test_an_empty_list_of_tools_is_refused_and_a_full_one_is_not() -> None:
    check(USER, tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])
    with pytest.raises(WireViolation, match="CC3"):
        check(USER, tools=[])


@pytest.mark.parametrize("request_body", [b"", b"{", b'{"messages":[{]}', b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_refused(request_body: bytes) -> None:
    with pytest.raises(WireViolation, match="JSON"):
        validate(request_body)


@pytest.mark.parametrize("request_body", [b"{}", b"[]", b"null", b'"x"', b'{"messages":{}}', b'{"messages":null}'])
def test_a_request_without_messages_is_refused(request_body: bytes) -> None:
    with pytest.raises(WireViolation, match="messages"):
        validate(request_body)


def test_bytes_that_are_not_utf8_inside_a_text_are_let_through() -> None:
    validate(b'{"messages":[{"role":"user","content":"a\xff"}]}')


def test_a_violation_is_a_failed_assertion() -> None:
    assert issubclass(WireViolation, AssertionError)


def test_a_wire_that_has_no_validator_is_an_error() -> None:
    with pytest.raises(KeyError):
        validate(b"{}", wire="carrier-pigeon")


def test_the_validator_stands_on_the_standard_library_alone() -> None:
    source = Path(sys.modules[validate.__module__].__file__ or "").read_text()
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports]
    assert {
        name.partition(".")[0] for name in names if not name.startswith("longtalk.testing.")
    } <= sys.stdlib_module_names
