"""Test what is remembered of the lines that the app wrote into a brief and that have left it."""

from __future__ import annotations

import json

import msgspec
import pytest

from longtalk import Brief, Chat, Conversation, Memory, Recall
from longtalk.memory import Field, Schema
from longtalk.memory.brief.app_lines import KIND, AppLines, has_left, list_fallen, with_app_lines
from longtalk.memory.brief.edits import edit_brief
from longtalk.memory.brief.lines import BriefContent, Line, make_line_id
from longtalk.memory.brief.operations import Operation
from longtalk.memory.brief.record import BriefRecord, with_brief_record
from longtalk.memory.cards.capture import apply_cards
from longtalk.memory.recall.index_cache import CachedIndex, IndexCache
from longtalk.memory.recall.search import add_fallen_lines
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, says
from longtalk.tokens import Estimator
from longtalk.transcript.pack import Entry
from longtalk.transcript.transcript import Transcript, link_entries

POLICY = Memory(brief=Brief(schema=Schema((Field("facts", cap=1),))), recall=Recall(500, gate=False), recent=0, limit=0)
BOW, STRINGS = "Her bow is made of pernambuco", "Her strings are made of gut"


def make_line(text: str, entry: str = "") -> Line:
    return Line(make_line_id("facts", text), "facts", text, entry, 1_700_000_000_000)


def read_lines(transcript: Transcript) -> AppLines:
    return transcript.records.read_latest(KIND, AppLines) or AppLines()


def make_talk(provider: Scripted) -> Conversation:
    return Conversation("c", model=provider, store=InMemory(), policy=POLICY)


def test_only_lines_of_the_app_are_recorded() -> None:
    own, models = make_line("a"), make_line("b", entry="t-1")
    transcript = Transcript()
    assert with_app_lines(transcript, [models], [models]) is transcript
    assert read_lines(with_app_lines(transcript, [own, models], [])) == AppLines((own,))


def test_changes_of_one_turn_are_recorded_together_if_asked_to() -> None:
    one, two = make_line("a"), make_line("b")
    first = with_app_lines(Transcript(), [one], [])
    assert read_lines(with_app_lines(first, [], [two], merge=True)) == AppLines((one,), (two,))
    assert read_lines(with_app_lines(first, [], [two])) == AppLines((), (two,))


def test_a_line_that_was_removed_after_it_fell_is_not_listed() -> None:
    one, two = make_line("a"), make_line("b")
    changes = [AppLines((one, two)), AppLines((), (one,))]
    assert list_fallen(changes, BriefContent()) == [two]
    assert list_fallen([*changes, AppLines((one,))], BriefContent()) == [two, one]


def test_a_line_that_is_in_the_brief_in_full_or_revoked_has_not_left() -> None:
    line = make_line("a longer text")
    assert has_left(line, BriefContent())
    assert not has_left(line, BriefContent((line,)))
    assert has_left(line, BriefContent((msgspec.structs.replace(line, text="a longer…"),)))
    assert not has_left(line, BriefContent(revoked=(line.id,)))


@pytest.mark.parametrize("stored", [True, False])
def test_a_line_that_fell_out_of_the_brief_is_recalled(stored: bool) -> None:
    provider = Scripted(*[says("Good.")] * 3)
    question = "Which wood is the bow made of: pernambuco?"
    if stored:
        talk = make_talk(provider)
        talk.send("Hello.", brief={"facts": BOW})
        talk.brief.add("facts", STRINGS)
        talk.send(question)
    else:
        chat = Chat(provider, policy=POLICY)
        state = chat.send("Hello.", brief={"facts": BOW}).state
        chat.send(question, state=chat.brief.add("facts", STRINGS, state=state))
    sent = provider.requests[-1].decode()
    assert f"Brief: {BOW}" in sent.partition("<recalled>")[2]
    assert f"facts: {BOW}" not in sent


def test_a_line_that_the_app_removed_is_not_recalled() -> None:
    provider = Scripted(*[says("Good.")] * 3)
    talk = make_talk(provider)
    talk.send("Hello.", brief={"facts": BOW})
    talk.brief.set("facts", STRINGS)
    talk.send("Which wood is the bow made of: pernambuco?")
    assert BOW not in provider.requests[-1].decode()


def test_a_line_that_the_app_revoked_is_not_recalled() -> None:
    provider = Scripted(*[says("Good.")] * 3)
    talk = make_talk(provider)
    talk.send("Hello.", brief={"facts": BOW})
    talk.brief.add("facts", STRINGS)
    talk.brief.revoke(talk.brief.archived()[0].id)
    talk.send("Which wood is the bow made of: pernambuco?")
    assert BOW not in provider.requests[-1].decode()


def test_lines_of_the_app_that_the_cards_of_an_answer_push_out_are_recorded() -> None:
    config, counter = POLICY.brief, Estimator()
    said = Transcript().add(link_entries(None, "t", 0, [Entry(role="user", wire="openai-chat", at=0, native=b"{}")]))
    transcript = edit_brief(said, [Operation.add("facts", BOW)], config, counter)
    cards = [json.dumps({"+facts": [text]}) for text in (STRINGS, "Her violin is old")]
    changed, is_usable = apply_cards(transcript, cards, config, counter, requested="small", at=2**41)
    assert is_usable
    assert [line.text for line in read_lines(changed).fell] == [BOW]


def test_an_index_that_is_cached_for_later_turns_has_the_lines_for_one_turn() -> None:
    transcript = with_app_lines(with_brief_record(Transcript(), BriefRecord()), [make_line("a")], [])
    index, cache = CachedIndex(("c", "")), IndexCache()
    add_fallen_lines(index, transcript, transcript.records)
    assert len(index) == 1
    cache.put(index)
    assert len(cache.take(("c", ""))) == 0
