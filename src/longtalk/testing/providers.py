"""A provider conformance suite: run it on a provider or a server of your own, and know that Longtalk can rely on it.

```python
def make():
    return MyProvider(model="mine", api_key=key)

serve = over_http(lambda url, key: MyProvider(model="mine", base_url=url, api_key=key))

check_provider(make, serve=serve, options={"max_tokens": 50}).raise_for_failures()
```

There are two kinds of cases. Some hold for every provider that answers, whatever its model says: answers whole and
streamed, requests that extend each other, usage, a stream that is closed early, several threads. They run on what
`make` gives, a provider that really answers. The others need a server that does as it is told: bytes that come and go
as they are, tool calls, errors, lines that break. They run on what `serve` gives (see
`longtalk.testing.provider_script`), without a model.

Without `serve` the second kind is left out, and `report.skipped` names it. Without `make` the first kind runs on
`serve` too, so that nothing is asked of a model. What a provider says that it can't do (`capabilities.streaming`,
`.tools`) is not tried. `options` go with every request, as those of a chat; where they have the provider keep the
conversation, the cases that need all of it in a request are left out.

A model that has a name does as well: `make=lambda: Chat("llamacpp:mine", base_url=…).provider`. An async provider is
tried as `Blocking(provider)`.

With pytest: `@pytest.mark.parametrize("case", CASES, ids=str)` and `case.run(make, serve=serve)`, which skips what
can't be tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longtalk.errors import InputError
from longtalk.testing.blocking import Blocking
from longtalk.testing.provider_bytes import BYTES
from longtalk.testing.provider_cases import Case, Make
from longtalk.testing.provider_errors import ERRORS
from longtalk.testing.provider_script import Act, Script, Serve, over_http
from longtalk.testing.provider_talk import TALK
from longtalk.testing.report import Failure, Report, run_all

__all__ = ["CASES", "Act", "Blocking", "Case", "Failure", "Report", "Script", "check_provider", "over_http"]

CASES: list[Case] = [*TALK, *BYTES, *ERRORS]
"""All cases, in the order in which they are run."""


def check_provider(
    make: Make | None = None, *, serve: Serve | None = None, options: Mapping[str, Any] | None = None
) -> Report:
    """Run all cases, each on fresh providers."""
    if make is None and serve is None:
        raise InputError("There is nothing to try: give `make`, `serve`, or both.")
    return run_all(CASES, lambda case: case.run(make, serve=serve, options=options), subject="provider")
