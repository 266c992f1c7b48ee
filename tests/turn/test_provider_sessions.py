"""Conversations that the provider keeps itself, with a server that checks every rule. The sync twin is generated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from longtalk import AsyncArchive, AsyncChat, AsyncConversation, Reply
from longtalk.errors import InputError, Overloaded, StreamCut, TooManyRounds, TurnFailed
from longtalk.policies import KeepAll, KeepLast, Memory, Summarize
from longtalk.providers.http.responses import AsyncResponses
from longtalk.state.codec import decode, encode
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, says
from longtalk.transcript.transcript import Entry, Transcript
from longtalk.turn.provider_sessions import ProviderSession, drop, find, keep
from longtalk.wires import NAMES, WIRES
from longtalk.wires.protocol import Handle
from tests.support.strict_anthropic import KEY as CLAUDE_KEY
from tests.support.strict_anthropic import StrictAnthropic
from tests.support.strict_responses import KEY, OTHER_KEY, SUMMARY_TEXT, StrictResponses

pytestmark = pytest.mark.anyio

WAYS = ("previous_response_id", "conversation")
BY_ID = {"options": {"previous_response_id": "auto"}}
WITHIN = {"options": {"conversation": "auto"}}


@pytest.fixture
def server() -> Iterator[StrictResponses]:
    with StrictResponses() as strict:
        yield strict


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"options": {request.param: "auto"}}


def chat(server: StrictResponses, **settings: Any) -> AsyncChat:
    settings = {"tools": [lookup, fetch], "api_key": KEY, **settings}
    return AsyncChat(settings.pop("model", "openai:gpt-strict"), base_url=server.url, **settings)


def talk(server: StrictResponses, store: SQLite, **settings: Any) -> AsyncConversation:
    settings = {"tools": [lookup, fetch], "api_key": KEY, "store": store, **settings}
    return AsyncConversation("c", model="openai:gpt-strict", base_url=server.url, **settings)


def lookup(q: str = "") -> str:
    """Look something up."""
    return f"about {q}"


def fetch(q: str = "") -> str:
    """Fetch something."""
    return f"fetched {q}"


def said(items: list[dict[str, Any]], role: str = "user") -> list[str]:
    """Return the texts of these items."""
    contents = [item["content"] for item in items if item.get("role") == role]
    return [each if isinstance(each, str) else "".join(part["text"] for part in each) for each in contents]


def meant(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items without what is only a name. Tools that run together end in any order."""
    names: dict[str, str] = {}
    plain = []
    for item in items:
        left = {key: value for key, value in item.items() if key not in ("id", "status", "encrypted_content")}
        if "call_id" in left:
            left["call_id"] = names.setdefault(left["call_id"], f"call {len(names)}")
        plain.append(left)
    results = iter(sorted((item for item in plain if "output" in item), key=lambda item: str(item["call_id"])))
    return [next(results) if "output" in item else item for item in plain]


def rebuilt(reply: Reply) -> bool:
    return "rebuilt" in [notice.kind for notice in reply.notices]


def verdicts(reply: Reply) -> list[str]:
    """What became of each entry: the manifest speaks of all of them, once."""
    assert reply.context is not None
    runs = reply.context.manifest
    assert [run.first for run in runs] == [0, *(run.last + 1 for run in runs[:-1])]
    return [run.verdict for run in runs for _ in range(run.first, run.last + 1)]


def well(server: StrictResponses) -> bool:
    return (server.violations, server.refusals) == ([], [])


async def told(c: AsyncChat, message: str, state: bytes | None = None, **how: Any) -> Reply:
    """A turn, as a stream."""
    return [event async for event in c.stream(message, state=state, **how)][-1].reply  # type: ignore[union-attr]


# What is sent, and what is seen


@pytest.mark.parametrize("stream", [False, True])
async def test_the_second_turn_sends_only_what_is_new(
    server: StrictResponses, way: dict[str, Any], stream: bool
) -> None:
    async with chat(server, **way) as c:
        if stream:
            first = await told(c, "I am Ada.")
            second = await told(c, "Who am I?", first.state)
        else:
            first = await c.send("I am Ada.")
            second = await c.send("Who am I?", state=first.state)
    assert well(server)
    assert said(server.body()["input"]) == ["Who am I?"]
    assert len(server.body()["input"]) == 1
    assert said(server.seen()) == ["I am Ada.", "Who am I?"]
    assert verdicts(second) == ["held", "held", "sent"]
    assert not rebuilt(second)
    assert server.body()["store"] is True


