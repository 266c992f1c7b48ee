"""`longtalk chat` as a person uses it: piped, and at a terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from longtalk import Archive, Chat, Conversation, Memory
from longtalk._sync.providers.factory import connect
from longtalk.cli.session import ChatSession, open_session
from longtalk.errors import InputError
from longtalk.testing import Scripted, says
from longtalk.wires import WIRES
from tests.cli.helpers import LONGTALK, Terminal, cut_off, longtalk, marks, store_at, streamed
from tests.support.loopback import Answer, Loopback, sse

WHOLE = [("user", ""), ("assistant", "")]
SHOW = ["show", "--store"]


def at(loopback: Loopback, *more: str) -> list[str]:
    return ["chat", "--lines", "-m", "compatible:m", "--base-url", loopback.url, *more]


def sent(loopback: Loopback) -> list[str]:
    """The texts of the last request."""
    return [message["content"] for message in json.loads(loopback.requests[-1])["messages"]]


def test_piped_lines_are_messages_and_the_conversation_goes_on_next_time(
    loopback: Loopback, environment: dict[str, str], store: str
) -> None:
    loopback.say(streamed("One."), streamed("Two."), streamed("Three."))
    arguments = at(loopback, "--store", store, "-s", "S")
    first = longtalk(*arguments, said="a\n\nb\n", environment=environment)
    assert (first.stdout, first.returncode) == ("One.\nTwo.\n", 0)
    assert "10 tokens sent, 0 of them cached, 5 received" in first.stderr
    begun = re.search(r"Starting conversation (chat-\d{8}-\d{6}) in (\S+)\. ", first.stderr)
    assert begun is not None
    assert begun[2] == store
    second = longtalk(*arguments, said="c", environment=environment)
    assert second.stdout == "Three.\n"
    assert f"Continuing conversation {begun[1]}" in second.stderr
    assert sent(loopback) == ["S", "a", "One.", "b", "Two.", "c"]


def test_piped_text_is_one_message(loopback: Loopback, environment: dict[str, str], store: str) -> None:
    loopback.say(streamed("One."))
    arguments = ["chat", "-m", "compatible:m", "--base-url", loopback.url, "--store", store]
    done = longtalk(*arguments, said="  def f():\n\n/quit\n", environment=environment)
    assert done.stdout == "One.\n"
    assert sent(loopback) == ["  def f():\n\n/quit"]


def test_a_conversation_goes_on_as_it_was_last_held(
    loopback: Loopback, environment: dict[str, str], store: str, tmp_path: Path
) -> None:
    loopback.say(streamed("One."), streamed("Two."))
    longtalk(*at(loopback, "talk", "--store", store, "-s", "S", "-p", "KeepLast(7)"), said="a", environment=environment)
    held = ["chat", "talk", "--store", store]
    second = longtalk(*held, said="b", environment=environment)
    assert second.stdout == "Two.\n"
    assert sent(loopback) == ["S", "a", "One.", "b"]
    with store_at(store) as kept:
        settings = Archive(kept).settings("talk")
    assert settings is not None
    assert (settings.model, settings.policy_text) == ("compatible:m", "KeepLast(limit=7, to=None, sliding=False)")
    # The store names no address, and this user has given none.
    other = {**environment, "XDG_DATA_HOME": f"{tmp_path}/other"}
    elsewhere = longtalk(*held, said="c", environment=other)
    assert (elsewhere.returncode, "--base-url" in elsewhere.stderr) == (1, True)


def test_a_conversation_finds_the_address_of_its_model_in_the_settings(
    loopback: Loopback, environment: dict[str, str], store: str, tmp_path: Path
) -> None:
    loopback.say(streamed("One."), streamed("Two."))
    other = {**environment, "XDG_DATA_HOME": f"{tmp_path}/other"}
    longtalk(*at(loopback, "talk", "--store", store), said="a", environment=other)
    longtalk("config", "alias", "mine", "compatible:m", "--base-url", loopback.url, environment=environment)
    assert longtalk("chat", "talk", "--store", store, said="b", environment=environment).stdout == "Two.\n"


def test_without_a_store_the_conversation_is_private_in_the_users_data_folder(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path
) -> None:
    loopback.say(streamed("One."))
    longtalk(*at(loopback), said="a\n", environment=environment)
    folder = tmp_path / "data" / "longtalk"
    assert marks(folder / "conversations.db") == WHOLE
    assert (folder / "conversations.db").stat().st_mode & 0o077 == 0
    assert folder.stat().st_mode & 0o077 == 0
    assert {path.name for path in folder.iterdir()} >= {"conversations.db", "addresses.json"}
    assert [path for path in folder.iterdir() if path.stat().st_mode & 0o077] == []


def test_a_created_folder_is_private(loopback: Loopback, environment: dict[str, str], tmp_path: Path) -> None:
    loopback.say(streamed("One."))
    longtalk(*at(loopback, "--store", f"{tmp_path}/talks/"), said="a\n", environment=environment)
    assert (tmp_path / "talks").stat().st_mode & 0o077 == 0


def test_without_a_model_the_local_one_answers_and_says_how_to_get_a_better_one(environment: dict[str, str]) -> None:
    done = longtalk("chat", said="Hello!\n", environment=environment)
    assert done.returncode == 0
    assert done.stdout.strip()
    assert "very small" in done.stderr
    assert "openai-chat:" in done.stderr


def test_a_conversation_can_be_named(loopback: Loopback, environment: dict[str, str], store: str) -> None:
    loopback.say(streamed("One."), streamed("Two."), streamed("Three."))
    assert (
        "Starting conversation lesson-7"
        in longtalk(*at(loopback, "lesson-7", "--store", store), said="a\n", environment=environment).stderr
    )
    assert (
        "Continuing conversation lesson-7"
        in longtalk(*at(loopback, "lesson-7", "--store", store), said="b\n", environment=environment).stderr
    )
    assert sent(loopback) == ["a", "One.", "b"]
    # It was changed last, so it is also the one to go on with.
    assert (
        "Continuing conversation lesson-7"
        in longtalk(*at(loopback, "--store", store), said="c\n", environment=environment).stderr
    )


def test_a_chat_says_what_it_brings_along_from_the_last_turn(
    loopback: Loopback, environment: dict[str, str], store: str
) -> None:
    loopback.say(streamed("One."), streamed("Two."))
    first = at(loopback, "--store", store, "-s", "Be brief.", "-o", "max_tokens", "5")
    assert "As before" not in longtalk(*first, said="a\n", environment=environment).stderr
    done = longtalk(*at(loopback, "--store", store), said="b\n", environment=environment)
    assert "As before: system text 'Be brief.', options max_tokens 5. `longtalk chat --new` starts" in done.stderr
    assert sent(loopback)[0] == "Be brief."


def test_words_in_place_of_an_id_are_pointed_out(environment: dict[str, str]) -> None:
    done = longtalk("chat", "say hi", said="", environment=environment)
    assert "To ask them: longtalk 'say hi'" in done.stderr


def test_without_an_id_chat_continues_the_conversation_that_was_changed_last(
    loopback: Loopback, environment: dict[str, str], store: str
) -> None:
    loopback.say(streamed("One."), streamed("Two."))
    longtalk(*at(loopback, "--store", store), said="a\n", environment=environment)
    held = store_at(store)
    made = Conversation("app", model=Scripted(says("Hi.")), store=held)
    made.send("Hello!")
    made.set_metadata({"title": "Mine"})
    held.close()
    done = longtalk(*at(loopback, "--store", store), said="b\n", environment=environment)
    assert "Continuing conversation app" in done.stderr
    assert sent(loopback) == ["Hello!", "Hi.", "b"]


def test_a_conversation_of_another_wire_continues(loopback: Loopback, environment: dict[str, str], store: str) -> None:
    held = store_at(store)
    model = Scripted(says("Hi.", wire="anthropic"), wire=WIRES["anthropic"])
    Conversation("app", model=model, store=held).send("Hello!")
    held.close()
    loopback.say(streamed("One."))
    done = longtalk(*at(loopback, "--store", store), said="a\n", environment=environment)
    assert (done.returncode, done.stdout) == (0, "One.\n")
    assert "held over anthropic" in done.stderr
    assert sent(loopback) == ["Hello!", "Hi.", "a"]


def test_owners_have_conversations_of_their_own(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path
) -> None:
    loopback.say(streamed("One."), streamed("Two."))
    arguments = at(loopback, "x", "--store", f"{tmp_path}/x.db")
    longtalk(*arguments, "--owner", "ada", said="a\n", environment=environment)
    longtalk(*arguments, said="b\n", environment=environment | {"LONGTALK_OWNER": "bob"})
    assert sent(loopback) == ["b"]


def test_the_environment_can_name_the_store(loopback: Loopback, environment: dict[str, str], store: str) -> None:
    loopback.say(streamed("One."))
    longtalk(*at(loopback), said="a\n", environment=environment | {"LONGTALK_STORE": store})
    assert marks(store) == WHOLE


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-m", "nowhere:m"], "Unknown provider 'nowhere'"),
        (["-m", "openai-chat:m"], "needs a key: set OPENAI_API_KEY, or run `longtalk config set-key openai-chat`."),
        (["-m", "compatible:m"], "needs --base-url, the address"),
        (["-m", "nowhere:m"], "with --base-url."),
        (["-m", "compatible:m", "--base-url", "http://127.0.0.1:9/v1"], "the address (--base-url) is right."),
        (["-m", "openai-chat"], "No model is named for openai-chat"),
        (["-m", "local:/nowhere.gguf"], "/nowhere.gguf"),
        (["-m", "compatible:m", "--base-url", "http://127.0.0.1:9/v1"], "Can't reach"),
        (["--store", "/proc/none/x.db", "-m", "compatible:m", "--base-url", "URL"], "Can't create the folder"),
        (["--store", "/dev/null", "-m", "compatible:m", "--base-url", "URL"], "/dev/null"),
        (["--store", "/dev/null/", "-m", "compatible:m", "--base-url", "URL"], "is a file"),
        (["--store", "", "-m", "compatible:m", "--base-url", "URL"], "not a path"),
        (["", "-m", "compatible:m", "--base-url", "URL"], "id of a conversation must be a non-empty string"),
        (["x", "--new"], "not both"),
        (["--nonsense"], "No such option"),
    ],
)
def test_errors_are_printed_without_a_traceback(
    arguments: list[str], said: str, environment: dict[str, str], loopback: Loopback
) -> None:
    loopback.say(streamed("One."))
    done = longtalk(
        "chat", *[loopback.url if a == "URL" else a for a in arguments], said="Hello!\n", environment=environment
    )
    assert said in done.stderr
    assert "_url" not in done.stderr
    assert "api_key" not in done.stderr
    assert done.returncode in (1, 2)


def test_a_file_that_is_no_store_is_named_and_left_alone(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"no database at all" * 100)
    done = longtalk(*at(loopback, "--store", str(path)), said="Hello!\n", environment=environment)
    assert done.returncode == 1
    assert str(path) in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert path.read_bytes() == b"no database at all" * 100


def test_a_failed_turn_is_said_and_the_next_one_works(
    loopback: Loopback, environment: dict[str, str], store: str
) -> None:
    loopback.say(
        Answer(b'{"error":{"message":"maximum context length is 10 tokens"}}', status=400),
        cut_off("Once upon a time", reset=True),
        streamed("Good."),
    )
    done = longtalk(*at(loopback, "--store", store), said="a\nb\nc\n", environment=environment)
    assert done.stdout.split("\n") == ["Once upo", "Good.", ""]
    assert done.returncode == 0
    assert "too long for compatible:m" in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("longtalk: ")]) == 2
    assert marks(store) == [("user", ""), ("user", ""), ("assistant", "interrupted"), *WHOLE]


def test_a_piped_line_that_is_no_command_is_a_message(
    loopback: Loopback, environment: dict[str, str], store: str
) -> None:
    said = ["/usr/bin/env fails, why?", " /quit", "/new one", "/dance", "/quit", "never"]
    loopback.say(*[streamed(f"{number}.") for number in range(4)])
    done = longtalk(*at(loopback, "--store", store), said="\n".join(said), environment=environment)
    assert (done.returncode, done.stdout) == (0, "0.\n1.\n2.\n3.\n")
    assert sent(loopback)[::2] == ["/usr/bin/env fails, why?", "/quit", "/new one", "/dance"]


def test_at_a_terminal_a_space_makes_a_message_of_a_slash(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path
) -> None:
    loopback.say(streamed("One."))
    person = Terminal(at(loopback, "--store", f"{tmp_path}/x.db"), environment)
    person.wait_for("> ")
    person.type(" /help\n")
    person.wait_for("One.")
    person.wait_for("> ")
    person.type("/quit\n")
    assert person.exit_code() == 0
    person.close()
    assert sent(loopback) == ["/help"]


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_lines_pasted_into_a_plain_terminal_are_one_message(
    end: str, loopback: Loopback, environment: dict[str, str], tmp_path: Path
) -> None:
    loopback.say(streamed("One."))
    person = Terminal(at(loopback, "--store", f"{tmp_path}/x.db"), environment)
    person.wait_for("> ")
    person.type("def f():\n    return 1\n\nWhat is it?\n/model\n".replace("\n", end))
    person.wait_for("One.")
    person.wait_for("Model: compatible:m")
    person.type("/quit\n")
    assert person.exit_code() == 0
    person.close()
    assert sent(loopback) == ["def f():\n    return 1\n\nWhat is it?"]


def test_without_an_id_open_lists_the_conversations(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path
) -> None:
    store = f"{tmp_path}/x.db"
    with store_at(store) as held:
        Conversation("lesson-7", model=Scripted(says("Hi.")), store=held).send("Hello!")
    person = Terminal(at(loopback, "other", "--store", store), environment)
    person.type("/open\n")
    person.wait_for(r"lesson-7 .* Hello!")
    person.wait_for("/open ID continues one")
    person.type("/open lesson7\n")
    person.wait_for(r"Did you mean 'lesson-7'\? /open alone lists the last ones")
    person.type("/quit\n")
    assert person.exit_code() == 0
    person.close()


HINT = "(The last message has no complete answer. To ask for it again, type /again.)"


def test_an_answer_that_failed_can_be_asked_for_again(
    loopback: Loopback, environment: dict[str, str], store: str
) -> None:
    arguments = at(loopback, "--store", store)
    refusal = Answer(b'{"error":{"message":"not today"}}', status=400)
    loopback.say(streamed("Hi."), refusal, refusal, streamed("One."))
    first = longtalk(*arguments, said="/again\nHello!\na\n", environment=environment)
    assert first.returncode == 1
    assert "There are no messages yet." in first.stderr
    assert first.stderr.count(HINT) == 1
    assert re.search(r"user  \S+  \(failed\)\n    a\n", longtalk(*SHOW, store, environment=environment).stdout)
    second = longtalk(*arguments, said="/again\n/again\n/again\n", environment=environment)
    assert (second.returncode, second.stdout) == (0, "One.\n")
    assert second.stderr.count(HINT) == 2
    assert "The last message has an answer" in second.stderr
    assert sent(loopback) == ["Hello!", "Hi.", "a"]
    assert HINT not in longtalk(*arguments, said="/quit\n", environment=environment).stderr


def test_a_first_message_that_failed_leaves_no_conversation(
    loopback: Loopback, environment: dict[str, str], store: str
) -> None:
    refusal = Answer(b'{"error":{"message":"not today"}}', status=400)
    loopback.say(refusal, refusal, streamed("One."), refusal)
    arguments = at(loopback, "--store", store)
    failed = longtalk(*arguments, said="a\n/again\n", environment=environment)
    assert (failed.returncode, failed.stderr.count(HINT)) == (1, 2)
    assert "This store has no conversations" in longtalk(*SHOW, store, environment=environment).stderr
    answered = longtalk(*arguments, said="b\nc\n", environment=environment)
    assert (answered.returncode, answered.stdout) == (1, "One.\n")
    assert marks(store) == [*WHOLE, ("user", "")]


@pytest.mark.parametrize("lines", ["hello\n/edit\nhallo\n", "hello\n/undo\nhallo\n"])
def test_an_answer_on_another_branch_is_kept_when_the_message_in_its_place_fails(
    loopback: Loopback, environment: dict[str, str], store: str, lines: str
) -> None:
    loopback.say(streamed("One."), Answer(b'{"error":{"message":"not today"}}', status=401))
    done = longtalk(*at(loopback, "--store", store), said=lines, environment=environment)
    assert (done.returncode, done.stdout) == (1, "One.\n")
    with store_at(store) as held:
        (found,) = Archive(held).conversations()
        (kept,) = (each for each in found.branches if each != "main")
        assert [each.text for each in Archive(held).history(found.id, branch=kept)] == ["hello", "One."]


def test_a_conversation_whose_first_message_failed_is_deleted_when_another_is_opened(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path
) -> None:
    store = f"{tmp_path}/talks.db"
    with store_at(store) as held:
        model = Scripted(says("Hi."))
        model.label = "ollama:llama3.2"
        Conversation("old", model=model, store=held).send("Hello!")
    loopback.say(Answer(b'{"error":{"message":"not today"}}', status=401))
    person = Terminal(at(loopback, "--new", "--store", store), environment)
    person.type("a\n")
    person.wait_for("not today")
    person.type("/open old\n")
    person.wait_for("Continuing conversation old")
    person.type("/quit\n")
    assert person.exit_code() == 0
    person.close()
    with store_at(store) as held:
        assert [each.id for each in Archive(held).conversations()] == ["old"]


def test_half_an_answer_can_be_asked_for_again_and_stays_on_a_branch(
    loopback: Loopback, environment: dict[str, str], store: str
) -> None:
    arguments = at(loopback, "--store", store)
    loopback.say(cut_off("Once upon a time", reset=True), streamed("Good."))
    done = longtalk(*arguments, said="a\n/again\n", environment=environment)
    assert (done.returncode, done.stdout) == (0, "Once upo\nGood.\n")
    assert sent(loopback) == ["a"]
    assert marks(store) == WHOLE
    kept = re.search(r"is now on branch (\S+)\.\)", done.stderr)
    assert kept is not None
    shown = longtalk(*SHOW, store, "--branch", kept[1], environment=environment)
    assert re.search(r"assistant  \S+  \(interrupted, failed\)  compatible:m\n    Once upo\n", shown.stdout)


def test_an_answer_cut_off_by_the_length_limit_can_go_on(
    loopback: Loopback, environment: dict[str, str], store: str
) -> None:
    events: Any = says("Once upon", finish="length").events
    loopback.say(Answer(chunks=sse(*events)))
    done = longtalk(*at(loopback, "--store", store), said="a\n/again\n", environment=environment)
    assert "cut off by the length limit: to have more, write 'Go on.' For another answer, use /retry." in done.stderr


def test_a_piped_message_that_fails_is_a_failure(environment: dict[str, str]) -> None:
    done = longtalk(
        "chat", "-m", "compatible:m", "--base-url", "http://127.0.0.1:9/v1", said="a\n", environment=environment
    )
    assert (done.returncode, done.stdout) == (1, "")


def test_a_store_that_breaks_in_between_is_said_and_the_chat_goes_on(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path
) -> None:
    files: list[tuple[Path, bytes]] = []

    def damage() -> None:
        (path,) = (tmp_path / "talks").glob("*/*.jsonl")
        files.append((path, path.read_bytes()))
        path.write_bytes(files[0][1].replace(b'"file":"', b'"file":"x', 1))

    loopback.say(streamed("One.", then=damage))
    arguments = at(loopback, "--store", f"{tmp_path}/talks/")
    done = longtalk(*arguments, said="a\n/history\n", environment=environment)
    assert (done.returncode, done.stdout) == (1, "One.\n")
    assert len([line for line in done.stderr.splitlines() if "is damaged" in line]) == 2
    # What was there before is all that it needs.
    for path, data in files:
        path.write_bytes(data)
    loopback.say(streamed("Two."))
    assert longtalk(*arguments, said="b\n", environment=environment).stdout == "Two.\n"
    assert sent(loopback) == ["a", "b"]


def test_text_that_is_not_unicode_is_printed_too(loopback: Loopback, environment: dict[str, str], store: str) -> None:
    loopback.say(streamed("One."))
    done = longtalk(*at(loopback, "--store", store), said=b"caf\xe9\n", environment=environment)
    assert (done.returncode, done.stdout) == (0, "One.\n")
    assert sent(loopback) == ["caf�"]


def test_at_a_terminal_ctrl_c_stops_the_answer_and_not_the_program(
    loopback: Loopback, environment: dict[str, str], store: str, release: threading.Event
) -> None:
    loopback.say(cut_off("Once upon a time", then=lambda: release.wait(60)), streamed("Gladly."))
    person = Terminal(at(loopback, "--store", store), environment)
    person.wait_for("> ")
    person.type("/help\n")
    person.wait_for("Ctrl-C  +stop the answer")
    person.type("/dance\n")
    person.wait_for(r"Unknown command /dance\. /help lists the commands\. To send the line as a message")
    person.type("/histroy\n")
    person.wait_for(r"Unknown command /histroy\. Did you mean /history\?")
    person.type("/undo one\n")
    person.wait_for("/undo takes no arguments")
    person.type("/note\n")
    person.wait_for("Use: /note TEXT")
    person.type("Tell me a story.\n")
    person.wait_for("Once upo")
    person.type("\x03")
    person.wait_for(r"\(stopped\)")
    person.wait_for("> ")
    # Between two keys a signal may pass a waiting prompt by unseen: a person presses again.
    person.type("\x03")
    person.wait_for("press Ctrl-D", press="\x03")
    person.type("Another, please.\n")
    person.wait_for("Gladly.")
    person.wait_for("> ")
    person.type("/history\n")
    person.wait_for(r"assistant  \S+  \(interrupted\)")
    person.wait_for("    Once upo")
    person.wait_for("    Gladly.")
    person.wait_for("> ")
    person.type("/quit\n")
    assert person.exit_code() == 0
    person.close()
    assert marks(store) == [("user", ""), ("assistant", "interrupted"), *WHOLE]


def test_a_new_conversation_leaves_the_old_one(loopback: Loopback, environment: dict[str, str], store: str) -> None:
    loopback.say(streamed("One."), streamed("Two."), streamed("Three."))
    person = Terminal(at(loopback, "--store", store), environment)
    person.type("/new\n")
    person.wait_for("This conversation is already new")
    person.type("a\n")
    person.wait_for("One.")
    person.type("/new\n")
    person.wait_for(r"Starting conversation chat-\S+\. To continue the previous one, use /open chat-\S+\.")
    person.type("b\n")
    person.wait_for("Two.")
    person.wait_for("> ")
    person.type("\x04")
    assert person.exit_code() == 0
    person.close()
    longtalk(*at(loopback, "--new", "--store", store), said="c\n", environment=environment)
    held = store_at(store)
    found = Archive(held).conversations()
    held.close()
    assert [(each.entries, each.meta) for each in found] == [(2, {})] * 3


def test_nothing_is_kept_of_a_conversation_in_which_nothing_was_said(
    loopback: Loopback, environment: dict[str, str], store: str
) -> None:
    done = longtalk(*at(loopback, "--store", store), said="/history\n/quit\n", environment=environment)
    assert (done.returncode, done.stdout) == (0, "")
    held = store_at(store)
    assert Archive(held).conversations() == []
    held.close()


def test_many_that_begin_at_once_are_conversations_of_their_own(
    loopback: Loopback, environment: dict[str, str], store: str
) -> None:
    loopback.say(*[streamed("One.") for _ in range(6)])
    programs = [
        subprocess.Popen(
            [*LONGTALK, *at(loopback, "--new", "--store", store)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(6)
    ]
    for program in programs:
        assert program.stdin is not None
        program.stdin.write(b"a\n")
        program.stdin.flush()
    assert [program.communicate(timeout=120)[0] for program in programs] == [b"One.\n"] * 6
    held = store_at(store)
    assert [each.entries for each in Archive(held).conversations()] == [2] * 6
    held.close()


def test_of_two_that_begin_under_one_name_the_second_gets_another(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.strftime", lambda _: "chat-20261115-145240")
    held = store_at(store)
    first, second, named = (
        ChatSession(Archive(held), Scripted(says("Hi.")), name, new=name is None)
        for name in (None, None, "chat-20261115-145240")
    )
    assert [session.id for session in (first, second, named)] == ["chat-20261115-145240"] * 3
    for session in (first, second, named):
        session.ensure_stored().send("Hello!")
        assert not session.is_new
    assert [session.id for session in (first, second, named)] == [first.id, "chat-20261115-145240-2", first.id]
    assert [each.entries for each in Archive(held).conversations()] == [4, 2]
    assert "chat-20261115-145240-2" in capsys.readouterr().err
    held.close()


def test_a_conversation_created_under_the_chosen_id_meanwhile_is_not_continued(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = store_at(store)
    free = ChatSession._new_id

    def taken(session: ChatSession) -> str:
        name = free(session)
        monkeypatch.setattr(ChatSession, "_new_id", free)
        Conversation(name, model=Scripted(says("Hi.")), store=held).send("Mine!")
        return name

    monkeypatch.setattr(ChatSession, "_new_id", taken)
    session = ChatSession(Archive(held), Scripted(says("Ho.")), None, new=True)
    assert [said.text for said in session.ensure_stored().history()] == []
    held.close()


def test_a_folder_that_takes_nothing_is_told(loopback: Loopback, environment: dict[str, str]) -> None:
    done = longtalk(*at(loopback, "--store", "/proc"), said="a\n", environment=environment)
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if line.startswith("longtalk: ")]


def test_two_at_once_in_one_conversation_take_turns_and_lose_nothing(
    loopback: Loopback, environment: dict[str, str], store: str, release: threading.Event
) -> None:
    loopback.say(cut_off("Once upon a time", then=lambda: release.wait(60)), streamed("Two."), streamed("Three."))
    arguments = at(loopback, "x", "--store", store)
    first, second = Terminal(arguments, environment), Terminal(arguments, environment)
    for person in (first, second):
        person.wait_for("> ")
    first.type("a\n")
    first.wait_for("Once upo")
    second.type("b\n")
    second.wait_for("waiting for another turn")
    # The user can stop waiting.
    second.type("\x03")
    second.wait_for(r"\(stopped\)")
    second.wait_for("> ")
    second.type("c\n")
    second.wait_for("waiting for another turn")
    first.type("\x03")
    first.wait_for(r"\(stopped\)")
    second.wait_for("Two.")
    second.wait_for("> ")
    first.type("d\n")
    first.wait_for("Three.")
    first.wait_for("> ")
    for person in (first, second):
        person.type("/quit\n")
        assert person.exit_code() == 0
        person.close()
    assert sent(loopback) == ["a", "Once upo", "c", "Two.", "d"]
    assert marks(store) == [("user", ""), ("assistant", "interrupted"), *WHOLE, *WHOLE]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_polite_kill_in_mid_answer_keeps_what_was_said(
    loopback: Loopback, environment: dict[str, str], store: str, release: threading.Event, number: int
) -> None:
    loopback.say(cut_off("Once upon a time", then=lambda: release.wait(60)))
    person = Terminal(at(loopback, "--store", store), environment)
    person.wait_for("> ")
    person.type("a\n")
    person.wait_for("Once upo")
    os.kill(person.pid, number)
    assert person.exit_code() == 128 + number
    person.close()
    assert marks(store) == [("user", ""), ("assistant", "interrupted")]


def test_killed_in_mid_answer_the_conversation_goes_on_at_once(
    loopback: Loopback, environment: dict[str, str], store: str, release: threading.Event
) -> None:
    loopback.say(streamed("One."), cut_off("Once upon a time", then=lambda: release.wait(60)))
    loopback.say(streamed("Three."), streamed("Four."))
    arguments = at(loopback, "--store", store)
    person = Terminal(arguments, environment)
    person.type("a\n")
    person.wait_for("One.")
    person.wait_for("> ")
    person.type("b\n")
    person.wait_for("Once")
    os.kill(person.pid, signal.SIGKILL)
    person.exit_code()
    person.close()
    assert marks(store) == [*WHOLE, ("user", "")]
    assert "(no complete answer yet)\n    b\n" in longtalk(*SHOW, store, environment=environment).stdout
    done = longtalk(*arguments, said="/again\nc\n", environment=environment)
    assert (done.returncode, done.stdout) == (0, "Three.\nFour.\n")
    assert done.stderr.count(HINT) == 1
    assert "waiting" not in done.stderr, "it waits for one that is gone"
    assert sent(loopback) == ["a", "One.", "b", "Three.", "c"]
    assert longtalk("show", "--store", store, environment=environment).stdout.count("Three.") == 1


def test_when_the_reader_of_the_output_leaves_the_conversation_is_kept(
    loopback: Loopback, environment: dict[str, str], store: str
) -> None:
    loopback.say(streamed("One. " * 20_000))
    program = subprocess.Popen(
        [*LONGTALK, *at(loopback, "--store", store)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stderr is not None
    program.stdin.write(b"a\n")
    program.stdin.flush()
    program.stdout.read(5)
    program.stdout.close()
    program.stdin.close()
    assert b"Traceback" not in program.stderr.read()
    program.stderr.close()
    assert program.wait(60) == 141
    assert marks(store) == WHOLE


def test_an_answer_can_do_nothing_to_the_terminal(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path
) -> None:
    hostile = "\x1b]0;owned\x07red \x1b[31m \x9b2J\r\u202egnp"
    loopback.say(
        streamed(hostile),
        Answer(json.dumps({"error": {"message": f"no {hostile}"}}).encode(), status=400),
        streamed(hostile),
    )
    path = str(tmp_path / "x.db")
    person = Terminal(at(loopback, "--store", path), environment)
    person.wait_for("> ")
    for said in ("a", "b", "/history"):
        person.type(f"{said}\n")
        person.wait_for("> ")
    person.type("/quit\n")
    screen = person.rest()
    assert person.exit_code() == 0
    person.close()
    assert screen.count(r"\u001b]0;owned\u0007red \u001b[31m \u009b2J\u000d\u202egnp") == 2
    assert not set(screen) & set("\x1b\x07\x9b\u202e")
    # Where no terminal is, it is as it was said.
    assert longtalk(*at(loopback, "--store", path), said="c\n", environment=environment).stdout == f"{hostile}\n"


def test_the_file_of_an_earlier_version_is_pointed_out_until_it_is_taken_in(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "data" / "longtalk" / "chat.talk"
    path.parent.mkdir(parents=True)
    path.write_bytes(Chat(Scripted(says("One."))).send("a").state)
    loopback.say(streamed("Two."))
    told = longtalk(*at(loopback), said="/quit\n", environment=environment)
    assert f"longtalk import {path}" in told.stderr
    assert longtalk("import", path, environment=environment).stdout == "chat\t2 entries\n"
    done = longtalk(*at(loopback, "chat"), said="b\n", environment=environment)
    assert "longtalk import" not in done.stderr
    assert done.stdout == "Two.\n"
    assert sent(loopback) == ["a", "One.", "b"]


def test_the_version_and_the_help_are_shown(environment: dict[str, str]) -> None:
    from longtalk import __version__

    assert longtalk("--version", environment=environment).stdout == f"longtalk {__version__}\n"
    for words in (["-V"], ["version"]):
        assert longtalk(*words, environment=environment).stdout == f"longtalk {__version__}\n"
    for words in (["help"], ["help", "config", "set"]):
        assert (
            longtalk(*words, environment=environment).stdout
            == longtalk(*words[1:], "--help", environment=environment).stdout
        )
    shown = " ".join(longtalk("chat", "-h", environment=environment).stdout.split())
    assert "longtalk chat lesson-7 -m ollama:llama3.2" in shown
    assert "most recently changed" in shown
    assert "[env var: LONGTALK_STORE]" in shown
    assert "[env var: LONGTALK_OWNER]" in shown
    assert ".local/share/longtalk/conversations.db" in shown
    told = longtalk("--help", environment=environment).stdout
    assert "..." not in told.replace("[ARGS]...", "")


def test_the_package_runs_as_the_command_does(environment: dict[str, str]) -> None:
    from longtalk import __version__

    module = [sys.executable, "-m", "longtalk"]
    done = subprocess.run([*module, "--version"], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"longtalk {__version__}\n"
    wrong = subprocess.run([*module, "lst"], env=environment, capture_output=True, text=True)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("Usage: longtalk ")


def test_a_policy_can_be_named_and_the_brief_that_it_keeps_is_shown(
    loopback: Loopback, environment: dict[str, str], store: str
) -> None:
    loopback.say(streamed("One."))
    held = store_at(store)
    Conversation("lesson", model=Scripted(), store=held, policy=Memory()).brief.set("goal", "Play Bach")
    held.close()
    arguments = at(loopback, "lesson", "--store", store, "-p", "Memory()")
    done = longtalk(*arguments, said="/brief\na\n", environment=environment)
    assert (done.stdout, done.returncode) == ("<brief>\ngoal: Play Bach\n</brief>\nOne.\n", 0)
    assert "goal: Play Bach" in sent(loopback)[0]
    arguments.remove("lesson")
    empty = longtalk(*arguments, "--new", said="/brief\n", environment=environment)
    assert empty.stdout == "(The brief is empty.)\n"


def test_without_memory_there_is_no_brief_to_show(loopback: Loopback, environment: dict[str, str], store: str) -> None:
    done = longtalk(*at(loopback, "--store", store), said="/brief\n", environment=environment)
    assert done.stdout == ""
    assert "This policy keeps no brief: use /policy Memory()." in done.stderr


def test_a_wrong_policy_for_a_chat_is_wrong_usage(loopback: Loopback, environment: dict[str, str]) -> None:
    done = longtalk(*at(loopback, "-p", "Magic()"), environment=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Examples: KeepAll()" in done.stderr


def test_words_of_other_tools_are_explained_and_not_sent(
    loopback: Loopback, environment: dict[str, str], store: str
) -> None:
    person = Terminal(at(loopback, "--new", "--store", store), environment)
    person.type("!multi\n")
    person.wait_for("Commands begin with a slash: /multi")
    person.type("!clear\n")
    person.wait_for("Commands begin with a slash: /help")
    person.type("/image cat.png\n")
    person.wait_for("Unknown command /image. To ask about a file, leave the chat and use `longtalk ask -c -f FILE`")
    person.type("!fragment notes\n")
    person.wait_for("Commands begin with a slash: /help. To ask about a file")
    person.type("/help multi\n")
    person.wait_for("up to a line /end")
    person.type("exit\n")
    assert person.exit_code() == 0
    person.close()
    assert loopback.requests == []


def test_an_error_of_a_command_says_nothing_of_an_answer_that_failed_before(
    loopback: Loopback, environment: dict[str, str], store: str
) -> None:
    loopback.say(streamed("One."), Answer(b'{"error":{"message":"not today"}}', status=401))
    person = Terminal(at(loopback, "--new", "--store", store), environment)
    person.type("a\n")
    person.wait_for("One")
    person.type("b\n")
    person.wait_for("type /again")
    person.type("/brief\n")
    person.wait_for("/policy Memory")
    person.type("quit\n")
    person.rest()
    assert person.screen.count("type /again") == 1
    assert person.exit_code() == 0


def test_another_model_closes_the_one_before_and_a_model_that_fails_changes_nothing(
    loopback: Loopback, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", loopback.url)
    closed: list[str] = []

    def connect_watched(name: str, **more: Any) -> Any:
        if name == "ollama:broken":
            raise InputError("No.")
        made = connect(name, **more)
        close = made.close
        monkeypatch.setattr(made, "close", lambda: (closed.append(name), close()))
        return made

    monkeypatch.setattr("longtalk.cli.holding.connect", connect_watched)
    with store_at(store) as held:
        model = Scripted(says("Hi."))
        model.label = "ollama:broken"
        Conversation("old", model=model, store=held).send("Hello!")
    choices = {"owner": "", "system": None, "base_url": None, "policy": None}
    with open_session(store=store, id=None, new=True, model="ollama:a", **choices) as session:
        session.change_model("ollama:b")
        assert closed == ["ollama:a"]
        session.ensure_stored()
        name = session.id
        with pytest.raises(InputError, match="No"):
            session.open("old")
        assert (session.id, session.provider.label, closed) == (name, "ollama:b", ["ollama:a"])
        assert [each.id for each in session.archive.conversations()] == [name, "old"]
    assert closed == ["ollama:a", "ollama:b"]
