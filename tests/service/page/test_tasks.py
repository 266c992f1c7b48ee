"""Three tasks of a new user, from the page alone, and what helps with them."""

from __future__ import annotations

import re

import msgspec
import pytest
from playwright.sync_api import expect

from longtalk.models.call_cost import Prices
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve
from tests.service.page.browser import Visits, answers, begin, find_problems, policy_button, write_policy

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def test_a_user_finds_out_why_the_model_forgot_and_has_it_sent(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    panel = one.page.get_by_role("complementary", name="What the model saw")
    expect(panel).to_contain_text("Your message: “What next? Marta suggests vibrato")
    expect(one.page.locator(".inspected")).to_have_count(2)
    panel.get_by_label("Did the model forget something?").fill("aunt birthday")
    answer = panel.get_by_role("status").filter(
        has_text="Only a part of it is in the request: birthday. Not in it: aunt. The nearest is a line in Memory:"
    )
    hit = answer.locator(".hit").filter(has_text="I mixed it up with my aunt's")
    expect(hit).to_contain_text("the lines in Memory stand in its place")
    expect(hit).to_contain_text("A line in Memory stands for it, and was sent: “birthday is 19 September (corrected)”")
    assert find_problems(one.page) == []
    hit.get_by_role("button", name="Pin: send it with every request").click()
    expect(one.page.locator(".notices")).to_contain_text(
        "Pinned: the message and its answer. The next request has both."
    )
    expect(hit.get_by_role("button", name="Unpin")).to_be_visible()
    panel.get_by_role("button", name="Later turn").click()
    expect(panel).to_contain_text("Next request not sent yet")
    expect(panel.get_by_label("Did the model forget something?")).to_have_value("aunt birthday")
    expect(panel).to_contain_text(
        "It is in the request, in a message: “Correction: my father's birthday is on 19 September"
    )
    hit = panel.locator(".hit").filter(has_text="I mixed it up")
    expect(hit).to_contain_text("in the request, whole")
    hit.get_by_role("button", name="Unpin").click()
    expect(panel).not_to_contain_text("It is in the request, in a message:")
    hit.get_by_role("button", name="Pin: send it with every request").click()
    expect(panel).to_contain_text(
        "It is in the request, in a message: “Correction: my father's birthday is on 19 September"
    )


def test_the_check_names_the_form_in_which_a_request_has_a_message_and_finds_natural_questions(
    serve: Serve, visit: Visits
) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    panel = one.page.get_by_role("complementary", name="What the model saw")
    field, hits = panel.get_by_label("Did the model forget something?"), panel.locator(".hit")
    field.fill("without the repeat")
    outlined = hits.filter(has_text="You and Nora play the Bach Minuet")
    expect(outlined.locator(".verdict")).to_have_text("outlined")
    expect(panel).not_to_contain_text("Not in it: repeat")
    field.fill("how much did the strings cost")
    expect(hits.first).to_contain_text("They cost me 62 euros.")
    field.fill("should I learn vibrato")
    expect(panel).to_contain_text(
        "It is in the request, in an earlier message that is quoted again: “User: Should I learn"
    )
    expect(hits.filter(has_text="learn vibrato")).to_have_count(1)
    assert find_problems(one.page) == []


def test_a_choice_by_hand_replaces_one_from_the_costs_and_enter_sends_nothing(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    costs, chat = (one.page.get_by_role("link", name=name, exact=True) for name in ("Costs", "Chat"))
    costs.click()
    receipts = one.page.get_by_role("table").last.get_by_role("row")
    expect(receipts.nth(1).get_by_role("cell").last).to_have_text("–")
    expect(receipts.nth(2).get_by_role("cell").last).to_contain_text("$")
    one.page.get_by_role("combobox", name="And with another model").fill("openai:gpt-5.4-mini")
    one.page.get_by_role("combobox", name="And with another model").press("Enter")
    one.page.get_by_role("button", name="Use “Last 10 exchanges” with openai:gpt-5.4-mini").click()
    model = one.page.get_by_label("Model", exact=True)
    expect(model).to_have_value("openai:gpt-5.4-mini")
    costs.click()
    used = (
        one.page.locator("h3", has_text="openai:gpt-5.4-mini")
        .locator("xpath=following::ul[1]/li")
        .filter(has_text="Last 10 exchanges")
    )
    expect(used).to_contain_text("chosen for the next message")
    expect(one.page.locator(".policies .chip", has_text="in use")).to_have_count(0)
    chat.click()
    model.fill("local")
    one.page.get_by_label("Message", exact=True).fill("Not yet.")
    model.press("Enter")
    expect(one.page.get_by_label("Message", exact=True)).to_be_focused()
    expect(one.page.get_by_label("Message", exact=True)).to_have_value("Not yet.")
    write_policy(one.page, "KeepLast(3)")
    costs.click()
    expect(one.page.get_by_role("button", name="Compare policies")).to_be_visible()
    chat.click()
    expect(policy_button(one.page)).to_contain_text("Last 3 exchanges")
    expect(model).to_have_value("local")


def test_the_inspector_goes_on_with_the_turn_that_is_sent_from_it(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=AsyncScripted(*[says(each) for each in ("One.", "Two.", "Three.")])))
    one.say("First.")
    expect(answers(one.page).first).to_contain_text("One.")
    one.page.locator(".views").get_by_role("link", name="What it saw").click()
    panel = one.page.get_by_role("complementary", name="What the model saw")
    panel.get_by_role("button", name="Later turn").click()
    expect(panel).to_contain_text("Next request not sent yet")
    expect(panel.locator(".run")).to_contain_text("goes along 2 messages")
    write_policy(one.page, "KeepLast(1)")
    one.say("Second.")
    expect(panel).to_contain_text("Turn 2 of 2")
    expect(panel).to_contain_text("Your message: “Second.”")
    panel.get_by_role("tab", name="Shortened").click()
    expect(panel.locator(".epoch[open]")).to_contain_text("Turn 2, ")
    one.say("Third.")
    expect(panel.locator(".epoch[open]")).to_contain_text("Turn 3, ")


def test_what_a_policy_or_the_user_left_out_is_explained_and_brought_back(serve: Serve, visit: Visits) -> None:
    provider = AsyncScripted(*[says(f"Answer {i}.") for i in range(4)])
    one = begin(visit, serve(local=provider))
    write_policy(one.page, "KeepLast(1)")
    for i, text in enumerate(("My aunt is called Vera.", "And my uncle Paul.", "Who is my aunt?")):
        one.say(text)
        expect(answers(one.page).nth(i)).to_contain_text(f"Answer {i}.")
    one.page.locator(".views").get_by_role("link", name="What it saw").click()
    field = one.page.get_by_label("Did the model forget something?")
    field.fill("Vera")
    hit = one.page.locator(".hit").filter(has_text="Vera")
    expect(hit).to_contain_text("the policy “Last 1 exchanges” leaves out what is this old")
    hit.get_by_role("button", name="Use “Memory”").click()
    expect(policy_button(one.page)).to_contain_text("Memory")
    user = one.page.get_by_role("article", name="You").first
    user.hover()
    user.get_by_role("button", name="Leave out").click()
    one.page.get_by_label("Message", exact=True).fill("Who is she?")
    one.page.get_by_role("link", name="tokens in the next request").click()
    field.fill("Vera")
    expect(hit).to_contain_text("you left it out in the chat")
    hit.get_by_role("button", name="Put back into the requests").click()
    expect(hit.locator(".verdict")).to_have_text("goes along")


def test_a_user_corrects_a_memory_and_sees_it_in_the_next_request(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.get_by_role("link", name="Memory", exact=True).click()
    line = one.page.get_by_role("listitem").filter(has_text="Dominant strings since May, 62 euros")
    line.get_by_role("button", name="Edit").click()
    one.page.get_by_role("textbox", name="Edit").fill("Evah Pirazzi strings since June")
    one.page.get_by_role("button", name="Save").click()
    expect(one.page.get_by_role("status").filter(has_text="Saved.")).to_be_visible()
    one.page.get_by_role("link", name="See the next request").click()
    request = one.page.get_by_role("region", name="The request, to be read")
    expect(request).to_contain_text("Evah Pirazzi strings since June")
    expect(request).not_to_contain_text("fact: Dominant strings since May, 62 euros")
    one.page.get_by_label("Message", exact=True).fill("When is my aunt's birthday?")
    expect(request).to_contain_text("When is my aunt's birthday?")
    one.page.get_by_role("tab", name="Recalled").click()
    recalled = one.page.get_by_role("tabpanel").locator(".runs > li").filter(has_text="mixed it up with my aunt")
    expect(recalled.locator(".verdict")).to_have_text("recalled")
    assert (recalled.text_content() or "").count("mixed it up with my aunt") == 1
    one.page.get_by_role("tab", name="Shortened").click()
    panel = one.page.get_by_role("tabpanel")
    expect(panel.locator("pre.head")).to_contain_text("Evah Pirazzi strings since June")
    expect(panel.locator(".epoch").first).to_contain_text(re.compile(r"^Turn 34, Sep 24, 2026"))
    one.page.get_by_role("link", name="Memory", exact=True).click()
    views = one.page.get_by_role("navigation", name="Views of this conversation")
    views.get_by_role("link", name="What it saw").click()
    expect(one.page.get_by_role("tab", name="Shortened")).to_have_attribute("aria-selected", "true")
    one.page.get_by_role("button", name="Earlier turn").click()
    expect(panel.locator(".epoch[open]")).to_contain_text("still in effect in this turn")
    expect(panel.locator("pre.head")).to_have_count(0)


def test_costs_recommend_what_loses_nothing_and_say_what_the_others_lose(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.get_by_role("link", name="Costs", exact=True).click()
    expect(one.page.get_by_text("It cost $0.0904 so far.")).to_be_visible()
    other = one.page.get_by_role("combobox", name="And with another model")
    other.fill("gpt-5.4-mini")
    option = one.page.locator("#priced option[value='openai:gpt-5.4-mini']")
    expect(option).to_have_text(re.compile(r"^\$[\d.]+ in, \$[\d.]+ out per million tokens$"))
    one.page.get_by_role("button", name="Compare policies").click()
    one.page.get_by_role("button", name="Compare with openai:gpt-5.4-mini").click()
    expect(other).to_have_value("openai:gpt-5.4-mini")
    expect(one.page.get_by_role("heading", name="openai:gpt-5.4-mini")).to_be_visible()
    expect(
        one.page.get_by_text(re.compile(r"as so far, but with openai:gpt-5.4-mini: \d+ % less than so far"))
    ).to_be_visible()
    best = one.page.locator(".policies .best").first
    expect(best).to_contain_text("Memory above 1,500 tokens")
    expect(best).to_contain_text("Older details may be missing from a request; the full text stays here.")
    expect(one.page.get_by_text("but: Sends the last 10 exchanges at most.").first).to_be_visible()
    assert find_problems(one.page) == []
    one.page.get_by_role("button", name="Use “Last 10 exchanges” for the next messages").click()
    expect(one.page.locator(".notices")).to_contain_text("“Last 10 exchanges” is chosen")
    one.page.get_by_role("link", name="Memory", exact=True).click()
    expect(one.page.get_by_text("The policy “Last 10 exchanges” does not send these lines.")).to_be_visible()


def test_a_policy_is_taken_with_the_model_of_its_block_and_there_is_a_way_back(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.get_by_role("link", name="Costs", exact=True).click()
    one.page.get_by_role("combobox", name="And with another model").fill("openai:gpt-5.4-mini")
    one.page.get_by_role("button", name="Compare policies").click()
    expect(one.page.get_by_role("heading", name="openai:gpt-5.4-mini")).to_be_visible()
    one.page.get_by_role("combobox", name="And with another model").fill("openai:no-such")
    one.page.get_by_role("button", name="Compare policies").click()
    expect(one.page.get_by_role("alert")).to_contain_text("“openai:no-such” is unknown: choose one from the list")
    one.page.get_by_role(
        "button", name="Use “Last 10 exchanges” with openai:gpt-5.4-mini for the next messages"
    ).click()
    model, policy = one.page.get_by_label("Model", exact=True), policy_button(one.page)
    expect(model).to_have_value("openai:gpt-5.4-mini")
    expect(policy).to_contain_text("Last 10 exchanges")
    title, notice = one.page.locator(".views").bounding_box(), one.page.locator(".notice").bounding_box()
    assert title is not None
    assert notice is not None
    assert notice["y"] > title["y"] + title["height"]
    one.page.get_by_role("button", name="Undo").click()
    expect(one.page.locator(".notice")).to_have_count(0)
    expect(model).to_have_value("")
    expect(policy).to_contain_text("Memory above 1,500 tokens")


def test_a_policy_that_was_used_earlier_stays_in_the_picker(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=AsyncScripted(*[says(f"Answer {i}.") for i in range(2)])))
    for i, chosen in enumerate(("KeepLast(3)", "KeepLast(2)")):
        write_policy(one.page, chosen)
        one.say(f"Question {i}?")
        expect(answers(one.page).nth(i)).to_contain_text(f"Answer {i}.")
    policy_button(one.page).click()
    assert find_problems(one.page) == []
    one.page.get_by_label("As code").fill("Memory(300)")
    one.page.get_by_label("As code").press("Enter")
    refusal = one.page.get_by_role("dialog", name="Policy").get_by_role("alert")
    expect(refusal).to_contain_text("write Memory(limit=300)")
    expect(policy_button(one.page)).to_contain_text("Last 2 exchanges")
    one.page.get_by_label("Memory, shortened above (tokens)").fill("4000")
    one.page.get_by_role("dialog", name="Policy").get_by_role("button", name="Use Memory").click()
    expect(policy_button(one.page)).to_contain_text("Memory above 4,000 tokens")
    policy_button(one.page).click()
    expect(one.page.get_by_label("Memory, shortened above (tokens)")).to_have_value("4000")
    one.page.get_by_label("Memory, shortened above (tokens)").fill("5000")
    one.page.get_by_label("Memory, shortened above (tokens)").press("Enter")
    expect(policy_button(one.page)).to_contain_text("Memory above 5,000 tokens")
    policy_button(one.page).click()
    one.page.get_by_role("button", name="Last 3 exchanges used earlier").click()
    expect(policy_button(one.page)).to_contain_text("Last 3 exchanges")
    policy_button(one.page).click()
    expect(one.page.get_by_role("button", name="Last 3 exchanges in use")).to_be_visible()
    expect(one.page.get_by_role("button", name="Last 2 exchanges used earlier")).to_be_visible()


def test_the_menu_button_covers_no_title_on_a_phone_and_charts_can_be_read(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()), viewport={"width": 390, "height": 844})
    one.page.goto(f"{one.url}/#/money")
    title, menu = (each.bounding_box() for each in (one.page.locator("h1"), one.page.locator(".burger")))
    assert title is not None
    assert menu is not None
    assert title["y"] >= menu["y"] + menu["height"]
    one.page.goto(one.url)
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.wait_for_url("**/inspector")
    one.page.goto(f"{one.url}/#/c/sample-violin/money")
    label = one.page.locator(".scale-of small").first.bounding_box()
    assert label is not None
    assert label["height"] >= 12


def test_where_all_is_free_of_charge_policies_are_compared_by_tokens(serve: Serve, visit: Visits) -> None:
    provider = AsyncScripted(*[says(f"Answer {i}. " * 40) for i in range(13)])
    provider.capabilities = msgspec.structs.replace(provider.capabilities, prices=Prices(input=0, output=0))
    one = begin(visit, serve(local=provider))
    for i in range(13):
        one.say(f"Question {i}?")
        expect(answers(one.page).nth(i)).to_contain_text(f"Answer {i}.")
    one.page.get_by_role("link", name="Costs", exact=True).click()
    expect(one.page.get_by_text("It was free of charge so far.")).to_be_visible()
    one.page.get_by_role("combobox", name="And with another model").fill("local")
    one.page.get_by_role("button", name="Compare policies").click()
    expect(one.page.get_by_role("heading", name="Prompt tokens so far, turn by turn")).to_be_visible()
    expect(one.page.get_by_text("Last 10 exchanges would send")).to_be_visible()


def test_a_conversation_without_a_brief_says_how_to_keep_one(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=AsyncScripted(says("Hello, Ada."))))
    one.say("I'm Ada.")
    expect(answers(one.page).first).to_contain_text("Hello, Ada.")
    one.page.get_by_role("link", name="Memory", exact=True).click()
    one.page.get_by_role("button", name="Use “Memory” from the next message on").click()
    expect(policy_button(one.page)).to_contain_text("Memory")


def test_a_new_chat_is_ready_for_typing_and_none_is_left_empty(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=AsyncScripted(says("Hello, Ada."))))
    field = one.page.get_by_label("Message", exact=True)
    expect(field).to_be_focused()
    one.page.get_by_role("button", name="New chat").click()
    expect(field).to_be_focused()
    expect(one.page.locator(".list li")).to_have_count(1)
    one.page.keyboard.type("I'm Ada.")
    one.page.keyboard.press("Enter")
    expect(answers(one.page).first).to_contain_text("Hello, Ada.")
    expect(one.page.get_by_role("link", name="I'm Ada.")).to_be_visible()
    one.page.get_by_role("button", name="New chat").click()
    expect(one.page.locator(".list li")).to_have_count(2)


