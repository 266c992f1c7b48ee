"""The Responses API, through OpenAI's own client and over every wire."""

from __future__ import annotations

import json
import threading
from typing import Any

import openai
import pytest

from longtalk.testing import AsyncScripted, says, validate
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve
from tests.service.test_runs import Waiting

PAY = {
    "type": "function",
    "name": "pay",
    "description": "Pay a bill.",
    "parameters": {"type": "object", "properties": {"sum": {"type": "integer"}}},
}
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}


def scripted(*answers: str, wire: str = "openai-chat") -> AsyncScripted:
    return AsyncScripted(*[says(answer, wire=wire) for answer in answers], wire=HTTP_WIRES[wire])


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_a_chain_remembers_over_every_wire(serve: Serve, wire: str) -> None:
    provider = scripted("Hello, Ada.", "You are Ada.", wire=wire)
    client = serve(m=provider).client()
    first = client.responses.create(model="m", input="I'm Ada.")
    second = client.responses.create(model="m", input="Who am I?", previous_response_id=first.id)
    assert (first.status, first.output_text, second.output_text) == ("completed", "Hello, Ada.", "You are Ada.")
    assert b"I'm Ada." in provider.requests[1]
    assert second.usage is not None
    assert second.usage.total_tokens == 15


def test_tokens_that_the_model_spent_on_reasoning_are_reported(serve: Serve) -> None:
    counts = {"prompt_tokens": 10, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 3}}
    step = says("Hello.", usage=counts)
    client = serve(m=AsyncScripted(step, step, wire=HTTP_WIRES["openai-chat"])).client()
    made = client.responses.create(model="m", input="Hi.")
    said = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi."}])
    assert made.usage is not None
    assert made.usage.output_tokens_details.reasoning_tokens == 3
    assert said.usage is not None
    assert said.usage.completion_tokens_details is not None
    assert said.usage.completion_tokens_details.reasoning_tokens == 3


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_a_stored_response_is_the_one_that_was_given(serve: Serve, wire: str) -> None:
    client = serve(m=scripted("Hello.", wire=wire)).client()
    made = client.responses.create(
        model="m", input="Hi.", instructions="Be brief.", metadata={"a": "b"}, temperature=0.5
    )
    found = client.responses.retrieve(made.id)
    times = {"created_at", "completed_at"}
    assert found.model_dump(exclude=times) == made.model_dump(exclude=times)
    assert (found.instructions, found.metadata, found.temperature) == ("Be brief.", {"a": "b"}, 0.5)


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_a_stream_has_all_its_events_with_one_id_and_numbers_without_gaps(serve: Serve, wire: str) -> None:
    client = serve(m=scripted("Hello there, Ada.", wire=wire)).client()
    events: list[Any] = list(client.responses.create(model="m", input="Hi.", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = list(dict.fromkeys(event.type for event in events))
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    responses = [event.response for event in events if hasattr(event, "response")]
    assert len({response.id for response in responses}) == 1
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == responses[-1].output_text == client.responses.retrieve(responses[-1].id).output_text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_the_client_runs_functions_and_the_chain_goes_on_with_their_results(
    serve: Serve, wire: str, stream: bool
) -> None:
    calls = says("I'll pay.", calls=[("c1", "pay", {"sum": 5})], wire=wire)
    provider = AsyncScripted(calls, says("Paid.", wire=wire), wire=HTTP_WIRES[wire])
    client: Any = serve(m=provider).client()
    if stream:
        with client.responses.stream(model="m", input="Pay 5.", tools=[PAY]) as events:
            asked = events.get_final_response()
    else:
        asked = client.responses.create(model="m", input="Pay 5.", tools=[PAY])
    message, call = asked.output
    assert (message.content[0].text, call.name, json.loads(call.arguments)) == ("I'll pay.", "pay", {"sum": 5})
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
    answer = client.responses.create(model="m", input=[result], tools=[PAY], previous_response_id=asked.id)
    assert answer.output_text == "Paid."
    assert b"done" in provider.requests[1]
    stored = client.responses.retrieve(asked.id)
    assert [item.id for item in stored.output] == [item.id for item in asked.output]
    assert client.responses.input_items.list(answer.id).data[0].call_id == call.call_id


def test_a_result_and_a_message_can_come_together(serve: Serve) -> None:
    provider = AsyncScripted(says(None, calls=[("c1", "pay", {})]), says("Fine."))
    client: Any = serve(m=provider).client()
    asked = client.responses.create(model="m", input="Pay.", tools=[PAY])
    both = [
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        {"role": "user", "content": "And now stop."},
    ]
    client.responses.create(model="m", input=both, tools=[PAY], previous_response_id=asked.id)
    assert [message["role"] for message in json.loads(provider.requests[1])["messages"]][-2:] == ["tool", "user"]


@pytest.mark.parametrize("more", [{}, {"store": False}, {"background": True}])
def test_a_response_can_not_follow_one_that_is_not_complete_yet(serve: Serve, more: dict[str, Any]) -> None:
    provider = Waiting(says("One two three.", pieces=3), says("Four."))
    client = serve(m=provider).client()
    first: Any = client.responses.create(model="m", input="Count.", background=True)
    assert provider.began.wait(60)
    with pytest.raises(openai.ConflictError) as caught:
        client.responses.create(model="m", input="Go on.", previous_response_id=first.id, **more)
    assert caught.value.code == "conversation_locked"
    assert caught.value.response.headers["retry-after"] == "1"
    patient = client.with_options(max_retries=5)
    threading.Timer(0.5, provider.go.set).start()
    second: Any = patient.responses.create(model="m", input="Go on.", previous_response_id=first.id, **more)
    while second.status in ("queued", "in_progress"):
        second = client.responses.retrieve(second.id)
    assert second.output_text == "Four."
    assert b"One two three." in provider.requests[1]


def test_two_responses_can_follow_the_same_one(serve: Serve) -> None:
    provider = scripted("One.", "Two.", "Other.", "Last.")
    client = serve(m=provider).client()
    first = client.responses.create(model="m", input="1")
    second = client.responses.create(model="m", input="2", previous_response_id=first.id)
    other = client.responses.create(model="m", input="2b", previous_response_id=first.id)
    assert b"Two." not in provider.requests[2]
    client.responses.create(model="m", input="3", previous_response_id=other.id)
    assert b"Other." in provider.requests[3]
    assert b"Two." not in provider.requests[3]
    assert client.responses.retrieve(second.id).output_text == "Two."


def test_a_conversation_goes_on_with_each_response_and_has_its_items(serve: Serve) -> None:
    provider = scripted("Hello, Ada.", "Ada.")
    client: Any = serve(m=provider).client()
    talk = client.conversations.create(metadata={"topic": "names"})
    client.responses.create(model="m", input="I'm Ada.", conversation=talk.id)
    client.responses.create(model="m", input="Who am I?", conversation={"id": talk.id})
    assert b"Hello, Ada." in provider.requests[1]
    items = client.conversations.items.list(talk.id, order="asc").data
    assert [item.content[0].text for item in items] == ["I'm Ada.", "Hello, Ada.", "Who am I?", "Ada."]


def test_what_is_not_to_be_stored_is_not(serve: Serve) -> None:
    served = serve(m=scripted("Hello."))
    client = served.client()
    made = client.responses.create(model="m", input="Hi.", store=False)
    assert made.output_text == "Hello."
    assert served.service.store.conversations("") == []
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_a_response_that_is_not_stored_can_follow_a_stored_one(serve: Serve, wire: str) -> None:
    provider = scripted("Hello, Ada.", "Two.", "You are Ada.", "Three.", wire=wire)
    served = serve(m=provider)
    client = served.client()
    first = client.responses.create(model="m", input="I'm Ada.")
    second = client.responses.create(model="m", input="2", previous_response_id=first.id)
    before = served.service.store.conversations("")
    apart = client.responses.create(model="m", input="Who am I?", previous_response_id=first.id, store=False)
    assert (apart.output_text, apart.previous_response_id) == ("You are Ada.", first.id)
    assert b"I'm Ada." in provider.requests[2]
    assert b"Two." not in provider.requests[2]
    assert served.service.store.conversations("") == before
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(apart.id)
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model="m", input="3", previous_response_id=apart.id)
    client.responses.create(model="m", input="3", previous_response_id=second.id)
    assert b"Who am I?" not in provider.requests[3]


def test_a_response_that_is_not_stored_can_follow_a_conversation(serve: Serve) -> None:
    provider = scripted("You are Ada.", "Hello.")
    served = serve(m=provider)
    client: Any = served.client()
    talk = client.conversations.create(items=[{"role": "user", "content": "I'm Ada."}])
    client.responses.create(model="m", input="Who am I?", conversation=talk.id, store=False)
    assert b"I'm Ada." in provider.requests[0]
    assert len(client.conversations.items.list(talk.id).data) == 1
    empty = client.conversations.create()
    client.responses.create(model="m", input="Hi.", conversation=empty.id, store=False)
    assert client.conversations.items.list(empty.id).data == []


IMAGE = [
    {"type": "input_text", "text": "the bill"},
    {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"},
]


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic", "gemini"])
def test_images_in_results_reach_the_provider_in_its_form(serve: Serve, wire: str) -> None:
    provider = AsyncScripted(
        says(None, calls=[("c1", "pay", {})], wire=wire), says("A bill.", wire=wire), wire=HTTP_WIRES[wire]
    )
    client: Any = serve(m=provider).client()
    asked = client.responses.create(model="m", input="Show.", tools=[PAY])
    result = {"type": "function_call_output", "call_id": asked.output[0].call_id, "output": IMAGE}
    client.responses.create(model="m", input=[result], tools=[PAY], previous_response_id=asked.id)
    validate(provider.requests[1], wire=wire)
    assert b"iVBORw0KGgo=" in provider.requests[1]
    assert b"the bill" in provider.requests[1]


@pytest.mark.parametrize(("wire", "other"), [("openai-chat", "openai-chat"), ("anthropic", "gemini")])
def test_images_in_results_that_a_provider_can_not_read_are_refused(serve: Serve, wire: str, other: str) -> None:
    asks = AsyncScripted(says(None, calls=[("c1", "pay", {})], wire=wire), wire=HTTP_WIRES[wire])
    client: Any = serve(one=asks, two=scripted("No.", wire=other)).client()
    asked = client.responses.create(model="one", input="Show.", tools=[PAY])
    result = {"type": "function_call_output", "call_id": asked.output[0].call_id, "output": IMAGE}
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model="two", input=[result], tools=[PAY], previous_response_id=asked.id)


def test_earlier_messages_can_come_with_the_input(serve: Serve) -> None:
    provider = scripted("Ada.", "Still Ada.")
    client: Any = serve(m=provider).client()
    history = [
        {"role": "user", "content": "I'm Ada."},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Who am I?"},
    ]
    made = client.responses.create(model="m", input=history)
    client.responses.create(model="m", input="And now?", previous_response_id=made.id)
    for request in provider.requests:
        assert b"I'm Ada." in request
        assert b"Hello." in request


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_the_answer_matches_a_schema(serve: Serve, wire: str) -> None:
    client: Any = serve(m=scripted('{"x": 3}', wire=wire)).client()
    form = {"format": {"type": "json_schema", "name": "point", "schema": POINT, "strict": True}}
    assert json.loads(client.responses.create(model="m", input="Where?", text=form).output_text) == {"x": 3}


def test_images_reach_the_provider_in_its_form(serve: Serve) -> None:
    provider = scripted("A dot.", wire="anthropic")
    client: Any = serve(m=provider).client()
    parts = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"},
    ]
    client.responses.create(model="m", input=[{"role": "user", "content": parts}])
    blocks = json.loads(provider.requests[0])["messages"][0]["content"]
    assert [block["type"] for block in blocks] == ["text", "image"]


