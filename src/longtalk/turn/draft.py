"""One turn, as a value: input → calls → tools → answer.

A `Draft` is frozen. Each step returns a new one, and the runner keeps the newest in one assignment, so a turn that is
interrupted between any two instructions leaves a whole draft. `finish` is pure and may be called at any moment: it
keeps the answer so far, closes calls without a result, and returns a transcript that every provider accepts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from longtalk.context.compose import Context
from longtalk.context.epochs import Anchor, TurnSuffix, record_anchor, record_meter
from longtalk.context.prepare import NO_ADDITIONS, TurnAdditions, keep_suffix
from longtalk.errors import InputError
from longtalk.notices import Notice
from longtalk.tokens import Counter, Estimator, count_message
from longtalk.transcript.responses import add_response, name_models
from longtalk.transcript.transcript import Entry, Finish, Transcript, Turn, new_id, now
from longtalk.turn.provider_sessions import ProviderSession, drop, keep
from longtalk.usage import Usage
from longtalk.wires import WIRES
from longtalk.wires.entries import make_closing_result, mark_verbatim
from longtalk.wires.pairing import find_answer_wire, find_open_calls
from longtalk.wires.protocol import Answer, Quirks, Wire
from longtalk.wires.views import ToolCallView, show_cards

if TYPE_CHECKING:
    from longtalk.models.prices import Cost, Prices

UNKNOWN = "Outcome unknown: the call was started and no result was kept. It may or may not have taken effect."
_MARKED = ("length", "filtered", "interrupted")
NOT_RUN = "Not run: the turn ended before this call was started."


class Draft(msgspec.Struct, frozen=True):
    """A turn in progress."""

    wire: Wire
    transcript: Transcript
    """The conversation so far, with what this turn has added to it."""
    turn: Turn
    message: tuple[Entry, ...] = ()
    """The user's message, until `add_message` adds it to the transcript."""
    change: Callable[[Transcript], Transcript] | None = None
    """The app's change of the brief, which `add_message` makes; None for no change."""
    tail: int = -1
    """The number of entries up to and including the user's message, where an instruction goes; -1 until it is added."""
    answer: Answer | None = None
    """The model's last answer."""
    pieces: list[bytes] | None = None
    """The events of an answer that is being streamed, in a list that only grows; None otherwise."""
    started: frozenset[str] = frozenset()
    """The ids of the tool calls that were started."""
    waiting: frozenset[str] = frozenset()
    """The ids of calls of an earlier turn that wait for results from the caller."""
    notices: tuple[Notice, ...] = ()
    instruction: str | None = None
    """An instruction for this turn only, which is not part of the transcript."""
    added: TurnAdditions | None = None
    """What memory adds to this turn's requests; None until it is decided, and without memory."""
    output: Any = None
    """The decoded answer, if the turn asks for a type and has one; None otherwise."""
    counter: Counter = Estimator()
    """Counts the tokens of new entries."""
    context: Context | None = None
    """The last request; None if none was sent."""
    prices: Prices | None = None
    """The prices of a model call; None if they are unknown."""
    summary_calls: int = 0
    """The number of model calls of this turn that wrote a summary."""

    @property
    def suffix(self) -> TurnSuffix | None:
        """The instruction, the request for a card and the recalled text that follow the message in this turn only."""
        return (self.added or NO_ADDITIONS).make_suffix(self.transcript, self.tail, self.instruction)

    @property
    def running(self) -> bool:
        return self.turn.status == "running"

    @property
    def worked(self) -> bool:
        """Whether the model or a tool has done anything."""
        return self.answer is not None or bool(self.started)

    @property
    def cost(self) -> Cost | None:
        """The cost of all model calls of this turn, in US dollars; None if it is unknown.

        It is not when the model's prices are not, or when a call was not reported.
        """
        if self.prices is None:
            return None
        from longtalk.models import prices

        if self.prices.free:
            return prices.Cost()
        calls = [self.wire.read_usage(raw) for raw in self.turn.usage]
        own = [entry for entry in self.transcript.fresh if entry.turn == self.turn.id]
        answers = sum(entry.role == "assistant" for entry in own)
        if not calls or len(calls) < answers + self.summary_calls or not all(call.input for call in calls):
            return None
        return prices.add_costs(prices.cost(call, self.prices) for call in calls)

    def notice(self, notice: Notice) -> Draft:
        return msgspec.structs.replace(self, notices=(*self.notices, notice))

    def add_message(self) -> Draft:
        """Return the draft with the user's message in the transcript, and with the app's change of the brief made."""
        transcript = self._add(self.turn, self.message)
        transcript = self.change(transcript) if self.change else transcript
        return msgspec.structs.replace(self, transcript=transcript, message=(), change=None, tail=transcript.tail)

    def add_entry(self, entry: Entry) -> Draft:
        """Return the draft with one more entry in its turn."""
        return msgspec.structs.replace(self, transcript=self._add(self.turn, [entry]))

    def ask(self, context: Context, pieces: list[bytes] | None) -> Draft:
        """Return the draft with a model call in progress. The events of a stream will be added to `pieces`."""
        return msgspec.structs.replace(self, context=context, pieces=pieces)

    def add_answer(self, answer: Answer) -> Draft:
        """Return the draft with the model's answer, its usage, and the records that follow from it."""
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
                # Without memory, no card is requested, and what looks like one is text.
                entries = [mark_verbatim(entries[0], answer.view)]
                answer = msgspec.structs.replace(answer, view=show_cards(answer.view))
        transcript = self._add(turn, entries)
        if answer.response is not None:
            number = int(transcript[-1].id.rpartition("-")[2]) if entries else None
            turn = add_response(
                turn, entry=number, has_usage=bool(answer.usage), finish=answer.finish, native=answer.response
            )
            transcript = transcript.add(turn=turn)
        usage = self.wire.read_usage(answer.usage) if answer.usage else Usage()
        if usage.input and self.wire.reports_request_size:
            transcript = self.anchor(transcript, usage.input)
        if answer.handle is not None and self.context is not None and self.context.session_key:
            session = ProviderSession(answer.handle, transcript.size, self.context.epoch)
            transcript = keep(transcript, self.context.session_key, session)
        if self.context is not None and self.context.meter is not None:
            transcript = record_meter(transcript, self.context.meter, usage, at=now())
        binds = answer.opaque and self.wire.binds_prefix
        if self.tail > 0 and (suffix := self.suffix) and (binds or answer.finish in ("calls", "paused")):
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
        """Return the draft without a provider's session, which can't be resumed."""
        return msgspec.structs.replace(self, transcript=drop(self.transcript, session_key))

    def add_summary_call(self, usage: bytes | None) -> Draft:
        """Return the draft with one more summary call, and its usage if the provider reported it."""
        more = () if usage is None else (usage,)
        turn = msgspec.structs.replace(self.turn, usage=(*self.turn.usage, *more))
        transcript = self.transcript.add(turn=turn)
        return msgspec.structs.replace(self, turn=turn, transcript=transcript, summary_calls=self.summary_calls + 1)

    def begin_call(self, call: ToolCallView) -> Draft:
        return msgspec.structs.replace(self, started=self.started | {call.id})

    def settle(self, call: ToolCallView, text: str, *, failed: bool = False) -> Draft:
        """Return the draft with the result of a tool call."""
        wire = find_answer_wire(self.transcript, self.wire)
        native = wire.write_result(call.id, text, error=failed, name=call.name)
        entry = Entry(role="tool", wire=wire.name, native=native, at=now(), mark="error" if failed else "")
        return self._answer_calls([entry])

    def open_calls(self) -> tuple[ToolCallView, ...]:
        return find_open_calls(self.transcript, self.answer)

    def checkpoint(self) -> Draft:
        return msgspec.structs.replace(self, transcript=self.transcript.revise())

    def abandon(self, calls: Sequence[ToolCallView]) -> Draft:
        """Return the draft with results for calls of an earlier run.

        They say that the outcome is unknown or, if a call has waited for the caller, that it was not run.
        """
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
        """Return the draft of the turn ended now. Ending it twice changes nothing.

        Calls that a complete turn leaves open wait for the caller.
        """
        if not self.running:
            return self
        draft = self
        if self.pieces is not None:
            draft = draft.cut_stream(Replay(self).answer())
        if self.tail < 0:
            draft = draft.abandon(draft.open_calls()).add_message()
        wire = find_answer_wire(draft.transcript, self.wire)
        open_calls = draft.open_calls()
        if status != "complete":
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
        """Return the draft with the partial answer of a stream that ends here."""
        draft = self if answer.native is None and not answer.usage else self.add_answer(answer)
        return msgspec.structs.replace(draft, pieces=None)

    def _add(self, turn: Turn, entries: Sequence[Entry]) -> Transcript:
        return self.transcript.append_to_turn(turn.id, add_token_counts(entries, self.counter)).add(turn=turn)

    def _answer_calls(self, results: Sequence[Entry]) -> Draft:
        """Return the draft with results added to the turn of their calls, even if that is an earlier one."""
        if not results:
            return self
        transcript = self.transcript
        results = add_token_counts(results, self.counter)
        return msgspec.structs.replace(self, transcript=transcript.append_to_turn(transcript[-1].turn, results))


