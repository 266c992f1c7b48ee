"""Who answers: the contract of a provider, and what is known of it.

A provider moves bytes: a request body out, a response body or the data of a stream's events back. The grammar of
both is its wire's. What goes wrong is a `ProviderError`; whether it may be tried again is on the error.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from longtalk.wires.base import Handle, Wire

if TYPE_CHECKING:
    from longtalk.prices import Prices


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider and its model can do. The defaults are what holds for one that nobody has described."""

    keeps_state: bool = False
    """It remembers conversations itself, by an id."""
    accepts_history: bool = True
    streaming: bool = True
    tools: bool = True
    structured_output: bool = False
    window: int | None = None
    """Tokens that fit into a request and its answer; None when nobody knows."""
    output_limit: int | None = None
    """Tokens that an answer may have; None when nobody knows."""
    cache: bool = False
    """It reports tokens that it read from a cache of prefixes."""
    cache_seconds: int | None = None
    """For how long a prefix stays there after it was last used; None when nobody knows."""
    prices: Prices | None = None
    """What it costs; None when nobody knows."""
    described: bool = True
    """Whether somebody has said what it is: False for a hosted model that `longtalk.models` does not know."""


class AsyncProvider(Protocol):
    """Who answers in an async program."""

    label: str
    """As `provider:model`."""
    model: str
    account: str
    """A digest of whose key it is and where: opaque blocks are valid there alone."""
    wire: Wire
    capabilities: Capabilities
    defaults: Mapping[str, Any]
    """Options that are sent unless the chat or the turn says otherwise."""

    async def send(self, body: bytes) -> bytes: ...

    def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        """The data of each event, as it comes."""
        ...

    async def aclose(self) -> None: ...


@runtime_checkable
class AsyncKeeper(Protocol):
    """A provider that keeps conversations which others may go on with, or that have to be begun."""

    async def stands(self, handle: Handle) -> bool:
        """Whether a conversation is still as it was after the answer that the handle came with, or as it was opened."""
        ...

    async def opened(self, options: Mapping[str, Any]) -> Handle | None:
        """A new conversation, where that has to be begun before the first request."""
        ...


class Provider(Protocol):
    """Who answers in a sync program."""

    label: str
    model: str
    account: str
    wire: Wire
    capabilities: Capabilities
    defaults: Mapping[str, Any]

    def send(self, body: bytes) -> bytes: ...

    def stream(self, body: bytes) -> Generator[bytes, None, None]: ...

    def close(self) -> None: ...


@runtime_checkable
class Keeper(Protocol):
    """See `AsyncKeeper`."""

    def stands(self, handle: Handle) -> bool: ...

    def opened(self, options: Mapping[str, Any]) -> Handle | None: ...
