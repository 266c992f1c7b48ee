"""Faults under a running service: nothing that was acknowledged is lost, and each request makes one turn."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from longtalk.service.idempotency import Idempotency
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.stores.postgres.store import Postgres
from longtalk.stores.redis.store import Redis
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve, Served
from tests.service.fleet import TEXT, Fleet, Provider, make_service, run_fleet
from tests.support.postgres_server import Server
from tests.support.redis_server import Cluster, wait_until
from tests.support.redis_server import Server as RedisServer

BODY = {"model": "m", "input": "Count.", "stream": True}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with closing(Provider()) as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Start a server of PostgreSQL that other tests do not use."""
    own = Server()
    own.wait()
    with own.asking() as connection:
        connection.execute("CREATE ROLE app LOGIN")
    yield own
    own.stop()


def open_client(url: str) -> openai.OpenAI:
    # Every request gets a connection of its own, and so another process.
    http = openai.DefaultHttpxClient(limits=httpx2.Limits(max_keepalive_connections=0))
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=10, http_client=http)


def read_events(answer: httpx2.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line[6:])


def read_until_delta(stream: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    events = []
    for event in stream:
        events.append(event)
        if event["type"].endswith("output_text.delta"):
            break
    return events


def get_numbers(events: list[dict[str, Any]]) -> list[int]:
    return [event["sequence_number"] for event in events]


def count_turns(client: openai.OpenAI, response: str) -> int:
    """Return how many messages and answers the request of a response has."""
    return len(client.responses.input_items.list(response).data)


@pytest.mark.slow
def test_killing_one_of_three_processes_changes_nothing_for_clients_that_retry(server: Server) -> None:
    with run_fleet(server.url(database=server.database())) as (fleet, provider), open_client(fleet.url) as client:
        header = {"Idempotency-Key": "k"}
        with httpx2.stream("POST", f"{fleet.url}/v1/responses", json=BODY, headers=header, timeout=60) as answer:
            stream = read_events(answer)
            first = read_until_delta(stream)
            fleet.kill(fleet.balancer.chosen[-1])
            with suppress(httpx2.HTTPError):
                assert not [event for event in stream if event["type"] == "response.completed"]
        provider.go.set()
        made = first[0]["response"]["id"]
        events: list[Any] = list(client.responses.create(**BODY, extra_headers=header))  # type: ignore[call-overload]
        assert (events[-1].response.id, events[-1].response.output_text) == (made, TEXT)
        # The other two processes know it at once, and go on with it.
        for _ in range(2):
            assert client.responses.retrieve(made).output_text == TEXT
            assert count_turns(client, made) == 1
            told = client.responses.create(model="m", input="On.", previous_response_id=made)
            assert told.output_text == TEXT
            made = told.id


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the address of an empty store that several processes can use."""
    if request.param == "sqlite":
        yield str(tmp_path / "talks.db")
    elif request.param == "postgres":
        server = request.getfixturevalue("server")
        yield server.url(database=server.database())
    else:
        with closing(RedisServer()) as redis:
            yield redis.url


def begin_and_kill(fleet: Fleet, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Begin a stream, and kill its process after the first piece of text. Return the events so far."""
    with httpx2.stream(
        "POST", f"{fleet.url}/v1/responses", json=body, headers={"Idempotency-Key": "k"}, timeout=60
    ) as answer:
        stream = read_events(answer)
        events = read_until_delta(stream)
        port, made = fleet.balancer.chosen[-1], events[0]["response"]["id"]
        # Another process sees the text as well: it is stored.
        with httpx2.stream("GET", f"{fleet.url}/v1/responses/{made}?stream=true", timeout=60) as other:
            assert read_until_delta(read_events(other)) == events
        fleet.kill(port)
        with suppress(httpx2.HTTPError):
            events += stream
    return events


@pytest.mark.slow
def test_a_background_response_is_finished_by_another_process(address: str) -> None:
    with run_fleet(address) as (fleet, provider), open_client(fleet.url) as client:
        talk = client.conversations.create()
        events = begin_and_kill(fleet, {**BODY, "background": True, "conversation": talk.id})
        provider.go.set()
        made = events[0]["response"]["id"]
        assert [event["response"]["status"] for event in events[:3]] == ["queued", "queued", "in_progress"]
        last = events[-1]["sequence_number"]
        url = f"{fleet.url}/v1/responses/{made}?stream=true"
        with httpx2.stream("GET", f"{url}&starting_after={last}", timeout=60) as answer:
            events += read_events(answer)
        assert get_numbers(events) == list(range(len(events)))
        assert [item["content"][0]["text"] for item in events[-1]["response"]["output"]] == [TEXT]
        for _ in range(2):
            with httpx2.stream("GET", url, timeout=60) as answer:
                assert list(read_events(answer)) == events
            found = client.responses.retrieve(made)
            assert (found.status, found.output_text) == ("completed", TEXT)
        assert [item.id for item in found.output] == [item["id"] for item in events[-1]["response"]["output"]]
        assert len(client.conversations.items.list(talk.id).data) == 2


@pytest.mark.slow
def test_a_client_that_polls_sees_a_background_response_completed_after_its_process_has_died(address: str) -> None:
    with run_fleet(address, 2) as (fleet, provider), open_client(fleet.url) as client:
        made = client.responses.create(model="m", input="Count.", background=True)
        assert made.status == "queued"
        assert provider.began.acquire(timeout=60)
        fleet.kill(fleet.balancer.chosen[-1])
        provider.go.set()
        seen = []
        while not seen or seen[-1].status in ("queued", "in_progress"):
            seen.append(client.responses.retrieve(made.id))
        assert (seen[-1].status, seen[-1].output_text) == ("completed", TEXT)
        assert count_turns(client, made.id) == 1


@pytest.mark.slow
def test_followers_of_a_foreground_response_learn_that_its_process_has_died(address: str) -> None:
    with run_fleet(address) as (fleet, provider), open_client(fleet.url) as client:
        events = begin_and_kill(fleet, BODY)
        provider.go.set()
        made, last = events[0]["response"]["id"], events[-1]["sequence_number"]
        for _ in range(2):
            rest: list[Any] = list(client.responses.retrieve(made, stream=True, starting_after=last))
            assert [event.sequence_number for event in rest] == list(range(last + 1, last + 1 + len(rest)))
            ended = rest[-1].response
            assert (rest[-1].type, ended.status, ended.error.code) == ("response.failed", "failed", "interrupted")
            found = client.responses.retrieve(made)
            assert found.error is not None
            assert (found.status, found.error.code, found.output_text) == ("failed", "interrupted", events[-1]["delta"])
        again: list[Any] = list(client.responses.create(**BODY, extra_headers={"Idempotency-Key": "k"}))  # type: ignore[call-overload]
        assert (again[-1].response.id, again[-1].response.output_text) == (made, TEXT)
        assert client.responses.retrieve(made).status == "completed"
        assert count_turns(client, made) == 1


@pytest.mark.slow
@pytest.mark.parametrize("background", [False, True])
def test_cancelling_a_response_whose_process_has_died_ends_it(address: str, background: bool) -> None:
    with run_fleet(address, 2) as (fleet, provider), open_client(fleet.url) as client:
        made = begin_and_kill(fleet, {**BODY, "background": background})[0]["response"]["id"]
        assert client.responses.cancel(made).status == "cancelled"
        assert client.responses.cancel(made).status == client.responses.retrieve(made).status == "cancelled"
        provider.go.set()
        told = client.responses.create(model="m", input="On.", previous_response_id=made)
        assert told.output_text == TEXT


@pytest.mark.slow
def test_after_a_kill_a_client_repeats_its_request_without_a_key_and_a_turn_of_our_own_surface_is_cancelled(
    tmp_path: Path,
) -> None:
    with run_fleet(str(tmp_path / "talks.db"), 2) as (fleet, provider), open_client(fleet.url) as client:
        url, other = fleet.urls
        port = int(url.rpartition(":")[2])
        made: list[Any] = []
        # openai-python repeats a request whose connection was lost, and says so in a header.
        asked = threading.Thread(target=lambda: made.append(client.responses.create(model="m", input="Count.")))
        asked.start()
        assert provider.began.acquire(timeout=60)
        if fleet.balancer.chosen[-1] != port:
            port, url, other = fleet.balancer.chosen[-1], other, url
        path = (
            f"/longtalk/v1/conversations/{httpx2.post(f'{url}/longtalk/v1/conversations', json={}).json()['id']}/turns"
        )
        body = {"model": "m", "message": "Count.", "stream": True}
        with httpx2.stream("POST", f"{url}{path}", json=body, timeout=60) as answer:
            lines = answer.iter_lines()
            turn = json.loads(next(line for line in lines if line.startswith("data:"))[5:])["turn"]
            next(line for line in lines if "One" in line)
            fleet.kill(port)
        cancelled = httpx2.post(f"{other}{path}/{turn}/cancel", timeout=60).json()
        assert (cancelled["id"], cancelled["status"]) == (turn, "interrupted")
        assert httpx2.post(f"{other}{path}/{turn}/cancel", timeout=60).json() == cancelled
        with httpx2.stream("GET", f"{other}{path}/{turn}/events", timeout=60) as answer:
            last = [line for line in answer.iter_lines() if line.startswith("data:")][-1]
        assert json.loads(last[5:])["turn"]["status"] == "interrupted"
        provider.go.set()
        told = httpx2.post(f"{other}{path}", json={"model": "m", "message": "On."}, timeout=60).json()
        assert told["status"] == "complete"
        asked.join(60)
        assert made[0].output_text == TEXT
        assert count_turns(client, made[0].id) == 1
        # One request before the kill, one after it; the other two are those of our own surface.
        assert len(provider.requests) == 4


@pytest.mark.slow
def test_equal_requests_raced_fifty_fold_at_three_processes_make_one_turn(server: Server) -> None:
    with run_fleet(server.url(database=server.database())) as (fleet, provider), open_client(fleet.url) as client:
        texts = race(client, provider, 50, {"Idempotency-Key": "k"})
        assert len(texts) == 50
        assert len({made for made, _ in texts}) == 1
        assert {text for _, text in texts} == {TEXT}
        assert len(provider.requests) == 1
        assert count_turns(client, texts[0][0]) == 1


def race(client: openai.OpenAI, provider: Provider, count: int, headers: dict[str, str]) -> list[tuple[str, str]]:
    """Make equal requests at the same time, and return the ids and texts of their responses."""
    made: list[tuple[str, str]] = []

    def ask() -> None:
        response = client.responses.create(model="m", input="Count.", extra_headers=headers)
        made.append((response.id, response.output_text))

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    assert provider.began.acquire(timeout=60)
    provider.go.set()
    for thread in threads:
        thread.join(120)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("loses_process", [False, True])
def test_fifty_equal_requests_that_openai_python_repeats_without_a_key_make_one_turn_each(
    server: Server, loses_process: bool
) -> None:
    with run_fleet(server.url(database=server.database())) as (fleet, provider), open_client(fleet.url) as client:
        made: list[Any] = []
        threads = [
            threading.Thread(target=lambda: made.append(client.responses.create(model="m", input="Count.")))
            for _ in range(50)
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert provider.began.acquire(timeout=60)
        port = fleet.balancer.chosen[0]
        lost = fleet.balancer.chosen.count(port) if loses_process else 0
        if loses_process:
            fleet.kill(port)
        fleet.balancer.cut()
        provider.go.set()
        for thread in threads:
            thread.join(120)
        assert len({each.id for each in made}) == len(made) == 50
        assert {each.output_text for each in made} == {TEXT}
        assert {count_turns(client, each.id) for each in made} == {1}
        # What the process had begun is asked for a second time, and nothing else.
        assert len(provider.requests) == 50 + lost
        assert httpx2.get(f"{fleet.url}/readyz").json() == {"status": "ok"}


def test_requests_that_are_repeated_without_a_key_each_find_their_own_response() -> None:
    idempotency = Idempotency(InMemoryStorage())

    def claim(response: str, tries: int) -> Any:
        return idempotency._claim_recent("ada", "digest", response, tries)

    first = [claim(f"resp_{number}", 0) for number in range(50)]
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(claim("resp_new", 1))) for _ in range(51)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.response for each in found) == sorted([*(each.response for each in first), "resp_new"])
    assert sum(each.is_new for each in found) == 1
    # A client that repeats its request a second time is one of them again.
    assert not claim("resp_other", 2).is_new


