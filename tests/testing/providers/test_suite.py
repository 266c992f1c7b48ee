"""The suite for providers: providers that break the contract fail the right case."""

from __future__ import annotations

from unittest import SkipTest

import pytest

from longtalk.errors import InputError, ProviderError
from longtalk.providers.base import Capabilities
from longtalk.testing.providers.script import Script
from longtalk.testing.providers.suite import CASES, Case, check_provider, over_http
from longtalk.wires import HTTP_WIRES
from tests.testing.providers.broken_providers import BROKEN, MakesOneCall, ReadsLines, ReportsNoUsage, StreamsNothing
from tests.testing.providers.played import Played, maker, serve


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Script, "patience", 0.2)


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


@pytest.mark.parametrize(("broken", "case"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_a_provider_that_breaks_a_promise_fails_its_case(broken: type[Played], case: str) -> None:
    with pytest.raises((AssertionError, ProviderError, RuntimeError, ConnectionError)):
        case_of(case).run(maker(broken), serve=serve(broken))


def test_every_case_has_a_provider_that_fails_it() -> None:
    assert {case.name for case in CASES} == {case for _, case in BROKEN}


def test_no_two_cases_have_one_name() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


# Events are read as servers write them


def test_who_reads_a_stream_as_lines_fails() -> None:
    with pytest.raises(AssertionError, match="events, sent by all bytes, comments: True"):
        case_of("events_are_returned_unchanged").run(serve=over_http(ReadsLines))  # type: ignore[arg-type]


# Reports


def test_a_good_provider_passes() -> None:
    report = check_provider(maker(Played), serve=serve(Played))
    report.raise_for_failures()
    assert len(report.passed) == len(CASES)


@pytest.mark.parametrize("wire", sorted(HTTP_WIRES))
def test_a_good_provider_of_any_wire_passes_without_a_model(wire: str) -> None:
    good = type("Good", (Played,), {"wire": HTTP_WIRES[wire], "defaults": HTTP_WIRES[wire].defaults})
    report = check_provider(serve=serve(good))
    report.raise_for_failures()
    assert len(report.passed) == len(CASES)


def test_without_a_server_that_follows_a_script_its_cases_are_left_out() -> None:
    report = check_provider(maker(Played))
    assert report.failed == ()
    assert report.skipped == tuple(case.name for case in CASES if case.scripted)
    with pytest.raises(SkipTest, match="no server"):
        case_of("an_html_page_is_a_bad_answer").run(maker(Played))


def test_what_a_provider_says_that_it_cannot_do_is_not_tried() -> None:
    class Plain(StreamsNothing, MakesOneCall):
        capabilities = Capabilities(streaming=False, tools=False)

    report = check_provider(maker(Plain), serve=serve(Plain))
    tried = [failure.name for failure in report.failed]
    assert not any("stream" in name or "calls" in name for name in (*report.passed, *tried))
    assert "parallel_calls_are_answered_in_order" in report.skipped


def test_the_report_says_what_failed_and_where() -> None:
    report = check_provider(maker(ReportsNoUsage), serve=serve(ReportsNoUsage))
    assert "usage_is_reported" in [failure.name for failure in report.failed]
    assert "an_html_page_is_a_bad_answer" in report.passed
    with pytest.raises(AssertionError, match=r"the provider fails \d of 36 cases:(?s:.*)conversations.py:\d+\)"):
        report.raise_for_failures()


def test_there_has_to_be_something_to_try() -> None:
    with pytest.raises(InputError, match="nothing to test"):
        check_provider()
