"""Command-line agents as providers: each answer is one run of the program as a child process.

The child reads the prompt from its standard input, gets only the environment variables it needs, and has a time limit.
If the caller stops waiting, the child and all processes it started are terminated. The program's own session file is
locked during a run. Its size and modification time show whether another process has continued the session since the
last run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from longtalk._util import json_bytes, typed_json
from longtalk._util.concurrency import Child, run_in_thread, run_shielded
from longtalk.errors import InputError, ProviderError, StreamCut, Unreachable
from longtalk.providers.agents.run import AgentRun, digest_session_location
from longtalk.providers.error_mapping import error_from_response
from longtalk.providers.redaction import Redactor, find_named
from longtalk.providers.registry import ResolvedModel
from longtalk.wires.agents.cli import NOT_LOGGED_IN, AgentCommand
from longtalk.wires.agents.wire import AgentWire
from longtalk.wires.protocol import Wire

GRACE = 20.0
"""Seconds that the program may take to exit after its last line, before it is terminated."""


class AsyncAgentProgram:
    """A provider that runs a command-line agent, such as `claude`, `codex` or `gemini`."""

    def __init__(self, resolved: ResolvedModel, *, timeout: float | None = None) -> None:
        if not isinstance(resolved.wire, AgentWire):
            raise InputError(
                f"{resolved.label} is not a command-line agent: use claude-cli:, gemini-cli: or codex-cli:."
            )
        if resolved.model.startswith("-"):
            raise InputError(f"{resolved.model!r} is an option, not a model: pass it with the option arguments=[…].")
        self.label = resolved.label
        self.model = resolved.model
        self.wire: Wire = resolved.wire
        self._agent = resolved.wire
        self.capabilities = resolved.capabilities
        self.defaults: Mapping[str, Any] = {} if timeout is None else {"timeout": timeout}
        self._access = self._agent.cli.configure_access(resolved.base_url, resolved.key)
        self.account = digest_session_location(self._agent.cli)
        self.redactor = Redactor(lambda: find_named(self._access[1]))

    async def send(self, body: bytes) -> bytes:
        events = self.stream(body)
        try:
            return b"\n".join([line async for line in events])
        finally:
            await run_shielded(events.aclose)

    async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        command = typed_json.decode(body, AgentCommand)
        with contextlib.closing(AgentRun(self._agent, command, self._access)) as run, run.redactor:
            self.redactor = run.redactor
            await run_in_thread(run.open)
            child = await self._start(run)
            try:
                until = time.monotonic() + command.timeout
                while not run.printed_all and not run.failed:
                    for line in run.take_lines(await self._read(child, run, command, until)):
                        yield line
                if run.failed:
                    return
                status = await self._wait(child)
            finally:
                await run_shielded(child.aclose)
            if not run.final:
                raise self._make_error(status, run)
            yield await run_in_thread(lambda: run.stamp_line(exited=status is not None))

    async def aclose(self) -> None:
        pass

    async def _start(self, run: AgentRun) -> Child:
        try:
            return await Child.start(run.command, **run.settings)
        except OSError as problem:
            raise Unreachable(f"The program of {self.label} can't be started: {problem}.", retryable=False) from None

    async def _read(self, child: Child, run: AgentRun, command: AgentCommand, until: float) -> bytes | None:
        """Return the child's next output, or None at its end. Raise `ProviderError` after `until` or a long silence."""
        remaining = until - time.monotonic()
        try:
            if remaining <= 0:
                raise TimeoutError
            return await child.read(min(remaining, GRACE if run.final else command.silence))
        except TimeoutError:
            # The answer is complete. The output may stay open because another process has inherited it.
            if run.final:
                return None
            over = remaining <= command.silence
            cause = f"did not finish within {command.timeout:g}" if over else f"printed nothing for {command.silence:g}"
            text = f"{self.label} {cause} seconds and was terminated. "
            text += "The options 'timeout' and 'silence' set these limits."
            text += f" It reported: {run.retry_reason}." if run.retry_reason else ""
            raise StreamCut(text) if run.begun else Unreachable(text, retryable=False) from None

    async def _wait(self, child: Child) -> int | None:
        """Return the exit status of the child, or None if it has not exited after `GRACE` seconds."""
        try:
            return await child.wait(GRACE)
        except TimeoutError:
            return None

    def _make_error(self, status: int | None, run: AgentRun) -> ProviderError:
        """Return the error for a run that ended without an answer."""
        ended = "it closed its output" if status is None else f"it exited with status {status}"
        if run.broken:
            return StreamCut(f"The output of {self.label} ended in the middle of a line, so its answer is incomplete.")
        message = run.error_output() or f"{ended} and printed no error message."
        code = "401" if NOT_LOGGED_IN.search(message) else "invalid_request"
        body = json_bytes.encode({"code": code, "message": message})
        problem = error_from_response(self.label, 0, {}, body, redactor=run.redactor)
        problem.args = (f"{self.label} gave no answer: {message[:500]}",)
        return problem
