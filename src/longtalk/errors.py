"""The exceptions of Longtalk. All of them derive from `LongtalkError`.

Each message says what happened, to which value, and what to do. Each error carries what the caller needs to continue:
the original bytes of a state that can't be read (`BadState.state`), or the last good state of a failed turn and the
part of its reply that was already paid for (`TurnFailed.state` and `TurnFailed.partial`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from longtalk.notices import Notice
from longtalk.usage import Usage


class PartialReply(Protocol):
    """The interface of the incomplete `Reply` of a failed turn: its text so far, the state with that text, and more."""

    @property
    def turn_id(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def finish_reason(self) -> str: ...

    @property
    def usage(self) -> Usage: ...

    @property
    def notices(self) -> tuple[Notice, ...]: ...


class SavedReply(msgspec.Struct, frozen=True, kw_only=True):
    """The values of an incomplete reply. They replace the reply in an error that is pickled or copied."""

    turn_id: str
    text: str
    state: bytes
    """The state that contains the text; empty if the conversation is in a store."""
    shed: bytes | None
    finish_reason: str
    usage: Usage
    notices: tuple[Notice, ...]

    @classmethod
    def of(cls, reply: PartialReply) -> SavedReply:
        """Return the values of a reply."""
        # The reply of a stored conversation has neither a state nor a shed part.
        usual: dict[str, Any] = {"state": b"", "shed": None}
        values: dict[str, Any] = {name: getattr(reply, name, usual.get(name)) for name in cls.__struct_fields__}
        return cls(**values)


class LongtalkError(Exception):
    """The base class of all errors that Longtalk raises. Errors can be pickled and copied with their attributes."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, an error is restored by a call with its message alone, which not every subclass accepts.
        partial = self.__dict__.get("partial")
        attributes = {**self.__dict__, **({"partial": SavedReply.of(partial)} if partial is not None else {})}
        return _restore, (type(self), self.args), attributes


class InputError(LongtalkError):
    """Raised if a call can't work as written: an invalid argument, a missing API key, an id that does not exist."""


class NotFound(InputError):
    """Raised if a conversation, branch, turn or entry does not exist, or belongs to another owner."""


class MissingExtra(InputError):
    """Raised if a call needs an optional package that is not installed. The message says what to install."""


class ToolError(InputError):
    """Raised if a function can't be used as a tool. The message says which part of the function is wrong, and why."""


class ResultMismatch(InputError):
    """Raised if the results of tool calls that the app ran don't belong to the calls that wait for them.

    `unknown` are the ids of results that no call waits for.
    """

    def __init__(self, message: str, *, unknown: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.unknown = tuple(unknown)


class PinRefused(InputError):
    """Raised if a pinned text is so long that it would leave no room for the conversation."""


class Busy(LongtalkError):
    """Raised if another process or thread is running a turn on the conversation.

    `until` is the time at which the lease of that turn expires if it is not renewed, in milliseconds since 1970; 0 if
    the time is unknown.
    """

    def __init__(self, message: str, *, until: int) -> None:
        super().__init__(message)
        self.until = until


class Deleted(LongtalkError):
    """Raised if the conversation was deleted during a turn; it stays deleted. `partial` is the reply so far."""

    partial: PartialReply | None = None


class KeyReused(InputError):
    """Raised if a request key was already used for a different message."""


class BadState(LongtalkError):
    """Raised for a state that can't be read. `state` is the bytes that were passed in; `reason` is one of `REASONS`."""

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
    """Raised if a turn fails.

    If the model or a tool has already done some work (text, finished tool calls), `partial` is the reply so far, and
    `state` contains that work and the user's message. Otherwise `partial` is None, and `state` is the state that was
    passed in, so the same message can be sent again.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.state: bytes | None = None
        self.partial: PartialReply | None = None


class TooManyRounds(TurnFailed):
    """Raised if the model still calls tools, and has not given an answer, after `max_rounds` calls to the model."""


class BadOutput(TurnFailed):
    """Raised if the answer does not match the type in `output=`. `partial` is the reply with that answer."""


class ProviderError(TurnFailed):
    """Raised if the provider did not answer, or answered with an error.

    `status` is the HTTP status, and `body` the response body. API keys are redacted in the body and in the message.
    `retryable` says whether the same request may succeed later.
    """

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
    """Raised if the provider rejected the request (HTTP 4xx). Sending the same request again does not help."""


class AuthFailed(RequestRefused):
    """Raised if the API key is missing, wrong, or lacks a permission."""


class ContextOverflow(RequestRefused):
    """Raised if the request is too long for the model's context window.

    `window` is the size of the context window and `tokens` the length of the request; each is None if the provider does
    not report it.
    """

    window: int | None = None
    tokens: int | None = None


class RateLimited(ProviderError):
    """Raised if the provider rejects a request because too many were sent or the account has no credit (HTTP 429).

    `retry_after` is the number of seconds that the provider asks the caller to wait; None if it does not say.
    """

    retryable = True


class Overloaded(ProviderError):
    """Raised if the provider is overloaded or has an internal error (HTTP 5xx, 408, 409, 425)."""

    retryable = True


class Unreachable(ProviderError):
    """Raised if the connection failed, or broke before the first byte of an answer arrived."""

    retryable = True


class StreamCut(ProviderError):
    """Raised if a stream ended in the middle of an answer. `partial` contains the part that arrived."""


class BadAnswer(ProviderError):
    """Raised if the provider sent an answer in the wrong format, such as an HTML page or incomplete JSON."""


class StoreError(LongtalkError):
    """Raised if a store is damaged (`CorruptStore`), locked for too long, unreachable, or out of disk space."""


class CorruptStore(StoreError):
    """Raised if the data in a store differs from the data that was written to it. Restore the store from a backup."""


def _restore(kind: type[LongtalkError], args: tuple[Any, ...]) -> LongtalkError:
    """Return an error of this class without calling its `__init__`. pickle and copy set its attributes afterwards."""
    return kind.__new__(kind, *args)
