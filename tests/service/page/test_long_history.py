"""Conversations longer than the window of messages that the page holds, and Markdown that grows."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Page, expect

from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve, Served
from tests.service.page.browser import Visits, answers, find_problems
from tests.service.test_runs import Waiting

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

TURNS = 300
MOST = 90
SEEN = """() => {
  const box = document.querySelector('.messages').getBoundingClientRect();
  const seen = [...document.querySelectorAll('.feed > article')].filter((each) => {
    const { top, bottom } = each.getBoundingClientRect();
    return bottom > box.top && top < box.bottom;
  });
  return seen.map((each) => [Number(each.getAttribute('aria-posinset')), Math.round(each.getBoundingClientRect().top)]);
}"""
MARKDOWN = """# Bows

A *light* one, at **58 g**,\nand a <b>heavy</b> one.

Setext
------

1. Tune

   with a fork
2. Play
- loose

- list

```python
for bar in range(3):

    play(bar)
```
> quoted
still quoted

| a | b |
|---|---|
| 1 | 2 |

    indented

<!-- a

comment -->
***
The end.\r\nReally."""


def bring(service: Served, turns: int = TURNS) -> str:
    """Import a conversation of numbered messages, and return its address."""
    messages = [
        {"role": role, "content": f"{name} {number}. " + "More words about it. " * (number % 7)}
        for number in range(turns)
        for role, name in (("user", "Question"), ("assistant", "Reply"))
    ]
    made = httpx2.post(service.url + "/longtalk/v1/import", content=json.dumps(messages)).json()
    return f"{service.url}/#/c/{made['conversations'][0]['id']}"


def go(page: Page, share: float) -> None:
    page.evaluate(
        "share => { const box = document.querySelector('.messages'); box.scrollTop = share * box.scrollHeight; }", share
    )


def find_seen(page: Page) -> dict[int, int]:
    """Return the messages in sight, numbered from 1, with where they are on the screen."""
    return dict(page.evaluate(SEEN))


def test_a_long_conversation_is_scrolled_without_jumps_and_left_by_a_button(serve: Serve, visit: Visits) -> None:
    service = serve(local=AsyncScripted())
    one = visit(service)
    page = one.open(bring(service))
    expect(page.get_by_text(f"Reply {TURNS - 1}.")).to_be_visible()
    latest = page.get_by_role("button", name="Latest")
    expect(latest).to_have_count(0)
    page.mouse.move(700, 400)
    before = find_seen(page)
    for _ in range(60):
        page.evaluate("() => { document.querySelector('.messages').scrollTop -= 200; }")
        page.wait_for_timeout(20)
        after = find_seen(page)
        moved = {after[number] - before[number] for number in before.keys() & after.keys()}
        assert moved <= {199, 200, 201}, (before, after)
        before = after
    assert min(before) < 2 * TURNS - 70
    assert page.get_by_role("article").count() <= MOST
    go(page, 0.5)
    expect(page.get_by_text("Question 152.", exact=False)).to_be_visible()
    go(page, 0)
    expect(page.get_by_text("Question 0.")).to_be_visible()
    first = page.get_by_role("article").first
    assert (first.get_attribute("aria-posinset"), first.get_attribute("aria-setsize")) == ("1", str(2 * TURNS))
    assert find_problems(page) == []
    latest.click()
    expect(page.get_by_text(f"Reply {TURNS - 1}.")).to_be_in_viewport()
    expect(latest).to_have_count(0)
    expect(page.get_by_label("Message", exact=True)).to_be_focused()


def test_the_search_of_the_browser_is_replaced_where_it_would_miss_messages(serve: Serve, visit: Visits) -> None:
    service = serve(local=AsyncScripted())
    one = visit(service)
    bring(service, 2)
    page = one.open(bring(service))
    expect(page.get_by_text(f"Reply {TURNS - 1}.")).to_be_visible()
    page.keyboard.press("Control+f")
    dialog = page.get_by_role("dialog", name="Find in this conversation")
    expect(dialog).to_contain_text("the whole conversation, of which the page holds a part")
    assert find_problems(page) == []
    dialog.get_by_role("combobox").fill("Question 1.")
    expect(dialog.get_by_role("option", name="Question 1.")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("article.found")).to_contain_text("Question 1.")
    expect(page.locator("article.found")).to_be_in_viewport()
    page.evaluate("addEventListener('keydown', (event) => { window.passed = !event.defaultPrevented; })")
    page.keyboard.press("Control+f")
    expect(dialog).to_be_visible()
    assert page.evaluate("passed") is False
    page.keyboard.press("Control+f")
    expect(dialog).to_have_count(0)
    assert page.evaluate("passed") is True
    page.goto(f"{one.url}/#/")
    page.keyboard.press("Control+f")
    assert page.evaluate("passed") is True


def test_a_hit_far_back_is_opened_marked_and_focused(serve: Serve, visit: Visits) -> None:
    service = serve(local=AsyncScripted())
    one = visit(service)
    page = one.open(bring(service))
    page.get_by_label("Search conversations").fill("Question 42")
    page.locator("a.hit", has_text="Question 42.").click()
    found = page.locator("article.found")
    expect(found).to_contain_text("Question 42.")
    expect(found).to_be_in_viewport()
    expect(found).to_be_focused()
    expect(answers(page).filter(has_text="Reply 42.")).to_be_visible()
    page.get_by_label("Search conversations").fill("Reply 7.")
    page.locator("a.hit", has_text="Reply 7.").first.click()
    expect(page.locator("article.found")).to_contain_text("Reply 7.")
    expect(page.locator("article.found")).to_be_in_viewport()
    page.reload()
    expect(page.locator("article.found")).to_be_in_viewport()
    entry = page.url.split("/at/")[1].split("/")[0]
    page.goto(page.url.split("/at/")[0])
    page.goto(f"{page.url}/at/{entry}")  # as the source of a memory: without the branch and the position
    expect(page.locator("article.found")).to_be_in_viewport()


def test_an_answer_is_followed_only_by_a_reader_at_the_end(serve: Serve, visit: Visits) -> None:
    provider = Waiting(says("One " + "and on\n\n" * 80 + "three.", pieces=3), says("Later."))
    service = serve(local=provider)
    one = visit(service)
    one.page = page = one.open(bring(service, 60))
    expect(page.get_by_text("Reply 59.")).to_be_visible()
    one.say("Go on.")
    expect(page.locator(".live")).to_contain_text("One")
    expect(page.locator(".live .block").last).to_be_in_viewport()
    go(page, 0.5)
    expect(page.get_by_role("button", name="Latest")).to_be_visible()
    page.wait_for_timeout(300)
    before = find_seen(page)
    provider.go.set()
    expect(answers(page).last).to_contain_text("three.")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert find_seen(page) == before
    page.get_by_role("button", name="Latest").click()
    expect(answers(page).last.get_by_text("three.")).to_be_in_viewport()


@pytest.fixture
def growing(serve: Serve, visit: Visits) -> Any:
    """Return a function that renders a text piece by piece, and returns the HTML of the pieces and of the whole."""
    one = visit(serve(local=AsyncScripted()))
    return lambda text, size: one.page.evaluate(
        """async ([text, size]) => {
          const { GrowingMarkdown, renderMarkdown } = await import('/page/markdown.js');
          const growing = new GrowingMarkdown();
          let shown = { blocks: [], last: '' };
          for (let end = size; end < text.length + size; end += size) shown = growing.update(text.slice(0, end));
          return [shown.blocks.join('') + shown.last, renderMarkdown(text), shown.blocks.length];
        }""",
        [text, size],
    )


def test_markdown_that_grows_becomes_what_it_is_as_a_whole(growing: Any) -> None:
    for size in (1, 2, 3, 5, 7, 11, 31, 97):
        pieces, whole, _ = growing(MARKDOWN, size)
        assert pieces.split() == whole.split(), size
    assert growing(MARKDOWN.replace("\r", ""), 1)[2] >= 8
