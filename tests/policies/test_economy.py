"""Test that a summary is made when it pays, by prices and by the clock, and what each decision records."""

from __future__ import annotations

from typing import Any

import httpx2
import msgspec
import pytest

from longtalk import Chat
from longtalk._util import json_bytes
from longtalk.context.costs import CostReceipt, Meter, Ratios
from longtalk.context.measure import Terms
from longtalk.context.planning import make_plan
from longtalk.errors import InputError
from longtalk.memory.summary import Summary
from longtalk.models.call_cost import FREE, Prices
from longtalk.policies import Combine, Economy, KeepLast
from longtalk.state.codec import decode, encode
from longtalk.testing import says
from longtalk.transcript.transcript import Record, Transcript
from longtalk.usage import Usage
from longtalk.wires import NAMES
from tests.policies.views import conversation, said, talked, terms
from tests.support.summary_model import WORDS, SummaryModel, has_summary, list_notice_kinds

NOW = 10_000_000
POLICY = Economy(length=50)
USUAL = Prices(input=1, output=5, cache_read=0.1, cache_write=1.25)


def talk(carried: float = 0.0, *, ago: int = 1_000, **fields: Any) -> Transcript:
    """40 exchanges of 20 tokens. The model was called before the last one, so many milliseconds ago."""
    transcript = conversation(*[talked(n) for n in range(40)])
    made = {"epoch": 0, "model": "m", "preamble": "", "size": 78, "at": NOW - ago, "carried": carried, "calls": 39}
    return transcript.add_record("meter", json_bytes.encode(Meter(**{**made, **fields})))  # type: ignore[arg-type]


def at(**fields: Any) -> Terms:
    return msgspec.structs.replace(terms(), **{"prices": USUAL, "now": NOW, **fields})


def is_due(transcript: Transcript, of: Terms | None = None) -> bool:
    return make_plan(transcript, POLICY, of or at(), may_ask=True).summary_request is not None


# When

# Old are 37 exchanges, 740 tokens; 40 stay that were sent before, 20 are new.
# Warm: asking 74 + 145 + 250, the first request 1.25 × 110, to go on 78 + 25. That is 503.5; 74 come with this call.


@pytest.mark.parametrize(("carried", "due"), [(0.0, False), (429.0, False), (430.0, True)])
def test_a_summary_is_due_when_carrying_has_cost_as_much(carried: float, due: bool) -> None:
    assert is_due(talk(carried)) is due


def test_what_was_carried_is_added_up() -> None:
    made = make_plan(talk(100.0), POLICY, at())
    assert made.meter is not None
    assert made.meter.carried == pytest.approx(174)
    assert (made.meter.calls, made.meter.size, made.meter.epoch) == (40, 80, 0)


@pytest.mark.parametrize(("ago", "due"), [(299_000, False), (301_000, True), (10**9, True)])
def test_a_cache_that_has_run_out_makes_it_due(ago: int, due: bool) -> None:
    assert is_due(talk(ago=ago)) is due


def test_how_long_a_cache_lasts_is_the_model_s() -> None:
    assert is_due(talk(ago=50_000), at(cache_seconds=30))
    assert not is_due(talk(ago=3_000_000), at(cache_seconds=3_600))


def test_another_preamble_is_not_in_the_cache() -> None:
    assert is_due(talk(), at(preamble="other"))


def test_another_model_has_nothing_in_its_cache() -> None:
    assert is_due(talk(), at(model="other"))


def test_a_clock_that_goes_backwards_is_not_a_cold_cache() -> None:
    assert not is_due(talk(ago=-10_000))
    assert not is_due(talk(ago=-(10**15)))


def test_prices_decide() -> None:
    # Nothing is gained by a summary that costs more than all that it could save.
    assert not is_due(talk(2_000.0), at(prices=Prices(input=1, output=500, cache_read=0.1, cache_write=1.25)))
    # A cache read costs as much as an uncached token, and a summary costs almost nothing.
    assert is_due(talk(), at(prices=Prices(input=1, output=0.1, cache_read=1, cache_write=1)))


def test_what_is_no_longer_than_a_summary_stays() -> None:
    transcript = conversation(*[talked(n) for n in range(5)])
    assert not is_due(
        transcript.add_record("meter", json_bytes.encode(Meter(epoch=0, model="m", preamble="", size=8, carried=1e9)))
    )


def test_the_last_two_before_the_current_one_stay() -> None:
    wants = make_plan(talk(435.0), POLICY, at(), may_ask=True).summary_request
    assert wants is not None
    assert wants.stop == 74
    assert wants.predicted == pytest.approx(469 + 137.5)


