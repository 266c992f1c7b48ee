"""What a card only repeats from other conversations is not noted."""

from __future__ import annotations

import json

import pytest

from longtalk import Brief
from longtalk.memory import Profile
from longtalk.memory.brief.operations import Operation
from longtalk.memory.brief.record import read_brief_record
from longtalk.memory.cards.capture import apply_cards, apply_tool_call
from longtalk.memory.cards.profile_lines import remove_repeated
from longtalk.tokens import Estimator
from longtalk.transcript.pack import Entry
from longtalk.transcript.transcript import Transcript, link_entries

QUOTED = '<recalled>\n[conversation "x"]\nUser: I play the violin in Bergen\nAssistant: How nice.\n</recalled>'
CONFIG, PROFILE, COUNTER = Brief(), Profile(), Estimator()


def say(*texts: str, answer: str = "You play the violin in Bergen.") -> Transcript:
    """Return a transcript with these messages of the user and one answer."""
    said = [("user", text) for text in texts] + [("assistant", answer)]
    entries = [
        Entry(role=role, wire="openai-chat", at=0, native=json.dumps({"role": role, "content": text}).encode())
        for role, text in said
    ]
    return Transcript().add(link_entries(None, "t", 0, entries))


def keep(text: str, *said: str, foreign: str = QUOTED) -> bool:
    """Return whether a note with this text is kept after these messages."""
    return bool(remove_repeated([Operation.add("facts", text)], say(*said), 0, foreign))


@pytest.mark.parametrize(
    "text", ["Plays the violin in Bergen", "User enjoys the violin", 'The user: "I play the violin"']
)
def test_a_note_of_what_only_another_conversation_says_is_left_out(text: str) -> None:
    assert not keep(text, "What do I do in my free time?")
    assert keep(text, "What do I do in my free time?", foreign="")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Plays the violin", "As you know, I play the violin"),
        ('The user: "I play the violin"', "I play the violin"),
        ("Plays the violin in Oslo", "No, it is Oslo"),
        ("Allergic to nuts", "I can't eat nuts"),
    ],
    ids=["stated", "framed", "corrected", "unrelated"],
)
def test_a_note_of_what_the_user_says_here_is_kept(text: str, said: str) -> None:
    assert keep(text, said)


def test_words_of_several_messages_do_not_state_a_note_together() -> None:
    assert not keep("Plays the violin", "I play the flute", "Who invented the violin?")


def test_a_note_that_the_conversation_has_made_before_is_kept() -> None:
    card = json.dumps({"+fact": ["Plays the violin"]})
    noted = apply_cards(say("I play the violin"), [card], CONFIG, COUNTER, requested="small", at=1)[0]
    later = noted.add(link_entries(noted.head, "u", 0, [Entry(role="user", wire="openai-chat", at=0, native=b"{}")]))
    change = Operation.set("facts", "Plays the violin", "Lives in Bergen with a violin")
    assert remove_repeated([change], later, 2, QUOTED) == [Operation.add("facts", "Plays the violin")]


def test_an_answer_that_is_only_quoted_does_not_become_a_note() -> None:
    change = Operation.resolve("open_questions", "Which instrument?", answer="Plays the violin in Bergen")
    assert remove_repeated([change], say("Which instrument?"), 0, QUOTED) == [
        Operation.resolve("open_questions", "Which instrument?")
    ]


@pytest.mark.parametrize("way", ["card", "tool"])
def test_neither_the_brief_nor_the_profile_gets_a_line_from_another_conversation(way: str) -> None:
    changes = {"+fact": ["Plays the violin", "Owns a boat"], "+about": ["Lives in Bergen with a violin"]}
    transcript = say("I own a boat. What do I play?")
    if way == "card":
        changed, is_usable = apply_cards(
            transcript,
            [json.dumps(changes)],
            CONFIG,
            COUNTER,
            requested="small",
            at=1,
            profile=PROFILE,
            foreign=QUOTED,
        )
        assert is_usable
    else:
        changed, problem = apply_tool_call(
            transcript, changes, CONFIG, COUNTER, requested="small", at=1, profile=PROFILE, foreign=QUOTED
        )
        assert problem == ""
    record = read_brief_record(changed)
    assert [line.text for line in (*record.content.lines, *record.profile.lines)] == ["Owns a boat"]
    assert record.refused == 0
