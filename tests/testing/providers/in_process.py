"""A correct provider whose server is a script in the same process, as a fast base class for broken providers."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from longtalk.errors import BadAnswer, ProviderError, StreamCut, Unreachable
from longtalk.providers.base import Capabilities
from longtalk.providers.error_mapping import error_from_response
from longtalk.providers.redaction import Redactor
from longtalk.testing.providers.harness import echo
from longtalk.testing.providers.script import Script, ScriptedResponse, Serve
from longtalk.wires import WIRES
from longtalk.wires.protocol import Wire


class InProcessProvider:
    """A provider that passes the whole suite."""

    label = "in_process:model"
    model = "model"
    defaults: Mapping[str, Any] = {}
    wire: Wire = WIRES["openai-chat"]
    capabilities = Capabilities()

    def __init__(self, script: Script) -> None:
        self.script = script
        self.account = hashlib.sha256(script.key.encode()).hexdigest()[:16]
        self.redactor = Redactor(lambda: [script.key])

    def send(self, body: bytes) -> bytes:
        with self.redactor:
            return self._send(body)

    def _send(self, body: bytes) -> bytes:
        response = self.ask(body, stream=False)
        if response.cut:
            raise StreamCut("The answer broke off.")
        return response.body

    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        with self.redactor:
            yield from self._stream(body)

    def _stream(self, body: bytes) -> Generator[bytes, None, None]:
        response = self.ask(body, stream=True)
        if response.events is None:
            raise BadAnswer("The response is not a stream.", body=response.body)
        complete = False
        try:
            for number, data in enumerate(response.events):
                if number == response.hold:
                    self.script.wait_while_held()
                yield data
            complete = True
        finally:
            if not complete:
                self.handle_early_close()
        if response.cut:
            raise StreamCut("The stream broke off.")

    def ask(self, body: bytes, *, stream: bool) -> ScriptedResponse:
        if self.script.absent:
            raise Unreachable("No server.")
        response = self.script.answer(body, stream=stream)
        if response.cut and not response.body and not response.events:
            raise Unreachable("The connection broke.")
        if response.status >= 300:
            raise self.make_error(response)
        return response

    def make_error(self, response: ScriptedResponse) -> ProviderError:
        return error_from_response(self.label, response.status, response.headers, response.body)

    def handle_early_close(self) -> None:
        """Report to the script that the stream was closed before its end."""
        self.script.disconnected.set()

    def close(self) -> None:
        pass


def serve_in_process(make: Callable[[Script], InProcessProvider]) -> Serve:
    """Return a `serve` function for the suite that passes the script to the provider, without a server."""

    @contextlib.contextmanager
    def serve(script: Script) -> Iterator[InProcessProvider]:
        yield make(script)

    return serve


def make_factory(kind: type[InProcessProvider]) -> Callable[[], InProcessProvider]:
    """Return a function that creates providers which echo messages. All of them have the same key."""
    key = "one key"

    def make() -> InProcessProvider:
        script = Script(respond=echo(kind.wire.name))
        script.key = key
        return kind(script)

    return make
