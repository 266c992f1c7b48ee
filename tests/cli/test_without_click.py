"""The command line where its extra is not installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import LONGTALK


@pytest.mark.parametrize("command", [LONGTALK, [sys.executable, "-m", "longtalk"]], ids=["longtalk", "python -m"])
def test_without_click_one_line_says_what_to_install(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError(\"No module named 'click'\", name='click')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*command, "list"], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "longtalk: the command line needs an extra. Run: pip install 'longtalk[cli]'\n"
