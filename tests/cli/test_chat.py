"""`longtalk chat` as a person uses it: piped, and at a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longtalk.state import decode, peek
from longtalk.testing import says
from longtalk.wires import NAMES
from tests.loopback import Answer, Loopback, sse

LONGTALK = [str(Path(sys.executable).parent / "longtalk")]


def streamed(text: str, **more: Any) -> Answer:
    events: Any = says(text).events
    return Answer(chunks=sse(*events), **more)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    keep = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    return {**keep, "XDG_DATA_HOME": str(tmp_path / "data"), "TERM": "dumb"}


def piped(arguments: list[str], said: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LONGTALK, "chat", *arguments], input=said, env=environment, capture_output=True, text=True, timeout=120
    )


def test_piped_lines_are_messages_and_the_conversation_goes_on_next_time(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path
) -> None:
    loopback.say(streamed("One."), streamed("Two."), streamed("Three."))
    arguments = ["-m", "compatible:m", "--base-url", loopback.url, "--state", str(tmp_path / "x.talk"), "-s", "S"]
    first = piped(arguments, "a\n\nb\n", environment)
    assert (first.stdout, first.returncode) == ("One.\nTwo.\n", 0)
    assert "10 tokens sent, 0 of them cached, 5 received" in first.stderr
    second = piped(arguments, "c", environment)
    assert second.stdout == "Three.\n"
    assert "Going on" in second.stderr
    assert [m["content"] for m in json.loads(loopback.requests[-1])["messages"]] == [
        "S",
        "a",
        "One.",
        "b",
        "Two.",
        "c",
    ]


def test_without_a_file_the_conversation_is_in_the_users_data_folder(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path
) -> None:
    loopback.say(streamed("One."))
    piped(["-m", "compatible:m", "--base-url", loopback.url], "a\n", environment)
    path = tmp_path / "data" / "longtalk" / "chat.talk"
    assert peek(path.read_bytes()).entries == 2
    assert path.stat().st_mode & 0o077 == 0
    assert [p.name for p in path.parent.iterdir()] == ["chat.talk"]


def test_without_a_model_the_local_one_answers_and_says_how_to_get_a_better_one(environment: dict[str, str]) -> None:
    done = piped([], "Hello!\n", environment)
    assert done.returncode == 0
    assert done.stdout.strip()
    assert "very small" in done.stderr
    assert "openai-chat:" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-m", "nobody:m"], "no provider 'nobody'"),
        (["-m", "openai-chat:m"], "OPENAI_API_KEY"),
        (["-m", "openai-chat"], "Which model"),
        (["-m", "local:/nowhere.gguf"], "/nowhere.gguf"),
        (["-m", "compatible:m", "--base-url", "http://127.0.0.1:9/v1"], "Can't reach"),
        (["--state", "/proc/none/x.talk", "-m", "compatible:m", "--base-url", "URL"], "Can't make the folder"),
        (["--state", "/", "-m", "compatible:m"], "is a directory"),
        (["--nonsense"], "No such option"),
    ],
)
def test_what_is_wrong_is_said_without_a_traceback(
    arguments: list[str], said: str, environment: dict[str, str], loopback: Loopback
) -> None:
    loopback.say(streamed("One."))
    done = piped([loopback.url if a == "URL" else a for a in arguments], "Hello!\n", environment)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_damaged_file_is_named_and_left_alone(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "x.talk"
    path.write_bytes(b"damaged")
    done = piped(["--state", str(path)], "Hello!\n", environment)
    assert done.returncode == 1
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr
    assert path.read_bytes() == b"damaged"


def test_a_failed_turn_is_said_and_the_next_one_works(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path
) -> None:
    events: Any = says("Once upon a time", pieces=2).events
    loopback.say(
        Answer(b'{"error":{"message":"maximum context length is 10 tokens"}}', status=400),
        Answer(chunks=sse(*events[:2]), reset=True),
        streamed("Good."),
    )
    path = tmp_path / "x.talk"
    done = piped(["-m", "compatible:m", "--base-url", loopback.url, "--state", str(path)], "a\nb\nc\n", environment)
    assert done.stdout.split("\n") == ["Once upo", "Good.", ""]
    assert "longer than compatible:m takes" in done.stderr
    assert [entry.mark for entry in decode(path.read_bytes(), wires=NAMES)] == ["", "interrupted", "", ""]


class Terminal:
    """A person at a terminal."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(LONGTALK[0], [*LONGTALK, "chat", *arguments], environment)
        self.screen = ""
        self._read = 0

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def wait_for(self, pattern: str, seconds: float = 60, *, press: str = "") -> None:
        """Until the pattern shows behind all that was waited for before, pressing a key now and then."""
        end = time.monotonic() + seconds
        pressed = time.monotonic()
        while True:
            if press and time.monotonic() - pressed > 1:
                self.type(press)
                pressed = time.monotonic()
            found = re.search(pattern, self.screen[self._read :])
            if found:
                self._read += found.end()
                return
            assert time.monotonic() < end, f"{pattern!r} did not show: {self.screen!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.screen += os.read(self.fd, 4096).decode("utf-8", "replace")
                except OSError:
                    raise AssertionError(f"{pattern!r} did not show before the end: {self.screen!r}") from None

    def exit_code(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self) -> None:
        os.close(self.fd)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_at_a_terminal_ctrl_c_stops_the_answer_and_not_the_program(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path, release: threading.Event
) -> None:
    events: Any = says("Once upon a time", pieces=2).events
    loopback.say(Answer(chunks=sse(*events[:2]), then=lambda: release.wait(60)), streamed("Gladly."))
    path = tmp_path / "x.talk"
    person = Terminal(["-m", "compatible:m", "--base-url", loopback.url, "--state", str(path)], environment)
    person.wait_for("> ")
    person.type("/help\n")
    person.wait_for("Ctrl-C  stop the answer")
    person.type("/dance\n")
    person.wait_for("There is no /dance")
    person.type("Tell me a story.\n")
    person.wait_for("Once upo")
    person.type("\x03")
    person.wait_for(r"\(stopped\)")
    person.wait_for("> ")
    # Between two keys a signal may pass a waiting prompt by unseen: a person presses again.
    person.type("\x03")
    person.wait_for("Ctrl-D leaves", press="\x03")
    person.type("Another, please.\n")
    person.wait_for("Gladly.")
    person.wait_for("> ")
    person.type("/quit\n")
    assert person.exit_code() == 0
    person.close()
    marks = [(entry.role, entry.mark) for entry in decode(path.read_bytes(), wires=NAMES)]
    assert marks == [("user", ""), ("assistant", "interrupted"), ("user", ""), ("assistant", "")]


