"""Real clients of OpenAI's API, unchanged but for the base URL and the key, against a running service.

Each client is a program of its own in `tests/support/clients`, in an environment of its own (`make clients`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from longtalk.service.access import AccessKeys
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.testing import Step, says, validate
from tests.service.conftest import Serve, Served
from tests.service.test_complaints import Checked
from tests.support.child_processes import die_with_parent
from tests.support.http_server import HttpHandler, HttpServer

pytestmark = pytest.mark.slow

CLIENTS = Path(sys.prefix) / "clients"
PROGRAMS = Path(__file__).parents[1] / "support" / "clients"
ADA, COUNT, SUM, POINT, VIOLIN, DOT = "Hello, Ada.", "One two three.", "It is 5.", '{"x": 3}', "The violin.", "A dot."


class Client:
    """A service with a script, and programs that use it."""

    def __init__(self, served: Served, provider: Checked, key: str, home: Path) -> None:
        self.served = served
        self.provider = provider
        self.home = home
        keep = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_AUTH_TOKEN"))}
        self.environment = {
            **keep,
            "HOME": str(home),
            "OPENAI_BASE_URL": f"{served.url}/v1",
            "OPENAI_API_KEY": key,
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "LANGSMITH_TRACING": "false",
            "LLM_USER_PATH": str(home / "llm"),
            "NODE_PATH": str(CLIENTS / "node_modules"),
            # Node may have come with the tools.
            "PATH": os.pathsep.join([str(CLIENTS / "bin"), os.environ["PATH"], str(Path(sys.executable).parent)]),
        }

    def run(self, *command: str | Path, typed: str = "") -> str:
        """Run a program to its end, and return what it prints."""
        done = subprocess.run(
            [str(word) for word in command],
            env=self.environment,
            cwd=self.home,
            input=typed,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        requests = [str(request[:2000]) for request in self.provider.requests[-1:]]
        assert done.returncode == 0, "\n".join([done.stdout[-2000:], done.stderr[-6000:], *requests])
        return done.stdout

    def run_python(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run(CLIENTS / "bin" / "python", PROGRAMS / name))
        return found

    def run_node(self, name: str) -> dict[str, Any]:
        # Modules are looked for from the folder of the program.
        program = self.home / name
        shutil.copyfile(PROGRAMS / name, program)
        (self.home / "node_modules").symlink_to(CLIENTS / "node_modules")
        found: dict[str, Any] = json.loads(self.run("node", program))
        return found


@pytest.fixture
def start(serve: Serve, tmp_path: Path) -> Any:
    """Return a function that starts a service with a script for its model `m`."""
    if not (CLIENTS / "ready").exists():
        pytest.skip("the clients are not installed: `make clients`")

    def begin(*steps: str | tuple[str, dict[str, Any]], wire: str) -> Client:
        made: list[Step] = []
        for i, step in enumerate(steps):
            if isinstance(step, str):
                made.append(says(step, wire=wire))
            else:
                made.append(says(None, calls=[(f"call_{i}", *step)], wire=wire))
        storage = InMemoryStorage()
        key, _ = AccessKeys(storage).add("laptop", "ada")
        provider = Checked(*made, wire=wire)
        return Client(serve(storage=storage, m=provider), provider, key, tmp_path)

    return begin


ADD = ("add", {"a": 2, "b": 3})


def test_langchain(start: Any) -> None:
    each = (SUM, POINT)
    client = start(ADA, DOT, COUNT, ADD, *each, "Hello.", VIOLIN, COUNT, ADD, *each, wire="anthropic")
    found = client.run_python("use_langchain.py")
    assert found == {"chat": [ADA, DOT, COUNT, "5", SUM, 3], "responses": ["Hello.", VIOLIN, COUNT, "5", SUM, 3]}
    client.provider.check()
    assert b"I play the violin." in client.provider.requests[7]


def test_pydantic_ai(start: Any) -> None:
    # For an answer as data, pydantic-ai lets the model call a function.
    each = ("Hello.", VIOLIN, DOT, COUNT, ADD, SUM, ("final_result", {"x": 3}))
    client = start(*each, *each, wire="gemini")
    answers = ["Hello.", VIOLIN, DOT, COUNT, SUM, 3]
    assert client.run_python("use_pydantic_ai.py") == {"chat": answers, "responses": answers}
    client.provider.check()
    assert b"I play the violin." in client.provider.requests[8]


def test_agents_sdk(start: Any) -> None:
    script = ["Hello.", VIOLIN, *[ADD, SUM, "Still 5."], *[ADD, SUM] * 3, POINT, COUNT, ADD, SUM, COUNT]
    client = start(*script, wire="openai-responses")
    assert client.run_python("use_agents_sdk.py") == {
        "chain": ["Hello.", VIOLIN],
        "conversation": [SUM, "Still 5.", 6],
        "tools": [SUM, SUM, SUM],
        "schema": 3,
        "stream": COUNT,
        "chat": [SUM, COUNT],
    }
    client.provider.check()
    assert client.provider.requests[4].count(b"2 + 3?") == 1


def test_openai_for_node(start: Any) -> None:
    script = ["Hello.", VIOLIN, COUNT, COUNT, ADD, SUM, POINT, ADA, "Done.", DOT, VIOLIN, ADD, SUM, POINT]
    client = start(*script, wire="gemini")
    assert client.run_node("use_openai.mjs") == {
        "chain": ["Hello.", VIOLIN],
        "stream": [COUNT, COUNT],
        "tool": SUM,
        "schema": 3,
        "conversation": ["message", "message"],
        "background": "Done.",
        "cancelled": "completed",
        "image": [DOT, "input_image"],
        "compacted": VIOLIN,
        "deleted": 404,
        "chat": [SUM, 3],
    }
    client.provider.check()


def test_ai_sdk(start: Any) -> None:
    client = start(
        *[ADA, COUNT, ADD, SUM, POINT, DOT] * 3, "Hello.", VIOLIN, "Hello.", ADD, SUM, VIOLIN, wire="anthropic"
    )
    answers = [ADA, COUNT, SUM, 3, DOT]
    assert client.run_node("use_ai_sdk.mjs") == {
        "responses": answers,
        "chat": answers,
        "compatible": answers,
        "chain": ["Hello.", VIOLIN],
        "messages": ["Hello.", SUM, VIOLIN],
    }
    client.provider.check()
    for said in (b"I play the violin.", b"Hello.", b"2 + 3?", SUM.encode()):
        assert client.provider.requests[-1].count(said) == 1


def test_llm(start: Any) -> None:
    client = start("Hello.", VIOLIN, ADD, SUM, POINT, wire="openai-responses")
    (client.home / "llm").mkdir()
    with (client.home / "llm" / "extra-openai-models.yaml").open("w") as file:
        for name, more in (("chat", ""), ("responses", "  responses: true\n")):
            file.write(f"- model_id: {name}\n  model_name: m\n  api_base: {client.environment['OPENAI_BASE_URL']}\n")
            file.write(f"  api_key_name: openai\n  supports_tools: true\n  supports_schema: true\n{more}")

    def ask(*words: str) -> str:
        return client.run(CLIENTS / "bin" / "python", "-m", "llm", *words).strip()

    assert ask("-m", "responses", "I play the violin.") == "Hello."
    assert ask("-c", "What do I play?") == VIOLIN
    add = "def add(a: int, b: int) -> int:\n    return a + b"
    assert ask("-m", "responses", "--functions", add, "2 + 3?") == SUM
    assert ask("-m", "chat", "--schema", "x int", "--no-stream", "Where?") == POINT
    client.provider.check()
    assert b"I play the violin." in client.provider.requests[1]


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic"])
def test_codex(start: Any, wire: str) -> None:
    codex = Path(sys.prefix) / "agents" / "node_modules" / ".bin" / "codex"
    if not codex.exists():
        pytest.skip("Codex is not installed: `make agents`")
    client = start(("exec_command", {"cmd": "echo 4711"}), "It printed a number.", VIOLIN, wire=wire)
    (client.home / ".codex").mkdir()
    (client.home / ".codex" / "config.toml").write_text(
        f"""
        model = "m"
        model_provider = "longtalk"
        analytics.enabled = false
        feedback.enabled = false

        [model_providers.longtalk]
        name = "Longtalk"
        base_url = "{client.environment["OPENAI_BASE_URL"]}"
        env_key = "OPENAI_API_KEY"
        wire_api = "responses"
        """
    )

    def execute(*words: str) -> list[dict[str, Any]]:
        printed = client.run(codex, "exec", "--json", "--skip-git-repo-check", "-s", "read-only", *words)
        return [json.loads(line) for line in printed.splitlines()]

    def read_answers(events: list[dict[str, Any]]) -> list[str]:
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        return [item["text"] for item in items if item["type"] == "agent_message"]

    first = execute("I play the violin. Run echo.")
    assert read_answers(first) == ["It printed a number."]
    thread = next(event["thread_id"] for event in first if event["type"] == "thread.started")
    assert read_answers(execute("resume", thread, "What do I play?")) == [VIOLIN]
    client.provider.check()
    assert b"call_0" in client.provider.requests[1]
    assert b"I play the violin." in client.provider.requests[2]
    assert b"It printed a number." in client.provider.requests[2]


PAGE = (Path(__file__).parents[2] / "docs" / "service-clients.md").read_text()
SNIPPETS = [
    pytest.param(*found.groups(), id=part.splitlines()[0])
    for part in PAGE.split("\n## ")
    if (found := re.search(r"^```(py|js)\n(.*?)^```", part, re.MULTILINE | re.DOTALL))
]


@pytest.mark.parametrize(("language", "code"), SNIPPETS)
def test_a_client_of_the_page_gets_answers_and_is_remembered(start: Any, language: str, code: str) -> None:
    client = start("Hello.", VIOLIN, COUNT, wire="openai-responses")
    environment = client.environment
    address, key = environment.pop("OPENAI_BASE_URL"), environment.pop("OPENAI_API_KEY")
    for before, after in (("http://127.0.0.1:8086/v1", address), ('"none"', f'"{key}"'), ('"local"', '"m"')):
        assert before in code
        code = code.replace(before, after)
    program = client.home / ("program.py" if language == "py" else "program.mjs")
    program.write_text(code)
    (client.home / "node_modules").symlink_to(CLIENTS / "node_modules")
    assert VIOLIN in client.run(CLIENTS / "bin" / "python" if language == "py" else "node", program)
    assert b"I play the violin." in client.provider.requests[1]


class Recorder(HttpServer):
    """A server of several providers, which records what each one is sent."""

    def __init__(self) -> None:
        self.requests: dict[str, bytes] = {}
        recorder = self

        class Handler(HttpHandler):
            def do_POST(self) -> None:
                body = self.read_body()
                wire = "anthropic" if self.path.endswith("/messages") else "openai-chat"
                validate(body, wire=wire)
                recorder.requests[wire] = body
                sent = b"".join(b"data: %s\n\n" % event for event in says("Noted.", wire=wire).events)  # type: ignore[str-bytes-safe]
                self.send_whole(200, sent, {"content-type": "text/event-stream"})

        super().__init__(Handler)


def run_service(folder: Path, upstream: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start `longtalk serve` on the file of this folder, and return the process and its address."""
    settings = folder / "settings.toml"
    settings.write_text(
        f"""
        [models.one]
        model = "compatible:m"
        base_url = "{upstream}/v1"
        [models.two]
        model = "anthropic:m"
        base_url = "{upstream}"
        """
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", "--port", str(port), "--settings", str(settings), "--store", str(folder / "talks.db")]
    process = subprocess.Popen(
        [sys.executable, "-m", "longtalk", *words],
        env={**os.environ, "ANTHROPIC_API_KEY": "k"},
        preexec_fn=die_with_parent(signal.SIGKILL),
    )
    address = f"http://127.0.0.1:{port}"
    while True:
        assert process.poll() is None
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(f"{address}/readyz").is_success:
                return process, address
        time.sleep(0.05)


def test_a_fact_told_through_one_client_reaches_another_provider_for_another_client_after_a_restart(
    start: Any, tmp_path: Path
) -> None:
    client = start(wire="openai-chat")
    with Recorder() as upstream:
        process, address = run_service(tmp_path, upstream.url)
        with openai.OpenAI(base_url=f"{address}/v1", api_key="none") as teller:
            talk = teller.conversations.create().id
            told = teller.responses.create(model="one", input="I play the viola da gamba.", conversation=talk)
            assert told.output_text == "Noted."
        process.terminate()
        process.wait(60)
        process, address = run_service(tmp_path, upstream.url)
        client.environment["OPENAI_BASE_URL"] = f"{address}/v1"
        program = (
            "from langchain_openai import ChatOpenAI\n"
            f"chat = ChatOpenAI(model='two', default_headers={{'Longtalk-Conversation': {talk!r}}})\n"
            "print(chat.invoke('What do I play?').content)"
        )
        assert client.run(CLIENTS / "bin" / "python", "-c", program).strip() == "Noted."
        process.terminate()
        process.wait(60)
    assert b"viola da gamba" in upstream.requests["anthropic"]
