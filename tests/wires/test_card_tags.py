"""The tags of a memory card: a card at the end of an answer is hidden, however the answer is split."""

from __future__ import annotations

import codecs
import random
import re
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import example
from hypothesis import strategies as st

from longtalk._util.lookalikes import CARD as CARD_TAG
from longtalk._util.lookalikes import neutralize
from longtalk.wires.card_tags import MAX_CARD_CHARS, CardFilter, list_cards, remove_cards
from tests.support.cpu_time import is_linear
from tests.support.properties import holds

OPEN, CLOSE = "<MEMORY_CARD>", "</MEMORY_CARD>"
CARD = f'{OPEN}{{"g":"x"}}{CLOSE}'
B = r"[ \t\r\n]?"
TAG = re.compile(rf"<{B}/?{B}memory\\?_card{B}/?{B}>", re.I)


def streamed(pieces: list[str]) -> tuple[str, CardFilter]:
    cards = CardFilter()
    shown = "".join(map(cards.feed, pieces))
    return shown + cards.end(), cards


def split(text: str, *places: int) -> list[str]:
    ends = [0, *sorted(places), len(text)]
    return [text[start:stop] for start, stop in pairwise(ends)]


G = '{"g":"x"}'
SHOWN = [
    ("Text.", "Text.", []),
    (f"Text.\n\n{CARD}", "Text.\n\n", [G]),
    (f"Text.\n\n{CARD}\n", "Text.\n\n\n", [G]),
    ("Text.\n< memory_card >{}</Memory_Card >", "Text.\n", ["{}"]),
    ("Text.<MEMORY\\_CARD>{}</MEMORY\\_CARD>", "Text.", ["{}"]),
    (f"Text.{OPEN}not JSON{CLOSE}", "Text.", ["not JSON"]),
    (f"One.\n{OPEN}a{CLOSE}\n\n{OPEN}b{CLOSE} ", "One.\n\n\n ", ["a", "b"]),
    (f"Text.\n{OPEN}{{}}", "Text.\n", ["{}"]),
    (f"Text.\n{OPEN}{{}}</MEMORY_CA", "Text.\n", ["{}"]),
    (f"Text.\n{OPEN}```json\n{{", "Text.\n", ["```json\n{"]),
    (f"Text.\n{OPEN}", "Text.\n", [""]),
    ("Text.\n\n<MEMORY_CA", "Text.\n\n", []),
    ("Text.<MEMO", "Text.", []),
    ("None <MEMORY_CARD/>", "None ", [""]),
    (f"A {OPEN}{G}{OPEN}2{CLOSE}", "A ", [G, "2"]),
    (f"A {CARD}{CLOSE}", "A ", [G]),
    (f"{OPEN}a<MEMORY_CARD/>", "", ["a"]),
    (f"```json\n{CARD}\n```", "```json\n\n```", [G]),
    (f"`{CARD}`", "``", [G]),
    (f"{CARD}{' ' * 20}", " " * 20, [G]),
    (f"{CARD} first, {CARD}", f"{CARD} first, ", [G]),
    (f"Cards begin with {OPEN}. {CARD}", f"Cards begin with {OPEN}. ", [G]),
    (f"Cards begin with `{OPEN}`. {CARD}", f"Cards begin with `{OPEN}`. ", [G]),
    (f'{OPEN}{{"f":"`{OPEN}` opens"}}{CLOSE}', "", [f'{{"f":"`{OPEN}` opens"}}']),
    (CARD, "", [G]),
    *(
        (text, text, [])
        for text in (
            *("", "a  \n ", "Is a <mem", "#include <memory>", "atomic<memory_order> x", "<MEMORY_CARDS>"),
            *(f"One {CARD} two", f"One{CARD}two", f"{CARD}\n\nText.", f"{CARD}{CARD}."),
            *(f"Stray {CLOSE} tag", f"Stray {CLOSE}", f"A {OPEN}1{OPEN}2{CLOSE} b {CLOSE}c"),
            *(
                f"Cards begin with `{OPEN}`",
                f"Cards begin with `{OPEN}` and end with `{CLOSE}`.",
                f"`{OPEN}` {CARD} is one.",
            ),
            *(f"The {OPEN} tag", f"The {OPEN}, then JSON", f"```\n{CARD}\n```\nThat is all."),
            *(f"<mem{CARD}ory_card>", f"a <{CARD} b", f"<mem{CARD}<b>", f"{OPEN}a<MEMORY_CARD/> b"),
        )
    ),
]


@pytest.mark.parametrize(("text", "shown", "contents"), SHOWN)
def test_a_card_is_hidden_and_kept(text: str, shown: str, contents: list[str]) -> None:
    assert remove_cards(text) == shown
    assert list_cards(text) == contents


@pytest.mark.parametrize(("text", "shown", "contents"), SHOWN)
def test_where_a_stream_is_split_does_not_matter(text: str, shown: str, contents: list[str]) -> None:
    for one in range(len(text) + 1):
        for two in range(one, len(text) + 1):
            found, cards = streamed(split(text, one, two))
            assert (found, cards.cards) == (shown, contents)
    found, cards = streamed(list(text))
    assert (found, cards.cards) == (shown, contents)


