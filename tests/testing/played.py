"""A provider whose server is a script in the same process: fast, and a start for those that break a promise."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from longtalk.errors import BadAnswer, ProviderError, StreamCut, Unreachable
from longtalk.providers.base import Capabilities
from longtalk.providers.failures import failure
from longtalk.testing.provider_cases import echo
from longtalk.testing.provider_script import Act, Script, Serve
from longtalk.wires import WIRES
from longtalk.wires.base import Wire


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
        act = self.ask(body, stream=False)
        if act.cut:
            raise StreamCut("The answer broke off.")
        return act.body

    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        act = self.ask(body, stream=True)
        if act.events is None:
            raise BadAnswer("That was no stream.", body=act.body)
        whole = False
        try:
            for number, data in enumerate(act.events):
                if number == act.hold:
                    self.script.held()
                yield data
            whole = True
        finally:
            if not whole:
                self.gone()
        if act.cut:
            raise StreamCut("The stream broke off.")

    def ask(self, body: bytes, *, stream: bool) -> Act:
        if self.script.absent:
            raise Unreachable("Nobody is there.")
        act = self.script.answer(body, stream=stream)
        if act.cut and not act.body and not act.events:
            raise Unreachable("The line broke.")
        if act.status >= 300:
            raise self.failure(act)
        return act

    def failure(self, act: Act) -> ProviderError:
        return failure(self.label, act.status, act.headers, act.body)

    def gone(self) -> None:
        """Nobody reads this stream any more."""
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
