"""Memory cards in the messages of each wire: wherever their text is, no view has one at its end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from longtalk.transcript.transcript import Entry
from longtalk.wires import WIRES
from longtalk.wires.agents.wire import AgentWire
from longtalk.wires.convert import CallIdMap, convert_entry
from longtalk.wires.protocol import Answer, Quirks
from tests.support.cards import CARD, CLOSE, CONTENT, OPEN
from tests.wires.agents.test_wire import EACH, assistant, played, whole

CUT = ["Play ", f"a scale.{OPEN}", CONTENT, f"{CLOSE}", "\n"]
"""A text with a card, as it may be split into parts."""


def written(value: Any) -> bytes:
    return json.dumps(value).encode()


def parts(kind: str, texts: list[str]) -> list[dict[str, Any]]:
    return [{"type": kind, "text": text} for text in texts]


def message(texts: list[str]) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": parts("output_text", texts)}


THOUGHT: dict[str, Any] = {"type": "thinking", "thinking": "x", "signature": "s"}
SPLIT = {
    "openai-chat": [{"role": "assistant", "content": parts("text", CUT)}],
    "anthropic": [
        {"role": "assistant", "content": parts("text", CUT)},
        {"role": "assistant", "content": [*parts("text", CUT[:2]), THOUGHT, *parts("text", CUT[2:])]},
        {"role": "assistant", "content": "".join(CUT)},
    ],
    "gemini": [
        {"role": "model", "parts": [{"text": text} for text in CUT]},
        {
            "role": "model",
            "parts": [*({"text": text} for text in CUT), {"text": OPEN, "thought": True}, {"functionCall": {}}],
        },
    ],
    "openai-responses": [{"output": [message(CUT)]}, {"output": [message(CUT[:2]), message(CUT[2:])]}],
    **{wire: [{"role": "assistant", "content": "".join(CUT)}] for wire in ("claude-cli", "codex-cli", "gemini-cli")},
}


def test_there_is_a_message_of_every_wire() -> None:
    assert SPLIT.keys() == WIRES.keys()


@pytest.mark.parametrize(("wire", "native"), [(wire, native) for wire, natives in SPLIT.items() for native in natives])
def test_a_card_may_stand_in_several_parts(wire: str, native: dict[str, Any]) -> None:
    seen = WIRES[wire].view(written(native))
    assert (seen.role, seen.text, seen.cards) == ("assistant", "Play a scale.\n", (CONTENT,))


@pytest.mark.parametrize("wire", sorted(WIRES))
def test_what_others_say_is_left_as_it_is(wire: str) -> None:
    to = WIRES[wire]
    for native in (to.write_user(f"Say {CARD}"), to.write_result("c", f"Say {CARD}", error=False, name="f")):
        seen = to.view(native)
        assert (seen.text, seen.cards) == (f"Say {CARD}", ())


# Refusals


def refused(wire: str, text: str | None, refusal: str) -> Answer:
    if wire == "openai-chat":
        said = {"role": "assistant", "content": text, "refusal": refusal}
        return WIRES[wire].parse(written({"choices": [{"message": said, "finish_reason": "stop"}]}))
    item = message([] if text is None else [text])
    item["content"].append({"type": "refusal", "refusal": refusal})
    return WIRES[wire].parse(written({"output": [item]}))


REFUSING = pytest.mark.parametrize("wire", ["openai-chat", "openai-responses"])


@REFUSING
def test_a_refusal_shows_no_card(wire: str) -> None:
    seen = refused(wire, f"Hm.{OPEN}a{CLOSE}", f"I can't.{CARD}").view
    assert (seen.text, seen.refusal, seen.cards) == ("Hm.", "I can't.", ("a", CONTENT))
    seen = refused(wire, "Hm.", f"I can't.{CARD}").view
    assert (seen.text, seen.refusal, seen.cards) == ("Hm.", "I can't.", (CONTENT,))


@REFUSING
def test_a_refusal_of_a_card_alone_is_not_empty(wire: str) -> None:
    answer = refused(wire, None, CARD)
    assert (answer.view.text, answer.view.refusal, answer.empty) == ("", "", False)


@REFUSING
def test_a_refusal_goes_elsewhere_when_there_is_but_a_card_beside_it(wire: str) -> None:
    native = refused(wire, f"\n{CARD}", "I can't.").native or b""
    entry = Entry(role="assistant", wire=wire, native=native, at=1)
    there = convert_entry(entry, WIRES["anthropic"], CallIdMap())
    assert there is not None
    assert WIRES["anthropic"].view(there.native).text == "I can't."


def test_a_server_that_takes_no_refusals_gets_one_without_its_card() -> None:
    native = refused("openai-chat", None, f"I can't.{CARD}").native or b""
    entry = Entry(role="assistant", wire="openai-chat", native=native, at=1)
    rendered = WIRES["openai-chat"].render(entry, Quirks(fields=("refusal",)))
    assert rendered == b'{"role":"assistant","content":"I can\'t."}'


# Agents


@EACH
def test_what_an_agent_said_before_a_card_alone_is_its_answer(wire: AgentWire) -> None:
    _, answer = played(wire, whole(wire, "Play.", f"\n{CARD}"))
    assert (answer.view.text, answer.view.cards, answer.empty) == ("Play.", (CONTENT,), False)


@EACH
def test_what_an_agent_says_behind_a_card_does_not_take_it_away(wire: AgentWire) -> None:
    _, answer = played(wire, whole(wire, f"Play.{CARD}", "Done."))
    assert (answer.view.text, answer.view.cards) == ("Done.", (CONTENT,))


@EACH
def test_the_newest_card_of_an_agent_counts(wire: AgentWire) -> None:
    _, answer = played(wire, whole(wire, f"Play.{OPEN}old{CLOSE}", f"Done.{CARD}"))
    assert (answer.view.text, answer.view.cards) == ("Done.", (CONTENT,))


@EACH
def test_a_card_of_an_agent_is_kept_when_it_is_interrupted(wire: AgentWire) -> None:
    accumulator = wire.new_accumulator()
    for line in whole(wire, CARD)[:-1]:
        accumulator.feed(line)
    answer = accumulator.answer(interrupted=True)
    assert answer.native is not None
    assert wire.view(answer.native).cards == (CONTENT,)


@EACH
def test_what_an_agent_is_told_of_its_own_has_no_card(wire: AgentWire) -> None:
    assert json.loads(assistant(wire, f"Play.{CARD}"))["content"] == "Play."
