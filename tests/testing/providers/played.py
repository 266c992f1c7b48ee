"""A provider whose server is a script in the same process: fast, and a start for those that break a promise."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from longtalk.errors import BadAnswer, ProviderError, StreamCut, Unreachable
from longtalk.providers.base import Capabilities
from longtalk.providers.error_mapping import error_from_response
from longtalk.testing.providers.harness import echo
from longtalk.testing.providers.script import Script, ScriptedResponse, Serve
from longtalk.wires import WIRES
from longtalk.wires.protocol import Wire


class Played:
    """It keeps every promise."""

    label = "played:model"
    model = "model"
    defaults: Mapping[str, Any] = {}
    wire: Wire = WIRES["openai-chat"]
    capabilities = Capabilities()

    def __init__(self, script: Script) -> None:
        self.script = script
        self.account = hashlib.sha256(script.key.encode()).hexdigest()[:16]

    def send(self, body: bytes) -> bytes:
        response = self.ask(body, stream=False)
        if response.cut:
            raise StreamCut("The answer broke off.")
        return response.body

    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        response = self.ask(body, stream=True)
        if response.events is None:
            raise BadAnswer("That was no stream.", body=response.body)
        whole = False
        try:
            for number, data in enumerate(response.events):
                if number == response.hold:
                    self.script.wait_while_held()
                yield data
            whole = True
        finally:
            if not whole:
                self.gone()
        if response.cut:
            raise StreamCut("The stream broke off.")

    def ask(self, body: bytes, *, stream: bool) -> ScriptedResponse:
        if self.script.absent:
            raise Unreachable("No server.")
        response = self.script.answer(body, stream=stream)
        if response.cut and not response.body and not response.events:
            raise Unreachable("The line broke.")
        if response.status >= 300:
            raise self.failure(response)
        return response

    def failure(self, response: ScriptedResponse) -> ProviderError:
        return error_from_response(self.label, response.status, response.headers, response.body)

    def gone(self) -> None:
        """Note that the stream was closed before its end."""
        self.script.left.set()

    def close(self) -> None:
        pass


def serve(kind: Callable[[Script], Played]) -> Serve:
    @contextlib.contextmanager
    def played(script: Script) -> Iterator[Played]:
        yield kind(script)

    return played


def maker(kind: type[Played]) -> Callable[[], Played]:
    """Of providers that answer, for one key."""
    key = "one key"

    def make() -> Played:
        script = Script(respond=echo(kind.wire.name))
        script.key = key
        return kind(script)

    return make
