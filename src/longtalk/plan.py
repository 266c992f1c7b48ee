"""When a new epoch begins, and what it keeps.

`plan` looks at how long the next request would be: a glance, which costs the same however long the conversation is. If
a limit of the policy or the model's window is exceeded, it makes a view of what is sent now, lets the policy's
compactors make a shorter one of it, and that is the new epoch. The same happens when something was pinned that is not
there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property

import msgspec

from longtalk import _json
from longtalk.epochs import Anchor, Epoch, Pin, current, fingerprint, joined, kept_asides, latest
from longtalk.errors import ContextOverflow, InputError, PinRefused
from longtalk.events import Notice
from longtalk.policies import Block, Compactor, CutCurrent, OverTokens, Policy, Run, View
from longtalk.policies.token_budget import within
from longtalk.policies.view import CUT, MIDDLE
from longtalk.tokens import Counter
from longtalk.transcript import Transcript
from longtalk.wires.base import Wire

UNKNOWN_WINDOW = 32_000
"""What a window is taken for while nobody knows it."""
_ROUNDS = 8
"""How often limits that undo each other's work are tried."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked, and what goes around the conversation."""

    wire: Wire
    counter: Counter
    model: str
    preamble: str
    """A digest of it, as `Turn.preamble`."""
    fixed: int
    """Tokens of preamble and instruction, as counted."""
    window: int | None
    """The model's window, if anybody knows it."""
    answer: int
    """Tokens to keep free for the answer."""

    @property
    def room(self) -> int | None:
        """What is left of a known window for the request."""
        return self.window and max(self.window - self.answer, self.window // 2, 1)


class Plan(msgspec.Struct, frozen=True):
    """The epoch that the next request belongs to."""

    epoch: Epoch
    begins: bool
    counted: int
    """How long the request will be, as counted."""
    tokens: int
    """How long it will be, by what was reported."""
    notices: tuple[Notice, ...] = ()


class _Glance:
    """How long the next request is in the present epoch, told without looking at what it has gathered."""

    def __init__(self, transcript: Transcript, epoch: Epoch, terms: Terms) -> None:
        self._transcript = transcript
        self._epoch = epoch
        since = transcript.here(epoch.start)
        self.messages = epoch.messages + len(transcript) - since
        self.counted = terms.fixed + epoch.tokens + transcript.tokens(since, len(transcript))
        self.counted += _staying(transcript, epoch.current)
        self.tokens = self.counted
        self._window = terms.window or UNKNOWN_WINDOW
        self.guessed = False
        """Whether somebody asked for the window."""
        anchor = latest(transcript, "anchor", Anchor)
        if anchor is None or anchor.model != terms.model:
            return
        if anchor.refused and anchor.counted > 0 and not anchor.is_plausible:
            self.tokens = self.counted * min(anchor.reported, 10**12) // anchor.counted
        elif anchor.is_plausible:
            scale = anchor.scale
            self.tokens = round(scale * self.counted)
            if (anchor.epoch, anchor.preamble) == (epoch.start, terms.preamble):
                self.tokens = max(1, round(anchor.reported + scale * (self.counted - anchor.counted)))

    @property
    def window(self) -> int:
        self.guessed = True
        return self._window

    @cached_property
    def exchanges(self) -> int:
        since = self._transcript.exchanges(self._transcript.here(self._epoch.current))
        return self._epoch.exchanges - 1 + len(since)


def plan(transcript: Transcript, policy: Policy, terms: Terms, *, settled: bool = False) -> Plan:
    """The present epoch, or a new one if a limit is exceeded or something was pinned that is not there.

    When the last exchange is `settled`, it is not cut: the next turn may leave it out whole.
    """
    epoch = current(transcript, fingerprint(policy))
    compactors = _compactors(policy, terms, settled=settled)
    glance = _Glance(transcript, epoch, terms)
    fired = next((each for each in compactors if each.over.fires(glance)), None)
    pins = pinned(transcript)
    if fired is None and all_there(epoch, pins):
        return Plan(epoch, False, glance.counted, glance.tokens)
    return _begin(transcript, epoch, glance, compactors, terms, pins, fired, settled=settled)


class _Full(OverTokens, frozen=True):
    """Fires when the model's window has no room for an answer."""

    def __str__(self) -> str:
        return "more than fits into the window"


def _compactors(policy: Policy, terms: Terms, *, settled: bool = False) -> list[Compactor]:
    """The policy's own, and the model's window, which no policy can do without."""
    found = [*policy.compactors]
    if terms.room is not None:
        found.append(within(_Full(terms.room), OverTokens(max(1, terms.room // 2))))
    if settled:
        kept = [(each, [s for s in each.strategies if not isinstance(s, CutCurrent)]) for each in found]
        return [Compactor(each.over, tuple(strategies), each.to) for each, strategies in kept if strategies]
    return found


def _begin(
    transcript: Transcript,
    epoch: Epoch,
    glance: _Glance,
    compactors: list[Compactor],
    terms: Terms,
    pins: tuple[int, ...],
    fired: Compactor | None,
    *,
    settled: bool,
) -> Plan:
    """A new epoch; the present one if the compactors find nothing to do. Says what they did that nobody asked for."""
    reason = "an entry was pinned" if fired is None else str(fired.over)
    whole = _view(transcript, epoch, glance, terms, pins)
    view = _compacted(whole, compactors)
    _check_kept(whole, view)
    notices = []
    if any(block.pinned for block in view.blocks[:-1]) and any(each.over.fires(view) for each in compactors):
        # Whoever pinned them had other limits in mind.
        loose = [msgspec.structs.replace(block, pinned=False) for block in view.blocks]
        view = _compacted(view.with_blocks(loose), compactors)
        notices.append(
            Notice("pins_left_out", f"Not all that is pinned fits any more ({reason}): the oldest is left out.")
        )
    if terms.window is not None and view.tokens > terms.window and not settled:
        error = ContextOverflow(
            f"The request is longer than {terms.model} takes: about {view.tokens:,} tokens{_fixed(view)}, and the "
            f"window has {terms.window:,}. Nothing more can be left out: send less."
        )
        error.window, error.tokens = terms.window, view.tokens
        raise error
    if len(view.blocks) == 1 and not settled:
        over = [str(each.over) for each in compactors if each.over.fires(view)]
        if over:
            text = (
                f"With the current exchange alone the request is {' and '.join(over)}{_fixed(view)}: it is sent whole."
            )
            notices.append(Notice("over_limit", text))
    # Instructions that had to stay go with their epoch: a new one is shorter also when it keeps all exchanges.
    stale = _staying(transcript, epoch.current) - _staying(transcript, _last(transcript, epoch))
    if (view.blocks, tuple(view.lines)) == (whole.blocks, epoch.lines) and all_there(epoch, pins) and not stale:
        return Plan(epoch, False, glance.counted, glance.tokens, tuple(notices))
    begun = _epoch(view, epoch, reason, pins)
    gone = len(whole.blocks) - len(view.blocks)
    if gone and fired is not None and isinstance(fired.over, _Full):
        text = f"The conversation has outgrown the window of {terms.window:,} tokens"
        notices.append(Notice("window", f"{text}: {_are(gone, 'more exchange')} left out from now on."))
    if glance.guessed and terms.window is None:
        text = (
            f"Nobody knows the window of {terms.model}: {UNKNOWN_WINDOW:,} tokens are assumed. Chat(window=…) says it."
        )
        notices.append(Notice("window_assumed", text))
    notices += _told(begun, whole.blocks[-1])
    return Plan(begun, True, view.counted, view.tokens, tuple(notices))


def _are(number: int, what: str) -> str:
    return f"{number:,} {what} is" if number == 1 else f"{number:,} {what}s are"


def _fixed(view: View) -> str:
    """How much of a request is not conversation, if that is worth saying."""
    fixed = round(view.scale * view.fixed)
    return f" ({fixed:,} tokens are system text, tools and instruction)" if fixed * 4 > view.tokens else ""


def _check_kept(whole: View, view: View) -> None:
    """Raise unless a view is made of whole exchanges, in order, the current one last: a strategy may do anything."""
    there = iter([(block.first, block.stop) for block in whole.blocks])
    kept = [(block.first, block.stop) for block in view.blocks]
    last = whole.blocks[-1]
    if not all(pair in there for pair in kept) or not kept or kept[-1] != (last.first, last.stop):
        raise InputError("A strategy of the policy gave back something else than exchanges of its view, in order.")


def _compacted(view: View, compactors: Sequence[Compactor]) -> View:
    """A view in which every limit holds, or nothing more can be done."""
    for _ in range(_ROUNDS):
        before = view
        for each in compactors:
            if each.over.fires(view):
                view = each.apply(view)
        if (view.blocks, tuple(view.lines)) == (before.blocks, tuple(before.lines)):
            break
    return view


def _view(transcript: Transcript, epoch: Epoch, glance: _Glance, terms: Terms, pins: tuple[int, ...]) -> View:
    """All that the present epoch sends, and what was pinned since."""
    view = View(
        transcript=transcript,
        wire=terms.wire,
        count=terms.counter.count,
        blocks=(),
        fixed=terms.fixed + _staying(transcript, _last(transcript, epoch)),
        scale=glance.tokens / max(1, glance.counted),
        window=terms.window or UNKNOWN_WINDOW,
        lines=epoch.lines,
        digests=bool(epoch.lines) or any(run.verdict == "summarised" for run in epoch.runs),
    )
    # What was pinned since may be anywhere.
    exchanges = transcript.exchanges(transcript.here(epoch.raw) if all_there(epoch, pins) else 0)
    places = [(transcript.place(first), transcript.place(stop - 1) + 1) for first, stop in exchanges]
    known = set(places)
    old = [pair for pair in epoch.pinned if pair not in known]
    stay, before = set(epoch.pinned), set(epoch.pins)
    new = [pin for pin in pins if pin not in before]
    shaped = [run for run in epoch.runs if _is_special(run)]
    starts = [run.first for run in shaped]
    blocks: list[Block] = []
    for first, stop in sorted([*old, *places]):
        is_pinned = _any_in(pins, first, stop)
        if first < epoch.raw and not is_pinned and (first, stop) not in stay:
            continue
        # What is pinned since goes whole from now on.
        is_new = _any_in(new, first, stop)
        inside = shaped[bisect_left(starts, first) : bisect_left(starts, stop)]
        special = [] if is_new else [run for run in inside if run.last < stop]
        blocks.append(view.block(first, stop, pinned=is_pinned, special=special))
    return view.with_blocks(blocks)


def _any_in(places: Sequence[int], first: int, stop: int) -> bool:
    """Whether one of these, in order, is from `first` on and before `stop`."""
    return bisect_left(places, first) < bisect_left(places, stop)


def _staying(transcript: Transcript, current: int) -> int:
    """Tokens of the instructions that stay behind this place."""
    return sum(max(0, aside.tokens) for aside in kept_asides(transcript, current))


def _last(transcript: Transcript, epoch: Epoch) -> int:
    """Where the current exchange begins."""
    exchanges = transcript.exchanges(transcript.here(epoch.current))
    return transcript.place(exchanges[-1][0]) if exchanges else epoch.current


def _epoch(view: View, before: Epoch, reason: str, pins: tuple[int, ...]) -> Epoch:
    """The epoch that sends a view, after another one."""
    # What was left out before may not be here any more, or not all of it.
    gone = [
        (run.first, max(0, run.tokens - view.tokens_of(run.first, run.last)))
        for run in before.runs
        if run.verdict == "left_out" and run.reason != MIDDLE
    ]
    runs: list[Run] = []
    place = 0
    for block in view.blocks:
        if place < block.first:
            tokens = sum(tokens for first, tokens in gone if place <= first < block.first)
            tokens += view.tokens_of(place, block.first - 1)
            runs.append(Run(place, block.first - 1, "left_out", reason, tokens=tokens))
        place = block.first
        for run in block.special:
            if place < run.first:
                runs.append(Run(place, run.first - 1, "sent", "kept", tokens=view.tokens_of(place, run.first - 1)))
            runs.append(run)
            place = run.last + 1
        if place < block.stop:
            runs.append(Run(place, block.stop - 1, "sent", "kept", tokens=view.tokens_of(place, block.stop - 1)))
        place = block.stop
    suffix = len(view.blocks) - 1
    while suffix > 0 and view.blocks[suffix - 1].stop == view.blocks[suffix].first:
        suffix -= 1
    return Epoch(
        policy=before.policy,
        start=view.transcript.size,
        reason=reason,
        runs=tuple(joined(runs)),
        lines=tuple(view.lines),
        raw=view.blocks[suffix].first,
        current=view.blocks[-1].first,
        exchanges=view.exchanges,
        messages=view.messages,
        tokens=view.counted - view.fixed,
        pinned=tuple((block.first, block.stop) for block in view.blocks[:suffix]),
        pins=pins,
    )


def _told(epoch: Epoch, before: Block) -> list[Notice]:
    """A notice if the new epoch shortens the current exchange, `before`: the caller did not ask for that."""
    runs = [run for run in epoch.runs if run.first >= epoch.current and run not in before.special]
    cut = [run for run in runs if run.reason == CUT]
    thinned = sum(run.last + 1 - run.first for run in runs if run.reason == MIDDLE)
    said = []
    if cut:
        said.append(f"{_are(len(cut), 'long text')} cut to head and tail")
    if thinned:
        said.append(f"{_are(thinned, 'event')} left out")
    return (
        [Notice("shortened", f"To fit, {' and '.join(said)} in the current exchange ({epoch.reason}).")] if said else []
    )


def _is_special(run: Run) -> bool:
    return run.keep > 0 or run.verdict == "summarised" or run.reason == MIDDLE


# Pins


def pin(transcript: Transcript, name: str, policy: Policy, terms: Terms) -> Transcript:
    """A transcript in which an entry is pinned, by its id or its turn's.

    The exchanges that are pinned must leave room: together they may take no more than what a cut leaves.
    """
    if not isinstance(name, str):
        raise InputError(f"What is pinned is named by the id of an entry or a turn, not by {type(name).__name__}.")
    found = next((i for i, entry in enumerate(transcript) if name in (entry.id, entry.turn)), None)
    if found is None:
        shed = " It may have left this state: `join` puts that back." if transcript.shed.number else ""
        raise InputError(
            f"There is no entry or turn {name!r} here: give the id of one of `reply.entries`, or `reply.id`.{shed}"
        )
    pin = Pin(transcript.place(found), transcript[found].id, transcript[found].turn)
    if pin in pins_of(transcript):
        return transcript
    pins = (*pins_of(transcript), pin)
    glance = _Glance(transcript, Epoch(""), terms)
    nothing = Epoch("", raw=transcript.size, current=transcript.size)
    view = _view(transcript, nothing, glance, terms, tuple(sorted(pin.place for pin in pins)))
    new = Block(transcript.size, transcript.size + 1, messages=1, tokens=1)
    view = view.with_blocks((*[block for block in view.blocks if block.pinned], new))
    full = [str(each.to) for each in _compactors(policy, terms) if each.to.fires(view)]
    if full:
        raise PinRefused(
            f"{name!r} can't be pinned: all that is pinned and the current exchange would be {' and '.join(full)}, "
            "which is what a cut leaves. Unpin something, or raise the policy's limit."
        )
    return transcript.record("pins", _json.encode(pins), instead=True)


def unpin(transcript: Transcript, name: str) -> Transcript:
    """A transcript in which an entry is not pinned any more, nor any other of its turn."""
    pins = pins_of(transcript)
    if not isinstance(name, str):
        raise InputError(f"What is unpinned is named by the id of an entry or a turn, not by {type(name).__name__}.")
    left = [pin for pin in pins if name not in (pin.entry, pin.turn) and name.rpartition("-")[0] != pin.turn]
    if len(left) == len(pins):
        raise InputError(f"{name!r} is not pinned.")
    return transcript.record("pins", _json.encode(left), instead=True)


def pins_of(transcript: Transcript) -> list[Pin]:
    """What is pinned."""
    return latest(transcript, "pins", list[Pin]) or []


def pinned(transcript: Transcript) -> tuple[int, ...]:
    """The places of the entries that are pinned."""
    return tuple(sorted({pin.place for pin in pins_of(transcript)}))


def all_there(epoch: Epoch, pins: tuple[int, ...]) -> bool:
    """Whether nothing was pinned since that the epoch leaves out."""
    whole = epoch.start if any(map(_is_special, epoch.runs)) else epoch.raw
    known = set(epoch.pins)
    return all(pin in known or pin >= whole for pin in pins)
