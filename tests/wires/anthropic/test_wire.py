"""Anthropic Messages, whole answers: what came goes back byte for byte, and requests keep the provider's rules."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from longtalk import Chat, System
from longtalk.errors import InputError, RequestRefused
from longtalk.testing import Scripted, Step
from longtalk.testing.wires.anthropic import check
from longtalk.tools import tool
from longtalk.transcript.transcript import Entry
from longtalk.usage import Usage
from longtalk.wires.anthropic.wire import WIRE
from longtalk.wires.neutral import event, system
from longtalk.wires.protocol import Preamble, Quirks, ReportedError
from longtalk.wires.views import ToolCallView

# Contents as they came off the wire, in forms that a decoder and an encoder would not give back as they are.
CONTENTS = {
    "unknown fields": b'[{"type":"text","text":"hi","x_new":{"b":1,"a":[2,1]},"citations":null}]',
    "numbers": b'[{"type":"text","text":"hi","a":1e2,"b":12345678901234567,"c":1.0,"d":-0,"e":1E+2,"f":0.10}]',
    "escapes": b'[{"type":"text","text":"caf\\u00e9 \\/ \\u003c \\ud83d\\ude00 \xc3\xa9","k\\u00e9y":"\\u0041"}]',
    "key order": b'[{"zeta":null,"text":"x","alpha":{"b":1,"a":2},"type":"text"}]',
    "doubled keys": b'[{"type":"text","text":"first","text":"second","x":1,"x":2}]',
    "half an emoji": b'[{"type":"text","text":"a\\ud83d","y":"\\udc00","\\ud83d":[{"z":"\\uDEAD"}]}]',
    "white space": b'[\n  {\n    "type" : "text",\r\n\t"text" : "x" , "y" : { "z" : [ 1 ] }\n  }\n]',
    "not UTF-8": b'[{"type":"text","text":"a\xff","x":"\xc3"}]',
    "unknown block": b'[{"type":"hologram","beams":[1e2,{"b":1,"a":2}]},{"type":"text","text":"x"}]',
    "thinking": b'[{"type":"thinking","thinking":"","signature":"Eq\\/o=","x":1e2},{"type":"text","text":"x"}]',
    "redacted thinking": b'[{"data":"Em\\u0077=","type":"redacted_thinking"},{"type":"text","text":"x"}]',
    "server tools": b'[{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"q":1e2}},'
    b'{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"encrypted_content":"\\u0041"}]},'
    b'{"type":"text","text":"x"}]',
    "compaction": b'[{"type":"compaction","content":"Earlier: \\u00e9","encrypted_content":null},'
    b'{"type":"text","text":"x"}]',
}
CALL = b'{"type":"tool_use","id":"toolu_1","name":"add","input":{ "b":3, "a":2 },"caller":{"type":"direct"}}'
CALLING = b'[{"type":"text","text":"Let me add."},%s]' % CALL
TEXT = b'[{"type":"text","text":"Fine."}]'
THINKING = b'{"type":"thinking","thinking":"Hm.","signature":"c2ln"}'
NO_PREAMBLE, NO_QUIRKS = Preamble(), Quirks()
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def double(a: int) -> int:
    return 2 * a


def body(content: bytes, reason: str | None = "end_turn", usage: bytes = b'{"input_tokens":3}') -> bytes:
    return (
        b'{"id":"msg_1","type":"message","role":"assistant","model":"m","content":%s,'
        b'"stop_reason":%s,"stop_sequence":null,"usage":%s}' % (content, json.dumps(reason).encode(), usage)
    )


def native(content: bytes) -> bytes:
    return b'{"role":"assistant","content":%s}' % content


def scripted(*contents: bytes) -> Scripted:
    return Scripted(*(Step(body(content)) for content in contents), wire=WIRE)


def request(
    *pieces: bytes | memoryview,
    mark: int = 0,
    options: dict[str, Any] | None = None,
    preamble: Preamble = NO_PREAMBLE,
    stream: bool = False,
) -> bytes:
    return WIRE.build_request(
        model="m",
        preamble=preamble,
        pieces=pieces,
        mark=mark,
        options={**WIRE.defaults, **(options or {})},
        quirks=NO_QUIRKS,
        stream=stream,
    )


def checked(sent: bytes) -> dict[str, Any]:
    """The request, once the provider's rules are checked."""
    read: dict[str, Any] = json.loads(sent.decode("utf-8", "replace"))
    check(read)
    return read


def marks(read: dict[str, Any]) -> list[str]:
    """Where a request has cache breakpoints: what the marked blocks say."""
    blocks = [*read.get("tools", ()), *read.get("system", ())]
    blocks += [block for message in read["messages"] for block in message["content"]]
    return [
        block.get("text") or block.get("tool_use_id") or block["name"] for block in blocks if "cache_control" in block
    ]


USER = WIRE.write_user("Hello.")


# What came goes back