@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_model_sees_is_what_it_would_be_sent(way: dict[str, Any], stream: bool) -> None:
    saw = []
    for how in (way, {}):
        with StrictResponses() as server:
            async with chat(server, **how) as c:
                state: bytes | None = None
                for words in ("#think #tools a", "#odd #search b", "#refuse c", "#think #tool d", "e"):
                    reply = await told(c, words, state) if stream else await c.send(words, state=state)
                    state = await c.note("The sun shines.", state=reply.state)
                await c.send("f", state=state)
            assert well(server)
            saw.append([item for item in meant(server.seen()) if "The sun shines." not in str(item)])
    assert saw[0] == saw[1]


async def test_a_round_of_tools_sends_only_the_results(server: StrictResponses, way: dict[str, Any]) -> None:
    async with chat(server, **way) as c:
        first = await c.send("#think #tools x")
        second = await c.send("y", state=first.state)
    assert well(server)
    assert server.kinds(1) == ["function_call_output", "function_call_output"]
    assert server.kinds(2) == ["user"]
    assert verdicts(second) == ["held"] * 5 + ["sent"]


async def test_the_result_of_a_custom_tool_has_its_own_kind_also_without_the_call(
    server: StrictResponses, way: dict[str, Any]
) -> None:
    options = {**way["options"], "tools": [{"type": "custom", "name": "lookup"}]}
    async with chat(server, options=options, tools=[]) as c:
        reply = await c.send("#custom x")
    assert well(server)
    assert server.kinds() == ["custom_tool_call_output"]
    assert not rebuilt(reply)


async def test_events_in_between_are_sent(server: StrictResponses, way: dict[str, Any]) -> None:
    async with chat(server, **way) as c:
        first = await c.send("x")
        state = await c.note("Ada has tuned her violin", state=first.state)
        await c.send("y", state=state)
        assert server.kinds() == ["developer", "user"]
    assert well(server)
    assert "tuned her violin" in said(server.seen(), "developer")[0]


async def test_system_text_and_instruction_are_for_one_turn(server: StrictResponses, way: dict[str, Any]) -> None:
    async with chat(server, **way) as c:
        first = await c.send("#tool x", system="S", instruction="It is noon.")
        second = await c.send("y", state=first.state, system="S", instruction="It is late.")
        third = await c.send("z", state=second.state)
    assert well(server)
    given = [server.body(i).get("instructions") for i in range(4)]
    assert given == ["S\n\nIt is noon.", "S\n\nIt is noon.", "S\n\nIt is late.", None]
    assert "It is" not in json.dumps(server.seen())
    assert "preamble_changed" not in [notice.kind for notice in second.notices]
    assert "preamble_changed" in [notice.kind for notice in third.notices]


async def test_a_conversation_can_be_given_to_the_provider_and_taken_back(
    server: StrictResponses, way: dict[str, Any]
) -> None:
    async with chat(server) as here, chat(server, **way) as there:
        first = await here.send("#think #tool a")
        second = await there.send("#think #search b", state=first.state)
        assert rebuilt(second)
        third = await here.send("#think c", state=second.state)
        fourth = await there.send("d", state=third.state)
    # Nothing goes by an id where nothing is stored, but what a tool of the provider did.
    assert well(server)
    assert said(server.seen(-2)) == ["#think #tool a", "#think #search b", "#think c"]
    assert [item["type"] for item in server.seen(-2) if "id" in item] == ["web_search_call"]
    assert server.kinds() == ["user", "reasoning", "message", "user"]
    assert not rebuilt(fourth)
    assert said(server.seen()) == ["#think #tool a", "#think #search b", "#think c", "d"]


async def test_the_way_can_change(server: StrictResponses) -> None:
    async with chat(server, **BY_ID) as by_id, chat(server, **WITHIN) as within:
        first = await by_id.send("a")
        second = await within.send("b", state=first.state)
        third = await by_id.send("c", state=second.state)
        fourth = await within.send("d", state=third.state)
    assert well(server)
    assert [rebuilt(reply) for reply in (second, third, fourth)] == [True, False, False]
    assert said(server.seen(-2)) == ["a", "b", "c"]
    assert said(server.seen(-1)) == ["a", "b", "c", "d"]


# What the provider has is gone


