"""Assertions and reports for the store suite and the provider suite.

The assertions don't use the `assert` statement, so they also work under `python -O`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar
from unittest import SkipTest

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

_HELPERS = ("_assert_all_equal", "_expect_error", "assert_equal", "assert_present", "assert_raises", "assert_true")
"""Helper functions that are skipped when a failure is located, so that the location is a line of the case."""


class Named(Protocol):
    """The interface of a case, as far as a report needs it."""

    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=Named)


@dataclass(frozen=True)
class Failure:
    """A case that failed, with the error that it raised."""

    name: str
    error: Exception

    def __str__(self) -> str:
        frames = traceback.extract_tb(self.error.__traceback__)
        where = [frame for frame in frames if frame.name not in _HELPERS][-1]
        return f"{self.name}: {self.error or type(self.error).__name__} ({where.filename}:{where.lineno})"


@dataclass(frozen=True)
class Report:
    """The results of a suite: which cases passed, failed or were skipped."""

    passed: tuple[str, ...]
    failed: tuple[Failure, ...]
    skipped: tuple[str, ...]
    """Names of the cases that can't run with the given arguments or on this system."""
    subject: str
    """The kind of object under test, such as "store"."""

    def raise_for_failures(self) -> None:
        """Raise an `AssertionError` that names every failed case. Do nothing if no case failed."""
        if self.failed:
            lines = [f"the {self.subject} fails {len(self.failed)} of {len(self.failed) + len(self.passed)} cases:"]
            raise AssertionError("\n- ".join([*lines, *map(str, self.failed)])) from self.failed[0].error


def run_all(cases: Iterable[C], run: Callable[[C], None], *, subject: str) -> Report:
    """Run all cases, even after one has failed, and return the report."""
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


def assert_true(condition: object, message: str = "the condition is false") -> None:
    """Raise `AssertionError` with this message if the condition is false."""
    if not condition:
        raise AssertionError(message)


def assert_equal(found: object, wanted: object, label: str = "found") -> None:
    """Raise `AssertionError` if two values differ. `label` says in the message what was compared.

    Unlike with `==`, `True` and `1` are different.
    """
    if found != wanted or isinstance(found, bool) != isinstance(wanted, bool):
        raise AssertionError(f"{label}: {_shorten(found)} instead of {_shorten(wanted)}")


def assert_present(value: T | None, label: str) -> T:
    """Return the value, or raise `AssertionError` if it is None. `label` names it in the message."""
    if value is None:
        raise AssertionError(f"{label}: not found")
    return value


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:300]}…{text[-90:]}"


def assert_raises(kind: type[E], call: Callable[[], object], label: str) -> E:
    """Run `call` and return the error of class `kind` that it raises; if it raises none, raise `AssertionError`."""
    try:
        call()
    except kind as problem:
        return problem
    except Exception as problem:
        found = f"{type(problem).__name__} ({problem})"
        raise AssertionError(f"{label}: {found} instead of {kind.__name__}") from problem
    raise AssertionError(f"{label}: {kind.__name__} was not raised")
