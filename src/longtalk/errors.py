"""What can go wrong, as one root and few branches.

Every error says in one or two sentences what happened, to what, and what to do about it, and carries
what the caller needs to go on: the original bytes of a state that can't be read (`BadState.state`),
the last good state and the work already paid for of a turn that failed (`TurnFailed.state`, `.partial`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longtalk.reply import Reply


class LongtalkError(Exception):
    """The root of all errors that Longtalk raises."""


class InputError(LongtalkError):
    """The call itself is wrong: an argument, a name, a missing key, an extra that is not installed."""


class ToolError(InputError):
    """A function can't be offered to a model as a tool: the message says which part of its signature, and why."""


class PinRefused(InputError):
    """What is pinned would leave no room for the conversation."""


class Busy(LongtalkError):
    """Somebody else runs a turn on this conversation. `until` is when that has to be done, unless they ask for more."""

    def __init__(self, message: str, *, until: int) -> None:
        super().__init__(message)
        self.until = until


class Deleted(LongtalkError):
    """The conversation was deleted while its turn ran, and stays deleted. `partial` is what there is of the reply."""

    partial: Reply | None = None


class KeyReused(InputError):
    """A request key was used before, for something else."""


class BadState(LongtalkError):
    """A state can't be read. `state` is what was handed in, whole; `reason` is one of `REASONS`."""

    REASONS = (
        *("type", "corrupt", "truncated", "too_new", "unknown_wire", "too_large"),
        *("not_sealed", "unknown_key", "tampered", "wrong_owner", "wrong_conversation", "expired", "rewound"),
        *("part", "missing_part", "wrong_part"),
    )

    def __init__(self, message: str, *, reason: str, state: bytes) -> None:
        super().__init__(message)
        self.reason = reason
        self.state = state


class TurnFailed(LongtalkError):
    """A turn did not end well.

    `state` is the last good state. `partial` is the reply so far when something was paid for (text, finished
    tool calls): the state then holds it, and the message too. When `partial` is None nothing came of the turn
    and `state` is the one that was handed in: the same message can be sent on it again.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.state: bytes | None = None
        self.partial: Reply | None = None


class TooManyRounds(TurnFailed):
    """The model kept calling tools for `max_rounds` calls in a row."""


class ProviderError(TurnFailed):
    """The provider did not answer, or answered with an error. `body` is what it said, as it came."""

    retryable = False

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        body: bytes = b"",
        retry_after: float | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.retry_after = retry_after
        if retryable is not None:
            self.retryable = retryable


class RequestRefused(ProviderError):
    """The provider refuses this request (HTTP 4xx): sending it again would not help."""


class AuthFailed(RequestRefused):
    """The key is missing, wrong or not allowed to do this."""


class ContextOverflow(RequestRefused):
    """The request is longer than the model's window. `window` and `tokens` are set where the provider names them."""

    window: int | None = None
    tokens: int | None = None


class RateLimited(ProviderError):
    """Too many requests. `retry_after` is the provider's hint in seconds, where it gave one."""

    retryable = True


class Overloaded(ProviderError):
    """The provider has trouble of its own (HTTP 5xx, 408, 409)."""

    retryable = True


class Unreachable(ProviderError):
    """No connection, or it broke before the first byte of an answer."""

    retryable = True


class StreamCut(ProviderError):
    """A stream ended in the middle of an answer. What had come is in `partial`."""


class BadAnswer(ProviderError):
    """The provider answered with something that its wire format does not allow (an HTML page, half a document)."""


class StoreError(LongtalkError):
    """A store can't do what it should: it is damaged, locked for good, out of reach, or its disk is full."""
