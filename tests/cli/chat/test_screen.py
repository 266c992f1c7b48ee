"""`longtalk chat` at a terminal that can move the cursor: what a person types, and then sees."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longtalk import Archive, Conversation
from longtalk.cli.chat.screen import split_typed
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import Scripted, says
from tests.cli.helpers import cut_off, marks, streamed
from tests.cli.screens import ALT_ENTER, CTRL_C, CTRL_J, CTRL_R, ENTER, PASTE, PROMPT, TAB, ScreenTerminal
from tests.support.loopback import Loopback

Start = Callable[..., ScreenTerminal]
TABLE = "| voice | entry |\n|---|---:|\n| soprano 🎻 | 1 |\n| bass | 4 |\n"
MARKDOWN = (
    "# Fugue\n\nA **fugue** has `voices` & <b>tags</b>.\nTwo lines.\n\n- one\n- 日本語\n\n"
    f"```python\nx = 1\n```\n\n{TABLE}\nDone."
)


@pytest.fixture
def talks(tmp_path: Path) -> str:
    return f"{tmp_path}/talks.db"


@pytest.fixture
def start(loopback: Loopback, environment: dict[str, str], talks: str) -> Iterator[Start]:
    """Start a chat with the loopback's answers, and wait for its prompt."""
    started: list[ScreenTerminal] = []

    def begin(*arguments: str, columns: int = 80, **more: str) -> ScreenTerminal:
        command = ["chat", "-m", "compatible:m", "--base-url", loopback.url, "--store", talks, *arguments]
        person = ScreenTerminal(command, {**environment, **more}, columns=columns)
        started.append(person)
        person.wait_for(PROMPT)
        return person

    yield begin
    for person in started:
        person.end()


def sent(loopback: Loopback) -> list[str]:
    """Return the texts of the last request."""
    return [message["content"] for message in json.loads(loopback.requests[-1])["messages"]]


def test_pasted_lines_are_one_message_and_its_answer_is_rendered(loopback: Loopback, start: Start, talks: str) -> None:
    loopback.say(streamed(MARKDOWN))
    person = start()
    person.type(PASTE.format("def f():\r    return 1\r\rWhat is it?"))
    person.wait_for(r"> def f\(\):\n +return 1\n\n +What is it\?")
    person.send("", r"\n\n *Fugue\n\nA fugue has voices & <b>tags</b>\.\nTwo lines\.\n\n • one\n • 日本語\n")
    assert sent(loopback) == ["def f():\n    return 1\n\nWhat is it?"]
    seen = person.read_screen()
    assert "```python\nx = 1\n```\n" in seen
    assert re.search(r"soprano 🎻\s+1\n bass\s+4\n", seen)
    assert re.search(r"Done\.\n\n\[10 tokens sent, 0 of them cached, 5 received\]\n>", seen)
    assert (person.leave(), marks(talks)) == (0, [("user", ""), ("assistant", "")])


def test_ctrl_c_stops_an_answer_keeps_it_and_at_the_prompt_clears_the_line(
    loopback: Loopback, start: Start, talks: str, release: threading.Event
) -> None:
    loopback.say(cut_off("Once upon a time", then=lambda: release.wait(60)), streamed("Gladly."))
    person = start()
    person.type("Tell me a story." + ENTER)
    person.wait_for("Once upo")
    person.type(CTRL_C)
    person.wait_for(r"Once upo\n\n\(stopped\)\n>")
    person.type("half a mess")
    person.wait_for("> half a mess")
    person.type(CTRL_C)
    person.wait_for(PROMPT)
    person.type(CTRL_C)
    person.wait_for("press Ctrl-D")
    person.send("Another!", "Gladly")
    assert (person.leave(), sent(loopback)[-1]) == (0, "Another!")
    assert marks(talks) == [("user", ""), ("assistant", "interrupted"), ("user", ""), ("assistant", "")]


def test_a_chat_shows_the_last_exchange_and_can_change_it(loopback: Loopback, start: Start, talks: str) -> None:
    with SQLite(talks) as store:
        said = Conversation("lesson", model=Scripted(says("# Lightly\n\nLike *this*.")), store=store).send("How?")
    loopback.say(streamed("Like that."), streamed("So."))
    person = start("lesson")
    person.wait_for(r"\n> How\?\n\nLightly\n\nLike this\.\n")
    person.send(f"/edit {said.entries[1].id} Why?", r"is not a message of yours \(assistant\)")
    person.send("/retry", r"The answer so far is now on branch \S+\)\n\nLike that\.")
    person.type("/edit" + ENTER)
    person.wait_for(r"> /edit\nedit> How\?")
    person.type(CTRL_C)
    person.wait_for(r"Nothing was changed\.\n>")
    person.send("/cost", "tokens")
    person.type("/edit" + ENTER)
    person.wait_for(r"tokens(?s:.*)> /edit\nedit> How\?")
    person.send(" Why?", r"is now on branch main-(?s:.*)So\.")
    assert sent(loopback) == ["How? Why?"]
    person.send("/branches", r"\* +main +2 (?s:.*)main-\S+ +2 ")
    assert person.leave() == 0