class Replay:
    """The answer so far of a stream. Each call of `answer` reads only the new events."""

    def __init__(self, draft: Draft) -> None:
        self.pieces = draft.pieces or []
        self._accumulator = draft.wire.new_accumulator()
        self._read = 0

    def answer(self) -> Answer:
        """Return the answer so far, as an interrupted one."""
        new = self.pieces[self._read :]
        self._read += len(new)
        for data in new:
            # What can't be understood ended the turn, or will.
            with contextlib.suppress(ValueError):
                self._accumulator.feed(data)
        self._accumulator.deltas.new.clear()
        return self._accumulator.answer(interrupted=True)


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
) -> Draft:
    """Return the draft of a turn on this transcript.

    Without a message, an interrupted turn continues; with a message, it is marked as interrupted. Tool results that the
    caller sends are in the transcript from the beginning.
    """
    last = transcript.turns[-1] if transcript.turns else None
    if not message and not _awaits_answer(transcript):
        raise InputError("There is nothing to answer: None goes on with a turn that was cut off, or after a note.")
    if last is not None and last.status == "running":
        if not message:
            last = last if last.model == model else name_models(last)
            turn = msgspec.structs.replace(last, model=model, preamble=preamble)
            transcript = transcript.add(turn=turn)
            # What another model has reported is not to be paid for at this one's prices.
            prices = None if last.usage and last.model != model else prices
            return Draft(
                wire=wire, transcript=transcript, turn=turn, instruction=instruction, counter=counter, prices=prices
            )
        transcript = mark_interrupted(transcript)
    turn = Turn(id=new_id(), status="running", model=model, started=now(), preamble=preamble)
    if message and message[0].role == "tool":
        transcript = transcript.append_to_turn(turn.id, add_token_counts(message, counter)).add(turn=turn)
        message = ()
    return Draft(
        wire=wire,
        transcript=transcript,
        turn=turn,
        message=tuple(message),
        instruction=instruction,
        counter=counter,
        prices=prices,
    )


