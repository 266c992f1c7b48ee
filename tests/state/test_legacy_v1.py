"""A conversation of the earlier Go library continues where it was."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.errors import BadState
from longtalk.state import codec as states
from longtalk.state import legacy_v1 as state_v1
from longtalk.testing import validate
from longtalk.transcript.transcript import Transcript
from longtalk.wires import NAMES
from longtalk.wires.entries import view_entry
from tests.support.openai_request import build_request

USER = b'{"role":"user","content":"hi"}'
ANSWER = b'{"role":"assistant","content":"hello"}'


def go_state(*messages: bytes, **more: Any) -> bytes:
    members = {"version": 1, "provider": "openai", "processed_length": len(messages), **more}
    head = json.dumps(members, separators=(",", ":"))[:-1].encode()
    return head + b',"messages":[' + b",".join(messages) + b"]}"


def read(state: bytes) -> Transcript:
    return states.decode(state, wires=NAMES)


def refused(state: bytes) -> BadState:
    with pytest.raises(BadState) as caught:
        read(state)
    assert caught.value.state == state
    return caught.value


def calls(*ids: str) -> bytes:
    made = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in ids]
    return json.dumps({"role": "assistant", "content": None, "tool_calls": made}).encode()


def result(name: str, text: str = "42") -> bytes:
    return json.dumps({"role": "tool", "tool_call_id": name, "content": text}).encode()


def sent(transcript: Transcript) -> list[dict[str, Any]]:
    """Return the messages of a request, which must be valid."""
    body = build_request(transcript)
    validate(body)
    messages: list[dict[str, Any]] = json.loads(body)["messages"]
    return messages


# Conversion


ODD = [
    b'{"role":"user","content":"caf\\u00e9","n":1e2,"big":12345678901234567}',
    b'{ "content" : "x",\n"role":"user" }',
    b'{"x":1,"role":"user","content":"x","x":2}',
    b'{"role":"user","content":"\\ud83d \xff","\\uDE00":1}',
    b'{"role":"user","content":[{"type":"text","text":"a"},{"type":"new","z":1.0,"a":null}]}',
]


@pytest.mark.parametrize("native", ODD)
def test_messages_are_taken_over_byte_for_byte(native: bytes) -> None:
    transcript = read(go_state(native, ANSWER))
    assert [entry.native for entry in transcript] == [native, ANSWER]
    assert build_request(transcript) == b'{"model":"m","messages":[%s,%s]}' % (native, ANSWER)


def test_white_space_in_the_envelope_does_not_matter() -> None:
    assert [e.native for e in read(b'\n { "version" : 1 , "messages" : [ %s , %s ] }' % (USER, ANSWER))] == [
        USER,
        ANSWER,
    ]


def test_entries_and_turns_follow_the_user_messages() -> None:
    system = b'{"role":"system","content":"be brief"}'
    transcript = read(go_state(system, USER, ANSWER, USER, calls("a"), result("a"), ANSWER))
    assert [entry.turn for entry in transcript] == ["v1x0", "v1x1", "v1x1", "v1x2", "v1x2", "v1x2", "v1x2"]
    roles = [entry.role for entry in transcript]
    assert roles == ["system", "user", "assistant", "user", "assistant", "tool", "assistant"]
    assert [turn.id for turn in transcript.turns] == ["v1x0", "v1x1", "v1x2"]
    assert {turn.status for turn in transcript.turns} == {"complete"}
    assert transcript.exchanges() == [(0, 1), (1, 3), (3, 7)]


def test_entries_are_a_chain() -> None:
    entries = list(read(go_state(USER, ANSWER, USER, ANSWER)))
    assert [entry.id for entry in entries] == ["v1x0-0", "v1x0-1", "v1x1-0", "v1x1-1"]
    assert entries[0].parent is None
    assert all(after.parent == before.id for before, after in pairwise(entries))


def test_reading_twice_gives_the_same() -> None:
    state = go_state(USER, calls("a"), USER)
    assert read(state) == read(state)


def test_what_was_read_is_written_in_the_newest_version() -> None:
    transcript = read(go_state(USER, calls("a", "b"), result("b"), result("x"), USER, ANSWER, x=1))
    state = states.encode(transcript)
    assert states.peek(state).version == states.VERSION
    assert read(state) == transcript


def test_what_else_the_envelope_holds_is_kept() -> None:
    state = b'{"version":1,"provider":"openai","x":1e2,"processed_length":2,"messages":[%s],"y":{"b":1,"a":2}}' % USER
    (record,) = read(state).records
    assert (record.kind, record.entry) == ("origin", "v1x0-0")
    assert record.data == b'{"version":1,"provider":"openai","x":1e2,"processed_length":2,"y":{"b":1,"a":2}}'


@pytest.mark.parametrize("messages", [b',"messages":[]', b',"messages":null', b""])
def test_a_conversation_in_which_nothing_was_said_is_empty(messages: bytes) -> None:
    transcript = read(b'{"version":1,"provider":"openai"' + messages + b"}")
    assert len(transcript) == 0
    assert transcript.records[0].entry == ""


def test_a_provider_that_is_not_named_is_openai() -> None:
    assert len(read(b'{"version":1,"messages":[%s]}' % USER)) == 1


# Messages that no provider would accept


def test_a_call_without_a_result_is_closed() -> None:
    transcript = read(go_state(USER, calls("a", "b"), result("b")))
    assert [entry.condition for entry in transcript] == ["", "", "", "closed"]
    assert sent(transcript)[-1]["tool_call_id"] == "a"
    assert "Outcome unknown" in sent(transcript)[-1]["content"]


def test_a_call_without_a_result_is_closed_before_the_conversation_goes_on() -> None:
    transcript = read(go_state(USER, calls("a"), USER, ANSWER))
    assert [message["role"] for message in sent(transcript)] == ["user", "assistant", "tool", "user", "assistant"]
    assert [entry.turn for entry in transcript] == ["v1x0"] * 3 + ["v1x1"] * 2


def test_a_result_without_its_call_is_kept_as_an_event() -> None:
    transcript = read(go_state(USER, result("x", "the lost number is 7"), ANSWER))
    assert [entry.kind for entry in transcript] == ["message", "event", "message"]
    assert "the lost number is 7" in sent(transcript)[1]["content"]


def test_a_result_at_the_very_beginning_is_kept_as_an_event() -> None:
    transcript = read(go_state(result("x"), USER))
    assert [entry.kind for entry in transcript] == ["event", "message"]
    assert transcript.exchanges() == [(0, 2)]
    sent(transcript)


def test_a_result_without_its_call_does_not_come_between_another_call_and_its_results() -> None:
    transcript = read(go_state(USER, calls("a", "b"), result("x", "lost"), result("a"), result("b"), ANSWER))
    assert [m["role"] for m in sent(transcript)] == ["user", "assistant", "tool", "tool", "system", "assistant"]
    assert "lost" in sent(transcript)[4]["content"]


def test_a_second_result_of_a_call_is_kept_as_an_event() -> None:
    transcript = read(go_state(USER, calls("a", "b"), result("a"), result("a", "again"), result("b")))
    assert [m["role"] for m in sent(transcript)] == ["user", "assistant", "tool", "tool", "system"]


def test_what_looks_like_a_memory_card_is_text() -> None:
    text = 'A card is <MEMORY_CARD>{"+facts": []}</MEMORY_CARD>'
    answer = json.dumps({"role": "assistant", "content": text}).encode()
    assert view_entry(read(go_state(b'{"role":"user","content":"x"}', answer))[-1]).text == text


def test_an_answer_that_says_nothing_is_kept_and_not_sent() -> None:
    nothing = b'{"role":"assistant","content":null}'
    transcript = read(go_state(USER, nothing, USER, ANSWER))
    assert transcript[1].native == nothing
    assert [m["role"] for m in sent(transcript)] == ["user", "user", "assistant"]


@given(
    st.lists(
        st.one_of(
            st.just(USER),
            st.just(ANSWER),
            st.just(b'{"role":"assistant","content":null}'),
            st.just(b'{"role":"developer","content":"x"}'),
            st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True).map(lambda ids: calls(*ids)),
            st.sampled_from("abcx").map(result),
        ),
        max_size=12,
    )
)
def test_whatever_the_order_the_request_is_valid_and_nothing_is_lost(messages: list[bytes]) -> None:
    transcript = read(go_state(USER, *messages))
    sent(transcript)
    kept = [entry.native for entry in transcript if entry.kind == "message" and entry.condition != "closed"]
    orphans = [entry for entry in transcript if entry.kind == "event"]
    assert len(kept) + len(orphans) == len(messages) + 1
    assert [native for native in (USER, *messages) if b'"tool"' not in native] == [
        native for native in kept if b'"tool"' not in native
    ]
    assert read(states.encode(transcript)) == transcript


def test_an_id_that_is_called_twice_takes_two_results() -> None:
    transcript = read(go_state(USER, calls("a", "a"), result("a"), result("a"), result("a")))
    assert [m["role"] for m in sent(transcript)] == ["user", "assistant", "tool", "tool", "system"]
    assert len(sent(read(go_state(USER, calls("a", "a"), result("a"))))) == 4


def test_a_conversation_of_many_turns_is_read_in_one_go() -> None:
    transcript = read(go_state(*[USER, ANSWER] * 10_000))
    assert len(transcript.turns) == 10_000
    assert transcript.head == "v1x9999-1"


# Refusals


@pytest.mark.parametrize("provider", ["anthropic", "OpenAI", "", None, 1])
def test_another_provider_is_refused_by_name(provider: Any) -> None:
    problem = refused(go_state(USER, provider=provider))
    assert problem.reason == "unknown_wire"
    assert repr(provider if isinstance(provider, str) else None) in str(problem)


@pytest.mark.parametrize(
    "state",
    [
        b"{",
        b'{"version":1',
        b'{"version":1,"messages":[{"role":"user"}',
        b'{"version":1,"messages":{}}',
        b'{"version":1,"messages":"x"}',
        b'{"version":1,"messages":[1]}',
        b'{"version":1,"messages":[null]}',
        b'{"version":1,"messages":[[]]}',
        b'{"version":1,"messages":[]} []',
        b'{"version":1,"messages":[]},{"version":1}',
        b'{"version":1,"messages":[{"role":"assistant","tool_calls":[1]}]}',
        b'{"version":1,"messages":[{"role":"assistant","tool_calls":[{"function":2}]}]}',
        b'{"version":1,"messages":[{"role":"user","content":"\n"}]}',
    ],
)
def test_a_malformed_state_is_corrupt(state: bytes) -> None:
    assert refused(state).reason == "corrupt"


@pytest.mark.parametrize("role", [b'"robot"', b"1", b"null", b'""'])
def test_an_unknown_role_is_corrupt(role: bytes) -> None:
    problem = refused(b'{"version":1,"messages":[{"role":%s,"content":"x"}]}' % role)
    assert problem.reason == "corrupt"
    assert "role" in str(problem)


@pytest.mark.parametrize("where", [b'{"version":%s}', b'{"version":1,"messages":%s}', b'{"version":1,"x":%s}'])
def test_a_state_nested_too_deeply_is_corrupt(where: bytes) -> None:
    assert refused(where % (b"[" * 100_000 + b"]" * 100_000)).reason == "corrupt"


@pytest.mark.parametrize("version", [b"1.0", b"-1", b"true", b"null", b"[1]", b"1e999", b'"1"', b"9" * 5_000])
def test_a_version_that_is_no_version_is_refused(version: bytes) -> None:
    problem = refused(b'{"version":%s,"messages":[]}' % version)
    assert problem.reason in ("corrupt", "too_new")


def test_more_messages_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_v1, "MAX_ENTRIES", 3)
    assert len(read(go_state(USER, ANSWER, USER))) == 3
    problem = refused(go_state(USER, ANSWER, USER, ANSWER))
    assert problem.reason == "too_large"
    assert "4 messages" in str(problem)


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {"name": "f"}}]}],
        [{"role": "user", "content": None}],
        [{"role": "user"}],
        [{"role": "user", "content": "a", "tool_calls": [{"id": "x"}]}],
        [
            {"role": "assistant", "content": None, "tool_calls": [{"id": "x", "function": {}}]},
            {"role": "tool", "tool_call_id": "x"},
        ],
    ],
)
def test_a_state_with_gaps_gives_a_conversation_that_can_be_sent(messages: list[Any]) -> None:
    told = [{"role": "user", "content": "Hello."}, *messages, {"role": "user", "content": "Go on."}]
    state = json.dumps({"version": 1, "provider": "openai", "messages": told}).encode()
    assert sent(states.decode(state, wires=NAMES))[-1]["content"] == "Go on."
