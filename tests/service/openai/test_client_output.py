"""The form of an answer that a client asks for, over providers that can and can't be held to a schema."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from pydantic import BaseModel

from longtalk.testing import AsyncScripted, says
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}
CUT = {
    "openai-chat": "length",
    "anthropic": "max_tokens",
    "gemini": "MAX_TOKENS",
    "openai-responses": "max_output_tokens",
}


def ask(client: Any, *, strict: bool | None, **more: Any) -> Any:
    form = {"type": "json_schema", "name": "point", "schema": SCHEMA, "strict": strict}
    return client.responses.create(model="m", input="Where?", text={"format": form}, **more)


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_an_answer_of_a_wrong_form_is_sent_back_and_only_the_right_one_is_output(serve: Serve, wire: str) -> None:
    steps = [says("Somewhere.", wire=wire), says('{"x": 1}', wire=wire)]
    client: Any = serve(m=AsyncScripted(*steps, *steps, wire=HTTP_WIRES[wire])).client()
    made = ask(client, strict=True)
    assert (made.status, made.output_text, len(made.output)) == ("completed", '{"x": 1}', 1)
    assert client.responses.retrieve(made.id) == made
    last = list(ask(client, strict=True, stream=True))[-1].response
    assert last.output_text == '{"x": 1}'
    assert client.responses.retrieve(last.id) == last


def test_the_client_parses_an_answer_that_was_right_only_the_second_time(serve: Serve) -> None:
    class Point(BaseModel):
        x: int

    client = serve(m=AsyncScripted(says("Somewhere."), says('{"x": 1}'))).client()
    made = client.responses.parse(model="m", input="Where?", text_format=Point)
    assert made.output_parsed == Point(x=1)


def test_what_was_sent_back_is_in_no_list_of_items(serve: Serve) -> None:
    client: Any = serve(m=AsyncScripted(says("Somewhere."), says('{"x": 1}'))).client()
    talk = client.conversations.create()
    made = ask(client, strict=True, conversation=talk.id)
    listed = client.conversations.items.list(talk.id, order="asc").data
    assert [item.content[0].text for item in listed] == ["Where?", '{"x": 1}']
    assert listed[1].id == made.output[0].id


def test_a_strict_answer_that_never_has_the_form_is_an_error_that_clients_do_not_repeat(serve: Serve) -> None:
    provider = AsyncScripted(*[says("Somewhere.")] * 9)
    client = serve(m=provider).client(max_retries=2)
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        ask(client, strict=True)
    assert (caught.value.code, len(provider.requests)) == ("invalid_output", 3)


@pytest.mark.parametrize("strict", [False, None])
def test_an_answer_without_strict_is_passed_on_as_it_is(serve: Serve, strict: bool | None) -> None:
    provider = AsyncScripted(says("Somewhere."))
    made = ask(serve(m=provider).client(), strict=strict)
    assert (made.status, made.output_text, len(provider.requests)) == ("completed", "Somewhere.", 1)


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_a_strict_answer_that_was_cut_off_is_incomplete_and_no_error(serve: Serve, wire: str) -> None:
    client = serve(m=AsyncScripted(says('{"x"', finish=CUT[wire], wire=wire), wire=HTTP_WIRES[wire])).client()
    made = ask(client, strict=True)
    assert (made.status, made.output_text) == ("incomplete", '{"x"')
    assert made.incomplete_details.reason == "max_output_tokens"


def test_a_refusal_to_give_a_strict_answer_is_an_answer(serve: Serve) -> None:
    client = serve(m=AsyncScripted(says(None, fields={"refusal": "No."}))).client()
    made = ask(client, strict=True)
    assert (made.status, made.output[0].content[0].type) == ("completed", "refusal")