@pytest.mark.parametrize("content", [*CONTENTS.values(), CALLING], ids=[*CONTENTS, "call"])
def test_the_content_of_an_answer_is_kept_byte_for_byte(content: bytes) -> None:
    assert WIRE.parse(body(content)).native == native(content)


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_an_answer_goes_back_byte_for_byte_in_the_next_request(content: bytes) -> None:
    provider = scripted(content, TEXT, TEXT)
    chat = Chat(provider)
    state = chat.send("Hello.").state
    chat.send("Why?", state=chat.send("And?", state=state).state)
    for sent in provider.requests[1:]:
        assert b'{"role":"user","content":[{"type":"text","text":"Hello."}]},' + native(content) + b"," in sent
        checked(sent)


def test_a_calling_answer_goes_back_byte_for_byte_before_its_result() -> None:
    provider = scripted(CALLING, TEXT, TEXT)
    chat = Chat(provider, tools=[add])
    chat.send("And?", state=chat.send("2 + 3?").state)
    for sent in provider.requests[1:]:
        assert native(CALLING) + b',{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1",' in sent
        assert checked(sent)["messages"][2]["content"][0]["content"] == "5"


def test_only_role_and_content_of_an_answer_are_sent_back() -> None:
    provider = scripted(TEXT, TEXT)
    chat = Chat(provider)
    chat.send("And?", state=chat.send("Hello.").state)
    assert set(json.loads(provider.requests[1])["messages"][1]) == {"role", "content"}


def test_usage_is_kept_as_it_came() -> None:
    usage = b'{"input_tokens": 1e1, "x": [1.0, "\\u00e9"], "output_tokens": 5}'
    assert WIRE.parse(body(TEXT, usage=usage)).usage == usage


@pytest.mark.parametrize("answer", [b'{"content":[],"usage":null}', b'{"content":[]}'])
def test_an_answer_without_usage_has_none(answer: bytes) -> None:
    assert WIRE.parse(answer).usage is None


# Answers that need help


@pytest.mark.parametrize("blank", [b'""', b'" "', b'"\\n\\t\\u0020"', b'"\\u00a0"'])
def test_a_blank_text_is_left_out_and_all_else_keeps_its_bytes(blank: bytes) -> None:
    content = b'[{"type":"text","text":%s}, %s , {"type":"text","text":%s}]' % (blank, CALL, blank)
    answer = WIRE.parse(body(content, "tool_use"))
    assert answer.native == native(b"[%s]" % CALL)
    assert not answer.empty


@pytest.mark.parametrize("content", [b"[]", b'[{"type":"text","text":""}]', b'[{"type":"text"}]'])
def test_an_answer_without_any_content_is_known_as_empty(content: bytes) -> None:
    assert WIRE.parse(body(content)).empty


def test_an_empty_answer_is_kept_and_not_sent_back() -> None:
    provider = scripted(b"[]", TEXT)
    chat = Chat(provider)
    reply = chat.send("Hello.")
    assert [entry.condition for entry in reply.entries] == ["", "empty"]
    chat.send("And?", state=reply.state)
    assert [message["role"] for message in checked(provider.requests[1])["messages"]] == ["user", "user"]


@pytest.mark.parametrize(
    ("reason", "content", "finish"),
    [
        ("end_turn", TEXT, "stop"),
        ("stop_sequence", TEXT, "stop"),
        ("max_tokens", TEXT, "length"),
        ("model_context_window_exceeded", TEXT, "length"),
        ("refusal", TEXT, "filtered"),
        ("refusal", b"[]", "filtered"),
        ("pause_turn", CONTENTS["server tools"], "paused"),
        ("something new", TEXT, "stop"),
        (None, TEXT, "stop"),
        ("tool_use", CALLING, "calls"),
        ("end_turn", CALLING, "calls"),
        ("max_tokens", CALLING, "calls"),
        ("tool_use", TEXT, "stop"),
    ],
)
def test_why_an_answer_ended_is_told_by_its_calls_and_its_reason(
    reason: str | None, content: bytes, finish: str
) -> None:
    assert WIRE.parse(body(content, reason)).finish == finish


@pytest.mark.parametrize(
    ("content", "opaque"),
    [
        (TEXT, False),
        (CALLING, False),
        (b'[{"type":"text","text":"\\"thinking\\" thinking"}]', False),
        (CONTENTS["thinking"], True),
        (CONTENTS["redacted thinking"], True),
    ],
)
def test_an_answer_with_thoughts_is_known_as_opaque(content: bytes, opaque: bool) -> None:
    assert WIRE.parse(body(content)).opaque is opaque


OPEN_SEARCH = b'{"type":"server_tool_use","id":"srvtoolu_9","name":"web_search","input":{"q":"x"}}'
UNSIGNED = b'{"type":"thinking","thinking":"Hm","signature":""}'
SAID = b'{"type":"text","text":"So far"}'


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
@pytest.mark.parametrize(
    "loose",
    [OPEN_SEARCH, OPEN_SEARCH.replace(b"server_", b"mcp_"), UNSIGNED, b'{"type":"thinking","thinking":"Hm"}'],
)
def test_an_answer_that_ended_early_goes_without_what_cannot_be_sent_back(reason: str, loose: bytes) -> None:
    answer = WIRE.parse(body(b"[%s, %s]" % (SAID, loose), reason))
    assert answer.native == native(b"[%s]" % SAID)
    checked(request(USER, answer.native, USER))