def test_a_new_conversation_keeps_the_old_one_beside_it(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path
) -> None:
    loopback.say(streamed("One."), streamed("Two."))
    path = tmp_path / "x.talk"
    person = Terminal(["-m", "compatible:m", "--base-url", loopback.url, "--state", str(path)], environment)
    person.type("a\n")
    person.wait_for("One.")
    person.type("/new\n")
    person.wait_for("A new conversation")
    person.type("b\n")
    person.wait_for("Two.")
    person.wait_for("> ")
    person.type("\x04")
    assert person.exit_code() == 0
    person.close()
    assert [peek(file.read_bytes()).entries for file in sorted(tmp_path.glob("x.talk*"))] == [2, 2]


def test_two_at_once_on_one_file_lose_nothing(loopback: Loopback, environment: dict[str, str], tmp_path: Path) -> None:
    loopback.say(streamed("One."), streamed("Two."))
    path = tmp_path / "x.talk"
    arguments = ["-m", "compatible:m", "--base-url", loopback.url, "--state", str(path)]
    first, second = Terminal(arguments, environment), Terminal(arguments, environment)
    for person in (first, second):
        person.wait_for("> ")
    first.type("a\n")
    first.wait_for("One.")
    first.wait_for("> ")
    second.type("b\n")
    second.wait_for("changed by somebody else")
    second.wait_for("> ")
    for person in (first, second):
        person.type("/quit\n")
        assert person.exit_code() == 0
        person.close()
    assert [peek(file.read_bytes()).entries for file in sorted(tmp_path.glob("x.talk*"))] == [2, 2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_polite_kill_in_mid_answer_keeps_what_was_said(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path, release: threading.Event, number: int
) -> None:
    events: Any = says("Once upon a time", pieces=2).events
    loopback.say(Answer(chunks=sse(*events[:2]), then=lambda: release.wait(60)))
    path = tmp_path / "x.talk"
    person = Terminal(["-m", "compatible:m", "--base-url", loopback.url, "--state", str(path)], environment)
    person.wait_for("> ")
    person.type("a\n")
    person.wait_for("Once upo")
    os.kill(person.pid, number)
    assert person.exit_code() == 128 + number
    person.close()
    assert [entry.mark for entry in decode(path.read_bytes(), wires=NAMES)] == ["", "interrupted"]


def test_when_nobody_reads_any_more_the_conversation_is_kept(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path
) -> None:
    loopback.say(streamed("One. " * 20_000))
    path = tmp_path / "x.talk"
    arguments = ["-m", "compatible:m", "--base-url", loopback.url, "--state", str(path)]
    program = subprocess.Popen(
        [*LONGTALK, "chat", *arguments],
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
    assert program.wait(60) == 1
    assert peek(path.read_bytes()).entries == 2


def test_a_link_to_a_file_stays_a_link(loopback: Loopback, environment: dict[str, str], tmp_path: Path) -> None:
    loopback.say(streamed("One."))
    (tmp_path / "link.talk").symlink_to(tmp_path / "real.talk")
    piped(
        ["-m", "compatible:m", "--base-url", loopback.url, "--state", str(tmp_path / "link.talk")], "a\n", environment
    )
    assert (tmp_path / "link.talk").is_symlink()
    assert peek((tmp_path / "real.talk").read_bytes()).entries == 2


def test_a_piped_message_that_fails_is_a_failure(environment: dict[str, str]) -> None:
    done = piped(["-m", "compatible:m", "--base-url", "http://127.0.0.1:9/v1"], "a\n", environment)
    assert (done.returncode, done.stdout) == (1, "")


def test_killed_in_mid_answer_the_last_turn_is_there(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path, release: threading.Event
) -> None:
    events: Any = says("Once upon a time", pieces=2).events
    loopback.say(streamed("One."), Answer(chunks=sse(*events[:2]), then=lambda: release.wait(60)))
    path = tmp_path / "x.talk"
    person = Terminal(["-m", "compatible:m", "--base-url", loopback.url, "--state", str(path)], environment)
    person.type("a\n")
    person.wait_for("One.")
    person.wait_for("> ")
    person.type("b\n")
    person.wait_for("Once")
    os.kill(person.pid, signal.SIGKILL)
    person.exit_code()
    person.close()
    assert peek(path.read_bytes()).entries == 2


def test_the_version_and_the_help_are_shown() -> None:
    from longtalk import __version__

    version = subprocess.run([*LONGTALK, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout == f"longtalk {__version__}\n"
    shown = subprocess.run([*LONGTALK, "chat", "-h"], capture_output=True, text=True, check=True)
    assert "longtalk chat -m ollama:llama3.2" in shown.stdout
