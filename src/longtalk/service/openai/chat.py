"""The route of Chat Completions.

Without a conversation, nothing is kept, as usual. With one, in the body or in the header `Longtalk-Conversation`, only
the new messages are sent: the service has the rest. A name that is new begins a conversation; an id in the
form that the service makes must exist. With `store: false`, a conversation is read and nothing is written. If a request
that keeps nothing has an `Idempotency-Key`, its answer is in the event log of its run until that expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from longtalk._util.concurrency import call_store
from longtalk.events import Done, Reasoning, Text, ToolCall, ToolCallDelta
from longtalk.reply import TurnReply
from longtalk.service.access import Caller
from longtalk.service.errors import from_error, interrupted, not_found, quote
from longtalk.service.http import DONE, EventStream, decode, json_response, read_body
from longtalk.service.idempotency import Idempotency, has_answer
from longtalk.service.ids import ResponseId, is_created_id, new_conversation_id, new_key, parse_response_id
from longtalk.service.openai.create_chat import CreateChat
from longtalk.service.openai.event_types import Delta
from longtalk.service.openai.items import Item, is_shown
from longtalk.service.openai.obfuscation import pad_stream
from longtalk.service.run import Run, RunName
from longtalk.service.service import Service
from longtalk.service.turns import TurnOrder, name_results, read_state
from longtalk.stores.base import MAIN
from longtalk.transcript.transcript import now
from longtalk.turn.stream import AsyncStream
from longtalk.usage import Usage

PATH = "/v1/chat/completions"
_HEADER = "longtalk-conversation"
_FINISH = {"stop": "stop", "length": "length", "filtered": "content_filter", "tool_calls": "tool_calls"}
_COMPLETION = b'{"completion":'
"""The beginning of the last event of a run whose answer is kept. It has the whole completion, and is not streamed."""
_encoder = msgspec.json.Encoder()


async def create(service: Service, caller: Caller, request: Request) -> Response:
    """Make a chat completion."""
    body = await read_body(request, service.settings.limits)
    given = decode(body, CreateChat, service.settings.limits)
    given.check()
    key = request.headers.get("idempotency-key", "")
    seed = f"{len(caller.owner)}:{caller.owner}{key}" if key else ""
    named = given.conversation or request.headers.get(_HEADER)
    must_exist = is_created_id(named) if named else False
    is_known = bool(named) and (must_exist or given.store is False) and await _exists(service, caller, named or "")
    if must_exist and not is_known:
        raise not_found(f"Conversation {quote(named or '')}")
    conversation, state = None, None
    if given.store is not False:
        conversation = named or (new_conversation_id(chain=True, seed=seed) if given.store else None)
    elif named and is_known:
        state = await read_state(service.store, caller.owner, named, MAIN)
    target = ResponseId(conversation or new_conversation_id(chain=True), new_key(seed))
    idempotency = Idempotency(service.storage)
    header = request.headers.get(_HEADER)
    path = PATH if header is None else f"{PATH} {header}"
    claim = await idempotency.claim(caller.owner, path, body, request.headers, str(target))
    mark_delivered = partial(idempotency.mark_delivered, claim, request)
    if not claim.is_new:
        target = parse_response_id(claim.response) or target
        conversation = conversation and target.conversation
    name, repeats = RunName(caller.owner, f"chatcmpl-{target}"), conversation is None and bool(key)
    if repeats and not claim.is_new and await has_answer(service.runs, name, _is_completion):
        return await _repeat(service.runs.follow(name), given)
    keeps = repeats or conversation is not None
    run = await _start(service, caller, given, name, target, conversation, state, is_new=claim.is_new, repeats=repeats)
    headers = {"longtalk-conversation": conversation} if conversation and conversation.isascii() else {}
    try:
        await run.wait_for_events()
        if given.stream:
            events = _stream(service, run, mark_delivered, keeps=keeps)
            return EventStream(pad_stream(events, wanted=given.obfuscates), headers)
        result: Item = await run.wait_for_end()
    except asyncio.CancelledError:
        if not keeps:
            await service.runs.cancel(run.name)
        raise
    await mark_delivered()
    return json_response(result, headers=headers)


async def _exists(service: Service, caller: Caller, conversation: str) -> bool:
    return await call_store(service.store, lambda: service.store.info(caller.owner, conversation)) is not None


async def _start(
    service: Service,
    caller: Caller,
    given: CreateChat,
    name: RunName,
    target: ResponseId,
    conversation: str | None,
    state: bytes | None,
    *,
    is_new: bool,
    repeats: bool,
) -> Run:
    model = service.models.find(given.model, allowed=caller.models)
    system, messages = given.split_messages()
    tools = given.choose_tools().tools
    order = TurnOrder(
        owner=caller.owner,
        model=model,
        wire="openai-chat",
        messages=messages,
        first=len(given.messages) - len(messages),
        system=system,
        tools=tools,
        options=given.make_options(model.provider, model.options),
        output=given.read_output(),
        conversation=conversation,
        state=state,
        key=target.key,
        meta={"metadata": given.metadata} if given.metadata else None,
    )
    with_usage = given.stream_options is not None and bool(given.stream_options.include_usage)
    chunks = _Chunks(name.id, model.name, [tool.name for tool in tools], with_usage=with_usage)

    async def play(run: Run) -> Item:
        completion = await _play(run, await service.open_stream(order), order, chunks, with_usage=with_usage)
        if repeats:
            run.emit(_COMPLETION + _encoder.encode(completion) + b"}")
        return completion

    running = None if is_new else service.runs.find(name)
    return running or await service.start_run(name, play, logs=repeats)


class _Chunks:
    """Renders the events of a turn as chunks of a chat completion."""

    def __init__(self, id: str, model: str, tools: list[str], *, with_usage: bool) -> None:  # noqa: A002
        self._id = id
        self._model = model
        self._tools = tools
        # The usage comes last, in a chunk of its own.
        self._no_usage: Item = {"usage": None} if with_usage else {}
        self._created = now() // 1000
        self._indexes: dict[int, int] = {}
        self._sent: set[int] = set()

    def make(self, delta: Delta, finish: str | None = None) -> bytes:
        """Return a chunk."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _encoder.encode(self._base("chat.completion.chunk") | {"choices": [choice], **self._no_usage})

    def make_usage(self, usage: Usage) -> bytes:
        """Return the last chunk, which has the usage and no choice."""
        return _encoder.encode(self._base("chat.completion.chunk") | {"choices": [], "usage": to_chat_usage(usage)})

    def make_completion(self, reply: TurnReply, finish: str) -> Item:
        """Return the whole completion."""
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments.decode("utf-8", "replace") or "{}"},
            }
            for call in reply.calls
            if is_shown(call.name, self._tools)
        ]
        refusal = reply.message.refusal if reply.message is not None else ""
        message: Item = {
            "role": "assistant",
            "content": reply.text or (None if calls or refusal else ""),
            "refusal": refusal or None,
            "annotations": [],
        }
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return self._base("chat.completion") | {"choices": [choice], "usage": to_chat_usage(reply.usage)}

    def feed(self, event: object) -> bytes | None:
        """Return the chunk for an event of a turn, or None if the event has none."""
        if type(event) is Text:
            return self.make({"content": event.text})
        if type(event) is Reasoning:
            return self.make({"reasoning_content": event.text})
        if type(event) is ToolCallDelta and is_shown(event.name, self._tools):
            return self._make_call(event.index, event.id, event.name, event.arguments)
        if type(event) is ToolCall and is_shown(event.name, self._tools) and not self._indexes:
            index = len(self._sent)
            self._sent.add(index)
            return self._make_call(1_000 + index, event.id, event.name, event.arguments.decode("utf-8", "replace"))
        return None

    def _make_call(self, index: int, id: str, name: str, arguments: str) -> bytes:  # noqa: A002
        begins = index not in self._indexes
        if begins and index < 1_000:
            self._indexes[index] = len(self._indexes)
        place = self._indexes.get(index, index - 1_000)
        function = {"name": name, "arguments": arguments} if begins else {"arguments": arguments}
        call = {"index": place, "id": id, "type": "function", "function": function}
        return self.make({"tool_calls": [call if begins else {"index": place, "function": function}]})

    def _base(self, kind: str) -> Item:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}


