"""Compose a request: `compose` renders a transcript as the present epoch says.

    [preamble] [epoch head: summary or brief, digests, pinned exchanges] [exchanges] [new events, new message]
    | [memory, instruction]

The manifest says how each entry was treated, as runs of adjacent entries with the same verdict and reason.

Some answers contain opaque blocks, such as signed thinking. They are valid only for the same account and model, and on
some wires only after exactly the same bytes; `Context.compute_bound` returns a digest of these. Where the digest
differs, an answer is sent without its opaque blocks. The calls and results of a running turn are always sent as calls
and results, because a model that only reads a description of its calls makes them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import msgspec

from longtalk._util.lookalikes import neutralize, neutralize_json
from longtalk.context.costs import Meter
from longtalk.context.epochs import Epoch, is_checked, list_runs, mark_recalled, merge_runs
from longtalk.context.suffixes import TurnSuffix, map_kept_suffixes
from longtalk.memory.cards.capture import TOOL_NAME
from longtalk.memory.profile.lines import PROFILE_TAG, read_turn_profile
from longtalk.memory.recall.config import Recalled
from longtalk.memory.summary import TAG
from longtalk.transcript.lookalikes import NEUTRALIZED
from longtalk.transcript.manifest import MATCHED, MIDDLE, Run, Verdict
from longtalk.transcript.passages import RecalledPassages
from longtalk.transcript.transcript import Entry, Transcript
from longtalk.wires.convert import CallIdMap, convert_entry, write_without_cards
from longtalk.wires.entries import digest_tool_calls, shorten_entry, view_entry
from longtalk.wires.neutral import LONGTALK
from longtalk.wires.protocol import Handle, Preamble, Quirks, Wire

Piece = bytes | memoryview
_NO_QUIRKS = Quirks()


class Context(msgspec.Struct, frozen=True):
    """A composed request: the JSON of its messages, in pieces of one or more messages joined by commas."""

    pieces: tuple[Piece, ...]
    manifest: tuple[Run, ...]
    mark: int
    """The number of pieces at the beginning that the next request will have in common with this one."""
    binding: str
    """What opaque blocks depend on besides earlier messages: the wire, account, model and preamble digest."""
    binds: bool = True
    """Whether opaque blocks are valid only after the same bytes, and not just for the same account and model."""
    epoch: int = 0
    """The start of the epoch that the request belongs to."""
    tokens: int = 0
    """The number of tokens of the request, estimated from the provider's reports."""
    counted: int = 0
    """The number of tokens of the request, as counted locally."""
    summary: int = 0
    """The number of tokens of the head: a summary, or the brief and outlines."""
    brief: int = 0
    """The number of tokens of the brief in the request."""
    outline: int = 0
    """The number of tokens of the outlines in the request."""
    recall: int = 0
    """The number of tokens of the recalled text."""
    recall_why: str = ""
    """Why this much was recalled, or nothing, in words; empty if the history was not searched."""
    meter: Meter | None = None
    """The amounts spent on resending, including this request; None if the policy does not compare costs."""
    passages: RecalledPassages | None = None
    """The passages that were recalled in the epoch so far; None if this request adds none."""
    session_key: str = ""
    """The key of the provider's session; empty if the provider keeps no conversation."""
    handle: Handle | None = None
    """The provider's handle for the entries that are not sent again; None if all entries are sent."""

    def compute_bound(self) -> str:
        """Return a digest of the conditions under which opaque blocks in the answer to this request are valid."""
        return _Prefix(self.binding, self.binds).digest_after(self.pieces)


class _Prefix:
    """A running digest of what opaque blocks depend on: account, model, and all pieces before the answer."""

    def __init__(self, binding: str, binds: bool) -> None:
        self._hash = hashlib.sha256(binding.encode())
        self._seen = 0
        self._binds = binds

    def digest_after(self, pieces: Sequence[Piece]) -> str:
        """Return the digest after these pieces, which must begin with the pieces of the previous call."""
        for piece in pieces[self._seen :] if self._binds else ():
            self._hash.update(b",")
            self._hash.update(piece)
        self._seen = len(pieces)
        return self._hash.hexdigest()[:24]


