"""The rules of the OpenAI Responses endpoint: each is broken once, alone, and what looks like a break passes."""

from typing import Any

import pytest

from longtalk.testing.wires.openai_responses import MAX_OUTPUT, check
from longtalk.testing.wires.validate import validate
from longtalk.testing.wires.violation import WireViolation

THOUGHT = {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}, "strict": False}


def user(content: Any = "Hi.", **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def call(n: int = 1, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"call_{n}", "name": "add", "arguments": "{}", **more}


def result(n: int = 1, output: Any = "5", **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{n}", "output": output, **more}


def custom(n: int = 1) -> dict[str, Any]:
    return {"type": "custom_tool_call", "call_id": f"call_{n}", "name": "sing", "input": "la"}


def request(*items: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "store": False, "input": list(items) or [user()], **more}


def refused(rule: str, body: Any, match: str | None = None) -> None:
    with pytest.raises(WireViolation, match=match) as caught:
        check(body)
    assert caught.value.rule == rule


def test_a_whole_conversation_passes() -> None:
    items = [
        user(),
        {"role": "developer", "content": "Be brief."},
        {"role": "system", "content": [{"type": "input_text", "text": "Be kind."}]},
        THOUGHT,
        THOUGHT,
        call(1, status="completed", later=1),
        call(2),
        result(2, [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}]),
        result(1),
        THOUGHT,
        SEARCH,
        {**SAID, "phase": "final_answer", "status": "completed"},
        {"type": "later_item", "x": 1},
        {"type": "compaction", "encrypted_content": "gAAA"},
        user([{"type": "input_text", "text": "And?"}, {"type": "input_file", "file_id": "f"}]),
        {"role": "assistant", "content": "Fine."},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"type": "compaction_trigger"},
    ]
    tools = [TOOL, {"type": "web_search"}, {"type": "custom", "name": "sing"}]
    check(request(*items, tools=tools, stream=True, include=["reasoning.encrypted_content"]))
    check({"model": "m", "input": "Hello."})
    validate(b'{"model":"m","input":[{"role":"user","content":"x"}]}', wire="openai-responses")


def test_r1_a_call_has_its_output() -> None:
    refused("R1", request(user(), call()), "No tool output found for function call call_1")
    refused("R1", request(user(), call(1), call(2), result(2), user()), "call_1")
    refused("R1", request(user(), custom(), user()), "custom tool call call_1")
    refused("R1", request(user(), {"type": "computer_call", "call_id": "c", "action": {}}), "computer call c")
    check(request(user(), {"type": "shell_call", "call_id": "c"}, {"type": "shell_call_output", "call_id": "c"}))


def test_r2_an_output_has_its_call_before_it() -> None:
    refused("R2", request(user(), result()), "No tool call found for function call output with call_id call_1")
    refused("R2", request(user(), result(), call()), "call_1")
    refused("R2", request(user(), call(), result(), result()), "call_1")
    # Each kind of call has its own kind of output.
    refused("R2", request(user(), custom(), result()), "call_1")
    check(request(user(), custom(), {**result(), "type": "custom_tool_call_output"}))
    check(request(result(), store=True, previous_response_id="resp_1"))
    check(request(result(), store=True, conversation="conv_1"))


@pytest.mark.parametrize(
    "after",
    [[], [user()], [THOUGHT], [{**result(), "type": "shell_call_output"}], [{**SAID, "status": "incomplete"}, user()]],
)
def test_r3_reasoning_is_followed_by_what_it_led_to(after: list[Any]) -> None:
    refused("R3", request(user(), THOUGHT, *after), "without its required following item")


def test_r4_reasoning_and_what_it_led_to_have_ids_both_or_neither() -> None:
    known = {**THOUGHT, "id": "rs_1"}
    refused(
        "R4", request(user(), THOUGHT, {**SAID, "id": "msg_1"}, store=True), "without its required 'reasoning' item"
    )
    check(request(user(), known, {**SAID, "id": "msg_1"}, store=True))
    check(request(user(), known, SAID, store=True))
    check(request(user(), THOUGHT, SEARCH, SAID))


def test_r5_nothing_is_called_by_its_id_when_nothing_is_stored() -> None:
    refused("R5", request(user(), {**SAID, "id": "msg_1"}), "Item with id 'msg_1' not found")
    refused("R5", request(user(), {**THOUGHT, "id": "rs_1"}, SAID))
    refused("R5", request(user(), {"type": "item_reference", "id": "msg_1"}))
    body = request(user(), {**SAID, "id": "msg_1"})
    del body["store"]
    check(body)