@pytest.mark.parametrize("late", [False, True])
async def test_a_server_that_has_lost_the_conversation_gets_it_again(
    server: StrictResponses, way: dict[str, Any], late: bool
) -> None:
    server.late = late
    async with chat(server, **way) as c:
        first = await c.send("#think #tools x")
        server.forget()
        second = await told(c, "y", first.state)
        third = await c.send("z", state=second.state)
    assert server.violations == []
    # A conversation is looked at before; of a response one learns when it is refused.
    assert len(server.refusals) == (1 if way == BY_ID else 0)
    assert rebuilt(second)
    assert set(verdicts(second)) == {"sent"}
    assert said(server.seen(-2)) == ["#think #tools x", "y"]
    assert not rebuilt(third)
    assert server.kinds() == ["user"]
    assert said(server.seen()) == ["#think #tools x", "y", "z"]


async def test_what_goes_by_its_id_alone_is_left_out_when_that_is_forgotten(
    server: StrictResponses, way: dict[str, Any]
) -> None:
    async with chat(server, **way) as c:
        first = await c.send("#search x")
        server.forget()
        second = await c.send("y", state=first.state)
    assert server.violations == []
    assert "Item with id" in server.refusals[-1]
    assert {notice.kind for notice in second.notices} >= {"rebuilt", "server_refused"}
    assert [item.get("type", "user") for item in server.seen()] == ["user", "message", "user"]


async def test_the_notice_says_why_once(server: StrictResponses) -> None:
    async with chat(server, **BY_ID) as c:
        first = await c.send("x")
        server.forget()
        second = await c.send("y", state=first.state)
    (notice,) = [notice for notice in second.notices if notice.kind == "rebuilt"]
    assert "Previous response with id" in notice.text


async def test_a_response_lost_between_two_rounds_is_sent_again(server: StrictResponses, way: dict[str, Any]) -> None:
    def lookup(q: str = "") -> str:
        """Look something up."""
        server.forget()
        return "nothing"

    async with chat(server, tools=[lookup], **way) as c:
        reply = await c.send("#think #tool x")
    assert server.violations == []
    assert rebuilt(reply)
    assert server.kinds() == ["user", "reasoning", "function_call", "function_call_output"]


async def test_another_account_gets_the_whole_conversation_and_both_continue(
    server: StrictResponses, way: dict[str, Any]
) -> None:
    async with chat(server, **way) as one, chat(server, api_key=OTHER_KEY, **way) as two:
        first = await one.send("#think a")
        second = await two.send("#think b", state=first.state)
        assert rebuilt(second)
        third = await one.send("c", state=second.state)
        assert not rebuilt(third)
        assert said(server.body()["input"]) == ["#think b", "c"]
        fourth = await two.send("d", state=third.state)
    assert well(server)
    assert not rebuilt(fourth)
    assert said(server.seen()) == ["#think a", "#think b", "c", "d"]


async def test_another_model_of_the_account_goes_on(server: StrictResponses, way: dict[str, Any]) -> None:
    async with chat(server, **way) as c:
        first = await c.send("#think a")
    async with chat(server, model="openai:gpt-other", **way) as c:
        second = await c.send("b", state=first.state)
    assert well(server)
    assert not rebuilt(second)
    assert server.kinds() == ["user"]


async def test_a_busy_conversation_is_not_used(server: StrictResponses) -> None:
    async with chat(server, **WITHIN) as c:
        first = await c.send("a")
        server.locked |= set(server.conversations)
        second = await c.send("b", state=first.state)
    assert server.violations == []
    assert rebuilt(second)
    assert said(server.seen()) == ["a", "b"]
    assert len(server.conversations) == 2


async def test_a_failed_check_of_a_conversation_is_repeated(server: StrictResponses) -> None:
    async with chat(server, **WITHIN) as c:
        first = await c.send("a")
        server.down = [503, 429]
        second = await c.send("b", state=first.state)
        assert not rebuilt(second)
        server.down = [500] * 10
        with pytest.raises(Overloaded) as caught:
            await c.send("c", state=second.state)
        server.down = []
        third = await c.send("c", state=caught.value.state)
    assert well(server)
    assert not rebuilt(third)
    assert said(server.seen()) == ["a", "b", "c"]


