"""Prepare the next request of a conversation: the only way from a transcript to what is sent.

`prepare` decides, and `Prepared.compose` renders. Both are pure. Turns, simulations and the policy checker all use
them, so a simulation computes exactly what a turn would send. Between the two steps, a turn does what takes time: it
has a summary written, asks the provider for its session, and searches the history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from longtalk.context.additions import NO_ADDITIONS, TurnAdditions, choose_additions, extend_preamble
from longtalk.context.compose import Context, compose
from longtalk.context.costs import compute_ratios
from longtalk.context.epochs import Epoch, NotRecalled, find_epoch
from longtalk.context.measure import Terms
from longtalk.context.planning import Plan, apply_plan, make_plan
from longtalk.context.recipient import Recipient
from longtalk.context.suffixes import find_kept_suffix, list_kept_suffixes, withhold_foreign
from longtalk.context.token_limit import find_token_limit
from longtalk.memory.brief.record import read_brief_record
from longtalk.memory.cards import capture
from longtalk.memory.profile.lines import with_turn_profile
from longtalk.memory.recall.config import Recall, Recalled
from longtalk.memory.recall.gain import Allowance
from longtalk.memory.summary import SummaryRequest, render_summary_prompt
from longtalk.policies.base import BriefKeeper, Policy, read_rules
from longtalk.tokens import count_message, count_preamble
from longtalk.transcript.passages import KIND as PASSAGES
from longtalk.transcript.passages import RecalledPassages
from longtalk.transcript.transcript import Transcript
from longtalk.wires import text_if_readable
from longtalk.wires.protocol import Handle, Preamble, Wire

if TYPE_CHECKING:
    from longtalk.memory.recall.index import RecallIndex

MAX_QUERY = 4_000
"""The number of characters of a message that are used to search the history."""
_FRAME_TOKENS = 30
"""The approximate number of tokens of the tags around the text that memory adds."""


class Prepared(msgspec.Struct, frozen=True):
    """The next request: decided, but not rendered yet."""

    transcript: Transcript
    """The transcript with the plan's epoch recorded."""
    plan: Plan
    terms: Terms
    recipient: Recipient
    keeper: BriefKeeper | None
    tail: int
    """The number of entries up to the user's message. The instruction and memory's additions follow after them."""
    added: TurnAdditions
    is_new: bool
    """Whether the additions were chosen just now, so that the history should be searched."""
    limit: int | None = None
    """The number of tokens that the request may have with memory's additions; None if nothing limits it."""

    @property
    def preamble(self) -> Preamble:
        """The preamble, with memory's tool and its request for a card if they belong there."""
        if self.keeper is None:
            return self.recipient.preamble
        return extend_preamble(self.recipient, self.keeper, self.plan.epoch, self.added)

    @property
    def recalls(self) -> Recall | None:
        """The configuration for searching the history for the user's message; None if it should not be searched."""
        if not self.is_new or self.keeper is None or self.recipient.keeps_conversation:
            return None
        return self.keeper.recalls if self.keeper.recalls.budget and self.message.strip() else None

    @property
    def message(self) -> str:
        """The text of the user's message in this turn."""
        said = [self.transcript[i] for i in range(find_message_start(self.transcript, self.tail), self.tail)]
        return "\n".join(text_if_readable(entry) for entry in said if entry.role == "user")[:MAX_QUERY]

    def render_recalled(self, index: RecallIndex) -> Recalled:
        """Return the parts of the indexed history that the message needs, as far as their price and length allow."""
        from longtalk.memory.recall.search import render_recalled

        if self.keeper is None:
            return Recalled()
        epoch = self.plan.epoch
        return render_recalled(
            index,
            self.message,
            self.keeper.recalls,
            self.terms.counter,
            now=self.terms.now,
            exclude=NotRecalled(epoch, self.transcript.size),
            sent="\n".join(suffix.data for suffix in list_kept_suffixes(self.transcript, epoch.current)),
            standing=() if epoch.summary is None else epoch.summary.promoted,
            allowed=self._allow_recall(),
            corrections=read_brief_record(self.transcript).corrections,
        )

    def _allow_recall(self) -> Allowance:
        """Return what this request allows recall to use: its room, its credit, and the price of an answer."""
        terms, plan, added = self.terms, self.plan, self.added
        room = min((each for each in (self.limit, terms.room) if each is not None), default=None)
        if room is not None:
            more = terms.counter.count(added.request + added.fresh + added.profile)
            room -= plan.tokens + more + _FRAME_TOKENS
        ratios = compute_ratios(terms.prices, plan.tokens, caches=terms.caches)
        credit = None
        if plan.meter is not None:
            gone = sum(run.tokens for run in plan.epoch.runs)
            since = self.transcript.tokens(self.transcript.index_of(plan.epoch.start), len(self.transcript))
            credit = plan.meter.compute_credit(gone + since)
        return Allowance(room=room, credit=credit, output=ratios.output)

    def with_recalled(self, recalled: Recalled) -> Prepared:
        """Return the request with recalled text."""
        return msgspec.structs.replace(self, added=msgspec.structs.replace(self.added, recalled=recalled))

    def compose(self, *, held: int = 0, session_key: str = "", handle: Handle | None = None) -> Context:
        """Render the request. The provider already has the entries before position `held`."""
        terms, plan, added = self.terms, self.plan, self.added
        suffix = added.make_suffix(self.transcript, self.tail, self.recipient.instruction)
        context = compose(
            self.transcript,
            epoch=plan.epoch,
            wire=terms.wire,
            quirks=self.recipient.quirks,
            preamble=self.preamble,
            reader=self.recipient.reader,
            instruction=suffix.text if suffix is not None else None,
            tail=self.tail,
            held=held,
            data=suffix.all_data if suffix is not None else "",
            recalled=added.recalled if added.recalled.text else None,
        )
        more = self._count_added_tokens()
        return msgspec.structs.replace(
            context,
            brief=context.brief + (terms.counter.count(added.fresh) if added.fresh else 0),
            tokens=plan.tokens + more,
            counted=plan.counted + more,
            meter=plan.meter,
            passages=self._count_passages(),
            recall_why=added.recalled.why,
            session_key=session_key,
            handle=handle,
        )

    def _count_passages(self) -> RecalledPassages | None:
        """Return the passages that were recalled in this epoch, including this turn; None if these are not counted.

        Where nothing is read from a cache, the head of an epoch is no cheaper than recall.
        """
        meter, found = self.plan.meter, self.added.recalled.passages
        if not found or not self.is_new or meter is None or meter.ratios is None or meter.ratios.read >= 1:
            return None
        start = self.plan.epoch.start
        counted = self.transcript.records.read_latest(PASSAGES, RecalledPassages)
        if counted is None or counted.epoch != start:
            counted = RecalledPassages(start)
        return counted.add(found, meter.compute_promotion_turns(meter.ratios.write))

    def _count_added_tokens(self) -> int:
        """Return the tokens of what memory adds, or 0 if it is kept and so counted with the kept suffixes."""
        added = self.added
        if added is NO_ADDITIONS:
            return 0
        suffix = added.make_suffix(self.transcript, self.tail, None)
        if suffix is None or find_kept_suffix(self.transcript, self.tail) is not None:
            return 0
        return sum(count_message(piece, self.terms.counter) for piece in suffix.pieces(self.terms.wire))

    def _fit_additions(self) -> Prepared:
        """Return the request without the additions for which it has no room: recalled text, a card's request, lines."""
        prepared = self
        for part in ({"recalled": Recalled()}, {"request": "", "card": ""}, {"fresh": "", "profile": ""}):
            more = prepared._count_added_tokens()
            if not more or prepared.limit is None or prepared.plan.tokens + more <= prepared.limit:
                break
            prepared = msgspec.structs.replace(prepared, added=msgspec.structs.replace(prepared.added, **part))
        return prepared


