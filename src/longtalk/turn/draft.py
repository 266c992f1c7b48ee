"""The draft: a running turn as an immutable value, from the user's message to the answer.

A `Draft` is frozen. Each step returns a new one, and the runner replaces the old one in a single assignment, so an
interrupt between any two instructions leaves a complete draft. `finish` is pure and may be called at any moment: it
keeps the answer so far, adds a result to each call that has none, and returns a transcript that every provider accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from longtalk.context.additions import NO_ADDITIONS, TurnAdditions
from longtalk.context.compose import Context
from longtalk.context.epochs import Anchor, record_anchor, record_meter, record_passages
from longtalk.context.exclusions import list_excluded_positions
from longtalk.context.measure import has_any_between
from longtalk.context.suffixes import TurnSuffix, keep_suffix
from longtalk.errors import InputError
from longtalk.notices import Notice
from longtalk.tokens import Counter, Estimator, count_message
from longtalk.transcript.responses import add_response, name_models
from longtalk.transcript.transcript import Entry, Finish, Transcript, Turn, new_id, now
from longtalk.turn.partial_answer import PartialAnswer
from longtalk.turn.provider_sessions import ProviderSession, drop, keep
from longtalk.turn.sent import SentCall, TurnSettings
from longtalk.usage import Usage
from longtalk.wires import WIRES
from longtalk.wires.entries import make_closing_result, mark_verbatim
from longtalk.wires.pairing import find_answer_wire, find_open_calls
from longtalk.wires.protocol import Answer, Quirks, Wire
from longtalk.wires.views import ToolCallView, show_cards

if TYPE_CHECKING:
    from longtalk.models.call_cost import Cost, Prices

UNKNOWN = "Outcome unknown: the call was started and no result was kept. It may or may not have taken effect."
_MARKED = ("length", "filtered", "interrupted")
NOT_RUN = "Not run: the turn ended before this call was started."


class Draft(msgspec.Struct, frozen=True):
    """A turn in progress."""

    wire: Wire
    transcript: Transcript
    """The conversation so far, including the entries that this turn has added."""
    turn: Turn
    message: tuple[Entry, ...] = ()
    """The user's message, until `add_message` adds it to the transcript."""
    change: Callable[[Transcript], Transcript] | None = None
    """A function that applies the app's changes to the brief, called by `add_message`; None for no change."""
    tail: int = -1
    """The number of entries up to and including the user's message, after which an instruction is sent.

    It is -1 until the message is added.
    """
    answer: Answer | None = None
    """The model's last answer."""
    pieces: list[bytes] | None = None
    """The events received so far of an answer that is being streamed; None if no stream is open.

    The list only grows.
    """
    started: frozenset[str] = frozenset()
    """The ids of the tool calls that were started."""
    earlier: tuple[ToolCallView, ...] = ()
    """The calls that are open when the turn begins."""
    waiting: frozenset[str] = frozenset()
    """The ids of those that wait for results from the caller."""
    notices: tuple[Notice, ...] = ()
    instruction: str | None = None
    """An instruction for this turn only, which is not part of the transcript."""
    added: TurnAdditions | None = None
    """The text that memory adds to this turn's requests; None until it is chosen, and always None without memory."""
    output: Any = None
    """The answer decoded to the type that the caller asked for; None if no type was asked for, or not yet."""
    counter: Counter = Estimator()
    """The counter for the tokens of new entries."""
    context: Context | None = None
    """The context of the last request; None before the first request."""
    prices: Prices | None = None
    """The prices of a model call; None if they are unknown."""
    side_calls: int = 0
    """The number of model calls of this turn that wrote a summary or a memory card."""
    settings: TurnSettings | None = None
    """How the turn is held, if a store keeps that; None otherwise."""
    sent: tuple[SentCall, ...] = ()
    """The requests of this turn, if a store keeps how they were made."""

    @property
    def suffix(self) -> TurnSuffix | None:
        """The instruction, the request for a card and the recalled text that follow the message in this turn only."""
        return (self.added or NO_ADDITIONS).make_suffix(self.transcript, self.tail, self.instruction)

    @property
    def running(self) -> bool:
        return self.turn.status == "running"

    @property
    def worked(self) -> bool:
        """Whether the model has answered or a tool was started."""
        return self.answer is not None or bool(self.started)

    @property
    def cost(self) -> Cost | None:
        """The cost of all model calls of this turn, in US dollars; None if it is unknown.

        The cost is unknown if the model's prices are unknown, or if the provider did not report the usage of a call.
        """
        if self.prices is None:
            return None
        from longtalk.models import call_cost

        if self.prices.free:
            return call_cost.Cost()
        calls = [self.wire.read_usage(raw) for raw in self.turn.usage]
        own = [entry for entry in self.transcript.fresh if entry.turn == self.turn.id]
        answers = sum(entry.role == "assistant" for entry in own)
        if not calls or len(calls) < answers + self.side_calls or not all(call.input for call in calls):
            return None
        return call_cost.add_costs(call_cost.cost(call, self.prices) for call in calls)

    def notice(self, notice: Notice) -> Draft:
        return msgspec.structs.replace(self, notices=(*self.notices, notice))

    def add_message(self) -> Draft:
        """Return the draft with the user's message in the transcript, and with the app's change of the brief made."""
        transcript = self._append(self.message, self.turn)
        transcript = self.change(transcript) if self.change else transcript
        return msgspec.structs.replace(self, transcript=transcript, message=(), change=None, tail=transcript.tail)

    def add_entry(self, entry: Entry) -> Draft:
        """Return the draft with one more entry in its turn."""
        return msgspec.structs.replace(self, transcript=self._append([entry], self.turn))

    def ask(self, context: Context, pieces: list[bytes] | None, sent: SentCall | None = None) -> Draft:
        """Return the draft with a model call in progress.

        `pieces` is the list to which the events of a stream are added.
        """
        calls = self.sent if sent is None else (*self.sent, sent)
        return msgspec.structs.replace(self, context=context, pieces=pieces, sent=calls)

    def add_answer(self, answer: Answer) -> Draft:
        """Return the draft with the model's answer, its usage, and the records derived from it."""
        turn = self.turn
        if answer.usage:
            turn = msgspec.structs.replace(turn, usage=(*turn.usage, answer.usage))
        entries = []
        if answer.native is not None:
            mark = "empty" if answer.empty else answer.finish if answer.finish in _MARKED else ""
            bound = self.context.compute_bound() if answer.opaque and self.context else ""
            native, wire = answer.native, self.wire.name
            entries = [Entry(role="assistant", wire=wire, native=native, at=now(), mark=mark, bound=bound)]
            if self.added is None and answer.view.whole is not None:
                # Without memory, no card was requested, so text that looks like a card is ordinary text.
                entries = [mark_verbatim(entries[0], answer.view)]
                answer = msgspec.structs.replace(answer, view=show_cards(answer.view))
        transcript = self._append(entries)
        if answer.response is not None:
            number = int(transcript.fresh[-1].id.rpartition("-")[2]) if entries else None
            turn = add_response(
                turn, entry=number, has_usage=bool(answer.usage), finish=answer.finish, native=answer.response
            )
        transcript = transcript.add(turn=turn)
        usage = self.wire.read_usage(answer.usage) if answer.usage else Usage()
        if self.context is not None and self.context.passages is not None:
            # The records after it replace those of the call before, so a store can keep them beside the branch.
            transcript = record_passages(transcript, self.context.passages)
        if usage.input and self.wire.reports_request_size:
            transcript = self.anchor(transcript, usage.input)
        if answer.handle is not None and self.context is not None and self.context.session_key:
            session = ProviderSession(answer.handle, transcript.size, self.context.epoch)
            transcript = keep(transcript, self.context.session_key, session)
        if self.context is not None and self.context.meter is not None:
            # Later calls of a turn repeat what was recalled for the first one.
            recalled = self.context.recall if self.answer is None else 0
            transcript = record_meter(transcript, self.context.meter, usage, at=now(), recalled=recalled)
        binds = answer.opaque and self.wire.binds_prefix
        if (binds or answer.finish in ("calls", "paused")) and self.tail > 0 and (suffix := self.suffix):
            # What follows is bound to the suffix, or cached after it: from now on it stays where it was.
            transcript = keep_suffix(transcript, suffix, self.tail, self.wire, self.counter, at=now())
        return msgspec.structs.replace(self, transcript=transcript, turn=turn, answer=answer, pieces=None)

    def anchor(self, transcript: Transcript, tokens: int, *, refused: bool = False) -> Transcript:
        """Return the transcript with the length of the last request recorded, as the provider reported it."""
        if self.context is None:
            return transcript
        epoch, counted = self.context.epoch, self.context.counted
        return record_anchor(transcript, Anchor(epoch, self.turn.model, self.turn.preamble, counted, tokens, refused))

    def forget(self, session_key: str) -> Draft:
        """Return the draft without the record of a provider's session that can't be resumed."""
        return msgspec.structs.replace(self, transcript=drop(self.transcript, session_key))

    def add_side_call(self, usage: bytes | None) -> Draft:
        """Return the draft with one more call for a summary or a card, and its usage if the provider reported it."""
        more = () if usage is None else (usage,)
        turn = msgspec.structs.replace(self.turn, usage=(*self.turn.usage, *more))
        transcript = self.transcript.add(turn=turn)
        return msgspec.structs.replace(self, turn=turn, transcript=transcript, side_calls=self.side_calls + 1)

    def begin_call(self, call: ToolCallView) -> Draft:
        return msgspec.structs.replace(self, started=self.started | {call.id})

    def settle(self, call: ToolCallView, text: str, *, failed: bool = False) -> Draft:
        """Return the draft with the result of a tool call added."""
        wire = find_answer_wire(self.transcript, self.wire)
        native = wire.write_result(call.id, text, error=failed, name=call.name)
        entry = Entry(role="tool", wire=wire.name, native=native, at=now(), mark="error" if failed else "")
        return self._answer_calls([entry])

    def open_calls(self) -> tuple[ToolCallView, ...]:
        return find_open_calls(self.transcript, self.answer)

    def checkpoint(self) -> Draft:
        return msgspec.structs.replace(self, transcript=self.transcript.revise())

    def abandon(self, calls: Sequence[ToolCallView]) -> Draft:
        """Return the draft with results for the open calls of an earlier run.

        Each result says that the outcome of the call is unknown or, if the caller should have run it, that it was not
        run.
        """
        if not calls:
            return self
        wire = find_answer_wire(self.transcript, self.wire)
        return self._answer_calls(
            [
                make_closing_result(
                    wire, call.id, NOT_RUN if call.id in self.waiting else UNKNOWN, at=now(), name=call.name
                )
                for call in calls
            ]
        )

    def finish(self, status: Literal["complete", "interrupted", "failed"], *, error: str = "") -> Draft:
        """Return the draft with the turn ended now. Finishing a finished turn changes nothing.

        If the turn is complete, its open calls wait for results from the caller; otherwise they are closed.
        """
        if self.turn.status != "running":
            return self
        draft = self
        if self.pieces is not None:
            draft = draft.cut_stream(PartialAnswer(self.pieces, self.wire).answer())
        if self.tail < 0:
            draft = draft.abandon(draft.open_calls()).add_message()
        open_calls = draft.open_calls()
        if open_calls and status != "complete":
            wire = find_answer_wire(draft.transcript, self.wire)
            draft = draft._answer_calls(
                [
                    make_closing_result(
                        wire, call.id, UNKNOWN if call.id in self.started else NOT_RUN, at=now(), name=call.name
                    )
                    for call in open_calls
                ]
            )
        said: Finish = "calls" if open_calls else draft.answer.finish if draft.answer else "stop"
        finish = said if status == "complete" else status
        turn = msgspec.structs.replace(draft.turn, status=status, ended=now(), error=error, finish=finish)
        return msgspec.structs.replace(draft, turn=turn, transcript=draft.transcript.add(turn=turn).revise())

    def cut_stream(self, answer: Answer) -> Draft:
        """Return the draft with the partial answer of a stream that was stopped."""
        draft = self if answer.native is None and not answer.usage else self.add_answer(answer)
        return msgspec.structs.replace(draft, pieces=None)

    def _append(self, entries: Sequence[Entry], turn: Turn | None = None) -> Transcript:
        """Return the transcript with entries of this turn added, and with a new version of the turn."""
        return self.transcript.append_to_turn(self.turn.id, add_token_counts(entries, self.counter), turn=turn)

    def _answer_calls(self, results: Sequence[Entry]) -> Draft:
        """Return the draft with results added to the turns that made the calls, which may be earlier turns."""
        if not results:
            return self
        transcript = self.transcript
        results = add_token_counts(results, self.counter)
        return msgspec.structs.replace(self, transcript=transcript.append_to_turn(transcript[-1].turn, results))


