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
from longtalk.testing.provider_script import Act, Script
from longtalk.wires import WIRES
from tests.testing.played import Played

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
    def failure(self, act: Act) -> ProviderError:
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
    def ask(self, body: bytes, *, stream: bool) -> Act:
        return super().ask(json.dumps(json.loads(body)).encode(), stream=stream)


class LeavesOutAnswers(Played):
    def ask(self, body: bytes, *, stream: bool) -> Act:
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

    def ask(self, body: bytes, *, stream: bool) -> Act:
        if threading.get_ident() != self.thread:
            raise RuntimeError("another thread")
        return super().ask(body, stream=stream)


class KeepsTheRequestOnItself(Played):
    def ask(self, body: bytes, *, stream: bool) -> Act:
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

    def failure(self, act: Act) -> ProviderError:
        return ProviderError(act.body.decode(), status=act.status, body=act.body)


class ForgetsWhatWasSaid(Played):
    def failure(self, act: Act) -> ProviderError:
        error = super().failure(act)
        error.body, error.status = b"", None
        return error


class TakesAllRefusalsForKeys(Played):
    def failure(self, act: Act) -> ProviderError:
        return super().failure(Act(act.body, status=401))


class ForgetsHowLongToWait(Played):
    def failure(self, act: Act) -> ProviderError:
        error = super().failure(act)
        return RateLimited("Wait.", status=429, retryable=False) if isinstance(error, RateLimited) else error


class GoesElsewhere(Played):
    def failure(self, act: Act) -> ProviderError:
        return Unreachable("Nobody is there.", retryable=False) if "location" in act.headers else super().failure(act)


class LetsNobodyTryAgain(Played):
    def failure(self, act: Act) -> ProviderError:
        error = super().failure(act)
        error.retryable = False
        return error


class TakesPagesForAnswers(Played):
    def ask(self, body: bytes, *, stream: bool) -> Act:
        act = super().ask(body, stream=stream)
        said = b'{"choices":[{"message":{"role":"assistant","content":"a page"},"finish_reason":"stop"}]}'
        return Act(said) if act.body.startswith(b"<") else act


class RaisesWhatTheSystemRaises(Played):
    def ask(self, body: bytes, *, stream: bool) -> Act:
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

    def ask(self, body: bytes, *, stream: bool) -> Act:
        if self.broken:
            raise Overloaded("Broken.", retryable=False)
        try:
            return super().ask(body, stream=stream)
        except ProviderError:
            self.broken = True
            raise


BROKEN: list[tuple[type[Played], str]] = [
    (IsAnotherAccountEachTime, "it_says_who_it_is"),
    (IsNobody, "it_says_who_it_is"),
    (HasAnotherName, "it_says_who_it_is"),
    (HasNoProvider, "it_says_who_it_is"),
    (SetsWhatTheChatSets, "it_says_who_it_is"),
    (SpeaksAWireOfItsOwn, "it_says_who_it_is"),
    (SaysNothing, "a_turn_is_answered_with_text"),
    (SaysNothing, "a_streamed_turn_shows_the_text_of_its_reply"),
    (StreamsWholeBodies, "a_streamed_turn_shows_the_text_of_its_reply"),
    (StreamsNothing, "a_streamed_turn_shows_the_text_of_its_reply"),
    (LeavesOutWhatTheWireNeeds, "every_request_is_valid"),
    (HasNewDefaultsEachTime, "each_request_begins_with_the_one_before"),
    (SaysWhoSpeaks, "what_it_said_goes_back_as_it_came"),
    (StreamsOnce, "turns_of_both_kinds_follow_each_other"),
    (HasDefaultsOfItsOwn, "a_state_goes_on_with_a_provider_made_anew"),
    (CantBeClosed, "a_stream_that_is_closed_keeps_what_was_said"),
    (IsBusyAfterAClosedStream, "a_stream_that_is_closed_keeps_what_was_said"),
    (ReportsNoUsage, "usage_is_reported"),
    (ReportsNothingSpent, "usage_is_reported"),
    (ReportsOneLength, "usage_is_reported"),
    (ReportsMoreCachedThanSent, "usage_is_reported"),
    (IsForOneThread, "several_threads_are_answered_at_once"),
    (IsClosedOnce, "it_is_closed_twice"),
    (WritesRequestsAnew, "a_request_arrives_as_it_was_made"),
    (WritesAnswersAnew, "a_body_comes_back_as_it_was_sent"),
    (WritesAnswersAnew, "events_come_as_they_were_sent"),
    (WritesAnswersAnew, "what_nobody_knows_goes_back_as_it_came"),
    (KnowsAllFields, "what_nobody_knows_goes_back_as_it_came"),
    (LosesAnEvent, "events_come_as_they_were_sent"),
    (LosesAnEvent, "a_streamed_answer_is_the_answer"),
    (ReadsShortLines, "an_answer_may_be_long"),
    (MakesOneCall, "calls_made_together_are_answered_in_order"),
    (CallsBackwards, "calls_made_together_are_answered_in_order"),
    (LeavesOutAnswers, "an_answer_is_sent_back_part_by_part"),
    (WritesRequestsAnew, "an_answer_is_sent_back_part_by_part"),
    (WaitsForTheWhole, "text_is_shown_before_the_answer_is_whole"),
    (ReadsOn, "a_stream_that_is_closed_ends_the_answer"),
    (KeepsTheRequestOnItself, "turns_at_once_do_not_mix"),
    (Fails, "a_key_that_is_not_taken_is_told_and_not_tried_again"),
    (AsksTwice, "a_key_that_is_not_taken_is_told_and_not_tried_again"),
    (ForgetsWhatWasSaid, "a_key_that_is_not_taken_is_told_and_not_tried_again"),
    (Fails, "a_request_that_is_refused_is_not_tried_again"),
    (TakesAllRefusalsForKeys, "a_request_that_is_refused_is_not_tried_again"),
    (GoesElsewhere, "another_address_is_told_and_not_gone_to"),
    (Fails, "a_limit_of_requests_is_waited_for"),
    (ForgetsHowLongToWait, "a_limit_of_requests_is_waited_for"),
    (LetsNobodyTryAgain, "trouble_of_the_server_is_tried_again_and_then_told"),
    (TakesPagesForAnswers, "a_page_is_no_answer"),
    (Fails, "a_request_that_is_too_long_is_told_with_the_window"),
    (RaisesWhatTheSystemRaises, "nobody_there_is_unreachable"),
    (RaisesWhatTheSystemRaises, "a_line_that_breaks_before_an_answer_is_unreachable"),
    (RaisesWhatTheSystemRaises, "a_stream_that_is_cut_keeps_what_came"),
    (GivesHalfABody, "half_a_body_is_no_answer"),
    (StaysBroken, "after_any_error_the_next_turn_is_answered"),
    (QuotesItsKey, "a_key_is_never_shown"),
    (IsItsKey, "a_key_is_never_shown"),
    (IsOneAccountForAll, "a_key_is_never_shown"),
]
