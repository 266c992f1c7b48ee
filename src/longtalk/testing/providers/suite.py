"""A conformance suite for providers and servers: a provider that passes can be used with Longtalk.

```python
def make():
    return MyProvider(model="mine", api_key=key)

serve = over_http(lambda url, key: MyProvider(model="mine", base_url=url, api_key=key))

check_provider(make, serve=serve, options={"max_tokens": 50}).raise_for_failures()
```

There are two kinds of cases. The first kind runs on the provider that `make` returns, with a real model, and does not
depend on what the model answers: whole and streamed answers, requests that extend each other, usage, a stream that is
closed early, several threads. The second kind runs on the scripted server that `serve` starts (see
`longtalk.testing.providers.script`): unchanged bytes in both directions, tool calls, errors, broken connections.

Without `serve`, the second kind is skipped, and `report.skipped` names its cases. Without `make`, the first kind also
runs on the scripted server, so no model is needed. Cases for features that the provider declares missing
(`capabilities.streaming`, `capabilities.tools`) are skipped. `options` are sent with every request, like those of a
chat. If they ask the provider to keep the conversation itself, cases that need requests with the whole conversation are
skipped.

To test a server, name the model: `make=lambda: Chat("llamacpp:mine", base_url=…).provider`. To test an async provider,
wrap it: `Blocking(provider)`.

With pytest, use `@pytest.mark.parametrize("case", CASES, ids=str)` and call `case.run(make, serve=serve)`, which raises
`SkipTest` for a case that can't run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longtalk.errors import InputError
from longtalk.testing.providers.blocking import Blocking
from longtalk.testing.providers.byte_exactness import BYTE_CASES
from longtalk.testing.providers.conversations import CONVERSATION_CASES
from longtalk.testing.providers.errors import ERROR_CASES
from longtalk.testing.providers.harness import Case, Make
from longtalk.testing.providers.script import Script, ScriptedResponse, Serve, over_http
from longtalk.testing.report import Failure, Report, run_all

__all__ = [
    "CASES",
    "Blocking",
    "Case",
    "Failure",
    "Report",
    "Script",
    "ScriptedResponse",
    "check_provider",
    "over_http",
]

CASES: list[Case] = [*CONVERSATION_CASES, *BYTE_CASES, *ERROR_CASES]
"""All cases, in the order in which they run."""


def check_provider(
    make: Make | None = None, *, serve: Serve | None = None, options: Mapping[str, Any] | None = None
) -> Report:
    """Run all cases, each with new providers, and return the report."""
    if make is None and serve is None:
        raise InputError("check_provider has nothing to test: pass make=, serve=, or both.")
    return run_all(CASES, lambda case: case.run(make, serve=serve, options=options), subject="provider")
