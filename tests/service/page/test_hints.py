"""What the page says beside a choice or a figure, and where it leads."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve
from tests.service.page.browser import Visits, answers, begin, policy_button

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def test_the_other_messages_of_an_exchange_say_that_they_are_left_out_with_it(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=AsyncScripted(says("A secret."))))
    one.say("Tell me one.")
    user = one.page.get_by_role("article", name="You")
    expect(answers(one.page).first).to_contain_text("A secret.")
    user.hover()
    user.get_by_role("button", name="Leave out of all requests").click()
    expect(answers(one.page).first).to_contain_text("left out with its exchange")
    answers(one.page).first.hover()
    answers(one.page).first.get_by_role("button", name="Put back into the requests").click()
    expect(user).not_to_contain_text("left out")
    expect(answers(one.page).first).not_to_contain_text("left out")


def test_a_new_chat_that_sends_everything_recommends_memory(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=AsyncScripted(says("Hello."))))
    one.page.get_by_role("button", name="Use Memory").click()
    expect(policy_button(one.page)).to_contain_text("Memory")
    expect(one.page.get_by_role("button", name="Use Memory")).to_have_count(0)
    expect(one.page.get_by_label("Message", exact=True)).to_be_focused()


def test_an_address_begins_a_line_of_the_memory(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.wait_for_url("**/inspector")
    one.page.goto(f"{one.url}/#/c/sample-violin/memory/add/Needs%20a%2FB%20strings")
    field = one.page.get_by_label("Something to remember")
    expect(field).to_be_focused()
    expect(field).to_be_in_viewport()
    expect(field).to_have_value("Needs a/B strings")


def test_a_hit_of_the_search_says_when_and_in_which_conversation(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_label("Search conversations").fill("Dominants")
    one.page.get_by_role("button", name="Open a sample conversation").click()
    expect(one.page.locator(".list .hit").first).to_contain_text("2026 · Sample: Ada learns the violin")


def test_a_turn_of_the_costs_leads_to_what_it_sent(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.get_by_role("link", name="Costs", exact=True).click()
    expect(one.page.get_by_text("one of 2 in this conversation")).to_be_visible()
    one.page.locator("td a").nth(2).click()
    expect(one.page.get_by_role("complementary", name="What the model saw")).to_contain_text("Turn 33 of 35")


def test_the_limit_of_the_history_does_not_move_with_the_message(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    gauge = one.page.get_by_role("link", name="tokens in the next request")
    expect(gauge).to_contain_text("history 500 of 1,500")
    one.page.get_by_label("Message", exact=True).fill("Long words. " * 200)
    expect(gauge).not_to_contain_text("About 506 ")
    expect(gauge).to_contain_text(" of 1,500")


def test_a_fork_says_that_it_is_another_branch_and_leads_back(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=AsyncScripted(says("Hello."))))
    one.say("Hello?")
    answers(one.page).first.hover()
    answers(one.page).first.get_by_role("button", name="Branch from here").click()
    expect(one.page.get_by_text("This is a new branch")).to_be_visible()
    one.page.get_by_role("button", name="Back to it").click()
    one.page.locator(".views").get_by_role("link", name="Branches").click()
    expect(one.page.locator(".map [aria-current]")).to_have_text("Hello?")


def test_a_file_of_a_conversation_that_is_there_is_imported_as_a_copy(
    serve: Serve, visit: Visits, tmp_path: Path
) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    menu = one.page.get_by_label("Actions of this conversation")
    menu.click()
    with one.page.expect_download() as started:
        one.page.get_by_role("button", name="Export .json").click()
    started.value.save_as(tmp_path / "talk.json")
    menu.click()
    one.page.get_by_role("button", name="Rename", exact=True).click()
    one.page.get_by_role("dialog").get_by_label("Title").fill("Lessons")
    one.page.get_by_role("dialog").get_by_role("button", name="Rename").click()
    expect(one.page.get_by_role("link", name="Lessons")).to_be_visible()
    one.page.get_by_label("Import a file").set_input_files(tmp_path / "talk.json")
    dialog = one.page.get_by_role("dialog", name="Import “talk.json” as a copy?")
    expect(dialog).to_contain_text("This conversation is here already, with another title or other details.")
    dialog.get_by_role("button", name="Import a copy").click()
    copy = one.page.locator(".list .current")
    expect(copy).to_contain_text("Sample: Ada learns the violin (copy)")
    expect(one.page.locator(".list li")).to_have_count(2)
    expect(answers(one.page).last).to_contain_text("a run-through of the minuet on Sundays.")