def test_an_earlier_message_is_found_by_its_text_and_changed(loopback: Loopback, start: Start, talks: str) -> None:
    with SQLite(talks) as store:
        talk = Conversation("lesson", model=Scripted(says("Lightly."), says("Like this.")), store=store)
        first = talk.send("How do I hold it?").entries[0].id
        talk.send("And how do I move it?")
    loopback.say(streamed("With care."))
    person = start("lesson")
    person.type("/edit ")
    person.wait_for(rf"(?s)And how do I move it\?.*{first} +How do I hold it\?")
    person.type(f"{first}{ENTER}")
    person.wait_for(r"edit> How do I hold it\?")
    person.send(" Please.", r"is now on branch main-(?s:.*)With care\.")
    assert sent(loopback) == ["How do I hold it? Please."]
    person.send("/branches", r"\* +main +2 (?s:.*)main-\S+ +4 ")
    assert person.leave() == 0


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_at_any_width_no_line_is_lost_and_help_fits(loopback: Loopback, start: Start, columns: int) -> None:
    items = "".join(f"{number}. item number {number} of a long list\n" for number in range(1, 61))
    loopback.say(streamed(items), streamed(MARKDOWN))
    person = start(columns=columns)
    person.send("List!", "item number 60")
    seen = person.read_screen()
    assert [int(found) for found in re.findall(r"item number (\d+) of a long list", seen)] == list(range(1, 61))
    person.send("/help", "Ctrl-X Ctrl-E +write")
    shown = person.read_screen().partition("> /help\n")[2].partition("Ctrl-X")[0].splitlines()
    assert [line for line in shown if not line.startswith(("/", "Ctrl", "Alt", "Tab", "        "))] == []
    person.send("Again!", r"Done\.")
    assert person.leave() == 0


def test_the_line_at_the_bottom_fits_a_narrow_terminal(start: Start) -> None:
    person = start("a-conversation-with-quite-a-long-id-about-bows", "-p", "KeepLast(6)", columns=60)
    person.wait_for(r"a-conversation-with-\S+… · compatible:m · KeepLast\(6\)")
    assert person.leave() == 0


@pytest.mark.slow
def test_commands_ids_branches_and_models_are_completed(loopback: Loopback, start: Start, talks: str) -> None:
    with SQLite(talks) as store:
        for name in ("lesson-7", "other"):
            model = Scripted(says("Hi."))
            model.label = "ollama:llama3.2"
            Conversation(name, model=model, store=store).send("Hello!")
    person = start("other")
    person.type("/co")
    person.wait_for(r"(?s)/context +show what.*/cost +show tokens")
    person.type(CTRL_C + "/open les")
    person.wait_for(r"\n +lesson-7")
    person.type(TAB)
    person.wait_for("> /open lesson-7")
    person.send("", "Continuing conversation lesson-7")
    person.type("/branches m")
    person.wait_for(r"\n +main")
    person.type(TAB)
    person.wait_for("> /branches main")
    person.send("", "Now on branch main")
    person.type("/model anthropic:claude-son")
    person.wait_for(r"\n +anthropic:claude-sonnet-5")
    person.type(CTRL_C)
    assert person.leave() == 0


@pytest.mark.slow
def test_a_message_of_several_lines_is_written_by_key_and_by_command(loopback: Loopback, start: Start) -> None:
    loopback.say(streamed("One."), streamed("Two."), streamed("Three."))
    person = start()
    person.type("a" + ALT_ENTER + "b" + CTRL_J + "c")
    person.send("", r"One\.")
    assert sent(loopback)[-1] == "a\nb\nc"
    person.type("/multi" + ENTER)
    person.wait_for("Alt-Enter sends")
    person.type("d" + ENTER + "e" + ALT_ENTER)
    person.wait_for(r"(?ms)Two\..*^>\s*$")
    assert sent(loopback)[-1] == "d\ne"
    person.send("/multi", "Enter sends the message again")
    person.send("f", r"Three\.")
    assert (person.leave(), sent(loopback)[-1]) == (0, "f")


@pytest.mark.slow
def test_earlier_messages_are_found_again_in_a_file_of_the_user_alone(
    loopback: Loopback, start: Start, tmp_path: Path
) -> None:
    loopback.say(streamed("One."), streamed("Two."))
    person = start()
    person.send("What is a fugue?", r"One\.")
    assert person.leave() == 0
    (path,) = (tmp_path / "data").rglob("chat-history")
    assert path.stat().st_mode & 0o077 == 0
    again = start("--new")
    again.type(CTRL_R + "fug")
    again.wait_for("What is a fugue")
    again.type(ENTER)
    again.wait_for("> What is a fugue")
    again.send("", r"Two\.")
    assert (again.leave(), sent(loopback)) == (0, ["What is a fugue?"])


