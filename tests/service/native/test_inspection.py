"""What the model sees, on the service's own surface: manifests, requests, figures, memory, marks."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from longtalk.models.call_cost import Prices
from longtalk.service.access import AccessKeys
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve
from tests.service.native.conftest import MakeApi


def test_a_turn_shows_what_was_sent_and_what_was_left_out(serve: Serve, api: MakeApi) -> None:
    provider = AsyncScripted(*[says(f"{i}.") for i in range(4)])
    call = api(serve(m=provider))
    talk = call.new()
    for i in range(4):
        body = {"message": f"{i}?", "model": "m", "policy": "KeepLast(2)", "system": "Be brief."}
        turn = call("POST", f"{talk}/turns", json=body)
    found = call("GET", f"{talk}/turns/{turn['id']}/manifest")
    assert {run["verdict"] for run in found["runs"]} == {"left_out", "sent"}
    assert (found["runs"][0]["first"], found["runs"][-1]["last"]) == (0, 6)
    assert found["runs"][0]["reason"]
    assert found["metrics"]["turn"] == turn["id"]
    (sent,) = call("GET", f"{talk}/turns/{turn['id']}/requests")["requests"]
    assert (sent["body"].encode(), sent["problem"]) == (provider.requests[-1], "")
    metrics = call("GET", f"{talk}/metrics")["metrics"]
    assert len(metrics) == 4
    assert {"brief", "outline", "recall", "history", "total"} <= metrics[0].keys()
    epochs = call("GET", f"{talk}/epochs")["epochs"]
    assert epochs[-1]["runs"][0]["verdict"] == "left_out"
    assert call("GET", f"{talk}/receipts") == {"receipts": []}
    settings = call("GET", f"{talk}/settings")
    assert (settings["model"], settings["system"]) == ("scripted:model", "Be brief.")


def test_a_long_history_is_read_by_page(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted(*[says(f"{i}.") for i in range(3)])))
    talk = call.new()
    for i in range(3):
        call("POST", f"{talk}/turns", json={"message": f"{i}?", "model": "m"})
    page = call("GET", f"{talk}/history?limit=2")
    assert [each["text"] for each in page["entries"]] == ["2?", "2."]
    older = call("GET", f"{talk}/history", params={"before": page["before"]})
    assert ([each["position"] for each in older["entries"]], older["before"]) == ([0, 1, 2, 3], None)
    assert json.loads(older["entries"][0]["native"]) == {"role": "user", "content": "0?"}


def test_lines_of_the_brief_are_added_edited_and_revoked(serve: Serve, api: MakeApi) -> None:
    card = 'Hi.\n<memory>{"facts": ["Ada plays the violin"]}</memory>'
    call = api(serve(m=AsyncScripted(says(card), says("Yes."))))
    talk = call.new()
    assert call("GET", f"{talk}/brief")["kept"] is False
    assert call("GET", f"{talk}/brief/changes") == {"changes": []}
    call("POST", f"{talk}/turns", json={"message": "Hi.", "model": "m", "policy": "Memory()"})
    added = call("POST", f"{talk}/brief", json={"field": "facts", "text": "Ada is nine."})
    line = next(each for each in added["lines"] if each["text"] == "Ada is nine.")
    assert (added["kept"], line["entry"]) == (True, "")
    edited = call("PATCH", f"{talk}/brief/{line['id']}", json={"text": "Ada is ten."})
    (new,) = [each for each in edited["lines"] if "ten" in each["text"]]
    assert all("nine" not in each["text"] for each in edited["lines"])
    assert "ten" in edited["text"]
    revoked = call("DELETE", f"{talk}/brief/{new['id']}")
    assert all("ten" not in each["text"] for each in revoked["lines"])
    assert any("ten" in each["text"] for each in revoked["removed"])
    changes = call("GET", f"{talk}/brief/changes")["changes"]
    texts = [[[line["text"] for line in each[part]] for part in ("added", "removed")] for each in changes]
    assert texts[-3:] == [[["Ada is nine."], []], [["Ada is ten."], ["Ada is nine."]], [[], ["Ada is ten."]]]
    assert new["id"] in changes[-1]["revoked"]
    assert changes[0]["at"] <= changes[-1]["at"]
    assert call("DELETE", f"{talk}/brief/nothing", 404)
    assert call("PATCH", f"{talk}/brief/nothing", 404, json={"text": "x"})
    assert call("POST", f"{talk}/brief", 400, json={"field": "nonsense", "text": "x"})


def test_a_line_is_corrected_and_revoked_on_all_branches_that_have_it_from_the_same_message(
    serve: Serve, api: MakeApi
) -> None:
    call = api(serve(m=AsyncScripted(*[says("Yes.")] * 3)))
    talk = call.new()
    call("POST", f"{talk}/turns", json={"message": "Hi.", "model": "m", "policy": "Memory()"})
    call("POST", f"{talk}/brief", json={"field": "facts", "text": "Ada is nine."})
    fork = call("POST", f"{talk}/branches", json={})["name"]
    call("POST", f"{talk}/brief", json={"field": "facts", "text": "Likes tea."})

    def read(branch: str) -> list[str]:
        return [each["text"] for each in call("GET", f"{talk}/brief", params={"branch": branch})["lines"]]

    line = call("GET", f"{talk}/brief")["lines"][0]["id"]
    call("PATCH", f"{talk}/brief/{line}", params={"everywhere": "true"}, json={"text": "Ada is ten."})
    assert (read("main"), read(fork)) == (["Likes tea.", "Ada is ten."], ["Ada is ten."])
    line = call("GET", f"{talk}/brief")["lines"][1]["id"]
    call("DELETE", f"{talk}/brief/{line}")
    assert (read("main"), read(fork)) == (["Likes tea."], ["Ada is ten."])
    call("POST", f"{talk}/brief/{line}/restore")
    call("DELETE", f"{talk}/brief/{line}", params={"everywhere": "true"})
    assert (read("main"), read(fork)) == (["Likes tea."], [])
    back = call("POST", f"{talk}/brief/{line}/restore", params={"everywhere": "true"})
    assert [each["text"] for each in back["lines"]] == read("main")
    assert (sorted(read("main")), read(fork)) == (["Ada is ten.", "Likes tea."], ["Ada is ten."])
    assert call("POST", f"{talk}/brief/{line}/restore", 404)


def test_a_search_on_a_branch_finds_what_is_on_it_alone(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted(*[says("Yes.")] * 3)))
    talk = call.new()
    first = call("POST", f"{talk}/turns", json={"message": "A violin in May.", "model": "m"})
    second = call("POST", f"{talk}/turns", json={"message": "A violin in June.", "model": "m"})
    other = call("POST", f"{talk}/turns", json={"message": "A violin in July.", "edits": second["id"], "model": "m"})
    query = {"q": "violin", "conversation": talk.rpartition("/")[2]}

    def find(branch: str) -> set[str]:
        return {hit["text"] for hit in call("GET", "/search", params={**query, "branch": branch})["hits"]}

    assert first["branch"] != other["branch"]
    assert find(first["branch"]) == {"A violin in May.", "A violin in June."}
    assert find(other["branch"]) == {"A violin in May.", "A violin in July."}
    assert call("GET", "/search", 400, params={"q": "violin", "branch": "main"})


def test_a_line_names_the_message_that_says_it_or_the_answer_in_which_it_was_noted(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted()))
    (info,) = call("POST", "/sample")["conversations"]
    talk = f"/conversations/{info['id']}"
    lines = {each["id"]: each["text"] for each in call("GET", f"{talk}/brief")["lines"]}
    entries = {each["id"]: each for each in call("GET", f"{talk}/history?limit=1000")["entries"]}
    sources = {lines.get(each["line"]): each for each in call("GET", f"{talk}/brief/sources")["sources"]}
    strings = sources["Dominant strings since May, 62 euros"]
    assert entries[strings["entry"]]["text"] == "I ordered Dominants. They cost me 62 euros."
    assert entries[strings["entry"]]["position"] == strings["position"]
    assert strings["states"]


def test_instructions_of_a_conversation_go_to_another_model_without_its_own(serve: Serve, api: MakeApi) -> None:
    providers = {name: AsyncScripted(says("One."), says("Two.")) for name in ("m", "n")}
    call = api(serve(**providers))
    talk = call.new()
    turn = call("POST", f"{talk}/turns", json={"message": "1", "model": "m", "system": "Be brief."})
    assert call("GET", f"{talk}/turns/{turn['id']}/manifest")["system"] == "Be brief."
    assert call("POST", f"{talk}/preview", json={"message": "2", "model": "n"})["manifest"]["system"] == "Be brief."
    call("POST", f"{talk}/turns", json={"message": "2", "model": "n"})
    assert b"Be brief." in providers["n"].requests[-1]


def test_the_brief_says_whether_the_model_notes_lines_by_itself(serve: Serve, api: MakeApi) -> None:
    small = AsyncScripted(says("Hi."))
    small.label = "local:0.5b"
    small.capabilities = msgspec.structs.replace(small.capabilities, cards="none")
    call = api(serve(large=AsyncScripted(says("Hi.")), small=small))
    for model, notes in (("large", True), ("small", False)):
        talk = call.new()
        call("POST", f"{talk}/turns", json={"message": "Hi.", "model": model, "policy": "Memory()"})
        brief = call("GET", f"{talk}/brief")
        assert (brief["kept"], brief["lines"], brief["is_noted"]) == (True, [], notes)


def test_lines_stay_in_sight_under_a_policy_that_does_not_send_them(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted(says("Hi."), says("Yes."))))
    talk = call.new()
    assert call("POST", f"{talk}/brief", 400, json={"field": "facts", "text": "Ada is nine."})
    call("POST", f"{talk}/turns", json={"message": "Hi.", "model": "m", "policy": "Memory()"})
    call("POST", f"{talk}/brief", json={"field": "facts", "text": "Ada is nine."})
    call("POST", f"{talk}/turns", json={"message": "Well?", "model": "m", "policy": "KeepLast(1)"})
    brief = call("GET", f"{talk}/brief")
    assert (brief["kept"], [each["text"] for each in brief["lines"]]) == (True, ["Ada is nine."])
    assert len(call("GET", f"{talk}/brief/changes")["changes"]) == 1
    edited = call("PATCH", f"{talk}/brief/{brief['lines'][0]['id']}", json={"text": "Ada is ten."})
    assert [each["text"] for each in edited["lines"]] == ["Ada is ten."]


def test_notes_pins_and_exclusions(serve: Serve, api: MakeApi) -> None:
    provider = AsyncScripted(says("One."), says("Two."))
    call = api(serve(m=provider))
    talk = call.new()
    entry = call("POST", f"{talk}/notes", 201, json={"text": "It rains.", "source": "weather"})["entry"]
    turn = call("POST", f"{talk}/turns", json={"message": "1", "model": "m"})
    assert b"It rains." in provider.requests[0]
    first = turn["entries"][0]["id"]
    assert call("PUT", f"{talk}/pins/{first}")["pinned"] == [first]
    assert call("GET", f"{talk}/marks")["pinned"] == [first]
    assert call("DELETE", f"{talk}/pins/{first}")["pinned"] == []
    assert call("PUT", f"{talk}/exclusions/{first}")["excluded"]
    call("POST", f"{talk}/turns", json={"message": "2", "model": "m"})
    assert b"One." not in provider.requests[-1]
    assert call("DELETE", f"{talk}/exclusions/{first}")["excluded"] == []
    assert call("PUT", f"{talk}/pins/nothing", 400)
    assert entry in [each["id"] for each in call("GET", f"{talk}/history")["entries"]]


def test_topics_and_simulations(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted(says("The violin bow needs rosin."), says("Yes."))))
    talk = call.new()
    for text in ("How do I hold the violin bow?", "Is rosin needed?"):
        call("POST", f"{talk}/turns", json={"message": text, "model": "m"})
    (topic,) = call("GET", f"{talk}/topics")["topics"]
    assert (topic["first"], topic["count"]) == (0, 4)
    body = {"models": ["anthropic:claude-sonnet-5"], "policies": ["KeepAll()", "KeepLast(1)"]}
    runs = call("POST", f"{talk}/simulate", json=body)["runs"]
    assert [run["policy"] for run in runs] == ["KeepAll()", "KeepLast(1)", "optimum"]
    assert len(runs[0]["calls"]) == 2
    assert runs[0]["cost"] > 0
    assert call("POST", f"{talk}/simulate", 400, json={"models": ["no:model"]})


def test_owners_see_and_revoke_their_own_keys_only(serve: Serve, api: MakeApi) -> None:
    storage = InMemoryStorage()
    keys = AccessKeys(storage)
    ada, own = keys.add("laptop", "ada", models=("m",))
    keys.add("phone", "ada")
    _, other = keys.add("bob", "bob")
    call = api(serve(storage=storage, m=AsyncScripted()), ada)
    listed = sorted(call("GET", "/keys")["keys"], key=lambda key: str(key["name"]))
    assert [(key["name"], key["is_current"]) for key in listed] == [("laptop", True), ("phone", False)]
    assert call("DELETE", f"/keys/{other.id}", 404) == call("DELETE", f"/keys/{other.id}", 404)
    assert [key["name"] for key in call("DELETE", f"/keys/{listed[1]['id']}")["keys"]] == ["laptop"]
    assert [model["name"] for model in call("GET", "/models")["models"]] == ["m"]
    assert (call("GET", "/health")["owner"], call("GET", "/health")["key"]) == ("ada", own.id)
    assert len(keys.list()) == 2


def test_the_next_request_is_estimated_without_sending_it(serve: Serve, api: MakeApi) -> None:
    provider = AsyncScripted(says("One. " * 50))
    call = api(serve(m=provider))
    talk = call.new()
    before = call("POST", f"{talk}/estimate", json={"message": "Hi.", "model": "m"})
    call("POST", f"{talk}/turns", json={"message": "Hi.", "model": "m"})
    after = call("POST", f"{talk}/estimate", json={"message": "Hi."})
    assert (after["model"], after["cost"]) == ("scripted:model", None)
    assert before["tokens"] < 20 < after["tokens"]
    manifest = call("POST", f"{talk}/preview", json={"message": "Hi."})["manifest"]
    (run,) = manifest["runs"]
    assert (run["first"], run["last"], run["tokens"]) == (0, 1, manifest["metrics"]["history"] - manifest["message"])
    assert len(provider.requests) == 1
    assert len(call("GET", f"{talk}/history")["entries"]) == 2


def test_recalled_messages_name_the_words_that_led_to_them(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted(*[says(f"Fine, {i}.") for i in range(6)])))
    talk = call.new()
    told = ["My violin teacher is called Zelenka.", "I cooked lentils.", "It rained on the roof.", "Trains were late."]
    for text in [*told, "Which teacher did I mention for the violin?"]:
        body = {"message": text, "model": "m", "policy": "Memory(limit=0, recent=0, recall=500)"}
        turn = call("POST", f"{talk}/turns", json=body)
    found = call("GET", f"{talk}/turns/{turn['id']}/recalled")["recalled"]
    assert found[0]["position"] == 0
    assert set(found[0]["words"]) == {"teacher", "violin"}
    assert found[0]["score"] > 0
    first = call("GET", f"{talk}/history")["entries"][0]["turn"]
    assert call("GET", f"{talk}/turns/{first}/recalled") == {"recalled": []}
    assert call("GET", f"{talk}/turns/nothing/recalled", 404)


def test_days_count_each_turn_once_over_branches_and_conversations(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted(*[says(f"{i}.") for i in range(3)])))
    first, second = call.new(), call.new()
    for talk in (first, first, second):
        call("POST", f"{talk}/turns", json={"message": "Hi.", "model": "m"})
    call("POST", f"{first}/branches", json={"source": "main", "name": "other"})
    (own,) = call("GET", f"{first}/stats/daily")["days"]
    (every,) = call("GET", "/stats/daily")["days"]
    assert (own["turns"], own["unpriced"], own["cost"]) == (2, 2, None)
    assert (every["turns"], every["usage"]["input"]) == (3, call("GET", "/stats")["usage"]["input"])
    assert call("GET", "/conversations/nothing/stats/daily", 404)


def test_a_turn_shows_its_message_the_room_for_the_answer_and_the_limit_of_its_own_policy(
    serve: Serve, api: MakeApi
) -> None:
    provider = AsyncScripted(says("One."), says("Two."))
    provider.label = "openai-chat:gpt-5.4"
    call = api(serve(m=provider))
    talk = call.new()
    body = {"message": "Hello, who are you?", "model": "m", "policy": "TokenBudget(500)"}
    first = call("POST", f"{talk}/turns", json={**body, "options": {"max_output_tokens": 77}})
    call("POST", f"{talk}/turns", json={**body, "policy": "KeepAll()"})
    found = call("GET", f"{talk}/turns/{first['id']}/manifest")
    assert (found["policy"], found["limit"], found["reserved"]) == ("TokenBudget(500)", 500, 77)
    assert found["rules"] == ["over 500 tokens"]
    assert 0 < found["message"] == found["metrics"]["history"]


def test_a_request_says_where_the_cached_prefix_ends(serve: Serve, api: MakeApi) -> None:
    def report(cached: int) -> dict[str, Any]:
        return {"prompt_tokens": 40, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": cached}}

    answers = [says("1.", usage=report(0)), says("2.", usage=report(20)), says("3.", usage=report(40))]
    call = api(serve(m=AsyncScripted(*answers)))
    talk, ends = call.new(), []
    for _ in answers:
        turn = call("POST", f"{talk}/turns", json={"message": "The same words again and again.", "model": "m"})
        (sent,) = call("GET", f"{talk}/turns/{turn['id']}/requests")["requests"]
        ends.append((sent["cached_until"], len(sent["body"])))
    assert ends[0][0] == 0
    assert abs(ends[1][0] - ends[1][1] / 2) < ends[1][1] / 5
    assert ends[2][0] == ends[2][1]


def test_a_page_of_history_has_the_costs_of_its_turns(serve: Serve, api: MakeApi) -> None:
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 0}
    priced = AsyncScripted(says("1.", usage=usage), says("2.", usage=usage))
    priced.capabilities = msgspec.structs.replace(priced.capabilities, prices=Prices(input=3, output=1))
    call = api(serve(m=priced, unpriced=AsyncScripted(says("3.", usage=usage))))
    talk = call.new()
    turns = [
        call("POST", f"{talk}/turns", json={"message": "Go on.", "model": model})["id"]
        for model in ("m", "m", "unpriced")
    ]
    assert call("GET", f"{talk}/history?limit=4")["costs"] == {turns[1]: 3.0, turns[2]: None}
    assert call("GET", f"{talk}/history?limit=4&before=2")["costs"] == {turns[0]: 3.0}


def test_the_window_of_a_turn_is_that_of_the_provider_that_answered(serve: Serve, api: MakeApi) -> None:
    provider = AsyncScripted(says("Hello."))
    provider.capabilities = msgspec.structs.replace(provider.capabilities, window=4_096)
    call = api(serve(m=provider))
    talk = call("POST", "/conversations", json={})["id"]
    turn = call("POST", f"/conversations/{talk}/turns", json={"message": "Hi", "model": "m"})
    manifest = call("GET", f"/conversations/{talk}/turns/{turn['id']}/manifest")
    assert (manifest["window"], manifest["reserved"]) == (4_096, 512)


def test_the_room_for_the_answer_is_what_the_provider_s_own_options_allow(serve: Serve, api: MakeApi) -> None:
    provider = AsyncScripted(says("Hello."))
    provider.capabilities = msgspec.structs.replace(provider.capabilities, window=4_096)
    provider.defaults = {"max_tokens": 1_024}
    call = api(serve(m=provider))
    talk = call.new()
    before = call("POST", f"{talk}/preview", json={"message": "Hi", "model": "m"})
    turn = call("POST", f"{talk}/turns", json={"message": "Hi", "model": "m"})
    manifest = call("GET", f"{talk}/turns/{turn['id']}/manifest")
    assert b'"max_tokens":1024' in provider.requests[0]
    assert (before["manifest"]["reserved"], manifest["reserved"]) == (1_024, 1_024)
