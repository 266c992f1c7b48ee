"""A stored conversation remembers how it is held, and shows what its turns have sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Conversation, InputError, LongtalkError
from longtalk._sync.archive.archive import Archive
from longtalk.branches.rebuild import FOR_SUMMARY, NO_CALL, NOT_ENDED, SentRequest
from longtalk.policies import (
    Combine,
    Compactor,
    DropOldest,
    KeepAll,
    KeepLast,
    Memory,
    OverTokens,
    ReplaceOldest,
    Summarize,
    TokenBudget,
)
from longtalk.policies.encoding import decode_policy, encode_policy
from longtalk.stores.base import Commit
from longtalk.stores.in_memory import InMemory
from longtalk.stores.jsonl import JSONL
from longtalk.stores.sqlite import SQLite
from longtalk.testing import Scripted, says
from longtalk.testing.stores.harness import make_message
from longtalk.transcript.transcript import Turn, link_entries
from longtalk.wires import WIRES
from tests.policies.drawn import policies
from tests.support.properties import examples

_NAMES = ("openai-chat", "openai-responses", "anthropic", "gemini")
_PROMPT = b"<summary_request>"


class Model(Scripted):
    """Answers anything, now and then by calling a tool or thinking, and requests for a summary too."""

    def __init__(self, wire: str) -> None:
        super().__init__(wire=WIRES[wire])
        self.calls = 0
        self.summaries = 0
        self.thinks = False

    def _take_step(self, body: bytes) -> Any:
        if _PROMPT in body:
            self.summaries += 1
            return says("They spoke of many words.", wire=self.wire.name)
        self.requests.append(body)
        fields = {"thinking": ["Let me see."]} if self.thinks and self.wire.name in ("anthropic", "gemini") else {}
        if self.calls:
            self.calls -= 1
            called = [(f"call_{len(self.requests)}", "look", {"at": "it"})]
            return says(calls=called, fields=fields, wire=self.wire.name)
        return says("An answer of a few words.", fields=fields, wire=self.wire.name)


def look(at: str) -> str:
    """Look at something."""
    return f"a word about {at}"


_turns = st.lists(
    st.fixed_dictionaries(
        {
            "wire": st.sampled_from(_NAMES),
            "message": st.builds(lambda n: "word " * n, st.sampled_from([1, 5, 60])),
            "system": st.sampled_from([None, "Be kind.", "Be brief, it is <late>."]),
            "instruction": st.sampled_from([None, None, "It is noon."]),
            "calls": st.sampled_from([0, 0, 1, 2]),
            "thinks": st.booleans(),
            "stream": st.booleans(),
            "options": st.sampled_from([None, {"temperature": 0.5}, {"top_p": 1.0, "temperature": 1}]),
            "policy": st.integers(0, 1),
        }
    ),
    min_size=1,
    max_size=6,
)


def play(store: Any, turns: list[dict[str, Any]], chosen: list[Any]) -> list[tuple[str, list[bytes]]]:
    """Play turns on one conversation, and return what the provider got, by turn."""
    got = []
    models = {name: Model(name) for name in _NAMES}
    for turn in turns:
        model = models[turn["wire"]]
        model.calls, model.thinks = turn["calls"], turn["thinks"]
        before = len(model.requests)
        with Conversation("talk", model=model, store=store, policy=chosen[turn["policy"]], tools=[look]) as talk:
            given = {key: turn[key] for key in ("system", "instruction", "options")}
            try:
                if turn["stream"]:
                    with talk.stream(turn["message"], **given) as stream:
                        for _ in stream:
                            pass
                    turn_id = stream.reply.turn_id
                else:
                    turn_id = talk.send(turn["message"], **given).turn_id
            except LongtalkError:
                continue
        got.append((turn_id, model.requests[before:]))
    return got


@examples(20, 300)
@given(_turns, st.lists(policies, min_size=2, max_size=2))
def test_any_past_request_is_rebuilt_byte_for_byte(turns: list[dict[str, Any]], chosen: list[Any]) -> None:
    store = InMemory()
    archive = Archive(store)
    for turn, bodies in play(store, turns, chosen):
        rebuilt = archive.request("talk", turn)
        # Requests for a summary are listed last, without their bytes.
        problems = [request.problem for request in rebuilt]
        assert problems == [""] * len(bodies) + [FOR_SUMMARY] * (len(rebuilt) - len(bodies))
        assert [request.body for request in rebuilt[: len(bodies)]] == bodies


@given(policies)
def test_any_policy_comes_back_from_data(policy: Any) -> None:
    data = encode_policy(policy)
    assert data is not None
    assert repr(decode_policy(msgspec.json.decode(msgspec.json.encode(data)))) == repr(policy)


@pytest.mark.parametrize("kind", ["memory", "jsonl", "sqlite"])
def test_each_store_keeps_how_a_conversation_is_held(kind: str, tmp_path: Path) -> None:
    store: Any = {"memory": InMemory, "jsonl": lambda: JSONL(tmp_path), "sqlite": lambda: SQLite(tmp_path / "x.db")}[
        kind
    ]()
    with Conversation("talk", model=Model("anthropic"), store=store, policy=KeepLast(4), tools=[look]) as talk:
        talk.send("Hello", system="Be kind.", options={"temperature": 0.5})
        settings = talk.settings()
    assert settings is not None
    assert (settings.model, settings.options, settings.system) == ("scripted:model", {"temperature": 0.5}, "Be kind.")
    assert settings.policy == KeepLast(4)
    assert [tool.name for tool in settings.tools] == ["look"]
    assert settings.problems == ()


def test_a_conversation_goes_on_as_it_was_held() -> None:
    store = InMemory()
    with Conversation("talk", model="local", store=store, policy=TokenBudget(900), options={"seed": 1}) as talk:
        talk._engine.provider = Model("openai-chat")
        talk._engine.provider.label = "local"
        talk.send("Hello")
    with Conversation.open("talk", store=store) as again:
        assert again._engine.provider.label == "local"
        assert again._engine.policy == TokenBudget(900)
        assert again._engine._options == {"seed": 1}
    with pytest.raises(InputError, match="model="):
        Conversation.open("other", store=store)


def test_an_address_of_its_own_is_not_guessed() -> None:
    store = InMemory()
    with Conversation("talk", model="ollama:m", base_url="http://user:pass@127.0.0.1:9/v1", store=store) as talk:
        talk._engine.provider = Model("openai-chat")
        talk.send("Hello")
    assert b"pass" not in b"".join(each.record.data for each in store.records("", "talk", "main"))
    with pytest.raises(InputError, match="base_url"):
        Conversation.open("talk", store=store)


def test_what_is_unchanged_is_not_stored_again_and_a_text_only_once() -> None:
    store = InMemory()
    with Conversation("talk", model=Model("openai-chat"), store=store) as talk:
        for system in ("One.", "One.", "Two.", "One.", "Two."):
            talk.send("Hello", system=system)
    stored = [each.record.data for each in store.records("", "talk", "main", "settings")]
    assert len(stored) == 4
    assert b"".join(stored).count(b'"One."') == 1
    assert Archive(store).settings("talk").system == "Two."


def test_without_keep_preamble_only_digest_and_length_stay() -> None:
    store, model = InMemory(), Model("openai-chat")
    with Conversation("talk", model=model, store=store, keep_preamble=False) as talk:
        turn = talk.send("Hello", system="A secret of the app.", instruction="Another secret.").turn_id
        settings, (request,) = talk.settings(), talk.request(turn)
    assert settings is not None
    assert (settings.system, settings.system_length, settings.is_system_missing) == (None, 20, True)
    assert (request.body, "keep_preamble" in request.problem) == (None, True)
    assert b"secret" not in b"".join(each.record.data for each in store.records("", "talk", "main"))


def test_options_that_hold_credentials_are_not_stored() -> None:
    store = InMemory()
    server = {"type": "mcp", "server_label": "x", "authorization": "hush", "headers": {"X-Key": "hush"}}
    with Conversation("talk", model=Model("openai-chat"), store=store) as talk:
        turn = talk.send("Hello", options={"user": "ada", "web": [server], "api_key": "hush"}).turn_id
        settings, (request,) = talk.settings(), talk.request(turn)
    assert settings is not None
    assert settings.options == {"user": "ada", "web": [{"type": "mcp", "server_label": "x"}]}
    assert (request.body, "credentials" in request.problem) == (None, True)
    assert b"hush" not in b"".join(each.record.data for each in store.records("", "talk", "main"))


def test_a_redaction_removes_later_system_texts_and_what_followed_messages() -> None:
    store = InMemory()
    archive = Archive(store)
    with Conversation("talk", model=Model("openai-chat"), store=store, policy=KeepLast(9)) as talk:
        first = talk.send("Hello", system="Be kind.").turn_id
        second = talk.send("hunter2", system="They said hunter2.", instruction="Not hunter2.").turn_id
        archive.redact("talk", f"{second}-0")
    stored = b"".join(each.record.data for each in store.records("", "talk", "main"))
    assert b"hunter2" not in stored
    settings = archive.settings("talk")
    assert settings is not None
    assert (settings.model, settings.policy, settings.is_system_missing) == ("scripted:model", KeepLast(9), True)
    assert archive.request("talk", first)[0].body is not None
    assert archive.request("talk", second)[0].problem


def test_a_policy_with_a_function_of_the_app_is_kept_as_text() -> None:
    def write(earlier: str, entries: Any) -> str:
        return earlier

    policy = Compactor(OverTokens(900), (ReplaceOldest(write=write), DropOldest()), OverTokens(400))
    store = InMemory()
    with Conversation("talk", model=Model("openai-chat"), store=store, policy=Combine(policy, KeepAll())) as talk:
        talk.send("Hello")
        settings = talk.settings()
    assert settings is not None
    assert settings.policy is None
    assert "ReplaceOldest" in settings.policy_text
    with pytest.raises(InputError, match="policy="):
        Conversation.open("talk", store=store)


def test_a_branch_remembers_its_own_settings() -> None:
    store = InMemory()
    with Conversation("talk", model=Model("openai-chat"), store=store) as talk:
        turn = talk.send("Hello", system="One.").turn_id
        other, reply = talk.regenerate(system="Two.")
        assert (talk.settings().system, other.settings().system) == ("One.", "Two.")
        assert talk.request(turn)[0].body == talk._engine.provider.requests[0]
        assert other.request(reply.turn_id)[0].body == talk._engine.provider.requests[1]


def test_settings_and_requests_go_along_with_a_copy_and_an_export(tmp_path: Path) -> None:
    store, copied, loaded = InMemory(), SQLite(tmp_path / "copy.db"), InMemory()
    archive = Archive(store)
    with Conversation("talk", model=Model("anthropic"), store=store, policy=Memory()) as talk:
        turn = talk.send("Hello", system="Be kind.", instruction="It is noon.").turn_id
    archive.copy_to(copied)
    Archive(loaded).load(archive.export("talk", "json").encode())
    assert Archive(copied).settings("talk") == archive.settings("talk") == Archive(loaded).settings("talk")
    assert (
        Archive(copied).request("talk", turn) == archive.request("talk", turn) == Archive(loaded).request("talk", turn)
    )


def test_a_turn_without_a_model_call_says_so() -> None:
    store = InMemory()
    talk = Conversation("talk", model=Scripted(), store=store)
    talk.append([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good morning."}])
    (request,) = talk.request(talk.history()[0].id.partition("-")[0])
    assert (request.body, request.problem) == (None, NO_CALL)


def test_a_turn_whose_process_was_killed_says_so() -> None:
    store = InMemory()
    entries = link_entries(None, "t", 0, [make_message("Hello")])
    store.write("", "talk", Commit(expect=0, entries=entries, turn=Turn("t", "running", "openai:x", 1), at=1))
    (request,) = Archive(store).request("talk", "t")
    assert (request.model, request.body, request.problem) == ("openai:x", None, NOT_ENDED)


def test_the_request_for_a_summary_is_listed_with_its_turn() -> None:
    provider = Scripted(*[says("Bread. " * 300)] * 3, says("They talk about bread."), *[says("Good.")] * 2)
    policy = Summarize(over=1_500, to=900, background=False)
    with Conversation("talk", model=provider, store=InMemory(), policy=policy) as talk:
        turns = [talk.send(f"What is bread made of, number {i}?").turn_id for i in range(5)]
        requests = [talk.request(turn) for turn in turns]
    assert sum(map(len, requests)) == len(provider.requests)
    assert [each[1:] for each in requests if len(each) > 1] == [
        [SentRequest(model="scripted:model", body=None, problem=FOR_SUMMARY)]
    ]