def prepare(
    transcript: Transcript,
    policy: Policy,
    terms: Terms,
    recipient: Recipient,
    *,
    tail: int | None = None,
    added: TurnAdditions | None = None,
    settled: bool = False,
    may_ask: bool = False,
    forced: bool = False,
) -> Prepared:
    """Decide what the next request contains.

    `terms.fixed` counts the given preamble alone. `added` has the texts that memory added to earlier requests of this
    turn; None for the first request. `settled`, `may_ask` and `forced` mean the same as for `make_plan`: if the plan
    asks for a summary, have it written and prepare again.
    """
    tail = transcript.tail if tail is None else tail
    rules = read_rules(policy)
    keeper = rules.keeper
    epoch = find_epoch(transcript, rules.fingerprint)
    more = 0
    if keeper is not None:
        tools = extend_preamble(msgspec.structs.replace(recipient, preamble=Preamble()), keeper, epoch, None).tools
        more = count_preamble(None, tools, terms.counter)
    # An instruction that is kept is counted with the other kept suffixes.
    if recipient.instruction and find_kept_suffix(transcript, tail) is None:
        more += count_message(terms.wire.write_instruction(recipient.instruction), terms.counter)
    if more:
        terms = msgspec.structs.replace(terms, fixed=terms.fixed + more)
    plan = make_plan(transcript, rules, terms, settled=settled, may_ask=may_ask, forced=forced, present=epoch)
    if plan.begins:
        transcript = apply_plan(transcript, plan, terms)
    if plan.drops_additions and added is not None:
        added = added.remove_texts()
    is_new = False
    if keeper is not None and added is None and not settled and plan.summary_request is None:
        kept_suffix = find_kept_suffix(transcript, tail)
        # A turn that continues after a crash, or with tool results, has already chosen its additions.
        is_new = kept_suffix is None
        added = (
            choose_additions(transcript, keeper, plan, terms, recipient)
            if kept_suffix is None
            else TurnAdditions(
                card=capture.parse_card_request(kept_suffix.text),
                card_received=read_brief_record(transcript).covers >= kept_suffix.place,
            )
        )
    limit = find_token_limit(rules, terms) if keeper is not None else None
    prepared = Prepared(transcript, plan, terms, recipient, keeper, tail, added or NO_ADDITIONS, is_new, limit)
    return prepared._fit_additions()


def compose_summary_request(
    transcript: Transcript, epoch: Epoch, request: SummaryRequest, wire: Wire, recipient: Recipient
) -> tuple[Context, bytes]:
    """Return the context of a request for a summary of an epoch up to a position, and the prompt that follows it.

    The context is the beginning of the next request, so the provider reads it from its cache.
    """
    # A summary is stored, so it must not repeat what comes from other conversations.
    transcript = with_turn_profile(transcript, None)
    transcript = transcript.with_records(map(withhold_foreign, transcript.records))
    context = compose(
        transcript,
        epoch=epoch,
        wire=wire,
        quirks=recipient.quirks,
        preamble=recipient.preamble,
        reader=recipient.reader,
        instruction=None,
        tail=transcript.index_of(request.stop),
        until=request.stop,
    )
    return context, wire.write_user(render_summary_prompt(request.length))


def find_message_start(transcript: Transcript, tail: int) -> int:
    """Return the number of entries before the user's message, which ends after the first `tail` entries."""
    i = tail
    while i > 0 and transcript[i - 1].turn == transcript[tail - 1].turn:
        i -= 1
    return i
