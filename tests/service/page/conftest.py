"""A browser for the tests of the page, and visitors of it that complain about what went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.service.page.browser import Visit, Visits, start_chromium

expect.set_options(timeout=60_000)


# Playwright keeps an event loop running in this thread, in which other tests could not start one.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Start one Chromium for all tests of a file."""
    with start_chromium() as browser:
        yield browser


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Visits]:
    """Open the page of a service: `visit(service)`. What went wrong in the page fails the test at its end."""
    made: list[Visit] = []

    def start(service: Any, **settings: Any) -> Visit:
        made.append(Visit(chromium, service.url, **settings))
        return made[-1]

    yield start
    for each in made:
        each.close()
