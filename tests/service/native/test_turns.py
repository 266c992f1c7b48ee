"""Turns on the service's own surface: started, streamed, followed, cancelled, repeated."""

from __future__ import annotations

import json
import threading
from typing import Any

import anyio.to_thread

from longtalk.errors import Overloaded
from longtalk.service.settings import ModelSettings, Settings
from longtalk.testing import AsyncScripted, says
from tests.cli.helpers import streamed
from tests.service.conftest import Serve
from tests.service.native.conftest import MakeApi, read_events
from tests.service.openai.test_recovery import wait_until
from tests.support.loopback import Loopback


class Waiting(AsyncScripted):
    """A provider that sends a part of its first answer, and the rest when it is told to."""

    def __init__(self) -> None:
        super().__init__(says("One two three.", pieces=3), says("Later."))
        self.go = threading.Event()

    async def stream(self, body: bytes) -> Any:
        async for data in super().stream(body):
            yield data
            if b"One" in data:
                await anyio.to_thread.run_sync(self.go.wait, abandon_on_cancel=True)


def test_a_turn_is_answered_as_a_whole(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted(says("Hello, Ada."))))
    talk = call.new()
    turn = call("POST", f"{talk}/turns", json={"message": "I'm Ada.", "model": "m", "meta": {"a": 1}})
    assert (turn["status"], turn["text"], turn["branch"]) == ("complete", "Hello, Ada.", "main")
    assert [entry["role"] for entry in turn["entries"]] == ["user", "assistant"]
    assert turn["entries"][0]["meta"] == {"a": 1}
    assert turn["usage"]["input"] == 10
    assert call("GET", f"{talk}/turns/{turn['id']}") == {**turn, "notices": []}


def test_a_turn_is_streamed_as_numbered_events_that_can_be_followed_again(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted(says("Hello, Ada.", pieces=2))))
    talk = call.new()
    events = call.events("POST", f"{talk}/turns", json={"message": "I'm Ada.", "model": "m", "stream": True})
    assert [number for number, _ in events] == list(range(len(events)))
    kinds = [event["type"] for _, event in events]
    assert (kinds[0], kinds[-1]) == ("started", "done")
    assert "".join(event["text"] for _, event in events if event["type"] == "text") == "Hello, Ada."
    turn = events[0][1]["turn"]
    assert events[-1][1]["turn"]["text"] == "Hello, Ada."
    assert call.events("GET", f"{talk}/turns/{turn}/events?after=1") == events[2:]
    assert call.events("GET", f"{talk}/turns/{turn}/events", headers={"Last-Event-ID": "0"}) == events[1:]


def test_the_events_of_a_deleted_conversation_are_deleted_too(serve: Serve, api: MakeApi) -> None:
    served = serve(m=AsyncScripted(says("Hello.")))
    call = api(served)
    talk = call.new()
    call.events("POST", f"{talk}/turns", json={"message": "I'm Ada.", "model": "m", "stream": True})
    logs = served.service.storage._logs
    before = len(logs)
    call("DELETE", talk)
    assert len(logs) == before - 1


def test_a_stream_whose_events_are_gone_ends_with_the_whole_turn(serve: Serve, api: MakeApi) -> None:
    served = serve(m=AsyncScripted(says("Hello.")))
    call = api(served)
    talk = call.new()
    turn = call("POST", f"{talk}/turns", json={"message": "Hi.", "model": "m"})
    storage = served.service.storage
    for found in storage.list_documents("run_log"):
        storage.delete("run_log", found.key)
    ((number, event),) = call.events("GET", f"{talk}/turns/{turn['id']}/events?after=4")
    assert (number, event["turn"]) == (5, {**turn, "notices": []})


def test_a_lost_connection_does_not_end_a_turn_and_a_busy_branch_is_refused(serve: Serve, api: MakeApi) -> None:
    provider = Waiting()
    call = api(serve(m=provider))
    talk = call.new()
    with call.http.stream("POST", f"{talk}/turns", json={"message": "Count.", "model": "m", "stream": True}) as answer:
        events = read_events(answer.iter_lines())
        _, started = next(events)
        kinds = [next(events)[1]["type"]]
        while kinds[-1] != "text":
            kinds.append(next(events)[1]["type"])
    busy = call("POST", f"{talk}/turns", 409, json={"message": "Now.", "model": "m"})
    assert busy["error"]["code"] == "conversation_locked"
    assert call("GET", f"{talk}/turns/{started['turn']}")["status"] == "running"
    provider.go.set()
    rest = call.events("GET", f"{talk}/turns/{started['turn']}/events?after={len(kinds)}")
    assert rest[0][0] == len(kinds) + 1
    assert rest[-1][1]["turn"]["text"] == "One two three."


