"""Test exclusions: no request contains an exchange that is excluded, and it comes back when it is included."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Chat, Reply, history, join
from longtalk.context.epochs import Pin
from longtalk.context.exclusions import read_exclusions
from longtalk.errors import InputError
from longtalk.memory.brief.schema import Brief
from longtalk.policies import DigestTools, KeepAll, KeepLast, Memory, Policy, Summarize, TokenBudget
from longtalk.policies.economy import Economy
from longtalk.state.codec import decode, encode
from longtalk.testing import Scripted, says, validate
from longtalk.transcript.manifest import EXCLUDED
from longtalk.wires import NAMES, WIRES
from tests.policies.drawn import policies
from tests.support.matrix import EVERY_WIRE
from tests.support.properties import examples


class Model(Scripted):
    """A model that says what it is told to, and writes a summary when it is asked for one."""

    def send(self, body: bytes) -> bytes:
        if b"<summary_request>" not in body:
            return super().send(body)
        self.requests.append(body)
        return says("They talked about several things, at some length.", wire=self.wire.name).body


def look(q: str) -> str:
    """Look something up."""
    return f"about {q}"


class Talk:
    """A conversation in which each exchange has words of its own: mark1, mark2 …"""

    def __init__(self, policy: Policy, wire: str = "openai-chat", **of: Any) -> None:
        self.model = Model(wire=WIRES[wire])
        self.chat = Chat(self.model, policy=policy, tools=[look], **of)
        self.state: bytes = b""
        self.replies: list[Reply] = []
        self.shed: list[bytes] = []
        self.requests: list[bytes] = []
        """Those of the last turn."""

    def say(self, *, size: int = 1, calls: bool = False, message: str = "") -> Reply:
        number, before = len(self.replies) + 1, len(self.model.requests)
        mark, wire = f"mark{number}. " * size, self.model.wire.name
        if calls:
            self.model.add(says(None, calls=[(f"c{number}", "look", {"q": mark})], wire=wire))
        self.model.add(says(f"Answer {mark}", wire=wire))
        reply = self.chat.send(message or f"Question {mark}", state=self.state or None)
        self.replies.append(reply)
        self.state = reply.state
        self.shed += [reply.shed] if reply.shed else []
        self.requests = self.model.requests[before:]
        for request in self.requests:
            validate(request, wire=wire)
        return reply

    def exclude(self, number: int) -> None:
        self.state = self.chat.exclude(self.replies[number - 1].turn_id, state=self.state)

    def include(self, number: int) -> None:
        self.state = self.chat.include(self.replies[number - 1].turn_id, state=self.state)

    @property
    def sent(self) -> list[int]:
        """The numbers of the exchanges that the requests of the last turn tell of."""
        text = b"".join(self.requests).decode()
        return [n for n in range(1, len(self.replies) + 1) if f"mark{n}." in text]

    @property
    def excluded(self) -> set[str]:
        """The turns of the entries of which the last manifest says that they are excluded."""
        transcript = decode(self.state, wires=NAMES)
        context = self.replies[-1].context
        assert context is not None
        places = [
            place for run in context.manifest if run.reason == EXCLUDED for place in range(run.first, run.last + 1)
        ]
        return {transcript[transcript.index_of(place)].turn for place in places}


@pytest.mark.parametrize("wire", EVERY_WIRE)
@examples(40, 200)
@given(st.data(), policies, st.sampled_from(["all", "context"]))
def test_no_request_under_any_policy_contains_what_is_excluded(
    wire: str, data: st.DataObject, policy: Any, carry: Any
) -> None:
    talk = Talk(policy, wire, carry=carry if policy.compactors else "all")
    out: set[int] = set()
    for _ in range(data.draw(st.integers(3, 9))):
        talk.say(size=data.draw(st.sampled_from([1, 5, 40])), calls=data.draw(st.booleans()))
        assert out.isdisjoint(talk.sent)
        assert talk.excluded == {talk.replies[n - 1].turn_id for n in out}
        here = {entry.turn for entry in decode(talk.state, wires=NAMES)}
        numbers = [n for n, reply in enumerate(talk.replies, 1) if reply.turn_id in here]
        for number in data.draw(st.lists(st.sampled_from(numbers), max_size=2)):
            if number in out:
                talk.include(number)
                out.remove(number)
            else:
                talk.exclude(number)
                out.add(number)
    whole = join(*talk.shed, talk.state)
    texts = " ".join(entry.text for entry in history(whole))
    assert all(f"mark{n}." in texts for n in range(1, len(talk.replies) + 1))


def test_what_is_excluded_is_left_out_and_comes_back_when_it_is_included() -> None:
    talk = Talk(KeepAll())
    for _ in range(4):
        talk.say()
    talk.exclude(2)
    talk.exclude(4)
    talk.say()
    assert talk.sent == [1, 3, 5]
    talk.include(2)
    talk.say()
    assert talk.sent == [1, 2, 3, 5, 6]
    talk.include(4)
    talk.say()
    assert talk.sent == [1, 2, 3, 4, 5, 6, 7]


def test_what_is_excluded_does_not_count_towards_the_limits() -> None:
    talk = Talk(KeepLast(3, sliding=True))
    for _ in range(3):
        talk.say()
    talk.exclude(2)
    talk.say()
    assert talk.sent == [1, 3, 4]
    talk.say()
    assert talk.sent == [3, 4, 5]


def test_what_is_included_goes_where_the_policy_has_no_room_for_it() -> None:
    talk = Talk(KeepLast(3, sliding=True))
    talk.say()
    talk.exclude(1)
    for _ in range(3):
        talk.say()
    talk.include(1)
    talk.say()
    assert talk.sent == [3, 4, 5]


def test_inside_the_new_epoch_each_request_begins_with_the_one_before() -> None:
    talk = Talk(KeepAll())
    for _ in range(4):
        talk.say()
    talk.exclude(2)
    before = talk.say().context
    after = talk.say().context
    assert before is not None
    assert after is not None
    assert before.epoch == after.epoch
    assert b",".join(after.pieces).startswith(b",".join(before.pieces))


def test_a_summary_that_was_made_of_it_is_not_sent_any_more() -> None:
    talk = Talk(Summarize(300, to=200, length=50))
    while not any(b"<earlier_conversation>" in request for request in talk.requests):
        talk.say(size=20)
    talk.exclude(1)
    talk.say(size=2)
    asked = [request for request in talk.requests if b"<summary_request>" in request]
    assert asked
    assert b"mark2." in asked[0]
    assert b"<earlier_conversation>" not in asked[0]
    assert 1 not in talk.sent


def test_a_summary_that_was_not_made_of_it_stays() -> None:
    talk = Talk(Summarize(300, to=200, length=50))
    while not any(b"<earlier_conversation>" in request for request in talk.requests):
        talk.say(size=20)
    last = len(talk.replies)
    talk.exclude(last)
    talk.say()
    assert len(talk.requests) == 1
    assert b"<earlier_conversation>" in talk.requests[0]
    assert last not in talk.sent


@pytest.mark.parametrize(
    "policy",
    [
        TokenBudget(900, to=500, digest=DigestTools(keep=1)),
        Memory(brief=Brief(20), outline=100, recent=50, recall=0, limit=400),
    ],
    ids=["digest", "outline"],
)
def test_lines_at_the_head_that_tell_of_it_go_too(policy: Policy) -> None:
    talk = Talk(policy)
    told: list[int] = []
    while not told:
        talk.say(size=4, calls=True)
        last = talk.requests[-1].decode()
        told = [
            n for n in talk.sent if f"mark{n}." in last and f"Question mark{n}. mark{n}. mark{n}. mark{n}. " not in last
        ]
        assert len(talk.replies) < 30
    talk.exclude(told[0])
    talk.say()
    assert told[0] not in talk.sent


@pytest.mark.parametrize("excludes", [False, True])
def test_what_is_excluded_is_not_recalled(excludes: bool) -> None:
    talk = Talk(Memory(limit=200, recent=50, outline=0, recall=500))
    talk.say(message="My violin was made by Guarneri in Cremona.")
    for _ in range(6):
        talk.say(size=20)
    if excludes:
        talk.exclude(1)
    talk.say(message="Who made my violin, Guarneri of Cremona?")
    assert (b"My violin was made by Guarneri" in talk.requests[-1]) is not excludes


def test_what_is_excluded_is_not_sent_although_it_is_pinned() -> None:
    talk = Talk(KeepLast(4))
    talk.state = talk.chat.pin(talk.say().turn_id, state=talk.state)
    talk.exclude(1)
    for _ in range(5):
        talk.say()
        assert 1 not in talk.sent
    talk.include(1)
    for _ in range(5):
        talk.say()
        assert 1 in talk.sent


def test_a_state_that_sheds_entries_keeps_what_is_excluded() -> None:
    talk = Talk(KeepLast(3), carry="context")
    for _ in range(2):
        talk.say()
    talk.exclude(1)
    for _ in range(6):
        talk.say()
    assert talk.replies[0].turn_id in {entry.turn for entry in decode(talk.state, wires=NAMES)}
    talk.include(1)
    assert read_exclusions(decode(talk.state, wires=NAMES)) == []


def test_an_exchange_before_the_newest_does_not_hide_from_costs_what_is_older() -> None:
    """Economy summarizes as soon as with the same exchanges and none excluded."""
    counts = []
    for excludes in (False, True):
        talk = Talk(Economy(length=50))
        for _ in range(6):
            talk.say(size=100)
        if excludes:
            talk.say()
            talk.exclude(7)
        talk.say(size=100)
        while not any(b"<summary_request>" in request for request in talk.requests):
            talk.say(size=100)
            assert len(talk.replies) < 60
        counts.append(len(talk.replies) - excludes)
    assert counts[1] <= counts[0] + 3


def test_excluding_twice_is_excluding_once() -> None:
    talk = Talk(KeepAll())
    talk.say()
    talk.exclude(1)
    talk.exclude(1)
    talk.include(1)
    assert read_exclusions(decode(talk.state, wires=NAMES)) == []
    with pytest.raises(InputError, match="is not excluded"):
        talk.include(1)


def test_an_unknown_id_is_refused_by_name() -> None:
    talk = Talk(KeepAll())
    talk.say()
    with pytest.raises(InputError, match="No entry or turn 'nowhere'"):
        talk.chat.exclude("nowhere", state=talk.state)
    with pytest.raises(InputError, match=r"exchange to be excluded must be named by the id .* not by int"):
        talk.chat.exclude(3, state=talk.state)  # type: ignore[arg-type]


def test_a_turn_that_has_not_ended_can_t_be_excluded() -> None:
    model = Scripted(says(None, calls=[("c1", "look", {"q": "x"})]), says("done"))
    chat = Chat(model, tools=[look])
    checkpoint = next(each for each in chat.stream("go") if type(each).__name__ == "Checkpoint")
    turn = decode(checkpoint.state, wires=NAMES)[0].turn
    with pytest.raises(InputError, match="before its turn has ended"):
        chat.exclude(turn, state=checkpoint.state)


def test_an_event_can_t_be_excluded_before_a_message_has_followed_it() -> None:
    talk = Talk(KeepAll())
    talk.say()
    talk.state = talk.chat.note("It rains", state=talk.state)
    event = decode(talk.state, wires=NAMES)[-1].id
    with pytest.raises(InputError, match="the exchange that the next message begins"):
        talk.chat.exclude(event, state=talk.state)
    talk.say()
    talk.state = talk.chat.exclude(event, state=talk.state)
    talk.say()
    assert talk.sent == [1, 3]
    assert b"It rains" not in talk.requests[-1]


def test_a_message_that_got_no_answer_can_be_excluded() -> None:
    talk = Talk(KeepAll())
    talk.say()
    talk.model.add(ValueError("broken"))
    with pytest.raises(ValueError, match="broken") as caught:
        talk.chat.send("lost words", state=talk.state)
    talk.state = caught.value.state  # type: ignore[attr-defined]
    talk.state = talk.chat.exclude(decode(talk.state, wires=NAMES)[-1].turn, state=talk.state)
    talk.say()
    assert b"lost words" not in talk.requests[-1]


@pytest.mark.parametrize("places", [[-5], [10**12], [0, 1, 2, 3], list(range(1_000))])
def test_forged_exclusions_break_no_request(places: list[int]) -> None:
    talk = Talk(KeepLast(3))
    for _ in range(4):
        talk.say(calls=True)
    transcript = decode(talk.state, wires=NAMES)
    data = b"[" + b",".join(b'{"place":%d,"entry":"x","turn":"y"}' % place for place in places) + b"]"
    assert Pin(places[0], "x", "y") in read_exclusions(transcript.add_record("excluded", data))
    talk.state = encode(transcript.add_record("excluded", data, replace=True))
    for _ in range(3):
        talk.say(calls=True)