async def _play(run: Run, stream: AsyncStream[Any], order: TurnOrder, chunks: _Chunks, *, with_usage: bool) -> Item:
    begun = False
    with run.play(stream), name_results(order):
        async for event in stream:
            if type(event) is Done:
                break
            chunk = chunks.feed(event)
            if chunk is not None:
                if not begun:
                    run.emit(chunks.make({"role": "assistant", "content": ""}))
                    begun = True
                run.emit(chunk)
    reply: TurnReply = stream.reply
    if not begun:
        run.emit(chunks.make({"role": "assistant", "content": ""}))
    finish = _FINISH.get(reply.finish_reason, "stop")
    run.emit(chunks.make({}, finish))
    if with_usage:
        run.emit(chunks.make_usage(reply.usage))
    return chunks.make_completion(reply, finish)


async def _stream(
    service: Service, run: Run, mark_delivered: Callable[[], Awaitable[None]], *, keeps: bool
) -> AsyncGenerator[bytes, None]:
    try:
        async for _, events in run.follow():
            yield _to_sse(events)
        if run.failure is not None:
            error = from_error(run.failure)
            yield b"data: %s\n\n" % _encoder.encode({"error": error.to_object()})
            return
        yield DONE
        await mark_delivered()
    finally:
        if not keeps and not run.ended:
            await service.runs.cancel(run.name)


async def _repeat(pages: AsyncIterator[tuple[int, list[bytes]]], given: CreateChat) -> Response:
    """Return the answer of a run that may go on in another process."""
    if given.stream:
        return EventStream(pad_stream(_stream_again(pages), wanted=given.obfuscates))
    last = b""
    async for _, events in pages:
        last = events[-1]
    if not _is_completion(last):
        raise interrupted()
    return Response(last[len(_COMPLETION) : -1], media_type="application/json")


async def _stream_again(pages: AsyncIterator[tuple[int, list[bytes]]]) -> AsyncGenerator[bytes, None]:
    last = b""
    async for _, events in pages:
        yield _to_sse(events)
        last = events[-1]
    if _is_completion(last):
        yield DONE
    else:
        yield b"data: %s\n\n" % _encoder.encode({"error": interrupted().to_object()})


def _to_sse(events: list[bytes]) -> bytes:
    return b"".join([b"data: %s\n\n" % event for event in events if not _is_completion(event)])


def _is_completion(event: bytes) -> bool:
    return event.startswith(_COMPLETION)


def to_chat_usage(usage: Usage) -> Item:
    """Return token counts in the form of Chat Completions."""
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning, "audio_tokens": 0},
    }


ENDPOINTS = (("POST", PATH, create),)
