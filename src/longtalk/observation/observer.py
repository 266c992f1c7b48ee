"""The observer of a turn: it reports the turn, its model calls, tool runs, compactions and retries.

Each `Observation` is passed to the caller's `on_event` and to the standard logger "longtalk", which also records every
error that the library suppresses. Neither receives messages, arguments, results, error texts or keys. The one exception
is an `on_event` that asks for content by an attribute `wants_content` that is True.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import iscoroutinefunction
from time import perf_counter
from typing import Literal, TypeAlias

import msgspec

from longtalk.errors import InputError
from longtalk.usage import Usage

logger = logging.getLogger("longtalk")
# Without this handler, Python would print warnings in a program that has not configured logging.
logger.addHandler(logging.NullHandler())

INTERRUPTED = "interrupted"
Kind: TypeAlias = Literal["turn", "model_call", "tool_run", "epoch", "summary", "card", "retry"]


class ObservedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a model call, in a form that all wires share. Images and files are left out."""

    role: str
    text: str = ""
    calls: tuple[tuple[str, str, bytes], ...] = ()
    """The id, name and arguments of each tool call."""
    call_id: str = ""
    """For the result of a tool: the id of the call that it answers."""


class StepContent(msgspec.Struct, frozen=True, kw_only=True):
    """What was sent and received in a step, for an `on_event` that asks for content."""

    system: str = ""
    messages: tuple[ObservedMessage, ...] = ()
    """The messages of a request to a model."""
    answer: ObservedMessage | None = None
    finish: str = ""
    """Why the answer ended."""
    arguments: bytes = b""
    """The arguments of a tool run."""
    result: str = ""
    """The result of a tool run."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """A report of one step of a turn: its kind, its ids, its duration, and how it ended.

    `kind` is "model_call", "tool_run", "epoch" (a compaction: from now on, requests leave something out), "summary" (a
    model call that wrote a summary), "retry" (a model call is about to be repeated) or "turn" (a turn has ended).
    """

    kind: Kind
    conversation: str = ""
    """The id of a stored conversation; empty for a chat."""
    turn: str = ""
    call: str = ""
    """The id of the model call or tool call; for a retry, the id of the call that failed."""
    model: str = ""
    tool: str = ""
    """The name of the tool; empty if the step is not a tool run or the tool does not exist."""
    seconds: float = 0.0
    """The duration of the step in seconds; for a retry, the wait before it."""
    usage: Usage | None = None
    """The tokens of a model call; None if the provider reported none."""
    error: str = ""
    """The type of the error if the step failed, or "interrupted"."""
    content: StepContent | None = None
    """What was said; None unless `on_event` asks for it by its attribute `wants_content`."""

    def __str__(self) -> str:
        """Return the observation on one line. Ids are quoted, because they may come from a provider."""
        told = [f"{name}={value!r}" for name in _NAMES if (value := getattr(self, name))]
        usage = self.usage or Usage()
        told += [f"{name}={count}" for name in Usage.__struct_fields__ if (count := getattr(usage, name))]
        return " ".join([self.kind, *told, f"seconds={self.seconds:.3f}"])


_NAMES = ("conversation", "turn", "call", "model", "tool", "error")
OnEvent: TypeAlias = Callable[[Observation], object]


class Observer:
    """A reporter of the steps of one turn. As a context manager, it reports a model call that ends with an error.

    Reporting costs nothing unless `on_event` is set or the logger is enabled.
    """

    def __init__(
        self,
        on_event: OnEvent | None = None,
        *,
        conversation: str = "",
        turn: str = "",
        model: str = "",
        read_usage: Callable[[bytes], Usage] = lambda _: Usage(),
    ) -> None:
        self._on_event = on_event
        self._conversation = conversation
        self._turn = turn
        self._model = model
        self._read_usage = read_usage
        self._calls = 0
        self._failed_call = ""
        self._kind: Kind = "model_call"
        self._began = 0.0
        self._turn_began = perf_counter()
        self._has_ended = False
        self._find_usage: Callable[[], bytes | None] | None = None
        self.wants_content = _wants_content(on_event)
        """Whether the content of steps is to be noted."""
        self._content: StepContent | None = None

    def note_content(self, content: StepContent) -> None:
        """Note what the current model call has sent or received. It is reported with the call."""
        self._content = content

    @property
    def content(self) -> StepContent:
        """What was noted of the current model call."""
        return self._content or StepContent()

    def watch(self, find_usage: Callable[[], bytes | None]) -> Observer:
        """Return this context manager for a stream. If it is cut off, `find_usage` returns the usage so far."""
        self._find_usage = find_usage
        return self

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        find_usage, self._find_usage = self._find_usage, None
        if problem is not None:
            self.end_call(find_usage() if find_usage is not None else None, error=name_error(problem))

    def begin_call(self, kind: Literal["model_call", "summary", "card"] = "model_call") -> None:
        """Note the start of a model call."""
        self._kind = kind
        self._calls += 1
        self._began = perf_counter()

    def end_call(self, usage: bytes | None = None, *, error: str = "") -> None:
        """Report the end of the current model call.

        `usage` is the provider's report of tokens; `error` describes a failure, and is empty for a call that succeeded.
        """
        if error:
            self._failed_call = self._call_id
        seconds, content, self._content = perf_counter() - self._began, self._content, None
        self._report(self._kind, call=self._call_id, seconds=seconds, usage=usage, error=error, content=content)

    def report_retry(self, problem: Exception, wait: float = 0.0) -> None:
        """Report that the model call that failed last will be repeated after a wait in seconds."""
        self._report("retry", call=self._failed_call, seconds=wait, error=name_error(problem))

    def report_tool(
        self, call: str, tool: str, began: float, error: str, *, arguments: bytes = b"", result: str = ""
    ) -> None:
        """Report a tool run. `began` is the value of `perf_counter` when it began."""
        content = StepContent(arguments=arguments, result=result) if self.wants_content else None
        self._report("tool_run", call=call, tool=tool, seconds=perf_counter() - began, error=error, content=content)

    def report_epoch(self) -> None:
        """Report that a new epoch has begun."""
        self._report("epoch")

    def end_turn(self, error: str = "") -> None:
        """Report the turn. If it was reported before, nothing happens."""
        if not self._has_ended:
            self._has_ended = True
            self._report("turn", seconds=perf_counter() - self._turn_began, error=error)

    @property
    def _call_id(self) -> str:
        return f"{self._turn}.{self._calls}"

    def _report(
        self,
        kind: Kind,
        *,
        call: str = "",
        tool: str = "",
        seconds: float = 0.0,
        usage: bytes | None = None,
        error: str = "",
        content: StepContent | None = None,
    ) -> None:
        level = logging.WARNING if error not in ("", INTERRUPTED) else logging.INFO
        is_logged = logger.isEnabledFor(level)
        if self._on_event is None and not is_logged:
            return
        observation = Observation(
            kind=kind,
            conversation=self._conversation,
            turn=self._turn,
            call=call,
            model="" if kind == "tool_run" else self._model,
            tool=tool,
            seconds=seconds,
            usage=self._read_usage(usage) if usage else None,
            error=error,
            content=content,
        )
        if is_logged:
            logger.log(level, "%s", observation)
        if self._on_event is None:
            return
        try:
            self._on_event(observation)
        except Exception as problem:
            place = traceback.extract_tb(problem.__traceback__)[-1]
            where = f"{place.filename}:{place.lineno}"
            logger.error("on_event raised %s at %s; the turn continues", name_error(problem), where)


def name_error(problem: BaseException) -> str:
    """Return the type of an error, or "interrupted" for Ctrl-C, a cancelled task and a closed stream."""
    return type(problem).__name__ if isinstance(problem, Exception) else INTERRUPTED


def join_observers(*functions: OnEvent | None) -> OnEvent | None:
    """Return a function that calls all of these; None if there is none."""
    given = [each for each in functions if each is not None]
    if len(given) < 2:
        return given[0] if given else None
    return _Joined(given)


class _Joined:
    """A function for `on_event` that calls others. Only those that ask for content get it."""

    def __init__(self, functions: Sequence[OnEvent]) -> None:
        self._functions = functions
        self.wants_content = any(map(_wants_content, functions))

    def __call__(self, seen: Observation) -> None:
        plain = seen if seen.content is None else msgspec.structs.replace(seen, content=None)
        for each in self._functions:
            each(seen if _wants_content(each) else plain)


def _wants_content(on_event: OnEvent | None) -> bool:
    return getattr(on_event, "wants_content", False) is True


def check_on_event(on_event: object) -> None:
    """Raise `InputError` unless `on_event` is None or a plain function."""
    if on_event is not None and (not callable(on_event) or iscoroutinefunction(on_event)):
        raise InputError(f"`on_event` must be a plain (not async) function of one argument, not {on_event!r}.")


def log_suppressed(what: str, problem: Exception, *, level: int = logging.WARNING, where: str = "") -> None:
    """Log that an operation failed, with the type of the error. `where` is the id of the turn or conversation."""
    logger.log(level, "%s in=%r error=%r", what, where, name_error(problem))


@contextmanager
def log_and_suppress(what: str, *errors: type[Exception], level: int = logging.WARNING) -> Iterator[None]:
    """Suppress errors of these types, and log that the operation `what` failed, with the type of the error."""
    try:
        yield
    except errors as problem:
        log_suppressed(what, problem, level=level)
