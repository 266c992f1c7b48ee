"""Check policies on recorded conversations: `python -m bench.traces [FILE] [--limit N]`.

FILE is a JSON list of `{"traj": [OpenAI chat messages]}`, as τ-bench writes them. Without it, similar conversations are
generated, the same ones in every run. Each is replayed on every HTTP wire under policies that cut often, and a request
is composed at every point where the model answered. `longtalk.testing.policies` validates every request, checks every
limit, and checks that every entry has one verdict. The table compares what each policy sends with sending everything.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from longtalk.errors import ContextOverflow
from longtalk.policies import (
    AllOf,
    AnyOf,
    Combine,
    Compactor,
    DigestTools,
    DropOldest,
    Economy,
    KeepAll,
    KeepLast,
    KeepMessages,
    OverExchanges,
    OverMessages,
    OverTokens,
    Summarize,
    TokenBudget,
    WindowShare,
)
from longtalk.testing.policies import Played, check_policy, transcript_of
from longtalk.wires import HTTP_WIRES
from longtalk.wires.protocol import Preamble

POLICIES: dict[str, Any] = {
    "keep all": KeepAll(),
    "last 4 exchanges": KeepLast(4),
    "last 3, sliding": KeepLast(3, sliding=True),
    "last 1": KeepLast(1),
    "12 messages": KeepMessages(12),
    "8 messages, sliding": KeepMessages(8, sliding=True),
    "1,500 tokens": TokenBudget(1_500),
    "1,500 tokens, to 1,200": TokenBudget(1_500, to=1_200),
    "1,000 tokens, sliding": TokenBudget(1_000, sliding=True),
    "1,500 tokens, digests": TokenBudget(1_500, digest=DigestTools()),
    "1,000 tokens, early digests": TokenBudget(1_000, to=800, digest=DigestTools(keep=1)),
    "300 tokens, digests": TokenBudget(300, digest=DigestTools(keep=1, longest=100)),
    "5% of the window": WindowShare(0.05, to=0.02),
    "5% of the window, digests": WindowShare(0.05, to=0.03, digest=DigestTools(longest=200)),
    "last 5 and 1,200 tokens": Combine(KeepLast(5), TokenBudget(1_200)),
    "10 messages, 1,000 tokens, last 6": Combine(
        KeepMessages(10, to=8), TokenBudget(1_000, digest=DigestTools(keep=1)), KeepLast(6, sliding=True)
    ),
    "any of 3 limits": Compactor(
        AnyOf(OverExchanges(5), OverMessages(14), OverTokens(1_500)),
        (DigestTools(keep=1), DropOldest()),
        AnyOf(OverExchanges(3), OverMessages(8), OverTokens(900)),
    ),
    "summary over 1,500": Summarize(1_500, length=200),
    "economy": Economy(length=200),
    "all of 2 limits": Compactor(AllOf(OverExchanges(2), OverTokens(800)), (DropOldest(),), OverExchanges(1)),
}
MAX_PRINTED = 5
"""The number of violations that are printed."""

Message = dict[str, Any]


# Conversations


def read_conversations(path: Path) -> list[list[Message]]:
    """Return the conversations of a file."""
    return [each["traj"] for each in json.loads(path.read_text())]


def generate_conversations(number: int = 12) -> list[list[Message]]:
    """Return conversations with an airline's assistant that looks things up in long records."""
    return [_generate_conversation(random.Random(seed)) for seed in range(number)]


_CITIES = ("Boston", "Denver", "Lisbon", "Osaka", "Quito", "Turin", "Zürich")
_TOOLS = ("get_user_details", "get_reservation_details", "search_direct_flight", "update_reservation", "calculate")


def _generate_conversation(source: random.Random) -> list[Message]:
    messages: list[Message] = [{"role": "system", "content": "You are a clerk of an airline. " + "Ask first. " * 40}]
    number = 0
    for _ in range(source.randint(4, 14)):
        start, end = source.sample(_CITIES, 2)
        wish = f"I want to fly from {start} to {end}, for at most {source.randint(80, 900)}. "
        messages.append({"role": "user", "content": wish * source.choice((1, 1, 1, 3))})
        for _ in range(source.choice((0, 0, 1, 1, 2, 4))):
            calls = []
            for _ in range(source.choice((1, 1, 1, 2, 3))):
                number += 1
                arguments = json.dumps({"origin": start, "destination": end, "id": f"R{number:05}"})
                function = {"name": source.choice(_TOOLS), "arguments": arguments}
                calls.append({"id": f"call_{number}", "type": "function", "function": function})
            said = source.choice((None, None, "Let me see."))
            messages.append({"role": "assistant", "content": said, "tool_calls": calls})
            for call in calls:
                flights = [_generate_flight(source, start, end) for _ in range(source.choice((0, 1, 4, 20)))]
                text = json.dumps({"flights": flights}) if flights else ""
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        messages.append({"role": "assistant", "content": f"There is a seat to {end}. " * source.randint(1, 8)})
    return messages


def _generate_flight(source: random.Random, start: str, end: str) -> Message:
    seats = {cabin: source.randint(0, 30) for cabin in ("basic_economy", "economy", "business")}
    price = {cabin: source.randint(50, 900) for cabin in seats}
    number = f"HAT{source.randint(1, 300):03}"
    return {"flight_number": number, "origin": start, "destination": end, "seats": seats, "prices": price}


def split_system(messages: Sequence[Message]) -> tuple[str | None, list[Message]]:
    """Return the system text at the start of a conversation, and the other messages."""
    if messages and messages[0]["role"] == "system":
        return messages[0]["content"], list(messages[1:])
    return None, list(messages)


