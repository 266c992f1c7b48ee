"""Return the stored reply again for a request whose key was used before."""

from __future__ import annotations

from itertools import takewhile

from longtalk.branches.branch import AsyncBranch
from longtalk.branches.operations import list_branch_names
from longtalk.reply import StoredReply
from longtalk.stores.base import KeyedTurn
from longtalk.transcript.pack import Pack
from longtalk.transcript.transcript import Entry, Transcript, Turns
from longtalk.turn.draft import Draft
from longtalk.turn.engine import AsyncEngine, TurnArguments
from longtalk.turn.output import OutputType
from longtalk.wires import WIRES
from longtalk.wires.entries import view_entry
from longtalk.wires.protocol import Answer

STEP = 32
"""The number of entries of a turn that are read at once."""


async def replay_turn(stored: AsyncBranch, engine: AsyncEngine, keyed: KeyedTurn, given: TurnArguments) -> StoredReply:
    """Return the reply of a complete turn, read from the store."""
    # A turn that was cut off may have been continued on another branch, and a rewind moves its end to another branch.
    entries: list[Entry] = []
    for name in await list_branch_names(stored):
        found = await _read_turn_entries(stored, name, keyed)
        entries = found if len(found) > len(entries) else entries
    said = [entry for entry in entries if entry.role == "assistant"]
    answer = Answer(said[-1].native, view_entry(said[-1]), keyed.turn.finish) if said else None
    wire = WIRES[said[-1].wire] if said else engine.provider.wire
    transcript = Transcript(fresh=tuple(entries), turns=Turns(fresh=(keyed.turn,)))
    prices = engine.prices(given.options) if engine.provider.label == keyed.turn.model else None
    draft = Draft(wire=wire, transcript=transcript, turn=keyed.turn, answer=answer, prices=prices)
    checked = draft if given.output is None else OutputType.read(given.output).check(draft, last=True)
    return StoredReply(checked, keyed.branch)


async def _read_turn_entries(stored: AsyncBranch, branch: str, keyed: KeyedTurn) -> list[Entry]:
    """Return the entries of a turn that are on a branch."""
    entries: list[Entry] = []
    while True:
        # A turn usually has few entries, but the conversation after it may be long.
        position = keyed.position + len(entries)
        pack: Pack = await stored.call(stored.store.read, branch, position, position + STEP)
        found = list(takewhile(lambda entry: entry.turn == keyed.turn.id, pack.entries()))
        entries += found
        if len(found) < STEP:
            return entries
