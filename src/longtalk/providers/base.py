"""The provider protocols, and the capabilities of a provider and its model.

A provider moves bytes: it sends a request body and returns a response body, or the data of each event of a stream.
The provider's wire defines the format of both. Failures are raised as `ProviderError`, whose `retryable` says whether
the same request may be sent again.

A provider with a key has a `redactor` attribute, a `Redactor` that removes the key from the text of its errors (see
`redaction`). The turn uses it too, for errors that it finds in the provider's answers. The attribute is not part of the
protocols, because a provider without secrets does not need it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

from longtalk.wires.protocol import Handle, Wire

if TYPE_CHECKING:
    from longtalk.models.call_cost import Prices


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider and its model can do. The defaults apply to a model that is not in the registry."""

    keeps_state: bool = False
    """Whether the provider stores conversations itself, under an id."""
    accepts_history: bool = True
    streaming: bool = True
    tools: bool = True
    structured_output: bool = False
    images: bool = True
    """Whether the model can read images, as far as is known. False only where they are certain to be refused."""
    cards: Literal["answer", "request", "none"] = "answer"
    """How `Memory` gets memory cards from the model.

    A model can end its answers with them ("answer"). A small model writes them in a request of its own that is bound to
    a JSON schema ("request"). A model that makes up facts is not asked for any ("none").
    """
    window: int | None = None
    """The maximum number of tokens in a request and its answer together; None if unknown."""
    output_limit: int | None = None
    """The maximum number of tokens in an answer; None if unknown."""
    cache: bool = False
    """Whether the provider caches the beginnings of requests and reports how many tokens it read from the cache."""
    cache_seconds: int | None = None
    """Seconds for which the beginning of a request stays cached after its last use; None if unknown."""
    prices: Prices | None = None
    """The prices of the model; None if unknown."""
    listed_prices_apply: bool = True
    """False if the model's prices are listed for the provider's own server, but requests go to another server."""
    described: bool = True
    """Whether the model's data is known. False only for a hosted model that is not in `longtalk.models.registry`."""


def explain_unknown_prices(capabilities: Capabilities) -> str:
    """Return the reason why the prices of a call are unknown."""
    if capabilities.prices is not None:
        return "the options of this call may change those in the list"
    if not capabilities.listed_prices_apply:
        return "those in the list are for the provider's own server, and this is another one"
    return "they are not in the list of models"


class AsyncProvider(Protocol):
    """A model at a provider, with async methods."""

    label: str
    """The name of the model, in the form `provider:model`."""
    model: str
    account: str
    """A digest of the address and the key. Opaque blocks, such as signed thinking, are valid for this account only."""
    wire: Wire
    capabilities: Capabilities
    defaults: Mapping[str, Any]
    """Request options that apply unless the chat or the turn overrides them."""

    async def send(self, body: bytes) -> bytes:
        """Send a request and return the body of the response."""
        ...

    def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        """Send a request and yield the data of each event of the streamed response."""
        ...

    async def aclose(self) -> None:
        """Close the connections that the provider opened."""
        ...


@runtime_checkable
class AsyncStatefulProvider(Protocol):
    """A provider that stores conversations which other clients may continue, or which must be created first."""

    async def is_current(self, handle: Handle) -> bool:
        """Return True if the stored conversation has not changed since the provider issued this handle."""
        ...

    async def open_conversation(self, options: Mapping[str, Any]) -> Handle | None:
        """Create a conversation and return its handle, or return None if these options don't require one."""
        ...


class Provider(Protocol):
    """A model at a provider, with sync methods. See `AsyncProvider`."""

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
class StatefulProvider(Protocol):
    """The sync counterpart of `AsyncStatefulProvider`."""

    def is_current(self, handle: Handle) -> bool: ...

    def open_conversation(self, options: Mapping[str, Any]) -> Handle | None: ...