def to_wire(messages: Iterable[Message], wire: str) -> list[bytes]:
    """Return the messages in the form of a wire."""
    if wire == "openai-chat":
        return [json.dumps(message).encode() for message in messages]
    if wire == "gemini":
        called: dict[str, str] = {}
        return [_to_gemini(message, called) for message in messages]
    convert = {"anthropic": _to_anthropic, "openai-responses": _to_openai_responses}[wire]
    ids: dict[str, str] = {}
    numbers = itertools.count(1)
    return [convert(message, ids, numbers) for message in messages]


def _to_gemini(message: Message, called: dict[str, str]) -> bytes:
    """Return a message in Gemini's form, and add the tool names of its calls to `called`, by call id."""
    wire = HTTP_WIRES["gemini"]
    if message["role"] == "user":
        return wire.write_user(message["content"])
    if message["role"] == "tool":
        call = message["tool_call_id"]
        return wire.write_result(call, message["content"] or "", error=False, name=called[call])
    parts: list[Message] = [{"text": message["content"]}] if message.get("content") else []
    for call in message.get("tool_calls") or ():
        name, given = call["function"]["name"], json.loads(call["function"]["arguments"])
        called[call["id"]] = name
        parts.append({"functionCall": {"id": call["id"], "name": name, "args": given}})
    return json.dumps({"role": "model", "parts": parts}).encode()


def _to_anthropic(message: Message, ids: dict[str, str], numbers: Iterator[int]) -> bytes:
    """Return a message in Anthropic's form, with new call ids, because some files repeat ids."""
    wire = HTTP_WIRES["anthropic"]
    if message["role"] == "user":
        return wire.write_user(message["content"])
    if message["role"] == "tool":
        return wire.write_result(ids.pop(message["tool_call_id"]), message["content"] or "", error=False)
    blocks: list[Message] = []
    if message.get("content"):
        blocks.append({"type": "text", "text": message["content"]})
    for call in message.get("tool_calls") or ():
        name = ids[call["id"]] = f"toolu_{next(numbers)}"
        given = json.loads(call["function"]["arguments"])
        blocks.append({"type": "tool_use", "id": name, "name": call["function"]["name"], "input": given})
    return json.dumps({"role": "assistant", "content": blocks}).encode()


def _to_openai_responses(message: Message, ids: dict[str, str], numbers: Iterator[int]) -> bytes:
    """Return a message in the form of the Responses wire, with new call ids."""
    wire = HTTP_WIRES["openai-responses"]
    if message["role"] == "user":
        return wire.write_user(message["content"])
    if message["role"] == "tool":
        return wire.write_result(ids.pop(message["tool_call_id"]), message["content"] or "", error=False)
    items: list[Message] = []
    if message.get("content"):
        content = [{"type": "output_text", "text": message["content"], "annotations": []}]
        items.append({"type": "message", "role": "assistant", "content": content})
    for call in message.get("tool_calls") or ():
        name = ids[call["id"]] = f"call_{next(numbers)}"
        items.append({"type": "function_call", "call_id": name, **call["function"]})
    return json.dumps({"output": items}).encode()


# Checks


def check_policies(conversations: Sequence[Sequence[Message]]) -> tuple[dict[tuple[str, str], Played], list[str]]:
    """Replay the conversations, and return the totals of each policy on each wire, and the violations."""
    results: dict[tuple[str, str], Played] = {}
    violations: list[str] = []
    for wire in sorted(HTTP_WIRES):
        prepared = []
        for messages in conversations:
            system, others = split_system(messages)
            prepared.append((Preamble(system=system), transcript_of(to_wire(others, wire), wire=wire)))
        for name, policy in POLICIES.items():
            total = results[name, wire] = Played()
            for number, (preamble, transcript) in enumerate(prepared):
                try:
                    played = check_policy(policy, transcript, wire=wire, preamble=preamble)
                except (AssertionError, ContextOverflow) as problem:
                    violations.append(f"{name} on {wire}, conversation {number}: {problem}")
                    continue
                total.requests += played.requests
                total.epochs += played.epochs
                total.tokens += played.tokens
    return results, violations


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its figures and goals."""
    parser = argparse.ArgumentParser(description="Check policies on recorded conversations.")
    parser.add_argument("file", nargs="?", type=Path, help='a JSON list of {"traj": [OpenAI chat messages]}')
    parser.add_argument("--limit", type=int, help="use at most this many conversations")
    given = parser.parse_args(arguments)
    conversations = (read_conversations(given.file) if given.file else generate_conversations())[: given.limit]
    results, violations = check_policies(conversations)
    messages = sum(map(len, conversations))
    print(f"{len(conversations)} conversations of {messages:,} messages, with a request at each answer.\n")
    print(f"{'policy':36}{'wire':18}{'requests':>10}{'epochs':>8}{'tokens':>14}{'of keep all':>13}")
    for (name, wire), played in results.items():
        share = played.tokens / max(1, results["keep all", wire].tokens)
        print(f"{name:36}{wire:18}{played.requests:10,}{played.epochs:8,}{played.tokens:14,}{share:13.0%}")
    for text in violations[:MAX_PRINTED]:
        print(f"\nViolation: {text[:600]}")
    idle = [name for (name, _), played in results.items() if name != "keep all" and not played.epochs]
    goals = [
        {"name": "violations", "value": len(violations), "goal": 0, "met": not violations},
        {"name": "policies that never cut", "value": len(idle), "goal": 0, "met": not idle},
    ]
    print(json.dumps({"bench": "traces", "goals": goals}))


if __name__ == "__main__":
    main()
