"""Every view with hostile text of models, messages, tools and files in it: nothing happens, and axe finds nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Page, expect

from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve, Served
from tests.service.native.conftest import Api
from tests.service.page.browser import Visit, Visits, find_problems

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

HOSTILE = (
    '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
    "[go](javascript:window.hacked=1) [data](data:text/html,<script>window.hacked=1</script>) "
    '![p](http://127.0.0.2:9/pixel.png) <iframe src="http://127.0.0.2:9/"></iframe><svg onload="window.hacked=1"></svg>'
    '<form action="http://127.0.0.2:9/"><button>All</button></form><style>body{display:none}</style>'
    '"onmouseover="window.hacked=1" \'-window.hacked=1-\' {{hacked}} ${window.hacked=1} harmless'
)
POLICY = "Memory(brief=Brief(budget=150), recent=0, outline=60, recall=400, limit=2_500)"


def make_talk(service: Served) -> str:
    """Fill a conversation with hostile text wherever text can be, and return its id."""
    call = Api(service)
    with call.http:
        made = call("POST", "/conversations", json={"title": HOSTILE})["id"]
        talk = f"/conversations/{made}"
        tool = {"name": "look", "description": HOSTILE, "parameters": {"type": "object"}}
        for i in range(6):
            body = {"message": f"{i} {HOSTILE}", "system": HOSTILE, "tools": [tool], "policy": POLICY}
            turn = call("POST", f"{talk}/turns", json=body)
            if turn["calls"]:
                outputs = [{"call_id": each["id"], "text": HOSTILE} for each in turn["calls"]]
                turn = call("POST", f"{talk}/turns", json={**body, "message": None, "outputs": outputs})
        call("POST", f"{talk}/brief", json={"field": "facts", "text": HOSTILE})
        call("POST", "/profile", json={"field": "about_user", "text": HOSTILE})
        call("POST", f"{talk}/notes", json={"text": HOSTILE, "source": HOSTILE})
        call("POST", f"{talk}/branches", json={"name": HOSTILE[:90]})
        call("PUT", f"{talk}/pins/{turn['entries'][0]['id']}")
        call("PUT", f"{talk}/exclusions/{call('GET', f'{talk}/history')['entries'][2]['id']}")
    return str(made)


def walk(one: Visit, talk: str) -> Iterator[str]:
    """Go through all views, opening what is folded, and yield the name of each when it is there."""
    page, here = one.page, f"{one.url}/#/c/{talk}"
    page.goto(here)
    expect(page.get_by_role("article").first).to_be_visible()
    open_all(page)
    yield "chat"
    page.goto(here + "/inspector")
    expect(page.get_by_text("Every message, and why")).to_be_visible()
    page.get_by_label("Did the model forget something?").fill("harmless")
    panel = page.get_by_role("tabpanel")
    expect(panel.locator(".hit", has_text="onerror").first).to_be_visible()
    for i in range(panel.locator(".run").count()):
        panel.locator(".run").nth(i).click()
    expect(panel.locator(".texts").last).to_be_visible()
    yield "context"
    for tab, text in (("Request", "onerror"), ("Recalled", "onerror"), ("Shortened", "In place of what was removed")):
        page.get_by_role("tab", name=tab).click()
        expect(panel).to_contain_text(text)
        yield tab
    page.goto(here + "/branches")
    expect(page.locator(".map button").nth(1)).to_be_visible()
    yield "map"
    page.goto(here + "/memory")
    expect(page.get_by_role("heading", name="Topics over time")).to_be_visible()
    expect(page.get_by_role("region", name="About you")).to_contain_text("onerror")
    open_all(page)
    yield "memory"
    page.goto(here + "/money")
    page.get_by_role("button", name="Compare policies").click()
    expect(page.locator(".policies li").first).to_be_visible()
    yield "costs"
    page.goto(one.url + "/#/money")
    expect(page.get_by_role("heading", name="Costs of all conversations")).to_be_visible()
    yield "all costs"
    page.goto(one.url + "/#/licences")
    expect(page.get_by_role("link", name="preact/LICENSE")).to_be_visible()
    yield "licences"
    page.get_by_label("Search conversations").fill("harmless")
    expect(page.locator(".hit").first).to_be_visible()
    yield "search"
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Commands").fill("harmless")
    expect(page.locator(".choice.message").first).to_be_visible()
    yield "palette"
    page.keyboard.press("Escape")
    for action in ("Rename", "Delete"):
        page.get_by_label("Actions of this conversation").first.click()
        page.get_by_role("button", name=action, exact=True).click()
        expect(page.get_by_role("dialog")).to_be_visible()
        yield action
        page.keyboard.press("Escape")


def open_all(page: Page) -> None:
    """Open what is folded."""
    page.evaluate("document.querySelectorAll('main details').forEach((each) => { each.open = true; })")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_text_does_nothing_in_any_view_and_axe_finds_nothing(serve: Serve, visit: Visits, scheme: str) -> None:
    provider = AsyncScripted(
        says(calls=[("c1", "look", {"at": HOSTILE})]), *[says(f"{i} {HOSTILE} " * 2) for i in range(12)]
    )
    service = serve(local=provider)
    talk = make_talk(service)
    one = visit(service, color_scheme=scheme)
    found: dict[str, Any] = {}
    for name in walk(one, talk):
        live = one.page.locator(
            "iframe, form[action], img[src^='x'], img[src^='http'], a[href^='javascript'], main style"
        )
        found[name] = [find_problems(one.page), live.count(), one.page.evaluate("window.hacked ?? null")]
    assert {name: what for name, what in found.items() if what != [[], 0, None]} == {}
    assert len(found) == 14


def test_a_hostile_file_that_is_dropped_is_imported_and_does_nothing(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    messages = [
        {"role": "user", "content": HOSTILE},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "a", "arguments": json.dumps({"x": HOSTILE})}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": HOSTILE},
        {"role": "assistant", "content": [{"type": "text", "text": HOSTILE}]},
    ]
    drop(one.page, '<img src=x onerror="window.hacked=1">.json', json.dumps(messages))
    expect(one.page.get_by_role("status").filter(has_text="Imported.")).to_be_visible()
    expect(one.page.get_by_role("article", name="Answer").last).to_contain_text("harmless")
    drop(one.page, "second.json", json.dumps([{"role": "user", "content": "Another file."}]))
    expect(one.page.get_by_role("article", name="You")).to_contain_text("Another file.")
    drop(one.page, "<svg onload=window.hacked=1>.txt", HOSTILE)
    expect(one.page.get_by_role("alert")).to_be_visible()
    assert one.page.evaluate("window.hacked ?? null") is None


def drop(page: Page, name: str, text: str) -> None:
    """Drop a file on the page."""
    page.evaluate(
        """([name, text]) => {
            const data = new DataTransfer();
            data.items.add(new File([text], name, { type: "application/json" }));
            document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
        }""",
        [name, text],
    )


def test_an_export_from_the_page_has_the_bytes_of_the_service(serve: Serve, visit: Visits) -> None:
    service = serve(local=AsyncScripted())
    one = visit(service)
    one.page.get_by_role("button", name="Open a sample conversation").click()
    expect(one.page.get_by_text("Every message, and why")).to_be_visible()
    for kind in ("json", "md"):
        one.page.get_by_label("Actions of this conversation").first.click()
        with one.page.expect_download() as started:
            one.page.get_by_role("button", name=f"Export .{kind}").click()
        path = f"{service.url}/longtalk/v1/conversations/sample-violin/export"
        assert started.value.path().read_bytes() == httpx2.get(path, params={"format": kind}).content
        assert started.value.suggested_filename == f"sample-violin.{kind}"
