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
from longtalk.providers.redaction import Redactor
from longtalk.testing.providers.script import Script, ScriptedResponse
from longtalk.wires import WIRES
from tests.testing.providers.in_process import InProcessProvider

# Label, account, wire and defaults


class HasNewAccountEachTime(InProcessProvider):
    numbers = itertools.count()

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.account = f"account-{next(self.numbers)}"


class HasNoAccount(InProcessProvider):
    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.account = ""


class LabelsAnotherModel(InProcessProvider):
    label = "in_process:another"


class LabelsNoProvider(InProcessProvider):
    label = ":model"


class DefaultsToReservedOptions(InProcessProvider):
    defaults = {"messages": []}  # noqa: RUF012


class HasUnregisteredWire(InProcessProvider):
    wire = type("Own", (), {"name": "own"})()


class RepeatsWhatTheServerQuotes(InProcessProvider):
    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.redactor = Redactor()


class QuotesItsKey(RepeatsWhatTheServerQuotes):
    def make_error(self, response: ScriptedResponse) -> ProviderError:
        return Overloaded(f"Refused with the key {self.script.key}.", retryable=False)


class PutsTheKeyInTheAccount(InProcessProvider):
    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.account = f"key {script.key}"


class HasOneAccountForAllKeys(InProcessProvider):
    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.account = "all"


# Requests


class OmitsRequiredDefaults(InProcessProvider):
    wire = WIRES["anthropic"]


class HasNewDefaultsEachTime(InProcessProvider):
    numbers = itertools.count()

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        return {"seed": next(self.numbers)}


class HasOtherDefaultsPerInstance(InProcessProvider):
    numbers = itertools.count()

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.defaults = {"seed": next(self.numbers)}


class ReencodesRequests(InProcessProvider):
    def ask(self, body: bytes, *, stream: bool) -> ScriptedResponse:
        return super().ask(json.dumps(json.loads(body)).encode(), stream=stream)


class LeavesOutAnswers(InProcessProvider):
    def ask(self, body: bytes, *, stream: bool) -> ScriptedResponse:
        request = json.loads(body)
        request["messages"] = [each for each in request["messages"] if each["role"] != "assistant"]
        return super().ask(json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode(), stream=stream)


class RetriesEveryError(InProcessProvider):
    def send(self, body: bytes) -> bytes:
        try:
            return super().send(body)
        except ProviderError:
            return super().send(body)


# Answers


class ChangesAnswers(InProcessProvider):
    """A base class whose subclasses change the data of an answer."""

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


class AnswersWithBlanks(ChangesAnswers):
    def change(self, data: bytes) -> bytes:
        return re.sub(rb'"content":"[^"]+"', b'"content":" "', data)


class ReencodesAnswers(ChangesAnswers):
    def change(self, data: bytes) -> bytes:
        return data if data == b"[DONE]" else json.dumps(json.loads(data)).encode()


class DropsUnknownFields(ChangesAnswers):
    def change(self, data: bytes) -> bytes:
        if data == b"[DONE]":
            return data
        found = json.loads(data, object_hook=lambda each: {k: v for k, v in each.items() if k != "x_odd"})
        return json.dumps(found).encode()


class DropsTheRole(ChangesAnswers):
    def change(self, data: bytes) -> bytes:
        return data.replace(b'"role":"assistant",', b"")


class ReportsNoUsage(ChangesAnswers):
    def change(self, data: bytes) -> bytes:
        return re.sub(rb',"usage":\{[^}]*\}', b"", data)


class ReportsNoOutputTokens(ChangesAnswers):
    def change(self, data: bytes) -> bytes:
        return re.sub(rb'"completion_tokens":\d+', b'"completion_tokens":0', data)


class ReportsConstantInputTokens(ChangesAnswers):
    def change(self, data: bytes) -> bytes:
        return re.sub(rb'"prompt_tokens":\d+', b'"prompt_tokens":70', data)


class ReportsMoreCachedThanSent(ChangesAnswers):
    def change(self, data: bytes) -> bytes:
        return data.replace(b'"usage":{', b'"usage":{"prompt_tokens_details":{"cached_tokens":99999},')


class DropsTheSecondCall(ChangesAnswers):
    def change(self, data: bytes) -> bytes:
        return b"[DONE]" if data == b"[DONE]" else json.dumps(_drop_second_call(json.loads(data))).encode()


class SwapsCallIds(ChangesAnswers):
    def change(self, data: bytes) -> bytes:
        swapped = data.replace(b"call_1", b"call_0").replace(b"call_2", b"call_1")
        return swapped.replace(b"call_0", b"call_2")


