"""Agents on the command line, run as child processes: one run for one answer.

A run gets the prompt on its standard input, the variables that it needs and no others, and as much time as it is given.
Whoever stops waiting ends it, with all that it has started. Its own file of the session tells whether somebody has gone
on with that since: nobody else may while it runs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec

from longtalk import _json
from longtalk._io import Child, in_thread, shielded
from longtalk.errors import InputError, ProviderError, StreamCut, Unreachable
from longtalk.providers.errand import Errand, place_of
from longtalk.providers.failures import failure
from longtalk.providers.registry import Resolved
from longtalk.wires.agent import Agent
from longtalk.wires.base import Wire
from longtalk.wires.speech import NO_KEY, Start

GRACE = 20.0
"""Seconds in which it may end after it has said all: then it is ended."""


class AsyncProgram:
    """A provider that is a program."""

    def __init__(self, resolved: Resolved) -> None:
        if not isinstance(resolved.wire, Agent):
            raise InputError(f"{resolved.label} is no program.")
        if resolved.model.startswith("-"):
            raise InputError(f"{resolved.model!r} is an option, not a model: give it with arguments=[…].")
        self.label = resolved.label
        self.model = resolved.model
        self.wire: Wire = resolved.wire
        self._agent = resolved.wire
        self.capabilities = resolved.capabilities
        self.defaults: Mapping[str, Any] = {}
        self._access = self._agent.speech.access(resolved.base_url, resolved.key)
        self.account = place_of(self._agent.speech)

    async def send(self, body: bytes) -> bytes:
        events = self.stream(body)
        try:
            return b"\n".join([line async for line in events])
        finally:
            await shielded(events.aclose)

    async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        start = msgspec.json.decode(body, type=Start)
        with contextlib.closing(Errand(self._agent, start, self._access)) as errand:
            await in_thread(errand.open)
            child = await self._run(errand)
            try:
                until = time.monotonic() + start.timeout
                while not errand.printed_all and not errand.failed:
                    for line in errand.lines(await self._next(child, errand, start, until)):
                        yield line
                if errand.failed:
                    return
                status = await self._status(child)
            finally:
                await shielded(child.aclose)
            if not errand.final:
                raise self._failure(status, errand)
            yield await in_thread(lambda: errand.last_line(whole=status is not None))

    async def aclose(self) -> None:
        pass

    async def _run(self, errand: Errand) -> Child:
        try:
            return await Child.start(errand.command, **errand.settings)
        except OSError as problem:
            raise Unreachable(f"{self.label} can't be run: {problem}.", retryable=False) from problem

    async def _next(self, child: Child, errand: Errand, start: Start, until: float) -> bytes | None:
        left = until - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            return await child.read(min(left, GRACE if errand.final else start.silence))
        except TimeoutError:
            # What is heard after the end of an answer is nobody's business: others may still have its output.
            if errand.final:
                return None
            over = left <= start.silence
            why = f"was not done within {start.timeout:g}" if over else f"said nothing for {start.silence:g}"
            text = f"{self.label} {why} seconds and was ended: the options 'timeout' and 'silence' say how long it may."
            text += f" It had trouble: {errand.trouble}." if errand.trouble else ""
            raise StreamCut(text) if errand.begun else Unreachable(text, retryable=False) from None

    async def _status(self, child: Child) -> int | None:
        """What it ends with; None if it does not end by itself."""
        try:
            return await child.wait(GRACE)
        except TimeoutError:
            return None

    def _failure(self, status: int | None, errand: Errand) -> ProviderError:
        ended = "it closed its output" if status is None else f"it ended with status {status}"
        if errand.broken:
            return StreamCut(f"{self.label} ended in the middle of a line.")
        said = errand.complaint() or f"{ended} and said nothing."
        code = "401" if NO_KEY.search(said) else "invalid_request"
        problem = failure(self.label, 0, {}, _json.encode({"code": code, "message": said}))
        problem.args = (f"{self.label} gave no answer: {said[:500]}",)
        return problem