def test_a_message_that_is_refused_is_back_in_the_field_and_goes_to_the_next_choice(
    serve: Serve, visit: Visits
) -> None:
    one = begin(visit, serve(local=AsyncScripted(says("Hello, Ada."))))
    model = one.page.get_by_label("Model", exact=True)
    model.fill("no-such:model")
    one.say("I'm Ada.")
    expect(one.page.get_by_role("alert")).to_contain_text("Your message is back in the field below.")
    field = one.page.get_by_label("Message", exact=True)
    expect(field).to_have_value("I'm Ada.")
    model.fill("")
    policy_button(one.page).click()
    one.page.get_by_role("button", name="Memory A brief replaces").click()
    expect(policy_button(one.page)).to_contain_text("Memory")
    one.page.get_by_role("button", name="Send").click()
    expect(answers(one.page).first).to_contain_text("Hello, Ada.")
    expect(one.page.get_by_role("alert")).to_have_count(0)


def test_all_tabs_and_actions_are_in_sight_on_a_phone(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()), viewport={"width": 390, "height": 844})
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.wait_for_url("**/inspector")
    one.page.goto(f"{one.url}/#/c/sample-violin")
    expect(answers(one.page).last).to_be_visible()
    for place in (one.page.locator(".views a"), answers(one.page).last.locator(".actions > *")):
        for each in place.all():
            box = each.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390


