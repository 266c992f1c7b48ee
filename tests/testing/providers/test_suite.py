"""The provider suite: correct providers pass, and a provider that breaks a promise fails the case for it."""

from __future__ import annotations

from unittest import SkipTest

import pytest

from longtalk.errors import InputError, ProviderError
from longtalk.providers.base import Capabilities
from longtalk.testing.providers.script import Script
from longtalk.testing.providers.suite import CASES, Case, check_provider, over_http
from longtalk.wires import HTTP_WIRES
from tests.testing.providers.broken_providers import (
    BROKEN,
    DropsTheSecondCall,
    ReadsOnlyDataLines,
    ReportsNoUsage,
    StreamsNothing,
)
from tests.testing.providers.in_process import InProcessProvider, make_factory, serve_in_process


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Script, "patience", 0.2)


def find_case(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


@pytest.mark.parametrize(("broken", "case"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_a_provider_that_breaks_a_promise_fails_its_case(broken: type[InProcessProvider], case: str) -> None:
    with pytest.raises((AssertionError, ProviderError, RuntimeError, ConnectionError)):
        find_case(case).run(make_factory(broken), serve=serve_in_process(broken))


def test_every_case_has_a_provider_that_fails_it() -> None:
    assert {case.name for case in CASES} == {case for _, case in BROKEN}


def test_case_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


# The format of events


def test_a_provider_that_reads_lines_instead_of_events_fails() -> None:
    with pytest.raises(AssertionError, match="events, sent by all bytes, comments: True"):
        find_case("events_are_returned_unchanged").run(serve=over_http(ReadsOnlyDataLines))  # type: ignore[arg-type]


# Reports


def test_a_correct_provider_passes() -> None:
    report = check_provider(make_factory(InProcessProvider), serve=serve_in_process(InProcessProvider))
    report.raise_for_failures()
    assert len(report.passed) == len(CASES)


@pytest.mark.parametrize("wire", sorted(HTTP_WIRES))
def test_a_correct_provider_of_any_wire_passes_without_a_model(wire: str) -> None:
    good = type("Good", (InProcessProvider,), {"wire": HTTP_WIRES[wire], "defaults": HTTP_WIRES[wire].defaults})
    report = check_provider(serve=serve_in_process(good))
    report.raise_for_failures()
    assert len(report.passed) == len(CASES)


def test_without_a_scripted_server_its_cases_are_skipped() -> None:
    report = check_provider(make_factory(InProcessProvider))
    assert report.failed == ()
    assert report.skipped == tuple(case.name for case in CASES if case.scripted)
    with pytest.raises(SkipTest, match="pass serve="):
        find_case("an_html_page_is_a_bad_answer").run(make_factory(InProcessProvider))


def test_cases_for_features_that_a_provider_lacks_are_skipped() -> None:
    class Plain(StreamsNothing, DropsTheSecondCall):
        capabilities = Capabilities(streaming=False, tools=False)

    report = check_provider(make_factory(Plain), serve=serve_in_process(Plain))
    failed = [failure.name for failure in report.failed]
    # This case alternates only where it can, so it runs without streaming too.
    ran = {*report.passed, *failed} - {"whole_and_streamed_turns_can_alternate"}
    assert not any("stream" in name or "calls" in name for name in ran)
    assert "parallel_calls_are_answered_in_order" in report.skipped


def test_the_report_names_failed_cases_with_file_and_line() -> None:
    report = check_provider(make_factory(ReportsNoUsage), serve=serve_in_process(ReportsNoUsage))
    assert "usage_is_reported" in [failure.name for failure in report.failed]
    assert "an_html_page_is_a_bad_answer" in report.passed
    with pytest.raises(AssertionError, match=r"the provider fails \d of 37 cases:(?s:.*)conversations.py:\d+\)"):
        report.raise_for_failures()


def test_check_provider_needs_make_or_serve() -> None:
    with pytest.raises(InputError, match="nothing to test"):
        check_provider()
