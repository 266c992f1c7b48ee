"""Check a policy on a recorded conversation: whatever the policy leaves out, every request must be valid.

Before each answer of the model, the request is composed three times: continuing the epoch of the requests so far, as if
the policy saw the conversation for the first time, and from a state that sheds old entries. At the end, joining the
shed parts and the state must give the whole conversation. If the policy asks for a summary, a fixed text is used,
or the text of its function if it has a plain one.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk.context.additions import TurnAdditions
from longtalk.context.compose import Context
from longtalk.context.epochs import (
    Epoch,
    list_covered,
    list_replaced,
    list_unreachable,
    record_meter,
    record_summary,
    to_old_entries,
)
from longtalk.context.measure import (
    MAX_ANSWER_ROOM,
    UNKNOWN_WINDOW,
    Terms,
    count_kept_suffixes,
    find_current_exchange,
)
from longtalk.context.planning import Plan
from longtalk.context.prepare import Prepared, prepare
from longtalk.context.recipient import Recipient
from longtalk.context.suffixes import keep_suffix
from longtalk.memory.brief.apply import apply
from longtalk.memory.brief.operations import Operation
from longtalk.memory.brief.record import read_brief_record, with_brief_record
from longtalk.memory.summary import Summary, SummaryRequest
from longtalk.policies import Policy
from longtalk.policies.base import find_brief_keeper
from longtalk.state.codec import decode, encode
from longtalk.state.shedding import encode_part, join, split
from longtalk.testing.wires.validate import validate, without_cache_marks
from longtalk.tokens import Counter, Estimator, count_message, count_preamble
from longtalk.transcript.manifest import MIDDLE, SUMMARY
from longtalk.transcript.standing import Standing
from longtalk.transcript.transcript import Entry, Transcript
from longtalk.usage import Usage
from longtalk.wires import NAMES, WIRES
from longtalk.wires.protocol import Preamble, Quirks


class PolicyViolation(AssertionError):
    """Raised if a policy leaves out an entry that must be sent, or exceeds one of its own limits."""


class Played(msgspec.Struct):
    """Totals over all requests of a checked conversation."""

    requests: int = 0
    epochs: int = 0
    tokens: int = 0
    """The total number of tokens in all requests."""


def transcript_of(
    said: bytes | Sequence[bytes | Mapping[str, Any]], *, wire: str = "openai-chat", counter: Counter | None = None
) -> Transcript:
    """Return a transcript made from an encoded state or from a list of messages.

    Messages in a list must be in the format of `wire`; each user message begins a turn.
    """
    if isinstance(said, bytes):
        return decode(said, wires=NAMES)
    counter = counter or Estimator()
    natives = [each if isinstance(each, bytes) else json_bytes.encode(each) for each in said]
    transcript, turn = Transcript(), 0
    for native in natives:
        role = WIRES[wire].view(native).role
        turn += role == "user"
        entry = Entry(role=role, wire=wire, native=native, at=0, tokens=count_message(native, counter))
        transcript = transcript.append_to_turn(f"t{turn}", [entry])
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
    """Check the request that a policy makes before each answer in a conversation, and return the totals.

    `window` is the size of the model's context window in tokens, if it is known.

    Raises:
        PolicyViolation: The policy leaves out an entry that must be sent, or exceeds one of its own limits.
        WireViolation: A request is invalid.
    """
    counter = counter or Estimator()
    recipient = Recipient(preamble=preamble, reader="checked", calls_tools=True)
    terms = Terms(
        wire=WIRES[wire],
        counter=counter,
        model="checked",
        preamble=preamble.digest(),
        fixed=count_preamble(preamble.system, preamble.tools, counter),
        window=window,
        answer=min((window or 0) // 8, MAX_ANSWER_ROOM),
    )
    if isinstance(policy, type) or not hasattr(policy, "compactors"):
        raise PolicyViolation(f"{policy!r} is not a policy. Pass one such as KeepLast(5).")
    played = Played()
    so_far = small = Transcript()
    parts: list[bytes] = []
    last: tuple[Plan, bytes] | None = None
    added: TurnAdditions | None = None
    for i, entry in enumerate(transcript):
        # Each answer was preceded by a request, which is composed and checked here.
        if i and entry.role == "assistant":
            first_sight = msgspec.structs.replace(so_far, records=Standing())
            _check(policy, first_sight, terms, recipient, None)
            prepared, context, body = _check(policy, so_far, terms, recipient, added)
            so_far, made = prepared.transcript, prepared.plan
            if last is not None and last[0].epoch == made.epoch and not body.startswith(last[1]):
                raise PolicyViolation(
                    f"Inside an epoch, the request before entry {i} does not begin with the previous request."
                )
            small_prepared, _, small_body = _check(policy, small, terms, recipient, added)
            small = small_prepared.transcript
            if small_body != body:
                raise PolicyViolation(f"With a state that sheds entries, the request before entry {i} differs.")
            prefix = _request(prepared, context, context.mark)
            last = (made, prefix[: -len(b"]}")])
            played.requests += 1
            played.epochs += made.begins
            played.tokens += made.tokens
            added = prepared.added
            if WIRES[entry.wire].view(entry.native).calls:
                so_far, small = _keep_suffix(so_far, prepared), _keep_suffix(small, small_prepared)
        gone = list_unreachable(small, policy) if entry.role == "user" else []
        if gone:
            small, part = split(small, gone)
            parts.append(encode_part(part))
        so_far, small = so_far.append_to_turn(entry.turn, [entry]), small.append_to_turn(entry.turn, [entry])
        if entry.role == "user":
            added = None
        if i and entry.role == "assistant" and not WIRES[entry.wire].view(entry.native).calls:
            if added and added.card:
                so_far, small = _with_brief_lines(so_far, policy, terms), _with_brief_lines(small, policy, terms)
            # After an answer, the next epoch may begin at once.
            so_far = prepare(so_far, policy, terms, recipient, settled=True).transcript
            small = prepare(small, policy, terms, recipient, settled=True).transcript
    if [entry.native for entry in decode(join(*parts, encode(small)), wires=NAMES)] != [e.native for e in transcript]:
        raise PolicyViolation("The shed parts and the state do not join to the whole conversation.")
    return played


def _check(
    policy: Policy, transcript: Transcript, terms: Terms, recipient: Recipient, added: TurnAdditions | None
) -> tuple[Prepared, Context, bytes]:
    prepared = prepare(transcript, policy, terms, recipient, added=added, may_ask=True)
    if prepared.plan.summary_request is not None:
        transcript = _with_summary(
            prepared.transcript, prepared.plan.summary_request, prepared.plan.epoch, terms.counter
        )
        prepared = prepare(transcript, policy, terms, recipient, added=added)
    made, transcript = prepared.plan, prepared.transcript
    if made.meter is not None:
        transcript = record_meter(transcript, made.meter, Usage(input=made.tokens), at=terms.now)
        prepared = msgspec.structs.replace(prepared, transcript=transcript)
    context = prepared.compose()
    body = _request(prepared, context, len(context.pieces))
    validate(body, wire=terms.wire.name)
    _check_manifest(transcript, context)
    _check_summary(made, context)
    _check_limits(policy, transcript, made, context, prepared.terms)
    return prepared, context, body


def _keep_suffix(transcript: Transcript, prepared: Prepared) -> Transcript:
    """Return the transcript with what memory has added after the message, which tool calls follow."""
    suffix = prepared.added.make_suffix(transcript, prepared.tail, None)
    if suffix is None:
        return transcript
    terms = prepared.terms
    return keep_suffix(transcript, suffix, prepared.tail, terms.wire, terms.counter, at=terms.now)


def _with_brief_lines(transcript: Transcript, policy: Policy, terms: Terms) -> Transcript:
    """Return the transcript with a new line in each field of the brief, as if a memory card had added the lines."""
    memory = find_brief_keeper(policy)
    if memory is None:
        return transcript
    record, brief = read_brief_record(transcript), memory.brief
    changes = [Operation.add(field.name, f"what was noted at {transcript.size}") for field in brief.schema.fields]
    content = apply(record.content, changes, brief, terms.counter, entry=transcript.head or "").content
    return with_brief_record(transcript, msgspec.structs.replace(record, content=content, covers=transcript.size))


def _with_summary(transcript: Transcript, wants: SummaryRequest, epoch: Epoch, counter: Counter) -> Transcript:
    """Return the transcript with the summary that the policy asks for: the text of its function, or a fixed one."""
    text = f"A summary of all before {wants.stop}. " * (1 + wants.length // 20)
    if wants.write is not None and not inspect.iscoroutinefunction(wants.write):
        earlier = epoch.summary.text if epoch.summary else ""
        text = wants.write(earlier, to_old_entries(list_replaced(transcript, epoch, wants.stop)))
        if not isinstance(text, str) or not text.strip():
            raise PolicyViolation(f"The function {wants.write!r} must return text, not {text!r}.")
    summary = Summary(text=text, covers=list_covered(epoch, wants.stop), tokens=counter.count(text))
    return record_summary(transcript, summary, transcript[transcript.index_of(wants.stop) - 1].id)


def _check_summary(made: Plan, context: Context) -> None:
    for run in context.manifest:
        if run.reason == SUMMARY and (
            not made.epoch.summary or not made.epoch.summary.covers_range(run.first, run.last + 1)
        ):
            raise PolicyViolation(f"The summary does not cover this part of the manifest: {run}")


def _request(prepared: Prepared, context: Context, mark: int) -> bytes:
    wire = prepared.terms.wire
    body = wire.build_request(
        model="checked",
        preamble=prepared.preamble,
        pieces=context.pieces[:mark],
        mark=mark,
        options=wire.defaults,
        quirks=Quirks(),
        stream=False,
    )
    return without_cache_marks(body)


def _check_manifest(transcript: Transcript, context: Context) -> None:
    covered = [place for run in context.manifest for place in range(run.first, run.last + 1)]
    if covered != list(range(transcript.size)):
        raise PolicyViolation(f"The manifest does not list each entry exactly once: {context.manifest}")
    first, stop = transcript.exchanges()[-1]
    for run in context.manifest:
        for place in range(
            max(run.first, transcript.position(first)), min(run.last + 1, transcript.position(stop - 1) + 1)
        ):
            entry = transcript[transcript.index_of(place)]
            if entry.role == "user" and (run.verdict != "sent" or run.keep):
                raise PolicyViolation(f"The user's latest message is not sent unchanged: {run}")
            if run.verdict == "left_out" and run.reason != MIDDLE and entry.condition != "empty":
                raise PolicyViolation(
                    f"The policy leaves out a part of the current exchange, which must be sent whole: {run}"
                )


class _Sent(msgspec.Struct):
    exchanges: int
    messages: int
    tokens: int
    window: int
    droppable: int = 0
    history: int = 0

    def summary_pays(self, keep: int, length: int) -> bool:  # noqa: ARG002
        return False

    def brief_pays(self, recent: int, length: int) -> bool:  # noqa: ARG002
        return False


def _check_limits(policy: Policy, transcript: Transcript, made: Plan, context: Context, terms: Terms) -> None:
    """Raise `PolicyViolation` if a request exceeds a limit of the policy.

    A request may exceed a limit if it has only the current exchange and no brief, or if a summary would be about as
    long as the entries that it replaces.
    """
    sent = {place for run in context.manifest if run.verdict == "sent" for place in range(run.first, run.last + 1)}
    exchanges = [
        any(transcript.position(i) in sent for i in range(first, stop)) for first, stop in transcript.exchanges()
    ]
    first = transcript.position(transcript.exchanges()[-1][0])
    current = sum(transcript[transcript.index_of(place)].tokens for place in sent if place >= first)
    # What memory adds after the current message is not history.
    suffixes = count_kept_suffixes(transcript, find_current_exchange(transcript, made.epoch))
    size = _Sent(sum(exchanges), len(sent), made.tokens, terms.window or UNKNOWN_WINDOW)
    size.droppable, size.history = size.exchanges - 1, made.tokens - terms.fixed - current - suffixes
    before = sum(transcript[transcript.index_of(place)].tokens for place in sent if place < first)
    for compactor in policy.compactors:
        lengths = [getattr(each, "length", 0) for each in compactor.strategies if hasattr(each, "background")]
        if any(before < 2 * length for length in lengths):
            continue
        if compactor.over.fires(size) and (size.exchanges > 1 or made.epoch.lines):
            raise PolicyViolation(
                f"The request is {compactor.over}: it has {size.exchanges} exchanges. Manifest: {context.manifest}"
            )