@pytest.mark.parametrize("said", [b"<html>", b"[]", b'{"data":1}', b'{"data":[1]}', b'{"data":[]}'])
async def test_a_conversation_of_which_nothing_can_be_read_is_gone(said: bytes) -> None:
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, content=said))
    async with httpx2.AsyncClient(transport=transport) as client:
        provider = AsyncChat("openai:m", base_url="http://there/v1", api_key=KEY, client=client).provider
        assert isinstance(provider, AsyncResponses)
        assert not await provider.is_current(Handle("conv_1", "msg_1"))


async def test_a_first_request_that_is_made_again_opens_one_conversation(server: StrictResponses) -> None:
    server.encrypts = False
    async with chat(server, **WITHIN) as c:
        await c.send("a")
    assert len(server.refusals) == 1
    assert server.calls.count("POST /conversations") == 1


async def test_a_window_that_is_full_is_told_less(server: StrictResponses, way: dict[str, Any]) -> None:
    state: bytes | None = None
    async with chat(server, **way) as c:
        for turn in range(4):
            state = (await c.send(f"{turn} " + "word " * 300, state=state)).state
        server.window = 7_000
        reply = await c.send("and now?", state=state)
        after = await c.send("#think on", state=reply.state)
    assert server.violations == []
    assert len(server.refusals) == 1
    assert rebuilt(reply)
    assert not rebuilt(after)
    assert server.kinds() == ["user"]


# Old states and branches


async def test_an_old_state_goes_on_from_its_own_answer(server: StrictResponses) -> None:
    async with chat(server, **BY_ID) as c:
        first = await c.send("a")
        await c.send("b", state=first.state)
        again = await c.send("c", state=first.state)
    assert well(server)
    assert not rebuilt(again)
    assert said(server.seen()) == ["a", "c"]
    assert said(server.body()["input"]) == ["c"]


async def test_an_old_state_of_a_conversation_that_went_on_begins_another(server: StrictResponses) -> None:
    async with chat(server, **WITHIN) as c:
        first = await c.send("a")
        second = await c.send("b", state=first.state)
        again = await c.send("c", state=first.state)
        assert rebuilt(again)
        assert said(server.seen()) == ["a", "c"]
        third = await c.send("d", state=second.state)
        fourth = await c.send("e", state=again.state)
    assert well(server)
    assert not rebuilt(third)
    assert not rebuilt(fourth)
    assert said(server.seen(-2)) == ["a", "b", "d"]
    assert said(server.seen(-1)) == ["a", "c", "e"]


async def test_each_branch_sees_its_own_history(server: StrictResponses, way: dict[str, Any], tmp_path: Path) -> None:
    with closing(SQLite(tmp_path / "talks.db")) as store:
        one = talk(server, store, **way)
        await one.send("a")
        asked = await one.send("b")
        other = await one.fork()
        await one.send("c")
        await other.send("d")
        assert said(server.seen()) == ["a", "b", "d"]
        await one.send("e")
        assert said(server.seen()) == ["a", "b", "c", "e"]
        edited, _ = await one.edit(asked.entries[0].id, "f")
        assert said(server.seen()) == ["a", "f"]
        await edited.send("g")
        assert said(server.seen()) == ["a", "f", "g"]
        assert server.kinds() == ["user"]
        again, _ = await one.regenerate()
        assert said(server.seen()) == ["a", "b", "c", "e"]
        await again.send("h")
        assert said(server.seen()) == ["a", "b", "c", "e", "h"]
        await one.rewind(to=asked.entries[0].id)
        await one.send("i")
        assert said(server.seen())[0] == "a"
        assert not {"c", "d", "e", "f", "g", "h"} & set(said(server.seen()))
        await one.aclose()
    assert well(server)


async def test_a_store_says_what_was_held(server: StrictResponses, way: dict[str, Any], tmp_path: Path) -> None:
    with closing(SQLite(tmp_path / "talks.db")) as store:
        one = talk(server, store, **way)
        await one.send("a")
        await one.aclose()
        one = talk(server, store, **way)
        reply = await one.send("b")
        manifest = await one.manifest(reply.turn_id)
        metrics = (await one.metrics())[-1]
        await one.aclose()
    assert [(run.first, run.last, run.verdict) for run in manifest] == [(0, 1, "held"), (2, 2, "sent")]
    assert metrics.left_out == 0
    assert metrics.history == sum(run.tokens for run in manifest)