def _drop_second_call(answer: Any) -> Any:
    for choice in answer["choices"]:
        said = choice.get("message") or choice["delta"]
        if "tool_calls" in said:
            said["tool_calls"] = [call for call in said["tool_calls"] if not call.get("index")][:1]
    return answer


# Streams


class ChangesStreams(InProcessProvider):
    """A base class whose subclasses change the events of a stream."""

    def events(self, source: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
        yield from source

    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        return self.events(super().stream(body))


class StreamsWholeBodies(InProcessProvider):
    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        yield self.send(body)


class StreamsNothing(ChangesStreams):
    def events(self, source: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
        list(source)
        yield from ()


class LosesAnEvent(ChangesStreams):
    def events(self, source: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
        for number, data in enumerate(source):
            if number != 3:
                yield data


class CutsLongEvents(ChangesStreams):
    def events(self, source: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
        for data in source:
            yield data[:65_536]


class BuffersTheWholeStream(ChangesStreams):
    def events(self, source: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
        yield from list(source)


class CannotCloseItsStream(ChangesStreams):
    def events(self, source: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
        closed = False
        for data in source:
            try:
                yield data
            except GeneratorExit:
                if closed:
                    raise
                closed = True


class IgnoresAnEarlyClose(InProcessProvider):
    def handle_early_close(self) -> None:
        pass


class IsBusyAfterAClosedStream(InProcessProvider):
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


class StreamsOnce(InProcessProvider):
    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        if self.__dict__.get("streamed"):
            raise Overloaded("No more.", retryable=False)
        self.streamed = True
        yield from super().stream(body)


class ReadsOnlyDataLines:
    """A provider that reads the lines of a stream that begin with `data: `, instead of its events."""

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


# Threads and closing


class WorksInOneThreadOnly(InProcessProvider):
    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.thread = threading.get_ident()

    def ask(self, body: bytes, *, stream: bool) -> ScriptedResponse:
        if threading.get_ident() != self.thread:
            raise RuntimeError("another thread")
        return super().ask(body, stream=stream)


class SharesItsRequestBetweenThreads(InProcessProvider):
    def ask(self, body: bytes, *, stream: bool) -> ScriptedResponse:
        self.body = body
        time.sleep(0.002)
        return super().ask(self.body, stream=stream)


class CannotBeClosedTwice(InProcessProvider):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


# Errors


class RaisesOneErrorClass(InProcessProvider):
    """A provider that raises `ProviderError` itself for every refusal."""

    def make_error(self, response: ScriptedResponse) -> ProviderError:
        return ProviderError(response.body.decode(), status=response.status, body=response.body)


class DropsStatusAndBody(InProcessProvider):
    def make_error(self, response: ScriptedResponse) -> ProviderError:
        error = super().make_error(response)
        error.body, error.status = b"", None
        return error


class ReportsEveryRefusalAsABadKey(InProcessProvider):
    def make_error(self, response: ScriptedResponse) -> ProviderError:
        return super().make_error(ScriptedResponse(response.body, status=401))


class DropsRetryAfter(InProcessProvider):
    def make_error(self, response: ScriptedResponse) -> ProviderError:
        error = super().make_error(response)
        return RateLimited("Wait.", status=429, retryable=False) if isinstance(error, RateLimited) else error


class ReportsRedirectsAsUnreachable(InProcessProvider):
    def make_error(self, response: ScriptedResponse) -> ProviderError:
        return (
            Unreachable("No server.", retryable=False)
            if "location" in response.headers
            else super().make_error(response)
        )


class MarksNothingRetryable(InProcessProvider):
    def make_error(self, response: ScriptedResponse) -> ProviderError:
        error = super().make_error(response)
        error.retryable = False
        return error


class AcceptsHtmlPages(InProcessProvider):
    def ask(self, body: bytes, *, stream: bool) -> ScriptedResponse:
        response = super().ask(body, stream=stream)
        said = b'{"choices":[{"message":{"role":"assistant","content":"a page"},"finish_reason":"stop"}]}'
        return ScriptedResponse(said) if response.body.startswith(b"<") else response


class RaisesConnectionError(InProcessProvider):
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


class ReturnsHalfABody(InProcessProvider):
    def send(self, body: bytes) -> bytes:
        return self.ask(body, stream=False).body


class StaysBroken(InProcessProvider):
    broken = False

    def ask(self, body: bytes, *, stream: bool) -> ScriptedResponse:
        if self.broken:
            raise Overloaded("Broken.", retryable=False)
        try:
            return super().ask(body, stream=stream)
        except ProviderError:
            self.broken = True
            raise


BROKEN: list[tuple[type[InProcessProvider], str]] = [
    (HasNewAccountEachTime, "a_provider_describes_itself"),
    (HasNoAccount, "a_provider_describes_itself"),
    (LabelsAnotherModel, "a_provider_describes_itself"),
    (LabelsNoProvider, "a_provider_describes_itself"),
    (DefaultsToReservedOptions, "a_provider_describes_itself"),
    (HasUnregisteredWire, "a_provider_describes_itself"),
    (AnswersWithBlanks, "a_turn_is_answered_with_text"),
    (AnswersWithBlanks, "a_streamed_turn_shows_the_text_of_its_reply"),
    (StreamsWholeBodies, "a_streamed_turn_shows_the_text_of_its_reply"),
    (StreamsNothing, "a_streamed_turn_shows_the_text_of_its_reply"),
    (OmitsRequiredDefaults, "every_request_is_valid"),
    (HasNewDefaultsEachTime, "each_request_extends_the_previous_one"),
    (DropsTheRole, "answers_are_sent_back_unchanged"),
    (StreamsOnce, "whole_and_streamed_turns_can_alternate"),
    (HasOtherDefaultsPerInstance, "a_new_provider_continues_from_a_state"),
    (CannotCloseItsStream, "a_closed_stream_keeps_its_text"),
    (IsBusyAfterAClosedStream, "a_closed_stream_keeps_its_text"),
    (ReportsNoUsage, "usage_is_reported"),
    (ReportsNoOutputTokens, "usage_is_reported"),
    (ReportsConstantInputTokens, "usage_is_reported"),
    (ReportsMoreCachedThanSent, "usage_is_reported"),
    (WorksInOneThreadOnly, "several_threads_can_send_at_once"),
    (CannotBeClosedTwice, "a_provider_can_be_closed_twice"),
    (ReencodesRequests, "a_request_arrives_unchanged"),
    (ReencodesAnswers, "a_body_is_returned_unchanged"),
    (ReencodesAnswers, "events_are_returned_unchanged"),
    (ReencodesAnswers, "unknown_fields_are_sent_back_unchanged"),
    (DropsUnknownFields, "unknown_fields_are_sent_back_unchanged"),
    (LosesAnEvent, "events_are_returned_unchanged"),
    (LosesAnEvent, "a_streamed_answer_equals_the_whole_answer"),
    (CutsLongEvents, "a_long_answer_is_returned_whole"),
    (DropsTheSecondCall, "parallel_calls_are_answered_in_order"),
    (SwapsCallIds, "parallel_calls_are_answered_in_order"),
    (LeavesOutAnswers, "each_part_of_an_answer_is_sent_back"),
    (ReencodesRequests, "each_part_of_an_answer_is_sent_back"),
    (BuffersTheWholeStream, "text_is_streamed_before_the_answer_ends"),
    (IgnoresAnEarlyClose, "closing_a_stream_closes_the_connection"),
    (SharesItsRequestBetweenThreads, "concurrent_turns_do_not_mix"),
    (RaisesOneErrorClass, "a_rejected_key_is_reported_and_not_retried"),
    (RetriesEveryError, "a_rejected_key_is_reported_and_not_retried"),
    (DropsStatusAndBody, "a_rejected_key_is_reported_and_not_retried"),
    (RaisesOneErrorClass, "a_refused_request_is_not_retried"),
    (ReportsEveryRefusalAsABadKey, "a_refused_request_is_not_retried"),
    (ReportsRedirectsAsUnreachable, "a_redirect_is_reported_and_not_followed"),
    (RaisesOneErrorClass, "a_rate_limit_is_waited_for"),
    (DropsRetryAfter, "a_rate_limit_is_waited_for"),
    (MarksNothingRetryable, "a_server_error_is_retried_then_reported"),
    (AcceptsHtmlPages, "an_html_page_is_a_bad_answer"),
    (RaisesOneErrorClass, "a_request_that_is_too_long_raises_context_overflow"),
    (RaisesConnectionError, "a_missing_server_is_unreachable"),
    (RaisesConnectionError, "a_connection_closed_before_an_answer_is_unreachable"),
    (RaisesConnectionError, "a_broken_stream_keeps_its_text"),
    (ReturnsHalfABody, "half_a_body_is_an_error"),
    (StaysBroken, "the_next_turn_works_after_any_error"),
    (QuotesItsKey, "errors_never_contain_the_key"),
    (RepeatsWhatTheServerQuotes, "a_key_that_the_server_quotes_is_redacted"),
    (PutsTheKeyInTheAccount, "errors_never_contain_the_key"),
    (HasOneAccountForAllKeys, "errors_never_contain_the_key"),
]
