"""The reply of a turn: the answer, the new state, usage, cost, and the last request."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from longtalk.context.costs import CostReceipt, Meter, complete_receipts
from longtalk.context.epochs import Epoch
from longtalk.memory.brief.lines import Line
from longtalk.memory.brief.record import read_brief_record
from longtalk.notices import Notice
from longtalk.transcript.responses import Response as Response
from longtalk.transcript.responses import read_responses, to_finish_reason
from longtalk.transcript.transcript import Entry, Transcript, Turn
from longtalk.usage import Usage
from longtalk.wires.pairing import find_open_calls
from longtalk.wires.protocol import Answer, Wire
from longtalk.wires.views import MessageView, ToolCallView

if TYPE_CHECKING:
    from longtalk.context.compose import Context
    from longtalk.models.call_cost import Cost


Shed: TypeAlias = Callable[[Transcript], tuple[Transcript, bytes | None]]
"""A function that splits off the entries that the state need not keep.

It returns the rest, and the shed bytes or None.
"""


class Draft(Protocol):
    """The interface of a turn's draft, as far as a reply needs it."""

    @property
    def transcript(self) -> Transcript: ...

    @property
    def turn(self) -> Turn: ...

    @property
    def wire(self) -> Wire: ...

    @property
    def answer(self) -> Answer | None: ...

    @property
    def context(self) -> Context | None: ...

    @property
    def output(self) -> Any: ...

    @property
    def notices(self) -> tuple[Notice, ...]: ...

    @property
    def cost(self) -> Cost | None: ...

    @property
    def worked(self) -> bool: ...


class Message:
    """The model's last message: its exact JSON (`native`), and its role, text, tool calls and refusal."""

    def __init__(self, native: bytes, view: MessageView) -> None:
        self.native = native
        self.role, self.text, self.calls, self.refusal = view.role, view.text, view.calls, view.refusal

    def __repr__(self) -> str:
        return f"Message({self.native!r})"


class TurnReply:
    """The answer of a turn: what `Reply` and `StoredReply` have in common."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.turn_id} {self.finish_reason}: {self.text[:60]!r}>"

    @property
    def text(self) -> str:
        """The text of the model's last message; empty if the model sent none."""
        return self.message.text if self.message else ""

    @property
    def output(self) -> Any:
        """The answer decoded to the type in `output=`; None if the turn asked for no type."""
        return self._draft.output

    @cached_property
    def message(self) -> Message | None:
        """The model's last message; None if the model sent none."""
        answer = self._draft.answer
        return Message(answer.native, answer.view) if answer and answer.native is not None else None

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The entries that this turn added to the transcript."""
        return tuple(entry for entry in self._draft.transcript.fresh if entry.turn == self.turn_id)

    @property
    def turn_id(self) -> str:
        """The id of the turn."""
        return self._draft.turn.id

    @property
    def finish_reason(self) -> str:
        """Why the turn ended: "stop", "tool_calls", "length", "filtered", "interrupted" or "failed".

        With "tool_calls", the turn has ended with calls of external tools, which are in `calls`.
        """
        return to_finish_reason(self._draft.turn.finish)

    @cached_property
    def calls(self) -> tuple[ToolCallView, ...]:
        """The open calls of external tools, each with `id`, `name` and `arguments`: send a `ToolOutput` for each."""
        turn = self._draft.turn
        return find_open_calls(self._draft.transcript) if (turn.status, turn.finish) == ("complete", "calls") else ()

    @cached_property
    def usage(self) -> Usage:
        """The total token counts of all model calls in this turn. `raw_usage` has the provider's own JSON."""
        return sum(map(self._draft.wire.read_usage, self.raw_usage), Usage())

    @property
    def raw_usage(self) -> tuple[bytes, ...]:
        """The usage report of each model call in this turn, in the provider's own JSON."""
        return self._draft.turn.usage

    @cached_property
    def responses(self) -> tuple[Response, ...]:
        """The fields besides the message in each response of this turn: ids, finish reasons, citations.

        Empty if the provider's responses have no such fields, as those of an agent.
        """
        return tuple(read_responses(self._draft.turn))

    @cached_property
    def cost(self) -> Cost | None:
        """The cost of all model calls in this turn, in US dollars.

        None if the model's prices are unknown, or if the provider did not report the usage of a call.
        """
        return self._draft.cost

    @property
    def summary(self) -> str | None:
        """The summary that replaces older exchanges in requests after this turn; None if there is no summary."""
        epoch = self._draft.transcript.records.read_latest("epoch", Epoch)
        return epoch.summary.text if epoch is not None and epoch.summary is not None else None

    @property
    def brief(self) -> tuple[Line, ...]:
        """The lines of the brief after this turn; empty if the policy keeps no brief."""
        return read_brief_record(self._draft.transcript).content.lines

    @property
    def receipt(self) -> CostReceipt | None:
        """The costs and savings of the latest compaction that was made to save money; None if there was none."""
        transcript = self._draft.transcript
        receipt = transcript.records.read_latest("receipt", CostReceipt)
        return (
            complete_receipts([receipt], transcript.records.read_latest("meter", Meter))[0]
            if receipt is not None
            else None
        )

    @property
    def worked(self) -> bool:
        """True if, in this turn, the model sent any output or a tool ran."""
        return self._draft.worked

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Things worth reporting that happened during the turn but did not stop it, such as a failed summary."""
        return self._draft.notices

    @property
    def context(self) -> Context | None:
        """The context of the last request, whose manifest says how each entry was treated.

        None if no request was sent.
        """
        return self._draft.context


class StoredReply(TurnReply):
    """The answer of a turn on a stored conversation. It has no state, because the conversation is in the store."""

    def __init__(self, draft: Draft, branch: str) -> None:
        super().__init__(draft)
        self.branch = branch
        """The branch that the turn is on."""


class Reply(TurnReply):
    """The answer of a turn, and the state to pass to the next turn."""

    def __init__(self, draft: Draft, encode: Callable[[Transcript], bytes], shed: Shed | None = None) -> None:
        super().__init__(draft)
        self._encode = encode
        self._shed = shed

    @cached_property
    def state(self) -> bytes:
        """The conversation so far, as bytes to store and pass in with the next message. Encoded on first access."""
        return self._encode(self._halves[0])

    @property
    def shed(self) -> bytes | None:
        """The part of the conversation that was moved out of the state in this turn; usually None.

        Only a chat with `carry="context"` sheds such parts. Store them: Longtalk keeps no copy. `longtalk.join(*parts,
        state)` restores the full state.
        """
        return self._halves[1]

    @cached_property
    def _halves(self) -> tuple[Transcript, bytes | None]:
        transcript = self._draft.transcript
        return self._shed(transcript) if self._shed else (transcript, None)