def compose(
    transcript: Transcript,
    *,
    epoch: Epoch,
    wire: Wire,
    quirks: Quirks,
    preamble: Preamble,
    reader: str,
    instruction: str | None,
    tail: int,
    until: int | None = None,
    held: int = 0,
    data: str = "",
    recalled: Recalled | None = None,
) -> Context:
    """Render the request for `reader`, which identifies an account and a model.

    `data` and the instruction are sent after the first `tail` entries, which end with the user's message. `recalled`
    says which entries `data` quotes. With `until`, only the entries before that position are rendered. Entries before
    position `held` are not sent, because the provider already has them.
    """
    binding = f"{wire.name} {reader} {preamble.digest()}" if wire.binds_prefix else f"{wire.name} {reader}"
    builder = _ContextBuilder(transcript, wire, quirks, binding, tail)
    size = transcript.size if until is None else until
    end, since = transcript.index_of(size), transcript.index_of(epoch.start)
    runs = [run for run in list_runs(epoch) if run.first < size]
    if runs and runs[-1].last >= size:
        tokens = transcript.tokens(transcript.index_of(runs[-1].first), end)
        runs[-1] = msgspec.structs.replace(runs[-1], last=size - 1, tokens=min(runs[-1].tokens, tokens))
    if since < end:
        runs.append(Run(epoch.start, size - 1, "sent", "kept", tokens=transcript.tokens(since, end)))
    suffixes = map_kept_suffixes(transcript, epoch.current)
    kept_suffix = suffixes.get(tail)
    if kept_suffix is not None and instruction and not kept_suffix.text.endswith(instruction):
        # The turn continues with another instruction. The data that memory added stays.
        suffixes[tail] = msgspec.structs.replace(kept_suffix, text=instruction)
    new_suffix = (
        TurnSuffix(instruction or "", tail, data=data).pieces(wire)
        if kept_suffix is None and (instruction or data)
        else []
    )
    if epoch.summary and epoch.summary.profile and not held:
        lines = read_turn_profile(transcript).render(epoch.summary.profile)
        builder.pieces += [wire.quote(PROFILE_TAG, lines)] if lines else []
    if epoch.summary and epoch.summary.text and not held:
        text = epoch.summary.text if epoch.summary.is_brief else neutralize(epoch.summary.text)
        builder.pieces.append(wire.quote(TAG, text))
    if epoch.lines and not held:
        builder.pieces.append(wire.quote("earlier_tool_calls", neutralize("\n".join(epoch.lines))))
    if held:
        runs = list(_mark_held(transcript, runs, held))
        builder.skip_held(transcript.index_of(held), end)
    for run in runs:
        if run.last < held:
            continue
        first, stop = transcript.index_of(run.first), transcript.index_of(run.last + 1)
        as_is = run.verdict == "sent" and not run.keep
        cuts = {at for at in (*suffixes, tail) if first < at < stop} if as_is else ()
        for cut in sorted({*cuts, stop}) if first < stop else ():
            if as_is:
                builder.add_entries(first, cut)
            else:
                builder.add_altered(run, first, cut)
            if cut in suffixes:
                builder.pieces += suffixes[cut].pieces(wire)
            elif cut == tail:
                builder.pieces += new_suffix
            first = cut
    if held:
        builder.follow_held_answer(transcript.index_of(held) - 1)
    # The next request will not contain this turn's instruction, unless tool calls follow it.
    mark = len(builder.pieces) - len(new_suffix) if tail == end else len(builder.pieces)
    if recalled is not None:
        sizes = dict(zip(recalled.positions, recalled.sizes, strict=True))
        runs = list(mark_recalled(runs, sizes, MATCHED))
    return builder.build(runs, epoch, mark, recalled)


