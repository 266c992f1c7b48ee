"""The real LiteLLM, in an environment of its own, against servers on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from longtalk.testing.providers.suite import CASES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PYTHON = Path(sys.prefix) / "litellm" / "bin" / "python"
NORMALISED = {
    "a_body_is_returned_unchanged",
    "events_are_returned_unchanged",
    "a_long_answer_is_returned_whole",
    "unknown_fields_are_sent_back_unchanged",
    "a_streamed_answer_equals_the_whole_answer",
    "each_part_of_an_answer_is_sent_back",
    "a_redirect_is_reported_and_not_followed",
}
"""What LiteLLM does not keep: bytes. And it goes where a server sends it."""


def told(what: str) -> Any:
    if not (PYTHON.parents[1] / "ready").exists():
        pytest.skip("LiteLLM is not installed: `make litellm`")
    keep = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_AUTH_TOKEN"))}
    done = subprocess.run(
        [str(PYTHON), str(ROOT / "tests" / "support" / "real_litellm.py"), what],
        env={**keep, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # It prints nothing of its own.
    assert done.stdout.count("\n") == 1, done.stdout[:3000]
    return json.loads(done.stdout)


def test_litellm_passes_all_cases_except_those_about_bytes() -> None:
    found = told("conformance")
    for way in ("sync", "async"):
        assert set(found[way]["failed"]) == NORMALISED, found[way]["failed"]
        assert len(found[way]["passed"]) == len(CASES) - len(NORMALISED)
    # Not even when it is loaded.
    assert found["connected"] == ["127.0.0.1"]


def test_a_conversation_with_a_server_that_speaks_as_anthropic_does() -> None:
    found = told("conversation")
    assert found["texts"] == ["You are welcome.", "Hello.", "You are welcome."]
    assert found["usage"] == [20, 4]
    _, after_tool, _, last = found["requests"]
    assert after_tool[2]["content"] == [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "about bows"}]
    assert last[:3] == after_tool
    assert last[5]["content"] == [
        {"type": "thinking", "thinking": "Let me see.", "signature": "sig=="},
        {"type": "text", "text": "Hello."},
    ]
    assert found["cut"][0] == "StreamCut"
    kinds = [(kind, tries) for kind, _, tries in found["errors"]]
    assert kinds == [("RequestRefused", 1), ("AuthFailed", 1), ("RateLimited", 3), ("Overloaded", 3)]
    for (_, said, _), status in zip(found["errors"], (400, 401, 429, 529), strict=True):
        assert f"answered {status}: No {status}." in said
    assert found["unknown"][0] == "RequestRefused"
    assert found["no key"][0] == "AuthFailed"
    assert found["old client"][0] == "InputError"
    assert "uses httpx" in found["old client"][1]
    assert found["connected"] == ["127.0.0.1"]
