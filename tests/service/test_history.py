"""Earlier messages that come again with a request."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from longtalk.service.history import skip_known
from longtalk.testing import AsyncScripted, says
from longtalk.transcript.transcript import Entry
from longtalk.transfer.append import read_messages
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve

TEXTS = st.lists(st.sampled_from("ab"), max_size=8)


def make_entries(texts: list[str]) -> list[Entry]:
    messages = [{"role": "user", "content": text} for text in texts]
    return read_messages(messages, HTTP_WIRES["openai-chat"]) if messages else []


@given(said=TEXTS, known=TEXTS)
def test_only_the_longest_beginning_that_is_the_known_end_is_left_out(said: list[str], known: list[str]) -> None:
    longest = max(n for n in range(len(said) + 1) if known[len(known) - n :] == said[:n])
    entries = make_entries(said)
    assert skip_known(entries, make_entries(known)) == entries[longest:]


def test_a_client_that_sends_everything_again_adds_only_what_is_new(serve: Serve) -> None:
    provider = AsyncScripted(*[says(f"Answer {i}.") for i in range(4)])
    served = serve(m=provider)
    client = served.client(default_headers={"Longtalk-Conversation": "talk"})
    messages: list[dict[str, str]] = []
    for number in range(4):
        messages.append({"role": "user", "content": f"Question {number}."})
        made = client.chat.completions.create(model="m", messages=messages)  # type: ignore[arg-type]
        messages.append({"role": "assistant", "content": made.choices[0].message.content or ""})
    assert json.loads(provider.requests[3])["messages"] == messages[:-1]
    info = served.service.store.info("", "talk")
    assert info is not None
    assert info.entries == 8


def test_what_a_client_adds_after_an_older_response_is_sent_with_the_next_request(serve: Serve) -> None:
    provider = AsyncScripted(says("One."), says("Two."), says("Three."))
    client = serve(m=provider).client()
    first = client.responses.create(model="m", input="1")
    client.responses.create(model="m", input="2", previous_response_id=first.id)
    added = [
        {"role": "user", "content": "said elsewhere"},
        {"role": "assistant", "content": "answered elsewhere"},
        {"role": "user", "content": "3"},
    ]
    client.responses.create(model="m", input=added, previous_response_id=first.id)  # type: ignore[arg-type]
    said = [message["content"] for message in json.loads(provider.requests[2])["messages"]]
    assert said == ["1", "One.", "said elsewhere", "answered elsewhere", "3"]
