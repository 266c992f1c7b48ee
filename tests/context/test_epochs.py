"""Epochs, and what the records of a conversation know: where a cut was, how long it is, what is pinned."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Chat
from longtalk.context.epochs import (
    Anchor,
    Epoch,
    begin_epoch,
    find_epoch,
    read_windows,
    record_anchor,
)
from longtalk.context.measure import list_pinned_positions
from longtalk.context.planning import make_plan
from longtalk.errors import ContextOverflow, InputError, PinRefused
from longtalk.policies import (
    AnyOf,
    Combine,
    Compactor,
    DigestTools,
    DropOldest,
    KeepAll,
    KeepLast,
    KeepMessages,
    OverExchanges,
    OverMessages,
    OverTokens,
    OverWindow,
    Policy,
    TokenBudget,
    WindowShare,
)
from longtalk.policies.base import fingerprint_policy
from longtalk.reply import Reply
from longtalk.state.codec import decode, encode
from longtalk.state.sealing import Seal
from longtalk.testing import Scripted, Step, says, validate
from longtalk.transcript.transcript import Transcript
from longtalk.wires import NAMES
from tests.policies.views import Letters, composed, conversation, happened, said, talked, terms, worked
from tests.support.properties import examples


class Talk:
    """A conversation by the way of a caller: each turn on the state of the one before. A token is a letter."""

    def __init__(self, policy: Policy, *, window: int | None = None, label: str = "scripted:model") -> None:
        self.provider = Scripted(window=window)
        self.provider.label = label
        self.chat = Chat(self.provider, policy=policy, tools=[look], counter=Letters())
        self.state: bytes | None = None
        self.turns = 0

    def say(self, text: str = "", *steps: Step | BaseException, **of: Any) -> Reply:
        self.turns += 1
        self.provider.add(*(steps or [answers(f"answer {self.turns}")]))
        reply = self.chat.send(text or f"question {self.turns}", state=self.state, **of)
        for request in self.provider.requests:
            validate(request)
        self.state = reply.state
        return reply

    def go_on(self, policy: Policy, **of: Any) -> Talk:
        """The same conversation with another chat."""
        talk = Talk(policy, **of)
        talk.state, talk.turns = self.state, self.turns
        return talk

    def pin(self, name: str) -> None:
        self.state = self.chat.pin(name, state=self.state or b"")

    def unpin(self, name: str) -> None:
        self.state = self.chat.unpin(name, state=self.state or b"")

    @property
    def transcript(self) -> Transcript:
        return decode(self.state or b"", wires=NAMES)

    @property
    def sent(self) -> list[str]:
        """The texts of the last request."""
        return [message["content"] or "calls" for message in json.loads(self.provider.requests[-1])["messages"]]

    @property
    def asked(self) -> list[str]:
        """The user's words in it."""
        messages = json.loads(self.provider.requests[-1])["messages"]
        return [message["content"] for message in messages if message["role"] == "user"]


def answers(text: str | None, *, reporting: int = 0, calls: Any = ()) -> Step:
    """What a model says that reports so many tokens; without any, nothing but our counting is known."""
    usage = {"prompt_tokens": reporting, "completion_tokens": 1, "total_tokens": reporting + 1}
    return says(text, usage=usage, calls=calls)


def look(q: str) -> str:
    """Look something up."""
    return f"about {q}"


def questions(*numbers: int) -> list[str]:
    return [f"question {n}" for n in numbers]


# Records


def test_without_a_limit_no_epoch_is_recorded() -> None:
    talk = Talk(KeepAll())
    for _ in range(5):
        talk.say()
    assert not talk.transcript.records


def test_there_is_one_epoch_at_a_time() -> None:
    talk = Talk(KeepLast(2))
    starts = []
    for _ in range(6):
        talk.say()
        kinds = [record.kind for record in talk.transcript.records]
        assert kinds.count("epoch") <= 1
        epoch = talk.transcript.records.read_latest("epoch", Epoch)
        starts.append(epoch.start if epoch else 0)
    assert starts == [0, 0, 5, 7, 9, 11]


def test_an_epoch_survives_the_way_through_a_state() -> None:
    talk = Talk(KeepLast(2))
    for _ in range(3):
        talk.say()
    epoch = find_epoch(talk.transcript, fingerprint_policy(KeepLast(2)))
    assert epoch.start == 5
    assert find_epoch(decode(encode(talk.transcript), wires=NAMES), fingerprint_policy(KeepLast(2))) == epoch


