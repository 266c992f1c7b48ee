"""Run a Python file in which the answers of the local model are short: `python short_answers.py FILE [ARGUMENT …]`.

Code on pages and in examples lets the model write up to 256 tokens, which takes most of the time of such a file. A test
can't expect certain words of it anyway.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from typing import Any

from longtalk._sync.providers.local.provider import Local
from longtalk.providers.local.provider import AsyncLocal

LIMIT = 24
"""The maximum number of tokens of an answer."""


def limit_answers(method: Callable[[Any, bytes], Any]) -> Callable[[Any, bytes], Any]:
    """Return a method of a provider that asks for at most `LIMIT` tokens."""

    def call(self: Any, body: bytes) -> Any:
        return method(self, json.dumps({**json.loads(body), "max_tokens": LIMIT}).encode())

    return call


if __name__ == "__main__":
    for provider in (AsyncLocal, Local):
        for name in ("send", "stream"):
            setattr(provider, name, limit_answers(getattr(provider, name)))
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
