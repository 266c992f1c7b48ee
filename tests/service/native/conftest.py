"""A client of the service's own surface, over real HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import msgspec
import pytest

from tests.service.conftest import Served


class Api:
    """A client that expects success unless told otherwise."""

    def __init__(self, served: Served, key: str = "") -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.http = httpx2.Client(base_url=f"{served.url}/longtalk/v1", headers=headers, timeout=30, verify=False)

    def __call__(self, method: str, path: str, status: int | None = None, **more: Any) -> Any:
        """Send a request, and return the JSON of its answer."""
        answer = self.http.request(method, path, **more)
        assert answer.status_code == status if status else answer.is_success, (answer.status_code, answer.text)
        return answer.json()

    def new(self, **fields: Any) -> str:
        """Create a conversation, and return the path to it."""
        return f"/conversations/{self('POST', '/conversations', json=fields)['id']}"

    def events(self, method: str, path: str, **more: Any) -> list[tuple[int, dict[str, Any]]]:
        """Return the numbered events of a stream."""
        with self.http.stream(method, path, **more) as answer:
            assert answer.status_code == 200, answer.read()
            return list(read_events(answer.iter_lines()))


def read_events(lines: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    number, kind = -1, ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            number = int(value)
        elif name == "event":
            kind = value
        elif name == "data":
            event = msgspec.json.decode(value)
            assert event["type"] == kind
            yield number, event


MakeApi = Callable[..., Api]


@pytest.fixture
def api() -> Iterator[MakeApi]:
    """Make clients that are closed at the end of the test: `api(served, key)`."""
    made: list[Api] = []

    def make(served: Served, key: str = "") -> Api:
        made.append(Api(served, key))
        return made[-1]

    yield make
    for each in made:
        each.http.close()