def test_near_the_end_of_the_window_it_is_due_whatever_it_costs() -> None:
    assert not is_due(talk(), at(window=1_100))
    assert is_due(talk(), at(window=990))


def test_nothing_is_spent_again_in_a_new_epoch() -> None:
    transcript = talk(435.0)
    wants = make_plan(transcript, POLICY, at(), may_ask=True).summary_request
    assert wants is not None
    summary = Summary(text="s" * 50, covers=((0, 74),), tokens=50, predicted=wants.predicted)
    transcript = transcript.add_record("summary", json_bytes.encode(summary))
    made = make_plan(transcript, POLICY, at())
    assert made.begins
    assert made.meter is not None
    assert made.meter.carried == 0
    receipt = made.receipt
    assert receipt is not None
    assert (receipt.epoch, receipt.at, receipt.before, receipt.after) == (80, NOW, 800, 50 + 60)
    assert (receipt.predicted, receipt.actual, receipt.spared) == (pytest.approx(606.5), None, 690)
    assert receipt.carried == pytest.approx(435 + 74)
    assert receipt.reason.startswith("resending older exchanges has cost as much as a summary")


@pytest.mark.parametrize(
    "make", [lambda: Economy(length=10), lambda: Economy(timeout=0), lambda: Economy(background=1)]
)
def test_what_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(InputError):
        make()


# Unknown prices


def notices(transcript: Transcript, of: Terms, **how: Any) -> list[str]:
    return [notice.kind for notice in make_plan(transcript, POLICY, of, **how).notices]


def test_assumed_prices_are_reported_once() -> None:
    first = conversation([said("hello")])
    assert notices(first, at(prices=None)) == ["prices_assumed"]
    assert notices(first, at(prices=None), settled=True) == []
    assert notices(talk(), at(prices=None)) == []


@pytest.mark.parametrize(
    ("model", "given", "why"),
    [
        (
            "openai-chat:gpt-5.6",
            {"base_url": "http://127.0.0.1:9/v1"},
            "the provider's own server, and this is another",
        ),
        ("openai-chat:gpt-5.6", {"api_key": "k", "options": {"service_tier": "flex"}}, "the options of this call"),
        ("openai-chat:nobody", {"api_key": "k"}, "not in the list of models"),
        ("compatible:gpt-5.6", {"base_url": "http://127.0.0.1:9/v1"}, "not in the list of models"),
    ],
)
def test_the_notice_says_why_prices_are_unknown(model: str, given: dict[str, Any], why: str) -> None:
    answer = httpx2.MockTransport(lambda _: httpx2.Response(200, content=says("Hello.").body))
    chat = Chat(model, policy=Economy(length=200), client=httpx2.Client(transport=answer), **given)
    (text,) = [notice.text for notice in chat.send("Hello").notices if notice.kind == "prices_assumed"]
    assert why in text


@pytest.mark.parametrize("prices", [USUAL, FREE])
def test_known_and_free_prices_are_not_reported(prices: Prices) -> None:
    assert notices(conversation([said("hello")]), at(prices=prices)) == []


@pytest.mark.parametrize("prices", [None, FREE])
@pytest.mark.parametrize(("carried", "due"), [(429.0, False), (430.0, True)])
def test_unknown_prices_are_assumed_to_be_the_usual_ones(prices: Prices | None, carried: float, due: bool) -> None:
    assert is_due(talk(carried), at(prices=prices)) is due


def test_a_conversation_is_told_once_also_when_it_is_long() -> None:
    chat = Chat(SummaryModel(), policy=Economy(length=200))
    told, state = list[str](), None
    for number in range(6):
        reply = chat.send(f"{number}: {WORDS}", state=state)
        state, told = reply.state, told + list_notice_kinds(reply)
    assert told == ["prices_assumed"]


# A whole conversation


class Billed(SummaryModel):
    """Reports what a provider with a cache would: all but the last two messages is read from there."""

    def send(self, body: bytes) -> bytes:
        made = super().send(body)
        sent = len(body) // 4
        new = min(sent, 100)
        usage = {
            "prompt_tokens": sent,
            "completion_tokens": 60,
            "prompt_tokens_details": {"cached_tokens": sent - new},
        }
        answer = json_bytes.value(made)
        return says(answer["choices"][0]["message"]["content"], usage=usage).body


