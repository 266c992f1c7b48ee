"""Gemini generateContent: what is sent, what is read, and that it comes back as it came."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from longtalk.errors import InputError
from longtalk.testing.wires.gemini import check
from longtalk.tools import tool
from longtalk.transcript.transcript import Entry
from longtalk.usage import Usage
from longtalk.wires import redact
from longtalk.wires.entries import shorten_entry
from longtalk.wires.gemini.wire import WIRE
from longtalk.wires.neutral import event, system
from longtalk.wires.options import answer_token_limit
from longtalk.wires.protocol import Answer, Preamble, Quirks, ReportedError

SIGNED = b'"thoughtSignature":"c2ln"'
CALL = b'{"functionCall":{"name":"add","args":{"a":1e2}}}'
OTHER = b'{"functionCall":{"id":"c2","name":"look","args":{}}}'
TEXT = b'{"text":"Hi.", "odd" : [1e2, 12345678901234567890, "\\u00e9"]}'


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def body(parts: bytes = b"[%s]" % TEXT, reason: str | None = "STOP", usage: bytes = b"{}") -> bytes:
    ends = b',"finishReason":"%s"' % reason.encode() if reason else b""
    return b'{"candidates":[{"content":{"parts":%s,"role":"model"}%s}],"usageMetadata":%s}' % (parts, ends, usage)


def native(*parts: bytes) -> bytes:
    return b'{"role":"model","parts":[' + b",".join(parts) + b"]}"


def sent(*pieces: bytes | memoryview, options: Any = None, quirks: Quirks = Quirks(), **preamble: Any) -> bytes:  # noqa: B008
    return WIRE.build_request(
        model="m",
        preamble=Preamble(**preamble),
        pieces=pieces or (WIRE.write_user("Hello."),),
        mark=0,
        options=options or {},
        quirks=quirks,
        stream=False,
    )


def read(*pieces: bytes | memoryview, **more: Any) -> dict[str, Any]:
    """What is sent, checked."""
    found: dict[str, Any] = json.loads(sent(*pieces, **more))
    check(found)
    return found


def ids(answer: bytes) -> list[str]:
    return [call.id for call in WIRE.view(answer).calls]


# Addresses


def test_the_model_is_in_the_path() -> None:
    assert WIRE.path("gemini-3-pro", stream=False) == "/models/gemini-3-pro:generateContent"
    assert WIRE.path("gemini-3-pro", stream=True) == "/models/gemini-3-pro:streamGenerateContent?alt=sse"
    assert WIRE.path("models/x", stream=False) == "/models/x:generateContent"
    assert WIRE.path("tunedModels/x", stream=False) == "/tunedModels/x:generateContent"
    assert WIRE.path("a b?c#d", stream=False) == "/models/a%20b%3Fc%23d:generateContent"
    assert b'"m"' not in sent()


def test_the_key_is_in_a_header() -> None:
    assert WIRE.headers("k") == {"x-goog-api-key": "k"}
    assert WIRE.headers(None) == {}


# Answers


def test_an_answer_is_kept_byte_for_byte() -> None:
    parts = b'[ {"text" : "So.", "thought": true},%s , {"later":{"x":[]}} ]' % TEXT
    answer = WIRE.parse(body(parts))
    assert answer.native == b'{"role":"model","parts":' + parts + b"}"
    assert (answer.view.role, answer.view.text, answer.finish) == ("assistant", "Hi.", "stop")
    assert (answer.empty, answer.opaque) == (False, False)
    assert answer.native in sent(WIRE.write_user("x"), answer.native, WIRE.write_user("y"))


@given(st.lists(st.dictionaries(st.sampled_from(["text", "odd", "x"]), st.text() | st.integers()), max_size=4))
def test_whatever_comes_is_read_and_what_has_content_is_kept(parts: list[dict[str, Any]]) -> None:
    answer = WIRE.parse(body(json.dumps(parts).encode()))
    assert answer.native is not None
    kept = [part for part in parts if part and part.get("text") != ""]
    assert json.loads(answer.native) == {"role": "model", "parts": kept}
    assert answer.empty == (not kept)


def test_unknown_fields_of_a_content_go_back_until_a_server_refuses_them() -> None:
    content = b'{ "later" : [1.0],"parts":[%s],"role":"model", "x":null}' % TEXT
    answer = WIRE.parse(b'{"candidates":[{"content":%s,"finishReason":"STOP"}]}' % content)
    assert answer.native == content
    assert content in sent(WIRE.write_user("x"), content)
    error = b'{"error":{"message":"Unknown name \\"later\\" at \'contents[1]\': Cannot find field."}}'
    quirks = WIRE.learn_from_error(error, [content], Quirks())
    assert quirks is not None
    assert quirks.fields == ("later",)
    adapted = json.loads(sent(WIRE.write_user("x"), content, quirks=quirks))["contents"][1]
    assert adapted.keys() == {"parts", "role", "x"}


def test_thoughts_are_not_said() -> None:
    answer = WIRE.parse(body(b'[{"text":"Hm.","thought":true},{"text":"Hi ","thought":false},{"text":"you."}]'))
    assert answer.view.text == "Hi you."


def test_a_text_without_a_text_is_left_out_unless_it_is_signed() -> None:
    signed = b'{"text":"",%s}' % SIGNED
    answer = WIRE.parse(body(b'[{"text":""},{"text":"a"},{"thought":true},{},%s]' % signed))
    assert answer.native == native(b'{"text":"a"}', signed)
    assert answer.opaque


@pytest.mark.parametrize(
    ("parts", "empty"),
    [
        (b"[]", True),
        (b"null", True),
        (b'[{"text":""}]', True),
        (b'[{"text":"Hm.","thought":true}]', True),
        (b'[{"text":"Hm.","thought":true,%s}]' % SIGNED, False),
        (b'[{"text":"",%s}]' % SIGNED, False),
        (b'[{"executableCode":{}}]', False),
    ],
)
def test_nothing_but_unsigned_thoughts_is_not_sent_back(parts: bytes, empty: bool) -> None:
    assert WIRE.parse(body(parts)).empty is empty


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "filtered"),
        ("RECITATION", "filtered"),
        ("PROHIBITED_CONTENT", "filtered"),
        ("IMAGE_SAFETY", "filtered"),
        ("MALFORMED_FUNCTION_CALL", "filtered"),
        ("OTHER", "filtered"),
        ("A_LATER_ONE", "stop"),
        (None, "stop"),
    ],
)
def test_why_an_answer_ended(reason: str | None, finish: str) -> None:
    assert WIRE.parse(body(reason=reason)).finish == finish
    assert WIRE.parse(body(b"[%s]" % CALL, reason)).finish == "calls"


def test_a_filtered_answer_may_have_no_content() -> None:
    answer = WIRE.parse(b'{"candidates":[{"finishReason":"SAFETY","index":0}]}')
    assert (answer.finish, answer.empty, answer.usage) == ("filtered", True, None)


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER"])
def test_an_answer_that_failed_with_nothing_in_it_is_an_error(reason: str) -> None:
    with pytest.raises(ReportedError) as caught:
        WIRE.parse(body(b"[]", reason))
    assert reason.encode() in caught.value.error


@pytest.mark.parametrize(
    "said",
    [
        b'{"error":{"code":503,"message":"busy"}}',
        b'{"promptFeedback":{"blockReason":"SAFETY"}}',
        b'{"candidates":[],"promptFeedback":{"blockReason":"OTHER"}}',
    ],
)
def test_an_error_in_place_of_an_answer_is_told_as_it_came(said: bytes) -> None:
    with pytest.raises(ReportedError) as caught:
        WIRE.parse(said)
    assert caught.value.error == said


@pytest.mark.parametrize(
    "said", [b"{}", b"[]", b"<html>", b'{"candidates":null}', b'{"candidates":[5]}', body(b"[5]"), body(b'"x"')]
)
def test_what_is_no_answer_is_refused(said: bytes) -> None:
    with pytest.raises(ValueError, match=r"not JSON|no `candidates`"):
        WIRE.parse(said)


def test_of_several_candidates_the_first_counts() -> None:
    said = b'{"index":%d,"content":{"parts":[{"text":"%s"}]}}'
    two = b'{"candidates":[%s,%s]}' % (said % (1, b"b"), said % (0, b"a"))
    assert WIRE.parse(two).view.text == "a"


# Calls and results


def test_calls_without_an_id_are_told_apart() -> None:
    answer = native(CALL, CALL, OTHER)
    first, second, third = WIRE.view(answer).calls
    assert (first.name, first.arguments) == ("add", b'{"a":1e2}')
    assert first.id != second.id
    assert third.id == "c2"
    assert ids(answer) == [first.id, second.id, third.id]
    assert not {first.id, second.id} & set(ids(native(CALL, CALL)))
    for bare in (b'{"functionCall":{"name":"now"}}', b'{"functionCall":{"name":"now","args":null}}'):
        assert WIRE.view(native(bare)).calls[0].arguments == b"{}"


@given(st.permutations([0, 1, 2]), st.booleans())
def test_results_are_one_content_in_the_order_of_the_calls(order: list[int], unread: bool) -> None:
    answer = native(CALL, OTHER, CALL)
    calls = WIRE.view(answer).calls
    results = [WIRE.write_result(calls[i].id, f"r{i}", error=i == 1, name=calls[i].name) for i in order]
    before = b",".join((WIRE.write_user("x"), answer))
    contents = read(memoryview(before) if unread else before, *results, WIRE.write_user("y"))["contents"]
    assert contents[2]["parts"] == [
        {"functionResponse": {"name": "add", "response": {"result": "r0"}}},
        {"functionResponse": {"id": "c2", "name": "look", "response": {"error": "r1"}}},
        {"functionResponse": {"name": "add", "response": {"result": "r2"}}},
    ]
    assert contents[3] == {"role": "user", "parts": [{"text": "y"}]}


def test_a_result_finds_its_call_also_when_the_answer_goes_in_another_form() -> None:
    answer = native(b'{"functionCall":{"name":"a"},%s}' % SIGNED, b'{"functionCall":{"name":"b"}}')
    first, second = WIRE.view(answer).calls
    bare = WIRE.remove_opaque(answer)
    assert bare is not None
    assert ids(bare) != [first.id, second.id]
    results = [WIRE.write_result(call.id, call.name, error=False, name=call.name) for call in (second, first)]
    contents = read(WIRE.write_user("x"), bare, *results)["contents"]
    assert [part["functionResponse"]["name"] for part in contents[2]["parts"]] == ["a", "b"]


def test_a_result_without_a_name_has_that_of_its_call() -> None:
    contents = read(WIRE.write_user("x"), native(OTHER), WIRE.write_result("c2", "5", error=False))["contents"]
    assert contents[2]["parts"][0]["functionResponse"] == {"id": "c2", "name": "look", "response": {"result": "5"}}


def test_a_result_without_a_call_is_sent_after_the_others() -> None:
    stray = WIRE.write_result("call_000000000000_7", "stray", error=False, name="s")
    result = WIRE.write_result("c2", "5", error=False, name="look")
    contents = json.loads(sent(WIRE.write_user("x"), native(OTHER), stray, result))["contents"]
    assert [part["functionResponse"]["name"] for part in contents[2]["parts"]] == ["look", "s"]
    assert json.loads(sent(stray))["contents"][0]["parts"][0]["functionResponse"]["name"] == "s"


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (b'{"result":"5"}', "5"),
        (b'{"error":"no"}', "no"),
        (b'{"output":"5"}', "5"),
        (b'{"result":5}', '{"result":5}'),
        (b'{"a":1}', '{"a":1}'),
        (b"5", "5"),
    ],
)
def test_what_a_result_says(response: bytes, text: str) -> None:
    part = b'{"functionResponse":{"id":"c","name":"look","response":%s}}' % response
    view = WIRE.view(b'{"role":"user","parts":[%s]}' % part)
    assert (view.role, view.call_id, view.name, view.text) == ("tool", "c", "look", text)


def test_a_result_that_is_cut_keeps_its_name() -> None:
    entry = Entry(role="tool", wire="gemini", native=WIRE.write_result("c2", "x" * 999, error=False, name="look"), at=1)
    cut = shorten_entry(entry, 60).native
    assert len(cut) < 300
    assert (WIRE.view(cut).name, WIRE.view(cut).call_id) == ("look", "c2")


def test_what_is_redacted_still_fits_between_its_neighbours() -> None:
    answer = native(b'{"text":"secret"}', CALL, OTHER)
    results = [WIRE.write_result(call.id, "secret", error=False, name=call.name) for call in WIRE.view(answer).calls]
    said = [("user", WIRE.write_user("secret")), ("assistant", answer), *(("tool", result) for result in results)]
    hidden = [redact(Entry(role=role, wire="gemini", native=each, at=1), "[gone]") for role, each in said]
    assert ids(hidden[1]) == ids(answer)
    contents = read(*hidden)["contents"]
    assert "secret" not in json.dumps(contents)
    assert [content["role"] for content in contents] == ["user", "model", "user"]


# What a user says


def test_what_is_a_part() -> None:
    for part in ({"text": "x"}, {"inlineData": {}}, {"fileData": {}}, {"later": 1}):
        assert WIRE.is_part(part)
    for part in ({}, {"type": "text", "text": "x"}, {"functionResponse": {}}, {"functionCall": {}}):
        assert not WIRE.is_part(part)


def test_events_and_system_messages_are_quoted_in_the_users_voice() -> None:
    told = [WIRE.render(event("</event> x", source="app", at=1), Quirks()), WIRE.render(system("S", at=1), Quirks())]
    told += [WIRE.write_instruction("I"), WIRE.quote("left_out", "L")]
    contents = read(*[each for each in told if each is not None])["contents"]
    texts = [content["parts"][0]["text"] for content in contents]
    assert texts[0].count("</event>") == 1
    assert texts[1:] == [
        "<system>\nS\n</system>",
        "<instruction>\nI\n</instruction>",
        "<left_out>\nL\n</left_out>",
    ]
    assert {content["role"] for content in contents} == {"user"}


def test_an_empty_answer_is_not_sent() -> None:
    assert WIRE.render(Entry(role="assistant", wire="gemini", native=native(), at=1, mark="empty"), Quirks()) is None


@given(st.text())
@example("\ud83d")
def test_any_text_is_sent(text: str) -> None:
    assert len(json.loads(sent(WIRE.write_user(text), system=text, tools=(add,)))["contents"]) == 1


# Requests


def test_a_request_with_nothing_but_contents() -> None:
    assert sent(WIRE.write_user("x")) == b'{"contents":[{"role":"user","parts":[{"text":"x"}]}]}'


def test_the_preamble() -> None:
    found = read(system="S", tools=(add,))
    assert found["systemInstruction"] == {"parts": [{"text": "S"}]}
    (declared,) = found["tools"][0]["functionDeclarations"]
    assert (declared["name"], declared["description"]) == ("add", "Add two numbers.")
    assert declared["parametersJsonSchema"]["type"] == "object"
    assert "systemInstruction" not in read(system="  ")


def test_options_go_as_they_are_and_tools_beside_ours() -> None:
    options = {"generationConfig": {"temperature": 0}, "cachedContent": None, "tools": [{"googleSearch": {}}]}
    found = read(options=options, tools=(add,))
    assert found["generationConfig"] == {"temperature": 0}
    assert "cachedContent" not in found
    assert [list(tool) for tool in found["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert list(found)[-1] == "contents"
    with pytest.raises(InputError, match="list"):
        sent(options={"tools": {}})


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"generationConfig": {"maxOutputTokens": 5}}, 5),
        ({"max_tokens": 7}, 7),
        ({"generationConfig": {"maxOutputTokens": "x"}}, None),
        ({"generationConfig": 5}, None),
        ({}, None),
    ],
)
def test_how_long_an_answer_may_be(options: dict[str, Any], limit: int | None) -> None:
    assert answer_token_limit(options) == limit


# Signatures


def test_without_signatures() -> None:
    thought = b'{"text":"Hm.","thought":true}'
    answer = native(thought, b'{"text":"a",%s}' % SIGNED, TEXT, b'{"text":"",%s}' % SIGNED)
    assert WIRE.remove_opaque(answer) == native(b'{"text":"a"}', TEXT)
    assert WIRE.remove_opaque(native(TEXT, CALL)) == native(TEXT, CALL)
    assert WIRE.remove_opaque(native(thought, b'{"text":"",%s}' % SIGNED)) is None


# Usage


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (
            b'{"promptTokenCount":12,"cachedContentTokenCount":4,"candidatesTokenCount":71,"toolUsePromptTokenCount":65,'
            b'"thoughtsTokenCount":89,"totalTokenCount":237,"promptTokensDetails":[]}',
            Usage(input=77, output=160, cached=4, reasoning=89),
        ),
        (b'{"promptTokenCount":"12","candidatesTokenCount":null}', Usage(input=12)),
        (b'{"prompt_tokens":5}', Usage()),
        (b'{"promptTokenCount":"many"}', Usage()),
        (b"[", Usage()),
        (b"null", Usage()),
    ],
)
def test_usage(raw: bytes, usage: Usage) -> None:
    assert WIRE.read_usage(raw) == usage


# What a server refuses


def learnt(message: str, *natives: bytes, known: Quirks = Quirks()) -> Quirks | None:  # noqa: B008
    error = json.dumps({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}})
    return WIRE.learn_from_error(error.encode(), natives or (native(CALL), native(OTHER)), known)


def unknown(name: str, where: str) -> str:
    return f"Invalid JSON payload received. Unknown name \"{name}\" at '{where}': Cannot find field."


@pytest.mark.parametrize(
    "message",
    [
        "Corrupted thought signature.",
        "Invalid thought signature.",
        "Unable to submit request because Thought signature is not valid.. Learn more",
        "Invalid value at 'contents[1].parts[0].thought_signature' (TYPE_BYTES), Base64 decoding failed for \"x\"",
    ],
)
def test_signatures_that_are_refused_are_void_once(message: str) -> None:
    assert learnt(message) == Quirks(opaque_void=2)
    assert learnt(message, known=Quirks(opaque_void=2)) is None


def test_a_missing_signature_is_stood_in_for_in_the_turn_that_runs() -> None:
    message = "Function call is missing a thought_signature in functionCall parts."
    quirks = learnt(message)
    assert quirks == Quirks(needs_signatures=True)
    assert learnt(message, known=Quirks(needs_signatures=True)) is None
    result = WIRE.write_result("c2", "5", error=False, name="look")
    signed = native(b'{"functionCall":{"id":"c2","name":"look"},%s}' % SIGNED)
    exchange = (WIRE.write_user("x"), native(OTHER, OTHER), result, result)
    body = json.loads(sent(*exchange, *exchange, signed, result, quirks=quirks))
    check(body, signatures=True)
    stood = [part.get("thoughtSignature") for content in body["contents"] for part in content["parts"]]
    assert stood[:7] == [None] * 6 + ["skip_thought_signature_validator"]
    assert stood[7:] == [None, None, None, "c2ln", None]


def test_fields_that_a_server_does_not_know_are_left_out() -> None:
    message = unknown("id", "contents[1].parts[0].function_call") + "\n" + unknown("odd", "contents[2].parts[0]")
    quirks = learnt(message, native(OTHER), native(TEXT))
    assert quirks == Quirks(fields=("id", "odd"))
    result = WIRE.write_result("c2", "5", error=False, name="look")
    args = b'{"functionCall":{"id":"c2","name":"look","args":{"id":"stays"}}}'
    contents = read(WIRE.write_user("x"), native(args, TEXT), result, quirks=quirks)["contents"]
    assert contents[1]["parts"] == [{"functionCall": {"name": "look", "args": {"id": "stays"}}}, {"text": "Hi."}]
    assert "id" not in contents[2]["parts"][0]["functionResponse"]


def test_the_older_field_of_a_schema_is_taken_where_the_newer_one_is_not_known() -> None:
    quirks = learnt(unknown("parametersJsonSchema", "tools[0].function_declarations[0]"))
    assert quirks == Quirks(fields=("parametersJsonSchema",))
    (declared,) = read(tools=(add,), quirks=quirks)["tools"][0]["functionDeclarations"]
    assert list(declared) == ["name", "description", "parameters"]


def test_half_an_emoji_that_is_refused_is_sent_whole() -> None:
    quirks = learnt("Invalid JSON payload received. Lone surrogate.")
    assert quirks == Quirks(no_surrogates=True)
    entry = Entry(role="assistant", wire="gemini", native=native(b'{"text":"\\ud83d"}'), at=1)
    assert WIRE.render(entry, quirks) == native(b'{"text":"\\ufffd"}')
    assert WIRE.render(entry, Quirks()) == entry.native


@pytest.mark.parametrize(
    "message",
    [
        "Please use a valid role: user, model.",
        unknown("temprature", "generation_config"),
        unknown("text", "contents[0].parts[0]"),
        unknown("never_sent", "contents[0].parts[0]"),
        unknown("const", "tools[0].function_declarations[0].parameters"),
    ],
)
def test_other_refusals_teach_nothing(message: str) -> None:
    assert learnt(message) is None


def test_what_is_known_is_not_learnt_again() -> None:
    message = unknown("id", "contents[1].parts[0].function_call")
    assert learnt(message, native(OTHER), known=Quirks(fields=("id",))) is None


def test_an_answer_is_its_own_view() -> None:
    answer: Answer = WIRE.parse(body(b"[%s,%s]" % (TEXT, CALL)))
    assert answer.native is not None
    assert WIRE.view(answer.native) == answer.view