def test_a_cancelled_turn_keeps_what_was_said(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=Waiting()))
    talk = call.new()
    with call.http.stream("POST", f"{talk}/turns", json={"message": "Count.", "model": "m", "stream": True}) as answer:
        events = read_events(answer.iter_lines())
        _, started = next(events)
        while next(events)[1]["type"] != "text":
            pass
        ended = call("POST", f"{talk}/turns/{started['turn']}/cancel")
        last = list(events)[-1][1]
    assert ended["status"] == "interrupted"
    assert "One" in ended["text"]
    assert last["turn"]["entries"] == ended["entries"]
    assert call("POST", f"{talk}/turns/{started['turn']}/cancel") == ended
    assert call("POST", f"{talk}/turns", json={"message": "Go on.", "model": "m"})["text"] == "Later."


def test_a_cancelled_answer_counts_by_estimate(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=Waiting()))
    talk = call.new()
    with call.http.stream("POST", f"{talk}/turns", json={"message": "Count.", "model": "m", "stream": True}) as answer:
        events = read_events(answer.iter_lines())
        _, started = next(events)
        while next(events)[1]["type"] != "text":
            pass
        call("POST", f"{talk}/turns/{started['turn']}/cancel")
    (metrics,) = call("GET", f"{talk}/metrics")["metrics"]
    assert (metrics["estimated"], metrics["usage"]["input"]) == (True, metrics["total"])
    assert metrics["usage"]["output"] > 0
    (day,) = call("GET", f"{talk}/stats/daily")["days"]
    (replay,) = call("GET", f"{talk}/replay")["turns"]
    stats = call("GET", f"{talk}/stats")
    assert day["usage"] == stats["usage"] == metrics["usage"]
    assert (day["estimated"], stats["estimated"], replay["usage"]["input"]) == (1, 1, metrics["total"])


def test_the_same_key_makes_one_turn_and_another_body_is_refused(serve: Serve, api: MakeApi) -> None:
    provider = AsyncScripted(says("Once."))
    call = api(serve(m=provider))
    talk = call.new()
    more: Any = {"json": {"message": "Hi.", "model": "m"}, "headers": {"Idempotency-Key": "k1"}}
    first = call("POST", f"{talk}/turns", **more)
    assert call("POST", f"{talk}/turns", **more)["entries"] == first["entries"]
    assert call("POST", f"{talk}/turns", 422, **{**more, "json": {"message": "Other.", "model": "m"}})
    assert len(provider.requests) == 1


def test_a_repeated_request_follows_the_turn_that_runs(serve: Serve, api: MakeApi) -> None:
    provider = Waiting()
    call = api(serve(m=provider))
    talk = call.new()
    more: Any = {"json": {"message": "Count.", "model": "m", "stream": True}, "headers": {"Idempotency-Key": "k"}}
    with call.http.stream("POST", f"{talk}/turns", **more) as answer:
        events = read_events(answer.iter_lines())
        first = [next(events), next(events)]
    with call.http.stream("POST", f"{talk}/turns", **more) as answer:
        again = read_events(answer.iter_lines())
        assert [next(again), next(again)] == first
        provider.go.set()
        assert list(again)[-1][1]["turn"]["text"] == "One two three."


def test_messages_are_edited_and_answers_regenerated_on_new_branches(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted(says("One."), says("Two."), says("Three."), says("Four."))))
    talk = call.new()
    first = call("POST", f"{talk}/turns", json={"message": "1", "model": "m"})
    edited = call("POST", f"{talk}/turns", json={"message": "1b", "edits": first["entries"][0]["id"]})
    again = call("POST", f"{talk}/turns", json={"regenerates": first["id"]})
    after = call("POST", f"{talk}/turns", json={"message": "2", "after": first["id"]})
    assert after["branch"] == "main"
    texts = {
        name: [each["text"] for each in call("GET", f"{talk}/history?branch={name}")["entries"]]
        for name in ("main", edited["branch"], again["branch"])
    }
    assert texts == {
        "main": ["1", "One.", "2", "Four."],
        edited["branch"]: ["1b", "Two."],
        again["branch"]: ["1", "Three."],
    }
    found = {each["name"]: (each["source"], each["shared"]) for each in call("GET", f"{talk}/branches")["branches"]}
    assert found == {"main": (None, 0), edited["branch"]: ("main", 0), again["branch"]: ("main", 1)}