PIECES = st.sampled_from(
    [
        *(OPEN, CLOSE, "< memory_card >", "</Memory_Card\t>", "<MEMORY\\_CARD>", "<MEMORY_CARD/>", "< / MEMORY_CARD>"),
        *("<", "<<", "</", ">", "<MEM", "ORY_CARD>", "<MEMORY_", "CARD>", "<MEMORY_CARD", "MEMORY_CARD >", "/", "\\_"),
        *(" ", "\n", "\n\n", " " * 9, " " * 30, "\t", "\u00a0", "\u200b", "x", "Text.", "🎻", "弓", "é"),
        *('{"g":"x"}', '"', "```", "```json\n", "\n```\n", "\ud83d"),
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=4), max_size=14).map("".join)


OPENING = rf"<{B}memory\\?_card{B}>(?!`(?!``))"
CLOSING = rf"(?:<{B}/{B}memory\\?_card{B}/?{B}>|<{B}memory\\?_card{B}/{B}>)"
CLOSED = re.compile(rf"(.*){OPENING}(?:(?!{OPENING}|{CLOSING}).)*{CLOSING}([ \t\r\n`]*)", re.I | re.S)
EMPTY = re.compile(rf"(.*)<{B}/?{B}memory\\?_card{B}/{B}>([ \t\r\n`]*)", re.I | re.S)
EXTRA = re.compile(rf"(.*{CLOSING}[ \t\r\n`]*){CLOSING}([ \t\r\n`]*)", re.I | re.S)
UNCLOSED = re.compile(rf"(.*){OPENING}(?:(?!{OPENING}|{CLOSING}).)*", re.I | re.S)


def strip_end(text: str) -> str:
    """Return a text without the cards at its end, by another way than the filter's: one after the other, by pattern."""
    after = ""
    while True:
        rest, more = text, ""
        while extra := EXTRA.fullmatch(rest):
            rest, more = extra[1], extra[2] + more
        # Closing tags without a card before them are text.
        found = CLOSED.fullmatch(rest) or EMPTY.fullmatch(rest)
        if not found:
            return text + after
        text, after = found[1], found[2] + more + after


@holds(TEXTS)
def test_what_is_shown_is_the_text_without_the_cards_at_its_end(text: str) -> None:
    if "<mem" not in text[-20:].lower() and not UNCLOSED.fullmatch(strip_end(text).rstrip("` \n\r\t")):
        assert remove_cards(text) == strip_end(text)


@holds(TEXTS, st.data())
@example("<" + CARD + " " * 9 + "MEMORY_CARD>", None)
@example("<\n" + CLOSE + "MEMORY_CARD>x", None)
def test_any_text_is_shown_alike_however_it_is_split(text: str, data: st.DataObject | None) -> None:
    whole, cards = streamed([text])
    assert streamed(list(text))[0] == whole == remove_cards(text)
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=5)) if data else []
    found, others = streamed(split(text, *places))
    assert found == whole
    assert others.cards == cards.cards == list_cards(text)
    assert others.unclosed == cards.unclosed


@holds(TEXTS)
def test_without_a_tag_everything_is_shown(text: str) -> None:
    if not TAG.search(text) and "memo" not in text.lower():
        assert remove_cards(text) == text


@holds(st.text(max_size=30), st.text(min_size=1, max_size=30).filter(lambda text: text.strip(" \t\r\n`")))
def test_a_card_with_text_after_it_is_text(before: str, after: str) -> None:
    assert remove_cards(before + CARD + after) == before + CARD + after
    assert remove_cards(before + CARD) == before


@holds(TEXTS)
def test_only_what_may_become_a_tag_is_held_back(text: str) -> None:
    cards, shown, fed = CardFilter(), "", ""
    for character in text:
        fed += character
        shown += cards.feed(character)
        if TAG.search(fed):
            break
        held = fed[len(shown) :]
        assert fed == shown + held
        assert len(held) <= len(r"< / MEMORY\_CARD / >") - 1
        blanks = sum(sign in " \t\r\n/\\" for sign in held[1:])
        assert len(held) - blanks <= len(OPEN) - 1
        assert OPEN.startswith(re.sub(r"[ \t\r\n/\\]", "", held).upper())


@holds(TEXTS)
def test_what_is_shown_so_far_stays_shown_if_the_answer_breaks_off(text: str) -> None:
    cards, shown = CardFilter(), ""
    for end, character in enumerate(text, 1):
        shown += cards.feed(character)
        assert remove_cards(text[:end]).startswith(shown)


def test_a_card_that_is_text_is_shown_as_soon_as_text_follows() -> None:
    cards = CardFilter()
    assert cards.feed(f"One {CARD}") == "One "
    assert cards.feed("\n") == ""
    assert cards.feed("t") == f"{CARD}\nt"
    assert cards.feed(f"wo `{OPEN}") == "wo `"
    assert cards.feed("` is a tag") == f"{OPEN}` is a tag"


