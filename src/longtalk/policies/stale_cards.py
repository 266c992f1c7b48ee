"""Leave memory cards out of answers that are sent again, if they state a line that the app has corrected or forgotten.

Within an epoch nothing that was sent changes. So this happens when a new epoch begins, as it does after each such edit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from longtalk._util import json_bytes
from longtalk.memory.brief.lines import make_line_id, normalize
from longtalk.memory.brief.record import read_brief_record
from longtalk.memory.cards.capture import TOOL_NAME
from longtalk.memory.cards.hidden import find_memory_calls
from longtalk.memory.recall.labels import read_card_operations
from longtalk.policies.view import Block, View
from longtalk.tokens import count_message
from longtalk.transcript.manifest import CARD, Run
from longtalk.transcript.pack import Entry
from longtalk.wires.convert import write_without_cards
from longtalk.wires.entries import view_entry


def leave_out_stale_cards(view: View) -> View:
    """Return the view with each answer whose card states a revoked line without its cards."""
    revoked = frozenset(read_brief_record(view.transcript).content.revoked)
    if not revoked:
        return view
    blocks = [_leave_out(view, block, revoked) for block in view.blocks]
    return view if blocks == [*view.blocks] else view.with_blocks(blocks)


def read_card_line_ids(entries: Sequence[Entry]) -> list[set[str]]:
    """Return for each entry the ids of all lines in its memory cards, in the form that does not depend on the field."""
    own_calls = find_memory_calls(entries)
    found = []
    for i, entry in enumerate(entries):
        texts = [text for each in read_card_operations(entry) for text in each.texts]
        if i in own_calls and entry.role == "assistant":
            calls = [call for call in view_entry(entry).calls if call.id in own_calls[i]]
            texts += [text for call in calls for text in _list_texts(json_bytes.value(call.arguments or b"{}"))]
        found.append({make_line_id("", normalize(text)) for text in texts})
    return found


def _leave_out(view: View, block: Block, revoked: frozenset[str]) -> Block:
    runs = []
    entries = [view.get_entry(position) for position in range(block.first, block.stop)]
    for position, ids in enumerate(read_card_line_ids(entries), block.first):
        if revoked & ids and block.find_altered_run(position) is None:
            bare = write_without_cards(view.get_entry(position), TOOL_NAME)
            keep = max(1, len(view_entry(bare).text))
            tokens = count_message(bare.native, view.counter)
            runs.append(Run(position, position, "sent", CARD, tokens=tokens, keep=keep))
    return view.with_altered_runs(block, runs) if runs else block


def _list_texts(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value, besides the names of its members."""
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _list_texts(each)
