"""Hypothesis strategies for any policy and any conversation."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from longtalk.memory.brief.schema import Brief
from longtalk.policies import (
    AllOf,
    AnyOf,
    Combine,
    Compactor,
    CutCurrent,
    DigestTools,
    DropOldest,
    Economy,
    KeepAll,
    KeepLast,
    KeepMessages,
    Memory,
    OverExchanges,
    OverMessages,
    OverTokens,
    OverWindow,
    Summarize,
    SummarizeOldest,
    TokenBudget,
    WindowShare,
)
from longtalk.testing import says
from longtalk.tokens import Estimator, count_message
from longtalk.transcript.transcript import Entry, Transcript
from longtalk.wires import WIRES
from longtalk.wires.entries import make_closing_result
from longtalk.wires.neutral import event, system

# Policies


@st.composite
def _counting(draw: st.DrawFn, kind: Any, least: int, most: int, **of: Any) -> Any:
    """Draw a policy with a limit that cuts to half of it, cuts to a target, or slides."""
    limit = draw(st.integers(least, most))
    how = draw(st.sampled_from(["half", "to", "sliding"]))
    if how == "to":
        return kind(limit, to=draw(st.integers(1, limit)), **of)
    return kind(limit, sliding=how == "sliding", **of)


_digests = st.builds(DigestTools, keep=st.integers(1, 3), longest=st.integers(5, 200))
_shares = st.floats(0.001, 0.05)
_triggers = st.recursive(
    st.one_of(
        st.builds(OverExchanges, st.integers(1, 5)),
        st.builds(OverMessages, st.integers(1, 12)),
        st.builds(OverTokens, st.integers(20, 800)),
        st.builds(OverWindow, _shares),
    ),
    lambda inner: st.builds(
        lambda kind, triggers: kind(*triggers), st.sampled_from([AnyOf, AllOf]), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=4,
)


@st.composite
def _compactors(draw: st.DrawFn) -> Compactor:
    """Draw a custom compactor. Only strategies that leave out whole exchanges can meet any target."""
    over = draw(_triggers)
    others = draw(st.lists(st.one_of(_digests, st.just(CutCurrent())), max_size=2))
    return Compactor(over, (*others, DropOldest(), *draw(st.sampled_from([(), (CutCurrent(),)]))), over)


_single = st.one_of(
    st.just(KeepAll()),
    _counting(KeepLast, 1, 5),
    _counting(KeepMessages, 1, 12),
    st.one_of(st.none(), _digests).flatmap(lambda digest: _counting(TokenBudget, 20, 800, digest=digest)),
    st.builds(WindowShare, _shares, to=st.sampled_from([None, 0.001]), digest=st.one_of(st.none(), _digests)),
    _compactors(),
    st.builds(lambda over, length: Summarize(over, length=length), st.integers(120, 900), st.sampled_from([50, 55])),
    st.builds(Economy, length=st.sampled_from([50, 200])),
    st.builds(
        Memory,
        brief=st.builds(Brief, st.sampled_from([20, 60, 200])),
        outline=st.sampled_from([0, 30, 100]),
        recent=st.sampled_from([0, 50, 300]),
        recall=st.just(0),
        limit=st.sampled_from([0, 100, 500, 2_000]),
    ),
    st.builds(
        lambda limit, keep: Compactor(OverTokens(limit), (SummarizeOldest(length=50, keep=keep),), OverTokens(limit)),
        st.integers(80, 800),
        st.integers(0, 3),
    ),
)
policies: st.SearchStrategy[Any] = st.one_of(
    _single,
    _single,
    st.recursive(
        st.lists(_single, min_size=2, max_size=3).map(lambda several: Combine(*several)),
        lambda inner: st.lists(st.one_of(_single, inner), min_size=1, max_size=3).map(lambda some: Combine(*some)),
        max_leaves=2,
    ),
)

# Conversations

_texts = st.builds(
    lambda word, times: f"{word} " * times,
    st.sampled_from(["word", 'a<b>&"c"', "日本語", '{"k": [1, 2]}', "é\n"]),
    st.sampled_from([1, 1, 5, 30, 200]),
)


_THOUGHTS = {"anthropic": "thinking", "gemini": "thinking", "openai-responses": "reasoning"}
_EMPTY = {
    "openai-chat": b'{"role":"assistant","content":null}',
    "anthropic": b'{"role":"assistant","content":[]}',
    "openai-responses": b'{"output":[]}',
    "gemini": b'{"role":"model","parts":[]}',
}


@st.composite
def traces(draw: st.DrawFn, wire: str) -> Transcript:
    """Draw a conversation as it may have taken place."""
    transcript = Transcript()
    number = 0

    def add(turn: str, entry: Entry) -> None:
        nonlocal transcript
        entry = msgspec.structs.replace(entry, tokens=count_message(entry.native, Estimator()))
        transcript = transcript.append_to_turn(turn, [entry])

    def answer(turn: str, text: str | None, calls: list[Any], mark: str = "") -> None:
        fields: dict[str, Any] = {}
        if wire in _THOUGHTS and draw(st.booleans()):
            fields[_THOUGHTS[wire]] = [draw(_texts)]
        native = WIRES[wire].parse(says(text, calls=calls, fields=fields, wire=wire).body).native
        assert native is not None
        add(turn, Entry(role="assistant", wire=wire, native=native, at=0, mark=mark))

    for n in range(draw(st.integers(1, 7))):
        turn = f"t{n}"
        for i in range(draw(st.sampled_from([0, 0, 0, 1, 2, 9]))):
            add(f"e{n}x{i}", event(draw(_texts), source="app", at=0))
        if draw(st.integers(0, 5)) == 0:
            add(turn, system(draw(_texts), at=0))
        add(turn, Entry(role="user", wire=wire, native=WIRES[wire].write_user(draw(_texts)), at=0))
        for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 3]))):
            calls = []
            for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
                number += 1
                tool = draw(st.sampled_from(["look", "see"])) if wire == "gemini" else "look"
                calls.append((f"call_{number}", tool, {"q": draw(_texts)}))
            answer(turn, draw(st.none() | _texts), calls)
            for name, tool, _ in draw(st.permutations(calls)):
                native = WIRES[wire].write_result(name, draw(_texts), error=False, name=tool)
                result = Entry(role="tool", wire=wire, native=native, at=0)
                closed = make_closing_result(WIRES[wire], name, "Not run.", at=0, name=tool)
                add(turn, draw(st.sampled_from([result, result, closed])))
        match draw(st.sampled_from(["said", "said", "said", "empty", "interrupted", "nothing"])):
            case "said":
                answer(turn, draw(_texts), [])
            case "interrupted":
                answer(turn, draw(_texts), [], "interrupted")
            case "empty":
                add(turn, Entry(role="assistant", wire=wire, native=_EMPTY[wire], at=0, mark="empty"))
    return transcript
