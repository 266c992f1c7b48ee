"""The sync twin of `longtalk._io`, written by hand."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

ASYNC = False


def sleep(seconds: float) -> None:
    import time

    time.sleep(seconds)


def call(function: Callable[[], Any], *, is_async: bool) -> Any:  # noqa: ARG001
    """Call a tool, in the caller's thread. Async ones were refused when the chat was made."""
    return function()


def in_thread(function: Callable[[], Any]) -> Any:
    return function()


def completed(jobs: Sequence[Callable[[], None]]) -> Generator[None, None, None]:
    """Run jobs one by one; yield after each."""
    for job in jobs:
        job()
        yield


def shielded(close: Callable[[], Any]) -> None:
    close()


class ClientHolder:
    """An HTTP client that is made when it is needed."""

    def __init__(self, client: httpx2.Client | None, **settings: Any) -> None:
        self._given = client
        self._settings = settings
        self._made: httpx2.Client | None = None

    def get(self) -> httpx2.Client:
        if self._given is not None:
            return self._given
        if self._made is None or self._made.is_closed:
            import httpx2

            self._made = httpx2.Client(**self._settings)
        return self._made

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            made.close()