async def test_what_was_redacted_is_not_gone_on_from(
    server: StrictResponses, way: dict[str, Any], tmp_path: Path
) -> None:
    with closing(SQLite(tmp_path / "talks.db")) as store:
        one = talk(server, store, **way)
        await one.send("a")
        secret = await one.send("the secret")
        await AsyncArchive(store).redact("c", secret.entries[0].id)
        await AsyncArchive(store).redact("c", secret.entries[1].id)
        reply = await one.send("b")
        await one.aclose()
    assert well(server)
    assert "secret" not in json.dumps(server.seen())
    assert said(server.seen()) == ["a", "[redacted]", "b"]
    # What stood before it is as it was, as long as that can be told apart.
    assert rebuilt(reply) is (way == WITHIN)


# Policies


async def test_a_policy_that_leaves_something_out_sends_the_rest_again(
    server: StrictResponses, way: dict[str, Any]
) -> None:
    state: bytes | None = None
    rebuilds = []
    async with chat(server, policy=KeepLast(4), **way) as c:
        for turn in range(12):
            reply = await c.send(f"#tool {turn}", state=state)
            state = reply.state
            rebuilds.append(rebuilt(reply))
            assert len(said(server.seen())) <= 5
            assert said(server.seen())[-1] == f"#tool {turn}"
            verdicts(reply)
    assert well(server)
    assert 2 <= sum(rebuilds) <= 6


async def test_a_summary_is_asked_for_beside_the_conversation(server: StrictResponses, way: dict[str, Any]) -> None:
    state: bytes | None = None
    async with chat(server, policy=Summarize(3_000, length=200), **way) as c:
        for turn in range(10):
            reply = await c.send(f"#think {turn} " + "word " * 200, state=state)
            state = reply.state
            assert "summary_failed" not in [notice.kind for notice in reply.notices]
    assert well(server)
    asked = [i for i, body in enumerate(server.requests) if b"<summary_request>" in body]
    assert asked
    for i in asked:
        assert server.body(i)["store"] is False
        assert "conversation" not in server.body(i)
        assert "previous_response_id" not in server.body(i)
        # The next request has the summary, and the one behind that goes on from there.
        assert SUMMARY_TEXT in json.dumps(server.body(i + 1)["input"][0])
    last = asked[0] + 2
    assert server.kinds(last) == ["user"]
    assert SUMMARY_TEXT in json.dumps(server.seen(last)[0])


async def test_another_policy_sends_everything_again_if_its_context_differs(server: StrictResponses) -> None:
    state: bytes | None = None
    async with chat(server, policy=KeepLast(2), **BY_ID) as few, chat(server, policy=KeepAll(), **BY_ID) as every:
        for turn in range(4):
            state = (await few.send(str(turn), state=state)).state
        reply = await every.send("x", state=state)
        assert rebuilt(reply)
        assert said(server.seen()) == ["0", "1", "2", "3", "x"]
        reply = await few.send("y", state=reply.state)
    assert well(server)
    assert rebuilt(reply)
    assert len(said(server.seen())) <= 3


async def test_a_small_state_goes_on_too(server: StrictResponses, way: dict[str, Any]) -> None:
    state: bytes | None = None
    async with chat(server, policy=KeepLast(3), carry="context", **way) as c:
        for turn in range(10):
            reply = await c.send(f"#tool {turn}", state=state)
            state = reply.state
            verdicts(reply)
        assert len(decode(state, wires=NAMES)) < 20
        on = [rebuilt(reply)]
        for turn in range(3):
            reply = await c.send(str(turn), state=reply.state)
            on.append(rebuilt(reply))
    assert well(server)
    assert not all(on)


async def test_a_sealed_state_goes_on_too(server: StrictResponses) -> None:
    from longtalk.state.sealing import Seal

    seal = Seal({"one": bytes(range(32))})
    async with chat(server, seal=seal, **BY_ID) as c:
        first = await c.send("a")
        second = await c.send("b", state=first.state)
    assert well(server)
    assert b"resp_" not in first.state
    assert not rebuilt(second)


# Others answer in between