def test_an_epoch_says_of_each_entry_what_becomes_of_it_and_why() -> None:
    of = conversation(*[talked(n) for n in range(3)], [said("now")])
    epoch = make_plan(of, KeepLast(3, to=2), terms()).epoch
    assert [(run.first, run.last, run.verdict, run.reason) for run in epoch.runs] == [
        (0, 3, "left_out", "over 3 exchanges"),
        (4, 6, "sent", "kept"),
    ]


def test_inside_an_epoch_requests_only_grow() -> None:
    talk = Talk(KeepLast(4))
    for _ in range(12):
        talk.say()
    bodies = [json.loads(body)["messages"] for body in talk.provider.requests]
    extends = [after[: len(before)] == before for before, after in pairwise(bodies)]
    assert [n for n, extended in enumerate(extends, 1) if not extended] == [4, 7, 10]


def test_a_new_epoch_cuts_once_for_a_whole_turn_with_tools() -> None:
    talk = Talk(KeepLast(2))
    for _ in range(2):
        talk.say()
    calls = [answers(None, calls=[(f"c{n}", "look", {"q": "x"})]) for n in range(3)]
    talk.say("work", *calls, answers("done"))
    lengths = [len(json.loads(body)["messages"]) for body in talk.provider.requests]
    assert lengths == [1, 3, 3, 5, 7, 9]


def test_another_policy_begins_an_epoch_from_everything() -> None:
    talk = Talk(KeepLast(1))
    for _ in range(4):
        talk.say()
    assert talk.asked == questions(4)
    talk = talk.go_on(KeepLast(9))
    talk.say()
    assert talk.asked == questions(1, 2, 3, 4, 5)


def test_an_equal_policy_goes_on_in_the_epoch() -> None:
    talk = Talk(KeepLast(4))
    for _ in range(5):
        talk.say()
    talk = talk.go_on(KeepLast(4))
    talk.say()
    assert talk.asked == questions(4, 5, 6)


def test_a_policy_that_comes_back_begins_a_new_epoch_too() -> None:
    talk = Talk(KeepLast(3, to=1))
    for _ in range(4):
        talk.say()
    assert talk.asked == questions(3, 4)
    talk = talk.go_on(KeepLast(4, to=2))
    talk.say()
    assert talk.asked == questions(4, 5)
    talk = talk.go_on(KeepLast(3, to=1))
    talk.say()
    assert talk.asked == questions(5, 6)


FOUR = conversation(talked(0), talked(1))
"""Four entries."""


def runs(*spans: tuple[int, int]) -> list[dict[str, Any]]:
    return [{"first": first, "last": last, "verdict": "left_out", "reason": "x"} for first, last in spans]


@pytest.mark.parametrize(
    "said",
    [
        {"start": 4, "runs": runs((0, 1), (3, 3)), "raw": 3, "current": 3},
        {"start": 4, "runs": runs((1, 3)), "raw": 1, "current": 1},
        {"start": 4, "runs": runs((0, 2), (2, 3)), "raw": 2, "current": 2},
        {"start": 4, "runs": runs((2, 3), (0, 1)), "raw": 2, "current": 2},
        {"start": 4, "runs": runs((0, 3), (4, 3)), "raw": 4, "current": 4},
        {"start": 4, "runs": runs((0, 2)), "raw": 3, "current": 3},
        {"start": 4, "runs": runs((0, 4)), "raw": 4, "current": 4},
        {"start": 4, "runs": []},
        {"start": 5, "runs": runs((0, 4)), "raw": 5, "current": 5},
        {"start": 10**18, "runs": runs((0, 10**18 - 1))},
        {"start": 0, "runs": runs((0, -1))},
        {"start": -1, "runs": runs((0, -2))},
        {"start": 2, "runs": runs((0, 1)), "raw": 2, "current": 1},
        {"start": 2, "runs": runs((0, 1)), "raw": -1, "current": 1},
        {"start": 2, "runs": runs((0, 1)), "raw": 2, "current": 3},
        {"start": "2", "runs": runs((0, 1))},
        {"start": 2, "runs": [{"first": 0, "last": 1, "verdict": "eaten", "reason": "x"}]},
        {"start": 2, "runs": [{"first": 0, "last": 1, "verdict": "held", "reason": "x"}], "raw": 2, "current": 2},
        {"start": 2, "runs": {}},
        {"policy": None},
        [],
        None,
    ],
)
def test_an_unsound_epoch_is_ignored(said: Any) -> None:
    data = json.dumps({"policy": "p", **said} if isinstance(said, dict) else said).encode()
    assert find_epoch(FOUR.add_record("epoch", data), "p") == Epoch("p")


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b'"epoch"', b'{"policy":"p","start":1e999}'])
def test_an_epoch_that_is_not_json_is_ignored(data: bytes) -> None:
    assert find_epoch(FOUR.add_record("epoch", data), "p") == Epoch("p")


