"""The rules of Gemini's generateContent endpoint: each is broken once, alone, and what looks like a break passes."""

import json
from typing import Any

import pytest

from longtalk.testing import validate
from longtalk.testing.wires.gemini import check
from longtalk.testing.wires.violation import WireViolation

TOOL = {"functionDeclarations": [{"name": "add", "parametersJsonSchema": {"type": "object", "properties": {}}}]}
SIGNED = {"thoughtSignature": "c2lnbmVk"}


def text(words: str = "Hello.", **more: Any) -> dict[str, Any]:
    return {"text": words, **more}


def call(name: str = "add", **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {}, **more}}


def response(name: str = "add", **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"result": 3}, **more}}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts) or [text()]}


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts) or [text()]}


def request(*contents: Any, **more: Any) -> dict[str, Any]:
    return {"contents": list(contents) or [user()], **more}


def refused(rule: str, body: Any, match: str | None = None, **options: bool) -> None:
    with pytest.raises(WireViolation, match=match) as caught:
        check(body, **options)
    assert caught.value.rule == rule


def test_a_whole_conversation_passes() -> None:
    body = request(
        user(),
        model(text("Hm.", thought=True), text(), {**call(), **SIGNED}, call("sub", id="c2")),
        user(response(), response("sub", id="c2")),
        model({**call(), **SIGNED}),
        user(response()),
        model(text("a"), text("", **SIGNED), {"executableCode": {"language": "PYTHON", "code": "1"}}, {"later": 1}),
        user(),
        user(text(), {"inlineData": {"mimeType": "image/png", "data": "AA=="}}),
        systemInstruction={"parts": [text()]},
        tools=[TOOL, {"googleSearch": {}}],
        generationConfig={"temperature": 1},
        later={},
    )
    check(body, signatures=True)
    validate(json.dumps(body).encode(), wire="gemini")


def test_one_content_needs_no_role() -> None:
    check(request({"parts": [text()]}))
    refused("G5", request({"parts": [text()]}, model(), user()), "valid role")


@pytest.mark.parametrize("body", [[], "x", None])
def test_a_request_is_an_object(body: Any) -> None:
    refused("body", body)


@pytest.mark.parametrize("body", [{}, {"contents": []}, {"contents": "x"}])
def test_there_are_contents(body: Any) -> None:
    refused("contents", body, "not specified")


@pytest.mark.parametrize("name", ["messages", "system", "stream", "max_tokens"])
def test_fields_of_other_wires_are_unknown(name: str) -> None:
    refused("fields", request(**{name: 1}), f'Unknown name "{name}"')


@pytest.mark.parametrize("role", ["assistant", "system", "function", "tool", None, 1])
def test_there_are_two_roles(role: Any) -> None:
    refused("G5", request(user(), {"role": role, "parts": [text()]}), "valid role: user, model")


def test_a_content_is_an_object_of_role_and_parts() -> None:
    refused("contents", request("x"))
    refused("fields", request({**user(), "name": "Ada"}), 'Unknown name "name"')


@pytest.mark.parametrize("parts", [[], None, "x"])
def test_a_content_has_parts(parts: Any) -> None:
    refused("G5", request({"role": "user", "parts": parts}), "contents.parts must not be empty")


@pytest.mark.parametrize("part", [{}, {"thought": True}])
def test_a_part_has_data(part: Any) -> None:
    refused("G5", request(user(part)), "must have one initialized field")


def test_a_signature_alone_is_data_enough() -> None:
    check(request(user(), model({**SIGNED}), user()))


@pytest.mark.parametrize("part", ["x", None, {"text": 1}, {"text": "x", "inlineData": {}}])
def test_a_part_is_one_thing(part: Any) -> None:
    refused("G5", request(user(part)))


@pytest.mark.parametrize("name", ["type", "id"])
def test_parts_have_neither_types_nor_ids(name: str) -> None:
    refused("fields", request(user(text(**{name: "text"}))), f'Unknown name "{name}"')


def test_a_text_is_not_empty_unless_it_is_signed() -> None:
    refused("G5", request(user(), model(text("")), user()), "empty text parameter")
    check(request(user(), model(text("", **SIGNED)), user()))
    check(request(user(), model(text(" ")), user()))


@pytest.mark.parametrize("signature", ["not base64!", "abc", 5, None])
def test_a_signature_is_base64(signature: Any) -> None:
    refused("G4", request(user(), model(text(thoughtSignature=signature)), user()), "Base64 decoding failed")


def test_the_documented_stand_ins_are_signatures() -> None:
    for stand_in in ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go"):
        check(request(user(), model({**call(), "thoughtSignature": stand_in}), user(response())), signatures=True)