def test_a_paused_answer_keeps_the_call_that_the_provider_goes_on_with() -> None:
    content = b"[%s,%s]" % (SAID, OPEN_SEARCH)
    answer = WIRE.parse(body(content, "pause_turn"))
    assert answer.native == native(content)
    checked(request(USER, answer.native, mark=2))


def test_a_call_for_whose_input_there_was_no_room_is_none() -> None:
    bare = b'{"type":"tool_use","id":"toolu_1","name":"add","input":{}}'
    answer = WIRE.parse(body(b"[%s,%s]" % (SAID, bare), "max_tokens"))
    assert (answer.native, answer.finish) == (native(b"[%s]" % SAID), "length")
    assert WIRE.parse(body(b"[%s,%s]" % (SAID, bare), "tool_use")).finish == "calls"


# Answers that are none


@pytest.mark.parametrize(
    "answer",
    [
        b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}',
        b'{ "error" : {"message":"boom","code":1e2} }',
        b'{"error":"model not found"}',
        b'{"type":"error","content":[],"error":{"type":"api_error"}}',
    ],
)
def test_an_error_in_the_place_of_an_answer_is_reported_as_it_came(answer: bytes) -> None:
    with pytest.raises(ReportedError) as caught:
        WIRE.parse(answer)
    assert caught.value.error == answer


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b"{}",
        b'{"type":"error"}',
        b'{"content":null}',
        b'{"content":"x"}',
        b'{"content":{}}',
        b'{"content":["x"]}',
        b'{"content":[null]}',
        b'{"content":[{"type":"text","text":"x"}]',
        b'{"content":[' + b'{"x":' * 100_000 + b"1" + b"}" * 100_000 + b"]}",
    ],
)
def test_what_is_not_an_answer_is_a_value_error(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        WIRE.parse(answer)
    assert not isinstance(caught.value, ReportedError)


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)
)
WORDS = st.sampled_from(
    ["type", "text", "content", "input", "id", "name", "tool_use_id", "thinking", "signature", "usage", "stop_reason"]
)
KINDS = st.sampled_from(
    ["text", "thinking", "tool_use", "tool_result", "server_tool_use", "max_tokens", "refusal", "error"]
)
ODD = st.recursive(
    SCALARS | KINDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(WORDS, ODD) | ODD)
@example({"content": [{"type": "tool_result", "content": ["x", None, {"type": "text"}]}]})
@example({"content": [{"type": "tool_use", "id": 5, "name": None}], "stop_reason": "max_tokens"})
@example({"content": [{"type": "thinking", "signature": 5}], "stop_reason": "refusal"})
def test_whatever_json_comes_is_an_answer_or_a_value_error(answer: Any) -> None:
    try:
        parsed = WIRE.parse(json.dumps(answer).encode())
    except ValueError:
        return
    assert parsed.native is not None
    assert json.loads(parsed.native)["role"] == "assistant"


# Views


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'"caf\\u00e9"', "café"),
        (b"[]", ""),
        (b"null", ""),
        (b'[{"type":"text","text":"a"},{"type":"image","source":{}},{"type":"text","text":"b"}]', "ab"),
        (b'[{"type":"thinking","thinking":"hm","text":"hm"},{"type":"text","text":"b"}]', "b"),
        (b'[{"type":"text"},{"type":"text","text":null}]', ""),
        (b'[{"type":"text","text":"half \\ud83d"}]', "half \ufffd"),
        (CONTENTS["server tools"], "x"),
    ],
)
def test_a_view_reads_text_from_a_string_and_from_text_blocks(content: bytes, text: str) -> None:
    assert WIRE.view(native(content)).text == text


def test_a_view_reads_role_and_calls_with_their_input_as_it_was_written() -> None:
    view = WIRE.view(native(CALLING))
    assert (view.role, view.text) == ("assistant", "Let me add.")
    assert view.calls == (ToolCallView("toolu_1", "add", b'{ "b":3, "a":2 }'),)


def test_a_call_of_the_providers_own_tools_is_no_call_of_ours() -> None:
    content = CONTENTS["server tools"].replace(b"[{", b'[{"type":"mcp_tool_use","id":"m1","name":"x","input":{}},{', 1)
    assert WIRE.view(native(content)).calls == ()
    assert WIRE.parse(body(content, "tool_use")).finish == "stop"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'"caf\\u00e9"', "café"),
        (b'[{"type":"text","text":"a"},{"type":"image","source":{}},{"type":"text","text":"b"}]', "ab"),
        (b"[]", ""),
        (b"null", ""),
    ],
)
def test_a_view_reads_which_call_a_result_answers_and_what_it_says(content: bytes, text: str) -> None:
    result = b'{"type":"tool_result","tool_use_id":"toolu_1","content":%s}' % content
    view = WIRE.view(b'{"role":"user","content":[%s]}' % result)
    assert (view.role, view.call_id, view.text) == ("tool", "toolu_1", text)


