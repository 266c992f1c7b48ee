"""What a turn gives back."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from longtalk.epochs import Epoch
from longtalk.memory.book import book_of
from longtalk.memory.notes import Line
from longtalk.receipts import CostReceipt, Meter, told
from longtalk.records import latest
from longtalk.transcript import Entry, Finish, Transcript
from longtalk.wires.base import Usage, View

if TYPE_CHECKING:
    from longtalk.context import Context
    from longtalk.draft import Draft
    from longtalk.events import Notice
    from longtalk.prices import Cost


Shed: TypeAlias = Callable[[Transcript], tuple[Transcript, bytes | None]]
"""Takes a transcript apart: what the state keeps, and what is handed out, if anything is."""


class Message:
    """The model's last message: its exact JSON, and views of it."""

    def __init__(self, native: bytes, view: View) -> None:
        self.native = native
        self.role, self.text, self.calls, self.refusal = view.role, view.text, view.calls, view.refusal

    def __repr__(self) -> str:
        return f"Message({self.native!r})"


class Reply:
    """The answer, and the state to pass in next time. `state` is made when it is asked for."""

    def __init__(
        self,
        draft: Draft,
        encode: Callable[[Transcript], bytes],
        shed: Shed | None = None,
    ) -> None:
        self._draft = draft
        self._encode = encode
        self._shed = shed

    def __repr__(self) -> str:
        return f"<Reply {self.id} {self.finish}: {self.text[:60]!r}>"

    @cached_property
    def state(self) -> bytes:
        """The conversation so far, as bytes to store and pass in with the next message."""
        return self._encode(self._halves[0])

    @property
    def shed(self) -> bytes | None:
        """With `carry="context"`: what has left the state with this turn, to be stored apart; mostly None.

        It is handed out here and never again. `longtalk.join(*shed, state)` puts all of it back.
        """
        return self._halves[1]

    @cached_property
    def _halves(self) -> tuple[Transcript, bytes | None]:
        transcript = self._draft.transcript
        return self._shed(transcript) if self._shed else (transcript, None)

    @property
    def text(self) -> str:
        """What the model said last."""
        return self.message.text if self.message else ""

    @cached_property
    def message(self) -> Message | None:
        """The model's last message; None when it said nothing."""
        answer = self._draft.answer
        return Message(answer.native, answer.view) if answer and answer.native is not None else None

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """What this turn added to the transcript."""
        return tuple(entry for entry in self._draft.transcript.fresh if entry.turn == self.id)

    @property
    def id(self) -> str:
        """The id of the turn."""
        return self._draft.turn.id

    @property
    def finish(self) -> Finish:
        """Why it ended: stop, length, filtered, interrupted or failed."""
        return self._draft.turn.finish

    @cached_property
    def usage(self) -> Usage:
        """Tokens of all model calls of this turn, as reported; `reply.raw_usage` has the reports themselves."""
        return sum(map(self._draft.wire.usage, self.raw_usage), Usage())

    @property
    def raw_usage(self) -> tuple[bytes, ...]:
        """What the provider reported for each model call, as it came."""
        return self._draft.turn.usage

    @cached_property
    def cost(self) -> Cost | None:
        """US dollars for the tokens of all model calls of this turn; None when that is not known.

        It is not when the model's prices are not, or when a call was not reported.
        """
        return self._draft.cost

    @property
    def summary(self) -> str | None:
        """The summary that goes at the head of requests now; None if there is none."""
        epoch = latest(self._draft.transcript, "epoch", Epoch)
        return epoch.summary.text if epoch is not None and epoch.summary is not None else None

    @property
    def brief(self) -> tuple[Line, ...]:
        """The lines of the brief after this turn; none where memory keeps none."""
        return book_of(self._draft.transcript).notes.lines

    @property
    def receipt(self) -> CostReceipt | None:
        """What the newest epoch that began to save money has cost and saved; None if there is none."""
        transcript = self._draft.transcript
        receipt = latest(transcript, "receipt", CostReceipt)
        return told([receipt], latest(transcript, "meter", Meter))[0] if receipt is not None else None

    @property
    def worked(self) -> bool:
        """Whether the model or a tool has done anything."""
        return self._draft.worked

    @property
    def notices(self) -> tuple[Notice, ...]:
        return self._draft.notices

    @property
    def context(self) -> Context | None:
        """What was sent last, with the manifest: what became of each entry, and why. None if nothing was."""
        return self._draft.context
