"""A store conformance suite: run it on a store of your own, and know that Longtalk can rely on it.

```python
def make():
    return MyStore(tempfile.mkdtemp())

def reopen(store):
    store.close()
    return MyStore(store.path)

check_store(make, reopen=reopen).raise_for_failures()
```

Beside commits, bytes, branches, records and search there are cases with concurrent writers, with a writer that is
killed, and with an owner who tries every method on what is somebody else's.

`make` gives an empty store, a fresh one for each case. `reopen` closes a store and opens it again. It is also called in
a forked child process, with the store that the parent has open. Without it the cases that ask what is there afterwards
are left out, and where there is no `os.fork` the one in which a process is killed.

With pytest: `@pytest.mark.parametrize("case", CASES, ids=str)` and `case.run(make, reopen=reopen)`, which skips what
can't be tried.
"""

from __future__ import annotations

from collections.abc import Callable

from longtalk.stores.base import Store
from longtalk.testing.report import Failure, Report, run_all
from longtalk.testing.store_beside import BESIDE
from longtalk.testing.store_cases import Case, Reopen
from longtalk.testing.store_crash import LASTING
from longtalk.testing.store_find import FOUND
from longtalk.testing.store_many import APART
from longtalk.testing.store_remove import REMOVED
from longtalk.testing.store_tree import TREE

__all__ = ["CASES", "Case", "Failure", "Report", "check_store"]

CASES: list[Case] = [*TREE, *BESIDE, *APART, *FOUND, *REMOVED, *LASTING]
"""All cases, in the order in which they are run."""


def check_store(make: Callable[[], Store], *, reopen: Reopen | None = None) -> Report:
    """Run all cases, each on a fresh store."""
    return run_all(CASES, lambda case: case.run(make, reopen=reopen), subject="store")
