"""Limits of processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_CHILD = """
import resource
from longtalk._util.processes import allow_many_connections

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
allow_many_connections()
files = [open("/dev/null") for _ in range(min(hard, 2_000) - 40)]
"""


@pytest.mark.skipif(os.name != "posix", reason="only POSIX systems have the module resource")
def test_a_process_that_allows_many_connections_can_open_more_files_than_the_usual_limit() -> None:
    child = subprocess.run([sys.executable, "-c", _CHILD], capture_output=True, text=True)
    assert (child.returncode, child.stderr) == (0, "")