class _ContextBuilder:
    """A builder that collects the pieces of one request, and entries whose verdict differs from that of their run."""

    def __init__(self, transcript: Transcript, wire: Wire, quirks: Quirks, binding: str, tail: int) -> None:
        self.pieces: list[Piece] = []
        self.overrides: list[tuple[int, Verdict, str]] = []
        """Entries whose verdict differs from their run's: index, verdict, reason."""
        self._transcript = transcript
        self._wire = wire
        self._quirks = quirks
        self._binding = binding
        self._tail = tail
        self._ids = CallIdMap()
        self._void = transcript.index_of(quirks.opaque_void)
        self._prefix: _Prefix | None = None
        """Made for the first answer with opaque blocks."""
        self._is_checked = is_checked(transcript)
        # A server with quirks may want any message in another form, so none can go unseen.
        self._plain = quirks == _NO_QUIRKS or (
            msgspec.structs.replace(quirks, opaque_void=0, no_server_ids=False) == _NO_QUIRKS
        )

    def add_entries(self, first: int, stop: int) -> None:
        """Add entries unchanged, except for parts that this reader does not accept."""
        for i, item in self._transcript.walk(first, stop, self._goes_verbatim):
            if not isinstance(item, Entry):
                self.pieces.append(item)
                continue
            piece = self._render(i, item)
            if piece is None:
                why = "says nothing elsewhere" if item.wire != self._wire.name else ""
                why = why or ("bound to another place" if item.bound else "empty answer")
                self.overrides.append((i, "left_out", why))
            else:
                self.pieces.append(piece)

    def skip_held(self, held: int, end: int) -> None:
        """Skip the first `held` entries, which the provider has, but reserve the call ids assigned to them."""
        if any(map(self._is_foreign_answer, range(held, end))):
            for i in filter(self._is_foreign_answer, range(held)):
                for call in view_entry(self._transcript[i]).calls:
                    self._ids.map_call(call)

    def follow_held_answer(self, last: int) -> None:
        """Adapt the pieces to the last entry that the provider has, if that entry is an answer on this wire."""
        entry = self._transcript[max(0, last)]
        if entry.role == "assistant" and entry.wire == self._wire.name:
            self.pieces = list(self._wire.follow_answer(entry.native, self.pieces))

    def _is_foreign_answer(self, i: int) -> bool:
        entry = self._transcript[i]
        return entry.role == "assistant" and entry.wire not in (self._wire.name, LONGTALK)

    def add_altered(self, run: Run, first: int, stop: int) -> None:
        """Add the text that replaces a run of entries which is cut, digested or left out."""
        wire, transcript = self._wire, self._transcript
        if run.keep:
            piece = self._render(first, _shorten(transcript[first], run.keep))
            self.pieces += [] if piece is None else [piece]
        elif run.is_digest:
            lines = digest_tool_calls([transcript[i] for i in range(first, stop)])
            self.pieces.append(wire.quote("done_so_far", neutralize("\n".join(lines))))
        elif run.reason == MIDDLE:
            self.pieces.append(wire.quote("left_out", f"{stop - first:,} events are left out here."))

    def _goes_verbatim(self, role: str, wire: str) -> bool:
        if (self._void and role == "assistant") or (role in NEUTRALIZED and not self._is_checked):
            return False
        return wire == self._wire.name and self._plain and self._wire.is_plain(role)

    def _render(self, i: int, entry: Entry) -> Piece | None:
        is_foreign = entry.wire not in (self._wire.name, LONGTALK)
        if is_foreign:
            converted = convert_entry(entry, self._wire, self._ids)
            if converted is None:
                return None
            entry = converted
        if entry.role == "assistant" and (is_foreign or i < self._void or self._is_bound_elsewhere(entry)):
            bare = self._wire.remove_opaque(entry.native, running=i >= self._tail)
            if bare is None:
                return None
            entry = msgspec.structs.replace(entry, native=bare)
        if entry.role in NEUTRALIZED and entry.wire != LONGTALK and (entry.is_lookalike or not self._is_checked):
            entry = self._neutralize(entry)
        return self._wire.render(entry, self._quirks)

    def _neutralize(self, entry: Entry) -> Entry:
        """Return an entry without look-alikes of tags. The id of a result stays that of its call."""
        native = neutralize_json(entry.native)
        if entry.role == "tool" and native != entry.native:
            seen = self._wire.view(entry.native)
            native = neutralize_json(entry.native, keep=(seen.call_id, seen.name))
        return msgspec.structs.replace(entry, native=native)

    def _is_bound_elsewhere(self, entry: Entry) -> bool:
        if not entry.bound:
            return False
        if self._prefix is None:
            self._prefix = _Prefix(self._binding, self._wire.binds_prefix)
        return entry.bound != self._prefix.digest_after(self.pieces)

    def build(self, runs: Sequence[Run], epoch: Epoch, mark: int, recalled: Recalled | None = None) -> Context:
        head = epoch.summary
        return Context(
            pieces=tuple(self.pieces),
            manifest=tuple(merge_runs(_override_runs(self._transcript, runs, self.overrides)))
            if self.overrides or len(runs) > 1 or self._transcript.shed.number
            else tuple(runs),
            mark=mark,
            binding=self._binding,
            binds=self._wire.binds_prefix,
            epoch=epoch.start,
            summary=head.tokens if head else 0,
            brief=head.brief if head else 0,
            outline=head.outline if head else 0,
            recall=recalled.tokens if recalled else 0,
        )


