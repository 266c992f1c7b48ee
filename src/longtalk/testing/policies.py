"""Tries a policy on a conversation that took place: whatever it leaves out, what is sent must be right.

At every point at which the model was asked, the request is composed three times: in the epoch that the points before
led to, as if the policy met the conversation here for the first time, and from a state that stays small. In the end
all that such a state has shed is joined again. Where the policy wants a summary, a text stands in for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk import _json
from longtalk.context import Context, compose
from longtalk.epochs import Epoch, covered, metered, summed_up, unreachable
from longtalk.memory.book import Card, book_of, kept
from longtalk.memory.brief import Operation, apply
from longtalk.plan import Plan, begun, plan
from longtalk.policies import Policy, SummarizeOldest
from longtalk.policies.memory import memory_of
from longtalk.policies.view import MIDDLE, SUMMARY
from longtalk.sent import UNKNOWN_WINDOW, Terms
from longtalk.shed import encode_part, join, split
from longtalk.state import decode, encode
from longtalk.summaries import Summary, Wanted
from longtalk.testing.validate import unmarked, validate
from longtalk.tokens import Counter, Estimator, of_message
from longtalk.transcript import Entry, Transcript
from longtalk.wires import NAMES, WIRES
from longtalk.wires.base import Preamble, Quirks, Usage, Wire


class PolicyViolation(AssertionError):
    """A policy broke a promise."""


class Played(msgspec.Struct):
    """What a policy did."""

    requests: int = 0
    epochs: int = 0
    tokens: int = 0
    """Of all requests."""


def transcript_of(
    said: bytes | Sequence[bytes | Mapping[str, Any]], *, wire: str = "openai-chat", counter: Counter | None = None
) -> Transcript:
    """A conversation from a state, or from messages of a wire. A user's message begins a turn."""
    if isinstance(said, bytes):
        return decode(said, wires=NAMES)
    counter = counter or Estimator()
    natives = [each if isinstance(each, bytes) else _json.encode(each) for each in said]
    transcript, turn = Transcript(), 0
    for native in natives:
        role = WIRES[wire].view(native).role
        turn += role == "user"
        entry = Entry(role=role, wire=wire, native=native, at=0, tokens=of_message(native, counter))
        transcript = transcript.append(f"t{turn}", [entry])
    return transcript


def check_policy(
    policy: Policy,
    transcript: Transcript,
    *,
    wire: str = "openai-chat",
    window: int | None = None,
    preamble: Preamble = Preamble(),  # noqa: B008
    counter: Counter | None = None,
) -> Played:
    """Play a conversation under a policy; raise `PolicyViolation` or `WireViolation` where something is wrong."""
    terms = Terms(
        wire=WIRES[wire],
        counter=counter or Estimator(),
        model="checked",
        preamble=preamble.digest(),
        fixed=0,
        window=window,
        answer=0,
    )
    if isinstance(policy, type) or not hasattr(policy, "compactors"):
        raise PolicyViolation(f"{policy!r} is no policy: KeepLast(5) is one.")
    played = Played()
    so_far = small = Transcript()
    parts: list[bytes] = []
    last: tuple[Plan, bytes] | None = None
    card: Card = ""
    for i, entry in enumerate(transcript):
        # The model is asked where its answer begins.
        if i and entry.role == "assistant":
            anew = msgspec.structs.replace(so_far, records=())
            _check(policy, anew, terms, preamble)
            so_far, made, context, body = _check(policy, so_far, terms, preamble)
            if last is not None and last[0].epoch == made.epoch and not body.startswith(last[1]):
                raise PolicyViolation(
                    f"Inside an epoch, the request before entry {i} does not begin with the last one."
                )
            small, _, _, small_body = _check(policy, small, terms, preamble)
            if small_body != body:
                raise PolicyViolation(f"With a state that stays small, the request before entry {i} is another one.")
            prefix = _request(terms.wire, preamble, context, context.mark)
            last = (made, prefix[: -len(b"]}")])
            played.requests += 1
            played.epochs += made.begins
            played.tokens += made.tokens
            card = made.card or card
        gone = unreachable(small, policy) if entry.role == "user" else []
        if gone:
            small, part = split(small, gone)
            parts.append(encode_part(part))
        so_far, small = so_far.append(entry.turn, [entry]), small.append(entry.turn, [entry])
        if card and entry.role == "assistant" and not WIRES[entry.wire].view(entry.native).calls:
            so_far, small, card = _noted(so_far, policy, terms), _noted(small, policy, terms), ""
    if [entry.native for entry in decode(join(*parts, encode(small)), wires=NAMES)] != [e.native for e in transcript]:
        raise PolicyViolation("What was shed and the state do not make the whole conversation again.")
    return played


