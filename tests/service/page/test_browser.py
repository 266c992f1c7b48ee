"""The page in a real Chromium, on a real service with a scripted provider."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from longtalk.service.access import AccessKeys
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve
from tests.service.page.browser import Visits, answers, begin, find_problems, write_policy
from tests.service.test_runs import Waiting

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

ANSWER = "# Bows\n\n| bow | weight |\n|---|---|\n| light | 58 g |\n\n```python\nprint('legato')\n```\n\n- **slow**"
HOSTILE = (
    '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
    '<a href="javascript:window.hacked=1">go</a> ![p](http://127.0.0.2:9/pixel.png)'
    '<iframe src="http://127.0.0.2:9/"></iframe><svg onload="window.hacked=1"></svg>'
    '<form action="http://127.0.0.2:9/"><button>Send all</button></form><style>body{display:none}</style> harmless'
)


def test_markdown_is_rendered_with_tables_and_code(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=AsyncScripted(says(ANSWER))))
    one.say("Which bow?")
    expect(one.page.get_by_role("heading", name="Bows")).to_be_visible()
    expect(one.page.get_by_role("cell", name="58 g")).to_be_visible()
    expect(one.page.locator("pre code")).to_contain_text("legato")


def test_hostile_text_of_a_model_does_nothing(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=AsyncScripted(says(HOSTILE), says("Fine."))))
    one.say(HOSTILE)
    expect(answers(one.page).first).to_contain_text("harmless")
    one.say("And?")
    expect(answers(one.page).nth(1)).to_contain_text("Fine.")
    assert one.page.evaluate("window.hacked") is None
    assert one.page.locator("iframe, form[action], .markdown script, .markdown style").count() == 0
    assert one.page.locator("a[href^='javascript']").count() == 0


def test_an_edited_message_makes_a_branch_that_can_be_switched(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=AsyncScripted(says("The first."), says("The second."))))
    one.say("One question")
    expect(answers(one.page).first).to_contain_text("The first.")
    one.page.get_by_role("article", name="You").hover()
    one.page.get_by_role("button", name="Edit").click()
    edit = one.page.get_by_label("Edit")
    edit.fill("Another")
    edit.press("Shift+Enter")
    edit.press_sequentially("question")
    edit.press("Enter")
    expect(answers(one.page).first).to_contain_text("The second.")
    expect(one.page.get_by_role("article", name="You").locator(".plain")).to_have_text("Another\nquestion")
    one.page.get_by_role("button", name="Previous branch").first.click()
    expect(answers(one.page).first).to_contain_text("The first.")


def test_the_inspector_shows_what_was_sent_and_why(serve: Serve, visit: Visits) -> None:
    provider = AsyncScripted(says("Hello, Ada."), says("The violin."))
    one = begin(visit, serve(local=provider))
    one.say("I'm Ada. I play the violin.")
    expect(answers(one.page).first).to_contain_text("Hello, Ada.")
    one.say("What do I play?")
    expect(answers(one.page).nth(1)).to_contain_text("The violin.")
    answers(one.page).nth(1).hover()
    answers(one.page).nth(1).get_by_role("link", name="What it saw").click()
    panel = one.page.get_by_role("complementary", name="What the model saw")
    expect(panel).to_contain_text("tokens were sent to")
    panel.get_by_role("button", name="sent").first.click()
    expect(panel).to_contain_text("I'm Ada. I play the violin.")
    panel.get_by_role("tab", name="Request").click()
    readable = panel.get_by_role("region", name="The request, to be read")
    expect(readable.locator("mark + .said")).to_have_text("AnswerHello, Ada.")
    expect(readable.locator(".said").last).to_have_text("YouWhat do I play?")
    panel.get_by_text("Exactly as sent, byte for byte").click()
    shown = panel.locator(".request pre")
    expect(shown).to_contain_text("new from here on")
    assert (shown.text_content() or "").replace("new from here on", "") == provider.requests[-1].decode()
    panel.get_by_role("tab", name="Shortened").click()
    expect(panel).to_contain_text("No request on this branch has been shortened")
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_have_count(0)


def test_pins_exclusions_and_notes_are_kept(serve: Serve, visit: Visits) -> None:
    provider = AsyncScripted(says("A secret."), says("Yes."), says("Short."))
    one = begin(visit, serve(local=provider))
    one.say("Tell me one.")
    expect(answers(one.page).first).to_contain_text("A secret.")
    answers(one.page).first.hover()
    answers(one.page).first.get_by_role("button", name="Leave out of all requests").click()
    expect(answers(one.page).first).to_contain_text("left out")
    one.page.get_by_label("Message", exact=True).fill("Ada has tuned her violin.")
    one.page.get_by_role("button", name="Add as note").click()
    expect(one.page.get_by_role("article", name="Note")).to_contain_text("tuned her violin")
    one.say("Ready?")
    expect(answers(one.page).nth(1)).to_contain_text("Yes.")
    assert b"A secret." not in provider.requests[-1]
    assert b"tuned her violin" in provider.requests[-1]
    one.page.reload()
    expect(answers(one.page).first).to_contain_text("left out")
    write_policy(one.page, "KeepLast(1)")
    one.say("Only this one.")
    expect(answers(one.page).nth(2)).to_contain_text("Short.")
    answers(one.page).nth(1).hover()
    answers(one.page).nth(1).get_by_role("button", name="Pin", exact=True).click()
    expect(one.page.get_by_role("alert")).to_contain_text("'Yes.' can't be pinned")


def test_a_conversation_is_renamed_found_and_deleted(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=AsyncScripted(says("Rosin helps."))))
    one.say("My bow slips.")
    expect(answers(one.page).first).to_contain_text("Rosin helps.")
    expect(one.page.get_by_role("link", name="My bow slips.")).to_be_visible()
    menu = one.page.get_by_label("Actions of this conversation").first
    menu.click()
    one.page.get_by_role("button", name="Rename").click()
    dialog = one.page.get_by_role("dialog", name="Rename “My bow slips.”")
    expect(dialog.get_by_label("Title")).to_be_focused()
    dialog.get_by_label("Title").fill("Bow trouble")
    dialog.get_by_role("button", name="Rename").click()
    expect(one.page.get_by_role("link", name="Bow trouble")).to_be_visible()
    expect(one.page).to_have_title("Bow trouble · Longtalk")
    expect(one.page.get_by_role("heading", level=1)).to_have_text("Bow trouble")
    one.page.get_by_label("Search conversations").fill("viola")
    expect(one.page.locator(".list")).to_contain_text("No conversation and no message has these words.")
    one.page.get_by_label("Search conversations").fill("slips")
    expect(one.page.get_by_role("navigation", name="Conversations")).to_contain_text("slips")
    one.page.get_by_label("Search conversations").fill("")
    one.page.get_by_label("Actions of this conversation").first.click()
    one.page.get_by_role("button", name="Delete").click()
    one.page.get_by_role("dialog", name="Delete “Bow trouble”?").get_by_role("button", name="Delete").click()
    expect(one.page.get_by_role("link", name="Bow trouble")).to_have_count(0)


def test_a_dialog_that_is_left_changes_nothing_and_returns_the_focus(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=AsyncScripted(says("Rosin helps."))))
    one.say("My bow slips.")
    expect(answers(one.page).first).to_contain_text("Rosin helps.")
    one.page.get_by_role("link", name="What it saw").first.click()
    panel = one.page.get_by_role("complementary", name="What the model saw")
    expect(one.page.get_by_role("link", name="My bow slips.")).to_be_visible()
    menu = one.page.get_by_label("Actions of this conversation").first
    for leave in (
        lambda: one.page.keyboard.press("Escape"),
        lambda: one.page.get_by_role("button", name="Cancel").click(),
        lambda: one.page.mouse.click(5, 5),
    ):
        menu.click()
        one.page.get_by_role("button", name="Delete").click()
        dialog = one.page.get_by_role("dialog", name="Delete “My bow slips.”?")
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        leave()
        expect(dialog).to_have_count(0)
        expect(menu).to_be_focused()
    expect(panel).to_be_visible()
    expect(one.page.get_by_role("link", name="My bow slips.")).to_be_visible()


def test_an_import_says_how_it_went(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    field = one.page.get_by_label("Import a file")
    field.set_input_files({"name": "notes.txt", "mimeType": "text/plain", "buffer": b"not a conversation"})
    alert = one.page.get_by_role("alert")
    expect(alert).to_be_visible()
    assert find_problems(one.page) == []
    alert.get_by_role("button", name="Close").click()
    expect(alert).to_have_count(0)
    messages = b'[{"role": "user", "content": "Which rosin?"}, {"role": "assistant", "content": "A light one."}]'
    field.set_input_files({"name": "talk.json", "mimeType": "application/json", "buffer": messages})
    expect(one.page.get_by_role("status").filter(has_text="Imported.")).to_be_visible()
    field.set_input_files({"name": "talk.md", "mimeType": "text/markdown", "buffer": b"# Rosin"})
    expect(alert).to_contain_text("“talk.md” can't be imported: Markdown is for reading.")


def test_a_reload_in_mid_stream_goes_on_with_the_answer(serve: Serve, visit: Visits, tmp_path: Path) -> None:
    provider = Waiting()
    service = serve(local=provider, store=SQLite(tmp_path / "talks.db"))
    one = begin(visit, service)
    one.say("Go on.")
    expect(one.page.locator(".live")).to_contain_text("One")
    one.page.reload()
    expect(one.page.locator(".live")).to_contain_text("One")
    provider.go.set()
    expect(answers(one.page).first).to_contain_text("One two three.")
    expect(one.page.get_by_role("article", name="You")).to_have_count(1)


def test_the_sample_shows_months_before_any_model_is_called(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    panel = one.page.get_by_role("complementary", name="What the model saw")
    expect(panel).to_contain_text("tokens were sent to")
    expect(panel.get_by_role("row", name="Brief")).to_be_visible()
    expect(panel.get_by_role("button", name="replaced").first).to_be_visible()
    outlined = panel.get_by_role("button", name="outlined").first
    expect(outlined).to_contain_text("an outline stands in its place")
    panel.get_by_role("tab", name="Shortened").click()
    expect(panel).to_contain_text("In place of what was removed stands:")


def test_a_compaction_is_marked_in_the_chat_where_it_happened(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.wait_for_url("**/inspector")
    one.page.goto(f"{one.url}/#/c/sample-violin/inspector/compaction")
    panel = one.page.get_by_role("complementary", name="What the model saw")
    text = (panel.locator("details[open] > pre").first.text_content() or "").strip()
    assert text
    panel.get_by_role("button", name="Show it in the chat").first.click()
    mark = one.page.locator("article.found .compacted")
    mark.get_by_text("Older messages replaced by a short text").click()
    expect(mark.locator("pre")).to_have_text(text)
    assert find_problems(one.page) == []
    mark.get_by_role("link", name="What was removed, and why").click()
    expect(panel.get_by_role("tab", name="Shortened")).to_have_attribute("aria-selected", "true")


def test_the_size_of_the_next_request_is_shown_in_each_view(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.wait_for_url("**/inspector")
    for view in ("Chat", "Memory", "Costs"):
        one.page.get_by_role("navigation", name="Views").get_by_role("link", name=view, exact=True).click()
        expect(one.page.get_by_role("link", name="tokens in the next request")).to_be_visible()


def test_a_wrong_memory_is_corrected_revoked_put_back_and_led_to_its_message(serve: Serve, visit: Visits) -> None:
    service = serve(local=AsyncScripted())
    one = visit(service)
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.get_by_role("link", name="Memory", exact=True).click()
    one.page.get_by_label("Something to remember").fill("Plays a borrowed cello")
    one.page.get_by_role("button", name="Add", exact=True).click()
    one.page.get_by_role("button", name="Edit “Plays a borrowed cello”").click()
    one.page.get_by_role("textbox", name="Edit “Plays a borrowed cello”").fill("Plays a borrowed violin")
    expect(one.page.get_by_text("then begins with the changed lines")).to_be_visible()
    one.page.get_by_role("button", name="Save").click()
    expect(one.page.get_by_role("button", name="Edit “Plays a borrowed violin”")).to_be_visible()
    one.page.get_by_role("button", name="Forget “Plays a borrowed violin”").click()
    dialog = one.page.get_by_role("dialog", name="Forget “Plays a borrowed violin”?")
    expect(dialog).to_contain_text("then begins with the changed lines")
    dialog.get_by_role("button", name="Forget").click()
    expect(one.page.get_by_role("button", name="Edit “Plays a borrowed violin”")).to_have_count(0)
    one.page.get_by_role("button", name="Put back “Plays a borrowed violin”").click()
    expect(one.page.get_by_role("button", name="Edit “Plays a borrowed violin”")).to_be_visible()
    expect(one.page.get_by_role("button", name="Put back “Plays a borrowed violin”")).to_have_count(0)
    assert find_problems(one.page) == []
    source = one.page.get_by_role("link", name="Source of").first
    label = source.get_attribute("aria-label") or ""
    text = label.removeprefix("Source of ").rstrip("”")
    one.page.get_by_role("button", name=f"Forget {text}").click()
    one.page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    one.page.get_by_role("button", name=f"Put back {text}").click()
    expect(one.page.get_by_role("button", name=f"Edit {text}")).to_be_visible()
    one.page.get_by_role("link", name=label).click()
    expect(one.page.locator("article.found")).to_be_visible()


def test_costs_are_shown_by_turn_and_compared_by_policy(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.get_by_role("link", name="Costs", exact=True).click()
    expect(one.page.get_by_role("heading", name="What this conversation costs")).to_be_visible()
    one.page.get_by_role("button", name="Compare policies").click()
    expect(one.page.get_by_text("which is in use.")).to_be_visible()
    assert find_problems(one.page) == []
    one.page.get_by_role("link", name="All costs").click()
    expect(one.page.get_by_role("heading", name="Costs of all conversations")).to_be_visible()
    expect(one.page.get_by_text("Samples are not counted.")).to_be_visible()


def test_a_key_signs_in_and_out(serve: Serve, visit: Visits) -> None:
    service = serve(local=AsyncScripted(says("Welcome.")))
    key, _ = AccessKeys(service.service.storage).add("browser", owner="ada")
    one = visit(service)
    one.page.get_by_label("Access key").fill("lt_wrong")
    one.page.get_by_role("button", name="Sign in").click()
    expect(one.page.get_by_role("alert")).to_be_visible()
    one.page.get_by_label("Access key").fill(key)
    one.page.get_by_role("button", name="Sign in").click()
    one.page.get_by_role("button", name="New chat").first.click()
    one.say("Hello!")
    expect(answers(one.page).first).to_contain_text("Welcome.")
    one.page.goto(service.url + "/#/settings")
    one.page.get_by_role("button", name="Sign out").click()
    expect(one.page.get_by_label("Access key")).to_be_visible()


def test_signing_out_while_requests_are_under_way_shows_no_error(serve: Serve, visit: Visits) -> None:
    service = serve(local=AsyncScripted(says("Welcome.")))
    key, _ = AccessKeys(service.service.storage).add("browser", owner="ada")
    one = visit(service)
    one.page.get_by_label("Access key").fill(key)
    one.page.get_by_role("button", name="Sign in").click()
    one.page.get_by_role("button", name="New chat").first.click()
    one.page.route("**/longtalk/v1/**", lambda route: (time.sleep(0.25), route.continue_()))
    one.say("Hello!")
    expect(answers(one.page).first).to_contain_text("Welcome.")
    one.page.goto(service.url + "/#/settings")
    one.page.get_by_role("button", name="Sign out").click()
    expect(one.page.get_by_label("Access key")).to_be_visible()
    one.page.wait_for_timeout(1_500)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_problem(serve: Serve, visit: Visits, scheme: str) -> None:
    one = begin(visit, serve(local=AsyncScripted(says(ANSWER))), color_scheme=scheme)
    one.say("Which bow?")
    expect(one.page.get_by_role("heading", name="Bows")).to_be_visible()
    views = [find_problems(one.page)]
    one.page.set_viewport_size({"width": 390, "height": 800})
    one.page.get_by_role("link", name="What it saw").first.click()
    expect(one.page.get_by_role("complementary")).to_contain_text("tokens were sent to")
    views.append(find_problems(one.page))
    assert views == [[]] * 2
