"""The profile in the page's memory view, in a real browser: lines beside the brief, their sources, and privacy."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from longtalk.service.settings import ModelSettings, Settings
from tests.service.conftest import Serve
from tests.service.native.conftest import Api
from tests.service.page.browser import Visits, find_problems
from tests.support.card_model import AsyncCardModel, make_answer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]
MEMORY = {"limit": 0, "recent": 0, "recall": 0, "profile": {"budget": 80}}


def test_a_user_sees_corrects_revokes_and_adds_what_all_conversations_know(serve: Serve, visit: Visits) -> None:
    model = AsyncCardModel(make_answer(card='{"+about":["a violinist"],"+prefers":["long answers"]}'))
    settings = Settings(default_model="m", models={"m": ModelSettings("m", memory=MEMORY)})
    service = serve(m=model, settings=settings)
    call = Api(service)
    with call.http:
        for name, title in (("a", "Monday"), ("b", "Friday")):
            call("POST", "/conversations", json={"id": name, "title": title})
        call("POST", "/conversations/a/turns", json={"message": "I am a violinist, and I like long answers."})
        call("POST", "/conversations/b/turns", json={"message": "Hello"})
        one = visit(service)
        page = one.page
        page.goto(f"{one.url}/#/c/b/memory")
        profile = page.get_by_role("region", name="About you, in all conversations")
        expect(profile.locator(".line")).to_have_text(["a violinist", "long answers"])
        profile.get_by_role("button", name="Edit “a violinist”").click()
        profile.get_by_role("textbox", name="Edit “a violinist”").fill("a cellist")
        profile.get_by_role("button", name="Save").click()
        expect(profile.get_by_text("corrected by hand")).to_be_visible()
        profile.get_by_role("button", name="Forget “long answers”").click()
        page.get_by_role("dialog").get_by_role("button", name="Forget").click()
        profile.get_by_label("Something about you").fill("short answers")
        profile.get_by_role("button", name="Add to all").click()
        expect(profile.locator(".line")).to_have_text(["a cellist", "short answers"])
        assert find_problems(page) == []
        assert [each["text"] for each in call("GET", "/profile")["lines"]] == ["a cellist", "short answers"]
        profile.get_by_label("Keep this conversation private").check()
        expect(profile.get_by_text("This conversation is private")).to_be_visible()
        assert call("GET", "/conversations/b/privacy") == {"private": True}
        assert find_problems(page) == []
        profile.get_by_role("link", name="Source of “a cellist”: Monday").click()
        expect(page.locator("article.found")).to_contain_text("I am a violinist")
        page.goto(f"{one.url}/#/c/a/memory")
        page.get_by_label("Keep this conversation private").check()
        expect(page.get_by_text("This conversation is private")).to_be_visible()
        expect(page.locator("section .line", has_text="a cellist")).to_have_count(0)