def begin(
    transcript: Transcript,
    message: Sequence[Entry],
    *,
    wire: Wire,
    model: str,
    preamble: str,
    instruction: str | None = None,
    counter: Counter = Estimator(),  # noqa: B008
    prices: Prices | None = None,
    turn: str | None = None,
) -> Draft:
    """Return the draft of a new turn on this transcript. `turn` is its id; None makes one.

    If the last turn is still running, it is continued if there is no message, and marked as interrupted if there is
    one. Tool results from the caller are part of the transcript from the beginning.
    """
    last = transcript.turns.last
    if not message and not _awaits_answer(transcript):
        raise InputError(
            "There is nothing to answer: the message is empty, and neither was a turn cut off nor a note added."
        )
    if (not message or message[0].role == "tool") and _is_current_excluded(transcript):
        raise InputError("The last exchange is excluded, so it can't continue: include it, or send another message.")
    if last is not None and last.status == "running":
        if not message:
            last = last if last.model == model else name_models(last)
            resumed = msgspec.structs.replace(last, model=model, preamble=preamble)
            transcript = transcript.add(turn=resumed)
            # The usage so far is from another model, so it can't be priced with this model's prices.
            prices = None if last.usage and last.model != model else prices
            return Draft(
                wire=wire, transcript=transcript, turn=resumed, instruction=instruction, counter=counter, prices=prices
            )
        transcript = mark_interrupted(transcript)
    new = Turn(id=turn or new_id(), status="running", model=model, started=now(), preamble=preamble)
    if message and message[0].role == "tool":
        transcript = transcript.append_to_turn(new.id, add_token_counts(message, counter), turn=new)
        message = ()
    return Draft(
        wire=wire,
        transcript=transcript,
        turn=new,
        message=tuple(message),
        instruction=instruction,
        counter=counter,
        prices=prices,
    )


