"""The examples in the help of each command work, in a shell, as they are written."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest

from longtalk import Archive, Chat, Conversation, Memory
from longtalk.cli.service_flags import commands
from longtalk.stores.in_memory import InMemory
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import Scripted, says
from tests.cli.helpers import LONGTALK, make_app
from tests.support import forked_program, postgres_server
from tests.support.http_server import HttpHandler, HttpServer
from tests.support.loopback import sse
from tests.transfer.importers import exports
from tests.transfer.importers.test_databases import make_database

TURN = "q3vft5cmxl2a"
"""The turn that examples name."""
LINE = "d538d6df29"
"""The line of the brief that examples name."""
LONG_AGO = "1794700000000"
"""When the entries in the store were made: in November 2026."""
ANSWER = "Like this:\n\n```python\nprint('fugue')\n```\n"
WIRES = {"/chat/completions": "openai-chat", "/responses": "openai-responses", "/messages": "anthropic"}
QUIET = re.compile(r"longtalk (backup|config|delete|export|keys revoke|migrate|rename|list) ?")
"""Commands that may have nothing to say."""
PNG = b"\x89PNG\r\n\x1a\n"
PROGRAM = """\
import json, os, socket, sys
mine, its = socket.socketpair()
request = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
socket.send_fds(socket.socket(fileno=int(os.environ["LONGTALK_TEST_SERVER"])), [request], [0, 1, 2, its.fileno()])
its.close()
sys.exit(int(mine.recv(16)))
"""
"""A `longtalk` for the shell: it hands its input and output to a copy of the program that is already imported."""


def find_examples(command: click.Command) -> Iterator[str]:
    """Yield the examples of a command and of the commands in it."""
    paragraphs = (command.help or "").split("\b\n")[1:]
    examples = [line.strip() for paragraph in paragraphs for line in paragraph.splitlines() if line.strip()]
    assert examples, f"{command.name} has no example"
    yield from examples
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from find_examples(each)


EXAMPLES = list(dict.fromkeys(find_examples(commands)))
STARTS_A_SERVER = [each for each in EXAMPLES if each.startswith("longtalk serve") and "--check" not in each]


class Models(HttpServer):
    """All providers: a server that gives the same answer in the format that a path asks for."""

    root = "/v1"

    def __init__(self) -> None:
        class Handler(HttpHandler):
            def do_POST(self) -> None:
                step = says(ANSWER, wire=next(wire for end, wire in WIRES.items() if self.path.endswith(end)))
                if json.loads(self.read_body()).get("stream"):
                    events: Any = step.events
                    self.begin_stream()
                    for chunk in sse(*events):
                        self.send_chunk(chunk)
                    self.end_stream()
                else:
                    body: Any = step.body
                    self.send_whole(200, body)

        super().__init__(Handler)


@pytest.fixture(scope="module")
def models() -> Iterator[Models]:
    with Models() as started:
        yield started


def fill_store(path: Path) -> None:
    """Make a store with the conversations, turns and brief that examples name."""
    for id, owner in (("lesson-7", ""), ("lesson-8", ""), ("lesson-7", "ada")):  # noqa: A001
        with closing(InMemory()) as first:
            model = Scripted(says("Lightly."))
            model.label = "ollama:llama3.2"
            talk = Conversation(id, model=model, policy=Memory(), store=first)
            turn = talk.send("How do I hold the bow, and how much rosin?").turn_id
            talk.brief.add("facts", "Ada is nine.")
            talk.fork(name="draft")
            text = Archive(first).export(id, format="jsonl").replace(turn, TURN)
            text = text.replace(talk.brief.lines()[0].id, LINE)
        with closing(SQLite(path)) as store:
            archive = Archive(store, owner=owner)
            archive.load(re.sub(r"\b\d{13}\b", LONG_AGO, text))
            archive.set_metadata(id, {"topic": "bows"})
            archive.profile().add("preferences", "Short answers")


def run(*arguments: str, folder: Path, **more: str) -> str:
    """Run a command in a folder, and return what it prints."""
    done = subprocess.run([*LONGTALK, *arguments], cwd=folder, env=environment_in(folder, **more), capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def environment_in(folder: Path, **more: str) -> dict[str, str]:
    """Return the environment of a user whose home is a folder."""
    keep = {name: os.environ[name] for name in ("PATH", "LONGTALK_LOCAL") if name in os.environ}
    xdg = {f"XDG_{name.upper()}_HOME": str(folder / name) for name in ("data", "config")}
    return {**keep, **xdg, "HOME": str(folder), "TERM": "dumb", **more}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that examples name."""
    folder = tmp_path_factory.mktemp("prepared")
    fill_store(folder / "talks.db")
    for store in ("data/longtalk/conversations.db", "talks/"):
        run("copy", "talks.db", store, folder=folder)
    run("export", "--all", "-o", "backup.jsonl", "--store", "talks.db", folder=folder)
    state = Chat(model=Scripted(says("Lightly."))).send("How do I hold the bow?").state
    for name in ("ada.talk", "lesson.talk"):
        (folder / name).write_bytes(state)
    messages = [{"role": "user", "content": "How?"}, {"role": "assistant", "content": "Lightly."}] * 4
    (folder / "messages.json").write_text(json.dumps(messages))
    (folder / "notes.md").write_text("# Bows\n")
    (folder / "questions.txt").write_text("What is a fugue?\nAnd a canon?\n")
    (folder / "photo.png").write_bytes(PNG)
    talk = exports.ChatGPT()
    talk.say("user", "How do I hold the bow?")
    talk.say("assistant", "Lightly.")
    (folder / "chatgpt-export.zip").write_bytes(exports.as_zip({"conversations.json": exports.as_json(talk)}))
    app, mapping = make_app(folder)
    assert (app.name, mapping.name) == ("app.db", "chats.toml")
    (folder / "service.toml").write_text('default_model = "ollama:llama3.2"\n')
    (folder / "config" / "longtalk").mkdir(parents=True)
    shutil.copy(folder / "service.toml", folder / "config" / "longtalk" / "settings.toml")
    run("config", "alias", "tutor", "anthropic:claude-sonnet-5", folder=folder)
    (folder / ".config" / "fish" / "completions").mkdir(parents=True)
    log = make_database("llm", folder)
    for name, script in {"longtalk": f"#!{sys.executable} -IS\n{PROGRAM}", "llm": f"#!/bin/sh\necho '{log}'\n"}.items():
        (folder / "bin").mkdir(exist_ok=True)
        (folder / "bin" / name).write_text(script)
        (folder / "bin" / name).chmod(0o755)
    for command in (["init", "-q"], ["add", "notes.md"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    (folder / "notes.md").write_text("# Bows\n\nHold them lightly.\n")
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    """A folder of this example's own."""
    return Path(shutil.copytree(prepared, tmp_path / "home"))


@pytest.fixture
def environment(folder: Path, models: Models) -> dict[str, str]:
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "sk-test")
    addresses = {"OPENAI_BASE_URL": models.url, "ANTHROPIC_BASE_URL": models.url.removesuffix("/v1")}
    return environment_in(folder, **keys, **addresses, OLLAMA_HOST=models.url.removesuffix("/v1"))


@pytest.mark.slow
@pytest.mark.parametrize("example", [each for each in EXAMPLES if each not in STARTS_A_SERVER])
def test_an_example_of_the_help_works(example: str, folder: Path, environment: dict[str, str]) -> None:
    _, server = forked_program._server()
    said = ""
    if "keys revoke" in example:
        run("keys", "add", "laptop", folder=folder)
        example = example.replace(TURN, json.loads(run("keys", "list", "--json", folder=folder))["id"])
    elif "set-key" in example:
        said = "sk-test\n"
    elif ("delete" in example and "--yes" not in example) or "redact" in example:
        example += " --yes"  # At a terminal, a question is answered instead.
    elif "postgresql://" in example:
        database = postgres_server.server()
        name = database.database()
        if "import" in example:
            with database.asking("app", name) as connection:
                connection.execute("CREATE TABLE agent_sessions (session_id text, created_at text, updated_at text)")
                connection.execute(
                    "CREATE TABLE agent_messages (id int, session_id text, message_data text, created_at text)"
                )
        example = example.replace("postgresql://user@host/database", f"'{database.url(database=name)}'")
    elif example.startswith("longtalk chat") and "<" not in example:
        said = "What is a fugue?\n"
    elif example.startswith("longtalk export --all"):
        (folder / "backup.jsonl").unlink()
    done = subprocess.run(
        ["sh", "-e", "-c", example],
        input=said.encode(),
        env={
            **environment,
            "PATH": f"{folder}/bin:{environment['PATH']}",
            "LONGTALK_TEST_SERVER": str(server.fileno()),
        },
        cwd=folder,
        pass_fds=[server.fileno()],
        capture_output=True,
    )
    assert (done.returncode, b"longtalk:" in done.stderr) == (0, False), done.stderr.decode()
    assert done.stdout or done.stderr or ">" in example or QUIET.match(example)


@pytest.mark.slow
@pytest.mark.parametrize("example", STARTS_A_SERVER)
def test_an_example_of_the_help_starts_the_service(example: str, folder: Path, environment: dict[str, str]) -> None:
    arguments = shlex.split(example)[1:]
    if "--port" not in arguments:
        arguments += ["--port", "0"]
    else:
        arguments[arguments.index("--port") + 1] = "0"
    process = subprocess.Popen(
        [*LONGTALK, *arguments], env=environment, cwd=folder, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert process.stderr
    with process.stderr:
        assert any(b"serves on" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert process.wait(60) == -signal.SIGTERM
