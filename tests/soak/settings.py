"""Who answers in a turn, and with what: provider, account, model, system text, tools, policy, window, client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from longtalk import AsyncChat, AsyncConversation, Brief, Chat, Conversation, Recall, ToolContext, external_tool, tool
from longtalk.policies import (
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
    OverTokens,
    Summarize,
    SummarizeOldest,
    TokenBudget,
    WindowShare,
)
from tests.soak.servers import KEYS, PROVIDERS

WIRES = {
    "anthropic": "anthropic",
    "gemini": "gemini",
    "openai": "openai-responses",
    "openai-chat": "openai-chat",
}
BUDGET = {"type": "enabled", "budget_tokens": 1024}
TOOLS = ("look", "find", "fail", "pay")
IDEMPOTENT = ("find",)
NAMES = (
    *("provider", "provider", "account", "model", "system", "tools", "thinking", "policy", "policy", "window"),
    *("client", "retries"),
)
"""What changes: the names of a setting's values, some of them more often."""


@dataclass(frozen=True)
class Setting:
    """The arguments of a chat or a conversation. It can be pickled for another process."""

    provider: str = "anthropic"
    account: int = 0
    model: str = "one"
    system: str | None = "Be kind."
    tools: tuple[str, ...] = ("look", "find")
    thinking: Mapping[str, Any] = field(default_factory=lambda: BUDGET)
    policy: Any = field(default_factory=KeepAll)
    window: int | None = None
    client: str = ""
    retries: int = 0

    @property
    def wire(self) -> str:
        return WIRES[self.provider]


def change(rng: Random, setting: Setting) -> Setting:
    """Return the setting with one or two other values."""
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice(NAMES)
        setting = replace(setting, **{name: _draw_value(rng, name)})
    return setting


def _draw_value(rng: Random, name: str) -> Any:
    match name:
        case "provider":
            return rng.choice(PROVIDERS)
        case "account":
            return rng.randrange(3)
        case "model":
            return rng.choice(["one", "two"])
        case "system":
            return rng.choice([None, "Be kind.", "Answer in verse. " * 5])
        case "tools":
            return tuple(rng.sample(TOOLS, rng.randrange(5)))
        case "thinking":
            return rng.choice([BUDGET, {"type": "adaptive"}, {"type": "disabled"}])
        case "window":
            return rng.choice([None, None, 3_000, 8_000, 200_000])
        case "client":
            return rng.choice(["", "", "httpx", "sdk"])
        case "retries":
            return rng.choice([0, 0, 0, 1])
    return draw_policy(rng)


def draw_policy(rng: Random, depth: int = 0) -> Any:
    """Return any policy."""
    kinds = ["all", "last", "messages", "budget", "share", "compactor", "summarize", "economy", "memory", "memory"]
    match rng.choice([*kinds, "combine"] if not depth else kinds):
        case "last":
            return KeepLast(rng.randint(1, 5), sliding=rng.random() < 0.3)
        case "messages":
            return KeepMessages(rng.randint(1, 12), sliding=rng.random() < 0.3)
        case "budget":
            return TokenBudget(rng.randint(60, 2_000), digest=rng.choice([None, _draw_digest(rng)]))
        case "share":
            return WindowShare(rng.choice([0.01, 0.05, 0.5]), digest=rng.choice([None, _draw_digest(rng)]))
        case "compactor":
            over = rng.choice([OverExchanges(rng.randint(1, 4)), OverTokens(rng.randint(60, 1_500))])
            over = rng.choice([over, AnyOf(over, OverExchanges(5))])
            strategies = rng.choice([(DropOldest(),), (_draw_digest(rng), DropOldest()), (DropOldest(), CutCurrent())])
            return Compactor(over, strategies, over)
        case "summarize":
            over = rng.randint(150, 1_500)
            if rng.random() < 0.3:
                return Compactor(
                    OverTokens(over), (SummarizeOldest(length=50, keep=rng.randint(0, 3)),), OverTokens(over)
                )
            return Summarize(over, length=50)
        case "economy":
            return Economy(length=rng.choice([50, 200]))
        case "memory":
            return Memory(
                brief=Brief(rng.choice([20, 60, 200])),
                outline=rng.choice([0, 30, 100]),
                recent=rng.choice([0, 50, 300, 1_500]),
                recall=rng.choice([0, 200, Recall(500, gate=False), Recall(300, gate=False, meaning=True)]),
                limit=rng.choice([0, 100, 500, 2_000]),
                capture=rng.choice(["sentinel", "sentinel", "tool"]),
            )
        case "combine":
            return Combine(*(draw_policy(rng, 1) for _ in range(rng.choice([2, 2, 3]))))
    return KeepAll()


