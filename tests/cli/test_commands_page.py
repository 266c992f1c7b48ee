"""What docs/commands.md shows at a prompt happens: the same commands, from top to bottom, print the same."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from longtalk import Archive
from longtalk.stores.sqlite.store import SQLite
from tests.cli.helpers import LONGTALK, streamed
from tests.support.loopback import Loopback

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
STEP = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def plain(shown: str) -> str:
    """What was printed, without what is another time another."""
    shown = re.sub(r"\b[a-z0-9]{12}(-\d)?\b", r"ENTRY\1", shown)
    shown = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{3}Z)?)?", r"TIME", shown)
    return re.sub(r"\d+ records?", "NUMBER", shown)


@pytest.mark.slow
def test_each_command_prints_what_the_page_says(
    loopback: Loopback, environment: dict[str, str], tmp_path: Path
) -> None:
    loopback.say(streamed("With pleasure."))
    path = f"{Path(LONGTALK[0]).parent}:{environment['PATH']}"
    steps = [step for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.M | re.S) for step in STEP.findall(block)]
    assert len(steps) >= 14
    for command, shown in steps:
        if "ENTRY" in command:
            store = SQLite(tmp_path / "data" / "longtalk" / "conversations.db")
            command = command.replace("ENTRY", Archive(store).history("lesson-8")[0].id)
            store.close()
        done = subprocess.run(
            ["sh", "-c", command],
            env={**environment, "PATH": path, "OLLAMA_HOST": loopback.url},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        printed = done.stderr if command.startswith("longtalk export") else done.stdout
        assert plain(printed) == plain(shown), command
    assert (tmp_path / "page.md").read_text() == (tmp_path / "pages" / "lesson-7.md").read_text()


def test_each_command_is_on_the_page() -> None:
    from longtalk.cli.service_flags import commands

    assert [name for name in commands.commands if f"longtalk {name}" not in PAGE] == []