def test_a_sound_epoch_of_the_same_form_is_believed() -> None:
    data = {"policy": "p", "start": 2, "runs": runs((0, 1)), "raw": 2, "current": 2}
    assert find_epoch(FOUR.add_record("epoch", json.dumps(data).encode()), "p").start == 2


def test_a_chat_goes_on_from_a_state_with_an_unsound_epoch() -> None:
    talk = Talk(KeepLast(2))
    for _ in range(3):
        talk.say()
    hostile = {
        "policy": fingerprint_policy(KeepLast(2)),
        "start": 6,
        "runs": runs((0, 2), (4, 5)),
        "raw": 4,
        "current": 4,
    }
    talk.state = encode(talk.transcript.add_record("epoch", json.dumps(hostile).encode(), replace=True))
    talk.say()
    assert talk.asked == questions(3, 4)


def test_an_epoch_that_cuts_through_an_exchange_does_no_harm() -> None:
    of = conversation(worked(0), [said("now")])
    data = {"policy": fingerprint_policy(KeepAll()), "start": 5, "runs": runs((0, 1)), "raw": 2, "current": 4}
    data["runs"] += [{"first": 2, "last": 4, "verdict": "sent", "reason": "kept"}]
    of = of.add_record("epoch", json.dumps(data).encode())
    composed(of, make_plan(of, KeepAll(), terms()))  # which validates it


@st.composite
def epochs(draw: st.DrawFn) -> dict[str, Any]:
    """What a hostile client might write: it covers each entry once, and everything else is made up."""
    runs, place = [], 0
    for _ in range(draw(st.integers(0, 5))):
        last = draw(st.integers(place, place + 3))
        verdict = draw(st.sampled_from(["sent", "summarised", "left_out", "handed_out"]))
        reason = draw(st.sampled_from(["x", "the middle of many events", "cut to head and tail"]))
        runs.append(
            {"first": place, "last": last, "verdict": verdict, "reason": reason, "keep": draw(st.integers(-1, 3))}
        )
        place = last + 1
    numbers = st.integers(-2, 12)
    latest = draw(st.integers(0, place))
    made = {name: draw(numbers) for name in ("exchanges", "messages", "tokens")}
    made |= {"start": place, "runs": runs, "raw": draw(st.integers(0, latest)), "current": latest}
    return made | {"pinned": draw(st.lists(st.tuples(numbers, numbers), max_size=3)), "pins": draw(st.lists(numbers))}


@examples(75, 450)
@given(
    epochs(), st.sampled_from([KeepAll(), KeepLast(1), KeepLast(2), KeepMessages(4), TokenBudget(60), TokenBudget(200)])
)
def test_a_forged_epoch_fails_no_turn(epoch: dict[str, Any], policy: Policy) -> None:
    of = conversation(worked(0), talked(1), [said("now")])
    data = json.dumps({"policy": fingerprint_policy(policy), **epoch}).encode()
    talk = Talk(policy)
    talk.state = encode(of.add_record("epoch", data))
    talk.provider.add(answers("ok"))
    reply = talk.chat.send("again", state=talk.state)
    assert reply.text == "ok"


# How long a request is


def counted(*texts: str, **of: Any) -> list[int]:
    """How long the requests of a conversation are, as counted."""
    talk = Talk(KeepAll())
    return [talk.say(text, answers("answer"), **of).context.counted for text in texts]  # type: ignore[union-attr]


def test_without_a_report_the_count_is_believed() -> None:
    talk = Talk(KeepAll())
    for text in ("hello", "again"):
        context = talk.say(text, answers("answer")).context
        assert context is not None
        assert context.tokens == context.counted


def test_what_was_reported_is_believed_and_only_what_came_since_is_counted() -> None:
    first, second = counted("hello", "again")
    talk = Talk(KeepAll())
    talk.say("hello", answers("answer", reporting=2 * first))
    context = talk.say("again").context
    assert context is not None
    assert context.counted == second
    assert (second - first) / 2 <= context.tokens - 2 * first <= 2 * (second - first)


def test_a_report_that_is_far_off_does_not_blow_up_what_came_since() -> None:
    first, second = counted("hello", "again")
    talk = Talk(KeepAll())
    talk.say("hello", answers("answer", reporting=20 * first))
    context = talk.say("again").context
    assert context is not None
    assert (second - first) / 2 <= context.tokens - 20 * first <= 5 * (second - first)


def test_a_server_with_a_long_text_of_its_own_does_not_make_the_next_message_too_long() -> None:
    talk = Talk(KeepAll(), window=32_000)
    talk.say("hello", answers("answer", reporting=3_000))
    context = talk.say("x" * 2_000).context
    assert context is not None
    assert context.tokens < 10_000


