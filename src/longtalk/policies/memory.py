"""`Memory`: requests of bounded length that begin with a brief of everything older.

A short conversation is sent as a whole. Resending it costs money with each request. When that has cost about as much as
a new epoch would, that is, a fresh start with a shorter request, the model is asked to add a memory card to its next
answer. The card updates the brief, and the brief then replaces all but the last exchanges. If two requests for a card
fail, a summary is requested instead. Above `limit` a new epoch begins in any case; exchanges that no card covers are
then represented by outlines.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from longtalk.errors import InputError
from longtalk.memory.brief.corrections import list_corrected_ids, make_correction_finder
from longtalk.memory.brief.lines import parse_brief_lines, render_brief
from longtalk.memory.brief.record import MAX_FAILED_REQUESTS, BriefRecord, CaptureMode, CardKind, read_brief_record
from longtalk.memory.brief.schema import Brief, check_whole_number
from longtalk.memory.cards.capture import check_example, render_card_request
from longtalk.memory.head import build_head, render_unsent_app_lines
from longtalk.memory.profile.config import Profile, add_profile_fields
from longtalk.memory.profile.lines import TurnProfile, read_turn_profile
from longtalk.memory.promotion import Promoted, extract_promoted, render_promoted
from longtalk.memory.recall.config import Recall
from longtalk.memory.summary import Summary, SummaryRequest
from longtalk.policies.base import Compactor
from longtalk.policies.economy import MAX_WINDOW_SHARE
from longtalk.policies.history_limits import BriefPays, HistoryFull, OverHistory
from longtalk.policies.limits import AnyOf, OverWindow
from longtalk.policies.stale_cards import read_card_line_ids
from longtalk.policies.summarize import SUMMARY_TOKENS
from longtalk.policies.view import Block, View, count_recent
from longtalk.tokens import Counter, count_message
from longtalk.transcript.pack import ANSWERS
from longtalk.transcript.transcript import Transcript

CARD_REQUEST_TOKENS = 100
"""The length in tokens that a card request may have before the outlines are shortened to make room for it."""
_PROMOTED_SHARE = 4
"""Which part of the tokens for recall may be used for passages that stand in the head: one in this number."""
_MAX_TOKENS = 10**7
_TIMEOUT = 60.0


class Memory(msgspec.Struct, frozen=True):
    """A policy that replaces older exchanges with a brief, and quotes parts of them again when a message needs them.

    All sizes are in tokens. `limit` is the maximum length of a request, not counting the preamble, the recalled text,
    the request for a card and the current exchange. The other sizes are maximums too: `recent` for the last exchanges
    that a new epoch keeps unchanged, `outline` for the outlines of the exchanges that were just replaced, and `recall`
    for the recalled text.
    """

    brief: Brief = Brief()
    outline: int = 100
    recent: int = 1_500
    recall: int | Recall = Recall()
    limit: int = 12_000
    capture: CaptureMode = "sentinel"
    """How the model reports what to keep: "sentinel" (in a hidden card after its answer) or "tool" (by a tool call)."""
    instruction: str = ""
    """The text that asks the model for lines for the brief, in place of the default text.

    In this text, `{scope}` is replaced with a description of what the lines should cover: this turn, or everything that
    the brief lacks. A description of the card's format always follows.
    """
    example: str = ""
    """A memory card, as JSON, that shows the model what good notes look like, in place of the default placeholders.

    What it says never enters the brief, even if the model repeats it.
    """
    profile: Profile | None = None
    """What the model notes about the user, to be sent in all conversations of the owner; None to keep no profile."""

    def __repr__(self) -> str:
        # Stored epochs contain a digest of this text. With default values, the text is the same as before these
        # options existed.
        text = super().__repr__()
        for default in (", instruction=''", ", example=''", ", profile=None"):
            text = text.replace(default, "")
        return text

    def __post_init__(self) -> None:
        if not isinstance(self.brief, Brief):
            raise InputError(f"`brief` of Memory must be a Brief(…), not {self.brief!r}.{_suggest_limit(self.brief)}")
        if not isinstance(self.recall, Recall):
            check_whole_number(self.recall, "`recall` of Memory, in tokens,", 0, _MAX_TOKENS)
            msgspec.structs.force_setattr(self, "recall", Recall(self.recall))
        for name in ("outline", "recent", "limit"):
            check_whole_number(getattr(self, name), f"`{name}` of Memory, in tokens,", 0, _MAX_TOKENS)
        if self.capture not in ("sentinel", "tool"):
            raise InputError(f"`capture` must be 'sentinel' or 'tool', not {self.capture!r}.")
        if not isinstance(self.instruction, str):
            raise InputError(f"`instruction` of Memory must be a string, not {type(self.instruction).__name__}.")
        if self.profile is not None and not isinstance(self.profile, Profile):
            raise InputError(f"`profile` of Memory must be a Profile(…) or None, not {self.profile!r}.")
        check_example(self.example, add_profile_fields(self.brief, self.profile))

    @property
    def recalls(self) -> Recall:
        """The configuration of recall. It is a `Recall` even if the caller gave a number of tokens."""
        return self.recall if isinstance(self.recall, Recall) else Recall(self.recall)

    @property
    def length(self) -> int:
        """The maximum length of a request's head in tokens, not counting a summary that replaces a missing card."""
        profile = 0 if self.profile is None else self.profile.budget
        return self.brief.budget + self.outline + profile

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        strategy, to = CompactToBrief(self), HistoryFull(max(0, self.limit - self.length), self.limit)
        triggers = (BriefPays(self.recent, self.length), OverHistory(self.limit), OverWindow(MAX_WINDOW_SHARE))
        return tuple(Compactor(trigger, (strategy,), to) for trigger in triggers)


