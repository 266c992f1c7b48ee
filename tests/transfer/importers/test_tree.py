"""Trees of other tools become branches, whatever the tool."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from longtalk.transfer.importers import chatgpt, claude, tree
from longtalk.transfer.limits import Budget
from longtalk.transfer.load import ParsedConversation
from tests.transfer.importers.exports import ChatGPT, Claude

FORKS = 30


def chatgpt_comb() -> ParsedConversation:
    """Return a conversation that forks at each message, where one of the two paths ends at once."""
    made = ChatGPT()
    for number in range(FORKS):
        trunk, role = made.current, ("user", "assistant")[number % 2]
        made.say(role, f"left {number}", behind=trunk)
        made.say(role, f"kept {number}", behind=trunk)
    return chatgpt.read(json.dumps(made.value()).encode(), 1, Budget(0))


def claude_comb() -> ParsedConversation:
    made = Claude()
    trunk = None
    for number in range(FORKS):
        sender = ("human", "assistant")[number % 2]
        made.say(sender, f"left {number}", parent=trunk)
        trunk = made.say(sender, f"kept {number}", parent=trunk or "nobody")
    return claude.read(json.dumps(made.value()).encode(), 1, Budget(0))


@pytest.mark.parametrize("comb", [chatgpt_comb, claude_comb])
def test_what_many_paths_share_is_looked_at_once(
    comb: Callable[[], ParsedConversation], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    add_message = tree._add_message

    def count(state: Any, message: tree.ConvertedMessage) -> Any:
        seen.append(message.key)
        return add_message(state, message)

    monkeypatch.setattr(tree, "_add_message", count)
    talk = comb().export
    assert len(talk.branches) == FORKS + 1
    assert len(seen) == len(set(seen)) == sum(len(part.entries) for part in talk.branches) == 2 * FORKS


@pytest.mark.parametrize("comb", [chatgpt_comb, claude_comb])
def test_a_branch_begins_where_it_leaves_the_one_that_it_is_on(comb: Callable[[], ParsedConversation]) -> None:
    main, *others = comb().export.branches
    assert (main.name, main.source, len(main.entries)) == ("main", None, FORKS)
    assert [part.source for part in others] == [None, *[("main", size) for size in range(1, FORKS)]]
    assert [list(part.metas) for part in others] == [[place] for place in range(FORKS)]