def test_r6_ids_are_unique_and_short() -> None:
    twice = [{**SAID, "id": "msg_1"}, {**SAID, "id": "msg_1"}]
    refused("R6", request(user(), *twice, store=True), "Duplicate item found with id msg_1")
    refused("R6", request(user(), {**SAID, "id": "m" * 65}, store=True), "64")
    refused("R6", request(user(), {**SAID, "id": ""}, store=True))
    refused("R6", request(user(), {**call(), "call_id": "c" * 65}))
    check(request(user(), {**SAID, "id": "m" * 64}, store=True))


@pytest.mark.parametrize("sealed", [None, "", 5])
def test_r7_reasoning_goes_back_in_its_encrypted_form(sealed: Any) -> None:
    refused("R7", request(user(), {**THOUGHT, "encrypted_content": sealed}, SAID), "could not be verified")
    refused("R7", request(user(), {"type": "reasoning", "encrypted_content": "gAAA"}, SAID), "summary")
    refused(
        "field", request(user(), {**THOUGHT, "status": "completed"}, SAID), r"Unknown parameter: 'input\[1\].status'"
    )
    check(request(user(), {"id": "rs_1", "type": "reasoning", "summary": []}, SAID, store=True))


def test_r8_a_conversation_is_kept_in_one_way_only() -> None:
    refused("R8", request(previous_response_id="r", conversation="c"), "Mutually exclusive")


@pytest.mark.parametrize("message", [{**SAID, "phase": "thinking"}, user(phase="commentary")])
def test_r10_a_phase_is_one_of_an_answer(message: Any) -> None:
    refused("R10", request(user(), message))
    check(request(user(), {**SAID, "phase": None}))


def test_r11_compaction_is_asked_for_last() -> None:
    refused("R11", request({"type": "compaction_trigger"}, user()), "last input item")
    refused("R11", request(user(), {"type": "compaction"}), "encrypted_content")


def test_r12_an_output_has_a_longest_length() -> None:
    check(request(user(), call(), result(1, "x" * MAX_OUTPUT)))
    refused("R12", request(user(), call(), result(1, "x" * (MAX_OUTPUT + 1))), "string too long")
    refused("R12", request(user(), call(), result(1, [{"type": "input_text", "text": "x" * (MAX_OUTPUT + 1)}])))


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "add", "parameters": {}}},
        {"type": "function", "name": "add", "function": {}},
        {"type": "function", "name": "no good"},
        {"type": "function", "name": "add", "parameters": []},
        {"type": "custom"},
    ],
)
def test_r13_tools_are_flat(tool: Any) -> None:
    refused("R13", request(tools=[tool]))


@pytest.mark.parametrize("tools", [{}, [5], [{"name": "add"}]])
def test_tools_are_objects_with_a_type(tools: Any) -> None:
    refused("tools", request(tools=tools))


@pytest.mark.parametrize(
    ("rule", "body"),
    [
        ("body", []),
        ("model", {"input": "x"}),
        ("model", {"model": "", "input": "x"}),
        ("input", {"model": "m"}),
        ("input", {"model": "m", "input": []}),
        ("input", {"model": "m", "input": ""}),
        ("input", request(5)),
        ("input", request({"content": "x"})),
        ("input", request({"type": ""})),
        ("input", request(user(), {**call(), "call_id": ""}, result())),
        ("input", request(user(), {**call(), "arguments": {}}, result())),
        ("input", request(user(), call(), {**result(), "call_id": None})),
        ("input", request(user(), call(), result(1, None))),
        ("input", request(user(), {"type": "image_generation_call", "result": "x"})),
        ("role", request({"role": "tool", "content": "x"})),
        ("content", request(user(None))),
        ("content", request(user([]))),
        ("content", request(user([{"type": "text", "text": "x"}]))),
        ("content", request(user([{"type": "output_text", "text": "x"}]))),
        ("content", request(user(["x"]))),
        ("content", request(user([{"type": "input_text"}]))),
        ("content", request(user(), {**SAID, "content": [{"type": "input_text", "text": "x"}]})),
        ("content", request(user(), call(), result(1, [{"type": "text", "text": "x"}]))),
        ("field", request(messages=[])),
        ("field", request(max_tokens=5)),
        ("field", request(store="no")),
        ("field", request(include="reasoning.encrypted_content")),
        ("field", request(include=[5])),
    ],
)
def test_what_is_no_request_of_this_endpoint_is_refused(rule: str, body: Any) -> None:
    refused(rule, body)


@pytest.mark.parametrize("more", [{"previous_response_id": "resp_1"}, {"conversation": {"id": "conv_1"}}])
def test_a_result_may_answer_a_call_that_the_server_has(more: dict[str, Any]) -> None:
    check(request(result(), **more))
    refused("R1", request(call(), **more))


@pytest.mark.parametrize("more", [{"previous_response_id": 5}, {"conversation": 5}, {"conversation": {"id": 5}}])
def test_what_the_server_goes_on_with_has_a_name(more: dict[str, Any]) -> None:
    refused("R8", request(**more), "Invalid type")
