"""A conformance suite for stores: a store that passes can be used with Longtalk.

```python
def make():
    return MyStore(tempfile.mkdtemp())

def reopen(store):
    store.close()
    return MyStore(store.path)

check_store(make, reopen=reopen).raise_for_failures()
```

Besides commits, bytes, branches, records and search, the cases cover concurrent writers, a killed writer, and an owner
who calls every method on another owner's conversation.

`make` returns an empty store; it is called once for each case. `reopen` closes a store and returns the same store,
opened again. It is also called in a forked child process with a store that the parent has open. Without `reopen`, cases
about what survives reopening are skipped; on systems without `os.fork`, so is the case in which a process is killed.

With pytest, use `@pytest.mark.parametrize("case", CASES, ids=str)` and call `case.run(make, reopen=reopen)`, which
raises `SkipTest` for a case that can't run.
"""

from __future__ import annotations

from collections.abc import Callable

from longtalk.stores.base import Store
from longtalk.testing.report import Failure, Report, run_all
from longtalk.testing.stores.branches import BRANCH_CASES
from longtalk.testing.stores.concurrency import CONCURRENCY_CASES
from longtalk.testing.stores.crashes import CRASH_CASES
from longtalk.testing.stores.extremes import EXTREME_CASES
from longtalk.testing.stores.harness import Case, Reopen
from longtalk.testing.stores.metadata import METADATA_CASES
from longtalk.testing.stores.profiles import PROFILE_CASES
from longtalk.testing.stores.records import RECORD_CASES
from longtalk.testing.stores.removal import REMOVAL_CASES
from longtalk.testing.stores.search import SEARCH_CASES
from longtalk.testing.stores.turns import TURN_CASES

__all__ = ["CASES", "Case", "Failure", "Report", "check_store"]

CASES: list[Case] = [
    *BRANCH_CASES,
    *RECORD_CASES,
    *TURN_CASES,
    *METADATA_CASES,
    *PROFILE_CASES,
    *CONCURRENCY_CASES,
    *SEARCH_CASES,
    *REMOVAL_CASES,
    *EXTREME_CASES,
    *CRASH_CASES,
]
"""All cases, in the order in which they run."""


def check_store(make: Callable[[], Store], *, reopen: Reopen | None = None) -> Report:
    """Run all cases, each with a new store, and return the report."""
    return run_all(CASES, lambda case: case.run(make, reopen=reopen), subject="store")
