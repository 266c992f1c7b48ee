"""A real model, on this machine: never its exact words, but that it talks, remembers and reports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from longtalk import AsyncChat, Chat, Summarize, System, TokenBudget, peek
from longtalk.errors import ContextOverflow, InputError
from longtalk.events import Text
from longtalk.providers.local.engine import get_engine
from longtalk.providers.local.weights import find_weights

SHORT = {"max_tokens": 24, "temperature": 0}
TEACHER = "You are a music teacher."


@pytest.fixture(scope="module")
def chat() -> Iterator[Chat]:
    with Chat("local", options=SHORT) as chat:
        yield chat


def test_the_local_model_answers_and_each_request_extends_the_previous_one(chat: Chat) -> None:
    state, before = None, 0
    for message in ("Hello, I am Ada and I play the violin.", "What do I play?", "And who am I?"):
        reply = chat.send(message, state=state, system="You are a music teacher.")
        assert reply.text.strip()
        assert reply.usage.input > before
        # The engine itself says how much of the request it had seen before.
        assert reply.usage.cached >= before
        state, before = reply.state, reply.usage.input
    assert peek(state or b"").entries == 6


@pytest.mark.slow
def test_a_summary_is_asked_for_behind_what_the_model_has_in_its_cache() -> None:
    with Chat("local", options=SHORT, policy=Summarize(260, to=150, length=60)) as chat:
        state, asked, before = None, None, 0
        for number in range(12):
            reply = chat.send(
                f"Tell me about piece number {number} for the violin, please.", state=state, system=TEACHER
            )
            state = reply.state
            if len(reply.raw_usage) > 1:
                asked = chat.provider.wire.read_usage(reply.raw_usage[0])
                break
            before = reply.usage.input
    assert asked is not None
    # It is asked about all but the last exchanges, and the question itself is new.
    assert 0.5 * before < asked.cached < before
    assert asked.input - asked.cached < 250
    # So small a model may well write none; then that is said, and nothing has changed.
    summed = any(run.reason == "summary" for run in reply.context.manifest)  # type: ignore[union-attr]
    assert summed != any(notice.kind == "summary_failed" for notice in reply.notices)


@pytest.mark.slow
def test_inside_an_epoch_the_model_reads_all_but_the_new_part_from_its_cache() -> None:
    # What may have to be read again: the words that ask for an answer, and what is cut into other tokens beside them.
    slack = 16
    seen: list[tuple[bool, int, int, int]] = []
    with Chat("local", options=SHORT, policy=TokenBudget(300)) as chat:
        state, epoch, before = None, 0, 0
        for number in range(12):
            reply = chat.send(
                f"Tell me about piece number {number} for the violin, please.", state=state, system=TEACHER
            )
            assert reply.context is not None
            assert reply.usage.input <= 330
            seen.append((reply.context.epoch != epoch, before, reply.usage.input, reply.usage.cached))
            state, epoch, before = reply.state, reply.context.epoch, reply.usage.input
    for begins, last, prompt, cached in seen[1:]:
        if begins:
            # The system text is where it was, and hardly anything else.
            assert cached < last / 2, seen
            assert prompt < last, seen
        else:
            assert cached >= last - slack, seen
    assert sum(begins for begins, *_ in seen) >= 2, seen


def test_the_local_model_streams_the_same_text(chat: Chat) -> None:
    whole = chat.send("Count from one to five.")
    events = list(chat.stream("Count from one to five."))
    assert "".join(event.text for event in events if isinstance(event, Text)) == whole.text
    assert events[-1].reply.usage.output == whole.usage.output  # type: ignore[union-attr]


def test_the_local_model_accepts_events_system_messages_and_instructions(chat: Chat) -> None:
    state = chat.note("Ada has just tuned her violin", source="tuner")
    reply = chat.send([System("Answer in one sentence."), "What did I do?"], state=state, instruction="It is noon.")
    assert reply.text.strip()


def test_an_answer_that_is_stopped_does_not_block_the_next(chat: Chat) -> None:
    with chat.stream("Tell me a very long story.", options={"max_tokens": 2000}) as stream:
        for event in stream:
            if isinstance(event, Text):
                break
    assert stream.reply.finish_reason == "interrupted"
    assert stream.reply.text
    assert chat.send("Thank you.", state=stream.reply.state).text.strip()


def test_an_answer_that_is_too_long_is_cut_and_marked(chat: Chat) -> None:
    assert chat.send("Tell me a story.", options={"max_tokens": 5}).finish_reason == "length"


def test_a_conversation_that_has_outgrown_the_model_is_a_typed_error(chat: Chat) -> None:
    with pytest.raises(ContextOverflow) as caught:
        chat.send("word " * 6000)
    assert caught.value.window == 4096
    assert caught.value.tokens is not None
    assert caught.value.tokens > 6000
    assert caught.value.state is None


def test_the_local_model_serves_an_async_chat_too() -> None:
    async def main() -> list[str]:
        async with AsyncChat("local", options=SHORT) as chat:
            replies = await asyncio.gather(chat.send("Hello!"), chat.send("Good morning!"))
        return [reply.text for reply in replies]

    assert all(text.strip() for text in asyncio.run(main()))


def test_the_local_model_speaks_the_anthropic_wire_too() -> None:
    running = get_engine(find_weights(""), context=4096)
    system = "You are a music teacher."
    with Chat("anthropic:local", base_url=running.url, api_key=running.key, options=SHORT) as chat:
        first = chat.send("Hello, I am Ada and I play the violin.", system=system)
        state = chat.note("Ada tunes her violin", state=first.state)
        events = list(chat.stream("What do I play?", state=state, system=system, instruction="Be brief."))
        second = events[-1].reply  # type: ignore[union-attr]
        third = chat.send("Thank you.", state=second.state, system=system)
    assert first.text.strip()
    assert "".join(event.text for event in events if isinstance(event, Text)) == second.text
    assert third.usage.input > third.usage.cached >= first.usage.input


def test_the_local_model_speaks_the_responses_wire_too() -> None:
    running = get_engine(find_weights(""), context=4096)
    options = {"max_output_tokens": 24, "temperature": 0}
    system = "You are a music teacher."
    with Chat("openai:local", base_url=f"{running.url}/v1", api_key=running.key, options=options) as chat:
        first = chat.send("Hello, I am Ada and I play the violin.", system=system)
        state = chat.note("Ada tunes her violin", state=first.state)
        events = list(chat.stream("What do I play?", state=state, system=system, instruction="Be brief."))
        second = events[-1].reply  # type: ignore[union-attr]
        third = chat.send("Thank you.", state=second.state, system=system)
        with pytest.raises(ContextOverflow) as caught:
            chat.send("word " * 6000)
    assert first.text.strip()
    assert "".join(event.text for event in events if isinstance(event, Text)) == second.text
    assert third.usage.input > first.usage.input > 0
    assert caught.value.window == 4096


def test_a_missing_model_file_is_named() -> None:
    with pytest.raises(InputError, match="nowhere"):
        Chat("local:/nowhere.gguf").send("x")


def render(messages: list[dict[str, object]], **more: object) -> str:
    import json
    from urllib.request import Request, urlopen

    engine = get_engine(find_weights("135m"), line="Say you.")
    headers = {"authorization": f"Bearer {engine.key}", "content-type": "application/json"}
    body = json.dumps({"messages": messages, **more}).encode()
    with urlopen(Request(f"{engine.url}/apply-template", body, headers)) as response:
        return str(json.load(response)["prompt"])


def test_the_line_of_a_model_follows_the_system_text() -> None:
    prompt = render([{"role": "system", "content": TEACHER}, {"role": "user", "content": "Hello"}])
    assert prompt.startswith(f"<|im_start|>system\n{TEACHER}\n\nSay you.<|im_end|>\n<|im_start|>user\nHello<|im_end|>")
    assert render([{"role": "user", "content": "Hello"}]).startswith("<|im_start|>system\nSay you.<|im_end|>\n")


def test_tools_are_called_in_fenced_json_and_their_results_are_to_be_answered_with() -> None:
    described = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    prompt = render(
        [
            {"role": "user", "content": "Is it raining?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "rain"},
        ],
        tools=[described],
    )
    assert "Say you." not in prompt
    assert '"name": "weather"' in prompt.partition("\n</tools>")[0]
    assert '```json\n{"name": "weather", "arguments": {"city": "Oslo"}}\n```<|im_end|>' in prompt
    assert "rain\n\nAnswer my question with it, in plain words.<|im_end|>" in prompt
