"""The example of docs/service.md runs against a real service."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve

PAGE = (Path(__file__).parents[2] / "docs" / "service.md").read_text()


def test_the_client_of_the_page_gets_answers_and_is_remembered(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = ("Hello, Ada.", "The violin.", "Gladly.", "The violin, I think.", "Hello again.", "Ada.")
    provider = AsyncScripted(*map(says, answers))
    blocks = re.findall(r"^```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    code = "\n".join(blocks).replace("http://127.0.0.1:8086", serve(local=provider).url)
    exec(compile(code, "docs/service.md", "exec"), {})
    assert capsys.readouterr().out == "The violin.\n"
    assert b"I play the violin." in provider.requests[1]
    assert b"Let's begin." in provider.requests[3]
    assert len(provider.requests) >= 5