@pytest.mark.parametrize("times", [0.3, 1_000])
def test_a_report_that_can_t_be_true_is_not_believed(times: float) -> None:
    first, second = counted("hello", "again")
    talk = Talk(KeepAll())
    talk.say("hello", answers("answer", reporting=round(times * first)))
    context = talk.say("again").context
    assert context is not None
    assert context.tokens == context.counted == second


def test_in_another_epoch_the_report_is_a_scale() -> None:
    talk = Talk(KeepLast(1))
    first = counted("hello")[0]
    talk.say("hello", answers("answer", reporting=2 * first))
    context = talk.say("again, and a bit longer").context
    assert context is not None
    assert context.epoch > 0
    assert context.counted < context.tokens <= 2 * context.counted


def test_with_another_system_text_the_report_is_a_scale() -> None:
    talk = Talk(KeepAll())
    first = counted("hello", system="A.")[0]
    talk.say("hello", answers("answer", reporting=2 * first), system="A.")
    context = talk.say("again", system="B" * 400).context
    assert context is not None
    assert context.counted < context.tokens <= 2 * context.counted


def test_a_report_of_another_model_says_nothing_about_this_one() -> None:
    talk = Talk(KeepAll())
    talk.say("hello", answers("answer", reporting=9_000))
    talk = talk.go_on(KeepAll(), label="scripted:other")
    context = talk.say("again").context
    assert context is not None
    assert context.tokens == context.counted


def test_a_budget_is_kept_by_what_was_reported() -> None:
    talk = Talk(TokenBudget(1_000))
    talk.say("", answers("answer", reporting=900))
    talk.say("", answers("answer", reporting=999))
    assert talk.asked == questions(1, 2)
    # The answer brings it over the limit, so that the epoch ends with this turn.
    assert [record.kind for record in talk.transcript.records].count("epoch") == 1
    talk.say()
    assert talk.asked == questions(2, 3)


def test_a_forged_anchor_does_no_harm() -> None:
    for reported, count in ((-5, 10), (10, -5), (0, 0), (10**30, 1)):
        of = record_anchor(FOUR, Anchor(0, "m", "", count, reported))
        made = make_plan(of, TokenBudget(1_000), terms())
        assert made.tokens >= 1


@pytest.mark.parametrize("data", [b"", b"{}", b'{"counted":"x"}', b"\xff"])
def test_an_anchor_that_can_t_be_read_is_ignored(data: bytes) -> None:
    made = make_plan(FOUR.add_record("anchor", data), KeepAll(), terms())
    assert made.tokens == made.counted == 40


# The window


def too_long(window: int | None = None, tokens: int | None = None) -> ContextOverflow:
    problem = ContextOverflow("too long", status=400)
    problem.window, problem.tokens = window, tokens
    return problem


def test_a_window_is_learnt_from_a_refusal_and_kept_in_the_state() -> None:
    talk = Talk(KeepAll())
    for _ in range(4):
        talk.say("x" * 1_000)
    reply = talk.say("now", too_long(window=4_000, tokens=5_000), answers("ok"))
    assert read_windows(talk.transcript) == {"scripted:model": 4_000}
    assert talk.asked[-1] == "now"
    assert len(talk.asked) < 5
    assert "window" in [notice.kind for notice in reply.notices]


def test_a_learnt_window_is_heeded_before_the_call() -> None:
    talk = Talk(KeepAll())
    for _ in range(4):
        talk.say("x" * 1_000)
    talk.say("now", too_long(window=4_000, tokens=5_000), answers("ok"))
    before = len(talk.provider.requests)
    for _ in range(4):
        talk.say("x" * 1_000)
    assert len(talk.provider.requests) == before + 4
    assert max(len(body) for body in talk.provider.requests[before:]) < 4_500


def test_a_window_is_that_of_its_model() -> None:
    talk = Talk(KeepAll())
    for _ in range(4):
        talk.say("x" * 1_000)
    talk.say("now", too_long(window=4_000, tokens=5_000), answers("ok"))
    talk = talk.go_on(KeepLast(99), label="scripted:other")
    talk.say()
    assert len(talk.asked) == 6


def test_a_refusal_that_names_no_number_makes_the_next_try_shorter() -> None:
    talk = Talk(KeepAll())
    for _ in range(4):
        talk.say("x" * 1_000)
    talk.say("now", too_long(), answers("ok"))
    assert 1 <= len(talk.asked) < 5


