"""Trees of other tools as branches of ours, whichever tool it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from longtalk.imports import chatgpt, claude, tree
from longtalk.intake import Found
from tests.imports.exports import ChatGPT, Claude

FORKS = 30


def chatgpt_comb() -> Found:
    """At each message an answer that nobody went on with, and one that somebody did."""
    made = ChatGPT()
    for number in range(FORKS):
        trunk, role = made.current, ("user", "assistant")[number % 2]
        made.say(role, f"left {number}", behind=trunk)
        made.say(role, f"kept {number}", behind=trunk)
    return chatgpt.read(json.dumps(made.value()).encode(), 1)


def claude_comb() -> Found:
    made = Claude()
    trunk = None
    for number in range(FORKS):
        sender = ("human", "assistant")[number % 2]
        made.say(sender, f"left {number}", parent=trunk)
        trunk = made.say(sender, f"kept {number}", parent=trunk or "nobody")
    return claude.read(json.dumps(made.value()).encode(), 1)


@pytest.mark.parametrize("comb", [chatgpt_comb, claude_comb])
def test_what_many_paths_share_is_looked_at_once(comb: Callable[[], Found], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    paired = tree._paired

    def counted(course: Any, piece: tree.Piece) -> Any:
        seen.append(piece.key)
        return paired(course, piece)

    monkeypatch.setattr(tree, "_paired", counted)
    talk = comb().talk
    assert len(talk.limbs) == FORKS + 1
    assert len(seen) == len(set(seen)) == sum(len(limb.entries) for limb in talk.limbs) == 2 * FORKS


@pytest.mark.parametrize("comb", [chatgpt_comb, claude_comb])
def test_a_branch_begins_where_it_leaves_the_one_that_it_is_on(comb: Callable[[], Found]) -> None:
    main, *others = comb().talk.limbs
    assert (main.name, main.source, len(main.entries)) == ("main", None, FORKS)
    assert [limb.source for limb in others] == [None, *[("main", size) for size in range(1, FORKS)]]
    assert [list(limb.metas) for limb in others] == [[place] for place in range(FORKS)]