async def test_what_others_have_answered_is_told(server: StrictResponses, way: dict[str, Any]) -> None:
    with StrictAnthropic() as claude:
        address = claude.url.removesuffix("/v1")
        other = AsyncChat("anthropic:claude-strict", base_url=address, api_key=CLAUDE_KEY, tools=[lookup, fetch])
        async with chat(server, **way) as c, other:
            first = await c.send("#think #tools a")
            second = await other.send("#tools b", state=first.state)
            third = await c.send("c", state=second.state)
            fourth = await c.send("d", state=third.state)
        assert claude.violations == []
    assert well(server)
    assert [rebuilt(reply) for reply in (third, fourth)] == [False, False]
    assert server.kinds(-2)[0] == "user"
    assert server.kinds(-1) == ["user"]
    assert said(server.seen()) == ["#think #tools a", "#tools b", "c", "d"]
    kinds = [item.get("type") for item in server.seen()]
    assert kinds.count("function_call") == kinds.count("function_call_output") == 4


async def test_ids_of_calls_that_others_gave_are_not_made_twice(server: StrictResponses) -> None:
    state: bytes | None = None
    async with chat(server, **BY_ID) as c:
        for turn in range(3):
            steps = [says(None, calls=[("functions.lookup:0", "lookup", {"q": "x"})]), says("Well.")]
            async with AsyncChat(AsyncScripted(*steps), tools=[lookup]) as other:
                state = (await other.send(f"other {turn}", state=state)).state
            state = (await c.send(f"own {turn}", state=state)).state
    assert well(server)
    ids = [item["call_id"] for item in server.seen() if item.get("type") == "function_call"]
    assert len(set(ids)) == len(ids) == 3


class Loner:
    """A wire whose provider can't be told what others have answered."""

    name = "loner"
    accepts_foreign_answers = False


async def test_what_others_have_answered_may_be_more_than_can_be_told() -> None:
    from longtalk.context.epochs import Epoch

    talked = Transcript().append_to_turn("t", [entry("user"), entry("assistant"), entry("user")])
    held = keep(talked, "k", ProviderSession(Handle("h"), 1))
    assert find(held, "k", WIRES["openai-responses"], Epoch("")) == ProviderSession(Handle("h"), 1)
    assert find(held, "k", Loner(), Epoch("")) == "it went on elsewhere"  # type: ignore[arg-type]
    own = Loner()
    own.name = talked[1].wire
    assert find(held, "k", own, Epoch("")) == "its last answer was cut off"  # type: ignore[arg-type]


# What goes wrong


@pytest.mark.parametrize("after", [1, 6, 9, 14, 20])
async def test_a_stream_that_is_cut_leaves_a_conversation_that_goes_on(
    server: StrictResponses, way: dict[str, Any], after: int
) -> None:
    async with chat(server, **way) as c:
        state: bytes | None = (await c.send("a")).state
        server.hasty = after
        try:
            state = (await told(c, "#think #tools b", state)).state
        except (StreamCut, TurnFailed) as problem:
            state = problem.state  # type: ignore[union-attr]
        await c.send("c", state=state)
    assert server.violations == []
    # The user's message is in the last state only if something had come for it.
    assert said(server.seen()) in (["a", "#think #tools b", "c"], ["a", "c"])


@pytest.mark.parametrize("after", [0, 1, 3, 6])
async def test_a_stream_that_is_closed_early_leaves_a_conversation_that_goes_on(
    server: StrictResponses, way: dict[str, Any], after: int
) -> None:
    async with chat(server, **way) as c:
        first = await c.send("a")
        async with c.stream("#tools Tell me a story of bows", state=first.state) as events:
            for _ in range(after):
                await events.__anext__()
        second = await c.send("c", state=events.reply.state)
    assert server.violations == []
    assert said(server.seen())[0] == "a"
    assert said(server.seen())[-1] == "c"
    verdicts(second)


async def test_unanswered_calls_are_closed_with_the_provider_too(server: StrictResponses, way: dict[str, Any]) -> None:
    async with chat(server, **way) as c:
        with pytest.raises(TooManyRounds) as caught:
            await c.send("#tools a", max_rounds=0)
        reply = await c.send("b", state=caught.value.state)
    assert well(server)
    assert not rebuilt(reply)
    assert server.kinds() == ["function_call_output", "function_call_output", "user"]


@pytest.mark.parametrize(
    "options",
    [
        {"previous_response_id": "auto", "conversation": "auto"},
        {"previous_response_id": "resp_1"},
        {"conversation": {"id": "conv_1"}},
        {"conversation": True},
    ],
)
async def test_ids_of_ones_own_are_no_option(server: StrictResponses, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="'auto'"):
        chat(server, options=options)
    async with chat(server) as c:
        with pytest.raises(InputError, match="'auto'"):
            await c.send("x", options=options)
    assert server.requests == []