def test_a_result_without_content_is_read_as_one_that_says_nothing() -> None:
    view = WIRE.view(WIRE.write_result("toolu_1", " \n", error=True))
    assert (view.role, view.call_id, view.text) == ("tool", "toolu_1", "")


# Results


@pytest.mark.parametrize(
    ("text", "error", "block"),
    [
        ("5", False, {"type": "tool_result", "tool_use_id": "toolu_1", "content": "5"}),
        ("No.", True, {"type": "tool_result", "tool_use_id": "toolu_1", "content": "No.", "is_error": True}),
        ("", False, {"type": "tool_result", "tool_use_id": "toolu_1"}),
        (" \n", True, {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True}),
    ],
)
def test_a_result_names_its_call_and_says_whether_it_failed(text: str, error: bool, block: dict[str, Any]) -> None:
    result = WIRE.write_result("toolu_1", text, error=error)
    assert json.loads(result) == {"role": "user", "content": [block]}
    checked(request(USER, native(CALLING), result))


# Requests


def test_a_request_is_model_options_tools_system_and_then_the_messages() -> None:
    sent = request(
        USER,
        native(b'[ {"type":"text","text":"x"} ]'),
        USER,
        options={"temperature": 0.5, "metadata": {"user_id": "7"}},
        preamble=Preamble(system="Teach.", tools=(add,)),
    )
    assert sent.startswith(
        b'{"model":"m","max_tokens":8192,"temperature":0.5,"metadata":{"user_id":"7"},"tools":[{"name":"add",'
    )
    assert sent.endswith(
        b',"system":[{"type":"text","text":"Teach.","cache_control":{"type":"ephemeral"}}],"messages":[%s,'
        b'{"role":"assistant","content":[ {"type":"text","text":"x"} ]},%s]}' % (USER, USER)
    )
    checked(sent)


def test_a_tool_is_its_name_its_description_and_its_schema() -> None:
    offered = checked(request(USER, preamble=Preamble(tools=(add, double))))["tools"]
    assert offered == [
        {"name": "add", "description": "Add two numbers.", "input_schema": json.loads(add.schema)},
        {"name": "double", "input_schema": json.loads(double.schema)},
    ]


def test_tools_of_the_provider_stand_behind_those_of_the_chat() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    sent = checked(request(USER, options={"tools": [search]}, preamble=Preamble(tools=(add,))))
    assert [offered["name"] for offered in sent["tools"]] == ["add", "web_search"]
    assert sent["tools"][1] == search
    assert checked(request(USER, options={"tools": [search]}))["tools"] == [search]


@pytest.mark.parametrize("given", [None, []])
def test_there_is_no_key_for_tools_when_there_are_none(given: Any) -> None:
    assert "tools" not in json.loads(request(USER, options={"tools": given}))


@pytest.mark.parametrize("given", [{}, "web_search", 5])
def test_tools_that_are_no_list_are_refused_by_name(given: Any) -> None:
    with pytest.raises(InputError, match="'tools'"):
        request(USER, options={"tools": given})


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_there_is_no_key_for_a_system_prompt_that_says_nothing(text: str | None) -> None:
    assert "system" not in checked(request(USER, preamble=Preamble(system=text)))


def test_a_chat_asks_for_a_number_of_tokens_unless_told_otherwise() -> None:
    provider = scripted(TEXT, TEXT)
    chat = Chat(provider)
    chat.send("Hello.")
    chat.send("Hello.", options={"max_tokens": 5})
    assert [json.loads(sent)["max_tokens"] for sent in provider.requests] == [8192, 5]


def test_only_a_streamed_request_says_so() -> None:
    assert json.loads(request(USER, stream=True))["stream"] is True
    assert "stream" not in json.loads(request(USER))


def test_an_option_of_none_is_left_out() -> None:
    sent = json.loads(request(USER, options={"temperature": None}))
    assert set(sent) == {"model", "max_tokens", "messages"}


@pytest.mark.parametrize("name", ["messages", "model", "stream", "system"])
def test_an_option_that_the_chat_sets_by_itself_is_refused_by_name(name: str) -> None:
    with pytest.raises(InputError, match=repr(name)):
        Chat(scripted(TEXT)).send("Hello.", options={name: None})


@pytest.mark.parametrize("value", [object(), {"x": {1, object()}}, 1j])
def test_an_option_that_is_not_json_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InputError, match="'odd'"):
        request(USER, options={"odd": value})


def test_parts_go_as_they_are_and_texts_among_them_become_blocks() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    assert json.loads(WIRE.write_user(["Look:", image, "What is it?"])) == {
        "role": "user",
        "content": [{"type": "text", "text": "Look:"}, image, {"type": "text", "text": "What is it?"}],
    }


def test_a_longer_conversation_differs_from_the_shorter_one_in_its_breakpoints_alone() -> None:
    provider = scripted(TEXT, TEXT, TEXT)
    chat = Chat(provider, tools=[add])
    state = None
    for message in ("a", "b", "c"):
        state = chat.send(message, state=state, system="Teach.").state
    first, second, third = (
        sent.replace(b',"cache_control":{"type":"ephemeral"}', b"").removesuffix(b"]}") for sent in provider.requests
    )
    assert second.startswith(first)
    assert third.startswith(second)


