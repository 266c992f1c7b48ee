"""Files in all supported formats become conversations that can be continued."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Archive, Chat, Conversation, KeepLast, Seal
from longtalk.errors import InputError
from longtalk.state.codec import encode
from longtalk.stores.in_memory import InMemory
from longtalk.stores.jsonl.folder import to_file_name
from longtalk.stores.jsonl.groups import format_group, strip_closing
from longtalk.stores.jsonl.store import JSONL
from longtalk.testing import Scripted, says, validate
from longtalk.transcript.transcript import Entry, Transcript, Turns
from longtalk.transfer.conversation_export import BranchPart, ConversationExport, check_export, expand_branch
from longtalk.transfer.json_export import to_json
from longtalk.transfer.read import read
from longtalk.wires import WIRES
from tests.support.properties import examples
from tests.support.strategies import objects, strings, values

USER = b'{"role":"user","content":"hi"}'
ANSWER = b'{"role":"assistant","content":"hello"}'


def calls(*ids: str) -> bytes:
    made = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in ids]
    return json.dumps({"role": "assistant", "content": None, "tool_calls": made}).encode()


def result(name: str, text: str = "42") -> bytes:
    return json.dumps({"role": "tool", "tool_call_id": name, "content": text}).encode()


def array(*natives: bytes) -> bytes:
    return b"[" + b",".join(natives) + b"]"


def lines(*found: Any) -> bytes:
    return b"".join((each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n" for each in found)


def only(data: bytes, **more: Any) -> BranchPart:
    [talk] = read(data, **more)
    check_export(talk)
    [part] = talk.branches
    assert part.name == "main"
    return part


def texts(part: BranchPart) -> list[tuple[str, str]]:
    wire = WIRES["openai-chat"]
    return [(entry.role, wire.view(entry.native).text) for entry in part.entries if entry.wire == wire.name]


def turns(part: BranchPart) -> list[tuple[str, int]]:
    """Return the status of each turn and the number of its entries."""
    return [(turn.status, sum(entry.turn == turn.id for entry in part.entries)) for turn in part.turns]


def next_request_messages(part: BranchPart) -> list[dict[str, Any]]:
    """Return the messages of the next request, which the provider must accept."""
    provider = Scripted(says("fine"))
    transcript = Transcript(fresh=part.entries, turns=Turns(fresh=part.turns), revision=1)
    Chat(provider).send("and now?", state=encode(transcript))
    validate(provider.requests[0])
    messages: list[dict[str, Any]] = json.loads(provider.requests[0].decode("utf-8", "surrogateescape"))["messages"]
    return messages


def read_error(data: bytes, **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(data, **more)
    message = str(caught.value)
    message.encode()
    assert "b'" not in message
    assert len(message) < 800
    return message


# OpenAI's chat format


def test_an_array_of_messages_is_a_conversation() -> None:
    part = only(array(USER, ANSWER, b' {"content" : "ok", "x":1e2, "role":"user"}'))
    assert [entry.native for entry in part.entries] == [USER, ANSWER, b'{"content" : "ok", "x":1e2, "role":"user"}']
    assert turns(part) == [("complete", 2), ("interrupted", 1)]
    assert all(entry.id.startswith(f"{entry.turn}-") and entry.tokens for entry in part.entries)
    assert [message["content"] for message in next_request_messages(part)] == ["hi", "hello", "ok", "and now?"]


def test_a_request_body_names_its_model() -> None:
    body = b'\xef\xbb\xbf\r\n {"model": "gpt-x",\n "tools": [{"type":"function"}],\n "messages": %s}\n' % array(
        USER, ANSWER
    )
    [talk] = read(body, name="saved")
    assert talk.id == "saved"
    assert [turn.model for turn in talk.branches[0].turns] == ["gpt-x"]
    assert texts(talk.branches[0]) == [("user", "hi"), ("assistant", "hello")]


def test_each_line_with_messages_is_a_conversation() -> None:
    body = {"messages": [json.loads(USER), json.loads(ANSWER)]}
    for data in (lines(body, body), lines(body, b"", body).replace(b"\n", b"\r\n"), json.dumps([body, body]).encode()):
        found = read(data, name="tuning")
        assert [talk.id for talk in found] == ["tuning-1", "tuning-2"]
        assert len({entry.id for talk in found for entry in talk.branches[0].entries}) == 4


def test_lines_of_messages_are_one_conversation() -> None:
    part = only(lines(USER, ANSWER, USER))
    assert [entry.native for entry in part.entries] == [USER, ANSWER, USER]
    assert texts(only(USER)) == [("user", "hi")]


def test_a_turn_begins_with_the_message_after_an_answer() -> None:
    system, developer = b'{"role":"system","content":"s"}', b'{"role":"developer","content":"d"}'
    part = only(array(system, developer, USER, USER, ANSWER, system, USER, calls("a"), result("a"), ANSWER, USER))
    assert turns(part) == [("complete", 5), ("complete", 5), ("interrupted", 1)]
    assert [b - a for a, b in Transcript(fresh=part.entries).exchanges()] == [5, 5, 1]
    assert len(next_request_messages(part)) == 12


def test_an_answer_may_come_first() -> None:
    assert turns(only(array(ANSWER, USER, ANSWER))) == [("complete", 1), ("complete", 2)]


def test_calls_that_the_end_leaves_open_are_closed() -> None:
    part = only(array(USER, calls("a", "b"), result("b")))
    assert turns(part) == [("interrupted", 4)]
    assert [entry.condition for entry in part.entries] == ["", "", "", "closed"]
    assert len(next_request_messages(part)) == 5


def test_results_may_come_in_any_order_and_ids_twice() -> None:
    part = only(array(USER, calls("a", "b", "a"), result("a"), result("b"), result("a"), ANSWER))
    assert turns(part) == [("complete", 6)]


@pytest.mark.parametrize(
    ("natives", "what"),
    [
        ([USER, result("x")], "message 2 is the result of tool call 'x', but no such call is open"),
        ([USER, calls("a"), result("a"), result("a")], "message 4 is the result"),
        ([USER, calls("a", "b"), result("a"), USER], "message 4 .user. comes before the result of tool call 'b'"),
        ([USER, calls("")], "message 2 has a tool call without a valid id"),
        ([USER, b'{"role":"user","content":"x","tool_calls":[{"id":"a"}]}'], "message 2 .user. has tool calls"),
        ([USER, b'{"role":"function","name":"f","content":"x"}'], "message 2 has the role 'function'"),
        ([b'{"content":"x"}'], "message 1 has the role ''"),
        ([USER, b'{"role":"user","content":5}'], "content of message 2"),
        ([USER, b'{"role":"user","content":["x"]}'], "content of message 2"),
        ([USER, calls("a"), b'{"role":"tool","tool_call_id":"a"}'], "message 3 .tool. has no content"),
        ([calls("a").replace(b"null", b"[]"), result("a")], "message 1 .assistant. has no content"),
        ([USER, b'{"role":"assistant","tool_calls":[5]}'], "message 2 is not a chat message"),
        ([USER, b"5"], "message 2 must be a JSON object, not '5'"),
        ([b'{"role":"user"}'], "message 1 .user. has no content"),
        ([USER, b'{"role":"assistant"}'], "message 2 .assistant. has no content"),
        ([USER, b'{"role":"user","content":"caf\xe9"}'], "message 2 is not UTF-8"),
        ([USER, b'{"role":"user","content":"x","name":"caf\xe9"}'], "message 2 is not UTF-8"),
        ([], "contains no messages"),
    ],
)
def test_a_message_that_no_provider_accepts_is_rejected_with_its_number(natives: list[bytes], what: str) -> None:
    with pytest.raises(InputError, match=what):
        read(array(*natives))


TOOL_USE = b'{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]}'


@pytest.mark.parametrize(
    "part",
    [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "server_tool_use", "id": "c", "name": "f", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "c", "content": []},
        {"type": "image", "source": {"type": "base64", "data": "AAAA"}},
        {"type": "document", "source": {"type": "url", "url": "http://x"}},
    ],
    ids=lambda part: part["type"],
)
def test_messages_with_parts_of_anthropic_are_read_byte_for_byte(part: dict[str, Any]) -> None:
    message = json.dumps({"role": "assistant", "content": [{"type": "text", "text": "x"}, part]}).encode()
    entries = only(array(USER, message)).entries
    assert [(entry.wire, entry.native) for entry in entries] == [("anthropic", USER), ("anthropic", message)]


def test_each_tool_result_of_anthropic_is_an_entry_and_an_open_call_is_closed() -> None:
    parts = [{"type": "tool_result", "tool_use_id": "c", "content": "7"}, {"type": "text", "text": "So?"}]
    said = json.dumps({"role": "user", "content": parts}).encode()
    found = only(array(USER, TOOL_USE, said, TOOL_USE))
    assert [entry.role for entry in found.entries] == ["user", "assistant", "tool", "user", "assistant", "tool"]
    assert found.entries[-1].condition == "closed"
    assert next_request_messages(found)


def test_the_system_text_of_an_anthropic_request_comes_first() -> None:
    body = {
        "model": "claude-sonnet-5",
        "system": [{"type": "text", "text": "Teach."}],
        "messages": json.loads(array(USER)),
    }
    found = only(json.dumps(body).encode())
    assert [(entry.role, entry.wire) for entry in found.entries] == [("system", "longtalk"), ("user", "anthropic")]
    assert found.turns[0].model == "claude-sonnet-5"


@pytest.mark.parametrize(
    ("natives", "what"),
    [
        ([TOOL_USE, USER], "message 2 .user. comes before the result of tool call 'c'"),
        ([b'{"role":"user","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]}'], "message 1 has"),
        ([TOOL_USE, b'{"role":"tool","content":"x"}'], "message 2 has the role 'tool'"),
        ([TOOL_USE, b'{"role":"user","content":"caf\xe9"}'], "message 2 is not UTF-8"),
        ([TOOL_USE, b"7"], "message 2"),
    ],
)
def test_an_anthropic_message_that_could_not_be_sent_is_rejected(natives: list[bytes], what: str) -> None:
    with pytest.raises(InputError, match=what):
        read(array(*natives))


def test_parts_of_other_servers_in_openais_form_are_read() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "x"}]
    assert texts(only(array(USER, json.dumps({"role": "assistant", "content": parts}).encode())))[1][1] == "x"
    assert only(array(USER, calls("a").replace(b'"content": null, ', b""), result("a"), ANSWER)).entries


def test_the_supported_files_are_listed_only_if_the_format_is_unknown() -> None:
    for unknown in (b"", b"# Notes", b"\x1f\x8b\x08\0rest", b"[1]", b'{"hello":"world"}', b"5"):
        assert "Supported files: Longtalk exports" in read_error(unknown)
    for known in (b"[]", array(USER, result("x")), b'{"messages":5}', b'{"longtalk":99,"conversations":[]}', b"[{"):
        assert "Supported files" not in read_error(known)


def test_excerpts_in_errors_are_printable() -> None:
    assert "the file begins with '# \u00dcbung  no\ufffd'" in read_error("# \u00dcbung\n\tno\x1b".encode())
    assert "the file begins with binary data" in read_error(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    assert "role '{}'".format("x" * 40) in read_error(array(b'{"role":"%s","content":"x"}' % (b"x" * 5000)))


def test_a_conversation_among_several_is_named() -> None:
    good, bad = b'{"messages":%s}' % array(USER), b'{"messages":%s}' % array(USER, result("x"))
    assert "conversation 2: message 2" in read_error(lines(good, bad))
    assert "conversation 2: not JSON" in read_error(lines(good, b'{"messages":[}'))


def test_messages_that_say_nothing_are_kept_and_not_sent() -> None:
    silent = [
        b'{"role":"user","content":null}',
        b'{"role":"assistant","content":null}',
        b'{"role":"user","content":[]}',
    ]
    part = only(array(USER, *silent, ANSWER))
    assert [entry.condition for entry in part.entries] == ["", "empty", "empty", "empty", ""]
    assert len(next_request_messages(part)) == 3


@given(st.data())
@examples(20, 120)
def test_any_messages_are_refused_or_go_on_byte_for_byte(data: st.DataObject) -> None:
    content = st.one_of(strings, strings, st.just(b"null"), st.just(b'[{"type":"text","text":"x"}]'), values)
    known = [*map(str.encode, ("user", "assistant", "system", "developer", "tool"))]
    spoken = st.tuples(st.sampled_from(known), content, values).map(lambda m: b'{"role":"%s","content":%s,"x":%s}' % m)
    fixed = st.sampled_from([USER, ANSWER, calls("a"), calls("a", "b"), result("a"), result("b")])
    natives = data.draw(st.lists(st.one_of(spoken, fixed, fixed, objects), min_size=1, max_size=6))
    try:
        part = only(array(*natives))
    except InputError:
        return
    assert [entry.native for entry in part.entries if entry.condition != "closed"] == natives
    next_request_messages(part)


# Longtalk's own formats


def test_a_state_is_a_conversation() -> None:
    provider = Scripted(says("hello"), says("again"))
    chat = Chat(provider)
    state = chat.send("hi", state=chat.note("it rains", source="sky")).state
    [talk] = read(state, name="ada")
    part = talk.branches[0]
    assert (talk.id, len(part.entries), [turn.status for turn in part.turns]) == ("ada", 3, ["complete"])
    assert talk.created
    assert all(-1 <= placed.position < 3 for placed in part.records)
    assert read(to_json([talk])) == [talk]
    next_request_messages(part)


def test_a_compressed_state_is_one_too() -> None:
    chat = Chat(Scripted(says("x" * 200_000)))
    state = chat.send("hi").state
    assert len(state) < 100_000
    assert len(read(state)[0].branches[0].entries) == 2


def test_a_sealed_state_is_said_to_be_sealed() -> None:
    seal = Seal({"k": Seal.new_key()})
    state = Chat(Scripted(says("hello"))).send("hi", seal=seal.to(owner="ada")).state
    assert "sealed" in read_error(state)


def test_a_damaged_state_is_refused() -> None:
    state = Chat(Scripted(says("hello"))).send("hi").state
    assert "content" in read_error(state[:-3])
    assert "checksum" in read_error(state[:-3] + b"xyz")
    assert "ends after its first few bytes" in read_error(state[:4])


def test_a_state_that_has_handed_out_a_part_is_refused() -> None:
    provider = Scripted(*[says("a long answer " * 20) for _ in range(12)])
    chat = Chat(provider, policy=KeepLast(2), carry="context")
    state, parts = None, []
    for i in range(12):
        reply = chat.send(f"message {i}", state=state)
        state = reply.state
        parts += [reply.shed] if reply.shed else []
    assert parts
    assert "join" in read_error(state or b"")
    assert "join" in read_error(parts[0])


def test_a_state_of_the_go_library_is_a_conversation() -> None:
    state = b'{"version":1,"provider":"openai","processed_length":2,"messages":%s}' % array(USER, ANSWER)
    part = only(state)
    assert [entry.native for entry in part.entries] == [USER, ANSWER]
    assert [placed.record.kind for placed in part.records] == ["origin"]
    assert part.records[0].position == 1
    assert "version 9" in read_error(b'{"version":9,"messages":[]}')


def test_a_file_of_the_jsonl_store_is_the_conversation_in_it(tmp_path: Path) -> None:
    store = JSONL(tmp_path)
    provider = Scripted(says("one"), says("two"), says("three"))
    talk = Conversation("lesson 7", model=provider, owner="ada", store=store)
    talk.send("hi")
    talk.send("more")
    branch, _ = talk.regenerate()
    store.describe("ada", "lesson 7", {"title": "Bows"})
    store.describe("ada", "lesson 7", {"star": True}, entry=talk.history()[1].id)
    path = tmp_path / to_file_name("ada") / f"{to_file_name('lesson 7')}.jsonl"
    data = path.read_bytes()
    [found] = read(data)
    assert (found.id, found.meta) == ("lesson 7", {"title": "Bows"})
    assert {part.name for part in found.branches} == {"main", branch.branch}
    for name in ("main", branch.branch):
        pack = store.read("ada", "lesson 7", name, 0, 9)
        assert list(expand_branch(found, name).entries) == [pack.entry(i) for i in range(len(pack))]
    assert expand_branch(found, branch.branch).metas == {1: {"star": True}}
    assert read(to_json([found])) == [found]
    # A torn write was never acknowledged.
    assert read(data + b'{"type":"entry","id":"x')[0] == found
    assert "damaged" in read_error(data.replace(b"more", b"less"))
    assert "no complete commit" in read_error(data.split(b"\n")[0])
    assert "format is version 8" in read_error(_resummed(data.replace(b'"format":1', b'"format":8')))


def test_removals_in_a_store_file_are_applied_and_contradictions_rejected(tmp_path: Path) -> None:
    store = JSONL(tmp_path)
    talk = Conversation("x", model=Scripted(says("one"), says("two")), owner="ada", store=store)
    talk.send("a secret")
    store.redact("ada", "x", talk.history()[0].id, b'{"role":"user","content":"[redacted]"}')
    Conversation("x", model=Scripted(says("two")), owner="ada", store=store).send("more")
    data = (tmp_path / to_file_name("ada") / "x.jsonl").read_bytes()
    assert texts(only(data))[0] == ("user", "[redacted]")
    assert len(only(data).entries) == 4
    assert "contradicts earlier lines" in read_error(_resummed(data.replace(b'"revision":1', b'"revision":5')))
    for old, new in ((b'"at":', b'"at":99999999999999999'), (b'"role":"user"', b'"role":5'), (b'"id":"x"', b'"id":5')):
        assert read_error(_resummed(data.replace(old, new)))
    assert "Expected `object`" in read_error(data + format_group([], b'{"type":"meta","meta":[1]}'))
    make_export = data.replace(b'{"role":"user","content":"[redacted]"}', b'[{"role":"system"}]')
    assert "not a single JSON object" in read_error(_resummed(make_export))


def _resummed(data: bytes) -> bytes:
    *first, close = data[: data.index(b"\n", data.index(b'"sum":')) + 1].splitlines()
    return format_group(first, strip_closing(close))


# KSI's session logs

ASKED = {"timestamp": "2025-06-20T03:33:00.999964Z", "type": "human", "content": "How far is it?"}
TOLD = {
    "type": "claude",
    "subtype": "success",
    "is_error": False,
    "duration_ms": 4882,
    "duration_api_ms": 7998,
    "num_turns": 3,
    "result": "Two miles.",
    "session_id": "0a1b2c3d-0000-4000-8000-000000000001",
    "total_cost_usd": 0.0434,
    "usage": {"input_tokens": 10, "cache_read_input_tokens": 85, "output_tokens": 8},
    "timestamp": "2025-06-20T03:33:01.000100Z",
}


def test_a_session_log_is_a_conversation() -> None:
    line = b'{"type": "claude", "result": "Caf\\u00e9", "usage": {"input_tokens":  10}, "timestamp": 1750390400.25}'
    [talk] = read(lines(ASKED, TOLD, {"type": "user", "prompt": "And back?", "timestamp": 1750390395.5}, line))
    [part] = talk.branches
    assert talk.id == TOLD["session_id"]
    assert talk.meta == {"import": {"from": "ksi", "skipped": 0}}
    assert texts(part) == [
        ("user", "How far is it?"),
        ("assistant", "Two miles."),
        ("user", "And back?"),
        ("assistant", "Café"),
    ]
    first, second = part.turns
    assert (first.status, first.ended - first.started) == ("complete", 4882)
    assert part.entries[0].at == first.started
    assert second.usage == (b'{"input_tokens":  10}',)
    assert (second.started, second.ended) == (1750390395500, 1750390400250)
    kept = {key: value for key, value in TOLD.items() if key != "result"}
    assert part.metas[1] == {"ksi": kept}
    assert part.metas[0] == {"ksi": {"timestamp": ASKED["timestamp"], "type": "human"}}
    next_request_messages(part)


_CLI = {key: value for key, value in TOLD.items() if key not in ("type", "timestamp")}


@pytest.mark.parametrize(
    "answer",
    [
        TOLD,
        {"type": "claude", "response": _CLI, "timestamp": "2025-06-20T03:33:01+00:00"},
        {"type": "claude", "result": {"type": "result", **_CLI}, "timestamp": "2025-06-20T03:33:01"},
        {"ksi": {"provider": "claude-cli", "timestamp": TOLD["timestamp"], "duration_ms": 4900}, "response": _CLI},
        {**TOLD, "result": None, "message": {"role": "assistant", "content": [{"text": "Two "}, {"text": "miles."}]}},
        {**TOLD, "content": "Two miles.", "result": None},
        {**TOLD, "timestamp": 1750390381.0001},
        {**TOLD, "timestamp": 1750390381000},
    ],
)
@pytest.mark.parametrize(
    "question",
    [
        ASKED,
        {"type": "user", "content": "How far is it?", "timestamp": 1750390380},
        {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "How far is it?"}]}},
        {"type": "user", "message": "How far is it?"},
        {"type": "human", "prompt": "How far is it?"},
    ],
)
def test_all_forms_of_a_log_say_the_same(question: dict[str, Any], answer: dict[str, Any]) -> None:
    [talk] = read(lines(question, answer))
    [part] = talk.branches
    assert texts(part) == [("user", "How far is it?"), ("assistant", "Two miles.")]
    [turn] = part.turns
    assert (turn.status, turn.model, turn.ended - turn.started) == ("complete", "claude-cli", 4882)
    assert turn.ended // 1000 == 1750390381
    assert json.loads(turn.usage[0]) == TOLD["usage"]
    assert talk.id == TOLD["session_id"]
    assert "Two miles" not in json.dumps(part.metas)


_COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1750390381,
    "model": "gpt-4o",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Two miles."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13},
}


@pytest.mark.parametrize(
    ("answer", "model"),
    [
        (_COMPLETION, "ksi:gpt-4o"),
        ({"type": "claude", "response": _COMPLETION}, "ksi:gpt-4o"),
        ({"ksi": {"provider": "litellm", "duration_ms": 900}, "response": _COMPLETION}, "litellm:gpt-4o"),
        ({"ksi": {"provider": "litellm"}, "response": {"result": _COMPLETION}}, "litellm:gpt-4o"),
    ],
)
def test_a_chat_completion_in_a_log_is_an_answer(answer: dict[str, Any], model: str) -> None:
    part = only(lines(ASKED, answer))
    assert texts(part) == [("user", "How far is it?"), ("assistant", "Two miles.")]
    [turn] = part.turns
    assert (turn.status, turn.model, turn.ended) == ("complete", model, 1750390381000)
    assert json.loads(turn.usage[0]) == _COMPLETION["usage"]
    assert part.entries[1].mark == ""
    assert "Two miles" not in json.dumps(part.metas)


def test_a_log_may_consist_of_chat_completions() -> None:
    assert [text for role, text in texts(only(lines(_COMPLETION))) if role == "assistant"] == ["Two miles."]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({**TOLD, "is_error": True, "result": "API Error: 529"}, "API Error: 529"),
        ({"type": "claude", "subtype": "error_during_execution", "session_id": "s"}, "error_during_execution"),
        (
            {"ksi": {}, "response": {"error": "no such file", "error_type": "OSError"}, "status": "error"},
            "no such file",
        ),
        ({"ksi": {"x": 1}, "response": {"error": {"message": "too long"}}}, "too long"),
        ({"type": "claude", "is_error": True}, "error"),
    ],
)
def test_an_error_message_is_not_an_answer(answer: dict[str, Any], error: str) -> None:
    if not answer.get("ksi", True):
        answer = {**answer, "type": "claude"}
    part = only(lines(ASKED, answer, ASKED, TOLD))
    assert [(turn.status, turn.error) for turn in part.turns] == [("failed", error), ("complete", "")]
    assert texts(part)[1:] == [("user", "How far is it?"), ("assistant", "Two miles.")]
    assert "ksi_error" in part.metas[0]
    next_request_messages(part)


def test_lines_that_are_not_known_are_counted() -> None:
    other = {"type": "DIRECT_MESSAGE", "from": "a", "to": "b", "content": "psst"}
    [talk] = read(lines(other, ASKED, b'{"type":"claude","result":"cut o', {"no": "type"}, {"type": "user"}, TOLD))
    assert talk.meta["import"] == {"from": "ksi", "skipped": 4}
    assert len(talk.branches[0].entries) == 2


def test_an_answer_that_was_logged_twice_is_imported_once() -> None:
    again = [
        {**line, "process_id": "12ab", "agent_id": None, "timestamp": "2025-06-20T03:33:02Z"} for line in (ASKED, TOLD)
    ]
    [talk] = read(lines(ASKED, TOLD, *again))
    assert talk.meta["import"]["skipped"] == 2
    assert len(talk.branches[0].entries) == 2
    other = {**TOLD, "duration_ms": 1}
    assert len(only(lines(ASKED, TOLD, ASKED, other)).entries) == 4


def test_an_answer_to_nothing_says_so_and_a_question_may_be_the_last() -> None:
    part = only(lines(TOLD, {**TOLD, "duration_ms": 1}, ASKED))
    assert [entry.role for entry in part.entries] == ["event", "assistant", "event", "assistant", "user"]
    assert [turn.status for turn in part.turns] == ["complete", "complete", "interrupted"]
    assert len(Transcript(fresh=part.entries).exchanges()) == 3
    next_request_messages(part)


def test_an_answer_without_words_is_kept_and_not_sent() -> None:
    part = only(lines(ASKED, {**TOLD, "result": ""}))
    assert part.entries[1].mark == "empty"
    assert len(next_request_messages(part)) == 2


@pytest.mark.parametrize("time", ["yesterday", -5, 1e300, None, True, [], "9999-99-99", "0001-01-01T00:00:00+14:00"])
@pytest.mark.parametrize("took", [-1, 1e300, "long", None, 2**60])
def test_times_that_can_not_be_true_are_not_known(time: Any, took: Any) -> None:
    part = only(lines({**ASKED, "timestamp": time}, {**TOLD, "timestamp": time, "duration_ms": took}))
    assert all(0 <= entry.at <= 1000 for entry in part.entries)


def test_the_model_is_named_where_the_log_does() -> None:
    assert only(lines(ASKED, {**TOLD, "model": "claude-cli/sonnet"})).turns[0].model == "claude-cli:sonnet"


def test_a_log_of_another_tool_is_rejected() -> None:
    """Refuse the logs of Claude Code, which also have lines of type `user`, but answers in another format."""
    foreign = {"type": "assistant", "message": {"content": [{"type": "text", "text": "hi"}]}, "uuid": "1"}
    assert "1 × 'assistant'" in read_error(
        lines({"type": "user", "message": {"content": "hello"}, "uuid": "0"}, foreign)
    )


# Anything else


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "the file is empty"),
        (b" \r\n\t", "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (b"# Notes\n\nhello", r"the file begins with '# Notes"),
        (b"\xff\xfe[\0]\0", "the file begins with"),
        (b"\0\0\0\0", "the file begins with"),
        (b"\x1f\x8b\x08\0rest", "the file begins with"),
        (b"5", "the file begins with"),
        (b"[", "truncated"),
        (b'[{"role":"user","content":"x', "truncated"),
        (b'{"messages":[{"role":"user"', "truncated"),
        (b'[{"role":"user","content":"a\0b"}]', "invalid character"),
        (b"[" * 1_000_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"messages":' * 100_000, "nested too deeply"),
        (b'{"type":"claude","result":' * 3000 + b"1" + b"}" * 3000, "nested too deeply"),
        (b"[1,2]", "first element must be an object, not '1'"),
        (b'["a"]', "first element must be an object"),
        (b"[null]", "first element must be an object"),
        (b"{}", "the file begins with '{}'"),
        (b'{"hello":"world"}', "the file begins with '{\"hello"),
        (b'{"type":"conversation"}', "version of its format"),
        (b'{"type":5}', "1 × 'no type'"),
        (b'{"messages":5}', "`messages` must be a list, not '5'"),
        (b'{"messages":null}', "`messages` must be a list, not 'null'"),
        (b"{}garbage", "not JSON"),
        (b"\x89TLK\x02", "prefix"),
    ],
)
def test_any_other_content_is_rejected_with_an_excerpt(data: bytes, what: str) -> None:
    with pytest.raises(InputError, match=what):
        Archive(InMemory()).load(data)
    assert "'my file'" in read_error(data, name="my file")


def test_a_hundred_megabytes_of_brackets_are_refused() -> None:
    read_error(b"[" * 100_000_000)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(InputError):
        read(data)


_line = st.one_of(
    objects,
    values,
    st.sampled_from([USER, ANSWER, json.dumps(ASKED).encode(), json.dumps(TOLD).encode(), b'{"type":"branch"}']),
    st.tuples(st.sampled_from([b"type", b"messages", b"role", b"result", b"ksi", b"longtalk"]), values).map(
        lambda pair: b'{"type":"claude","%s":%s}' % pair
    ),
)


@given(st.lists(_line, max_size=5), st.sampled_from([b"\n", b",", b"\r\n\r\n", b""]), st.integers(0, 40))
@examples(25, 150)
def test_any_lines_are_read_or_refused(found: list[bytes], between: bytes, cut: int) -> None:
    data = between.join(found)
    for each in (data, data[: len(data) - cut], b"[" + data + b"]", b'{"messages":[' + data + b"]}"):
        try:
            talks = read(each)
        except InputError:
            continue
        for talk in talks:
            assert isinstance(talk, ConversationExport)
            check_export(talk)
            assert all(isinstance(entry, Entry) for part in talk.branches for entry in part.entries)


def make_export(*entries: dict[str, Any], updated: int = 6) -> bytes:
    """Return an export with these entries, each following the previous one."""
    lines: list[dict[str, Any]] = [
        {"type": "conversation", "longtalk": 1, "id": "c", "created": 5, "updated": updated, "meta": {}},
        {"type": "branch", "name": "main"},
    ]
    for i, entry in enumerate(entries):
        parent = {"parent": f"t-{i - 1}"} if i else {}
        fixed = {"type": "entry", "id": f"t-{i}", "turn": "t", "at": 5, "wire": "openai-chat"}
        lines.append({**fixed, **parent, "role": entry.get("native", {}).get("role", "user"), **entry})
    return b"\n".join(json.dumps(line).encode() for line in lines)


CALLS = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}]}
SAID = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (make_export({"native": {"role": "tool", "tool_call_id": "c1", "content": "x"}}), "unknown tool call"),
        (make_export({"native": CALLS}, {"native": SAID}), "before the result"),
        (
            make_export(
                {"native": CALLS}, {"native": {"source": "a", "text": "b"}, "wire": "longtalk", "kind": "event"}
            ),
            "before the result",
        ),
        (make_export({"native": {}}), "another role"),
        (make_export({"native": SAID, "wire": "telegraph"}), "unknown wire 'telegraph'; known wires: anthropic"),
        (make_export({"native": {"role": "system", "content": "x"}, "role": "user"}), "another role"),
        (make_export(*[{"native": SAID, "role": f"r{i}"} for i in range(300)]), "combinations of kind, role and wire"),
        (make_export(*[{"native": SAID, "tokens": 2**53 - 1}] * 3), "token counts"),
        (make_export({"native": SAID}, updated=2**62 + 1), "time"),
    ],
)
def test_an_export_that_no_provider_could_continue_is_rejected(data: bytes, what: str):
    with pytest.raises(InputError, match=what):
        Archive(InMemory()).load(data)