def test_the_client_runs_its_tools_and_brings_the_results(serve: Serve, api: MakeApi) -> None:
    provider = AsyncScripted(says(calls=[("c1", "look", {"where": "here"})]), says("Found."))
    call = api(serve(m=provider))
    talk = call.new()
    tools = [{"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}]
    asked = call("POST", f"{talk}/turns", json={"message": "Look.", "model": "m", "tools": tools})
    assert asked["finish_reason"] == "tool_calls"
    assert asked["calls"] == [{"id": "c1", "name": "look", "arguments": '{"where":"here"}'}]
    outputs = [{"call_id": "c1", "text": "A cat."}]
    assert call("POST", f"{talk}/turns", json={"outputs": outputs, "tools": tools})["text"] == "Found."
    assert b"A cat." in provider.requests[-1]


def test_a_turn_goes_on_with_the_model_and_policy_of_the_last_one(serve: Serve, api: MakeApi) -> None:
    served = serve(m=AsyncScripted(says("One."), says("Two.")), settings=Settings(default_model="no:model"))
    call = api(served)
    talk = call.new()
    call("POST", f"{talk}/turns", json={"message": "1", "model": "m", "policy": "KeepLast(3)"})
    call("POST", f"{talk}/turns", json={"message": "2"})
    assert "KeepLast" in call("GET", f"{talk}/settings")["policy"]


def test_the_system_text_of_another_name_for_the_same_model_is_not_taken_over(
    serve: Serve, api: MakeApi, loopback: Loopback
) -> None:
    loopback.say(streamed("One."), streamed("Two."))
    tutor = ModelSettings("compatible:m", base_url=loopback.url, system="You teach.")
    models = {"tutor": tutor, "plain": ModelSettings("compatible:m", base_url=loopback.url)}
    call = api(serve(settings=Settings(models=models)))
    path = call.new()
    call("POST", f"{path}/turns", json={"message": "Hi.", "model": "plain"})
    call("POST", f"{path}/turns", json={"message": "And?"})
    assert [each["role"] for each in json.loads(loopback.requests[-1])["messages"]] == ["user", "assistant", "user"]


def test_a_failed_turn_says_why(serve: Serve, api: MakeApi) -> None:
    class Fails(AsyncScripted):
        async def stream(self, body: bytes) -> Any:
            raise Overloaded("Too busy.")
            yield b""

    call = api(serve(m=Fails()))
    talk = call.new()
    body = {"message": "Hi.", "model": "m"}
    assert call("POST", f"{talk}/turns", 503, json=body)["error"]["code"] == "provider_overloaded"
    events = call.events("POST", f"{talk}/turns", json={**body, "stream": True})
    assert [event["type"] for _, event in events] == ["started", "error"]
    assert (events[-1][1]["status"], events[-1][1]["turn"]["status"]) == (503, "failed")


def test_wrong_places_and_options_are_refused(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted()))
    talk = call.new()
    for body in (
        {"message": "Hi.", "model": "m", "after": "a", "edits": "b"},
        {"message": "Hi.", "model": "m", "regenerates": "b"},
        {"model": "m", "edits": "b"},
        {"message": "Hi.", "model": "m", "policy": "Nonsense()"},
        {"message": "Hi.", "model": "m", "options": {"model": "other"}},
        {"model": "m"},
    ):
        assert call("POST", f"{talk}/turns", 400, json=body)["error"]["message"], body
    assert call("POST", f"{talk}/turns", 404, json={"message": "Hi.", "model": "m", "branch": "no"})


def test_a_message_with_a_file_of_the_server_is_refused(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncScripted()))
    part = {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}
    error = call("POST", f"{call.new()}/turns", 400, json={"message": [part], "model": "m"})["error"]
    assert error["param"] == "message[0].image_url.url"


def test_a_cancelled_turn_whose_process_has_died_keeps_what_was_said(serve: Serve, api: MakeApi) -> None:
    provider = Waiting()
    served = serve(m=provider)
    call = api(served)
    talk = call.new()
    with call.http.stream("POST", f"{talk}/turns", json={"message": "Count.", "model": "m", "stream": True}) as answer:
        events = read_events(answer.iter_lines())
        turn = next(events)[1]["turn"]
        said = next(event["text"] for _, event in events if event["type"] == "text")
    [run] = served.service.runs.active
    wait_until(lambda: run.stored == len(run.events))
    # What a process leaves that is killed: an event log without an end, a turn without a holder.
    run.is_parked = True
    served.service.runs._watcher._loop.call_soon_threadsafe(run.hand_over)
    wait_until(lambda: run.ended)
    provider.go.set()
    ended = call("POST", f"{talk}/turns/{turn}/cancel")
    assert (ended["status"], ended["text"]) == ("interrupted", said)
    assert call("POST", f"{talk}/turns/{turn}/cancel") == ended
    call("POST", f"{talk}/turns", json={"message": "On.", "model": "m"})
    assert said.encode() in provider.requests[-1]