def test_the_key_goes_into_a_header_and_without_one_there_is_none() -> None:
    assert WIRE.headers("sk-1") == {"anthropic-version": "2023-06-01", "x-api-key": "sk-1"}
    assert WIRE.headers(None) == {"anthropic-version": "2023-06-01"}


def test_requests_go_to_one_path_whatever_the_model() -> None:
    assert WIRE.path("m", stream=False) == WIRE.path("m/x", stream=True) == "/v1/messages"


def readable(text: str) -> str:
    """Half an emoji has no one form: here it counts as unreadable, however it was written."""
    return re.sub("[\ud800-\udfff]", "\ufffd", json.loads(json.dumps(text)))


@given(st.text(st.characters(exclude_categories=())).filter(str.strip))
def test_any_text_makes_a_request_that_is_json(text: str) -> None:
    pieces = [WIRE.write_user(text), native(CALLING), WIRE.write_result("toolu_1", text, error=False)]
    sent = json.loads(request(*pieces, mark=3, preamble=Preamble(system=text)))
    said, _, answered = (message["content"][0] for message in sent["messages"])
    assert [sent["system"][0]["text"], said["text"], answered["content"]] == [readable(text)] * 3


# Results that belong together


def calling(*ids: str) -> bytes:
    return native(b"[%s]" % b",".join(CALL.replace(b"toolu_1", name.encode()) for name in ids))


def test_results_that_follow_each_other_are_one_message_before_what_the_user_says() -> None:
    results = [WIRE.write_result(name, "5", error=False) for name in ("t1", "t2", "t3")]
    sent = checked(request(USER, calling("t1", "t2", "t3"), *results, USER, mark=6))
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user", "user"]
    assert [block["tool_use_id"] for block in sent["messages"][2]["content"]] == ["t1", "t2", "t3"]


def test_results_of_two_rounds_stay_apart() -> None:
    sent = checked(
        request(
            USER,
            calling("t1"),
            WIRE.write_result("t1", "5", error=False),
            calling("t2"),
            WIRE.write_result("t2", "6", error=True),
        )
    )
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user", "assistant", "user"]


def test_results_that_come_back_from_a_state_are_one_message_too() -> None:
    two = b"[%s,%s]" % (CALL, CALL.replace(b"toolu_1", b"toolu_2"))
    provider = scripted(two, TEXT, TEXT)
    chat = Chat(provider, tools=[add])
    chat.send("And?", state=chat.send("2 + 3, twice?").state)
    for sent in provider.requests[1:]:
        _, _, results, *_ = checked(sent)["messages"]
        assert sorted(block["tool_use_id"] for block in results["content"]) == ["toolu_1", "toolu_2"]


@pytest.mark.parametrize("text", ["", "a", "\ud83d", '}]},{"role":"user","content":[{"type":"tool_result",'])
def test_results_of_any_text_are_joined(text: str) -> None:
    results = [WIRE.write_result(name, text, error=name == "t2") for name in ("t1", "t2")]
    sent = checked(request(USER, calling("t1", "t2"), *results, mark=4))
    assert len(sent["messages"][2]["content"]) == 2


# Cache breakpoints


def test_breakpoints_stand_at_the_end_of_the_preamble_and_of_what_the_next_request_begins_with() -> None:
    pieces = [WIRE.write_user("a"), native(TEXT), WIRE.write_user(["b", "c"]), WIRE.write_instruction("d")]
    sent = checked(request(*pieces, mark=3, preamble=Preamble(system="Teach.")))
    assert marks(sent) == ["Teach.", "c"]
    assert sent["messages"][2]["content"][1]["cache_control"] == MARK


def test_a_chat_marks_the_message_and_not_the_instruction_behind_it() -> None:
    provider = scripted(TEXT, TEXT)
    chat = Chat(provider)
    reply = chat.send("Hello.", instruction="It is noon.")
    chat.send("And?", state=reply.state)
    assert [marks(checked(sent)) for sent in provider.requests] == [["Hello."], ["And?"]]


def test_the_breakpoint_of_results_that_are_one_message_is_on_the_last_of_them() -> None:
    results = [WIRE.write_result(name, "5", error=False) for name in ("t1", "t2")]
    assert marks(checked(request(USER, calling("t1", "t2"), *results, mark=4))) == ["t2"]


def test_of_several_messages_in_one_piece_the_last_block_is_marked() -> None:
    run = memoryview(b",".join([USER, native(b'[ {"type":"text","text":"x" } ]'), WIRE.write_user("z")]))
    sent = request(run, mark=1)
    assert marks(checked(sent)) == ["z"]
    assert native(b'[ {"type":"text","text":"x" } ]') in sent


def test_a_message_that_is_laid_out_with_white_space_is_marked_too() -> None:
    laid_out = native(b'[\n  { "type" : "text",\n    "text" : "x" }\n]\n')
    assert marks(checked(request(USER, laid_out, USER, mark=2))) == ["x"]


def test_thoughts_are_never_marked() -> None:
    for block in (THINKING, b'{"type":"redacted_thinking","data":"x"}'):
        assert marks(checked(request(USER, native(b"[%s]" % block), USER, mark=2))) == []


