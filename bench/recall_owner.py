"""Recall over an owner's conversations, for `python -m bench.recall --owner`: each session is one of its own.

Each dialogue has an owner. Each of its dated sessions is imported as a conversation of that owner, and each question
is the first message of a new one, under `Recall(scope="owner")`. The figure beside it is that for the whole dialogue
as one conversation.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from itertools import groupby

from longtalk import Conversation, Memory, Recall
from longtalk.memory.recall.config import Recalled
from longtalk.memory.recall.index import Unit
from longtalk.stores.base import MAIN, Store
from longtalk.testing import Scripted, says
from longtalk.tokens import Counter
from longtalk.transcript.pack import Entry
from longtalk.transfer.conversation_export import BranchPart, ConversationExport
from longtalk.transfer.load import import_exports

MakeEntries = Callable[[Sequence[Unit]], tuple[Entry, ...]]
Share = Callable[[Sequence[Unit], Recalled, frozenset[int]], float]


def import_sessions(store: Store, number: int, units: Sequence[Unit], make_entries: MakeEntries) -> int:
    """Import each session of a dialogue as a conversation of an owner, and return the number of sessions."""
    sessions = [list(group) for _, group in groupby(units, lambda unit: unit.at)]
    exports = [
        ConversationExport(id=f"session {i}", branches=(BranchPart(name=MAIN, entries=make_entries(session)),))
        for i, session in enumerate(sessions, 1)
    ]
    import_exports(store, str(number), exports)
    return len(sessions)


def ask(store: Store, number: int, question: str, config: Recall, counter: Counter) -> tuple[Recalled, float]:
    """Ask a question in a new conversation. Return what was recalled, and the CPU time of the turn in milliseconds."""
    policy = Memory(outline=0, recent=0, recall=config, limit=0)
    model = Scripted(says("Well."))
    owner = str(number)
    talk = Conversation("question", owner=owner, model=model, store=store, policy=policy, counter=counter)
    begun = time.process_time()
    context = talk.send(question).context
    spent = 1e3 * (time.process_time() - begun)
    store.delete(owner, "question")
    sent = [each["content"] for each in json.loads(model.requests[0])["messages"]]
    text = next((each for each in sent if each.startswith("<memory>")), "")
    return Recalled(text, (), context.recall if context is not None else 0), spent


def measure_owner(
    store: Store,
    talks: Sequence[tuple[list[Unit], list[tuple[str, frozenset[int]]]]],
    budgets: Sequence[int],
    counter: Counter,
    share: Share,
) -> tuple[list[float], float]:
    """Return the recall at each budget, and the CPU time of a turn at 1,000 tokens in milliseconds."""
    count = sum(len(questions) for _, questions in talks)
    found, spent = [0.0] * len(budgets), 0.0
    for number, (units, questions) in enumerate(talks):
        for question, evidence in questions:
            for i, budget in enumerate(budgets):
                given, time_used = ask(store, number, question, Recall(budget, gate=False, scope="owner"), counter)
                found[i] += share(units, given, evidence) / count
                spent += time_used / count if budget == 1_000 else 0.0
    return found, spent