# Calls


def test_as_many_responses_as_calls() -> None:
    refused("G1", request(user(), model(call(), call()), user(response())), "number of function response parts")
    refused("G1", request(user(), model(call()), user(response(), response())), "number of function response parts")
    split = request(user(), model(call(), call()), user(response()), user(response()))
    refused("G1", split, "number of function response parts")


def test_nothing_stands_beside_a_response() -> None:
    refused("G1", request(user(), model(call()), user(response(), text())))


def test_responses_answer_the_calls_in_their_order() -> None:
    refused("G1", request(user(), model(call("a"), call("b")), user(response("b"), response("a"))), "does not answer")
    refused("G1", request(user(), model(call(id="1")), user(response(id="2"))), "does not answer '1'")
    refused("G1", request(user(), model(call()), user(response(id="2"))), "does not answer")
    refused("G1", request(user(), model(call(id="1")), user(response())), "does not answer '1'")


def test_a_response_comes_right_behind_its_call() -> None:
    refused("G2", request(user(response())), "immediately after a function call turn")
    refused("G2", request(user(), model(), user(response())), "immediately after a function call turn")
    refused("G2", request(user(), model(call()), user(), user(response())))
    refused("G2", request(user(), model(call())))


def test_a_call_comes_behind_the_users_words_or_a_response() -> None:
    match = "after a user turn or after a function response turn"
    refused("G3", request(model(call()), user(response())), match)
    refused("G3", request(user(), model(), model(call()), user(response())), match)


def test_a_request_ends_with_the_user() -> None:
    refused("G3", request(user(), model()), "end with a user role")


@pytest.mark.parametrize(
    "bad",
    [
        {"functionCall": "x"},
        {"functionCall": {"args": {}}},
        {"functionCall": {"name": ""}},
        {"functionCall": {"name": "add", "args": []}},
        {"functionCall": {"name": "add", "id": 5}},
        response(),
    ],
)
def test_a_call_has_a_name_and_arguments_and_is_the_models(bad: Any) -> None:
    refused("G5", request(user(), model(bad), user(response())))


@pytest.mark.parametrize("bad", [{"functionResponse": {"name": "add"}}, response(response="3"), call()])
def test_a_response_has_a_name_and_an_object_and_is_the_users(bad: Any) -> None:
    refused("G5", request(user(), model(call()), user(bad)))


def test_the_first_call_of_each_answer_of_this_turn_is_signed() -> None:
    signed = {**call(), **SIGNED}
    earlier = [user(), model(call()), user(response()), model()]
    check(request(*earlier, user(), model(signed, call()), user(response(), response())), signatures=True)
    bare = request(user(), model(signed), user(response()), model(call()), user(response()))
    check(bare)
    refused("G4", bare, "missing a thought_signature.*`add` , position 4", signatures=True)
    late = request(user(), model(call(), signed), user(response(), response()))
    refused("G4", late, "position 2", signatures=True)


# What stands above


@pytest.mark.parametrize("system", ["Be brief.", {}, {"parts": []}, {"parts": [{"text": ""}]}, {"parts": ["x"]}])
def test_the_system_instruction_is_a_content_of_texts(system: Any) -> None:
    refused("G5", request(systemInstruction=system))


@pytest.mark.parametrize(
    "tools",
    [
        {},
        [{}],
        ["x"],
        [{"functionDeclarations": []}],
        [{"functionDeclarations": ["x"]}],
        [{"functionDeclarations": [{"name": "9 lives"}]}],
        [{"functionDeclarations": [{"name": "a"}, {"name": "a"}]}],
        [{"functionDeclarations": [{"name": "a"}]}, {"functionDeclarations": [{"name": "a"}]}],
        [{"functionDeclarations": [{"name": "a", "parameters": {"type": "string"}}]}],
        [
            {
                "functionDeclarations": [
                    {"name": "a", "parameters": {"type": "OBJECT"}, "parametersJsonSchema": {"type": "object"}}
                ]
            }
        ],
    ],
)
def test_tools_are_declared_once_and_with_a_schema_of_an_object(tools: Any) -> None:
    refused("tools", request(tools=tools))


@pytest.mark.parametrize("key", ["input_schema", "type", "strict"])
def test_declarations_of_other_wires_are_unknown(key: str) -> None:
    refused("fields", request(tools=[{"functionDeclarations": [{"name": "a", key: {}}]}]), f'"{key}" at \'tools')


@pytest.mark.parametrize("name", ["generationConfig", "toolConfig"])
def test_settings_are_objects(name: str) -> None:
    refused(name, request(**{name: []}))
