"""What the suites for stores and for providers have in common: what has to hold, and a report of what did."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar
from unittest import SkipTest

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

_HELPERS = ("_fails", "_same_all", "holds", "raises", "same", "there")


class Named(Protocol):
    """A case of a suite."""

    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=Named)


@dataclass(frozen=True)
class Failure:
    """A case that was failed."""

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
    """Those that can't be tried with what was handed in, or on this system."""
    subject: str
    """What was tried."""

    def raise_for_failures(self) -> None:
        """Raise `AssertionError` that names every case that failed."""
        if self.failed:
            lines = [f"the {self.subject} fails {len(self.failed)} of {len(self.failed) + len(self.passed)} cases:"]
            raise AssertionError("\n- ".join([*lines, *map(str, self.failed)])) from self.failed[0].error


def run_all(cases: Iterable[C], run: Callable[[C], None], *, subject: str) -> Report:
    """Run all cases, whatever becomes of one."""
    passed: list[str] = []
    failed: list[Failure] = []
    skipped: list[str] = []
    for case in cases:
        try:
            run(case)
        except SkipTest:
            skipped.append(case.name)
        except Exception as problem:
            failed.append(Failure(case.name, problem))
        else:
            passed.append(case.name)
    return Report(tuple(passed), tuple(failed), tuple(skipped), subject)


def holds(condition: object, what: str = "this does not hold") -> None:
    """As `assert`, also where Python leaves those out."""
    if not condition:
        raise AssertionError(what)


def same(found: object, wanted: object, what: str = "found") -> None:
    if found != wanted or isinstance(found, bool) != isinstance(wanted, bool):
        raise AssertionError(f"{what}: {_short(found)} instead of {_short(wanted)}")


def there(value: T | None, what: str) -> T:
    """A value that has to be there."""
    if value is None:
        raise AssertionError(f"{what} is not there")
    return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:300]}…{text[-90:]}"


def raises(kind: type[E], call: Callable[[], object], what: str) -> E:
    try:
        call()
    except kind as problem:
        return problem
    except Exception as problem:
        found = f"{type(problem).__name__} ({problem})"
        raise AssertionError(f"{what}: {found} instead of {kind.__name__}") from problem
    raise AssertionError(f"{what}: {kind.__name__} was not raised")
