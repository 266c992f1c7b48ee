"""Limits of processes."""

from __future__ import annotations

import os
import platform
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


_RETURN = """
import os
from pathlib import Path
from longtalk._util.processes import return_free_memory

def read_memory():
    found = Path("/proc/self/statm")
    return int(found.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1_000_000 if found.exists() else 0

# Of all that is allocated, the last stays in use, so `free` alone returns nothing.
kept = [bytes(1_000) for _ in range(100_000)][-1]
before = read_memory()
return_free_memory()
print(before - read_memory())
"""


def test_free_memory_before_memory_in_use_is_returned_where_the_c_library_can_do_it() -> None:
    child = subprocess.run([sys.executable, "-c", _RETURN], capture_output=True, text=True)
    assert child.stderr == ""
    assert int(child.stdout) > 50 or platform.libc_ver()[0] != "glibc"
