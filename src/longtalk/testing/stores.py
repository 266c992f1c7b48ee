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

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from unittest import SkipTest

from longtalk.stores.base import Store
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

_HELPERS = ("_same_all", "holds", "raises", "same", "there")


@dataclass(frozen=True)
class Failure:
    """A case that a store failed."""

    name: str
    error: Exception

    def __str__(self) -> str:
        frames = traceback.extract_tb(self.error.__traceback__)
        where = [frame for frame in frames if frame.name not in _HELPERS][-1]
        return f"{self.name}: {self.error or type(self.error).__name__} ({where.filename}:{where.lineno})"


@dataclass(frozen=True)
class Report:
    """What became of each case."""

    passed: tuple[str, ...]
    failed: tuple[Failure, ...]
    skipped: tuple[str, ...]
    """Those that need `reopen`, or a fork where there is none."""

    def raise_for_failures(self) -> None:
        """Raise `AssertionError` that names every case that failed."""
        if self.failed:
            lines = [f"the store fails {len(self.failed)} of {len(self.failed) + len(self.passed)} cases:"]
            raise AssertionError("\n- ".join([*lines, *map(str, self.failed)])) from self.failed[0].error


def check_store(make: Callable[[], Store], *, reopen: Reopen | None = None) -> Report:
    """Run all cases, each on a fresh store."""
    passed: list[str] = []
    failed: list[Failure] = []
    skipped: list[str] = []
    for case in CASES:
        try:
            case.run(make, reopen=reopen)
        except SkipTest:
            skipped.append(case.name)
        except Exception as problem:
            failed.append(Failure(case.name, problem))
        else:
            passed.append(case.name)
    return Report(tuple(passed), tuple(failed), tuple(skipped))
