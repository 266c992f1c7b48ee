"""Random characters in the pieces of a stream hide their size, and are no part of what is stored."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from longtalk.service.openai.obfuscation import pad
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve

ASK = {"model": "m", "input": "Hi.", "stream": True}


def test_only_pieces_are_padded_and_to_few_sizes() -> None:
    whole = b'{"type":"response.completed","response":{}}'
    assert pad(whole) == whole
    pieces = [b'{"type":"response.output_text.delta","delta":"%b"}' % (b"x" * size) for size in range(64)]
    assert len({len(pad(piece)) for piece in pieces}) <= 3
    assert all(json.loads(pad(piece))["obfuscation"] for piece in pieces)


def test_a_stream_has_random_characters_only_where_they_are_asked_for(serve: Serve) -> None:
    served = serve(m=AsyncScripted(*[says("Hello there, Ada.")] * 3))
    client: Any = served.client()
    events = list(client.responses.create(**ASK, stream_options={"include_obfuscation": True}))
    padded = [event for event in events if event.to_dict().get("obfuscation")]
    assert {event.type for event in padded} == {"response.output_text.delta"}
    name = events[-1].response.id
    again = list(client.responses.retrieve(name, stream=True, include_obfuscation=True))
    assert [event.type for event in again if event.to_dict().get("obfuscation")] == [event.type for event in padded]
    plain = list(client.responses.retrieve(name, stream=True))
    assert not any(event.to_dict().get("obfuscation") for event in plain)
    said: Any = [{"role": "user", "content": "Hi."}]
    options: Any = {"include_obfuscation": True}
    chunks = list(client.chat.completions.create(model="m", messages=said, stream=True, stream_options=options))
    assert all(chunk.to_dict().get("obfuscation") for chunk in chunks)
    with client.responses.connect() as connection:
        connection.response.create(model="m", input="Hi.", stream_options={"include_obfuscation": True})
        while (event := connection.recv()).type != "response.output_text.delta":
            pass
        assert event.to_dict()["obfuscation"]


def test_a_client_that_leaves_a_padded_stream_ends_it(serve: Serve) -> None:
    url = serve(m=AsyncScripted(says("Hello."), says("Again."))).url + "/v1/responses"
    body = {**ASK, "stream_options": {"include_obfuscation": True}}
    with httpx2.Client(trust_env=False) as http:
        with http.stream("POST", url, json=body) as answer:
            next(answer.iter_lines())
        assert http.post(url, json={**ASK, "stream": False}).status_code == 200
