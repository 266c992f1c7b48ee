"""A service with two owners, for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from longtalk.testing import AsyncScripted, says
from tests.service.isolation.owners import Owners


@pytest.fixture(scope="module")
def all_owners() -> Iterator[Owners]:
    with httpx2.Client() as http:
        owners = Owners(http, AsyncScripted(*[says("Hello, Ada.")] * 40))
        yield owners
        owners.served.stop()


@pytest.fixture
def owners(all_owners: Owners) -> Iterator[Owners]:
    """Return the service, and delete Bob's conversations after the test."""
    yield all_owners
    for each in all_owners.store.conversations("bob", limit=100):
        all_owners.store.delete("bob", each.id)