def test_plain_words_are_shown_at_once() -> None:
    cards = CardFilter()
    assert cards.feed("a < b") == "a < b"
    assert cards.feed(" <memo") == " "
    assert cards.feed("ir>") == "<memoir>"
    assert cards.feed("\n\n") == "\n\n"
    assert cards.feed("<MEMORY_CARD") == ""
    assert cards.feed("S") == "<MEMORY_CARDS"


@holds(TEXTS, st.randoms(use_true_random=False))
def test_bytes_split_anywhere_come_out_alike(text: str, chance: random.Random) -> None:
    text = text.encode("utf-8", "replace").decode()
    data, decoder, cards = text.encode(), codecs.getincrementaldecoder("utf-8")(), CardFilter()
    shown, at = "", 0
    while at < len(data):
        size = chance.randint(1, 5)
        shown += cards.feed(decoder.decode(data[at : at + size]))
        at += size
    shown += cards.feed(decoder.decode(b"", final=True)) + cards.end()
    assert shown == remove_cards(text)
    assert cards.cards == list_cards(text)


def test_every_byte_of_an_answer_may_be_a_chunk_end() -> None:
    data = f'Übe die 弓 🎻.\n\n{OPEN}{{"g":"🎻"}}{CLOSE}\n'.encode()
    for place in range(len(data) + 1):
        decoder, cards = codecs.getincrementaldecoder("utf-8")(), CardFilter()
        pieces = [decoder.decode(data[:place]), decoder.decode(data[place:], final=True)]
        assert "".join(map(cards.feed, pieces)) + cards.end() == "Übe die 弓 🎻.\n\n\n"
        assert cards.cards == ['{"g":"🎻"}']


def test_the_end_says_that_a_card_was_not_closed() -> None:
    cards = CardFilter()
    assert cards.feed(f"Text.\n{OPEN}{{}}") == "Text.\n"
    assert (cards.cards, cards.unclosed) == ([], False)
    assert cards.end() == ""
    assert (cards.cards, cards.unclosed) == (["{}"], True)
    assert cards.end() == ""
    assert len(cards.cards) == 1


def test_a_huge_card_is_held_back_in_little_more_memory_than_it_has() -> None:
    cards = CardFilter()
    chunk = "x" * 40
    tracemalloc.start()
    shown = cards.feed(f"Text. {OPEN}")
    for _ in range(25_000):
        shown += cards.feed(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    shown += cards.feed(CLOSE) + cards.end()
    assert shown == "Text. "
    assert [len(content) for content in cards.cards] == [MAX_CARD_CHARS + 1]
    assert peak < 3_000_000


def test_endless_cards_are_hidden_and_only_some_are_kept() -> None:
    text = CARD * 5000
    assert remove_cards(text) == ""
    assert 0 < len(list_cards(text)) <= 64


@holds(TEXTS)
def test_calm_text_need_not_be_fed(text: str) -> None:
    cards, shown = CardFilter(), ""
    for character in text:
        shown += character if cards.is_idle and character != "<" else cards.feed(character)
    assert shown + cards.end() == remove_cards(text)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_megabyte_is_shown_alike_in_any_pieces(seed: int) -> None:
    chance = random.Random(seed)
    words = [
        "word ",
        "\n\n",
        "<",
        "<mem",
        "🎻",
        "```\n",
        "</memory_card >",
        f"{OPEN}{'y' * 200_000}{CLOSE}",
        CARD,
        CARD,
    ]
    text = "".join(chance.choices(words, [9, 3, 1, 1, 2, 1, 0.1, 0.004, 1, 1], k=60_000))
    pieces, at = [], 0
    while at < len(text):
        size = chance.choice((1, 3, 17, 400, 60_000))
        pieces.append(text[at : at + size])
        at += size
    found, cards = streamed(pieces)
    assert found == remove_cards(text)
    assert cards.cards == list_cards(text)


@pytest.mark.parametrize(
    "unit", ["<", "<m", "< ", "<MEMORY_CARD", OPEN, CLOSE, CARD, " ", "\n<", "<" + OPEN, "</", "_"]
)
def test_work_is_linear(unit: str) -> None:
    def filter_(size: int) -> None:
        text = unit * (size // len(unit))
        remove_cards(text)
        neutralize(text)
        streamed([text[at : at + 50] for at in range(0, len(text), 50)])

    assert is_linear(filter_, 100_000)


@holds(TEXTS)
def test_neutralised_text_has_no_cards(text: str) -> None:
    safe = neutralize(text, CARD_TAG)
    assert remove_cards(safe) == safe
    assert not list_cards(safe)
    assert neutralize(safe, CARD_TAG) == safe
    assert safe.replace("&lt;", "<") == text.replace("&lt;", "<")


def test_other_text_is_left_as_it_is() -> None:
    text = "<div> a<b, std::atomic<memory_order>, #include <memoryview>, <event-log>, <eventually> MEMORY_CARD"
    assert neutralize(text) == text
    assert neutralize(f"Say {OPEN}!") == "Say &lt;MEMORY_CARD>!"
    assert neutralize("Cut <MEMORY_CA") == "Cut &lt;MEMORY_CA"
    assert neutralize('<memory_card v="1">') == '&lt;memory_card v="1">'
