"""The apps on the pages about FastAPI and Flask, in real servers: a client goes away, and the next turn works."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from longtalk.testing import says
from tests.support.child_processes import die_with_parent
from tests.support.http_server import HttpHandler, HttpServer
from tests.support.loopback import sse
from tests.test_docs import ROOT, read_blocks

STARTS = {
    "fastapi": "import uvicorn; uvicorn.run(app, fd={fd})",
    "flask": "from werkzeug.serving import make_server\n"
    "make_server('127.0.0.1', {port}, app, threaded=True, fd={fd}).serve_forever()",
}
PIECES = 3_000


class Model(HttpServer):
    """A model that answers the first question without end, until its client goes away, and all others at once."""

    def __init__(self) -> None:
        requests: list[dict[str, Any]] = []

        class Handler(HttpHandler):
            def do_POST(self) -> None:
                requests.append(json.loads(self.read_body()))
                self.begin_stream()
                if len(requests) > 1:
                    events: Any = says("Lightly.").events
                    for chunk in sse(*events):
                        self.send_chunk(chunk)
                    self.end_stream()
                    return
                endless: Any = says("bow " * PIECES, pieces=PIECES).events
                for chunk in sse(*endless):
                    self.send_chunk(chunk)
                    time.sleep(0.02)

        super().__init__(Handler)
        self.requests = requests


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTS)
def test_a_browser_that_goes_away_keeps_the_answer_so_far(name: str, model: Model, tmp_path: Path) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        port = listening.getsockname()[1]
        start = STARTS[name].format(fd=listening.fileno(), port=port)
        code = "\n".join([*read_blocks(ROOT / "docs" / f"{name}.md", "python"), start])
        (tmp_path / "app.py").write_text(code)
        server = subprocess.Popen(
            [sys.executable, "app.py"],
            cwd=tmp_path,
            env={**os.environ, "OLLAMA_HOST": model.url},
            pass_fds=[listening.fileno()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            talk = "/users/ada/talks/lesson-7"
            with client.stream("POST", talk, json={"text": "How do I hold the bow?"}) as answer:
                lines = answer.iter_lines()
                assert json.loads(next(lines).removeprefix("data: "))["text"].startswith("bow")
            # A refused second question says so until the first turn has ended.
            for _ in range(600):
                asked = client.post(talk, json={"text": "And the thumb?"})
                events = [json.loads(line[6:]) for line in asked.text.splitlines() if line]
                if "error" not in events[-1]:
                    break
                assert "running" in events[-1]["error"] or "busy" in events[-1]["error"].lower(), events
                time.sleep(0.1)
            assert "".join(event.get("text", "") for event in events) == "Lightly."
            assert "done" in events[-1]
            said = client.get(talk).json()
            assert client.get(talk.replace("ada", "bob")).status_code == 404
        assert [each["role"] for each in said] == ["user", "assistant", "user", "assistant"]
        assert said[1]["text"].startswith("bow ")
        assert len(said[1]["text"]) < 4 * PIECES
        assert {"role": "assistant", "content": said[1]["text"]} in model.requests[-1]["messages"]
    finally:
        server.kill()
        server.wait(60)