def _awaits_answer(transcript: Transcript) -> bool:
    """Return True if the model has something to answer, or a turn to continue."""
    last = transcript.turns.last
    running = last is not None and last.status == "running"
    calls = find_open_calls(transcript)
    return len(transcript) > 0 and (transcript[-1].role != "assistant" or bool(calls) or running)


def _is_current_excluded(transcript: Transcript) -> bool:
    """Return True if the exchange that a turn without a new message would continue is in no request."""
    positions = list_excluded_positions(transcript)
    if not positions:
        return False
    first, stop = transcript.exchanges()[-1]
    return has_any_between(positions, transcript.position(first), transcript.position(stop - 1) + 1)


def mark_interrupted(transcript: Transcript) -> Transcript:
    """Return the transcript with its last turn, which is still marked as running, marked as interrupted."""
    last = transcript.turns[-1]
    ended = transcript[-1].at if len(transcript) else last.started
    return transcript.add(turn=msgspec.structs.replace(last, status="interrupted", finish="interrupted", ended=ended))


def add_event(transcript: Transcript, event: Entry, wire: Wire, counter: Counter) -> Transcript:
    """Return the transcript with an event added, after closing open calls and marking a running turn as interrupted."""
    if calls := find_open_calls(transcript):
        wire = find_answer_wire(transcript, wire)
        closings = [make_closing_result(wire, call.id, UNKNOWN, at=now(), name=call.name) for call in calls]
        transcript = transcript.append_to_turn(transcript[-1].turn, add_token_counts(closings, counter))
    last = transcript.turns.last
    if last is not None and last.status == "running":
        transcript = mark_interrupted(transcript)
    return transcript.append_to_turn(new_id(), add_token_counts([event], counter)).revise()


def add_token_counts(entries: Sequence[Entry], counter: Counter) -> list[Entry]:
    """Return the entries with their numbers of tokens."""
    counted = []
    for entry in entries:
        wire, native = WIRES.get(entry.wire), entry.native
        if wire is not None and not wire.reports_request_size:
            # Only the answer is sent of what an agent printed.
            native = wire.render(entry, Quirks()) or b"{}"
        counted.append(msgspec.structs.replace(entry, tokens=count_message(native, counter)))
    return counted