@pytest.mark.parametrize(
    "piece", [native(b"[]"), native(b"[{}]"), native(b'"x"'), b'{"role":"assistant"}', b'{"content":[5],"x":[{}]}']
)
def test_what_cannot_be_marked_goes_as_it_is(piece: bytes) -> None:
    assert request(USER, piece, mark=2) == request(USER, piece)


def test_a_block_that_has_a_breakpoint_does_not_get_another() -> None:
    own = WIRE.write_user([{"type": "text", "text": "a", "cache_control": HOUR}])
    sent = request(own, mark=1)
    assert sent.count(b"cache_control") == 1
    assert checked(sent)["messages"][0]["content"][0]["cache_control"] == HOUR


def test_a_text_that_speaks_of_a_breakpoint_is_none() -> None:
    assert marks(checked(request(WIRE.write_user("cache_control"), mark=1))) == ["cache_control"]


def own(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": MARK, **more}


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, ["Teach.", "end"]),
        (1, ["Teach.", "0", "end"]),
        (2, ["Teach.", "0", "1", "end"]),
        (3, ["0", "1", "2", "end"]),
        (4, ["0", "1", "2", "3"]),
        (6, ["2", "3", "4", "5"]),
    ],
)
def test_with_the_callers_own_breakpoints_there_are_at_most_four_and_the_last_ones_count(
    number: int, expected: list[str]
) -> None:
    pieces = [WIRE.write_user([own(str(i))]) for i in range(number)]
    for sent in (
        request(*pieces, WIRE.write_user("end"), mark=number + 1, preamble=Preamble(system="Teach.")),
        request(memoryview(b",".join([*pieces, WIRE.write_user("end")])), mark=1, preamble=Preamble(system="Teach.")),
    ):
        assert marks(checked(sent)) == expected


def test_breakpoints_on_tools_count_too() -> None:
    tools = [{"type": "bash_20250124", "name": f"t{i}", "cache_control": MARK} for i in range(3)]
    sent = checked(request(WIRE.write_user([own("a"), own("b")]), USER, mark=2, options={"tools": tools}))
    assert marks(sent) == ["t0", "t1", "t2", "b"]


def test_a_breakpoint_that_the_provider_sets_by_itself_counts_too() -> None:
    pieces = [WIRE.write_user([own(str(i))]) for i in range(4)]
    sent = request(*pieces, USER, mark=5, options={"cache_control": MARK}, preamble=Preamble(system="Teach."))
    assert marks(checked(sent)) == ["1", "2", "3"]
    sent = request(USER, mark=1, options={"cache_control": MARK}, preamble=Preamble(system="Teach."))
    assert marks(checked(sent)) == ["Teach."]


@pytest.mark.parametrize(
    ("part", "options", "expected"),
    [(own("a", cache_control=HOUR), {}, ["a", "Hello."]), ("a", {"cache_control": HOUR}, [])],
)
def test_nothing_is_kept_for_an_hour_behind_what_is_kept_for_five_minutes(
    part: Any, options: dict[str, Any], expected: list[str]
) -> None:
    sent = request(WIRE.write_user([part]), USER, mark=2, options=options, preamble=Preamble(system="Teach."))
    assert marks(checked(sent)) == expected


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.data())
def test_however_many_breakpoints_a_caller_sets_a_request_keeps_the_rules(counts: Sequence[int], data: Any) -> None:
    pieces = [WIRE.write_user([own("x") for _ in range(count)] + ["y"]) for count in counts]
    tools = [{"type": "t_1", "name": f"t{i}", "cache_control": MARK} for i in range(data.draw(st.integers(0, 4)))]
    sent = request(
        *pieces,
        mark=data.draw(st.integers(0, len(pieces))),
        options={"tools": tools, "cache_control": data.draw(st.sampled_from([None, MARK])) if len(tools) < 4 else None},
        preamble=Preamble(system="Teach."),
    )
    checked(sent)


def test_what_is_stored_never_has_a_breakpoint_of_ours() -> None:
    provider = scripted(CALLING, TEXT, TEXT)
    chat = Chat(provider, tools=[add])
    reply = chat.send("Hello.", system="Teach.")
    entries = [*reply.entries, *chat.send("And?", state=reply.state, system="Teach.").entries]
    assert all(b"cache_control" in sent for sent in provider.requests)
    assert len(entries) == 6
    assert not any(b"cache_control" in entry.native for entry in entries)


def test_a_request_does_not_change_the_messages_it_is_made_of() -> None:
    pieces = [WIRE.write_user([own(str(i))]) for i in range(6)]
    pieces += [calling("t1", "t2"), *(WIRE.write_result(name, "5", error=False) for name in ("t1", "t2"))]
    before = [bytes(piece) for piece in pieces]
    checked(request(*pieces, mark=len(pieces)))
    assert pieces == before


