"""Providers that each break one promise, and the cases that they fail."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
import urllib.request
from collections.abc import Generator
from typing import Any

from longtalk import Chat
from longtalk.errors import Overloaded, ProviderError, RateLimited, Unreachable
from longtalk.testing.providers.script import Script, ScriptedResponse
from longtalk.wires import WIRES
from tests.testing.providers.played import Played

# Who it is


class IsAnotherAccountEachTime(Played):
    numbers = itertools.count()

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.account = f"account-{next(self.numbers)}"


class IsNobody(Played):
    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.account = ""


class HasAnotherName(Played):
    label = "played:another"


class HasNoProvider(Played):
    label = ":model"


class SetsWhatTheChatSets(Played):
    defaults = {"messages": []}  # noqa: RUF012


class SpeaksAWireOfItsOwn(Played):
    wire = type("Own", (), {"name": "own"})()


class QuotesItsKey(Played):
    def failure(self, response: ScriptedResponse) -> ProviderError:
        return Overloaded(f"Refused with the key {self.script.key}.", retryable=False)


class IsItsKey(Played):
    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.account = f"key {script.key}"


class IsOneAccountForAll(Played):
    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.account = "all"


# What it asks


class LeavesOutWhatTheWireNeeds(Played):
    wire = WIRES["anthropic"]


class HasNewDefaultsEachTime(Played):
    numbers = itertools.count()

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        return {"seed": next(self.numbers)}


class HasDefaultsOfItsOwn(Played):
    numbers = itertools.count()

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.defaults = {"seed": next(self.numbers)}


class WritesRequestsAnew(Played):
    def ask(self, body: bytes, *, stream: bool) -> ScriptedResponse:
        return super().ask(json.dumps(json.loads(body)).encode(), stream=stream)


class LeavesOutAnswers(Played):
    def ask(self, body: bytes, *, stream: bool) -> ScriptedResponse:
        request = json.loads(body)
        request["messages"] = [each for each in request["messages"] if each["role"] != "assistant"]
        return super().ask(json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode(), stream=stream)


class AsksTwice(Played):
    def send(self, body: bytes) -> bytes:
        try:
            return super().send(body)
        except ProviderError:
            return super().send(body)


# What it answers


class Changes(Played):
    """Gives something else than what came."""

    def change(self, data: bytes) -> bytes:
        return data

    def send(self, body: bytes) -> bytes:
        return self.change(super().send(body))

    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        source = super().stream(body)
        try:
            for data in source:
                yield self.change(data)
        finally:
            source.close()


class SaysNothing(Changes):
    def change(self, data: bytes) -> bytes:
        return re.sub(rb'"content":"[^"]+"', b'"content":" "', data)


class WritesAnswersAnew(Changes):
    def change(self, data: bytes) -> bytes:
        return data if data == b"[DONE]" else json.dumps(json.loads(data)).encode()


class KnowsAllFields(Changes):
    def change(self, data: bytes) -> bytes:
        if data == b"[DONE]":
            return data
        found = json.loads(data, object_hook=lambda each: {k: v for k, v in each.items() if k != "x_odd"})
        return json.dumps(found).encode()


class SaysWhoSpeaks(Changes):
    def change(self, data: bytes) -> bytes:
        return data.replace(b'"role":"assistant",', b"")


class ReportsNoUsage(Changes):
    def change(self, data: bytes) -> bytes:
        return re.sub(rb',"usage":\{[^}]*\}', b"", data)


class ReportsNothingSpent(Changes):
    def change(self, data: bytes) -> bytes:
        return re.sub(rb'"completion_tokens":\d+', b'"completion_tokens":0', data)


class ReportsOneLength(Changes):
    def change(self, data: bytes) -> bytes:
        return re.sub(rb'"prompt_tokens":\d+', b'"prompt_tokens":70', data)


class ReportsMoreCachedThanSent(Changes):
    def change(self, data: bytes) -> bytes:
        return data.replace(b'"usage":{', b'"usage":{"prompt_tokens_details":{"cached_tokens":99999},')


class MakesOneCall(Changes):
    def change(self, data: bytes) -> bytes:
        return b"[DONE]" if data == b"[DONE]" else json.dumps(_without_second(json.loads(data))).encode()


class CallsBackwards(Changes):
    def change(self, data: bytes) -> bytes:
        swapped = data.replace(b"call_1", b"call_0").replace(b"call_2", b"call_1")
        return swapped.replace(b"call_0", b"call_2")


def _without_second(answer: Any) -> Any:
    for choice in answer["choices"]:
        said = choice.get("message") or choice["delta"]
        if "tool_calls" in said:
            said["tool_calls"] = [call for call in said["tool_calls"] if not call.get("index")][:1]
    return answer


# How it streams


class Streams(Played):
    """Streams in another way."""

    def events(self, source: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
        yield from source

    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        return self.events(super().stream(body))


class StreamsWholeBodies(Played):
    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        yield self.send(body)


class StreamsNothing(Streams):
    def events(self, source: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
        list(source)
        yield from ()


class LosesAnEvent(Streams):
    def events(self, source: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
        for number, data in enumerate(source):
            if number != 3:
                yield data


class ReadsShortLines(Streams):
    def events(self, source: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
        for data in source:
            yield data[:65_536]


class WaitsForTheWhole(Streams):
    def events(self, source: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
        yield from list(source)


class CantBeClosed(Streams):
    def events(self, source: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
        closed = False
        for data in source:
            try:
                yield data
            except GeneratorExit:
                if closed:
                    raise
                closed = True


class ReadsOn(Played):
    def gone(self) -> None:
        pass


class IsBusyAfterAClosedStream(Played):
    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        if self.__dict__.get("busy"):
            raise Overloaded("Still busy.", retryable=False)
        self.busy = True
        yield from super().stream(body)
        self.busy = False

    def send(self, body: bytes) -> bytes:
        if self.__dict__.get("busy"):
            raise Overloaded("Still busy.", retryable=False)
        return super().send(body)


class StreamsOnce(Played):
    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        if self.__dict__.get("streamed"):
            raise Overloaded("No more.", retryable=False)
        self.streamed = True
        yield from super().stream(body)


class ReadsLines:
    """Takes a stream for lines that begin in one way."""

    def __init__(self, url: str, key: str) -> None:
        self._good = Chat("compatible:model", base_url=url, api_key=key).provider
        self.url = url

    def __getattr__(self, name: str) -> Any:
        return getattr(self._good, name)

    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        request = urllib.request.Request(self.url, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            for line in answer:
                if line.startswith(b"data: "):
                    yield line[6:].removesuffix(b"\n")


# Threads, and its end


class IsForOneThread(Played):
    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.thread = threading.get_ident()

    def ask(self, body: bytes, *, stream: bool) -> ScriptedResponse:
        if threading.get_ident() != self.thread:
            raise RuntimeError("another thread")
        return super().ask(body, stream=stream)


class KeepsTheRequestOnItself(Played):
    def ask(self, body: bytes, *, stream: bool) -> ScriptedResponse:
        self.body = body
        time.sleep(0.002)
        return super().ask(self.body, stream=stream)


class IsClosedOnce(Played):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


# Trouble


class Fails(Played):
    """Makes one of all errors."""

    def failure(self, response: ScriptedResponse) -> ProviderError:
        return ProviderError(response.body.decode(), status=response.status, body=response.body)


class ForgetsWhatWasSaid(Played):
    def failure(self, response: ScriptedResponse) -> ProviderError:
        error = super().failure(response)
        error.body, error.status = b"", None
        return error


class TakesAllRefusalsForKeys(Played):
    def failure(self, response: ScriptedResponse) -> ProviderError:
        return super().failure(ScriptedResponse(response.body, status=401))


class ForgetsHowLongToWait(Played):
    def failure(self, response: ScriptedResponse) -> ProviderError:
        error = super().failure(response)
        return RateLimited("Wait.", status=429, retryable=False) if isinstance(error, RateLimited) else error


class GoesElsewhere(Played):
    def failure(self, response: ScriptedResponse) -> ProviderError:
        return (
            Unreachable("No server.", retryable=False) if "location" in response.headers else super().failure(response)
        )


class LetsNobodyTryAgain(Played):
    def failure(self, response: ScriptedResponse) -> ProviderError:
        error = super().failure(response)
        error.retryable = False
        return error


class TakesPagesForAnswers(Played):
    def ask(self, body: bytes, *, stream: bool) -> ScriptedResponse:
        response = super().ask(body, stream=stream)
        said = b'{"choices":[{"message":{"role":"assistant","content":"a page"},"finish_reason":"stop"}]}'
        return ScriptedResponse(said) if response.body.startswith(b"<") else response


class RaisesWhatTheSystemRaises(Played):
    def ask(self, body: bytes, *, stream: bool) -> ScriptedResponse:
        try:
            return super().ask(body, stream=stream)
        except ProviderError as problem:
            raise ConnectionError(str(problem)) from None

    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        try:
            yield from super().stream(body)
        except ProviderError as problem:
            raise ConnectionError(str(problem)) from None


class GivesHalfABody(Played):
    def send(self, body: bytes) -> bytes:
        return self.ask(body, stream=False).body


class StaysBroken(Played):
    broken = False

    def ask(self, body: bytes, *, stream: bool) -> ScriptedResponse:
        if self.broken:
            raise Overloaded("Broken.", retryable=False)
        try:
            return super().ask(body, stream=stream)
        except ProviderError:
            self.broken = True
            raise


BROKEN: list[tuple[type[Played], str]] = [
    (IsAnotherAccountEachTime, "it_describes_itself"),
    (IsNobody, "it_describes_itself"),
    (HasAnotherName, "it_describes_itself"),
    (HasNoProvider, "it_describes_itself"),
    (SetsWhatTheChatSets, "it_describes_itself"),
    (SpeaksAWireOfItsOwn, "it_describes_itself"),
    (SaysNothing, "a_turn_is_answered_with_text"),
    (SaysNothing, "a_streamed_turn_shows_the_text_of_its_reply"),
    (StreamsWholeBodies, "a_streamed_turn_shows_the_text_of_its_reply"),
    (StreamsNothing, "a_streamed_turn_shows_the_text_of_its_reply"),
    (LeavesOutWhatTheWireNeeds, "every_request_is_valid"),
    (HasNewDefaultsEachTime, "each_request_extends_the_previous_one"),
    (SaysWhoSpeaks, "answers_are_sent_back_unchanged"),
    (StreamsOnce, "both_kinds_of_turns_can_alternate"),
    (HasDefaultsOfItsOwn, "a_new_provider_continues_from_a_state"),
    (CantBeClosed, "a_closed_stream_keeps_its_text"),
    (IsBusyAfterAClosedStream, "a_closed_stream_keeps_its_text"),
    (ReportsNoUsage, "usage_is_reported"),
    (ReportsNothingSpent, "usage_is_reported"),
    (ReportsOneLength, "usage_is_reported"),
    (ReportsMoreCachedThanSent, "usage_is_reported"),
    (IsForOneThread, "several_threads_can_send_at_once"),
    (IsClosedOnce, "it_can_be_closed_twice"),
    (WritesRequestsAnew, "a_request_arrives_unchanged"),
    (WritesAnswersAnew, "a_body_is_returned_unchanged"),
    (WritesAnswersAnew, "events_are_returned_unchanged"),
    (WritesAnswersAnew, "unknown_fields_are_sent_back_unchanged"),
    (KnowsAllFields, "unknown_fields_are_sent_back_unchanged"),
    (LosesAnEvent, "events_are_returned_unchanged"),
    (LosesAnEvent, "a_streamed_answer_equals_the_whole_answer"),
    (ReadsShortLines, "a_long_answer_is_returned_whole"),
    (MakesOneCall, "parallel_calls_are_answered_in_order"),
    (CallsBackwards, "parallel_calls_are_answered_in_order"),
    (LeavesOutAnswers, "each_part_of_an_answer_is_sent_back"),
    (WritesRequestsAnew, "each_part_of_an_answer_is_sent_back"),
    (WaitsForTheWhole, "text_is_streamed_before_the_answer_ends"),
    (ReadsOn, "closing_a_stream_closes_the_connection"),
    (KeepsTheRequestOnItself, "concurrent_turns_do_not_mix"),
    (Fails, "a_rejected_key_is_reported_and_not_retried"),
    (AsksTwice, "a_rejected_key_is_reported_and_not_retried"),
    (ForgetsWhatWasSaid, "a_rejected_key_is_reported_and_not_retried"),
    (Fails, "a_refused_request_is_not_retried"),
    (TakesAllRefusalsForKeys, "a_refused_request_is_not_retried"),
    (GoesElsewhere, "a_redirect_is_reported_and_not_followed"),
    (Fails, "a_rate_limit_is_waited_for"),
    (ForgetsHowLongToWait, "a_rate_limit_is_waited_for"),
    (LetsNobodyTryAgain, "a_server_error_is_retried_then_reported"),
    (TakesPagesForAnswers, "an_html_page_is_a_bad_answer"),
    (Fails, "a_request_that_is_too_long_raises_context_overflow"),
    (RaisesWhatTheSystemRaises, "a_missing_server_is_unreachable"),
    (RaisesWhatTheSystemRaises, "a_connection_closed_before_an_answer_is_unreachable"),
    (RaisesWhatTheSystemRaises, "a_broken_stream_keeps_its_text"),
    (GivesHalfABody, "half_a_body_is_an_error"),
    (StaysBroken, "the_next_turn_works_after_any_error"),
    (QuotesItsKey, "errors_never_contain_the_key"),
    (IsItsKey, "errors_never_contain_the_key"),
    (IsOneAccountForAll, "errors_never_contain_the_key"),
]
