"""`longtalk edit`: another message in place of one that was sent. A branch keeps what was there."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from longtalk import Archive, Conversation
from longtalk.testing import Scripted, says
from tests.cli.helpers import Terminal, longtalk, store_at, streamed
from tests.support.loopback import Answer, Loopback


@pytest.fixture
def talks(tmp_path: Path) -> str:
    """A store with a conversation of two exchanges."""
    path = f"{tmp_path}/talks.db"
    with closing(store_at(path)) as store:
        talk = Conversation("lesson-7", model=Scripted(says("Slowly."), says("Faster.")), store=store)
        talk.send("How?", system="Be brief.")
        talk.send("And then?", system="Be brief.")
    return path


def at(loopback: Loopback, talks: str, *more: str) -> list[str]:
    return ["edit", "lesson-7", *more, "-m", "compatible:m", "--base-url", loopback.url, "--store", talks]


def texts(talks: str, branch: str = "main") -> list[str]:
    with closing(store_at(talks)) as store:
        return [each.text for each in Archive(store).history("lesson-7", branch=branch)]


def entry(talks: str, position: int) -> str:
    with closing(store_at(talks)) as store:
        return Archive(store).history("lesson-7")[position].id


def branches(talks: str) -> list[str]:
    with closing(store_at(talks)) as store:
        (found,) = Archive(store).conversations()
        return [each for each in found.branches if each != "main"]


def test_the_last_message_is_answered_again_and_a_branch_keeps_the_old_one(
    loopback: Loopback, environment: dict[str, str], talks: str
) -> None:
    loopback.say(streamed("Lightly."))
    done = longtalk(*at(loopback, talks, "And", "now?"), environment=environment)
    (branch,) = branches(talks)
    assert (done.stdout, done.returncode) == ("Lightly.\n", 0)
    assert f"The exchange so far is now on branch {branch}." in done.stderr
    assert texts(talks, branch) == ["How?", "Slowly.", "And then?", "Faster."]
    assert texts(talks) == ["How?", "Slowly.", "And now?", "Lightly."]
    sent = [each["content"] for each in json.loads(loopback.requests[-1])["messages"]]
    assert sent == ["Be brief.", "How?", "Slowly.", "And now?"]


@pytest.mark.parametrize("by", ["entry", "turn"])
def test_an_earlier_message_is_named_by_its_entry_or_turn(
    loopback: Loopback, environment: dict[str, str], talks: str, by: str
) -> None:
    body: Any = says("Lightly.").body
    loopback.say(Answer(body))
    name = entry(talks, 0) if by == "entry" else entry(talks, 0).partition("-")[0]
    done = longtalk(*at(loopback, talks, name, "Why?", "--json"), environment=environment)
    found = json.loads(done.stdout)
    assert (found["conversation"], found["text"]) == ("lesson-7", "Lightly.")
    assert texts(talks, found["branch"]) == ["Why?", "Lightly."]
    assert texts(talks, found["kept"]) == ["How?", "Slowly.", "And then?", "Faster."]


def test_a_conversation_goes_on_after_its_first_message_was_changed(
    loopback: Loopback, environment: dict[str, str], talks: str
) -> None:
    loopback.say(streamed("Lightly."), streamed("Never."))
    longtalk(*at(loopback, talks, entry(talks, 0), "Why?"), environment=environment)
    where = ["-m", "compatible:m", "--base-url", loopback.url, "--store", talks]
    assert longtalk("ask", "-c", "Ever?", *where, environment=environment).returncode == 0
    assert texts(talks) == ["Why?", "Lightly.", "Ever?", "Never."]


def test_the_text_can_be_piped_in(loopback: Loopback, environment: dict[str, str], talks: str) -> None:
    loopback.say(streamed("Lightly."))
    longtalk(*at(loopback, talks), said="Two\nlines?\n", environment=environment)
    assert texts(talks)[2:] == ["Two\nlines?", "Lightly."]


def test_at_a_terminal_the_message_opens_in_the_editor(
    loopback: Loopback, environment: dict[str, str], talks: str, tmp_path: Path
) -> None:
    loopback.say(streamed("Lightly."))
    script = tmp_path / "editor.py"
    script.write_text(
        "import sys; f = open(sys.argv[1], 'r+'); f.seek(len(f.read().rstrip())); f.write(', please?\\n')\n"
    )
    editor = shlex.join([sys.executable, str(script)])
    person = Terminal(at(loopback, talks), {**environment, "EDITOR": editor, "VISUAL": editor})
    shown = person.rest()
    assert person.exit_code() == 0, shown
    person.close()
    assert texts(talks)[2:] == ["And then?, please?", "Lightly."]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["And then?"], "Nothing was changed"),
        ([" "], "The new text is empty"),
        (["q3vft5cmxl2a-0", "Why?"], "`longtalk show` prints the ids"),
        (["w6hmi7fggzaX-0", "Why?"], "An id looks like q3vft5cmxl2a-0; `longtalk show` prints the ids"),
        (["2", "Why?"], "This branch has no entry or turn '2'"),
        (["ANSWER", "Why?"], "is not a message of yours (assistant)"),
        (["Why?", "--branch", "aside"], "has no branch 'aside'"),
    ],
)
def test_nothing_happens_without_a_change(
    loopback: Loopback, environment: dict[str, str], talks: str, words: list[str], problem: str
) -> None:
    given = [entry(talks, 1) if each == "ANSWER" else each for each in words]
    done = longtalk(*at(loopback, talks, *given), environment=environment)
    assert (done.returncode, problem in done.stderr) == (1, True), done.stderr
    assert branches(talks) == []


def test_an_unknown_conversation_is_not_created(loopback: Loopback, environment: dict[str, str], talks: str) -> None:
    arguments = ["leson-7" if each == "lesson-7" else each for each in at(loopback, talks, "Why?")]
    done = longtalk(*arguments, environment=environment)
    assert (done.returncode, "Did you mean 'lesson-7'?" in done.stderr) == (1, True)


def test_after_a_failure_the_command_that_asks_again_is_shown(
    loopback: Loopback, environment: dict[str, str], talks: str
) -> None:
    body: Any = {"error": {"message": "no such model"}}
    loopback.say(Answer(body, status=404))
    done = longtalk(*at(loopback, talks, "Why?"), environment=environment)
    assert (done.returncode, "longtalk chat lesson-7, and there /again" in done.stderr) == (1, True), done.stderr
    assert texts(talks)[2:] == ["Why?"]


def test_the_first_word_is_an_id_only_if_the_conversation_has_it(
    loopback: Loopback, environment: dict[str, str], talks: str
) -> None:
    loopback.say(streamed("Well."), streamed("Never."))
    longtalk(*at(loopback, talks, "unexpectedly", "so"), environment=environment)
    (branch,) = branches(talks)
    assert texts(talks)[2] == "unexpectedly so"
    with closing(store_at(talks)) as store:
        turn = Archive(store).history("lesson-7", branch=branch)[2].turn
    done = longtalk(*at(loopback, talks, turn, "Why?"), environment=environment)
    assert (done.returncode, f"This branch has no entry or turn {turn!r}" in done.stderr) == (1, True)
    done = longtalk(*at(loopback, talks, f"{turn}-0x", "Why?"), environment=environment)
    assert (done.returncode, "This branch has no entry or turn" in done.stderr) == (1, True)


def test_a_changed_message_keeps_its_images(
    loopback: Loopback, environment: dict[str, str], talks: str, tmp_path: Path
) -> None:
    loopback.say(streamed("A dog."), streamed("A cat."), streamed("Black."))
    (tmp_path / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    arguments = ["-m", "compatible:m", "--base-url", loopback.url, "--store", talks]
    longtalk("ask", "--id", "cat", "-a", tmp_path / "cat.png", "What is it?", *arguments, environment=environment)
    longtalk("edit", "cat", "What animal is it?", *arguments, environment=environment)
    before, after = (json.loads(each)["messages"][-1]["content"] for each in loopback.requests)
    assert after == [{"type": "text", "text": "What animal is it?"}, before[1]]
    person = Terminal(["chat", "cat", *arguments], environment)
    person.type("/edit Which colour?\n")
    person.wait_for("Black")
    person.type("quit\n")
    assert person.exit_code() == 0
    person.close()
    assert json.loads(loopback.requests[-1])["messages"][-1]["content"][1] == before[1]
