"""Typed JSON from many threads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from longtalk._util import typed_json

_MANY_THREADS = """
import threading, msgspec
from longtalk._util import typed_json

for round in range(60):
    inner = msgspec.defstruct("Inner", [(f"a{i}", int | None, None) for i in range(40)])
    outer = msgspec.defstruct("Outer", [(f"b{i}", list[inner], []) for i in range(40)])
    start = threading.Barrier(8)

    def use() -> None:
        start.wait()
        assert typed_json.decode(b'{"b39": [{"a39": 7}]}', outer).b39[0].a39 == 7

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_a_type_can_be_used_first_by_several_threads_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", _MANY_THREADS], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_lenient_decoder_does_not_replace_the_strict_one() -> None:
    assert typed_json.decode(b'"3"', int, strict=False) == 3
    with pytest.raises(ValueError, match="Expected `int`"):
        typed_json.decode(b'"3"', int)
