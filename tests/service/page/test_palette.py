"""The command palette, the keys, and the way from a search to a message."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve
from tests.service.page.browser import Visits, answers, begin, find_problems

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def open_sample(page: Page) -> None:
    page.get_by_role("button", name="Open a sample conversation").click()
    expect(page.get_by_role("complementary", name="What the model saw")).to_contain_text("tokens were sent to")


def test_the_palette_is_used_by_keyboard_alone_and_gives_the_focus_back(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=AsyncScripted(says("Rosin helps."))))
    one.say("My bow slips.")
    expect(answers(one.page).first).to_contain_text("Rosin helps.")
    message = one.page.get_by_label("Message", exact=True)
    message.focus()
    one.page.keyboard.press("Control+k")
    field = one.page.get_by_role("combobox", name="Commands")
    expect(field).to_be_focused()
    assert find_problems(one.page) == []
    one.page.keyboard.press("Tab")
    assert one.page.locator("#app :focus:not(dialog *)").count() == 0
    one.page.keyboard.press("Escape")
    expect(field).to_have_count(0)
    expect(message).to_be_focused()
    one.page.get_by_role("link", name="Chat", exact=True).focus()
    one.page.keyboard.press("Control+k")
    one.page.keyboard.type("Memory")
    one.page.keyboard.press("Enter")
    expect(one.page.get_by_role("link", name="Memory", exact=True)).to_be_focused()
    one.page.keyboard.press("Control+k")
    one.page.keyboard.type("rename")
    expect(one.page.get_by_role("option", name="Rename this conversation")).to_have_attribute("aria-selected", "true")
    one.page.keyboard.press("Enter")
    expect(one.page.get_by_role("dialog", name="Rename “My bow slips.”")).to_be_visible()


def test_the_palette_leads_to_conversations_views_and_messages(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    open_sample(one.page)
    one.page.goto(one.url + "/#/")
    one.page.keyboard.press("Control+k")
    one.page.keyboard.type("violin")
    one.page.get_by_role("option", name="Sample: Ada learns the violin").click()
    one.page.wait_for_url("**#/c/sample-violin")
    one.page.keyboard.press("Control+k")
    one.page.keyboard.press("ArrowUp")
    expect(one.page.get_by_role("option", selected=True)).to_have_text("Keyboard shortcuts?")
    one.page.keyboard.type("costs")
    one.page.keyboard.press("Enter")
    expect(one.page.get_by_role("heading", name="What this conversation costs")).to_be_visible()
    one.page.keyboard.press("Control+k")
    one.page.keyboard.type("windscreen wiper")
    one.page.get_by_role("option", name="windscreen wiper").first.click()
    expect(one.page.locator("article.found")).to_contain_text("windscreen wiper")


def test_keys_open_views_and_a_question_mark_lists_them(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    open_sample(one.page)
    one.page.keyboard.press("Alt+m")
    expect(one.page.get_by_role("heading", name="What is remembered")).to_be_visible()
    one.page.keyboard.press("?")
    keys = one.page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(keys).to_contain_text("What the model saw")
    assert find_problems(one.page) == []
    one.page.keyboard.press("Alt+c")
    expect(keys).to_be_visible()
    one.page.keyboard.press("Escape")
    one.page.keyboard.press("Alt+c")
    message = one.page.get_by_label("Message", exact=True)
    message.press_sequentially("Why?")
    expect(message).to_have_value("Why?")
    expect(keys).to_have_count(0)


def test_a_search_hit_opens_the_branch_and_the_message(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=AsyncScripted(says("A light one."), says("A dark one."))))
    one.say("Which rosin?")
    expect(answers(one.page).first).to_contain_text("A light one.")
    one.page.get_by_role("article", name="You").hover()
    one.page.get_by_role("button", name="Edit").click()
    one.page.get_by_label("Edit").fill("Which varnish?")
    one.page.get_by_role("button", name="Save").click()
    expect(answers(one.page).first).to_contain_text("A dark one.")
    one.page.get_by_label("Search conversations").fill("rosin")
    one.page.locator("a.hit", has_text="Which rosin?").click()
    expect(one.page.locator("article.found")).to_contain_text("Which rosin?")
    expect(answers(one.page).first).to_contain_text("A light one.")
