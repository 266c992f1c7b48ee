"""Recall: find older entries that are relevant to a message, and quote them within a token budget.

`index_store` and `index_transcript` index the entries in a store or in a transcript. `render_recalled` ranks them,
decides how much of the budget to use, and renders the best in the order of the conversation, with dates. The result is
data, not an instruction: it can't close the `<recalled>` tag around it, and no part of it looks like a card. It is sent
in one turn only and never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import msgspec

from longtalk.memory.brief.app_lines import KIND as APP_LINES
from longtalk.memory.brief.app_lines import ROLE, AppLines, list_fallen
from longtalk.memory.brief.corrections import Correction, make_correction_finder
from longtalk.memory.brief.record import read_brief_record
from longtalk.memory.recall.candidates import index_candidates
from longtalk.memory.recall.config import TAG, Recall, Recalled
from longtalk.memory.recall.excerpt import list_quotes, render_hits, select_hits
from longtalk.memory.recall.gain import Allowance, limit_recall
from longtalk.memory.recall.index import Hit, RankedHits, RecallIndex, Unit
from longtalk.memory.recall.index_cache import CachedIndex, IndexCache
from longtalk.memory.recall.protocol import Matches, SearchableStore, SearchTerm
from longtalk.memory.recall.reranking import rank
from longtalk.memory.recall.scan import TranscriptScan
from longtalk.memory.recall.segments import KIND as SEGMENT
from longtalk.memory.recall.units import escape_tags, to_unit
from longtalk.memory.recall.whole import estimate_terms, index_branch, index_state
from longtalk.tokens import Counter
from longtalk.transcript.pack import Entry
from longtalk.transcript.passages import MAX_COUNTED, Passage
from longtalk.transcript.standing import Record, read_record
from longtalk.transcript.transcript import Transcript
from longtalk.wires.text import wrap_in_tag

__all__ = ["Recall", "Recalled", "index_store", "index_transcript", "render_recalled"]

MAX_WHOLE = 10_000
"""The maximum number of entries that are all indexed and ranked if no index is stored, unless recall is by meaning."""
MAX_TERMS = 2_500_000
"""The maximum number of terms of a stored index that is used, counting repeated ones. It bounds memory and CPU time."""
_MAX_COMPARED = 200  # best hits that are compared with what was forgotten
_INDEX_CACHE = IndexCache()


def index_store(
    store: SearchableStore,
    owner: str,
    conversation: str,
    branch: str,
    size: int,
    message: str,
    config: Recall,
    *,
    now: int = 0,
    records: Sequence[Record] | None = None,
    cache: IndexCache | None = None,
) -> RecallIndex:
    """Return an index of the first `size` entries of a branch.

    If there are very many, it has only those that may be relevant to the message by words. `now` is the time of the
    message in milliseconds. `records` are those of the branch's head, if the caller has them. `cache` is used instead
    of the cache of this process, for a search that is no part of a turn.
    """
    names = (owner, conversation, branch)
    if records is None:
        records = [placed.record for placed in store.records(*names, SEGMENT)]
    newest = next((record for record in reversed(records) if record.kind == SEGMENT), None)
    terms = estimate_terms(newest, size)
    if terms > MAX_TERMS if terms is not None else size > MAX_WHOLE and not config.meaning:
        most = _get_max_candidates(config)
        return index_candidates(_StoredBranch(store, names, size), message, now=now, most=most, to_unit=to_unit)
    return index_branch(cache or _INDEX_CACHE, store, names, size, newest, meaning=config.meaning)


def list_new_segments(index: RecallIndex) -> Sequence[tuple[Record, int]]:
    """Return records with the parts of an index that are not stored yet, each with its position."""
    return index.new_segments if isinstance(index, CachedIndex) else ()


def index_transcript(transcript: Transcript, message: str, config: Recall, *, now: int = 0) -> RecallIndex:
    """Return an index of the entries of a transcript, like `index_store`.

    The first time that this process sees a long transcript, the index has only entries that may be relevant.
    """
    found: RecallIndex | None = None
    if len(transcript) <= MAX_WHOLE or config.meaning:
        found = index_state(_INDEX_CACHE, transcript, meaning=config.meaning)
    if found is None:
        most = _get_max_candidates(config)
        found = index_candidates(TranscriptScan(transcript), message, now=now, most=most, to_unit=to_unit)
    add_fallen_lines(found, transcript, [each for each in transcript.records if each.kind == APP_LINES])
    return found


def add_fallen_lines(index: RecallIndex, transcript: Transcript, records: Sequence[Record]) -> None:
    """Add the lines of the app that fell out of the brief to an index, for this turn. They get negative positions.

    `records` has the records of the app's lines, oldest first.
    """
    if not records:
        return
    changes = [change for record in records if (change := read_record(record, AppLines)) is not None]
    for i, line in enumerate(list_fallen(changes, read_brief_record(transcript).content), 1):
        index.add(Unit(-i, ROLE, escape_tags(line.text), line.at // 1000), follows=False)
        if isinstance(index, CachedIndex):
            index.extra += 1


def _get_max_candidates(config: Recall) -> int:
    """Return the maximum number of entries to read and index. It grows with the budget."""
    return 100 + config.budget // 10


class _StoredBranch:
    """An `EntrySource` for a branch in a store."""

    def __init__(self, store: SearchableStore, names: tuple[str, str, str], size: int) -> None:
        self._store = store
        self._names = names
        self.size = size

    def pick(self, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        return self._store.pick(*self._names, ranges)

    def to_position(self, i: int) -> int:
        return i

    def matches(self, terms: Sequence[SearchTerm], most: int) -> list[Matches]:
        return self._store.matches(*self._names, terms, most)


def render_recalled(
    index: RecallIndex,
    message: str,
    config: Recall,
    counter: Counter,
    *,
    now: int,
    exclude: Container[int] = (),
    sent: str = "",
    standing: Sequence[Passage] = (),
    allowed: Allowance = Allowance(),  # noqa: B008
    corrections: Sequence[Correction] = (),
) -> Recalled:
    """Return quotes from the indexed entries that are relevant to the message, rendered as text.

    Entries at the positions in `exclude` are skipped, because the request contains them anyway. Passages that `sent`
    quotes, the text that was recalled for earlier messages and is still in the request, and those in `standing`, which
    its head quotes, are chosen like all others, but not quoted again. `now` is the time of the message in milliseconds.
    `allowed` can lower the token limit of the configuration, but not raise it. A passage that says what one of
    `corrections` has corrected is quoted with what holds now; one that says what was forgotten is not quoted. So it is
    with a passage of another conversation and what was corrected there.
    """
    recalled = Recalled()
    index.find_correction = _make_finder(index, corrections)
    if config.budget > 0:
        ranked = _skip_forgotten(index, rank(index, message, now=now // 1000, exclude=exclude))
        limit, why = limit_recall(config.budget, ranked.need, allowed, gate=config.gate, asks=ranked.asks)
        recalled = render_ranked(index, ranked, limit, counter, sent=sent, standing=standing)
        recalled = msgspec.structs.replace(recalled, why=why)
    if isinstance(index, CachedIndex):
        _INDEX_CACHE.put(index)
    return recalled


def _make_finder(
    index: RecallIndex, corrections: Sequence[Correction]
) -> Callable[[int, str], Correction | None] | None:
    """Return what finds the correction of a passage: by what was corrected here, and where the passage comes from."""
    find, find_elsewhere = make_correction_finder(corrections), index.find_correction_elsewhere
    if find_elsewhere is None:
        return (lambda _, text: find(text)) if corrections else None
    return lambda position, text: find_elsewhere(position, text) or find(text)


def _skip_forgotten(index: RecallIndex, ranked: RankedHits) -> RankedHits:
    """Return the hits without passages that say what the app has had forgotten."""
    if index.find_correction is None or not ranked.hits:
        return ranked
    first = ranked.hits[:_MAX_COMPARED]
    index.load_units(hit.position for hit in first)
    found = [(hit, index.find_correction(hit.position, _read_passage(index, hit))) for hit in first]
    # Those that match less are not worth reading all of them: few of them are quoted.
    kept = tuple(hit for hit, correction in found if correction is None or correction.text)
    return ranked if len(kept) == len(first) else msgspec.structs.replace(ranked, hits=kept)


def _read_passage(index: RecallIndex, hit: Hit) -> str:
    return index.get_unit(hit.position).text[hit.start : hit.stop].strip()


def render_ranked(
    index: RecallIndex,
    ranked: RankedHits,
    limit: int,
    counter: Counter,
    *,
    sent: str = "",
    standing: Sequence[Passage] = (),
) -> Recalled:
    """Return the best hits as text of at most `limit` tokens, including the tag.

    Of these hits, the text lacks the ones that `sent` quotes or `standing` contains.
    """
    budget = limit - counter.count(wrap_in_tag(TAG, ""))
    while budget > 0 and (chosen := select_hits(index, ranked.hits, budget, counter.count)):
        new = [hit for hit in chosen if not _is_in_request(index, hit, sent, standing)]
        quotes = list_quotes(index, new)
        text = escape_tags("".join(quote for _, quote in quotes))
        tokens = counter.count(wrap_in_tag(TAG, text)) if text else 0
        if tokens <= limit:
            best = sorted(chosen, key=lambda hit: -hit.score)[:MAX_COUNTED]
            return Recalled(
                text,
                tuple(position for position, _ in quotes),
                tokens,
                sizes=tuple(counter.count(escape_tags(quote)) for _, quote in quotes),
                passages=tuple([_quote_passage(index, hit) for hit in best]),
            )
        budget -= tokens - limit
    return Recalled()


def _quote_passage(index: RecallIndex, hit: Hit) -> Passage:
    text = escape_tags(render_hits(index, [hit]))
    if index.describe_origin is not None:
        text = text.partition("\n")[2]
    return Passage(hit.position, hit.start, hit.stop, text=text)


def _is_in_request(index: RecallIndex, hit: Hit, sent: str, standing: Sequence[Passage]) -> bool:
    if any(each.contains(Passage(hit.position, hit.start, hit.stop)) for each in standing):
        return True
    return bool(sent) and escape_tags(_read_passage(index, hit)) in sent