def _mark_held(transcript: Transcript, runs: Sequence[Run], held: int) -> Iterator[Run]:
    """Yield the runs, with those sent before position `held` marked as held by the provider."""
    for run in runs:
        parts = [run]
        if run.first < held <= run.last:
            parts = [*_cut_run(transcript, run, run.first, held - 1), *_cut_run(transcript, run, held, run.last)]
        for part in parts:
            there = part.last < held and part.verdict == "sent"
            yield msgspec.structs.replace(part, verdict="held", reason="kept by the provider") if there else part


def _shorten(entry: Entry, keep: int) -> Entry:
    if entry.role == "assistant":
        return write_without_cards(entry, TOOL_NAME)
    return shorten_entry(entry, keep) if entry.role == "tool" or entry.kind == "event" else entry


def _override_runs(
    transcript: Transcript, runs: Sequence[Run], overrides: Sequence[tuple[int, Verdict, str]]
) -> Iterator[Run]:
    """Yield the runs, with overridden and shed entries in runs of their own."""
    others = []
    for i, verdict, reason in overrides:
        position = transcript.position(i)
        others.append(Run(position, position, verdict, reason))
    if transcript.shed.number:
        for first, count in transcript.shed.entries:
            others.append(Run(first, first + count - 1, "handed_out", "shed"))
    others.sort(key=lambda run: run.first)
    for run in runs:
        position = run.first
        inside = [other for other in others if run.first <= other.last and other.first <= run.last]
        # For the middle of many events, the epoch has the length of the text that replaces it.
        if not inside and run.reason != MIDDLE:
            yield run
            continue
        for other in inside:
            first, last = max(other.first, run.first), min(other.last, run.last)
            yield from _cut_run(transcript, run, position, first - 1)
            yield from _cut_run(transcript, other, first, last)
            position = last + 1
        yield from _cut_run(transcript, run, position, run.last)


def _cut_run(transcript: Transcript, run: Run, first: int, last: int) -> list[Run]:
    """Return a list with the run cut to these positions, or an empty list if no positions are left."""
    if first > last:
        return []
    tokens = transcript.tokens(transcript.index_of(first), transcript.index_of(last + 1))
    return [msgspec.structs.replace(run, first=first, last=last, tokens=tokens)]