async def test_one_turn_can_go_without(server: StrictResponses, way: dict[str, Any]) -> None:
    async with chat(server, **way) as c:
        first = await c.send("a")
        off = dict.fromkeys(way["options"])
        second = await c.send("b", state=first.state, options=off)
        assert server.body()["store"] is False
        assert said(server.body()["input"]) == ["a", "b"]
        third = await c.send("c", state=second.state)
    assert well(server)
    assert not rebuilt(third)
    assert said(server.body()["input"]) == ["b", "c"]
    assert said(server.seen()) == ["a", "b", "c"]


async def test_a_provider_that_opens_no_conversations_says_so() -> None:
    async with AsyncChat(AsyncScripted(wire=WIRES["openai-responses"]), **WITHIN) as c:
        with pytest.raises(InputError, match="previous_response_id"):
            await c.send("a")


async def test_a_server_that_does_not_say_that_it_keeps_anything_is_sent_all() -> None:
    provider = AsyncScripted(*[says("Yes.", wire="openai-responses")] * 2, wire=WIRES["openai-responses"])
    async with AsyncChat(provider, **BY_ID) as c:
        first = await c.send("a")
        second = await c.send("b", state=first.state)
    body = json.loads(provider.requests[-1])
    assert ("previous_response_id" in body, len(body["input"])) == (False, 3)
    assert rebuilt(second)


GOOD = {"handle": {"id": "resp_1"}, "place": 2}
RECORDS: list[Any] = [
    *(b"", b"null", b"[]", b"{", b'{"k":1}', b"\xff\xfe", b"[" * 5_000),
    *(
        {"handle": "x"},
        {"place": 2},
        {"handle": {"id": 5}, "place": 2},
        {**GOOD, "place": "2"},
        {**GOOD, "place": None},
    ),
    *({**GOOD, "place": place} for place in (-1, 0, 1, 2, 3, 4, 10**9, 10**30, 1.5, "2", None)),
    *({**GOOD, "epoch": epoch} for epoch in (-1, 1, 10**12, "0")),
    *(
        {**GOOD, "handle": {"id": name}}
        for name in ("", "conv_1", "conv_/../x", "x" * 100_000, "\u0000", "resp_000004")
    ),
    {**GOOD, "handle": {"id": "conv_000001", "stamp": 7}},
]


async def test_a_record_that_cannot_be_right_costs_nothing_but_the_telling(
    server: StrictResponses, way: dict[str, Any]
) -> None:
    async with chat(server, **way) as c:
        first = await c.send("#tool a")
        transcript = decode(first.state, wires=NAMES)
        (kept,) = [json.loads(each.data) for each in transcript.records if each.kind == "handle"]
        for record in RECORDS:
            data = record if isinstance(record, bytes) else json.dumps(dict.fromkeys(kept, record)).encode()
            state = encode(transcript.add_record("handle", data, replace=True))
            second = await c.send("b", state=state)
            third = await c.send("c", state=second.state)
            assert said(server.seen())[-2:] == ["b", "c"], record
            assert not rebuilt(third)
            verdicts(second)


# The records themselves


def entry(role: Any) -> Entry:
    return Entry(role=role, wire="openai-chat", native=b"{}", at=0)


def test_only_the_newest_keepers_are_remembered() -> None:
    talked = Transcript().append_to_turn("t", [entry("user")])
    for number in range(40):
        talked = keep(talked, f"k{number}", ProviderSession(Handle(f"h{number}"), 1))
    (record,) = [record for record in talked.records if record.kind == "handle"]
    assert list(json.loads(record.data)) == [f"k{number}" for number in range(24, 40)]
    assert "k39" not in json.loads(drop(talked, "k39").records[-1].data)


async def test_a_provider_that_keeps_the_conversation_is_asked_for_a_card_in_the_instructions(
    server: StrictResponses, way: dict[str, Any]
) -> None:
    policy = Memory(recall=0, recent=0, limit=0)
    async with chat(server, policy=policy, **way) as c:
        first = await c.send("one", system="You teach.")
        await c.send("two", system="You teach.", state=first.state)
    bodies = [json.loads(raw) for raw in server.requests]
    assert all("You teach.\n\nEnd your answer with a note of" in body["instructions"] for body in bodies)
    assert not any("End your answer" in json.dumps(body["input"]) for body in bodies)
    assert well(server)
