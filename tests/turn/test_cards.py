"""Memory cards never show: not while an answer streams, not in it, not in anything that is made of it."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from longtalk import Archive, Chat, Conversation, history
from longtalk.errors import StreamCut
from longtalk.events import Done, Text
from longtalk.memory.brief.record import read_brief_record
from longtalk.policies import KeepAll, Memory
from longtalk.state.codec import decode
from longtalk.stores.base import Store
from longtalk.testing import Scripted, says, validate
from longtalk.wires import AGENTS, HTTP_WIRES, NAMES, WIRES
from longtalk.wires.agents.cli import AgentCommand
from longtalk.wires.card_tags import MAX_CARD_CHARS, remove_cards
from longtalk.wires.entries import digest_tool_calls, view_entry
from tests.support.cards import CARD, CASES, CLOSE, CONTENT, OPEN, SECRET, says_in, split
from tests.support.properties import holds
from tests.wires.test_card_tags import TEXTS

EACH = pytest.mark.parametrize("wire", sorted(WIRES))
IN_PIECES = pytest.mark.parametrize("wire", sorted({*WIRES} - {"codex-cli"}))
CASE = pytest.mark.parametrize("case", CASES)
ELSEWHERE = list(itertools.permutations(sorted(WIRES), 2))
MEMORY = Memory()
LONGEST_TAG = len(r"< / MEMORY\_CARD / >")


def chat(wire: str, *steps: Any, policy: Any = MEMORY, **settings: Any) -> Chat:
    return Chat(Scripted(*steps, wire=WIRES[wire]), policy=policy, **settings)


def streamed(wire: str, pieces: list[str], policy: Any = MEMORY) -> tuple[list[str], Any]:
    """The texts of a streamed answer, and the reply."""
    events = list(chat(wire, says_in(wire, pieces), policy=policy).stream("Hello."))
    assert isinstance(events[-1], Done)
    return [event.text for event in events if isinstance(event, Text)], events[-1].reply


def is_clean(told: str | bytes) -> bool:
    """Whether nothing of a card is in it."""
    text = told.decode() if isinstance(told, bytes) else told
    return SECRET not in text and remove_cards(text) == text


def request_text(request: bytes) -> str:
    return json.dumps(json.loads(request), ensure_ascii=False)


# A turn


@EACH
@CASE
def test_no_split_of_a_stream_shows_a_card(wire: str, case: str) -> None:
    text, shown, cards = CASES[case]
    # Every place on one wire: cards are hidden after a wire has read a piece, so some places are enough for the others.
    places = range(1, len(text), 1 if wire == "openai-chat" else 7)
    splits = [split(text, place) for place in places]
    for pieces in [list(text), [text], *splits]:
        told, reply = streamed(wire, pieces)
        assert "".join(told) == reply.text == reply.message.text == shown
        assert all(told)
        (answer,) = [entry for entry in reply.entries if entry.role == "assistant"]
        assert (view_entry(answer).text, view_entry(answer).cards) == (shown, cards)


@EACH
@CASE
def test_an_answer_in_one_piece_does_not_show_a_card(wire: str, case: str) -> None:
    text, shown, cards = CASES[case]
    reply = chat(wire, says_in(wire, [text])).send("Hello.")
    assert reply.text == shown
    assert reply.message is not None
    assert WIRES[wire].view(reply.message.native).cards == cards
    assert json.dumps(text)[1:-1] in json.dumps(json.loads(reply.message.native))


@EACH
def test_a_huge_card_does_not_show(wire: str) -> None:
    text = f"Play.{OPEN}{'y' * 1_000_000}{CLOSE}"
    told, reply = streamed(wire, [text[at : at + 1000] for at in range(0, len(text), 1000)])
    assert "".join(told) == reply.text == "Play."
    assert [len(card) for card in view_entry(reply.entries[-1]).cards] == [MAX_CARD_CHARS + 1]


@holds(st.sampled_from(sorted(WIRES)), TEXTS, st.data(), few=60)
def test_any_text_is_shown_without_its_cards(wire: str, text: str, data: st.DataObject) -> None:
    text = "Well. " + text.encode(errors="ignore").decode()
    places = data.draw(st.lists(st.integers(1, len(text)), max_size=6, unique=True))
    told, reply = streamed(wire, split(text, *places))
    assert "".join(told) == reply.text == remove_cards(text)


@IN_PIECES
def test_only_what_may_be_a_tag_waits(wire: str) -> None:
    text = f"1 < 2 <mem <memo `{OPEN}` <MEMORY_CARDS> {CLOSE} < / MEM"
    shown = ""
    with chat(wire, says_in(wire, list(text))).stream("Hello.") as stream:
        for event in stream:
            shown += event.text if isinstance(event, Text) else ""
            there = stream.reply.text
            assert there.startswith(shown)
            assert len(there) - len(shown) < LONGEST_TAG
    assert shown == text


@IN_PIECES
def test_a_card_in_the_middle_waits_only_until_text_follows_it(wire: str) -> None:
    text = f"Play {CARD} a"
    shown = ""
    with chat(wire, says_in(wire, [*text, " scale."])).stream("Hello.") as stream:
        for event in stream:
            shown += event.text if isinstance(event, Text) else ""
            if shown != text[: len("Play ")][: len(shown)]:
                break
    assert shown == text


@EACH
@pytest.mark.parametrize("case", ["one", "two", "unclosed", "nested"])
def test_a_stream_that_is_closed_shows_no_card(wire: str, case: str) -> None:
    text, shown, _ = CASES[case]
    for count in range(1, len(shown) + 1):
        told = ""
        with chat(wire, says_in(wire, list(text))).stream("Hello.") as stream:
            for event in itertools.islice(stream, count):
                told += event.text if isinstance(event, Text) else ""
        assert stream.reply.text.startswith(told)
        assert is_clean(stream.reply.text)
        assert all(is_clean(said.text) for said in history(stream.reply.state))


@EACH
def test_an_answer_that_breaks_off_in_a_card_is_kept_and_shows_none(wire: str) -> None:
    step = says_in(wire, [f"Play. {OPEN}", CONTENT])
    # Codex prints no pieces, so that there is nothing before the end.
    cut = msgspec.structs.replace(step, events=step.events[:-1] if wire == "codex-cli" else _before_end(wire, step))
    told = []
    with pytest.raises(StreamCut) as caught:
        for event in chat(wire, cut).stream("Hello."):
            told += [event.text] if isinstance(event, Text) else []
    assert "".join(told) == caught.value.partial.text == "Play. "
    (answer,) = [said for said in history(caught.value.state) if said.role == "assistant"]
    assert (answer.text, answer.mark) == ("Play. ", "interrupted")
    assert SECRET.encode() in answer.native


def _before_end(wire: str, step: Any) -> tuple[bytes, ...]:
    last = max(i for i, data in enumerate(step.events) if SECRET.encode() in data and _is_piece(wire, data))
    return tuple(step.events[: last + 1])


def _is_piece(wire: str, data: bytes) -> bool:
    return wire in ("gemini", "openai-chat") or b"delta" in data


@IN_PIECES
def test_what_was_held_back_is_shown_when_a_stream_breaks_off(wire: str) -> None:
    step = says_in(wire, [f"{SECRET} <mem", f"{SECRET}"])
    events = step.events[: next(i for i, data in enumerate(step.events) if b"<mem" in data) + 1]
    stream = chat(wire, msgspec.structs.replace(step, events=events)).stream("Hello.")
    told = []
    with pytest.raises(StreamCut) as caught:
        for event in stream:
            told += [event.text] if isinstance(event, Text) else []
    assert told == [f"{SECRET} ", "<mem"]
    assert caught.value.partial.text == f"{SECRET} <mem"


@EACH
def test_an_answer_of_a_card_alone_says_nothing(wire: str) -> None:
    told, reply = streamed(wire, [CARD])
    assert (told, reply.text, reply.finish_reason) == ([], "", "stop")
    (answer,) = [entry for entry in reply.entries if entry.role == "assistant"]
    assert (answer.mark, view_entry(answer).cards) == ("", (CONTENT,))


@EACH
@pytest.mark.parametrize("stream", [False, True])
def test_what_does_not_show_is_remembered(wire: str, stream: bool) -> None:
    step = says_in(wire, ["Play.", OPEN, '{"goal":"', f'{SECRET}"}}', CLOSE])
    with chat(wire, step, policy=Memory(limit=0, recent=0)) as talk:
        reply = list(talk.stream("Hello."))[-1].reply if stream else talk.send("Hello.")
    assert reply.text == "Play."
    assert [line.text for line in read_brief_record(decode(reply.state, wires=NAMES)).content.lines] == [SECRET]


# Stores and exports


@EACH
def test_a_store_shows_no_card(store: Store, wire: str) -> None:
    step = says_in(wire, ["Play a scale.", CARD])
    with Conversation("c", model=Scripted(step, wire=WIRES[wire]), store=store, policy=MEMORY) as talk:
        reply = talk.send("What now?", key="k")
        replayed = list(talk.stream("What now?", key="k"))
        said = talk.history()[-1]
        markdown, exported = talk.export("md"), talk.export("json")
    assert (said.text, said.native) == ("Play a scale.", reply.message and reply.message.native)
    assert [event.text for event in replayed if isinstance(event, Text)] == ["Play a scale."]
    archive = Archive(store)
    assert [hit.text for hit in archive.search("scale")] == ["Play a scale."]
    # What a card says is a label of its answer: that is found, and the card is not.
    assert [hit.text for hit in archive.search(SECRET)] == ["Play a scale."]
    assert archive.search("MEMORY_CARD") == []
    assert "> Play a scale.\n" in markdown
    assert is_clean(markdown)
    assert said.native.decode() in exported
    assert SECRET in archive.export("c", "jsonl")


def test_an_answer_of_a_card_alone_is_nothing_when_it_is_told_again(store: Store) -> None:
    with Conversation("c", model=Scripted(says(CARD)), store=store, policy=MEMORY) as talk:
        talk.send("What now?", key="k")
        assert [type(event) for event in talk.stream("What now?", key="k")] == [Done]


@EACH
@pytest.mark.parametrize("text", [CARD, "<MEMORY_CAR"])
def test_an_export_of_an_answer_of_a_card_alone_shows_no_card(store: Store, wire: str, text: str) -> None:
    model = Scripted(says_in(wire, [text]), wire=WIRES[wire])
    with Conversation("c", model=model, store=store, policy=MEMORY) as talk:
        talk.send("What now?")
        markdown = talk.export("md")
    assert "### Assistant" in markdown
    assert "memory" not in markdown.lower()


# Other wires


def sent(wire: str, state: bytes, **settings: Any) -> tuple[bytes, Any]:
    """What a wire sends of a conversation, and what came of it."""
    provider = Scripted(says_in(wire, ["Well."]), wire=WIRES[wire])
    reply = Chat(provider, **settings).send("And now?", state=state)
    validate(provider.requests[0], wire=wire)
    return provider.requests[0], reply


@pytest.mark.parametrize(("here", "there"), ELSEWHERE)
def test_another_wire_gets_no_card_and_its_own_the_answer_as_it_came(here: str, there: str) -> None:
    one = chat(here, says_in(here, ["Play a scale.", CARD, CARD])).send("Hello.")
    request, two = sent(there, one.state)
    assert is_clean(request_text(request))
    assert b"Play a scale." in request
    back, _ = sent(here, two.state)
    assert two.state
    if here in HTTP_WIRES:
        assert SECRET.encode() in back
        assert json.dumps(CARD)[1:-1] in json.dumps(json.loads(back))
    else:
        # It is told in words anyway.
        assert is_clean(msgspec.json.decode(back, type=AgentCommand).input)


@pytest.mark.parametrize(("here", "there"), ELSEWHERE)
def test_an_answer_of_a_card_alone_is_left_out_elsewhere(here: str, there: str) -> None:
    one = chat(here, says_in(here, ["\n", CARD])).send("Hello.")
    request, two = sent(there, one.state)
    assert is_clean(request_text(request))
    assert two.context is not None
    left = [run.reason for run in two.context.manifest if run.verdict == "left_out"]
    assert left == ["says nothing elsewhere"]
    if here in HTTP_WIRES:
        assert SECRET.encode() in sent(here, one.state)[0]


def look(where: str) -> str:
    """Look something up."""
    return f"Nothing in {where}."


@pytest.mark.parametrize("here", sorted(HTTP_WIRES))
@pytest.mark.parametrize("before", ["", "I'll see. "])
def test_calls_beside_a_card_keep_their_results_everywhere(here: str, before: str) -> None:
    calls = [("a1", "look", {"where": "Rome"}), ("b2", "look", {"where": "Oslo"})]
    steps = says_in(here, [before, CARD], calls), says_in(here, ["Nothing.", CARD])
    one = chat(here, *steps, tools=[look]).send("Where?")
    assert one.text == "Nothing."
    for there in sorted({*WIRES} - {here}):
        request, _ = sent(there, one.state)
        assert is_clean(request_text(request))
        assert all(told in request for told in (b"Nothing in Rome.", b"Nothing in Oslo.", b"Nothing."))
    validate(sent(here, one.state)[0], wire=here)


@pytest.mark.parametrize("wire", sorted(HTTP_WIRES))
def test_what_tools_did_is_told_without_cards(wire: str) -> None:
    calls = [("a1", "look", {"where": "Rome"})]
    steps = says_in(wire, ["I'll see.", CARD], calls), says_in(wire, ["Nothing."])
    with chat(wire, *steps, tools=[look]) as talk:
        state = talk.send("Where?").state
    entries = list(decode(state, wires=NAMES))
    assert digest_tool_calls(entries[1:3]) == ["You said: I'll see.", 'look({"where":"Rome"}) → Nothing in Rome.']


@EACH
def test_an_event_has_no_card(wire: str) -> None:
    talk = chat(wire)
    state = talk.note(f"Ada wrote {CARD}", source="mail")
    assert history(state)[0].text == f"Ada wrote {CARD}"
    request, _ = sent(wire, state)
    assert remove_cards(request_text(request)) == request_text(request)
    assert "Ada wrote &lt;MEMORY_CARD>" in request_text(request)


def test_an_agent_is_not_sent_its_cards_again() -> None:
    for wire in AGENTS:
        one = chat(wire, says_in(wire, ["Play.", CARD])).send("Hello.")
        request, _ = sent(wire, one.state)
        assert is_clean(msgspec.json.decode(request, type=AgentCommand).input)


# Without memory


@EACH
@CASE
def test_without_memory_everything_in_an_answer_is_text(wire: str, case: str) -> None:
    text = CASES[case][0]
    for pieces in ([text], list(text)):
        told, reply = streamed(wire, pieces, KeepAll())
        assert "".join(told) == reply.text == reply.message.text == text
        assert history(reply.state)[-1].text == text
        assert history(reply.state)[-1].mark == ""
        (answer,) = [entry for entry in reply.entries if entry.role == "assistant"]
        assert (view_entry(answer).text, view_entry(answer).cards) == (text, ())
    assert chat(wire, says_in(wire, [text]), policy=KeepAll()).send("Hello.").text == text


@IN_PIECES
def test_without_memory_nothing_is_held_back(wire: str) -> None:
    shown = ""
    with chat(wire, says_in(wire, list(CARD)), policy=KeepAll()).stream("Hello.") as stream:
        for event in stream:
            shown += event.text if isinstance(event, Text) else ""
            assert stream.reply.text == shown


@EACH
def test_without_memory_an_answer_that_breaks_off_in_a_card_is_kept_whole(wire: str) -> None:
    step = says_in(wire, [f"Play. {OPEN}", CONTENT])
    cut = msgspec.structs.replace(step, events=step.events[:-1] if wire == "codex-cli" else _before_end(wire, step))
    with pytest.raises(StreamCut) as caught:
        list(chat(wire, cut, policy=KeepAll()).stream("Hello."))
    assert caught.value.partial.text == f"Play. {OPEN}{CONTENT}"
    answer = history(caught.value.state)[-1]
    assert (answer.text, answer.mark) == (f"Play. {OPEN}{CONTENT}", "interrupted")


@EACH
def test_without_memory_a_store_shows_everything(store: Store, wire: str) -> None:
    step = says_in(wire, ["Play a scale.", CARD])
    with Conversation("c", model=Scripted(step, wire=WIRES[wire]), store=store) as talk:
        talk.send("What now?", key="k")
        replayed = list(talk.stream("What now?", key="k"))
        said = talk.history()[-1]
        markdown = talk.export("md")
    assert said.text == f"Play a scale.{CARD}"
    assert [event.text for event in replayed if isinstance(event, Text)] == [f"Play a scale.{CARD}"]
    assert [hit.text for hit in Archive(store).search("MEMORY_CARD")] == [f"Play a scale.{CARD}"]
    assert SECRET in markdown
    assert "verbatim" not in markdown


@pytest.mark.parametrize(("here", "there"), ELSEWHERE)
def test_without_memory_another_wire_gets_the_whole_answer(here: str, there: str) -> None:
    one = chat(here, says_in(here, ["Play a scale.", CARD]), policy=KeepAll()).send("Hello.")
    request, _ = sent(there, one.state)
    assert f"Play a scale.{CARD}" in "".join(_iterate_strings(json.loads(request)))


def _iterate_strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in members for text in _iterate_strings(each)]


def test_an_answer_of_an_invalid_form_is_not_sent_again_though_it_ends_like_a_card() -> None:
    step = says("")
    body = json.loads(step.body)
    body["choices"][0]["message"]["content"] = [{"type": "text", "text": f"Play.{CARD}"}, 5]
    broken = msgspec.structs.replace(step, body=json.dumps(body).encode())
    one = chat("openai-chat", broken, policy=KeepAll()).send("Hello.")
    assert history(one.state)[-1].mark == "empty"
    request, _ = sent("openai-chat", one.state)
    assert [message["role"] for message in json.loads(request)["messages"]] == ["user", "user"]


def test_a_policy_that_comes_later_finds_no_card_in_it() -> None:
    one = chat("openai-chat", says_in("openai-chat", ["Play.", CARD]), policy=KeepAll()).send("Hello.")
    two = chat("openai-chat", says("Well."), policy=Memory(limit=0, recent=0)).send("And now?", state=one.state)
    assert history(two.state)[1].text == f"Play.{CARD}"
    assert not two.brief


def test_an_answer_that_is_imported_is_text(store: Store) -> None:
    answer = {"role": "assistant", "content": f"Play.{CARD}"}
    Archive(store).load(json.dumps([{"role": "user", "content": "Hello."}, answer]).encode(), id="c")
    assert [hit.text for hit in Archive(store).search(SECRET)] == [f"Play.{CARD}"]