def _awaits_answer(transcript: Transcript) -> bool:
    """Return True if the model has something to answer, or a turn to continue."""
    running = bool(transcript.turns) and transcript.turns[-1].status == "running"
    calls = find_open_calls(transcript)
    return len(transcript) > 0 and (transcript[-1].role != "assistant" or bool(calls) or running)


def mark_interrupted(transcript: Transcript) -> Transcript:
    """Return the transcript with its last turn, which was left running, marked as interrupted."""
    last = transcript.turns[-1]
    ended = transcript[-1].at if len(transcript) else last.started
    return transcript.add(turn=msgspec.structs.replace(last, status="interrupted", finish="interrupted", ended=ended))


def add_event(transcript: Transcript, event: Entry, wire: Wire, counter: Counter) -> Transcript:
    """Return the transcript with an event added, after closing open calls and a turn that was left running."""
    if calls := find_open_calls(transcript):
        wire = find_answer_wire(transcript, wire)
        closings = [make_closing_result(wire, call.id, UNKNOWN, at=now(), name=call.name) for call in calls]
        transcript = transcript.append_to_turn(transcript[-1].turn, add_token_counts(closings, counter))
    if transcript.turns and transcript.turns[-1].status == "running":
        transcript = mark_interrupted(transcript)
    return transcript.append_to_turn(new_id(), add_token_counts([event], counter)).revise()


def add_token_counts(entries: Sequence[Entry], counter: Counter) -> list[Entry]:
    """Return the entries with their numbers of tokens."""
    return [msgspec.structs.replace(entry, tokens=count_message(_render_counted(entry), counter)) for entry in entries]


def _render_counted(entry: Entry) -> bytes:
    """Return the bytes of an entry that are sent and so counted: only the answer of what an agent printed."""
    wire = WIRES.get(entry.wire)
    return entry.native if wire is None or wire.reports_request_size else wire.render(entry, Quirks()) or b"{}"