def test_a_second_refusal_is_raised_and_nothing_is_lost() -> None:
    talk = Talk(KeepAll())
    for _ in range(3):
        talk.say("x" * 1_000)
    with pytest.raises(ContextOverflow) as caught:
        talk.say("now", too_long(), too_long())
    assert caught.value.state == talk.state


def test_a_message_that_does_not_fit_is_refused_before_the_call() -> None:
    talk = Talk(KeepAll(), window=1_000)
    talk.say()
    with pytest.raises(ContextOverflow) as caught:
        talk.say("x" * 2_000)
    assert len(talk.provider.requests) == 1
    assert caught.value.window == 1_000
    assert caught.value.tokens is not None
    assert caught.value.tokens > 1_000
    assert caught.value.state == talk.state


def test_a_conversation_that_outgrows_its_window_goes_on() -> None:
    talk = Talk(KeepAll(), window=2_000)
    notices = [notice.kind for _ in range(12) for notice in talk.say("x" * 400).notices]
    assert "window" in notices
    assert max(len(body) for body in talk.provider.requests) < 2_500


def told(of: Transcript, policy: Policy, kind: str, **given: Any) -> str:
    """What is said of this kind: nothing, or once."""
    found = [notice.text for notice in make_plan(of, policy, terms(**given)).notices if notice.kind == kind]
    assert len(found) <= 1
    return "".join(found)


def test_what_the_window_leaves_out_is_told_with_how_many() -> None:
    of = conversation(*[talked(n) for n in range(9)], [said("now")])
    made = make_plan(of, KeepAll(), terms(window=150))
    assert made.epoch.reason == "more than fits into the window"
    assert [notice.text for notice in made.notices] == [
        "The conversation has outgrown the window of 150 tokens: 6 more exchanges are left out from now on."
    ]
    assert made.epoch.exchanges == 4
    of = begin_epoch(of, made.epoch)
    for n in range(6):
        of = of.append_to_turn(f"u{n}", talked(n))
    # What was left out before is not counted again.
    assert "150 tokens: 7 more exchanges are left out" in told(of, KeepAll(), "window", window=150)


def test_one_is_told_as_one() -> None:
    of = conversation([said("x" * 90), *talked(0)[1:]], talked(1), [said("now")])
    assert "100 tokens: 1 more exchange is left out from now on." in told(of, KeepAll(), "window", window=100)


@pytest.mark.parametrize("policy", [KeepLast(4), KeepMessages(9), TokenBudget(90), WindowShare(0.5)])
def test_what_the_policy_leaves_out_is_not_the_window_s_doing(policy: Policy) -> None:
    of = conversation(*[talked(n) for n in range(9)], [said("now")])
    made = make_plan(of, policy, terms(window=150))
    # The window would have asked for it too.
    assert made.begins
    assert made.notices == ()
    assert make_plan(of, KeepAll(), terms(window=150)).begins


def test_where_the_policy_has_nothing_to_say_the_window_has() -> None:
    of = conversation(*[talked(n) for n in range(9)], [said("now")])
    assert told(of, KeepLast(50), "window", window=150)


def test_an_unknown_window_that_a_policy_needs_is_assumed_and_reported() -> None:
    of = conversation([said("x" * 3_000), *talked(0)[1:]], [said("z" * 200)])
    text = "The window of m is unknown: 32,000 tokens are assumed. Set it with Chat(window=…)."
    assert told(of, WindowShare(0.1), "window_assumed") == text
    assert told(of, Compactor(OverWindow(0.1), (DropOldest(),), OverTokens(1)), "window_assumed") == text
    assert not told(of, WindowShare(0.1), "window_assumed", window=32_000)
    assert make_plan(of, TokenBudget(3_200), terms()).begins
    assert not told(of, TokenBudget(3_200), "window_assumed")


def test_an_unknown_window_is_not_reported_while_no_policy_needs_it() -> None:
    assert make_plan(conversation([said("now")]), WindowShare(0.1), terms()).notices == ()


def test_a_chat_that_was_told_the_window_assumes_none() -> None:
    for window, kinds in ((None, ["window_assumed"]), (32_000, [])):
        talk = Talk(WindowShare(0.1, to=0.05))
        talk.chat = Chat(talk.provider, policy=WindowShare(0.1, to=0.05), counter=Letters(), window=window)
        assert talk.say("x" * 1_700).notices == ()
        assert [notice.kind for notice in talk.say("x" * 1_700).notices] == kinds


FIXED = " ({} tokens are system text, tools and instruction)"