def _check(
    policy: Policy, transcript: Transcript, terms: Terms, preamble: Preamble
) -> tuple[Transcript, Plan, Context, bytes]:
    made = plan(transcript, policy, terms, may_ask=True)
    if made.wants is not None:
        transcript = _with_summary(transcript, made.wants, made.epoch, terms.counter)
        made = plan(transcript, policy, terms)
    transcript = begun(transcript, made)
    if made.meter is not None:
        transcript = metered(transcript, made.meter, Usage(input=made.tokens), at=terms.now)
    context = compose(
        transcript,
        epoch=made.epoch,
        wire=terms.wire,
        quirks=Quirks(),
        preamble=preamble,
        reader="checked",
        instruction=None,
        tail=transcript.tail,
    )
    body = _request(terms.wire, preamble, context, len(context.pieces))
    validate(body, wire=terms.wire.name)
    _check_manifest(transcript, context)
    _check_summary(made, context)
    _check_limits(policy, transcript, made, context, terms)
    return transcript, made, context, body


def _noted(transcript: Transcript, policy: Policy, terms: Terms) -> Transcript:
    """With notes, as a memory card would have made them."""
    memory = memory_of(policy)
    if memory is None:
        return transcript
    book, brief = book_of(transcript), memory.config.brief
    changes = [Operation.add(field.name, f"what was noted at {transcript.size}") for field in brief.schema.fields]
    notes = apply(book.notes, changes, brief, terms.counter, entry=transcript.head or "").notes
    return kept(transcript, msgspec.structs.replace(book, notes=notes, covers=transcript.size))


def _with_summary(transcript: Transcript, wants: Wanted, epoch: Epoch, counter: Counter) -> Transcript:
    """With a text in the place of the summary that a policy wants."""
    text = f"A summary of all before {wants.stop}. " * (1 + wants.length // 20)
    summary = Summary(text=text, covers=covered(epoch, wants.stop), tokens=counter.count(text))
    return summed_up(transcript, summary, transcript[transcript.here(wants.stop) - 1].id)


def _check_summary(made: Plan, context: Context) -> None:
    for run in context.manifest:
        if run.reason == SUMMARY and (not made.epoch.summary or not made.epoch.summary.has(run.first, run.last + 1)):
            raise PolicyViolation(f"The summary is not of what it is said to stand for: {run}")


def _request(wire: Wire, preamble: Preamble, context: Context, mark: int) -> bytes:
    body = wire.request(
        model="checked",
        preamble=preamble,
        pieces=context.pieces[:mark],
        mark=mark,
        options=wire.defaults,
        quirks=Quirks(),
        stream=False,
    )
    return unmarked(body)


def _check_manifest(transcript: Transcript, context: Context) -> None:
    covered = [place for run in context.manifest for place in range(run.first, run.last + 1)]
    if covered != list(range(transcript.size)):
        raise PolicyViolation(f"The manifest does not speak of each entry once: {context.manifest}")
    first, stop = transcript.exchanges()[-1]
    for run in context.manifest:
        for place in range(max(run.first, transcript.place(first)), min(run.last + 1, transcript.place(stop - 1) + 1)):
            entry = transcript[transcript.here(place)]
            if entry.role == "user" and (run.verdict != "sent" or run.keep):
                raise PolicyViolation(f"What the user has just said is not sent as it is: {run}")
            if run.verdict == "left_out" and run.reason != MIDDLE and entry.mark != "empty":
                raise PolicyViolation(f"Something of the current exchange is left out: {run}")


class _Sent(msgspec.Struct):
    exchanges: int
    messages: int
    tokens: int
    window: int
    loose: int = 0
    history: int = 0

    def due(self, keep: int, length: int) -> bool:  # noqa: ARG002
        return False

    def ripe(self, recent: int, length: int) -> bool:  # noqa: ARG002
        return False


def _check_limits(policy: Policy, transcript: Transcript, made: Plan, context: Context, terms: Terms) -> None:
    """Every limit holds, unless nothing but the current exchange is there, without any digest before it.

    Nor can one hold that a summary would have to reach, where that is longer than what it would stand for.
    """
    sent = {place for run in context.manifest if run.verdict == "sent" for place in range(run.first, run.last + 1)}
    exchanges = [any(transcript.place(i) in sent for i in range(first, stop)) for first, stop in transcript.exchanges()]
    first = transcript.place(transcript.exchanges()[-1][0])
    current = sum(transcript[transcript.here(place)].tokens for place in sent if place >= first)
    size = _Sent(sum(exchanges), len(sent), made.tokens, terms.window or UNKNOWN_WINDOW)
    size.loose, size.history = size.exchanges - 1, made.tokens - current
    before = sum(transcript[transcript.here(place)].tokens for place in sent if place < first)
    for compactor in policy.compactors:
        if any(isinstance(each, SummarizeOldest) and before < 2 * each.length for each in compactor.strategies):
            continue
        if compactor.over.fires(size) and (size.exchanges > 1 or made.epoch.lines):
            raise PolicyViolation(f"{compactor.over} although {size.exchanges} exchanges are sent: {context.manifest}")
