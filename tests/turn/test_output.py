"""Answers of a given type: the schema on each wire, what is sent back, and what fails. The sync twin is generated."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from longtalk import AsyncChat, AsyncConversation, InputError, Memory
from longtalk.errors import BadOutput, TurnFailed
from longtalk.events import Done, Notice, Text
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, says, validate
from longtalk.wires import WIRES
from tests.support.fake_agents import Agents
from tests.support.loopback import Answer, Loopback, sse
from tests.support.strict_anthropic import KEY as ANTHROPIC_KEY
from tests.support.strict_anthropic import StrictAnthropic
from tests.support.strict_chat import KEY as CHAT_KEY
from tests.support.strict_chat import StrictChat
from tests.support.strict_gemini import KEY as GEMINI_KEY
from tests.support.strict_gemini import StrictGemini
from tests.support.strict_responses import KEY as RESPONSES_KEY
from tests.support.strict_responses import StrictResponses

pytestmark = pytest.mark.anyio

HTTP_WIRES = {"openai-chat": "compatible", "openai-responses": "openai", "anthropic": "anthropic", "gemini": "gemini"}
KEYS = {
    StrictAnthropic: ANTHROPIC_KEY,
    StrictChat: CHAT_KEY,
    StrictGemini: GEMINI_KEY,
    StrictResponses: RESPONSES_KEY,
}
GOOD = '{"name":"Ada","age":36}'


class Person(msgspec.Struct):
    name: str
    age: Annotated[int, msgspec.Meta(ge=0)]


@dataclass
class PersonData:
    name: str
    age: int = 0


class PersonDict(TypedDict):
    name: str
    age: int


class PersonModel(pydantic.BaseModel):
    name: str
    age: int


class Team(msgspec.Struct):
    lead: Person
    kind: Literal["a", "b"]
    members: list[Person] = []
    motto: str | None = None


class Scores(msgspec.Struct):
    by_name: dict[str, int]


def lookup(q: str) -> str:
    """Look something up."""
    return f"about {q}"


def chat(loopback: Loopback, wire: str = "openai-chat", **settings: Any) -> AsyncChat:
    # Anthropic's address has no version in it.
    url = loopback.url.removesuffix("/v1") if wire == "anthropic" else loopback.url
    return AsyncChat(f"{HTTP_WIRES[wire]}:m", base_url=url, api_key="k", **settings)


def answer(text: str, wire: str = "openai-chat", *, stream: bool = False, **more: Any) -> Answer:
    step = says(text, wire=wire, **more)
    if not stream:
        return Answer(step.body)
    return Answer(chunks=sse(*step.events), headers={"content-type": "text/event-stream"})  # type: ignore[arg-type]


def read_schema(request: bytes, wire: str) -> dict[str, Any]:
    body = json.loads(request)
    match wire:
        case "openai-chat":
            assert body["response_format"]["type"] == "json_schema"
            return body["response_format"]["json_schema"]
        case "openai-responses":
            assert body["text"]["format"]["type"] == "json_schema"
            return body["text"]["format"]
        case "anthropic":
            assert body["output_config"]["format"]["type"] == "json_schema"
            return body["output_config"]["format"]
        case _:
            assert body["generationConfig"]["responseMimeType"] == "application/json"
            return {"schema": body["generationConfig"]["responseJsonSchema"]}


@pytest.mark.parametrize("kind", [Person, PersonData, PersonDict, PersonModel])
async def test_the_output_is_a_value_of_the_type(kind: Any) -> None:
    async with AsyncChat(AsyncScripted(says(GOOD))) as c:
        reply = await c.send("Who?", output=kind)
    expected = {"name": "Ada", "age": 36}
    assert reply.output == (expected if kind is PersonDict else kind(**expected))
    assert reply.text == GOOD


async def test_a_turn_without_a_type_has_no_output() -> None:
    async with AsyncChat(AsyncScripted(says(GOOD))) as c:
        assert (await c.send("Who?")).output is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", HTTP_WIRES)
async def test_each_wire_sends_the_schema_in_its_providers_own_mode(
    loopback: Loopback, wire: str, stream: bool
) -> None:
    loopback.say(answer(GOOD, wire, stream=stream))
    async with chat(loopback, wire) as c:
        events = [event async for event in c.stream("Who?", output=Person)] if stream else []
        reply: Any = events[-1].reply if events else await c.send("Who?", output=Person)  # type: ignore[union-attr]
    assert reply.output == Person("Ada", 36)
    (request,) = loopback.requests
    validate(request, wire=wire)
    schema = read_schema(request, wire)["schema"]
    assert (schema["type"], set(schema["properties"])) == ("object", {"name", "age"})
    assert b"JSON Schema" not in request


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses"])
async def test_openai_gets_a_strict_schema(loopback: Loopback, wire: str) -> None:
    loopback.say(answer('{"lead":{"name":"Ada","age":36},"kind":"a","members":[],"motto":null}', wire))
    async with chat(loopback, wire) as c:
        reply = await c.send("Who?", output=Team)
    assert reply.output == Team(Person("Ada", 36), "a")
    sent = read_schema(loopback.requests[0], wire)
    assert (sent["strict"], sent["name"]) == (True, "Team")
    assert sent["schema"]["required"] == ["lead", "kind", "members", "motto"]
    assert sent["schema"]["additionalProperties"] is False
    assert sent["schema"]["properties"]["kind"] == {"enum": ["a", "b"], "type": "string"}
    person = sent["schema"]["$defs"]["Person"]
    assert (person["additionalProperties"], person["required"]) == (False, ["name", "age"])
    assert person["properties"]["age"] == {"type": "integer", "description": '{"minimum":0}'}


async def test_anthropic_gets_closed_objects_without_unsupported_keywords(loopback: Loopback) -> None:
    loopback.say(answer('{"lead":{"name":"Ada","age":36},"kind":"a"}', "anthropic"))
    async with chat(loopback, "anthropic", options={"output_config": {"effort": "low"}}) as c:
        await c.send("Who?", output=Team)
    schema = read_schema(loopback.requests[0], "anthropic")["schema"]
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["lead", "kind"]
    assert b'"default"' not in loopback.requests[0]
    assert json.loads(loopback.requests[0])["output_config"]["effort"] == "low"


async def test_a_type_without_a_strict_form_is_sent_as_it_is_or_explained(loopback: Loopback) -> None:
    text = '{"by_name":{"Ada":1}}'
    loopback.say(answer(text), answer(text, "anthropic"))
    async with chat(loopback) as c:
        assert (await c.send("Who?", output=Scores)).output == Scores({"Ada": 1})
    async with chat(loopback, "anthropic") as c:
        assert (await c.send("Who?", output=Scores)).output == Scores({"Ada": 1})
    assert read_schema(loopback.requests[0], "openai-chat")["strict"] is False
    assert b"output_config" not in loopback.requests[1]
    assert b"JSON Schema" in loopback.requests[1]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refused_schema_is_remembered_and_explained_instead(loopback: Loopback, stream: bool) -> None:
    refusal = Answer(b'{"error":{"message":"This response_format type is unavailable now"}}', status=400)
    loopback.say(refusal, answer(GOOD, stream=stream), answer(GOOD), answer("Bye."))
    async with chat(loopback) as c:
        if stream:
            events = [event async for event in c.stream("Who?", instruction="Be brief.", output=Person)]
            first: Any = events[-1].reply  # type: ignore[union-attr]
        else:
            first = await c.send("Who?", instruction="Be brief.", output=Person)
        second = await c.send("And now?", state=first.state, output=Person)
        await c.send("Bye.", state=second.state)
    assert first.output == second.output == Person("Ada", 36)
    assert [notice.kind for notice in first.notices if notice.kind == "server_refused"] == ["server_refused"]
    with_schema = [b'"response_format"' in request for request in loopback.requests]
    assert with_schema == [True, False, False, False]
    assert [request.count(b"JSON Schema") for request in loopback.requests] == [0, 1, 1, 0]
    assert b"Be brief." in loopback.requests[1]


async def test_gemini_may_refuse_a_schema_next_to_tools(loopback: Loopback) -> None:
    text = b"Function calling with a response mime type: 'application/json' is unsupported"
    loopback.say(Answer(b'{"error":{"code":400,"message":"%s"}}' % text, status=400), answer(GOOD, "gemini"))
    async with chat(loopback, "gemini", tools=[lookup]) as c:
        assert (await c.send("Who?", output=Person)).output == Person("Ada", 36)
    assert b"responseMimeType" not in loopback.requests[1]


async def test_a_refusal_of_something_else_is_not_taken_for_one_of_the_schema(loopback: Loopback) -> None:
    loopback.say(Answer(b'{"error":{"message":"The model is gone"}}', status=404))
    async with chat(loopback) as c:
        with pytest.raises(TurnFailed, match="gone"):
            await c.send("Who?", output=Person)
    assert len(loopback.requests) == 1


@pytest.mark.parametrize("wire", HTTP_WIRES)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_bad_answer_is_sent_back_with_the_error(wire: str, stream: bool) -> None:
    steps = [says('{"name":"Ada"}', wire=wire), says("Ada is 36.", wire=wire), says(GOOD, wire=wire)]
    provider = AsyncScripted(*steps, wire=WIRES[wire])
    async with AsyncChat(provider) as c:
        events = [event async for event in c.stream("Who?", output=Person)] if stream else []
        reply: Any = events[-1].reply if events else await c.send("Who?", output=Person)  # type: ignore[union-attr]
    assert reply.output == Person("Ada", 36)
    assert [entry.role for entry in reply.entries] == [
        "user",
        "assistant",
        "system",
        "assistant",
        "system",
        "assistant",
    ]
    assert [notice.kind for notice in reply.notices] == ["output_refused"] * 2
    for request in provider.requests:
        validate(request, wire=wire)
    assert b"missing required field `age`" in provider.requests[1]
    assert len(reply.raw_usage) == 3


async def test_a_stream_says_that_an_answer_was_sent_back() -> None:
    async with AsyncChat(AsyncScripted(says("No."), says(GOOD))) as c:
        events = [event async for event in c.stream("Who?", output=Person)]
    shown = [event for event in events if isinstance(event, Text | Notice | Done)]
    kinds = [type(event).__name__ for event in shown]
    assert kinds.index("Notice") == 3
    assert "".join(event.text for event in shown[:3] if isinstance(event, Text)) == "No."
    assert "".join(event.text for event in shown[4:] if isinstance(event, Text)) == GOOD


async def test_the_error_of_a_turn_without_a_good_answer_has_the_reply() -> None:
    provider = AsyncScripted(*[says("Ada is 36.")] * 3, says("Yes."))
    async with AsyncChat(provider) as c:
        with pytest.raises(BadOutput, match="does not match Person") as caught:
            await c.send("Who?", output=Person)
        partial = caught.value.partial
        assert partial is not None
        assert (partial.text, partial.finish_reason) == ("Ada is 36.", "failed")
        assert (await c.send("Still there?", state=caught.value.state)).text == "Yes."
    assert len(provider.requests) == 4


@pytest.mark.parametrize(
    "step", [says('{"name":"A', finish="length"), says(None, fields={"refusal": "I won't."})], ids=["length", "refusal"]
)
async def test_an_answer_that_another_try_would_not_better_is_not_sent_back(step: Any) -> None:
    provider = AsyncScripted(step)
    async with AsyncChat(provider) as c:
        with pytest.raises(BadOutput):
            await c.send("Who?", output=Person)
    assert len(provider.requests) == 1


async def test_a_code_fence_around_the_json_does_no_harm() -> None:
    async with AsyncChat(AsyncScripted(says(f"```json\n{GOOD}\n```"))) as c:
        assert (await c.send("Who?", output=Person)).output == Person("Ada", 36)


@pytest.mark.parametrize("wire", HTTP_WIRES)
async def test_with_tools_the_final_answer_is_checked(wire: str) -> None:
    steps = [says("Let me see.", calls=[("c1", "lookup", {"q": "Ada"})], wire=wire), says(GOOD, wire=wire)]
    provider = AsyncScripted(*steps, wire=WIRES[wire])
    async with AsyncChat(provider, tools=[lookup]) as c:
        assert (await c.send("Who?", output=Person)).output == Person("Ada", 36)
    for request in provider.requests:
        validate(request, wire=wire)


async def test_the_preamble_and_the_cached_prefix_do_not_change(loopback: Loopback) -> None:
    loopback.say(answer("Hello."), answer(GOOD), answer("Bye."))
    async with chat(loopback) as c:
        first = await c.send("Hi.", system="S")
        second = await c.send("Who?", state=first.state, system="S", output=Person)
        third = await c.send("Bye.", state=second.state, system="S")
    assert not [notice for notice in (*second.notices, *third.notices) if notice.kind == "preamble_changed"]
    before, with_schema, after = (json.loads(request)["messages"] for request in loopback.requests)
    assert with_schema[: len(before)] == before
    assert after[: len(with_schema)] == with_schema
    assert b"response_format" not in loopback.requests[2]


async def test_a_stored_conversation_has_the_output_also_when_its_reply_comes_again() -> None:
    provider = AsyncScripted(says("No."), says(GOOD))
    async with AsyncConversation("c", model=provider, store=InMemory()) as talk:
        first = await talk.send("Who?", output=Person, key="k")
        again = await talk.send("Who?", output=Person, key="k")
        assert first.output == again.output == Person("Ada", 36)
        assert [entry.role for entry in await talk.history()] == ["user", "assistant", "system", "assistant"]
        await talk.verify()


async def test_another_answer_begins_after_the_users_message() -> None:
    provider = AsyncScripted(says("No."), says(GOOD), says(GOOD))
    async with AsyncConversation("c", model=provider, store=InMemory()) as talk:
        await talk.send("Who?", output=Person)
        branch, reply = await talk.regenerate(output=Person)
        assert reply.output == Person("Ada", 36)
        assert [entry.role for entry in await branch.history()] == ["user", "assistant"]


async def test_memory_asks_for_no_card_in_an_answer_of_json() -> None:
    provider = AsyncScripted(says("Fine."), says(GOOD))
    async with AsyncChat(provider, policy=Memory(limit=0, capture="sentinel")) as c:
        first = await c.send("Hi.")
        reply = await c.send("Who?", state=first.state, output=Person)
    assert reply.output == Person("Ada", 36)
    assert [b"End your answer with a note" in request for request in provider.requests] == [True, False]


async def test_an_agent_gets_the_schema_in_its_system_text(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_SAYS", GOOD)
    async with AsyncChat("claude-cli", options={"cwd": str(agents.work)}) as c:
        first = await c.send("Who?", system="You teach.", output=Person)
        second = await c.send("And now?", state=first.state, system="You teach.")
    assert first.output == Person("Ada", 36)
    assert not [notice for notice in second.notices if notice.kind == "preamble_changed"]
    asked, after = agents.runs()
    assert asked["system"].startswith("You teach.")
    assert "JSON Schema" in asked["system"]
    assert (asked["input"], after["system"]) == ("Who?", "You teach.")


async def test_an_agent_is_told_what_is_wrong_in_its_session(agents: Agents) -> None:
    async with AsyncChat("claude-cli", options={"cwd": str(agents.work)}) as c:
        with pytest.raises(BadOutput):
            await c.send("Who?", output=Person)
    first, *again = agents.inputs()
    assert first == "Who?"
    assert len(again) == 2
    assert all("does not have the required form" in told and "Who?" not in told for told in again)


@pytest.mark.parametrize("kind", [int, "Person", list[Person], dict[str, int], Person("Ada", 1), object])
async def test_a_type_that_is_no_json_object_is_refused(kind: Any) -> None:
    async with AsyncChat(AsyncScripted()) as c:
        with pytest.raises(InputError, match="`output`"):
            await c.send("Who?", output=kind)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", [Person, Scores])
@pytest.mark.parametrize("server", [StrictAnthropic, StrictChat, StrictGemini, StrictResponses])
async def test_a_strict_server_accepts_each_request_of_a_turn_with_output(server: Any, kind: Any, stream: bool) -> None:
    names = {StrictAnthropic: "anthropic", StrictChat: "compatible", StrictGemini: "gemini", StrictResponses: "openai"}
    options = {"thinking": {"type": "adaptive"}} if server is StrictAnthropic else {}
    with server() as strict:
        url = strict.url.removesuffix("/v1") if server is StrictAnthropic else strict.url
        model, key = f"{names[server]}:strict", KEYS[server]
        async with AsyncChat(model, base_url=url, api_key=key, tools=[lookup], options=options) as c:
            first = await c.send("#think Hello.", system="S")
            with pytest.raises(BadOutput) as caught:
                if stream:
                    _ = [event async for event in c.stream("#think", state=first.state, system="S", output=kind)]
                else:
                    await c.send("#think #tools", state=first.state, system="S", output=kind)
            last = await c.send("#think Bye.", state=caught.value.state, system="S")
        assert strict.violations == []
    assert last.finish_reason == "stop"


async def test_a_conversation_that_the_provider_keeps_is_sent_only_what_is_wrong() -> None:
    with StrictResponses() as strict:
        options = {"previous_response_id": "auto"}
        async with AsyncChat("openai:strict", base_url=strict.url, api_key=RESPONSES_KEY, options=options) as c:
            first = await c.send("Hello.")
            with pytest.raises(BadOutput):
                await c.send("Who?", state=first.state, output=Person)
        assert strict.violations == []
    inputs = [json.loads(request)["input"] for request in strict.requests]
    assert [[item["role"] for item in each] for each in inputs] == [["user"], ["user"], ["developer"], ["developer"]]