@pytest.mark.parametrize(
    ("fixed", "says"), [(0, ""), (250, ""), (251, FIXED.format(251)), (9_000, FIXED.format("9,000"))]
)
def test_what_is_not_conversation_is_told_when_it_is_more_than_a_quarter_of_what_is_too_long(
    fixed: int, says: str
) -> None:
    text = told(conversation([said("x" * 750)]), TokenBudget(100), "over_limit", fixed=fixed)
    assert text == f"Even with the current exchange alone, the request is over 100 tokens{says}. It is sent as it is."
    assert ("system text" in text) is bool(says)
    with pytest.raises(ContextOverflow) as caught:
        make_plan(conversation([said("x" * 750)]), KeepAll(), terms(fixed=fixed, window=700))
    assert f"The request is too long for m: it has about {750 + fixed:,} tokens{says}, and the window has 700." in str(
        caught.value
    )


def test_the_size_of_the_preamble_is_reported_as_the_provider_counts() -> None:
    of = record_anchor(conversation([said("x" * 100)]), Anchor(0, "m", "", 200, 400))
    text = told(of, TokenBudget(100), "over_limit", fixed=100)
    assert "(200 tokens are system text" in text


def test_several_limits_that_are_exceeded_are_all_named() -> None:
    of = conversation([said("x" * 50), *worked(0)[1:3]])
    assert "the request is over 2 messages and over 9 tokens. " in told(
        of, Combine(KeepMessages(2), Compactor(OverTokens(9), (DropOldest(),), OverTokens(9))), "over_limit"
    )


def test_what_is_shortened_is_told_in_the_right_number() -> None:
    for results, words in ((1, "1 long text is cut"), (2, "2 long texts are cut")):
        of = conversation([said("go"), *[entry for n in range(results) for entry in worked(n, "r" * 2_000)[1:3]]])
        text = told(of, TokenBudget(900, to=700), "shortened")
        assert text == f"The current exchange was shortened to fit: {words} to head and tail (over 900 tokens)."


def test_events_are_counted_in_words_too() -> None:
    of = conversation([*[happened("e" * 50) for _ in range(20)], said("go")])
    text = told(of, TokenBudget(500, to=400), "shortened")
    assert re.fullmatch(r".* was shortened to fit: \d\d events are left out \(over 500 tokens\)\.", text)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"scripted:model":"x"}', b"\xff"])
def test_a_window_that_can_t_be_read_is_unknown(data: bytes) -> None:
    assert read_windows(FOUR.add_record("window", data)) == {}


# Pins


def test_a_pinned_exchange_stays_whole_in_every_epoch() -> None:
    talk = Talk(KeepLast(4))
    calls = answers(None, calls=[("c1", "look", {"q": "bows"})])
    first = talk.say("", calls, answers("Bows are …"))
    talk.pin(first.turn_id)
    for _ in range(9):
        reply = talk.say()
        assert talk.sent[:4] == ["question 1", "calls", "about bows", "Bows are …"]
        assert len(talk.asked) <= 4
    assert reply.context is not None
    assert (reply.context.manifest[0].last, reply.context.manifest[0].reason) == (3, "pinned")
    assert reply.context.manifest[-1].reason == "kept"


def test_a_pinned_exchange_counts_towards_the_limits() -> None:
    talk = Talk(KeepLast(4))
    talk.pin(talk.say().turn_id)
    counts = []
    for _ in range(9):
        talk.say()
        counts.append(len(talk.asked))
    # A cut leaves it, the one before the current one, and that.
    assert counts == [2, 3, 4, 3, 4, 3, 4, 3, 4]


def test_a_pinned_exchange_stays_whole_where_others_are_digested() -> None:
    talk = Talk(TokenBudget(6_000, to=5_000, digest=DigestTools(keep=1)))
    work = [answers(None, calls=[("c1", "look", {"q": "x" * 400})]), answers("done")]
    talk.pin(talk.say("", *work).turn_id)
    digested = False
    for _ in range(12):
        talk.say("", *work)
        assert talk.sent[:4] == ["question 1", "calls", "about " + "x" * 400, "done"]
        digested = digested or any("done_so_far" in text or "→" in text for text in talk.sent)
    assert digested


def test_what_is_pinned_after_it_was_left_out_comes_back_with_the_next_request() -> None:
    talk = Talk(KeepLast(4))
    replies = [talk.say() for _ in range(5)]
    assert talk.asked == questions(4, 5)
    talk.pin(replies[1].turn_id)
    talk.say()
    assert talk.asked == questions(2, 4, 5, 6)
    talk.say()
    assert talk.asked == questions(2, 6, 7)


