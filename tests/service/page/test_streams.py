"""Answers as they come: stopped, cut off, without a network, and in two tabs."""

from __future__ import annotations

import time
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import expect

from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve, Served
from tests.service.fleet import TEXT, run_fleet
from tests.service.page.browser import Visits, answers, begin
from tests.service.test_runs import Waiting

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def wait_until_saved(service: Served) -> None:
    """Wait until the only conversation has an answer."""
    path = service.url + "/longtalk/v1/conversations"
    (talk,) = httpx2.get(path).json()["conversations"]
    while len(httpx2.get(f"{path}/{talk['id']}/history").json()["entries"]) < 2:
        time.sleep(0.05)


def test_stop_keeps_the_partial_text(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=Waiting()))
    one.say("Count.")
    expect(one.page.locator(".live")).to_contain_text("One")
    one.page.get_by_role("button", name="Stop").click()
    expect(one.page.get_by_role("button", name="Send")).to_be_visible()
    expect(answers(one.page).first).to_contain_text("One")
    one.page.reload()
    expect(answers(one.page).first).to_contain_text("One")
    expect(answers(one.page).first).not_to_contain_text("three")
    expect(one.page.get_by_role("button", name="Go on")).to_be_visible()
    expect(one.page.get_by_text("This answer was cut off.")).to_have_count(1)
    one.say("And now?")
    expect(answers(one.page).last).to_contain_text("Later.")
    expect(answers(one.page).first).to_contain_text("This answer was cut off.")


def test_a_stopped_answer_has_its_estimate_in_the_costs(serve: Serve, visit: Visits) -> None:
    service = serve(local=Waiting())
    one = begin(visit, service)
    page = one.page
    one.say("Count.")
    expect(page.locator(".live")).to_contain_text("One")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("This answer was cut off.")).to_be_visible()
    (day,) = httpx2.get(service.url + "/longtalk/v1/stats/daily").json()["days"]
    sent, here = f"~{day['usage']['input']}", page.url
    assert sent != "~0"
    for address in (here + "/money", one.url + "/#/money"):
        page.goto(address)
        expect(page.get_by_role("definition").filter(has_text=sent).first).to_be_visible()
        expect(page.get_by_role("cell", name=sent, exact=True).first).to_be_visible()
        expect(page.get_by_text("so that these are estimates")).to_be_visible()
    page.goto(here + "/inspector")
    expect(page.get_by_role("tabpanel")).to_contain_text("tokens")
    expect(page.get_by_text("The provider counted")).to_have_count(0)


def test_an_answer_goes_on_after_the_service_was_killed_and_started_again(visit: Visits, tmp_path: Path) -> None:
    with run_fleet(str(tmp_path / "talks.db"), count=1) as (fleet, provider):
        one = begin(visit, fleet)
        one.page.get_by_label("Model", exact=True).fill("m")
        one.say("Count.")
        expect(one.page.locator(".live")).to_contain_text("One")
        fleet.kill(fleet.balancer.chosen[-1])
        expect(one.page.get_by_text("Connection lost")).to_be_visible()
        provider.go.set()
        fleet.start()
        expect(answers(one.page).last).to_contain_text(TEXT)
        expect(one.page.get_by_role("button", name="Send")).to_be_visible()
        expect(one.page.get_by_role("article", name="You")).to_have_count(1)
        expect(one.page.get_by_text("Connection lost")).to_have_count(0)
        one.page.reload()
        expect(answers(one.page).last).to_contain_text(TEXT)


def test_an_answer_goes_on_after_the_network_was_away(serve: Serve, visit: Visits, tmp_path: Path) -> None:
    provider = Waiting()
    service = serve(local=provider, store=SQLite(tmp_path / "talks.db"))
    one = begin(visit, service)
    one.say("Count.")
    expect(one.page.locator(".live")).to_contain_text("One")
    one.context.set_offline(True)
    expect(one.page.get_by_text("Connection lost")).to_be_visible()
    provider.go.set()
    wait_until_saved(service)
    expect(one.page.locator(".live")).not_to_contain_text("three")
    one.context.set_offline(False)
    expect(answers(one.page).first).to_contain_text("One two three.")
    expect(one.page.get_by_text("Connection lost")).to_have_count(0)
    assert len(provider.requests) == 1


def test_a_message_written_offline_is_sent_when_the_network_is_back(serve: Serve, visit: Visits) -> None:
    provider = AsyncScripted(says("First."), says("Second."))
    one = begin(visit, serve(local=provider))
    one.say("One.")
    expect(answers(one.page).first).to_contain_text("First.")
    one.context.set_offline(True)
    one.say("Two.")
    expect(one.page.get_by_text("Connection lost")).to_be_visible()
    one.context.set_offline(False)
    expect(answers(one.page).nth(1)).to_contain_text("Second.")
    expect(one.page.get_by_role("article", name="You")).to_have_count(2)
    assert len(provider.requests) == 2


def test_two_tabs_see_each_others_answers_edits_and_marks(serve: Serve, visit: Visits, tmp_path: Path) -> None:
    provider = Waiting()
    one = begin(visit, serve(local=provider, store=SQLite(tmp_path / "talks.db")))
    other = one.open(one.page.url)
    expect(other.get_by_label("Message", exact=True)).to_be_visible()
    one.say("Count.")
    expect(other.locator(".live")).to_contain_text("One")
    provider.go.set()
    for page in (one.page, other):
        expect(answers(page).first).to_contain_text("One two three.")
    answers(one.page).first.hover()
    answers(one.page).first.get_by_role("button", name="Pin", exact=True).click()
    expect(answers(other).first).to_contain_text("pinned")
    other.get_by_role("article", name="You").hover()
    other.get_by_role("button", name="Edit").click()
    other.get_by_label("Edit").fill("Count again.")
    other.get_by_role("button", name="Save").click()
    expect(answers(other).first).to_contain_text("Later.")
    expect(one.page.get_by_role("button", name="Next branch").first).to_be_visible()