@pytest.mark.slow
def test_a_stream_survives_a_restart_of_postgresql(server: Server, provider: Provider) -> None:
    with closing(Postgres(server.url(database=server.database()))) as store:
        check_fault(store, provider, server.restart)


@pytest.mark.slow
def test_a_stream_survives_the_loss_of_a_master_of_a_cluster(provider: Provider) -> None:
    with closing(Cluster(timeout=1_000)) as cluster, closing(Redis(cluster.url, replicas=1)) as store:
        killed = cluster.servers[0]

        def fail_over() -> None:
            killed.kill()
            wait_until(lambda: len(cluster.masters()) == 3, "no replica takes over")
            # Without this server, the new master has no replica, and no write can be acknowledged.
            killed.start()
            cluster.wait()

        check_fault(store, provider, fail_over)


def check_fault(store: Any, provider: Provider, fault: Any) -> None:
    """Check that a stream during which something fails is complete, and the same when it is read again."""
    served = Served(make_service(store, provider.url))
    try:
        with httpx2.stream("POST", f"{served.url}/v1/responses", json=BODY, timeout=120) as answer:
            stream = read_events(answer)
            events = read_until_delta(stream)
            fault()
            provider.go.set()
            events += stream
        assert get_numbers(events) == list(range(len(events)))
        assert events[-1]["response"]["output"][0]["content"][0]["text"] == TEXT
        made = events[0]["response"]["id"]
        url = f"{served.url}/v1/responses/{made}?stream=true"
        with httpx2.stream("GET", url, timeout=120) as answer:
            assert list(read_events(answer)) == events
        client = served.client(max_retries=10)
        assert count_turns(client, made) == 1
        told = client.responses.create(model="m", input="On.", previous_response_id=made)
        assert told.output_text == TEXT
        assert len(provider.requests) == 2
    finally:
        served.stop()