def test_a_part_that_the_provider_can_not_read_is_refused(serve: Serve) -> None:
    client: Any = serve(m=scripted(wire="anthropic")).client()
    audio = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}
    with pytest.raises(openai.BadRequestError, match="input_audio") as caught:
        client.responses.create(model="m", input=[{"role": "user", "content": [audio]}])
    assert caught.value.param == "input[0].content"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("include", ["message.output_text.logprobs"]),
        ("top_logprobs", 3),
        ("prompt", {"id": "p"}),
        ("tools", [{"type": "web_search"}]),
        ("nonsense", 1),
    ],
)
def test_what_the_provider_can_not_do_is_refused_by_name(serve: Serve, field: str, value: Any) -> None:
    client = serve(m=scripted(wire="anthropic")).client()
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="m", input="Hi.", extra_body={field: value})
    assert str(caught.value.param).startswith(field)


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_options_reach_the_provider_under_its_own_names(serve: Serve, wire: str) -> None:
    provider = scripted("ok", wire=wire)
    client: Any = serve(m=provider).client()
    client.responses.create(
        model="m", input="Hi.", temperature=0.25, max_output_tokens=99, tools=[PAY], tool_choice="required"
    )
    body = json.loads(provider.requests[0])
    options = body.get("generationConfig", body)
    assert options["temperature"] == 0.25
    assert 99 in options.values()
    assert any(word in json.dumps(body) for word in ('"required"', '"any"', '"ANY"'))


