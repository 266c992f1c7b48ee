"""Whatever happens, a provider that keeps the conversation sees this branch of it, and no other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Chat, Reply, TurnFailed
from longtalk.policies import KeepAll, KeepLast, Policy, TokenBudget
from longtalk.state.codec import decode
from longtalk.testing import Scripted, says, validate
from longtalk.wires import HTTP_WIRES, NAMES, WIRES
from longtalk.wires.entries import view_entry
from tests.support.properties import examples
from tests.support.strict_responses import KEY, OTHER_KEY, StrictResponses

WAYS = ("previous_response_id", "conversation")
POLICIES: tuple[Policy, ...] = (KeepAll(), KeepLast(2), TokenBudget(400))
FORGOTTEN = ("Previous response with id", "Item with id", "Another process", "exceeds the context window")

flags = st.sampled_from(["", "#think", "#tool", "#think #tools", "#search", "#refuse", "#long", "#odd #think"])
steps = st.one_of(
    st.tuples(st.just("send"), flags),
    st.tuples(st.just("stream"), flags),
    st.tuples(st.just("close"), flags, st.integers(0, 8)),
    st.tuples(st.just("cut"), flags, st.integers(1, 12)),
    st.tuples(st.just("note")),
    st.tuples(st.just("forget")),
    st.tuples(st.just("other"), st.sampled_from(sorted(HTTP_WIRES)), st.booleans()),
    st.tuples(st.just("old"), st.integers(0, 9)),
    st.tuples(st.just("policy"), st.integers(0, len(POLICIES) - 1)),
    st.tuples(st.just("way"), st.sampled_from(WAYS)),
    st.tuples(st.just("key"), st.sampled_from([KEY, OTHER_KEY])),
)


def lookup(q: str = "") -> str:
    """Look something up."""
    return f"about {q}"


def fetch(q: str = "") -> str:
    """Fetch something."""
    return f"fetched {q}"


class Player:
    """Plays steps on one conversation, and looks at each request."""

    def __init__(self, server: StrictResponses, way: str) -> None:
        self._server = server
        self._way, self._key, self._policy = way, KEY, POLICIES[0]
        self._states: list[bytes | None] = [None]
        self._number = 0

    def play(self, step: Any) -> None:
        kind, *how = step
        if kind in ("send", "stream", "close", "cut"):
            self._talk(kind, *how)
        elif kind == "forget":
            self._server.forget()
        elif kind == "old":
            self._states.append(self._states[-1 - how[0] % len(self._states)])
        elif kind == "policy":
            self._policy = POLICIES[how[0]]
        elif kind == "way":
            self._way = how[0]
        elif kind == "key":
            self._key = how[0]
        elif kind == "note":
            with Chat(Scripted()) as chat:
                self._states.append(chat.note(self._words("note"), state=self._states[-1]))
        else:
            self._talk_to_another(*how)

    def _words(self, flags: str) -> str:
        self._number += 1
        return f"{flags} word-{self._number}"

    def _chat(self) -> Chat:
        settings: Any = {"tools": [lookup, fetch], "policy": self._policy, "options": {self._way: "auto"}}
        return Chat("openai:gpt-strict", base_url=self._server.url, api_key=self._key, **settings)

    def _talk(self, kind: str, flags: str, after: int = 0) -> None:
        words, state = self._words(flags), self._states[-1]
        with self._chat() as chat:
            if kind == "send":
                self._look(chat.send(words, state=state))
            elif kind == "stream":
                self._look(list(chat.stream(words, state=state))[-1].reply)  # type: ignore[union-attr]
            elif kind == "cut":
                self._server.hasty = after
                try:
                    self._look(list(chat.stream(words, state=state))[-1].reply)  # type: ignore[union-attr]
                except TurnFailed as problem:
                    self._states.append(problem.state)
                self._server.hasty = 0
            else:
                with chat.stream(words, state=state) as stream:
                    for _ in range(after):
                        next(stream, None)
                self._states.append(stream.reply.state)

    def _talk_to_another(self, wire: str, calls: bool) -> None:
        told = [says("Well.", wire=wire)]
        if calls:
            name = "functions.lookup:0" if wire == "openai-chat" else f"call-{self._number}"
            told.insert(0, says(None, calls=[(name, "lookup", {"q": "x"})], wire=wire))
        provider = Scripted(*told, wire=WIRES[wire])
        with Chat(provider, tools=[lookup], policy=self._policy) as chat:
            self._states.append(chat.send(self._words("other"), state=self._states[-1]).state)
        for body in provider.requests:
            validate(body, wire=wire)

    def _look(self, reply: Reply) -> None:
        """What the model has read is what the manifest says, and what was said on this branch."""
        self._states.append(reply.state)
        assert reply.context is not None
        runs = reply.context.manifest
        assert [run.first for run in runs] == [0, *(run.last + 1 for run in runs[:-1])]
        entries = list(decode(reply.state, wires=NAMES))
        there = [i for run in runs if run.verdict in ("sent", "held") for i in range(run.first, run.last + 1)]
        told = [view_entry(entries[i]).text for i in there if entries[i].role == "user"]
        read = [item["content"] for item in self._server.seen() if item.get("role") == "user"]
        assert [text for text in read if not text.startswith("<")] == told


def played(way: str, drawn: list[Any]) -> None:
    with StrictResponses() as server:
        player = Player(server, way)
        for step in drawn:
            player.play(step)
        player.play(("send", "#tool"))
        player.play(("send", ""))
        assert server.violations == []
        assert [what for what in server.refusals if not what.startswith(FORGOTTEN)] == []


@pytest.mark.parametrize("way", WAYS)
@examples(12, 18)
@given(st.lists(steps, max_size=8))
def test_whatever_happens_the_model_reads_this_branch(way: str, drawn: list[Any]) -> None:
    played(way, drawn)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@examples(35, 160)
@given(st.lists(steps, min_size=6, max_size=20))
def test_whatever_happens_for_long_the_model_reads_this_branch(way: str, drawn: list[Any]) -> None:
    played(way, drawn)
