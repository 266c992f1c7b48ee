"""A real Chromium for tests of the page.

Whatever it asks of another origin, and each violation of the page's policy for content, is kept as a complaint.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Locator, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def start_chromium() -> Iterator[Browser]:
    """Start the Chromium that this machine has; without one, skip the test."""
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium on this machine: `make browser` installs it")
    # Chromium keeps reports of crashes in this folder, whatever its profile is.
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        environment: dict[str, str | float | bool] = {**os.environ, "XDG_CONFIG_HOME": folder}
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS), env=environment)
        yield browser
        browser.close()


class Visit:
    """One visitor of a page, with a profile of their own."""

    def __init__(self, browser: Browser, url: str, **settings: Any) -> None:
        self.url = url
        self.complaints: list[str] = []
        self.context: BrowserContext = browser.new_context(**{"viewport": {"width": 1200, "height": 850}, **settings})
        self.page = self.open()

    def open(self, url: str = "") -> Page:
        """Open the page, or one of its addresses, in a further tab."""
        page = self.context.new_page()
        page.set_default_timeout(60_000)
        page.on("request", self._check_origin)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("console", lambda message: self._check_message(message.text))
        page.goto(url or self.url)
        return page

    def _check_origin(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.complaints.append(f"request to {request.url}")

    def _check_message(self, text: str) -> None:
        if "Content Security Policy" in text:
            self.complaints.append(text)

    def say(self, text: str) -> None:
        """Type a message and send it."""
        self.page.get_by_label("Message", exact=True).fill(text)
        self.page.get_by_role("button", name="Send", exact=True).click()

    def close(self) -> None:
        """Close all tabs, and complain about what went wrong in them."""
        self.context.close()
        assert not self.complaints, self.complaints


Visits = Callable[..., Visit]


def begin(visit: Visits, service: Any, **settings: Any) -> Visit:
    """Open the page and start a conversation."""
    one = visit(service, **settings)
    one.page.get_by_role("button", name="New chat").first.click()
    one.page.wait_for_url("**#/c/*")
    return one


def policy_button(page: Page) -> Locator:
    """Return the button that names the policy of the next messages."""
    return page.get_by_role("button", name=re.compile(r"^Policy\b"))


def write_policy(page: Page, code: str) -> None:
    """Choose a policy for the next messages by its code, and wait until the service has accepted it."""
    policy_button(page).click()
    page.get_by_label("As code").fill(code)
    page.get_by_label("As code").press("Enter")
    page.get_by_role("dialog", name="Policy").wait_for(state="detached")


def answers(page: Page) -> Locator:
    """Return the answers that a page shows."""
    return page.get_by_role("article", name="Answer")


def find_problems(page: Page) -> list[str]:
    """Return the serious and critical problems that axe finds on a page, each with an element that has it."""
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {json.dumps(each['nodes'][0]['html'])[:200]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
