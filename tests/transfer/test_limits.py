"""A small file can't become a large conversation, whatever its format; a large and honest file is imported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from longtalk import Archive, InputError
from longtalk.stores.in_memory import InMemory
from longtalk.transfer import limits
from tests.transfer.importers.exports import ChatGPT, Claude, as_json

LIMIT = r"has [\d,]+ bytes, but its conversations would have more than [\d,]+, the limit .* If you trust the file"


@pytest.fixture
def tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow a tenth of the bytes, so that files reach the limit with a tenth of the work."""
    monkeypatch.setattr(limits, "ALLOWED_BYTES", limits.ALLOWED_BYTES // 10)


def thoughts_before_many_answers() -> bytes:
    made = ChatGPT()
    asked = made.say("user", "Why?")
    thought = made.say("assistant", behind=asked, content={"content_type": "thoughts", "thoughts": ["x" * 200_000]})
    for number in range(2_000):
        made.say("assistant", f"Answer {number}", behind=thought)
    return as_json(made)


def many_thoughts() -> bytes:
    made = ChatGPT()
    for _ in range(3_000):
        made.say("assistant", content={"content_type": "reasoning_recap", "content": "…"})
    return as_json(made)


def answers_before_many_calls() -> bytes:
    made = ChatGPT()
    for _ in range(300):
        made.say("assistant", "x" * 1_000)
    last = made.current
    for number in range(2_000):
        made.say("assistant", f"print({number})", behind=last, recipient="python")
    return as_json(made)


def open_calls_before_many_messages() -> bytes:
    made = Claude()
    calls = [{"type": "tool_use", "id": f"c{number}", "name": "f", "input": {}} for number in range(2_000)]
    asked = made.say("assistant", "", *calls)
    for number in range(2_000):
        made.say("human", f"Go on {number}", parent=asked)
    return as_json(made)


def many_branches_of_a_long_one() -> bytes:
    made = ChatGPT()
    for number in range(4_000):
        made.say(("user", "assistant")[number % 2], f"{number}")
    last = made.current
    for number in range(1_000):
        made.say("user", f"Again {number}", behind=last)
    return as_json(made)


def _line(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def many_branches_of_an_export() -> bytes:
    def entry(number: int) -> dict[str, Any]:
        parent = f"t{number - 1}-0" if number else None
        return {
            "type": "entry",
            "id": f"t{number}-0",
            "parent": parent,
            "turn": f"t{number}",
            "role": "user",
            "wire": "openai-chat",
            "native": {"role": "user", "content": "x"},
            "at": 0,
        }

    lines = [_line(type="conversation", longtalk=1, id="c", created=0, updated=0, meta={})]
    lines.append(_line(type="branch", name="main"))
    lines += [_line(**entry(number)) for number in range(2_000)]
    lines += [_line(type="branch", name=f"b{number}", source=["main", 2_000]) for number in range(1_000)]
    return b"\n".join(lines)


@pytest.mark.parametrize(
    "make",
    [
        thoughts_before_many_answers,
        many_thoughts,
        answers_before_many_calls,
        many_branches_of_a_long_one,
        many_branches_of_an_export,
    ],
)
def test_a_small_file_that_becomes_a_large_conversation_is_refused(make: Any) -> None:
    data = make()
    assert len(data) < 4_000_000
    with pytest.raises(InputError, match=LIMIT):
        Archive(InMemory()).import_conversations(data)


@pytest.mark.usefixtures("tenth")
def test_open_calls_before_many_messages_are_refused() -> None:
    data = open_calls_before_many_messages()
    assert len(data) < 1_000_000
    with pytest.raises(InputError, match=LIMIT):
        Archive(InMemory()).import_conversations(data)


@pytest.mark.usefixtures("tenth")
def test_many_small_conversations_are_counted_together() -> None:
    def conversation(number: int) -> ChatGPT:
        made = ChatGPT(id=f"c{number}")
        thought = made.say("assistant", content={"content_type": "thoughts", "thoughts": ["x" * 20_000]})
        for answer in range(200):
            made.say("assistant", f"Answer {answer}", behind=thought)
        return made

    assert not Archive(InMemory()).import_conversations(as_json(conversation(0))).left
    with pytest.raises(InputError, match=LIMIT):
        Archive(InMemory()).import_conversations(as_json(*map(conversation, range(60))))


def test_many_calls_and_results_need_little_memory_to_be_checked() -> None:
    import tracemalloc

    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(3_000)]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "x"} for call in calls]
    data = json.dumps([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": calls}, *results])
    tracemalloc.start()
    try:
        assert not Archive(InMemory()).import_conversations(data).left
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_large_and_honest_export_is_imported() -> None:
    talks = []
    for number in range(100):
        made = ChatGPT(id=f"c{number}")
        for turn in range(50):
            asked = made.say("user", f"Question {turn}: " + "why? " * 200)
            if turn % 10 == 0:
                made.say("assistant", "An answer that was tried again. " * 100, behind=asked)
            made.say("assistant", f"Answer {turn}: " + "because. " * 1_000, behind=asked)
        talks.append(made)
    data = as_json(*talks)
    assert len(data) > 50_000_000
    assert len(Archive(InMemory()).import_conversations(data).ids) == 100