def test_what_is_pinned_after_it_was_digested_comes_back_whole() -> None:
    policy = TokenBudget(4_000, to=3_900, digest=DigestTools(keep=1))
    talk = Talk(policy)
    work = [answers(None, calls=[("c1", "look", {"q": "x" * 600})]), answers("done")]
    replies = []
    while not any("→" in text for text in talk.sent) if replies else True:
        replies.append(talk.say("", *work))
        assert len(replies) < 20
    talk = talk.go_on(policy)
    assert "→" not in "".join(entry.native.decode() for entry in talk.transcript)
    talk.pin(replies[0].turn_id)
    talk.say()
    assert talk.sent[:4] == ["question 1", "calls", "about " + "x" * 600, "done"]


def test_a_pin_of_what_is_there_begins_no_epoch() -> None:
    talk = Talk(KeepLast(4))
    talk.say()
    talk.pin(talk.say().turn_id)
    talk.say()
    assert [record.kind for record in talk.transcript.records].count("epoch") == 0


def test_what_is_unpinned_is_left_out_with_the_next_epoch() -> None:
    talk = Talk(KeepLast(4))
    first = talk.say()
    talk.pin(first.turn_id)
    for _ in range(4):
        talk.say()
    assert talk.asked == questions(1, 4, 5)
    talk.unpin(first.turn_id)
    talk.say()
    assert talk.asked == questions(1, 4, 5, 6)
    talk.say()
    assert talk.asked == questions(6, 7)


def test_an_entry_is_pinned_by_its_own_id_and_unpinned_by_it() -> None:
    talk = Talk(KeepLast(2, to=2))
    first = talk.say()
    answer = first.entries[1].id
    talk.pin(answer)
    assert list_pinned_positions(talk.transcript) == (1,)
    for _ in range(3):
        talk.say()
    assert talk.asked == questions(1, 4)
    talk.unpin(answer)
    assert list_pinned_positions(talk.transcript) == ()


def test_a_pin_by_an_entry_is_undone_by_the_id_of_its_turn() -> None:
    talk = Talk(KeepLast(4))
    first = talk.say()
    talk.pin(first.entries[1].id)
    talk.unpin(first.turn_id)
    for _ in range(4):
        talk.say()
    assert talk.asked == questions(4, 5)


def test_an_event_is_pinned_with_the_exchange_after_it() -> None:
    talk = Talk(KeepLast(4))
    talk.state = talk.chat.note("It rains", state=talk.state)
    talk.pin(talk.transcript[0].id)
    for _ in range(5):
        talk.say()
    assert "It rains" in talk.sent[0]
    assert talk.asked == questions(1, 4, 5)


def test_pinning_twice_is_pinning_once() -> None:
    talk = Talk(KeepLast(4))
    first = talk.say()
    talk.pin(first.turn_id)
    talk.pin(first.turn_id)
    talk.unpin(first.turn_id)
    assert list_pinned_positions(talk.transcript) == ()


@pytest.mark.parametrize("name", ["", "missing", "missing-0"])
def test_an_unknown_id_is_refused_by_name(name: Any) -> None:
    talk = Talk(KeepAll())
    talk.say()
    for change in (talk.pin, talk.unpin):
        with pytest.raises(InputError, match=r"No entry or turn|is not pinned") as caught:
            change(name)
        assert repr(name) in str(caught.value)
    assert not list_pinned_positions(talk.transcript)


@pytest.mark.parametrize("name", [None, 3, b"t1-0", ["t1-0"]])
def test_what_is_no_text_is_no_id(name: Any) -> None:
    talk = Talk(KeepAll())
    talk.say()
    for change, what in ((talk.pin, "pinned"), (talk.unpin, "unpinned")):
        with pytest.raises(InputError, match=f"to be {what} must be named by the id .*, not by {type(name).__name__}"):
            change(name)


def test_an_id_that_a_state_has_shed_may_have_left_it() -> None:
    chat = Chat(Scripted(*[says("a")] * 4), policy=KeepLast(2), carry="context")
    first = chat.send("0")
    with pytest.raises(InputError, match="No entry or turn") as caught:
        chat.pin("missing", state=first.state)
    assert "join" not in str(caught.value)
    state = first.state
    for n in range(3):
        state = chat.send(str(n), state=state).state
    with pytest.raises(InputError, match="may have left this state: `join` puts shed entries back"):
        chat.pin(first.turn_id, state=state)


def test_a_pin_makes_a_new_revision() -> None:
    talk = Talk(KeepAll())
    reply = talk.say()
    before = talk.transcript.revision
    talk.pin(reply.turn_id)
    assert talk.transcript.revision == before + 1