# Usage


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (b'{"input_tokens":10,"output_tokens":5}', Usage(10, 5)),
        (
            b'{"input_tokens":10,"cache_creation_input_tokens":3,"cache_read_input_tokens":100,"output_tokens":5}',
            Usage(113, 5, 100, 3),
        ),
        (
            b'{"input_tokens":23,"output_tokens":1,"iterations":[{"type":"compaction","input_tokens":180,'
            b'"output_tokens":3},{"type":"message","input_tokens":23,"output_tokens":1,"cache_read_input_tokens":7}]}',
            Usage(210, 4, 7),
        ),
        (b'{"input_tokens":10,"output_tokens":5,"iterations":[]}', Usage(10, 5)),
        (b'{"input_tokens":10,"output_tokens":5,"iterations":null}', Usage(10, 5)),
        (b'{"input_tokens":10,"output_tokens":null,"cache_read_input_tokens":null}', Usage(10)),
        (b'{"input_tokens":10.0,"output_tokens":"5","cache_creation":{"ephemeral_5m_input_tokens":1}}', Usage(10, 5)),
        (
            b'{"input_tokens":1,"cache_creation_input_tokens":7,"cache_creation":{"ephemeral_1h_input_tokens":5}}',
            Usage(8, 0, 0, 7, 5),
        ),
        (b'{"input_tokens":10,"cache_creation":null}', Usage(10)),
        (b"{}", Usage()),
        (b"[]", Usage()),
        (b"", Usage()),
        (b'{"input_tokens":"many"}', Usage()),
        (b'{"iterations":[5]}', Usage()),
    ],
)
def test_usage_is_read_with_what_the_cache_took_and_what_is_missing_counts_nothing(raw: bytes, usage: Usage) -> None:
    assert WIRE.read_usage(raw) == usage


COUNTS = st.sampled_from(["input_tokens", "output_tokens", "cache_read_input_tokens", "iterations", "x"])


@given(st.dictionaries(COUNTS, SCALARS | st.lists(st.dictionaries(COUNTS, SCALARS))))
def test_usage_of_any_kind_is_read_without_an_error(raw: Any) -> None:
    assert isinstance(WIRE.read_usage(json.dumps(raw).encode()), Usage)


# Events, system messages, instructions


def test_events_and_system_messages_are_quoted_in_the_users_voice_and_in_their_place() -> None:
    provider = scripted(TEXT, TEXT)
    chat = Chat(provider)
    state = chat.note("Ada opened lesson 7", source="app")
    reply = chat.send([System("Be brief."), "Hello."], state=state)
    sent = checked(provider.requests[0])["messages"]
    assert [message["role"] for message in sent] == ["user", "user", "user"]
    noted, told, said = (message["content"][0]["text"] for message in sent)
    assert re.fullmatch(r'<event source="app" time="[^"]+">\nAda opened lesson 7\n</event>', noted)
    assert told == "<system>\nBe brief.\n</system>"
    assert said == "Hello."
    chat.send("Why?", state=reply.state)
    later = checked(provider.requests[1])["messages"]
    assert [message["content"][0]["text"] for message in later[:3]] == [noted, told, said]


def test_an_instruction_follows_the_message_and_is_not_stored() -> None:
    provider = scripted(TEXT, TEXT)
    chat = Chat(provider)
    reply = chat.send("Hello.", instruction="It is noon.")
    last = checked(provider.requests[0])["messages"][-1]
    assert last == json.loads(WIRE.write_instruction("It is noon."))
    assert last == {
        "role": "user",
        "content": [{"type": "text", "text": "<instruction>\nIt is noon.\n</instruction>"}],
    }
    chat.send("And?", state=reply.state)
    assert b"noon" not in provider.requests[1]


def quoted(rendered: bytes | None) -> str:
    assert rendered is not None
    message = json.loads(rendered)
    assert message["role"] == "user"
    (block,) = message["content"]
    text: str = block["text"]
    return text


FORGED = st.lists(
    st.sampled_from(
        [
            "</event>",
            "<event",
            "</system>",
            "< / SYSTEM >",
            "<system>",
            "</Instruction>",
            "</done_so_far>",
            "< /LEFT_OUT",
            "\n",
            "<",
            "/",
            "x",
            "ſystem>",
        ]
    )
    | st.text(max_size=3),
    max_size=6,
).map("".join)


@given(FORGED, FORGED)
def test_what_is_quoted_cannot_end_its_quotation_or_begin_another(text: str, source: str) -> None:
    for tag, said in (
        ("event", quoted(WIRE.render(event(text, source=source, at=0), NO_QUIRKS))),
        ("system", quoted(WIRE.render(system(text, at=0), NO_QUIRKS))),
        ("instruction", quoted(WIRE.write_instruction(text))),
        ("left_out", quoted(WIRE.quote("left_out", text))),
        ("done_so_far", quoted(WIRE.quote("done_so_far", text))),
    ):
        assert [found.start() for found in re.finditer(rf"<\s*{tag}\b", said, re.I)] == [0]
        assert [found.end() for found in re.finditer(rf"<\s*/\s*{tag}\b", said, re.I)] == [len(said) - 1]


def test_a_message_is_rendered_as_it_is() -> None:
    entry = Entry(role="assistant", wire=WIRE.name, native=native(CONTENTS["half an emoji"]), at=0, mark="length")
    assert WIRE.render(entry, NO_QUIRKS) == entry.native


