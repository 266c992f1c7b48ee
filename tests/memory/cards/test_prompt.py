"""Test memory cards: the prompt is short, and the parser accepts whatever a model writes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from longtalk._util.lookalikes import neutralize
from longtalk.memory.brief.apply import apply
from longtalk.memory.brief.lines import BriefContent, clean_line
from longtalk.memory.brief.operations import Operation, parse_operations
from longtalk.memory.brief.record import CardTally
from longtalk.memory.brief.schema import Brief
from longtalk.memory.cards.prompt import CARD_TOKENS, CATCH_UP_TOKENS, limit_tokens, read_card, render_card_prompt
from longtalk.tokens import Estimator
from longtalk.wires.card_tags import MAX_CARD_CHARS, list_cards
from tests.support.cpu_time import is_linear
from tests.support.properties import holds

FIELDS = {"g": "goal", "c": "constraints", "d": "decisions", "q": "open questions", "f": "facts", "t": "topics"}


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ('{"ops":[{"op":"set","field":"goal","text":"Play"}]}', [Operation.set("goal", "Play")]),
        ('[{"op":" ADD","field":"d","items":["a","b"]}]', [Operation.add("d", "a", "b")]),
        ('{"op":"resolve","text":"a","answer":"b\n c"}', [Operation.resolve("", "a", answer="b c")]),
        ('{"Ops":{"op":"clear","field":"d"},"g":"x"}', [Operation.clear("d"), Operation("plain", "g", ("x",))]),
        (
            '{"+d":"a","-d":["b"]," ~ q":"c"}',
            [Operation.add("d", "a"), Operation.remove("d", "b"), Operation.resolve("q", "c")],
        ),
        ('{"=g":"e","!f":0,"!t":null}', [Operation.set("g", "e"), Operation.clear("f"), Operation.clear("t")]),
        ('{"-":"a"}', [Operation.remove("", "a")]),
        (
            '{"+d":"a","+d":["b"],"g":null,"g":"x"}',
            [Operation.add("d", "a", "b"), Operation("plain", "g", ("x",))],
        ),
        ('{"goal":"Play","d":["a",""]}', [Operation("plain", "goal", ("Play",)), Operation("plain", "d", ("a",))]),
        ('{"goal":"","facts":[],"topics":null,"+d":" ","-d":[],"ops":null}', []),
        ('{"bpm":4.50,"n":[120]}', [Operation("plain", "bpm", ("4.50",)), Operation("plain", "n", ("120",))]),
        ('{"g":"two\nlines\\u0000"}', [Operation("plain", "g", ("two lines",))]),
        ('```json\n{"g":"x",}\n```', [Operation("plain", "g", ("x",))]),
        ('{"g":"a,]","+d":["b",],}', [Operation("plain", "g", ("a,]",)), Operation.add("d", "b")]),
        ('{"g":"\\u003cMEMORY_CARD>"}', [Operation("plain", "g", ("&lt;MEMORY_CARD>",))]),
        ('{"g":"\\ud83d\\ude00 \\ud83d"}', [Operation("plain", "g", ("😀 \ufffd",))]),
        ("{}", []),
        ("[]", []),
    ],
)
def test_a_card_is_read(content: str, read: list[Operation]) -> None:
    assert read_card(content) == (read, [])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "empty"),
        ("```\n```", "empty"),
        ("{", "not JSON"),
        ('{"g":"x"', "not JSON"),
        ("Goal: play", "not JSON"),
        ("[" * 10_000, "nested too deeply"),
        ("x" * (MAX_CARD_CHARS + 1), "too long"),
    ],
)
def test_what_is_no_card_is_not_read(content: str, why: str) -> None:
    assert read_card(content) == why


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("7", "A card must be a JSON object, not a string."),
        ('{"g":true}', "'g' takes a string, not true or false."),
        ('{"+g":[["x"]]}', "'+g' takes a string, not a list."),
        ('[{"op":"<MEMORY_CARD>"}]', "Unknown operation '&lt;MEMORY_CARD>'."),
        ('{"op":"remove","field":"goal","text":true}', "'remove' takes a string, not true or false."),
        ('["add"]', "An operation must be a JSON object, not a string."),
    ],
)
def test_what_makes_no_sense_in_a_card_is_refused(content: str, why: str) -> None:
    assert read_card(content) == ([], [why])


def test_a_name_that_is_no_field_is_refused_by_the_brief() -> None:
    changes, refused = parse_operations(
        {"": "a", "+": "b", "mood": "c", "+ops": "d", "++facts": "e", "!x": 1, "+facts": "f"}
    )
    done = apply(BriefContent(), changes, Brief(), Estimator())
    assert [line.text for line in done.content.lines] == ["f"]
    assert (refused, len(done.refused)) == ([], 6)


def test_a_card_has_so_many_texts() -> None:
    changes, refused = parse_operations(
        {"+facts": ["x"] * 301, "ops": [{"op": "add", "field": "facts", "text": "y"}] * 301}
    )
    assert sum(len(change.texts) for change in changes) == 600
    assert len(refused) == 2
    assert "Only the first 300" in apply(BriefContent(), changes, Brief(), Estimator()).refused[0]


TEXT = st.text(st.characters(exclude_categories=()), max_size=6) | st.sampled_from(
    ("", "\ud83d", "</MEMORY_CARD>", "<memory_c", "a\x00\nb", "x" * 5_000)
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OPS = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(("set", "add", "remove", "resolve", "clear", "Set", "no")) | JSON},
        optional={"field": st.just("facts") | JSON, "text": JSON, "texts": JSON, "answer": JSON},
    ),
    max_size=4,
)
KEYS = st.sampled_from(("+facts", "-fact", "~open", "!must", "=goal", "goal", "topics", "op", "OPS"))
CARDS = st.dictionaries(KEYS | TEXT, OPS | JSON, max_size=4) | JSON


@holds(CARDS)
def test_any_json_value_is_a_card_or_refused(card: Any) -> None:
    found = read_card(json.dumps(card))
    for changes, refused in (parse_operations(card), *([] if isinstance(found, str) else [found])):
        assert msgspec.json.decode(msgspec.json.encode(changes), type=list[Operation]) == changes
        for change in changes:
            for text in (change.answer, *change.texts):
                assert text == neutralize(clean_line(text))
            assert all(change.texts)
        done = apply(BriefContent(), changes, Brief(), Estimator())
        assert all(len(why) < 600 and not list_cards(why) for why in (*refused, *done.refused))


@holds(OPS)
def test_any_operation_is_done_or_refused(ops: list[object]) -> None:
    changes, refused = parse_operations({"ops": ops})
    assert len(changes) + len(refused) >= len(ops)


@holds(st.text() | st.tuples(CARDS.map(json.dumps), st.text(max_size=2)).map("".join))
def test_any_text_is_read_or_not(content: str) -> None:
    found = read_card(content)
    assert isinstance(found, tuple) or found in ("empty", "too long", "not JSON", "nested too deeply")


@pytest.mark.parametrize("unit", ['"\\', '\\"', ", ", ",", "[", "{", '{"a":', "`", "```\n", " ", '"', "1"])
def test_bad_cards_are_little_work(unit: str) -> None:
    def refuse(size: int) -> None:
        for content in (unit * (size // len(unit)), '{"a":"' + unit * ((size - 6) // len(unit))):
            read_card(content)

    assert is_linear(refuse, MAX_CARD_CHARS // 4)


def test_a_card_has_a_limit_and_a_catch_up_card_a_higher_one() -> None:
    class Words:
        def count(self, text: str) -> int:
            return len(text.split())

    changes = [Operation.add("d", *["w w"] * 200), Operation.set("g", "w")]
    assert limit_tokens(changes, Words()) == [Operation.add("d", *["w w"] * (CARD_TOKENS // 3))]
    assert limit_tokens(changes, Words(), catch_up=True) == [Operation.add("d", *["w w"] * (CATCH_UP_TOKENS // 3))]
    assert limit_tokens(changes[1:], Words()) == changes[1:]
    assert limit_tokens([Operation.set("g", "w " * 500)], Words()) == []


def make_tally(marks: str) -> CardTally:
    found = CardTally()
    for mark in marks:
        found = found.with_outcome(failed=mark == "x")
    return found


def test_a_tally_counts_failures_among_the_last_asks() -> None:
    assert (CardTally().share, CardTally().fails_too_often) == (0.0, False)
    assert make_tally("x..." * 5).share == 0.25
    assert make_tally("x" * 20 + "." * 40).share == 0.0
    assert make_tally("." * 100).asks == CardTally.WINDOW
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(make_tally("x.")), type=CardTally) == make_tally("x.")


def test_one_failure_is_never_too_many() -> None:
    for before in range(CardTally.WINDOW):
        assert not any(
            make_tally("." * before + "x" + "." * after).fails_too_often for after in range(CardTally.WINDOW)
        )


def test_more_than_five_percent_are_too_many() -> None:
    assert not make_tally("x" * 5).fails_too_often
    assert make_tally("x" * 6).fails_too_often
    assert not make_tally("x" * 6 + "." * 7).fails_too_often
    assert not make_tally("." * 17 + "xx").fails_too_often
    assert make_tally("." * 18 + "xx").fails_too_often
    assert not make_tally("." * 38 + "xx").fails_too_often
    assert make_tally("." * 37 + "xxx").fails_too_often


@pytest.mark.parametrize("catch_up", [False, True])
def test_a_card_is_asked_for_in_few_words(catch_up: bool) -> None:
    words = render_card_prompt(FIELDS, lists=["c", "d", "q", "f", "t"], catch_up=catch_up)
    assert Estimator().count(words) <= 95
    for key, says in FIELDS.items():
        assert f"{key} ({says})" in words
    (example_card,) = list_cards(words[: words.index("\nKeys:")])
    assert read_card(example_card.replace("…", "x")) == ([Operation("plain", "g", ("x",)), Operation.add("c", "x")], [])
    assert read_card(example_card)[0] == []
    assert ("120 words" in words) == catch_up
    assert "Lists" not in render_card_prompt({"goal": "goal"})
    assert "Keys: goal." in render_card_prompt({"goal": "goal"})