def test_an_unknown_previous_response_is_an_error_of_its_own(serve: Serve) -> None:
    client = serve(m=scripted()).client()
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="m", input="Hi.", previous_response_id="resp_nothing")
    assert caught.value.code == "previous_response_not_found"


def test_a_deleted_response_is_gone_and_its_chain_with_the_last_one(serve: Serve) -> None:
    served = serve(m=scripted("One.", "Two."))
    client = served.client()
    first = client.responses.create(model="m", input="1")
    second = client.responses.create(model="m", input="2", previous_response_id=first.id)
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    assert client.responses.retrieve(second.id).output_text == "Two."
    client.responses.delete(second.id)
    assert served.service.store.conversations("") == []


TOOLS = [
    {"type": "namespace", "name": "bank", "description": "Money.", "tools": [PAY]},
    {"type": "custom", "name": "patch", "description": "Change a file.", "format": {"type": "text"}},
    {"type": "web_search", "external_web_access": False},
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_tools_in_other_forms_than_functions_are_called_in_theirs(serve: Serve, wire: str, stream: bool) -> None:
    calls = [("c1", "bank__pay", {"sum": 5}), ("c2", "patch", {"input": "+ a line"})]
    provider = AsyncScripted(says(None, calls=calls, wire=wire), says("Done.", wire=wire), wire=HTTP_WIRES[wire])
    client: Any = serve(m=provider).client()
    given = {"model": "m", "tools": TOOLS}
    if stream:
        *_, last = client.responses.create(**given, input="Pay and patch.", stream=True)
        asked = last.response
        *_, again = client.responses.retrieve(asked.id, stream=True)
        assert again.response.output == asked.output
    else:
        asked = client.responses.create(**given, input="Pay and patch.")
    pay, patch = asked.output
    assert (pay.type, pay.namespace, pay.name, json.loads(pay.arguments)) == (
        "function_call",
        "bank",
        "pay",
        {"sum": 5},
    )
    assert (patch.type, patch.name, patch.input) == ("custom_tool_call", "patch", "+ a line")
    assert client.responses.retrieve(asked.id).output == asked.output
    results = [
        {"type": "function_call_output", "call_id": pay.call_id, "output": "paid"},
        {"type": "custom_tool_call_output", "call_id": patch.call_id, "output": "patched"},
    ]
    # As clients do that keep the conversation themselves.
    items = [
        {"role": "user", "content": "Pay and patch."},
        *(each.model_dump(exclude_none=True) for each in asked.output),
    ]
    told = client.responses.create(**given, input=[*items, *results], store=False)
    assert told.output_text == "Done."
    for part in (b"bank__pay", b"+ a line", b"paid", b"patched"):
        assert part in provider.requests[1]


@pytest.mark.parametrize("surface", ["responses", "chat"])
def test_an_image_for_a_model_without_images_is_a_400_that_names_the_field(serve: Serve, surface: str) -> None:
    client: Any = serve().client()
    url = "data:image/png;base64,iVBORw0KGgo="
    with pytest.raises(openai.BadRequestError) as caught:
        if surface == "responses":
            content: list[Any] = [{"type": "input_image", "image_url": url, "detail": "auto"}]
            client.responses.create(model="local:135m", input=[{"role": "user", "content": content}])
        else:
            part = {"type": "image_url", "image_url": {"url": url}}
            client.chat.completions.create(model="local:135m", messages=[{"role": "user", "content": [part]}])
    assert caught.value.param == ("input[0].content" if surface == "responses" else "messages[0].content")
    assert "images" in caught.value.message


@pytest.mark.parametrize(("wire", "is_passed_on"), [(wire, wire != "gemini") for wire in HTTP_WIRES])
def test_a_strict_function_is_strict_for_the_provider(serve: Serve, wire: str, is_passed_on: bool) -> None:
    provider = scripted("One.", "Two.", "Three.", wire=wire)
    client: Any = serve(m=provider).client()
    function = {"name": "pay", "parameters": POINT, "strict": True}
    client.responses.create(model="m", input="Hi.", tools=[{"type": "function", **function}])
    client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "Hi."}], tools=[{"type": "function", "function": function}]
    )
    client.responses.create(model="m", input="Hi.", tools=[{"type": "function", **function, "strict": False}])
    assert [b'"strict":true' in request for request in provider.requests] == [is_passed_on, is_passed_on, False]
    for request in provider.requests:
        validate(request, wire=wire)


@pytest.mark.parametrize("kind", ["function_call_output", "custom_tool_call_output"])
def test_the_result_of_an_unknown_call_is_a_400_that_names_the_input(serve: Serve, kind: str) -> None:
    client: Any = serve(m=scripted("Hello.", "Hm.")).client()
    first = client.responses.create(model="m", input="Hi.")
    for more in ({"previous_response_id": first.id}, {"store": False}, {}):
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(model="m", input=[{"type": kind, "call_id": "c9", "output": "x"}], **more)
        assert caught.value.param == "input[0].call_id"
        assert "c9" in caught.value.message
    result = {"role": "tool", "tool_call_id": "c9", "content": "x"}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="m", messages=[result], extra_body={"conversation": "a"})
    assert caught.value.param == "messages[0].tool_call_id"
