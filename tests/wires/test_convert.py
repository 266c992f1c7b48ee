"""A conversation goes on over another wire, and back: what is sent is valid, and nothing of the original is lost."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Chat, InputError, KeepAll, KeepLast, TokenBudget
from longtalk.context.compose import compose
from longtalk.context.epochs import Epoch
from longtalk.policies import DigestTools
from longtalk.state.codec import decode
from longtalk.testing import Scripted, Step, says, validate
from longtalk.transcript.transcript import Transcript
from longtalk.wires import HTTP_WIRES, NAMES, WIRES
from longtalk.wires.entries import view_entry
from longtalk.wires.protocol import Preamble, Quirks
from tests.policies.drawn import traces
from tests.support.properties import examples
from tests.support.strict_responses import KEY, StrictResponses

PAIRS = list(itertools.permutations(sorted(HTTP_WIRES), 2))
USUAL = [pytest.param(*pair, marks=[] if "openai-chat" in pair else [pytest.mark.rest]) for pair in PAIRS]
"""With all checks all pairs, with the usual ones those with the wire that most servers speak."""
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PARTS: dict[str, Any] = {
    "openai-chat": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    "openai-responses": {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    "gemini": {"inlineData": {"mimeType": "image/png", "data": PNG}},
}


def weigh(kilos: Any) -> str:
    """Weigh something."""
    return str(kilos)


def request(transcript: Transcript, wire: str) -> bytes:
    to = WIRES[wire]
    context = compose(
        transcript,
        epoch=Epoch(""),
        wire=to,
        quirks=Quirks(),
        preamble=Preamble(),
        reader="r",
        instruction=None,
        tail=transcript.tail,
    )
    return to.build_request(
        model="m",
        preamble=Preamble(),
        pieces=context.pieces,
        mark=context.mark,
        options=to.defaults,
        quirks=Quirks(),
        stream=False,
    )


@pytest.mark.parametrize(("here", "there"), USUAL)
@examples(10, 60)
@given(data=st.data())
def test_any_conversation_is_valid_on_any_other_wire(here: str, there: str, data: st.DataObject) -> None:
    transcript = data.draw(traces(here))
    if transcript[-1].role == "assistant":
        transcript = transcript.append_to_turn("last", [_said(here, "And now?")])
    body = request(transcript, there)
    validate(body, wire=there)
    # The same entries give the same bytes, and what is added stands behind them.
    assert request(transcript, there) == body


def _said(wire: str, text: str) -> Any:
    from longtalk.turn.message import parse_message

    return parse_message(text, WIRES[wire])[0]


def look(where: str) -> str:
    """Look something up."""
    return f"Nothing in {where}."


def seek(q: str = "") -> str:
    """Seek something."""
    return f"Nothing about {q}."


def turn(chat: Chat, message: Any, state: bytes | None) -> Any:
    return chat.send(message, state=state, system="You teach the violin.")


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_there_and_back_the_original_goes_as_it_was(here: str, there: str) -> None:
    calls = [("a1", "look", {"where": "Rome"}), ("b2", "look", {"where": "Oslo"})]
    first = Scripted(says("I'll see.", calls=calls, wire=here), says("Nothing.", wire=here), wire=WIRES[here])
    with Chat(first, tools=[look]) as chat:
        state = turn(chat, ["What is this?", PARTS[here]], None).state
        state = chat.note("Ada has tuned her violin", state=state)
        before = len(decode(state, wires=NAMES))
    calls = [("c3", "look", {"where": "Bern"})]
    second = Scripted(says(None, calls=calls, wire=there), says("No.", wire=there), wire=WIRES[there])
    with Chat(second, tools=[look]) as chat:
        reply = turn(chat, "And in Bern?", state)
    assert [notice.kind for notice in reply.notices if notice.kind == "converted"] == ["converted"]
    for body in second.requests:
        validate(body, wire=there)
        assert PNG.encode() in body
        for said in (b"What is this?", b"I'll see.", b"Nothing in Rome.", b"Nothing in Oslo.", b"tuned her violin"):
            assert said in body
    third = Scripted(says("Well.", wire=here), says("Well.", wire=here), wire=WIRES[here])
    with Chat(third, tools=[look]) as chat:
        back = turn(chat, "So?", reply.state)
        again = turn(chat, "And so?", back.state)
    for body in third.requests:
        validate(body, wire=here)
    # What was sent before the switch stands at the beginning, byte for byte.
    sent = first.requests[-1].rpartition(b"]}")[0] if here == "anthropic" else first.requests[-1][:-2]
    assert _unmarked(third.requests[0]).startswith(_unmarked(sent))
    assert _unmarked(third.requests[1]).startswith(_unmarked(third.requests[0])[:-2])
    kept = decode(again.state, wires=NAMES)
    assert [entry.native for entry in kept][:before] == [entry.native for entry in decode(state, wires=NAMES)]
    assert [notice.kind for notice in again.notices if notice.kind == "converted"] == []


def _unmarked(body: bytes) -> bytes:
    return body.replace(b',"cache_control":{"type":"ephemeral"}', b"")


def test_reasoning_stays_behind_and_is_named() -> None:
    thinking = Scripted(says("Yes.", fields={"thinking": ["hm"]}, wire="anthropic"), wire=WIRES["anthropic"])
    with Chat(thinking) as chat:
        state = turn(chat, "Hello.", None).state
    with Chat(Scripted(says("Yes."))) as chat:
        reply = turn(chat, "Hello again.", state)
    (notice,) = [notice for notice in reply.notices if notice.kind == "converted"]
    assert "reasoning" in notice.text
    assert b"signed" not in json.dumps([entry.native.decode() for entry in reply.entries]).encode()


def test_ids_that_another_provider_does_not_take_become_plain_and_unique() -> None:
    calls = [("functions.look:0", "look", {"where": "Rome"})]
    steps = [step for _ in range(2) for step in (says(None, calls=calls), says("Well."))]
    with Chat(Scripted(*steps), tools=[look]) as chat:
        state = turn(chat, "One.", None).state
        state = turn(chat, "Two.", state).state
    other = Scripted(says("Yes.", wire="anthropic"), wire=WIRES["anthropic"])
    with Chat(other) as chat:
        turn(chat, "Three.", state)
    blocks = [block for message in json.loads(other.requests[0])["messages"] for block in message["content"]]
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert len(set(ids)) == 2
    assert ids == [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


def test_a_switch_can_be_refused() -> None:
    with Chat(Scripted(says("Yes."))) as chat:
        state = turn(chat, "Hello.", None).state
    with Chat(Scripted(wire=WIRES["anthropic"]), on_switch="raise") as chat, pytest.raises(InputError, match="convert"):
        turn(chat, "Hello again.", state)


@pytest.mark.slow
def test_two_hundred_turns_that_change_the_provider_at_random() -> None:
    source = random.Random(7)
    state: bytes | None = None
    facts = []
    with StrictResponses() as keeper:
        for number in range(200):
            fact = f"Fact {number}: it has {source.randint(2, 99)} strings."
            policy = source.choice([KeepAll(), KeepLast(20), TokenBudget(3_000, digest=DigestTools())])
            way = source.choice([*HTTP_WIRES, "previous_response_id", "conversation"])
            if way in HTTP_WIRES:
                facts.append(fact)
                state = _told_by_wire(way, fact, state, policy, source)
            else:
                facts.append(f"{fact} {source.choice(['#tool', '#think #tools', '#think #search', '#odd'])}")
                state = _told_by_handle(keeper, way, facts[-1], state, policy)
                if source.random() < 0.1:
                    keeper.forget()
        assert keeper.violations == []
        assert {message.split("'")[0] for message in keeper.refusals} <= FORGOTTEN
    said = [view_entry(entry).text for entry in decode(state or b"", wires=NAMES) if entry.role == "user"]
    assert said == facts


FORGOTTEN = {"Previous response with id ", "Item with id "}


def _told_by_handle(keeper: StrictResponses, way: str, fact: str, state: bytes | None, policy: Any) -> bytes:
    """A turn with a provider that keeps the conversation itself."""
    options = {way: "auto"}
    settings: Any = {"tools": [look, seek], "policy": policy, "options": options}
    with Chat("openai:gpt-strict", base_url=keeper.url, api_key=KEY, **settings) as chat:
        reply = turn(chat, fact, state)
    assert fact in json.dumps(keeper.seen())
    return bytes(reply.state)


def _told_by_wire(wire: str, fact: str, state: bytes | None, policy: Any, source: random.Random) -> bytes:
    """A turn with a provider that is sent all."""
    steps = [says("Noted.", wire=wire)]
    if source.random() < 0.3:
        wanted = [(f"c{source.randrange(10**9)}", "look", {"where": f"place {i}"}) for i in range(source.randint(1, 3))]
        steps.insert(0, says(source.choice([None, "Let me see."]), calls=wanted, wire=wire))
    provider = Scripted(*steps, wire=WIRES[wire])
    with provider, Chat(provider, tools=[look], policy=policy) as chat:
        state = bytes(turn(chat, fact, state).state)
        if source.random() < 0.2:
            state = chat.note("The sun shines.", state=state)
    for body in provider.requests:
        validate(body, wire=wire)
        assert fact.encode() in body
    return state


HUGE = ["1e999", "-1e999", "9" * 5_000]


@pytest.mark.parametrize("number", HUGE, ids=["huge", "negative", "long"])
@pytest.mark.parametrize(("before", "after"), USUAL)
def test_a_number_beyond_a_double_in_arguments_goes_along(before: str, after: str, number: str) -> None:
    step = says("Let me see.", calls=[("call_1", "weigh", {"kilos": 12345})], wire=before)
    body = step.body.replace(b"12345", number.encode())
    chat = Chat(Scripted(Step(body=body), says("Done.", wire=before), wire=WIRES[before]), tools=[weigh])
    state = chat.send("Hello", state=None).state
    other = Scripted(says("Yes.", wire=after), wire=WIRES[after])
    Chat(other).send("And?", state=state)
    assert number.encode() in other.requests[0]


@pytest.mark.parametrize("number", HUGE, ids=["huge", "negative", "long"])
@pytest.mark.parametrize(("before", "after"), USUAL)
def test_a_number_beyond_a_double_in_an_unknown_field_does_not_stop_a_switch(
    before: str, after: str, number: str
) -> None:
    step = says("Hello.", fields={"odd": 12345} if before.startswith("openai") else {}, wire=before)
    body = step.body.replace(b"12345", number.encode()).replace(b'"text":', b'"odd":%s,"text":' % number.encode())
    chat = Chat(Scripted(Step(body=body), says("Again.", wire=before), wire=WIRES[before]))
    state = chat.send("Hello", state=None).state
    other = Scripted(says("Yes.", wire=after), wire=WIRES[after])
    reply = Chat(other).send("And?", state=state)
    assert reply.text == "Yes."
    chat.send("Back", state=reply.state)
    assert number.encode() in chat.provider.requests[-1]
