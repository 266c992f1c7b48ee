"""OpenAI Responses: what came goes back, what may not go back stays behind, and what a server refuses is learnt."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk._util import json_bytes
from longtalk.errors import InputError
from longtalk.testing import validate
from longtalk.tools import Tool
from longtalk.transcript.transcript import Entry
from longtalk.usage import Usage
from longtalk.wires.entries import make_closing_result
from longtalk.wires.neutral import event, system
from longtalk.wires.openai_responses.items import MAX_OUTPUT_CHARS
from longtalk.wires.openai_responses.wire import WIRE
from longtalk.wires.protocol import Handle, Preamble, Quirks, ReportedError
from longtalk.wires.views import ToolCallView

USER = WIRE.write_user("Hello.")
MESSAGE = b'{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[%s]}'
SAID = MESSAGE % b'{"type":"output_text","text":"caf\\u00e9","annotations":[]}'
THOUGHT = b'{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA"}'
SENT_THOUGHT = b'{"type":"reasoning","summary":[],"encrypted_content":"gAAA"}'
CALL = b'{"type":"function_call","id":"fc_1","call_id":"call_1","name":"add","arguments":"{\\"a\\": 2}","x":1e2}'
SENT_CALL = CALL.replace(b'"id":"fc_1",', b"")
CUSTOM = b'{"type":"custom_tool_call","call_id":"call_9","name":"sing","input":"la la"}'
SEARCH = b'{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}}'
LATER = b'{ "type" : "later_item", "what" : [1.50, "\\ud83d"] }'


def body(*items: bytes, **more: Any) -> bytes:
    fields = {"id": "r", "status": "completed", "error": None, "incomplete_details": None, **more}
    return json_bytes.build({**{k: json.dumps(v).encode() for k, v in fields.items()}, "output": array(*items)})


def array(*items: bytes) -> bytes:
    return b"[" + b",".join(items) + b"]"


def answer(*items: bytes, store: bool = False) -> bytes:
    native = WIRE.parse(body(*items, store=store)).native
    assert native is not None
    return native


def rendered(native: bytes, quirks: Quirks = Quirks(), **fields: Any) -> bytes | None:  # noqa: B008
    role = WIRE.view(native).role
    return WIRE.render(Entry(**{"role": role, "wire": WIRE.name, "native": native, "at": 0, **fields}), quirks)


def request(*pieces: bytes | memoryview, quirks: Quirks = Quirks(), **settings: Any) -> bytes:  # noqa: B008
    given: dict[str, Any] = {"model": "m", "preamble": Preamble(), "mark": 0, "options": {}, "stream": False}
    return WIRE.build_request(pieces=pieces, quirks=quirks, **{**given, **settings})


# What came goes back


@given(st.lists(st.sampled_from([THOUGHT, SAID, CALL, CUSTOM, SEARCH, LATER]), max_size=5))
def test_an_answer_holds_the_exact_bytes_of_its_output(items: list[bytes]) -> None:
    pretty = b"[ " + b" ,\n".join(items) + b" ]"
    native = WIRE.parse(body().replace(b'"output":[]', b'"output":' + pretty)).native
    assert native is not None
    calls = [item for item in items if item in (CALL, CUSTOM)]
    if len(calls) == len(set(calls)):
        assert native == b'{"output":' + pretty + b"}"
    for item in items:
        if item not in (CALL, CUSTOM):
            assert item in native


def test_items_go_back_in_order_without_the_ids_of_the_server() -> None:
    native = answer(THOUGHT, SAID, LATER, SEARCH, CALL)
    sent_message = SAID.replace(b'"id":"msg_1",', b"")
    # What the provider's own tools did has no form without an id.
    assert rendered(native) == b",".join([SENT_THOUGHT, sent_message, LATER, SEARCH, SENT_CALL])


def test_what_was_stored_goes_back_with_its_ids() -> None:
    bare = b'{"id":"rs_1","type":"reasoning","summary":[]}'
    native = answer(bare, SAID, store=True)
    assert native == b'{"store":true,"output":' + array(bare, SAID) + b"}"
    assert rendered(native) == bare + b"," + SAID
    assert rendered(native, Quirks(strict_ids=True)) == SAID.replace(b'"id":"msg_1",', b"")
    assert rendered(answer(bare, SAID)) == SAID.replace(b'"id":"msg_1",', b"")


@pytest.mark.parametrize(
    "items",
    [
        [THOUGHT],
        [THOUGHT, THOUGHT],
        [THOUGHT, MESSAGE % b""],
        [THOUGHT, MESSAGE % b'{"type":"output_text","text":""}'],
        [THOUGHT, CALL.replace(b'"x":1e2', b'"status":"incomplete"')],
        *[[THOUGHT, b'{"type":"%s","call_id":"c","id":"i"}' % kind] for kind in (b"computer_call", b"shell_call")],
        *[[THOUGHT, b'{"type":"%s","id":"i"}' % kind] for kind in (b"mcp_approval_request", b"item_reference")],
        [],
    ],
)
def test_reasoning_goes_with_what_it_led_to_or_not_at_all(items: list[bytes]) -> None:
    made = WIRE.parse(body(*items))
    assert made.empty
    assert made.view.calls == ()
    assert rendered(answer(*items)) is None
    # What came before such an end goes all the same.
    assert rendered(answer(SEARCH, *items)) == SEARCH
    assert not WIRE.parse(body(SEARCH, *items)).empty


def test_a_call_that_the_provider_has_answered_itself_goes_with_its_output() -> None:
    call = b'{"type":"shell_call","call_id":"c","action":{}}'
    output = b'{"type":"shell_call_output","call_id":"c","output":[]}'
    assert rendered(answer(THOUGHT, call, output)) == b",".join([SENT_THOUGHT, call, output])


def test_reasoning_before_more_reasoning_stays() -> None:
    assert rendered(answer(THOUGHT, THOUGHT, CALL)) == b",".join([SENT_THOUGHT, SENT_THOUGHT, SENT_CALL])
    assert rendered(answer(THOUGHT, CALL, THOUGHT)) == SENT_THOUGHT + b"," + SENT_CALL


def test_reasoning_has_no_status_when_it_goes_back_and_messages_have() -> None:
    native = answer(THOUGHT[:-1] + b',"status":"completed"}', SAID)
    sent = rendered(native) or b""
    assert sent.startswith(SENT_THOUGHT + b",")
    assert sent.count(b'"status":"completed"') == 1


def test_a_message_of_an_unknown_part_says_something() -> None:
    odd = b'{"type":"message","role":"assistant","content":[{"type":"output_song","notes":[1]}]}'
    assert rendered(answer(odd)) == odd


def test_a_server_compaction_passes_through() -> None:
    item = b'{"type":"compaction","id":"cmp_1","encrypted_content":"gAAA"}'
    native = answer(item, SAID)
    assert (rendered(native) or b"").startswith(b'{"type":"compaction","encrypted_content":"gAAA"},')
    assert WIRE.parse(body(item, SAID)).opaque


def test_a_field_that_a_server_refuses_is_left_out_of_items_and_parts() -> None:
    item = (
        b'{"type":"message","role":"assistant","phase":"x","content":[{"type":"output_text","text":"a","logprobs":[]}]}'
    )
    sent = rendered(answer(item), Quirks(fields=("phase", "logprobs", "text", "type")))
    assert sent == b'{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}'


def test_half_characters_are_made_whole_where_a_server_refuses_them() -> None:
    assert b"\\ud83d" in (rendered(answer(LATER)) or b"")
    assert b"\\ufffd" in (rendered(answer(LATER), Quirks(no_surrogates=True)) or b"")


def test_an_item_without_an_envelope_is_one_of_one() -> None:
    assert WIRE.view(SAID).text == "café"
    assert rendered(SAID) == SAID.replace(b'"id":"msg_1",', b"")
    assert WIRE.view(CALL).calls == (ToolCallView("call_1", "add", b'{"a": 2}'),)


# Opaque blocks


def test_encrypted_items_are_opaque_and_valid_anywhere() -> None:
    made = WIRE.parse(body(THOUGHT, SAID))
    assert made.opaque
    assert not WIRE.binds_prefix
    assert not WIRE.parse(body(SAID, CALL)).opaque
    assert WIRE.parse(body(SAID, store=True)).opaque


def test_without_what_is_opaque_nothing_has_an_id() -> None:
    assert WIRE.remove_opaque(answer(THOUGHT, SAID)) == b'{"output":' + array(SAID) + b"}"
    assert WIRE.remove_opaque(answer(SAID)) == answer(SAID)
    assert WIRE.remove_opaque(answer(THOUGHT)) is None
    assert WIRE.remove_opaque(answer()) == answer()
    bare = WIRE.remove_opaque(answer(SAID, store=True))
    assert bare is not None
    assert b'"id"' not in (rendered(bare) or b"")


# Views


def test_a_view_reads_texts_calls_and_refusals() -> None:
    refusal = MESSAGE % b'{"type":"refusal","refusal":"No."}'
    view = WIRE.view(answer(THOUGHT, SAID, refusal, SAID, CALL, CUSTOM))
    assert (view.role, view.text, view.refusal) == ("assistant", "cafécafé", "No.")
    assert view.calls == (ToolCallView("call_1", "add", b'{"a": 2}'), ToolCallView("call_9", "sing", b"la la"))


@pytest.mark.parametrize(
    ("output", "text"),
    [(b'"5"', "5"), (b'[{"type":"input_text","text":"a"},{"type":"input_image"},"x",{"type":"input_text"}]', "a")],
)
@pytest.mark.parametrize("kind", [b"function_call_output", b"custom_tool_call_output"])
def test_a_view_reads_a_result(kind: bytes, output: bytes, text: str) -> None:
    view = WIRE.view(b'{"type":"%s","call_id":"c","output":%s}' % (kind, output))
    assert (view.role, view.call_id, view.text) == ("tool", "c", text)


@pytest.mark.parametrize("role", ["user", "developer", "system"])
def test_a_view_reads_what_is_not_the_models(role: str) -> None:
    assert WIRE.view(json.dumps({"role": role, "content": "x"}).encode()).role == role
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}]
    assert WIRE.view(json.dumps({"role": role, "content": parts}).encode()).text == "a"


@pytest.mark.parametrize("native", [b"5", b"[]", b'{"output":[', b""])
def test_what_is_not_of_this_grammar_is_a_value_error(native: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        WIRE.view(native)


@pytest.mark.parametrize(
    ("status", "details", "finish"),
    [
        ("completed", None, "stop"),
        ("incomplete", {"reason": "max_output_tokens"}, "length"),
        ("incomplete", {"reason": "content_filter"}, "filtered"),
        ("incomplete", {"reason": "something new"}, "length"),
        ("incomplete", None, "length"),
    ],
)
def test_why_an_answer_ended(status: str, details: Any, finish: str) -> None:
    assert WIRE.parse(body(SAID, status=status, incomplete_details=details)).finish == finish
    assert WIRE.parse(body(SAID, CALL, status=status, incomplete_details=details)).finish == "calls"


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (
            b'{"input_tokens":10,"output_tokens":5,"output_tokens_details":{"reasoning_tokens":3}}',
            Usage(10, 5, reasoning=3),
        ),
        (
            b'{"input_tokens":10,"input_tokens_details":{"cached_tokens":8,"cache_write_tokens":1},"output_tokens":5}',
            Usage(10, 5, 8, 1),
        ),
        (b'{"input_tokens":null,"input_tokens_details":null}', Usage()),
        (b'{"input_tokens":[]}', Usage()),
        (b"[", Usage()),
    ],
)
def test_usage_is_read(raw: bytes, usage: Usage) -> None:
    assert WIRE.read_usage(raw) == usage


def test_usage_is_kept_as_it_came() -> None:
    assert (
        WIRE.parse(body(SAID).replace(b'"id":"r"', b'"usage":{"input_tokens": 1e1}')).usage == b'{"input_tokens": 1e1}'
    )
    assert WIRE.parse(body(SAID, usage=None)).usage is None


@pytest.mark.parametrize(
    ("answered", "error"),
    [
        (b'{"error":{"message":"no"}}', b'{"message":"no"}'),
        (b'{"status":"failed","error":{"code":"server_error","message":"x"},"output":[]}', b'"server_error"'),
        (b'{"status":"failed","error":null,"output":[]}', b"without an explanation"),
        (b'{"error":"words"}', b"words"),
    ],
)
def test_an_error_in_place_of_an_answer_is_reported(answered: bytes, error: bytes) -> None:
    with pytest.raises(ReportedError) as caught:
        WIRE.parse(answered)
    assert error in caught.value.error


@pytest.mark.parametrize("answered", [b"{}", b'{"output":null}', b'{"choices":[]}', b"<html>", b'{"output":[1]}'])
def test_what_is_no_answer_is_a_value_error(answered: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        WIRE.parse(answered)


# Calls


def test_a_call_without_an_id_of_its_own_gets_one() -> None:
    nameless = CALL.replace(b'"call_id":"call_1"', b'"call_id":""')
    made = WIRE.parse(body(nameless, CALL, CALL, SAID))
    ids = [call.id for call in made.view.calls]
    assert len(set(ids)) == 3
    assert ids[1] == "call_1"
    assert made.native is not None
    assert CALL in made.native
    assert SAID in made.native


def test_arguments_that_are_no_text_become_one() -> None:
    native = answer(CALL.replace(b'"{\\"a\\": 2}"', b'{"a": 2}'))
    assert b'"arguments":"{\\"a\\": 2}"' in native
    assert WIRE.view(native).calls[0].arguments == b'{"a": 2}'


def test_the_result_of_a_custom_call_is_of_its_kind() -> None:
    pieces = [
        USER,
        CUSTOM + b"," + CALL,
        WIRE.write_result("call_9", "la", error=False),
        WIRE.write_result("call_1", "5", error=True),
    ]
    sent = request(*pieces)
    validate(sent, wire=WIRE.name)
    kinds = [item.get("type") for item in json.loads(sent)["input"]]
    assert kinds[-2:] == ["custom_tool_call_output", "function_call_output"]
    assert request(memoryview(USER)).endswith(b',"input":[' + USER + b"]}")


def test_results_are_cut_only_where_they_would_be_refused() -> None:
    fits = WIRE.write_result("c", "é" * MAX_OUTPUT_CHARS, error=False)
    assert rendered(fits) == fits
    cut = json.loads(rendered(WIRE.write_result("c", "a" * MAX_OUTPUT_CHARS + "b" * 9, error=False)) or b"")
    assert len(cut["output"]) <= MAX_OUTPUT_CHARS
    assert cut["output"].startswith("aaa")
    assert cut["output"].endswith("b" * 9)
    image = {"type": "input_image", "image_url": "d" * MAX_OUTPUT_CHARS}
    parts = [{"type": "input_text", "text": "a" * (MAX_OUTPUT_CHARS + 1)}, image]
    native = json.dumps({"type": "function_call_output", "call_id": "c", "output": parts}).encode()
    cut = json.loads(rendered(native) or b"")
    assert len(cut["output"][0]["text"]) <= MAX_OUTPUT_CHARS
    assert cut["output"][1] == image
    whole = json.dumps({"type": "function_call_output", "call_id": "c", "output": [image]}).encode()
    assert rendered(whole) == whole


def test_redacted_answers_keep_their_calls_without_arguments() -> None:
    native = WIRE.redact(answer(THOUGHT, SAID, CALL, CUSTOM), "gone")
    view = WIRE.view(native)
    assert view.text == "gone"
    assert view.calls == (ToolCallView("call_1", "add", b"{}"), ToolCallView("call_9", "sing", b""))
    assert b"gAAA" not in native
    assert WIRE.view(WIRE.redact(USER, "gone")) == WIRE.view(WIRE.write_user("gone"))
    assert WIRE.redact(WIRE.write_result("c", "secret", error=False), "gone") == WIRE.write_result(
        "c", "gone", error=False
    )


# Requests


def add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


def test_a_request_has_its_items_last_and_its_tools_flat() -> None:
    preamble = Preamble("Be brief.", (Tool.from_function(add),))
    given = {"tools": [{"type": "web_search"}], "temperature": None, "text": {"format": {"type": "json_object"}}}
    sent = request(USER, preamble=preamble, options={**WIRE.defaults, **given}, stream=True)
    validate(sent, wire=WIRE.name)
    members = json.loads(sent)
    assert list(members) == ["model", "stream", "store", "include", "text", "tools", "instructions", "input"]
    assert (members["store"], members["include"]) == (False, ["reasoning.encrypted_content"])
    assert [tool.get("name") for tool in members["tools"]] == ["add", None]
    # Otherwise optional arguments would be demanded.
    assert members["tools"][0]["strict"] is False
    assert members["instructions"] == "Be brief."
    assert "instructions" not in json.loads(request(USER, preamble=Preamble(" ")))
    with pytest.raises(InputError, match="list of the provider's own tools"):
        request(USER, options={"tools": {}})


@pytest.mark.parametrize(
    ("options", "refused", "include"),
    [
        ({}, False, ["reasoning.encrypted_content"]),
        ({"include": ["x"]}, False, ["x", "reasoning.encrypted_content"]),
        ({"include": ("x",)}, True, ["x"]),
        ({}, True, None),
        ({"include": None}, False, None),
        ({"include": [], "store": True}, False, None),
        ({"include": ["x"], "store": True}, False, ["x"]),
    ],
)
def test_reasoning_is_asked_for_in_its_encrypted_form_when_nothing_is_stored(
    options: dict[str, Any], refused: bool, include: list[str] | None
) -> None:
    quirks = Quirks(fields=("include",)) if refused else Quirks()
    sent = json.loads(request(USER, options={**WIRE.defaults, **options}, quirks=quirks))
    assert sent.get("include") == include


def test_events_and_system_messages_are_the_developers_and_digests_the_users() -> None:
    for entry in (event("It rains.", source="app", at=0), system("Be brief.", at=0)):
        assert json.loads(WIRE.render(entry, Quirks()) or b"")["role"] == "developer"
    assert json.loads(WIRE.write_instruction("Now."))["role"] == "developer"
    assert json.loads(WIRE.quote("done_so_far", "x"))["role"] == "user"
    assert rendered(USER) == USER
    assert rendered(answer(SAID), mark="empty") is None


def test_where_and_how_it_is_asked() -> None:
    assert WIRE.path("m", stream=True) == "/responses"
    assert WIRE.headers("k") == {"authorization": "Bearer k"}
    assert WIRE.headers(None) == {}
    assert [WIRE.is_plain(role) for role in ("user", "assistant", "tool")] == [True, False, False]
    assert WIRE.view(make_closing_result(WIRE, "c", "Not run.", at=0).native).call_id == "c"


# Lessons


def said(message: str, code: str | None = None) -> bytes:
    return json.dumps({"error": {"message": message, "code": code, "type": "invalid_request_error"}}).encode()


NATIVES = [USER, answer(THOUGHT, SAID.replace(b'"id"', b'"phase":"final_answer","id"'))]


@pytest.mark.parametrize(
    ("error", "learnt"),
    [
        (
            said("The encrypted content gAAA...DQ== could not be verified.", "invalid_encrypted_content"),
            Quirks(opaque_void=2),
        ),
        (said("The encrypted content for item rs_1 could not be verified. Reason: …"), Quirks(opaque_void=2)),
        (said("encrypted_content was not issued to this caller"), Quirks(opaque_void=2)),
        (
            said("Item 'rs_1' of type 'reasoning' was provided without its required following item."),
            Quirks(opaque_void=2),
        ),
        (said("Item 'fc_1' … was provided without its required 'reasoning' item"), Quirks(opaque_void=2)),
        (
            said("Item with id 'rs_1' not found. Items are not persisted when `store` is false."),
            Quirks(strict_ids=True),
        ),
        (said("Duplicate item found with id rs_1. Remove duplicate items from your input."), Quirks(strict_ids=True)),
        (said("Invalid 'input[2].id': 'x'. Expected an ID that begins with 'rs'."), Quirks(strict_ids=True)),
        (said("Encrypted content is not supported with this model."), Quirks(fields=("include",))),
        (said("Unknown parameter: 'input[7].phase'.", "unknown_parameter"), Quirks(fields=("phase",))),
        (said("Unknown parameter: 'input[1].content[0].annotations'."), Quirks(fields=("annotations",))),
        (said("Unknown parameter: 'input[7].content'."), None),
        (said("Unknown parameter: 'input[7].nowhere'."), None),
        (said("Unknown parameter: 'temperature'."), None),
        (said("lone surrogate in string"), Quirks(no_surrogates=True)),
        (said("The model is overloaded."), None),
        (b"\xff", None),
    ],
)
def test_what_a_refusal_teaches(error: bytes, learnt: Quirks | None) -> None:
    assert WIRE.learn_from_error(error, NATIVES, Quirks()) == learnt
    if learnt is not None:
        # Nothing is learnt twice.
        assert WIRE.learn_from_error(error, NATIVES, learnt) is None


# What the server keeps


def test_options_say_how_the_server_keeps_it() -> None:
    assert WIRE.session_mode({"temperature": 1}) == ""
    assert WIRE.session_mode({"previous_response_id": "auto", "conversation": None}) == "previous_response_id"
    assert WIRE.session_mode({"conversation": "auto"}) == "conversation"


def test_a_request_names_what_it_goes_on_with_and_is_stored() -> None:
    given = {"store": False, "previous_response_id": "auto", "user": "ada"}
    assert WIRE.session_options(given, Handle("resp_1")) == {
        "store": True,
        "previous_response_id": "resp_1",
        "user": "ada",
    }
    assert WIRE.session_options(given, None) == {"store": True, "user": "ada"}
    assert WIRE.sessionless_options(given) == {"store": False, "user": "ada"}
    assert WIRE.session_options({"store": False}, None) == {"store": False}


@pytest.mark.parametrize(
    ("options", "named"),
    [({"store": True}, True), ({"store": False}, False), ({"store": True, "conversation": "auto"}, False)],
)
def test_ids_go_where_the_server_stores_what_it_is_sent(options: dict[str, Any], named: bool) -> None:
    native = WIRE.parse(body(THOUGHT, SAID, store=True)).native or b""
    sent = WIRE.render(Entry(role="assistant", wire=WIRE.name, native=native, at=0), WIRE.quirks_for(options, Quirks()))
    assert (b"rs_1" in (sent or b"")) is named
    assert b"gAAA" in (sent or b"")


@pytest.mark.parametrize(
    ("more", "handle"),
    [
        ({"store": True}, Handle("r")),
        ({}, None),
        ({"store": False}, None),
        ({"store": True, "id": None}, None),
        ({"store": True, "conversation": {"id": "conv_1"}}, Handle("conv_1", "msg_1")),
        ({"store": True, "conversation": {}}, None),
        ({"store": True, "conversation": None}, Handle("r")),
        ({"store": True, "conversation": "conv_1"}, Handle("conv_1", "msg_1")),
        ({"store": True, "conversation": ""}, None),
        ({"store": True, "conversation": 5}, None),
    ],
)
def test_a_response_says_what_can_be_gone_on_with(more: dict[str, Any], handle: Handle | None) -> None:
    assert WIRE.parse(body(SAID, **more)).handle == handle


def test_what_was_changed_here_is_not_what_the_server_has() -> None:
    twice = WIRE.parse(body(CALL, CALL, store=True))
    assert len({call.id for call in twice.view.calls}) == 2
    assert twice.handle is None
    nameless = SAID.replace(b'"id":"msg_1",', b"")
    assert WIRE.parse(body(nameless, store=True, conversation={"id": "conv_1"})).handle is None


@pytest.mark.parametrize(
    ("error", "forgot"),
    [
        (
            b'{"error":{"code":"previous_response_not_found","message":"Previous response with id \'r\' not found."}}',
            True,
        ),
        (b"Previous response cannot be used for this organization due to Zero Data Retention.", True),
        (b"Conversation with id 'conv_1' not found.", True),
        (b'{"error":{"code":"conversation_locked","message":"Another process is operating"}}', True),
        (b'{"error":{"message":"Expected an ID that begins with \'conv\'.","param":"conversation"}}', True),
        (b"No tool output found for function call call_1.", True),
        (b"No tool call found for function call output with call_id call_1.", True),
        (b'{"error":{"message":"Your conversation is too long","param":"input"}}', False),
        (b"", False),
        (b"\xff", False),
    ],
)
def test_what_says_that_a_server_has_forgotten(error: bytes, forgot: bool) -> None:
    assert WIRE.is_session_lost(error) is forgot


def test_a_result_behind_a_custom_call_that_the_server_has_is_of_its_kind() -> None:
    result = WIRE.write_result("call_9", "la", error=False)
    other = WIRE.write_result("call_1", "5", error=False)
    pieces = WIRE.follow_answer(b'{"output":' + array(CALL, CUSTOM) + b"}", [result, other, USER])
    assert [json.loads(bytes(piece)).get("type") for piece in pieces] == [
        "custom_tool_call_output",
        "function_call_output",
        None,
    ]