def test_a_huge_code_block_is_drawn_in_parts_while_it_comes(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    drawn = one.page.evaluate(
        r"""async () => {
          const { GrowingMarkdown, renderMarkdown } = await import('/page/markdown.js');
          const code = Array.from({ length: 3000 }, (_, i) => `print(${i})  # <b>a & b</b>`).join("\n");
          const text = "Intro.\n\n~~~~python\n" + code + "\n~~~\n~~~~\n\nAfter **it**.\n";
          const growing = new GrowingMarkdown();
          const made = new Set();
          for (let end = 0; end <= text.length; end += 500) made.add(growing.update(text.slice(0, end)).last.length);
          const { blocks, last } = growing.update(text);
          const [parts, whole] = [document.createElement("div"), document.createElement("div")];
          [parts.innerHTML, whole.innerHTML] = [blocks.join("") + last, renderMarkdown(text)];
          const read = (box) => box.textContent.replace(/\s/g, "");
          return { largest: Math.max(...made), isSame: read(parts) === read(whole), last };
        }"""
    )
    assert drawn["isSame"]
    assert drawn["largest"] < 12_000
    assert "<strong>it</strong>" in drawn["last"]


def test_the_source_of_each_memory_is_opened_and_marked(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.get_by_role("link", name="Memory", exact=True).click()
    links = one.page.get_by_role("link", name=re.compile("^(Source of|Noted in this answer)"))
    expect(links.nth(10)).to_be_visible()
    addresses = [str(link.get_attribute("href")) for link in links.all()]
    entries = {}
    for address in addresses:
        one.page.goto(f"{one.url}/#/money")
        one.page.goto(f"{one.url}/{address}")
        found = one.page.locator("article.found")
        expect(found).to_be_in_viewport()
        entries[address] = found.get_attribute("id")
    assert entries == {address: "entry-" + address.split("/")[4] for address in addresses}
    one.page.goto(f"{one.url}/#/c/sample-violin/at/no-such-entry")
    expect(one.page.get_by_role("alert")).to_contain_text("This branch has no such message.")
    expect(answers(one.page).last).to_be_in_viewport()


def test_a_search_says_first_where_the_request_has_what_it_looks_for(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    field = one.page.get_by_label("Did the model forget something?")
    panel = one.page.get_by_role("tabpanel")
    field.fill("62 euros")
    expect(panel).to_contain_text("It is in the request, as a line in Memory: “Dominant strings since May, 62 euros”.")
    hit = panel.locator(".hit").filter(has_text="I ordered Dominants.")
    expect(hit).to_contain_text("A line in Memory stands for it, and was sent: “Dominant strings since May, 62 euros”.")
    field.fill("41")
    expect(panel).to_contain_text("It is in the request, as a line in Memory: “Ada, 41, violin since January”.")
    field.fill("started the violin in January")
    expect(panel).to_contain_text("The nearest is a line in Memory: “Ada, 41, violin since January”.")
    expect(panel).not_to_contain_text("has: the")
    field.fill("birthday is 20 September")
    expect(panel).to_contain_text("The nearest is a line in Memory: “birthday is 19 September (corrected)”.")
    expect(panel.locator(".hit", has_text="Start at")).to_have_count(0)
    field.fill("metronome bars week")
    expect(panel.locator(".hit", has_text="60").first).to_be_visible()
    expect(panel).not_to_contain_text("**")


def test_a_corrected_line_stays_in_its_place_and_messages_that_contradict_it_are_left_out(
    serve: Serve, visit: Visits
) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.get_by_role("link", name="Memory", exact=True).click()
    decisions = one.page.get_by_role("region", name="decisions")
    line = decisions.locator(".lines > li").first
    source = line.get_by_role("link", name="Source of")
    origin = source.get_attribute("href")
    line.get_by_role("button", name="Edit").click()
    one.page.get_by_role("textbox", name="Edit").fill("birthday is 20 September")
    one.page.get_by_role("button", name="Save").click()
    expect(line).to_contain_text("birthday is 20 September")
    expect(line).to_contain_text("corrected by hand")
    assert source.get_attribute("href") == origin
    old = line.locator(".old")
    expect(old).to_contain_text("4 earlier messages still say what was corrected.")
    # What was corrected once before contradicts the line too.
    first = old.get_by_role("listitem").filter(has_text="26 September")
    expect(first).to_contain_text("May 4, 2026")
    rest = old.get_by_role("listitem").filter(has_text="On Saturday, 19 September")
    expect(rest).to_contain_text("in the next request, in short")
    said = old.get_by_role("listitem").filter(has_text="Correction: my father's birthday is on 19 September")
    expect(said).to_contain_text("Jul 26, 2026 · not in the next request")
    assert find_problems(one.page) == []
    said.get_by_role("button", name="Leave out").click()
    expect(said).to_contain_text("left out")
    answer = old.get_by_role("listitem").filter(has_text="Noted: 19 September")
    expect(answer).to_contain_text("left out with its exchange")
    expect(old).to_contain_text("2 earlier messages still say what was corrected.")
    first.get_by_role("button", name="Leave out").click()
    expect(old).to_contain_text("1 earlier message still says what was corrected.")
    rest.get_by_role("button", name="Leave out").click()
    expect(old).to_contain_text("All messages that say what was corrected are left out.")
    said.get_by_role("link").click()
    expect(one.page.locator("article.found")).to_contain_text("left out")
    one.page.go_back()
    line.get_by_role("button", name="Find earlier messages that say what was corrected").click()
    expect(old).to_contain_text("All messages that say what was corrected are left out.")
    one.page.get_by_role("link", name="tokens in the next request").click()
    one.page.get_by_label("Did the model forget something?").fill("birthday 26 September")
    expect(one.page.locator(".hit").first).to_contain_text("The line “birthday is 26 September” was corrected on")


def test_a_message_that_a_search_finds_is_shown_in_the_chat_and_left_out(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    panel = one.page.get_by_role("complementary", name="What the model saw")
    panel.get_by_role("button", name="Later turn").click()
    field = panel.get_by_label("Did the model forget something?")
    field.fill("birthday is 19 September (corrected)")
    one.page.get_by_label("Message", exact=True).fill("When is my father's birthday?")
    hit = panel.locator(".hit", has_text="Correction: my father's birthday is on 19 September")
    expect(hit.locator(".verdict")).to_have_text("recalled")
    hit.get_by_role("link", name="Show it in the chat").click()
    expect(one.page.locator("article.found")).to_be_in_viewport()
    expect(field).to_have_value("birthday is 19 September (corrected)")
    hit.get_by_role("button", name="Leave out of all requests").click()
    expect(hit).to_contain_text("you left it out in the chat")


def test_the_answer_is_in_sight_after_sending_from_far_back(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted(says("Practise *legato*."), says("Scales."))))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.get_by_role("link", name="Memory", exact=True).click()
    one.page.get_by_role("link", name="Source of").first.click()
    expect(one.page.locator("article.found")).to_be_in_viewport()
    one.say("What should I practise?")
    expect(answers(one.page).last).to_contain_text("Practise legato.")
    expect(answers(one.page).last).to_be_in_viewport()
    one.page.locator(".views").get_by_role("link", name="What it saw").click()
    one.page.get_by_label("Did the model forget something?").fill("shoulder rest")
    one.page.locator(".hit").get_by_role("link", name="Show it in the chat").last.click()
    expect(one.page.locator("article.found")).to_be_in_viewport()
    # Browsers report scrolling whenever the layout moves, so that it may come while the end is loaded.
    one.page.evaluate(
        "setInterval(() => document.querySelector('.messages').dispatchEvent(new Event('scroll')), 5); undefined"
    )
    one.say("And then?")
    expect(answers(one.page).last).to_contain_text("Scales.")
    expect(answers(one.page).last).to_be_in_viewport()


def test_a_message_that_was_shown_does_not_hold_the_reader_on_its_branch(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted(says("Because."))))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.get_by_label("Did the model forget something?").fill("learn vibrato before the birthday")
    hit = one.page.locator(".hit", has_text="Should I learn vibrato before the birthday?")
    hit.get_by_role("link", name="Show it in the chat").click()
    shown = one.page.locator("article.found")
    expect(shown).to_be_in_viewport()
    shown.get_by_label("Next branch").or_(shown.get_by_label("Previous branch")).and_(
        one.page.locator(":enabled")
    ).click()
    expect(one.page.get_by_role("article").filter(has_text="Should I learn vibrato in September")).to_be_visible()
    one.say("Why?")
    expect(answers(one.page).last).to_contain_text("Because.")
    expect(answers(one.page).last).to_be_in_viewport()
    expect(one.page.get_by_role("article").filter(has_text="before the birthday?")).to_have_count(0)


def test_the_overview_says_in_plain_words_why_recall_was_cut(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.get_by_label("Message", exact=True).fill("When is my aunt's birthday?")
    one.page.get_by_role("link", name="tokens in the next request").click()
    panel = one.page.get_by_role("tabpanel")
    expect(panel).to_contain_text("so quotes may take up to 400 tokens. Quotes have cost much ")
    expect(panel).to_contain_text("tokens are for them now")
    expect(panel).to_contain_text("Brief: the lines in Memory, in place of older messages")
    parts = panel.get_by_role("row").filter(has_text=re.compile("^ *(Brief|Outlines|Earlier messages)"))
    sizes = [int(text.replace(",", "")) for text in parts.get_by_role("cell").all_text_contents()]
    expect(panel).to_contain_text(f"{sum(sizes):,} of 1,500 tokens of history")


def test_a_sample_that_was_changed_is_opened_again(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.get_by_role("link", name="Memory", exact=True).click()
    one.page.get_by_label("Something to remember").fill("Plays the viola too")
    one.page.get_by_role("button", name="Add", exact=True).click()
    expect(one.page.get_by_role("listitem").filter(has_text="Plays the viola too")).to_be_visible()
    one.page.goto(one.url)
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.wait_for_url("**/inspector")
    one.page.get_by_role("link", name="Memory", exact=True).click()
    expect(one.page.get_by_role("listitem").filter(has_text="Plays the viola too")).to_be_visible()


@pytest.mark.parametrize("kind", ["list", "table", "numbered"])
def test_a_huge_list_or_table_is_drawn_in_parts_while_it_comes(kind: str, serve: Serve, visit: Visits) -> None:
    line = {"list": "- **Bar {0}** with a light hand", "table": "| {0} | a light hand |", "numbered": "1. Bar {0}"}[
        kind
    ]
    begin = "| bar | how |\n|---|---|\n" if kind == "table" else ""
    text = f"Intro.\n\n{begin}" + "\n".join(line.format(i) for i in range(2000)) + "\n\nAfter **it**.\n"
    one = visit(serve(local=AsyncScripted()))
    drawn = one.page.evaluate(
        r"""async (text) => {
          const { GrowingMarkdown, renderBlocks } = await import('/page/markdown.js');
          const growing = new GrowingMarkdown();
          const made = new Set();
          for (let end = 0; end <= text.length; end += 500) made.add(growing.update(text.slice(0, end)).last.length);
          const { blocks, last } = growing.update(text);
          const read = (parts) => {
            const box = document.createElement("div");
            box.innerHTML = parts.join("");
            const [lines, lists] = ["li, tbody tr", "ol"].map((each) => [...box.querySelectorAll(each)]);
            const say = (each) => each.textContent.trim().replace(/\s+/g, " ");
            return { lines: lines.map(say), numbers: lists.map((each) => each.start) };
          };
          const [streamed, whole] = [read([...blocks, last]), read(renderBlocks(text))];
          return { largest: Math.max(...made), last, streamed, whole };
        }""",
        text,
    )
    lines = {"list": "Bar {0} with a light hand", "table": "{0} a light hand", "numbered": "Bar {0}"}[kind]
    for way in ("streamed", "whole"):
        assert drawn[way]["lines"] == [lines.format(i) for i in range(2000)]
    assert drawn["largest"] < 20_000
    assert "<strong>it</strong>" in drawn["last"]
    if kind == "numbered":
        starts = drawn["streamed"]["numbers"]
        assert starts == sorted(set(starts))
        assert len(starts) > 3


def test_what_is_being_written_is_still_there_after_another_view(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    memory = one.page.get_by_role("link", name="Memory", exact=True)
    memory.click()
    line = one.page.get_by_role("listitem").filter(has_text="Dominant strings since May, 62 euros")
    expect(line).to_contain_text("Said May 16, noted May 23, 2026")
    line.get_by_role("button", name="Edit").click()
    edit = one.page.get_by_role("textbox", name="Edit")
    edit.fill("Evah Pirazzi strings")
    one.page.get_by_label("Something to remember").fill("Plays the viola too")
    one.page.get_by_role("link", name="Costs", exact=True).click()
    expect(one.page.get_by_role("button", name="Compare policies")).to_be_visible()
    memory.click()
    expect(edit).to_have_value("Evah Pirazzi strings")
    expect(one.page.get_by_label("Something to remember")).to_have_value("Plays the viola too")
    edit.press("Escape")
    one.page.get_by_role("link", name="Chat", exact=True).click()
    one.page.get_by_label("Message", exact=True).fill("And the scales? " * 40)
    size = re.compile(r"About (6|7)\d\d tokens in the next request")
    expect(one.page.locator(".composer .gauge")).to_contain_text(size)
    memory.click()
    expect(one.page.locator(".foot-gauge")).to_contain_text(size)
    one.page.reload()
    expect(line.get_by_role("button", name="Edit")).to_be_visible()
    expect(edit).to_have_count(0)


def test_a_line_that_another_tab_changes_keeps_what_is_being_written(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.get_by_role("link", name="Memory", exact=True).click()
    one.page.get_by_role("button", name="Edit “Ada, 41, violin since January”").click()
    edit = one.page.get_by_role("textbox", name="Edit")
    edit.fill("Ada, 42, violin since January")
    other = one.open(one.page.url)
    other.get_by_role("button", name="Edit “Ada, 41, violin since January”").click()
    other.get_by_role("textbox", name="Edit").fill("Ada, 43, violin since January")
    other.get_by_role("textbox", name="Edit").press("Enter")
    changed = one.page.get_by_role("alert")
    expect(changed).to_contain_text("It says now: “Ada, 43, violin since January”.")
    expect(edit).to_have_value("Ada, 42, violin since January")
    edit.press("Enter")
    expect(one.page.get_by_role("button", name="Edit “Ada, 42, violin since January”")).to_be_visible()
    expect(edit).to_have_count(0)
    expect(changed).to_have_count(0)
    one.page.get_by_role("button", name="Edit “Ada, 42, violin since January”").click()
    edit.fill("Ada plays")
    other.get_by_role("button", name="Forget “Ada, 42, violin since January”").click()
    other.get_by_role("dialog").get_by_role("button", name="Forget").click()
    expect(changed).to_contain_text("You had written: “Ada plays”.")
    changed.get_by_role("button", name="Use it as a new line").click()
    expect(one.page.get_by_label("Something to remember")).to_have_value("Ada plays")
    expect(changed).to_have_count(0)


def test_a_forgotten_line_leads_to_the_messages_that_say_it(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    one.page.get_by_role("link", name="Memory", exact=True).click()
    one.page.get_by_role("button", name="Forget “Dominant strings since May, 62 euros”").click()
    dialog = one.page.get_by_role("dialog")
    expect(dialog).to_contain_text("Earlier messages that say it stay as they are")
    dialog.get_by_role("button", name="Forget").click()
    old = one.page.locator(".old")
    expect(old.get_by_role("listitem").filter(has_text="I ordered Dominants.")).to_be_in_viewport()
    notice, list_of, gauge = (one.page.locator(each).bounding_box() for each in (".notice", ".view", ".foot-gauge"))
    assert notice is not None
    assert list_of is not None
    assert gauge is not None
    assert list_of["y"] + list_of["height"] <= notice["y"] < gauge["y"]


def test_the_field_of_the_model_suggests_all_models_and_keeps_what_was_chosen(serve: Serve, visit: Visits) -> None:
    one = begin(visit, serve(local=AsyncScripted()))
    model, message = one.page.get_by_label("Model", exact=True), one.page.get_by_label("Message", exact=True)
    model.fill("local")
    message.focus()
    expect(model).to_have_value("local")
    model.focus()
    expect(model).to_have_value("")
    expect(model).to_have_attribute("placeholder", "local")
    message.focus()
    expect(model).to_have_value("local")
    model.press("Delete")
    message.focus()
    expect(model).to_have_value("")


def test_the_actions_of_a_narrow_chat_hide_no_figures_and_are_all_in_sight(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    one.page.get_by_role("button", name="Open a sample conversation").click()
    expect(one.page.get_by_text("Every message, and why")).to_be_visible()
    answer = answers(one.page).last
    answer.hover()
    expect(answer.get_by_text("1,104 tokens in")).to_be_visible()
    chat = one.page.locator(".messages").bounding_box()
    assert chat is not None
    for each in answer.locator(".actions > *").all():
        box = each.bounding_box()
        assert box is not None
        assert chat["x"] <= box["x"]
        assert box["x"] + box["width"] <= chat["x"] + chat["width"]


def test_the_editor_of_a_message_fits_beside_a_panel_and_so_do_branched_bubbles(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()), viewport={"width": 1280, "height": 800})
    one.page.get_by_role("button", name="Open a sample conversation").click()
    expect(one.page.get_by_text("Every message, and why")).to_be_visible()
    last = one.page.get_by_role("article", name="You").last
    edge = one.page.locator(".feed").evaluate("each => each.getBoundingClientRect().right")
    last.hover()
    last.get_by_role("button", name="Edit").click()
    field = last.get_by_role("textbox", name="Edit")
    assert field.evaluate("each => each.getBoundingClientRect().right") <= edge
    field.press("Escape")
    expect(field).to_have_count(0)
    expect(one.page.get_by_role("complementary", name="What the model saw")).to_be_visible()
    one.page.get_by_label("Search conversations").fill("Should I learn vibrato before")
    one.page.locator("a.hit").first.click()
    bubble = one.page.locator("article.found .plain")
    assert abs(bubble.evaluate("each => each.getBoundingClientRect().right") - edge) < 1
    versions = one.page.locator("article.found .versions")
    assert abs(versions.evaluate("each => each.getBoundingClientRect().right") - edge) < 1


def test_requests_of_every_provider_are_listed_to_be_read(serve: Serve, visit: Visits) -> None:
    one = visit(serve(local=AsyncScripted()))
    call = {"name": "look", "arguments": '{"at":"sky"}'}
    bodies = [
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Hi."}]},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "type": "function", "function": call}],
                },
                {"role": "tool", "tool_call_id": "c", "content": "Blue."},
            ],
        },
        {
            "model": "m",
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Hi."}]},
                {"type": "function_call", "call_id": "c", **call},
                {"type": "function_call_output", "call_id": "c", "output": "Blue."},
            ],
        },
        {
            "model": "m",
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": "Hi."},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {"at": "sky"}}],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "Blue."}]},
            ],
        },
        {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [
                {"role": "user", "parts": [{"text": "Hi."}]},
                {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"at": "sky"}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"result": "Blue."}}}]},
            ],
        },
    ]
    read = one.page.evaluate(
        """async (bodies) => {
          const { readRequest } = await import('/page/inspector/readable.js');
          return bodies.map((body) => readRequest(JSON.stringify(body)).items.map(({ label, text }) => [label, text]));
        }""",
        bodies,
    )
    for items in read:
        assert items[:2] == [["System", "Be brief."], ["You", "Hi."]]
        assert items[2][1] == 'look\n{"at":"sky"}'
        assert "Blue." in items[3][1]
    assert [items[2][0] for items in read] == ["Answer", "Tool call", "Answer", "Answer"]
