"""What memory adds to the requests of a turn: new lines, recalled text, a request for a card, and its tool."""

from __future__ import annotations

import msgspec

from longtalk.context.epochs import Epoch
from longtalk.context.measure import Terms
from longtalk.context.planning import Plan
from longtalk.context.recipient import Recipient
from longtalk.context.suffixes import TurnSuffix, list_kept_suffixes
from longtalk.memory.brief.record import CaptureMode, CardKind, read_brief_record
from longtalk.memory.cards import capture
from longtalk.memory.head import render_unsent_app_lines
from longtalk.memory.profile.lines import read_turn_profile, render_unsent_lines
from longtalk.memory.recall.config import Recalled
from longtalk.policies.base import BriefKeeper, get_profile, make_card_config
from longtalk.transcript.transcript import Transcript
from longtalk.wires.protocol import Preamble
from longtalk.wires.text import wrap_in_tag


class TurnAdditions(msgspec.Struct, frozen=True):
    """The texts that memory adds to the requests of a turn."""

    fresh: str = ""
    """Lines that the app has added to the brief and that no request contains yet."""
    request: str = ""
    """The text that asks for a memory card."""
    card: CardKind = ""
    """The kind of card that is requested; "" for none."""
    in_system: bool = False
    """Whether the card is requested in the system text."""
    card_received: bool = False
    """Whether the model sent a card in this turn."""
    recalled: Recalled = Recalled()
    profile: str = ""
    """Lines of the owner's profile that the head of the epoch lacks."""

    @property
    def data(self) -> str:
        """The text that follows the message as data, not as an instruction."""
        found = "" if self.recalled.is_foreign else self._wrap_recalled()
        return "\n".join(part for part in (found, self.fresh) if part)

    @property
    def foreign(self) -> str:
        """The part of the data that comes from other conversations."""
        found = self._wrap_recalled() if self.recalled.is_foreign else ""
        return "\n".join(part for part in (self.profile, found) if part)

    def _wrap_recalled(self) -> str:
        return wrap_in_tag("recalled", self.recalled.text) if self.recalled.text else ""

    def make_suffix(self, transcript: Transcript, tail: int, instruction: str | None) -> TurnSuffix | None:
        """Return what follows the first `tail` entries in the requests of this turn only; None if nothing does."""
        if self is NO_ADDITIONS and not instruction:
            return None
        asks = "" if self.in_system else self.request
        position = transcript.position(tail - 1) + 1
        text = "\n\n".join(part for part in (asks, instruction) if part)
        suffix = TurnSuffix(text, position, data=self.data, asks=len(asks), foreign=self.foreign)
        return suffix if suffix.text or suffix.all_data else None

    def remove_texts(self) -> TurnAdditions:
        """Return the additions without any text, for requests from which it was left out."""
        card: CardKind = self.card if self.card_received else ""
        return TurnAdditions(card=card, in_system=self.in_system, card_received=self.card_received)


NO_ADDITIONS = TurnAdditions()


def choose_additions(
    transcript: Transcript, keeper: BriefKeeper, plan: Plan, terms: Terms, recipient: Recipient
) -> TurnAdditions:
    """Return what memory adds to the requests of a turn that begins, except for recalled text."""
    asks, card, mode = "", plan.card, choose_capture_mode(keeper, plan.epoch, recipient)
    if recipient.cards == "none" or (recipient.cards == "answer" and recipient.answers_json and mode == "sentinel"):
        card = ""
    if card and recipient.cards == "answer":
        asks = capture.render_card_request(
            make_card_config(keeper),
            mode,
            catch_up=card == "catch_up",
            instruction=keeper.instruction,
            example=keeper.example,
        )
    sent_data = [suffix.data for suffix in list_kept_suffixes(transcript, plan.epoch.current)]
    fresh = render_unsent_app_lines(
        read_brief_record(transcript), keeper.brief, terms.counter, plan.epoch.summary, sent_data
    )
    profile = ""
    # A provider that keeps what it is sent would keep these lines after they are deleted.
    if get_profile(keeper) is not None and not recipient.keeps_conversation:
        profile = render_unsent_lines(read_turn_profile(transcript), plan.epoch.summary)
    return TurnAdditions(fresh=fresh, request=asks, card=card, in_system=recipient.keeps_conversation, profile=profile)


def choose_capture_mode(keeper: BriefKeeper | None, epoch: Epoch, recipient: Recipient) -> CaptureMode:
    """Return how the model reports lines for the brief in an epoch: in cards, or by tool calls."""
    mode = epoch.way or (keeper.capture if keeper else "")
    return "tool" if mode == "tool" and recipient.calls_tools else "sentinel"


def extend_preamble(
    recipient: Recipient, keeper: BriefKeeper | None, epoch: Epoch, added: TurnAdditions | None
) -> Preamble:
    """Return the recipient's preamble with memory's tool and its request for a card, if they belong there."""
    preamble = recipient.preamble
    if keeper is None:
        return preamble
    if choose_capture_mode(keeper, epoch, recipient) == "tool":
        tools = (*preamble.tools, capture.make_memory_tool(make_card_config(keeper)))
        preamble = msgspec.structs.replace(preamble, tools=tools)
    if added and added.in_system and added.request:
        system = f"{preamble.system}\n\n{added.request}" if preamble.system else added.request
        preamble = msgspec.structs.replace(preamble, system=system)
    return preamble