def test_each_decision_leaves_a_receipt_of_what_was_expected_and_what_came_of_it() -> None:
    teller = Billed(prices=USUAL)
    chat = Chat(teller, policy=Economy(length=100))
    state, receipts = None, {}
    for number in range(40):
        before = len(teller.asked)
        reply = chat.send(f"{number}: {WORDS}", state=state)
        state = reply.state
        transcript = decode(state, wires=NAMES)
        receipt = transcript.records.read_latest("receipt", CostReceipt)
        assert (receipt is not None) == (len(teller.asked) > 0)
        if len(teller.asked) > before:
            assert receipt is not None
            receipts[receipt.epoch] = receipt
            summary = transcript.records.read_latest("summary", Summary)
            assert summary is not None
            assert receipt.predicted == summary.predicted
            sent = len(teller.talked[-1]) // 4
            first = Usage(input=sent, cached=sent - 100)
            assert receipt.actual == pytest.approx(Ratios().weigh(summary.usage) + Ratios().weigh(first))
            assert receipt.ratios.unit == pytest.approx(1e-6)
            assert receipt.after < receipt.before
            assert has_summary(teller.talked[-1])
    assert len(receipts) > 1
    assert [each.calls_before for each in receipts.values()] == sorted(
        {each.calls_before for each in receipts.values()}
    )
    # What the first one has saved is known when the next one begins.
    saved = [each.saved_before for each in receipts.values()]
    assert saved[0] == 0 < saved[-1]
    meter = transcript.records.read_latest("meter", Meter)
    assert meter is not None
    assert meter.calls == 40


def test_economy_costs_less_than_sending_everything() -> None:
    """By what a provider bills, over a long talk."""
    spent = {}
    for name, policy in (("all", None), ("economy", Economy(length=100))):
        teller = Billed(prices=USUAL)
        chat = Chat(teller, **({"policy": policy} if policy else {}))
        state, total = None, 0.0
        for number in range(80):
            reply = chat.send(f"{number}: {WORDS}", state=state)
            state = reply.state
            assert reply.cost is not None
            total += reply.cost.total
        spent[name] = total
    assert spent["economy"] < spent["all"]


# Hostile ones

HUGE = 2**64 - 1
PLAIN: dict[str, dict[str, Any]] = {
    "meter": {"epoch": 0, "model": "scripted:model", "preamble": "", "size": 4},
    "receipt": {"epoch": 0, "at": 0, "reason": "", "before": 9, "after": 5, "carried": 0, "predicted": 0},
}
PLAIN["receipt"]["ratios"] = [1, 1, 1]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("meter", {"size": -5}),
        ("meter", {"size": HUGE}),
        ("meter", {"size": 10**30}),
        ("meter", {"calls": HUGE}),
        ("meter", {"calls": -(2**63)}),
        ("meter", {"at": HUGE}),
        ("meter", {"at": -(2**63)}),
        ("meter", {"carried": 1e308, "saved": 1e308}),
        ("meter", {"carried": -1e308, "saved": -1e308}),
        ("meter", {"carried": "NaN"}),
        ("meter", {"epoch": HUGE}),
        ("meter", {"model": 5}),
        ("receipt", {"before": HUGE}),
        ("receipt", {"before": -(2**63), "after": 2**63}),
        ("receipt", {"ratios": [1e308, 1e308, 1e308, 1e308], "saved": 1e308}),
        ("receipt", {"ratios": [-1, -1, -1, -1]}),
        ("receipt", {"ratios": []}),
        ("receipt", {"calls": "many"}),
    ],
)
def test_absurd_numbers_stop_no_turn(kind: str, said: dict[str, Any]) -> None:
    teller = Billed(prices=USUAL, window=8_000)
    chat = Chat(teller, policy=Economy(length=100))
    state = None
    for number in range(30):
        if number in (3, 20):
            transcript = decode(state, wires=NAMES)
            records = [record for record in transcript.records if record.kind != kind]
            bad = Record(kind, transcript[-1].id, 0, json_bytes.encode({**PLAIN[kind], **said}))
            state = encode(transcript.with_records((*records, bad)))
        reply = chat.send(f"{number}: {WORDS * 5}", state=state)
        state = reply.state
        assert reply.context.tokens > 0
        assert list_notice_kinds(reply) in ([], ["window"])
    assert len(decode(state, wires=NAMES)) == 60


def test_account_is_kept_whichever_policy_cuts_first() -> None:
    for policy in (Combine(KeepLast(5, sliding=True), Economy()), Combine(Economy(), KeepLast(5, sliding=True))):
        made = make_plan(talk(), policy, terms(), may_ask=True)
        assert made.begins
        assert made.meter is not None
        assert made.meter.calls == 40
