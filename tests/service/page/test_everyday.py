"""An hour of talk in one tab, two tabs that change the same conversations, and the page by ear, zoomed and small."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve
from tests.service.page.browser import Visits, answers, begin, find_problems
from tests.service.test_runs import Waiting

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

TALK = """async turns => {
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const field = document.getElementById('message');
  const box = document.querySelector('.messages');
  const readLast = () => document.querySelector('.feed')?.lastElementChild?.textContent ?? '';
  const isAnswered = (number) => readLast().includes(`Reply ${number}.`)
    && [...document.querySelectorAll('.composer button')].at(-1).textContent === 'Send';
  let atEnd = 0;
  for (let number = 0; number < turns; number += 1) {
    field.value = `Question ${number}?`;
    field.dispatchEvent(new Event('input', { bubbles: true }));
    await pause(20);
    field.form.requestSubmit();
    for (let tries = 0; !isAnswered(number) && tries < 3000; tries += 1) await pause(20);
    await pause(20);
    atEnd += box.scrollHeight - box.scrollTop - box.clientHeight < 3;
  }
  return atEnd;
}"""
VIEWS = ("", "inspector", "memory", "money", "branches")


def test_an_hour_of_talk_in_one_tab_keeps_all_and_holds_little(serve: Serve, visit: Visits) -> None:
    turns = 47  # more messages than the page holds
    one = begin(visit, serve(local=AsyncScripted(*[says(f"Reply **{i}**.") for i in range(turns)])))
    one.page.get_by_role("button", name="Send").wait_for()
    assert one.page.evaluate(TALK, turns) == turns
    assert one.page.get_by_role("article").count() <= 90
    one.page.reload()
    expect(answers(one.page).last).to_contain_text(f"Reply {turns - 1}.")
    one.page.wait_for_function("""() => {
      document.querySelector('.messages').scrollTop = 0;
      return document.querySelector('.feed article')?.textContent.includes('Question 0?');
    }""")


def open_menu(page: Page, action: str) -> None:
    page.get_by_label("Actions of this conversation").first.click()
    page.get_by_role("button", name=action, exact=True).click()


def test_two_tabs_agree_on_edits_renames_and_deletes(serve: Serve, visit: Visits, tmp_path: Path) -> None:
    provider = AsyncScripted(says("The first."), says("The second."))
    one = begin(visit, serve(local=provider, store=SQLite(tmp_path / "talks.db")))
    one.say("One question")
    expect(answers(one.page).first).to_contain_text("The first.")
    other = one.open(one.page.url)
    expect(answers(other).first).to_contain_text("The first.")
    one.page.get_by_role("article", name="You").hover()
    one.page.get_by_role("button", name="Edit").click()
    one.page.get_by_label("Edit").fill("Another question")
    one.page.get_by_role("button", name="Save").click()
    expect(answers(one.page).first).to_contain_text("The second.")
    other.get_by_role("button", name="Next branch").first.click()
    expect(answers(other).first).to_contain_text("The second.")
    expect(other.get_by_role("article", name="You")).to_contain_text("Another question")
    open_menu(one.page, "Rename")
    one.page.get_by_label("Title").fill("Renamed here")
    one.page.get_by_role("dialog").get_by_role("button", name="Rename").click()
    expect(other.get_by_role("link", name="Renamed here")).to_be_visible()
    open_menu(one.page, "Delete")
    one.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(other.get_by_role("link", name="Renamed here")).to_have_count(0)
    expect(other.get_by_role("heading", name="What shall we talk about?")).to_be_visible()


def test_a_screen_reader_hears_each_part_of_an_answer_once(serve: Serve, visit: Visits) -> None:
    text = "One thing, with some more words, first.\n\nThen the rest.\n\nThe end."
    provider = Waiting(says(text, pieces=6))
    one = begin(visit, serve(local=provider))
    one.page.get_by_role("log").wait_for(state="attached")
    one.page.evaluate("""() => {
      window.heard = [];
      const hear = ({ addedNodes, type }) => type === 'characterData' ? heard.push('changed')
        : addedNodes.forEach((each) => heard.push(each.textContent));
      new MutationObserver((all) => all.forEach(hear))
        .observe(document.querySelector('[role=log]'), { childList: true, subtree: true, characterData: true });
    }""")
    one.say("Go on.")
    expect(one.page.locator(".live")).to_contain_text("One")
    assert one.page.evaluate("heard") == []
    provider.go.set()
    expect(one.page.get_by_role("button", name="Send")).to_be_visible()
    expect(one.page.get_by_role("log")).to_contain_text("The end.")
    heard = one.page.evaluate("heard")
    assert " ".join(" ".join(heard).split()) == " ".join(text.split())
    assert len(heard) <= 3


# 600 pixels are a window of 1,200 at 200 % zoom.
@pytest.mark.parametrize(("scheme", "widths"), [("light", (1200, 600)), ("dark", (360,))])
def test_each_view_is_accessible_zoomed_and_on_a_phone(
    serve: Serve, visit: Visits, scheme: str, widths: tuple[int, ...]
) -> None:
    one = visit(serve(local=AsyncScripted()), color_scheme=scheme, reduced_motion="reduce")
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.wait_for_url("**/inspector")
    found: dict[str, object] = {}
    for width in widths:
        one.page.set_viewport_size({"width": width, "height": 800})
        for view in VIEWS:
            one.page.goto(f"{one.url}/#/c/sample-violin/{view}")
            expect(one.page.locator("main")).to_contain_text("violin" if view == "memory" else "")
            one.page.wait_for_timeout(150)
            wide = one.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            if wide > 0:
                found[f"{view} is too wide at {width}"] = wide
            high = one.page.evaluate("document.documentElement.scrollHeight - innerHeight")
            if high > 0:
                found[f"{view} is too high at {width}"] = high
            if width != 600 and (problems := find_problems(one.page)):
                found[f"{view} at {width}"] = problems
    assert found == {}
