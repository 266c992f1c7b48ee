"""What a user does from the page alone: ten turns with the local model, branches, images, costs, keys."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Locator, expect

from longtalk.models.call_cost import Prices
from longtalk.service.access import AccessKeys
from longtalk.service.settings import ModelSettings, Settings
from longtalk.testing import AsyncScripted, says
from tests.cli.helpers import streamed
from tests.service.conftest import Serve
from tests.service.page.browser import Visits, answers, begin, find_problems, policy_button
from tests.support.loopback import Loopback

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def test_ten_turns_with_the_local_model_and_all_that_can_be_done_with_them(
    serve: Serve, visit: Visits, tmp_path: Path
) -> None:
    short = ModelSettings(model="local", options={"max_tokens": 4}, policy="Memory()")
    service = serve(settings=Settings(models={"short": short}, default_model="short"))
    one = begin(visit, service)
    page = one.page
    for i in range(10):
        one.say(f"Say the number {i}.")
        expect(one.page.get_by_role("article", name="You").nth(i)).to_contain_text(f"Say the number {i}.")
        expect(one.page.locator(".live")).to_have_count(0)
        expect(one.page.get_by_role("button", name="Send")).to_be_visible()
        expect(answers(one.page).nth(i)).to_contain_text("in ·")
    page.reload()
    expect(answers(page)).to_have_count(10)
    expect(answers(page).last).to_contain_text("$0.00")
    views = page.locator(".views")

    # Another version of the last message, and back; a new branch, and back by the map.
    act(page.get_by_role("article", name="You").last, "Edit")
    page.get_by_label("Edit").fill("Say the number 99.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("article", name="You").last).to_contain_text("number 99")
    page.get_by_role("button", name="Previous branch").click()
    expect(page.get_by_role("article", name="You").last).to_contain_text("number 9.")
    act(answers(page).first, "Branch from here")
    expect(answers(page)).to_have_count(1)
    page.get_by_label("Message", exact=True).fill("The user plays the viola.")
    page.get_by_role("button", name="Add as note").click()
    expect(page.get_by_role("article", name="Note")).to_contain_text("viola")
    one.say("What do I play?")
    expect(answers(page).nth(1)).to_contain_text("in ·")
    views.get_by_role("link", name="Branches").click()
    panel = page.get_by_role("complementary", name="Branches")
    expect(panel.get_by_role("listitem")).to_have_count(3)
    panel.get_by_role("button", name="Say the number 0.").click()
    expect(answers(page)).to_have_count(10)

    # What the model saw, and a pin.
    act(answers(page).nth(4), "What it saw", "link")
    expect(page.get_by_role("complementary")).to_contain_text("Turn 5 of 10")
    expect(page.get_by_role("complementary")).to_contain_text("tokens were sent to local")
    expect(page.get_by_role("complementary")).to_contain_text("Reserved for the answer")
    page.get_by_role("complementary").get_by_role("button", name="Close").click()
    act(answers(page).first, "Pin")
    expect(answers(page).first).to_contain_text("pinned")

    # A line of the brief is added, corrected and forgotten.
    views.get_by_role("link", name="Memory").click()
    page.get_by_label("Something to remember").fill("Plays the violin")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("button", name="Edit “Plays the violin”").click()
    page.get_by_role("textbox", name="Edit “Plays the violin”").fill("Plays the viola")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Forget “Plays the viola”").click()
    page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    expect(page.get_by_text("Removed lines")).to_be_visible()

    # Found, exported, deleted and imported again.
    page.get_by_label("Search conversations").fill("number 7")
    page.locator("a.hit", has_text="number 7").first.click()
    expect(page.locator("article.found")).to_contain_text("number 7")
    page.get_by_label("Search conversations").fill("")
    page.get_by_label("Actions of this conversation").click()
    with page.expect_download() as started:
        page.get_by_role("button", name="Export .json").click()
    started.value.save_as(tmp_path / "talk.json")
    page.get_by_label("Actions of this conversation").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator(".list li")).to_have_count(0)
    page.get_by_label("Import a file").set_input_files(tmp_path / "talk.json")
    expect(answers(page)).to_have_count(10)
    expect(answers(page).first).to_contain_text("pinned")


def act(entry: Locator, name: str, role: Any = "button") -> None:
    """Do something with a message, by the button or link of this name under it."""
    entry.hover()
    entry.get_by_role(role, name=name, exact=True).click()


def test_the_map_of_branches_leads_to_a_fork_and_back(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=AsyncScripted(says("First."), says("Second."), says("Third."))))
    for i, text in enumerate(("First.", "Second.")):
        one.say("Go on.")
        expect(answers(one.page).nth(i)).to_contain_text(text)
    answers(one.page).first.hover()
    answers(one.page).first.get_by_role("button", name="Branch from here").click()
    expect(answers(one.page)).to_have_count(1)
    one.say("Otherwise?")
    expect(answers(one.page).nth(1)).to_contain_text("Third.")
    one.page.locator(".views").get_by_role("link", name="Branches").click()
    panel = one.page.get_by_role("complementary", name="Branches")
    expect(panel.get_by_role("button", name="Otherwise?")).to_have_attribute("aria-current", "true")
    expect(one.page.locator(".map .map li")).to_contain_text("after “First.” · 4 messages")
    panel.get_by_role("button", name="Go on.").click()
    expect(answers(one.page).nth(1)).to_contain_text("Second.")


def test_an_image_is_attached_taken_back_and_sent(serve: Serve, visit: Visits) -> None:
    provider = AsyncScripted(says("A pixel."))
    one = begin(visit, serve(local=provider))
    field = one.page.get_by_label("Attach an image")
    for name in ("a.png", "<img src=x onerror=window.hacked=1>.png"):
        field.set_input_files({"name": name, "mimeType": "image/png", "buffer": PIXEL})
    expect(one.page.locator(".thumb img")).to_have_count(2)
    one.page.get_by_role("button", name="Remove image").first.click()
    one.say("What is it?")
    expect(answers(one.page).first).to_contain_text("A pixel.")
    expect(one.page.locator(".entry.user img.picture")).to_have_count(1)
    assert base64.b64encode(PIXEL) in provider.requests[0]
    assert one.page.evaluate("window.hacked ?? null") is None


def test_costs_survive_a_reload_and_unknown_ones_are_not_zero(serve: Serve, visit: Visits) -> None:
    usage = {"prompt_tokens": 1_000, "completion_tokens": 10}
    priced, unpriced = AsyncScripted(says("One.", usage=usage)), AsyncScripted(says("Two.", usage=usage))
    priced.capabilities = msgspec.structs.replace(priced.capabilities, prices=Prices(input=3, output=1))
    one = begin(visit, serve(local=priced, other=unpriced))
    one.say("Count.")
    expect(answers(one.page).first).to_contain_text("1,000 tokens in · 10 out · $0.0030")
    one.page.get_by_label("Model", exact=True).fill("other")
    one.say("Go on.")
    expect(answers(one.page).nth(1)).to_contain_text("cost unknown")
    one.page.reload()
    expect(answers(one.page).first).to_contain_text("$0.0030")
    expect(answers(one.page).nth(1)).to_contain_text("cost unknown")
    one.page.get_by_role("link", name="Costs", exact=True).click()
    expect(one.page.get_by_text("Turns of unknown cost, which are not included: 1.")).to_be_visible()
    expect(one.page.locator("table tbody tr").first).to_contain_text("–")


def test_a_policy_from_the_costs_is_used_for_the_next_message(serve: Serve, visit: Visits) -> None:
    provider = AsyncScripted(*[says(f"Answer {i}. " * 30) for i in range(4)])
    one = begin(visit, serve(local=provider))
    for i in range(3):
        one.say(f"Question {i}?")
        expect(answers(one.page).nth(i)).to_contain_text(f"Answer {i}.")
    one.page.get_by_role("link", name="Costs", exact=True).click()
    one.page.get_by_role("button", name="Compare policies").click()
    expect(one.page.locator(".policies").first).to_contain_text("Memory")
    one.page.get_by_role("button", name="Use “Last 10 exchanges” for the next messages").first.click()
    expect(policy_button(one.page)).to_contain_text("Last 10 exchanges")
    one.say("Question 3?")
    expect(answers(one.page).nth(3)).to_contain_text("Answer 3.")
    one.page.locator(".views").get_by_role("link", name="What it saw").click()
    expect(one.page.get_by_role("tabpanel")).to_contain_text("“Last 10 exchanges”")
    one.page.get_by_role("link", name="Costs", exact=True).click()
    one.page.get_by_role("button", name="Compare policies").click()
    expect(one.page.locator(".policies li", has_text="in use").first).to_contain_text("Last 10 exchanges")
    expect(one.page.get_by_text("chosen for the next message")).to_have_count(0)


def test_own_keys_are_found_by_the_palette_and_revoked(serve: Serve, visit: Visits) -> None:
    service = serve(local=AsyncScripted())
    keys = AccessKeys(service.service.storage)
    secret, _ = keys.add("browser", owner="ada")
    keys.add("phone", owner="ada")
    keys.add("stranger", owner="bob")
    one = visit(service)
    one.page.get_by_label("Access key").fill(secret)
    one.page.get_by_role("button", name="Sign in").click()
    expect(one.page.get_by_role("button", name="New chat").first).to_be_visible()
    one.page.keyboard.press("Control+k")
    one.page.get_by_role("combobox", name="Commands").fill("access keys")
    one.page.keyboard.press("Enter")
    phone = one.page.get_by_role("listitem").filter(has_text="phone")
    expect(phone).to_be_visible()
    expect(one.page.get_by_text("stranger")).to_have_count(0)
    phone.get_by_role("button", name="Revoke").click()
    expect(phone).to_have_count(0)
    assert {key.name for key in keys.list()} == {"browser", "stranger"}


def test_a_missing_key_is_stored_for_its_model_and_leads_back_to_the_message(
    serve: Serve, visit: Visits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGTALK_SETTINGS", str(tmp_path / "settings.toml"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    one = begin(visit, serve(local=AsyncScripted()))
    chat = one.page.url
    one.page.get_by_label("Model", exact=True).fill("openai:gpt-5.4-mini")
    one.say("Hello?")
    alert = one.page.get_by_role("alert")
    expect(alert).to_contain_text("No message was sent: the model needs an API key. Your message is back")
    expect(alert).not_to_contain_text("longtalk config")
    one.page.get_by_role("link", name="Store a key").click()
    expect(one.page.get_by_label("Provider", exact=True)).to_have_value("openai")
    expect(one.page.locator(".card-note")).to_contain_text("openai:gpt-5.4-mini needs an API key")
    one.page.get_by_label("API key").fill("sk-of-mine")
    one.page.get_by_role("button", name="Store").click()
    one.page.wait_for_url(chat)
    expect(one.page.get_by_label("Message", exact=True)).to_have_value("Hello?")
    expect(one.page.locator(".composer .gauge")).to_contain_text("About")
    expect(one.page.locator(".composer")).not_to_contain_text("needs an API key")


def test_a_key_of_a_provider_is_stored_and_its_model_answers(
    serve: Serve, visit: Visits, loopback: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGTALK_SETTINGS", str(tmp_path / "settings.toml"))
    monkeypatch.setenv("OPENAI_BASE_URL", loopback.url)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    loopback.say(streamed("From the provider."))
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_text("Use a model of a provider").click()
    one.page.get_by_label("Provider", exact=True).select_option("openai-chat")
    field = one.page.get_by_label("API key")
    expect(field).to_have_attribute("type", "password")
    field.fill("sk with spaces")
    one.page.get_by_role("button", name="Store").click()
    expect(one.page.get_by_role("alert")).to_contain_text("copied only the key")
    field.fill("sk-of-mine")
    one.page.get_by_role("button", name="Store").click()
    expect(one.page.get_by_role("status").filter(has_text="Stored the key of openai-chat.")).to_be_visible()
    expect(field).to_have_value("")
    assert find_problems(one.page) == []
    one.page.get_by_role("button", name="New chat").first.click()
    name = one.page.locator("#models option[value^='openai-chat:gpt-']").first.get_attribute("value")
    one.page.get_by_label("Model", exact=True).fill(name or "")
    one.say("Hello?")
    expect(answers(one.page).first).to_contain_text("From the provider.")
    assert loopback.headers[0]["authorization"] == "Bearer sk-of-mine"
    one.page.get_by_role("link", name="Provider keys").click()
    one.page.get_by_role("button", name="Remove the key of openai-chat").click()
    one.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(one.page.get_by_role("button", name="Remove the key of openai-chat")).to_have_count(0)
    assert "sk-of-mine" not in (tmp_path / "credentials.toml").read_text()
