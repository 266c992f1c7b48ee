"""Whatever a turn was stopped at and whatever changes then, the servers accept every request at the first attempt.

Hypothesis chooses where each turn stops, and who continues: another key, account, client, model, wire, system text,
policy, other tools or another kind of thinking. The servers check every rule and verify what they have signed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from longtalk import Chat
from longtalk.errors import ContextOverflow, InputError, StreamCut, TooManyRounds, TurnFailed
from longtalk.events import Checkpoint
from longtalk.policies import KeepAll, KeepLast, TokenBudget
from tests.policies.drawn import policies
from tests.support.properties import examples
from tests.support.strict_anthropic import Fault, StrictAnthropic
from tests.support.strict_chat import StrictChat
from tests.support.strict_gemini import StrictGemini
from tests.support.strict_responses import StrictResponses

KEYS = {
    "anthropic": ("sk-ant-strict-1", "sk-ant-strict-2", "sk-ant-strict-3"),
    "gemini": ("key-1", "key-2", "key-2"),
    "openai": ("sk-one", "sk-two", "sk-two"),
    "openai-chat": ("sk-one", "sk-one", "sk-one"),
}
SDKS: dict[str, Any] = {"anthropic": anthropic.Anthropic, "openai": openai.OpenAI, "openai-chat": openai.OpenAI}
BUDGET = {"type": "enabled", "budget_tokens": 1024}


def look(q: str = "") -> str:
    """Look something up."""
    return f"about {q} " * 40


def find(q: str = "") -> str:
    """Find something."""
    return f"found {q}"


@dataclass(frozen=True)
class Setting:
    """Who continues a conversation, and with what."""

    provider: str = "anthropic"
    account: int = 0
    model: str = "one"
    system: str = "S"
    tools: tuple[Any, ...] = (look, find)
    thinking: dict[str, Any] = field(default_factory=lambda: BUDGET)
    policy: Any = field(default_factory=KeepAll)
    sdk: bool = False


@dataclass(frozen=True)
class Step:
    """A turn: how the setting changes before it, what is said, and where the turn stops."""

    change: dict[str, Any]
    text: str | None
    how: str = "send"
    after: int = 0


class Servers:
    """One strict server for each wire."""

    def __init__(self, stack: ExitStack) -> None:
        self.anthropic = stack.enter_context(StrictAnthropic())
        self.gemini = stack.enter_context(StrictGemini())
        self.openai = stack.enter_context(StrictResponses())
        self.openai_chat = stack.enter_context(StrictChat())
        self._clients: dict[tuple[str, str], Any] = {}
        stack.callback(lambda: [client.close() for client in self._clients.values()])

    @property
    def refusals(self) -> list[Any]:
        """Everything that a server has refused or dropped."""
        lists: list[list[Any]] = [self.anthropic.violations, self.anthropic.dropped, self.gemini.violations]
        lists += [self.openai.violations, self.openai.refusals, self.openai_chat.violations]
        return [refusal for refused in lists for refusal in refused]

    def open(self, setting: Setting) -> Chat:
        server = getattr(self, setting.provider.replace("-", "_"))
        url = server.url.removesuffix("/v1") if setting.provider == "anthropic" else server.url
        where = {"base_url": url, "api_key": KEYS[setting.provider][setting.account]}
        if setting.sdk and setting.provider in SDKS:
            where = {"client": self._get_client(setting.provider, where)}
        thinking = {"thinking": setting.thinking} if setting.provider == "anthropic" else {}
        return Chat(
            f"{setting.provider}:{setting.model}",
            **where,
            tools=list(setting.tools),
            policy=setting.policy,
            options=thinking,
        )

    def _get_client(self, provider: str, where: dict[str, Any]) -> Any:
        made = (provider, where["api_key"])
        if made not in self._clients:
            self._clients[made] = SDKS[provider](**where)
        return self._clients[made]

    def cut_next_stream(self, provider: str, after: int) -> None:
        if provider == "anthropic":
            self.anthropic.faults.append(Fault.cut(1 + 90 * after))
        elif provider == "openai":
            self.openai.hasty = 1 + after


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


def play(servers: Servers, steps: list[Step]) -> None:
    setting = Setting()
    state: bytes | None = None
    for number, step in enumerate(steps):
        # The servers make ids from what they read, so a message that follows a cut must differ from earlier ones.
        step = replace(step, text=step.text and f"{step.text} {number}")
        setting = replace(setting, **step.change)
        known = len(servers.refusals)
        with servers.open(setting) as chat:
            state = take_turn(servers, chat, setting, step, state)
        servers.anthropic.faults.clear()
        servers.openai.hasty = 0
        assert servers.refusals[known:] == []


def take_turn(servers: Servers, chat: Chat, setting: Setting, step: Step, state: bytes | None) -> bytes | None:
    try:
        if step.text is None or step.how == "send":
            return chat.send(step.text, state=state, system=setting.system).state
        if step.how == "max_rounds":
            return chat.send(step.text, state=state, system=setting.system, max_rounds=step.after % 3).state
        if step.how == "cut":
            servers.cut_next_stream(setting.provider, step.after)
        with chat.stream(step.text, state=state, system=setting.system) as stream:
            for number, event in enumerate(stream):
                if step.how == "crash" and isinstance(event, Checkpoint) and number >= step.after:
                    return event.state
                if step.how == "stop" and number == step.after:
                    break
        return stream.reply.state
    except (InputError, ContextOverflow):
        # Nothing is left to continue, the turn has to end on another wire, or the message is too long.
        return state
    except (StreamCut, TooManyRounds) as problem:
        return problem.state
    except TurnFailed as problem:
        assert step.how == "cut", problem
        return problem.state


_flags = st.sampled_from(
    ["", "#think", "#tool", "#tools", "#think #tool #tool", "#tools #tool", "#redacted #tool", "#pause"]
)
_changes = st.fixed_dictionaries(
    {},
    optional={
        "provider": st.sampled_from(["anthropic", "anthropic", "gemini", "openai", "openai-chat"]),
        "account": st.sampled_from([0, 1, 2]),
        "sdk": st.booleans(),
        "model": st.sampled_from(["one", "two"]),
        "system": st.sampled_from(["S", "Other."]),
        "tools": st.sampled_from([(look, find), (find, look)]),
        "thinking": st.sampled_from([BUDGET, {"type": "adaptive"}, {"type": "disabled"}]),
        "policy": policies,
    },
)
_steps = st.builds(
    Step,
    _changes,
    st.one_of(st.none(), _flags.map(lambda flags: f"{flags} Where is Ada?")),
    st.sampled_from(["send", "stop", "stop", "crash", "cut", "max_rounds"]),
    st.integers(0, 30),
)
_stopped = Step({}, "#think #tool #tool Where is Ada?", "max_rounds", 1)
_crashed = Step({}, "#think #tool #tool Where is Ada?", "crash", 2)


@examples(60, 600)
@given(st.lists(_steps, min_size=2, max_size=6))
@example([_stopped, Step({"account": 1}, "And now?")])
@example([_stopped, Step({"account": 2}, "And now?"), Step({"account": 0}, "#tool And then?")])
@example([_stopped, Step({"sdk": True}, "And now?"), Step({"sdk": False}, "#tool And then?")])
@example([_crashed, Step({"sdk": True}, None)])
@example([replace(_crashed, change={"sdk": True}), Step({"sdk": False}, None)])
@example([_crashed, Step({"account": 2}, None)])
@example([_stopped, Step({"model": "two"}, "And now?"), Step({}, "#tool And then?")])
@example([_stopped, Step({"system": "Other."}, "#tool And now?"), Step({"system": "S"}, "And then?")])
@example([Step({"thinking": {"type": "disabled"}}, "#tool x", "max_rounds"), Step({"thinking": BUDGET}, "And now?")])
@example([Step({"provider": "openai"}, "#tool x", "max_rounds"), Step({"provider": "anthropic"}, "And now?")])
@example([_crashed, Step({"account": 1}, None)])
@example([_crashed, Step({"policy": KeepLast(1), "model": "two"}, None)])
@example([_crashed, Step({"provider": "gemini"}, None)])
@example([Step({}, "#pause x", "max_rounds"), Step({}, "And now?"), Step({}, "#think And then?"), Step({}, "Well?")])
@example([Step({}, "#think #pause x", "crash"), Step({}, "#tool And now?")])
@example([Step({}, "#think #pause x", "crash"), Step({}, None)])
@example([Step({"provider": "gemini"}, "#tools x", "crash", 3), Step({"model": "two"}, None)])
@example([Step({"provider": "openai"}, "#think Hello, is anybody there?", "cut", 8), Step({}, "And now?")])
def test_after_any_stop_and_any_change_every_request_is_accepted(servers: Servers, steps: list[Step]) -> None:
    play(servers, steps)


@pytest.mark.parametrize("thinking", [BUDGET, {"type": "adaptive"}])
@pytest.mark.parametrize("policy", [TokenBudget(900, to=450), KeepLast(3, to=1), TokenBudget(700)])
def test_a_cut_in_the_middle_of_a_turn_repeats_no_call(servers: Servers, policy: Any, thinking: dict[str, Any]) -> None:
    ran = []

    def order(q: str = "") -> str:
        """Order one."""
        ran.append(q)
        return f"ordered number {len(ran)} " * 40

    known = len(servers.refusals)
    state: bytes | None = None
    with servers.open(Setting(policy=policy, thinking=thinking, tools=(order,))) as chat:
        for turn in range(5):
            state = chat.send(f"Hello {turn}. " * 8, state=state).state
        reply = chat.send("#tool #tool #tool #tool #tool Order five.", state=state, max_rounds=12)
    assert reply.finish_reason == "stop"
    assert len(ran) == 5
    assert servers.refusals[known:] == []
    assert any(run.verdict == "left_out" for run in reply.context.manifest) if reply.context else False


def test_thinking_is_back_as_soon_as_the_tool_use_without_it_has_ended(servers: Servers) -> None:
    with servers.open(Setting()) as chat, pytest.raises(TooManyRounds) as caught:
        chat.send("#tool Where?", max_rounds=0)
    seen = len(servers.anthropic.requests)
    with servers.open(Setting(account=1)) as chat:
        one = chat.send("#tool And now?", state=caught.value.state)
        chat.send("And then?", state=one.state)
    sent = [servers.anthropic.body(i)["thinking"] for i in range(seen, len(servers.anthropic.requests))]
    assert sent == [{"type": "disabled"}, {"type": "disabled"}, BUDGET]