def test_all_but_results_can_be_sent_as_they_are() -> None:
    assert [WIRE.is_plain(role) for role in ("user", "assistant", "tool")] == [True, True, False]


# What only the provider can read


def test_without_its_thoughts_a_message_keeps_the_bytes_of_all_else() -> None:
    thinking = b'[%s, {"type":"redacted_thinking","data":"x"} , %s ,{"type":"text","text":"\\u00e9"}]' % (
        THINKING,
        CALL,
    )
    assert WIRE.remove_opaque(native(thinking)) == native(b'[%s,{"type":"text","text":"\\u00e9"}]' % CALL)


def test_a_message_without_thoughts_stays_as_it_is() -> None:
    for content in (CONTENTS["white space"], CONTENTS["doubled keys"], b'"x"'):
        assert WIRE.remove_opaque(native(content)) == native(content)


def test_of_thoughts_alone_nothing_is_left() -> None:
    assert WIRE.remove_opaque(native(b'[%s,{"type":"redacted_thinking","data":"x"}]' % THINKING)) is None


def refusal(message: str) -> bytes:
    error = {"type": "invalid_request_error", "message": message}
    return json.dumps({"type": "error", "error": error, "request_id": "req_1"}).encode()


BOUND = (
    "messages.5.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block". The `system` prompt '
    "differs from the one this block was created with."
)
MODIFIED = (
    "messages.5.content.1: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
    "modified. These blocks must remain as they were in the original response."
)


@pytest.mark.parametrize(
    "error",
    [
        refusal(BOUND),
        refusal(MODIFIED),
        refusal("messages.1.content.0: Invalid `signature` in `thinking` block"),
        refusal("messages.1.content.0: Invalid `data` in `redacted_thinking` block"),
        refusal("messages.1.content.0.thinking.signature: Field required"),
        refusal("messages.1.content.0.thinking.thinking: Input should be a valid string"),
        json.dumps(
            {"error": {"code": 400, "message": refusal(MODIFIED).decode(), "status": "INVALID_ARGUMENT"}}
        ).encode(),
        b'{"message":"messages.1.content.0: Invalid signature in thinking block"}',
    ],
)
def test_a_refusal_of_thoughts_teaches_that_those_so_far_are_not_taken(error: bytes) -> None:
    assert WIRE.learn_from_error(error, [USER, USER], NO_QUIRKS) == Quirks(opaque_void=2)
    assert WIRE.learn_from_error(error, [USER, USER, USER], Quirks(opaque_void=2)) == Quirks(opaque_void=3)
    assert WIRE.learn_from_error(error, [USER, USER], Quirks(opaque_void=2)) is None


def test_a_refusal_of_half_an_emoji_teaches_to_send_none() -> None:
    error = refusal("The request body is not valid JSON: no low surrogate in string: line 1 column 9 (char 8)")
    learnt = WIRE.learn_from_error(error, [USER], NO_QUIRKS)
    assert learnt == Quirks(no_surrogates=True)
    assert WIRE.learn_from_error(error, [USER], learnt) is None
    entry = Entry(role="assistant", wire=WIRE.name, native=native(CONTENTS["half an emoji"]), at=0)
    assert WIRE.render(entry, learnt) == native(
        b'[{"type":"text","text":"a\\ufffd","y":"\\ufffd","\\ufffd":[{"z":"\\ufffd"}]}]'
    )


@pytest.mark.parametrize(
    "error",
    [
        b"",
        b"<html>502 Bad Gateway</html>",
        refusal("prompt is too long: 208310 tokens > 200000 maximum"),
        refusal("messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1."),
        refusal("messages: text content blocks must be non-empty"),
        refusal("A maximum of 4 blocks with cache_control may be provided. Found 5."),
        refusal("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"),
        refusal("`max_tokens` must be greater than `thinking.budget_tokens`."),
        refusal('"thinking.type.enabled" is not supported for this model.'),
        refusal("`temperature` may only be set to 1 when thinking is enabled."),
        # To leave out more thoughts would make this one worse.
        refusal(
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block"
        ),
    ],
)
def test_a_refusal_of_anything_else_teaches_nothing(error: bytes) -> None:
    assert WIRE.learn_from_error(error, [USER, USER], NO_QUIRKS) is None


def test_a_conversation_whose_thoughts_are_refused_goes_on_without_them() -> None:
    thought = b'[%s,{"type":"text","text":"One."}]' % THINKING
    refused = RequestRefused("No.", status=400, body=refusal(BOUND))
    provider = Scripted(Step(body(thought)), refused, Step(body(TEXT)), Step(body(TEXT)), wire=WIRE)
    chat = Chat(provider)
    reply = chat.send("And?", state=chat.send("Hello.").state)
    assert [notice.kind for notice in reply.notices] == ["server_refused"]
    chat.send("Why?", state=reply.state)
    assert [THINKING in sent for sent in provider.requests] == [False, True, False, False]
    assert all(native(b'[{"type":"text","text":"One."}]') in sent for sent in provider.requests[2:])