@pytest.mark.slow
def test_what_is_typed_during_an_answer_waits_for_the_prompt(
    loopback: Loopback, start: Start, release: threading.Event
) -> None:
    loopback.say(cut_off("Once upon a time", then=lambda: release.wait(60)), streamed("Two."))
    person = start()
    person.type("a" + ENTER)
    person.wait_for("Once upo")
    person.type("/model" + ENTER + "b" + ENTER)
    release.set()
    person.wait_for(r"(?s)> /model\nModel: compatible:m\n> b\n\nTwo\.")
    assert (person.leave(), sent(loopback)[-1]) == (0, "b")


@pytest.mark.slow
def test_a_resized_terminal_goes_on(loopback: Loopback, start: Start, release: threading.Event) -> None:
    loopback.say(cut_off("Once upon a time " * 20, then=lambda: release.wait(60)), streamed("Two."))
    person = start()
    person.type("a" + ENTER)
    person.wait_for("Once upon")
    person.resize(60, 20)
    release.set()
    person.wait_for(r"(?s)\nlongtalk: .*\n>")
    person.resize(120, 40)
    person.send("b", r"Two\.")
    assert person.leave() == 0


@pytest.mark.slow
def test_without_colours_there_are_none(loopback: Loopback, start: Start) -> None:
    loopback.say(streamed("A **fugue**."))
    person = start(NO_COLOR="1")
    person.send("a", r"A \*\*fugue\*\*\.\n\[10 tokens sent")
    assert person.leave() == 0
    colours = re.findall(rb"\x1b\[[0-9;]*m", person.output)
    assert not [each for each in colours if re.search(rb"[\[;](3[0-8]|4[0-8]|9\d)", each)]


@pytest.mark.slow
def test_errors_are_shown_and_the_chat_goes_on(
    loopback: Loopback, start: Start, talks: str, environment: dict[str, str]
) -> None:
    loopback.say(streamed("Two."))
    person = start("talk")
    person.send("/model nowhere:x", "longtalk: Unknown provider 'nowhere'")
    person.send("/model openai-chat:m", "needs a key: set OPENAI_API_KEY")
    person.send("/policy Magic()", r"'Magic\(\)' is not a policy")
    person.send("/brief", r"/policy\s+Memory\(\)")
    person.send("/fork", "longtalk: ")
    person.send("/model", "Model: compatible:m")
    person.send("b", r"Two\.")
    person.send("/policy Memory()", r"Policy: Memory\(\)")
    person.send("/brief", "The brief is empty")
    person.send("/note Ada is nine.", "Noted")
    person.send("/pin", "The exchange is pinned")
    person.send("/pin", "no longer pinned")
    person.send("/cost", "1 turn in all: 10 tokens sent")
    person.send("/search Two", "talk +")
    person.send("/context", "request +")
    person.send(f"/export {talks}.md", "Written to")
    person.send(f"/export {talks}.md", "already exists")
    person.send("/undo", "The exchange is now on branch main-")
    person.send("/cost", "No model has been called yet")
    person.send("/branches main", "Now on branch main")
    assert person.leave() == 0
    assert "Two." in Path(f"{talks}.md").read_text()
    with SQLite(talks) as store:
        (kept,) = set(Archive(store).branches("talk")) - {"main"}
        assert [each.text for each in Archive(store).history("talk", branch=kept)][:2] == ["b", "Two."]


@pytest.mark.slow
def test_an_answer_can_do_nothing_to_a_terminal_that_renders_it(loopback: Loopback, start: Start) -> None:
    loopback.say(streamed("\x1b]0;owned\x07 `\x1b[31m` \x9b2J\r\u202egnp [a](https://example.org)"))
    person = start()
    person.send("a", r"\\u001b]0;owned\\u0007 \\u001b\[31m \\u009b2J\\u000d\\u202egnp a\s+\(https://example\.org\)")
    assert person.leave() == 0
    assert b"owned\x07" not in person.output
    assert b"\x1b[31m" not in person.output.replace(b"\x1b[31m\x1b[", b"")
    assert "\u202e" not in person.output.decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("/context\n/model x\n/exit\n", [("/context", True), ("/model x", True), ("/exit", True)]),
        ("Hello!\r", [("Hello!", True)]),
        ("Hel", [("Hel", False)]),
        ("one\ntwo\n/exit\n", [("one\ntwo", False), ("/exit", True)]),
        ("\x1b[A\x1bOB\n", []),
    ],
)
def test_what_is_typed_before_the_prompt_is_split(typed: str, found: list[tuple[str, bool]]) -> None:
    assert split_typed(typed) == found