def _draw_digest(rng: Random) -> DigestTools:
    return DigestTools(keep=rng.randint(1, 3), longest=rng.choice([5, 50, 200]))


class Opener:
    """What opens chats and conversations with a setting: the servers' addresses, a log of tool runs, SDK clients."""

    def __init__(self, urls: Mapping[str, str], tool_log: Path) -> None:
        self._urls = urls
        self._tool_log = tool_log
        self._clients: dict[tuple[str, str, int, bool], Any] = {}

    def open_chat(self, setting: Setting, *, is_async: bool = False, **more: Any) -> Any:
        kind: Any = AsyncChat if is_async else Chat
        return kind(f"{setting.provider}:{setting.model}", **self._get_arguments(setting, "state", is_async), **more)

    def open_talk(
        self, setting: Setting, store: Any, owner: str, name: str, branch: str, *, is_async: bool = False, **more: Any
    ) -> Any:
        kind: Any = AsyncConversation if is_async else Conversation
        arguments = self._get_arguments(setting, f"{owner}/{name}", is_async)
        model = f"{setting.provider}:{setting.model}"
        return kind(name, model=model, owner=owner, store=store, branch=branch, **arguments, **more)

    def _get_arguments(self, setting: Setting, whose: str, is_async: bool) -> dict[str, Any]:
        options = {"thinking": setting.thinking} if setting.provider == "anthropic" else {}
        client = self._get_client(setting, is_async)
        where = {"base_url": self._urls[setting.provider], "api_key": KEYS[setting.provider][setting.account]}
        return {
            "policy": setting.policy,
            "window": setting.window,
            "max_retries": setting.retries,
            "options": options,
            "tools": make_tools(setting.tools, whose, self._tool_log),
            **({"client": client} if client is not None else {}),
            **({} if client is not None and setting.client == "sdk" else where),
        }

    def _get_client(self, setting: Setting, is_async: bool) -> Any:
        """Return a client of the application, or None. An async one belongs to one event loop, so it is not kept."""
        if not setting.client or is_async or (setting.client == "sdk" and setting.provider == "gemini"):
            return None
        key = (setting.client, setting.provider, setting.account, is_async)
        if key not in self._clients:
            self._clients[key] = self._make_client(setting)
        return self._clients[key]

    def _make_client(self, setting: Setting) -> Any:
        import httpx2

        if setting.client == "httpx":
            return httpx2.Client()
        where = {"base_url": self._urls[setting.provider], "api_key": KEYS[setting.provider][setting.account]}
        if setting.provider == "anthropic":
            import anthropic

            return anthropic.Anthropic(**where)  # type: ignore[arg-type]
        import openai

        return openai.OpenAI(**where)  # type: ignore[arg-type]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def make_tools(names: tuple[str, ...], whose: str, log: Path) -> list[Any]:
    """Return these tools. Each run of a function is a line in the log, which survives a kill."""

    def write(context: ToolContext) -> None:
        line = f"{context.name}\t{whose}\t{context.turn}\t{context.call_id}\n"
        file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def look(context: ToolContext, q: str = "") -> str:
        """Look something up."""
        write(context)
        return f"about {q} " * 30

    def find(context: ToolContext, q: str = "") -> str:
        """Find something."""
        write(context)
        return f"found {q}"

    def fail(context: ToolContext, q: str = "") -> str:
        """Fail."""
        write(context)
        raise ValueError(f"no {q}")

    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    made = {
        "look": look,
        "find": tool(find, idempotent=True),
        "fail": fail,
        "pay": external_tool("pay", "Pay a bill.", schema),
    }
    return [made[name] for name in names]


def list_budgets(policy: Any) -> list[int]:
    """Return the limits in tokens that a policy states for the whole request."""
    inner = policy.policies if isinstance(policy, Combine) else (policy,)
    return [each.limit for each in inner if isinstance(each, TokenBudget)]