def test_after_a_full_disk_the_same_request_makes_one_turn_without_a_restart(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SQLite(tmp_path / "talks.db")
    model = AsyncScripted(says("Hello."), says("Large."), says("Large."), says("After."))
    served = serve(store=store, m=model)
    client = served.client()
    talk = client.conversations.create()
    client.responses.create(model="m", input="Hi.", conversation=talk.id)
    used = store._file.write(lambda db: db.execute("PRAGMA page_count").get)
    large: Any = {"model": "m", "input": "x" * 500_000, "conversation": talk.id}
    store._file.write(lambda db: db.execute(f"PRAGMA max_page_count = {used + 2}").get)
    for _ in range(2):
        with pytest.raises(openai.InternalServerError) as caught:
            client.responses.create(**large, extra_headers={"Idempotency-Key": "k"})
        assert caught.value.code == "store_unavailable"
        # Where the store is, is for the operator alone.
        assert "talks.db" not in str(caught.value)
        assert "talks.db can't grow: the disk is full" in caplog.text
    assert client.conversations.retrieve(talk.id).id == talk.id
    store._file.write(lambda db: db.execute("PRAGMA max_page_count = 1000000").get)
    made = client.responses.create(**large, extra_headers={"Idempotency-Key": "k"})
    assert client.responses.create(**large, extra_headers={"Idempotency-Key": "k"}).id == made.id
    said = [item.type for item in client.conversations.items.list(talk.id)]
    assert len(said) == 4
    assert httpx2.get(f"{served.url}/readyz").json() == {"status": "ok"}
