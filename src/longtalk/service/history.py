"""Earlier messages that come with a request, for a conversation that may have them already.

Many clients keep the conversation themselves and send all of it again, also where the service has it. What a
conversation ends with is therefore not added to it a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from longtalk._util.concurrency import call_store
from longtalk.branches.append import append_turns
from longtalk.branches.branch import AsyncBranch
from longtalk.conversation.conversation import AsyncConversation
from longtalk.conversation.request import turn_of
from longtalk.memory.cards.hidden import find_memory_calls
from longtalk.policies import Policy
from longtalk.stores.base import Store
from longtalk.tokens import Counter
from longtalk.transcript.transcript import Entry
from longtalk.transfer.append import append_messages
from longtalk.turn.memory import RECALL
from longtalk.wires import WIRES
from longtalk.wires.entries import text_if_readable, view_entry
from longtalk.wires.views import MessageView

_HIDDEN = 32
"""How many entries that clients don't see are expected among those that they send again."""

Part = tuple[str, str]


async def add_history(
    talk: AsyncConversation,
    said: Sequence[Entry],
    *,
    store: Store,
    policy: Policy,
    counter: Counter,
    after: str | None = None,
) -> AsyncConversation:
    """Add to a conversation what was said before, but for what it ends with. Return the branch to go on with.

    `after` is the turn that the messages follow: if others follow it already, they are added to a branch of their own.
    """
    branch = AsyncBranch(store, talk.owner, talk.id, talk.branch, policy)
    head = await branch.head()
    if after is not None and (head is None or turn_of(head.entry) != after):
        talk = await talk.fork(after)
        branch = branch.get_branch(talk.branch)
        head = await branch.head()
    known: list[Entry] = []
    if head is not None:
        start, stop = max(0, head.size - 2 * len(said) - _HIDDEN), head.size
        known = (await call_store(store, lambda: store.read(talk.owner, talk.id, talk.branch, start, stop))).entries()
    new = skip_known(said, known)
    if new:
        await append_turns(branch, lambda before: append_messages(before, new, counter))
    return talk


def skip_known(said: Sequence[Entry], known: Sequence[Entry]) -> list[Entry]:
    """Return the messages without the longest beginning that the known ones end with."""
    parts = _list_parts(said)
    count = _find_overlap([*chain(*parts)], [*chain(*_list_parts(known))])
    start = 0
    while count > 0:
        count -= len(parts[start])
        start += 1
    # An answer that is known in part is added whole.
    return list(said[start - 1 if count < 0 else start :])


def _list_parts(entries: Sequence[Entry]) -> list[list[Part]]:
    """Return what each message says to a client, in a form that is the same for every wire."""
    hidden = set().union(*find_memory_calls(entries).values())
    found: list[list[Part]] = []
    for entry in entries:
        seen = view_entry(entry) if entry.wire in WIRES else MessageView(entry.role, text_if_readable(entry))
        hidden |= {call.id for call in seen.calls if call.name == RECALL}
        if entry.role == "tool":
            parts = [("result", seen.call_id)]
        else:
            parts = [(entry.role, seen.text)] if seen.text else []
            parts += [("call", call.id) for call in seen.calls]
        found.append([part for part in parts if part[0] not in ("call", "result") or part[1] not in hidden])
    return found


def _find_overlap(new: Sequence[Part], known: Sequence[Part]) -> int:
    """Return the length of the longest beginning of `new` that `known` ends with, in linear time."""
    borders = [0] * len(new)
    length = 0
    for i in range(1, len(new)):
        while length and new[i] != new[length]:
            length = borders[length - 1]
        length += new[i] == new[length]
        borders[i] = length
    length = 0
    for part in known if new else ():
        if length == len(new):
            length = borders[-1]
        while length and part != new[length]:
            length = borders[length - 1]
        length += part == new[length]
    return length