def _suggest_limit(brief: object) -> str:
    return f" For a limit in tokens, write Memory(limit={brief})." if type(brief) is int else ""


class CompactToBrief(msgspec.Struct, frozen=True):
    """The strategy of `Memory`: it replaces all but the last exchanges with the brief."""

    config: Memory
    background = False

    @property
    def brief(self) -> Brief:
        """The configuration of the brief."""
        return self.config.brief

    @property
    def recalls(self) -> Recall:
        """The configuration of recall."""
        return self.config.recalls

    @property
    def profile(self) -> Profile | None:
        """The configuration of the owner's profile; None if the policy keeps none."""
        return self.config.profile

    @property
    def capture(self) -> CaptureMode:
        """How the model reports lines for the brief: in a card, or by a tool call."""
        return self.config.capture

    @property
    def instruction(self) -> str:
        """The text that asks the model for lines for the brief; empty for the default text."""
        return self.config.instruction

    @property
    def example(self) -> str:
        """The memory card that the model is shown as an example; empty for the default one."""
        return self.config.example

    def apply(self, view: View, limits: Compactor) -> View:
        droppable = view.droppable_blocks
        count = len(droppable) - self._count_recent(view, droppable)
        saves = getattr(limits.over, "compares_costs", False)
        if not count and droppable and not saves and limits.over.fires(view):
            # A limit must hold, even if fewer recent exchanges are kept than configured.
            count = 1
        if not count:
            return view
        record = read_brief_record(view.transcript)
        stop = droppable[count - 1].stop
        substitute = _find_substitute_summary(view, record, self.config)
        if saves and max(record.covers, substitute.stop if substitute else 0) < stop:
            # These exchanges are covered by neither a card nor a summary, and there is room to send them once more.
            if view.may_summarize != "before":
                return msgspec.structs.replace(view, compaction_pays=False)
            request = SummaryRequest(stop=stop, length=SUMMARY_TOKENS, timeout=_TIMEOUT)
            return msgspec.structs.replace(view, summary_request=request)
        limit = OverHistory(self.config.limit) if saves else AnyOf(OverHistory(self.config.limit), limits.over)
        shorter = self._replace_with_head(view, record, droppable[:count], substitute)
        while count < len(droppable) and limit.fires(shorter):
            count += 1
            shorter = self._replace_with_head(view, record, droppable[:count], substitute)
        return shorter

    def needs_new_head(
        self,
        head: Summary | None,
        transcript: Transcript,
        counter: Counter,
        other_texts: Sequence[str] = (),
        *,
        leaves_out: bool = False,
    ) -> bool:
        """Return True if the request needs a new head because the present one lacks lines or has outdated ones.

        `head` is the present head, or None if there is none. `other_texts` were sent next to earlier messages and stay
        in the request; they are checked too, because they may contain a line that the app has removed. `leaves_out`
        says that the request leaves out older exchanges.
        """
        record, brief = read_brief_record(transcript), self.config.brief
        is_new = not any(entry.role in ANSWERS for entry in transcript)
        if self._has_other_profile(head, transcript, is_new=is_new):
            return True
        if head is not None:
            unsent = render_unsent_app_lines(record, brief, counter, head, other_texts) if record.content.lines else ""
            more = counter.count(unsent)
            return head.is_brief and (head.edition != record.edition or (more > 0 and head.brief + more > brief.budget))
        sent, present = parse_brief_lines(other_texts), parse_brief_lines([render_brief(record.content, brief)])
        if record.edition and not sent <= present:
            return True
        revoked = frozenset(record.content.revoked)
        if revoked and any(revoked & ids for ids in read_card_line_ids([*transcript])):
            return True
        # Without a head, only the brief can represent the exchanges that are left out here or were handed to the
        # caller. Before the first answer, a new head invalidates no cache.
        gone = leaves_out or transcript.shed.number > 0
        return bool(record.content.lines) and (gone or is_new)

    def _has_other_profile(self, head: Summary | None, transcript: Transcript, *, is_new: bool) -> bool:
        """Return True if the head has lines of a profile that may not be sent any more.

        Before the first answer, which `is_new` says, a new head invalidates no cache, so it is also wanted for lines
        that the head lacks.
        """
        if self.config.profile is None:
            return False
        sent, present = set(head.profile if head else ()), set(read_turn_profile(transcript).digests)
        return not sent <= present or (is_new and sent != present)

    def with_current_brief(self, view: View) -> View:
        """Return the view with a head that contains the current brief.

        All exchanges are kept, besides those whose memory cards state a line that was forgotten. Pinned ones are kept
        without these cards.
        """
        record = read_brief_record(view.transcript)
        dropped = self._find_revoked_blocks(view, record)
        head = build_head(
            record,
            self.config.brief,
            view.counter,
            view.wire,
            previous=view.summary,
            dropped=[(block.first, block.stop) for block in dropped],
            exchanges={},
            outline_budget=0,
            substitute=_find_substitute_summary(view, record, self.config),
            keep_outlines=True,
            profile=self._read_profile(view),
            promoted=_keep_promoted(view.summary, record),
        )
        return view.replace_blocks(dropped, head) if dropped else msgspec.structs.replace(view, summary=head)

    def choose_card(self, record: BriefRecord, *, near: bool, history: int, raw: int, current: int) -> CardKind:
        """Return which card to request with the next call: "" (none), "small" or "catch_up".

        A card is requested if a new epoch will soon save money (`near`), or if `history`, the number of tokens that
        precede the current exchange, reaches 90 % of the limit, but not after too many failed requests. Exchanges are
        sent unchanged from position `raw` on, and the current one begins at position `current`. If no card covers all
        exchanges in between, a "catch_up" card is requested.
        """
        soon = near or history >= self.config.limit * 9 // 10
        if not soon or (self.config.limit and record.count_asks_since(raw) >= MAX_FAILED_REQUESTS):
            return ""
        return "catch_up" if max(raw, record.covers) < current else "small"

    def _find_revoked_blocks(self, view: View, record: BriefRecord) -> list[Block]:
        """Return the droppable exchanges whose card states a forgotten line; all others stay in the request.

        One whose card states a line that was corrected is sent without the card, so that it need not be left out.
        """
        forgotten = frozenset(record.content.revoked) - list_corrected_ids(record.corrections)
        return [block for block in view.droppable_blocks if _states(view, block, forgotten)]

    def _count_recent(self, view: View, droppable: Sequence[Block]) -> int:
        lengths = [round(view.scale * block.tokens) for block in droppable]
        return count_recent(lengths, min(self.config.recent, self.config.limit), whole=self.config.recent)

    def _replace_with_head(
        self, view: View, record: BriefRecord, dropped: Sequence[Block], substitute: Summary | None
    ) -> View:
        """Return the view with a head of brief and outlines in place of these exchanges.

        The dropped exchanges that no card or summary covers are outlined; if there are none, the last dropped one is.
        """
        config = self.config
        covered = max(record.covers, substitute.stop if substitute else 0)
        uncovered = [block for block in dropped if block.stop > covered]
        budget = max(config.outline, config.limit // 20) if uncovered and config.outline else config.outline
        outlined = uncovered or dropped[-1:]
        head = build_head(
            record,
            config.brief,
            view.counter,
            view.wire,
            previous=view.summary,
            dropped=[(block.first, block.stop) for block in dropped],
            exchanges={
                (block.first, block.stop): [view.get_entry(i) for i in range(block.first, block.stop)]
                for block in outlined
            },
            outline_budget=budget - min(budget // 2, self._count_excess(view)),
            substitute=substitute,
            profile=self._read_profile(view),
            promoted=self._promote(view, record),
        )
        return view.replace_blocks(dropped, head)

    def _promote(self, view: View, record: BriefRecord) -> Promoted:
        """Return what was recalled so often that the next head quotes it, within a quarter of what recall may use."""
        spare = self.config.limit - self.config.length - CARD_REQUEST_TOKENS
        budget = min(self.recalls.budget, spare) // _PROMOTED_SHARE
        sent = [(block.first, block.stop) for block in view.blocks]
        gone = [each for each in view.passages if not any(first <= each.position < stop for first, stop in sent)]
        find_correction = make_correction_finder(record.corrections)
        gone = [each for each in gone if find_correction(each.text) is None]
        return render_promoted(gone, budget, view.counter) if gone and budget > 0 else Promoted()

    def _read_profile(self, view: View) -> TurnProfile:
        return TurnProfile() if self.config.profile is None else read_turn_profile(view.transcript)

    def _count_excess(self, view: View) -> int:
        """Return the number of tokens by which a full head and a card request together exceed the limit.

        The outlines are shortened by this number. A `limit` that is too small for a head and `CARD_REQUEST_TOKENS` is
        treated as if it were just large enough.
        """
        config = self.config
        request = view.wire.write_instruction(
            render_card_request(
                add_profile_fields(config.brief, config.profile),
                "sentinel",
                catch_up=True,
                instruction=config.instruction,
                example=config.example,
            )
        )
        limit = max(config.limit, config.length + CARD_REQUEST_TOKENS)
        return max(0, config.length + count_message(request, view.counter) - limit)


def _keep_promoted(head: Summary | None, record: BriefRecord) -> Promoted:
    """Return what a head quotes because it was recalled so often, for a new head of the same exchanges.

    What the app has corrected or had forgotten may be among it, so that it is left to recall then.
    """
    if head is None or not head.promoted or record.corrections:
        return Promoted()
    return Promoted(extract_promoted(head.text), head.recalled, head.promoted)


def _states(view: View, block: Block, ids: frozenset[str]) -> bool:
    """Return True if a memory card in an exchange states one of these lines."""
    if not ids:
        return False
    entries = [view.get_entry(position) for position in range(block.first, block.stop)]
    return any(ids & found for found in read_card_line_ids(entries))


def _find_substitute_summary(view: View, record: BriefRecord, config: Memory) -> Summary | None:
    """Return the latest summary, to be used in place of a missing card, or None if there is no useful one.

    A summary is useful if it covers more than the cards do and, together with the rest of the head, fits the limit.
    """
    summary = view.latest_summary
    return (
        summary if summary and summary.stop > record.covers and summary.tokens + config.length <= config.limit else None
    )