@pytest.mark.parametrize(
    ("policy", "fits"),
    [
        (KeepLast(6), 2),
        (KeepLast(6, to=4), 3),
        (KeepLast(3, sliding=True), 2),
        (KeepLast(1), 0),
        (KeepMessages(10), 2),
        (Compactor(AnyOf(OverExchanges(9), OverMessages(99)), (DropOldest(),), OverExchanges(4)), 3),
        (KeepAll(), 8),
    ],
)
def test_pins_may_take_what_a_cut_leaves_and_no_more(policy: Policy, fits: int) -> None:
    talk = Talk(policy)
    replies = [talk.say() for _ in range(8)]
    for reply in replies[:fits]:
        talk.pin(reply.turn_id)
    for reply in replies[fits : fits + 1]:
        with pytest.raises(PinRefused, match="the pinned exchanges and the current one would be over"):
            talk.pin(reply.turn_id)
    assert len(list_pinned_positions(talk.transcript)) == fits
    talk.say()


@pytest.mark.parametrize("policy", [TokenBudget(2_000), TokenBudget(1_000, sliding=True), WindowShare(0.2, to=0.1)])
def test_tokens_are_a_limit_for_pins_too(policy: Policy) -> None:
    talk = Talk(policy, window=10_000)
    short, long = talk.say("x" * 400), talk.say("y" * 600)
    talk.pin(short.turn_id)
    with pytest.raises(PinRefused, match=r"over (1,000 tokens|10% of the window)"):
        talk.pin(long.turn_id)


def test_the_window_is_a_limit_for_pins_too() -> None:
    talk = Talk(KeepAll(), window=2_000)
    short, long = talk.say("x" * 400), talk.say("y" * 600)
    talk.pin(short.turn_id)
    with pytest.raises(PinRefused, match="would be over 1,000 tokens, which is the size that the policy cuts to"):
        talk.pin(long.turn_id)


def test_one_exchange_is_one_in_words() -> None:
    talk = Talk(KeepLast(2))
    with pytest.raises(PinRefused, match="would be over 1 exchange, which"):
        talk.pin(talk.say().turn_id)


def test_a_refused_pin_leaves_the_state_as_it_was() -> None:
    talk = Talk(KeepLast(1))
    reply = talk.say()
    before = talk.state
    with pytest.raises(PinRefused):
        talk.pin(reply.turn_id)
    assert talk.state == before
    assert not list_pinned_positions(talk.transcript)


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        (KeepLast(1), 1),
        (KeepLast(2, to=2), 2),
        (KeepMessages(3), 2),
        (KeepMessages(2), 1),
        (TokenBudget(99, sliding=True), None),
    ],
)
def test_pins_that_do_not_fit_under_a_smaller_policy_are_left_out_and_the_caller_is_told(
    policy: Policy, left: int | None
) -> None:
    talk = Talk(KeepLast(9, to=8))
    for reply in [talk.say() for _ in range(4)]:
        talk.pin(reply.turn_id)
    talk = talk.go_on(policy)
    reply = talk.say()
    assert "pins_left_out" in [notice.kind for notice in reply.notices]
    assert talk.asked[-1] == "question 5"
    assert len(talk.asked) == left if left else reply.context is not None and reply.context.tokens <= 99


def test_pins_that_do_not_fit_are_reported_once() -> None:
    talk = Talk(KeepLast(9, to=8))
    for reply in [talk.say() for _ in range(4)]:
        talk.pin(reply.turn_id)
    talk = talk.go_on(KeepLast(3))
    told = [[notice.kind for notice in talk.say().notices].count("pins_left_out") for _ in range(3)]
    assert told == [1, 0, 0]


def test_under_the_larger_policy_they_are_there_again() -> None:
    talk = Talk(KeepLast(4))
    talk.pin(talk.say().turn_id)
    for _ in range(3):
        talk.say()
    talk = talk.go_on(KeepLast(1))
    talk.say()
    assert talk.asked == questions(5)
    talk = talk.go_on(KeepLast(4))
    talk.say()
    assert talk.asked == questions(1, 5, 6)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"place":"x","on":true}', b'{"place":99,"on":true}', b'{"place":-1,"on":true}']
)
def test_a_forged_pin_does_no_harm(data: bytes) -> None:
    of = conversation(*[talked(n) for n in range(5)], [said("now")]).add_record("pin", data)
    made = make_plan(of, KeepLast(4), terms())
    assert made.epoch.exchanges == 2
    of = begin_epoch(of, made.epoch)
    assert not make_plan(of, KeepLast(4), terms()).begins


def test_a_pin_in_a_conversation_that_is_sealed_goes_through_the_seal() -> None:
    seal = Seal({"k": Seal.new_key()})
    chat = Chat(Scripted(says("a")), seal=seal)
    reply = chat.send("x")
    state = chat.pin(reply.turn_id, state=reply.state)
    assert list_pinned_positions(decode(seal.open(state), wires=NAMES)) == (0,)
