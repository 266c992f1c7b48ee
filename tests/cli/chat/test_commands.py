"""The chat's commands, run on a conversation without a terminal and without a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import islice

import pytest

from longtalk import Archive
from longtalk._sync.turn.stream import Stream
from longtalk.cli.chat.commands import Chat, run_command
from longtalk.cli.chat.plain import Plain
from longtalk.cli.chat.turns import run_turn
from longtalk.cli.holding import Choices, resolve
from longtalk.cli.session import ChatSession
from longtalk.errors import InputError
from longtalk.models.call_cost import FREE
from longtalk.providers.base import Capabilities
from longtalk.reply import StoredReply
from longtalk.service.settings import Settings
from longtalk.testing import Scripted, says
from tests.cli.helpers import store_at


@pytest.fixture
def chat(store: str) -> Iterator[Chat]:
    """A chat after two exchanges, whose model has two more answers."""
    with closing(store_at(store)) as held:
        provider = Scripted(says("Slowly."), says("Faster."), says("Lightly."), says("Never."))
        session = ChatSession(Archive(held), provider, "lesson-7", new=False)
        session.stack = ExitStack()
        for text in ("How?", "And then?"):
            session.ensure_stored().send(text)
        yield Chat(session, Plain(lines=False))


def texts(chat: Chat) -> list[str]:
    return [each.text for each in chat.session.talk.history()]


@pytest.mark.parametrize("word", ["1", "#2", "w6hmi7fggzaX-0", "nosuch-0", "q3vft5cmxl2a"])
@pytest.mark.parametrize("text", ["", " Hello, I am Bob"])
def test_a_word_that_looks_like_an_id_but_names_no_entry_is_not_sent(chat: Chat, word: str, text: str) -> None:
    with pytest.raises(InputError, match=r"no entry or turn .* looks like q3vft5cmxl2a-0; /history shows the ids"):
        run_command(f"/edit {word}{text}", chat)
    assert texts(chat) == ["How?", "Slowly.", "And then?", "Faster."]


@pytest.mark.parametrize("text", ["Two lessons?", "3,5 lessons?", "unexpectedly so", "semi-detached 2"])
def test_other_text_replaces_the_last_message(chat: Chat, text: str) -> None:
    run_command(f"/edit {text}", chat)
    assert texts(chat) == ["How?", "Slowly.", text, "Lightly."]


def test_a_text_may_begin_with_a_number_after_the_id_of_its_message(chat: Chat) -> None:
    run_command(f"/edit {chat.session.talk.history()[2].id} 2 lessons?", chat)
    assert texts(chat)[2:] == ["2 lessons?", "Lightly."]


def test_only_an_entry_can_be_pinned(chat: Chat) -> None:
    with pytest.raises(InputError, match=r"no entry or turn '2'.*/history shows the ids"):
        run_command("/pin 2", chat)
    assert chat.session.talk.pins() == []


def test_the_id_of_an_entry_is_no_name_for_a_branch(chat: Chat) -> None:
    entry = chat.session.talk.history()[1].id
    with pytest.raises(InputError, match=f"use `longtalk fork lesson-7 {entry}`"):
        run_command(f"/fork {entry}", chat)
    assert chat.session.talk.branches() == ["main"]


@pytest.mark.parametrize("name", ["edit", "pin"])
def test_the_help_of_a_command_says_what_an_entry_is(chat: Chat, capsys: pytest.CaptureFixture[str], name: str) -> None:
    run_command(f"/help {name}", chat)
    assert "ENTRY is the id of a message or turn" in (shown := " ".join(capsys.readouterr().err.split()))
    assert "/history shows the ids" in shown


def test_branches_are_listed_with_their_first_words(chat: Chat, capsys: pytest.CaptureFixture[str]) -> None:
    run_command("/edit Why?", chat)
    run_command("/branches", chat)
    begins = {row.split("\t")[1]: row.split("\t")[4] for row in capsys.readouterr().out.splitlines() if "\t" in row}
    assert begins.pop("main") == "How?"
    assert list(begins.values()) == ["And then?"]


def test_an_empty_history_is_said_to_be_empty(chat: Chat, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        run_command("/undo", chat)
    capsys.readouterr()
    run_command("/history", chat)
    assert capsys.readouterr() == ("", "There are no messages yet.\n")


def test_another_model_can_answer_again_in_one_step(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Scripted(says("Boldly."))
    monkeypatch.setattr("longtalk.cli.session.connect_model", lambda held, before=None: (other, {}))
    chat.session.held = resolve(Settings(), Choices(model="ollama:one"), None)
    run_command("/retry ollama:other", chat)
    assert (texts(chat)[2:], chat.session.provider) == (["And then?", "Boldly."], other)


def test_what_a_model_of_this_machine_costs_is_called_free(chat: Chat, capsys: pytest.CaptureFixture[str]) -> None:
    chat.session.provider.capabilities = Capabilities(prices=FREE)
    chat.session.held = resolve(Settings(), Choices(model="ollama:one"), None)
    run_command("/new cheap", chat)
    chat.session.ensure_stored().send("Why?")
    run_command("/cost", chat)
    assert "5 received, free\n" in capsys.readouterr().out


class _Stopped(Plain):
    """A screen whose user presses Ctrl-C after some events of each answer."""

    def __init__(self, events: int) -> None:
        super().__init__(lines=False)
        self._events = events

    def show_answer(self, session: ChatSession, stream: Stream[StoredReply]) -> None:
        with stream:
            for _ in islice(stream, self._events):
                pass
            raise KeyboardInterrupt


def test_an_answer_that_was_stopped_too_late_is_said_to_be_whole(
    chat: Chat, capsys: pytest.CaptureFixture[str]
) -> None:
    run_turn(chat.session, _Stopped(1_000), "Why?")
    assert "kept whole: /history shows it" in capsys.readouterr().err
    assert [each.status for each in chat.session.talk.history()][-1] == "complete"


def test_an_answer_that_was_stopped_in_time_is_interrupted(chat: Chat) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_turn(chat.session, _Stopped(1), "Why?")
    assert [each.status for each in chat.session.talk.history()][-1] == "interrupted"


def test_the_cost_of_a_stopped_answer_is_shown_as_an_estimate(chat: Chat, capsys: pytest.CaptureFixture[str]) -> None:
    chat.session.held = resolve(Settings(), Choices(model="ollama:one"), None)
    run_command("/new stopped", chat)
    with pytest.raises(KeyboardInterrupt):
        run_turn(chat.session, _Stopped(1), "Why?")
    (turn,) = chat.session.talk.metrics()
    capsys.readouterr()
    run_command("/cost", chat)
    shown = capsys.readouterr().out
    assert f"1 turn in all: about {turn.total} tokens sent, 0 of them cached, {turn.usage.output} received" in shown


def test_an_answer_that_was_asked_for_again_has_one_footer(chat: Chat, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_turn(chat.session, _Stopped(1), "Why?")
    run_command("/again", chat)
    capsys.readouterr()
    run_command("/export", chat)
    last = capsys.readouterr().out.partition("## 3")[2]
    assert "interrupted" not in last
    assert last.count("\n*scripted:model · ") == 1
