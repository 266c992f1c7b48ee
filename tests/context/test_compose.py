"""What is sent and why: every entry of a transcript has one verdict, and what is sent is what the manifest says."""

import json
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.context.compose import Context, compose
from longtalk.context.epochs import Epoch
from longtalk.state import codec as state
from longtalk.transcript.manifest import Run
from longtalk.transcript.transcript import Entry, Transcript, link_entries
from longtalk.wires import NAMES
from longtalk.wires.gemini import wire as gemini
from longtalk.wires.neutral import event, system
from longtalk.wires.openai_chat.wire import WIRE
from longtalk.wires.openai_responses import wire as openai_responses
from longtalk.wires.protocol import Preamble, Quirks, Wire

USER = Entry(role="user", wire=WIRE.name, native=b'{"role":"user","content":"caf\\u00e9"}', at=0)
ANSWER = Entry(role="assistant", wire=WIRE.name, native=b'{ "role":"assistant","content":"a","x":1e2 }', at=0)
EMPTY = Entry(role="assistant", wire=WIRE.name, native=b'{"role":"assistant","content":null}', at=0, mark="empty")
CUT = Entry(role="assistant", wire=WIRE.name, native=b'{"role":"assistant","content":"b"}', at=0, mark="length")
EVENT = event("tuned", source="app", at=0)
SYSTEM = system("Be brief.", at=0)


def since(position: int) -> Epoch:
    """An epoch that leaves out what comes before a position."""
    runs = (Run(0, position - 1, "left_out", "policy"),) if position else ()
    return Epoch("", start=position, runs=runs, raw=position, current=position)


def transcript(*entries: Entry, packed: int = 0) -> Transcript:
    """The first `packed` entries as they are after a state was read, the others as they were just added."""
    linked = link_entries(None, "t", 0, entries)
    read = Transcript()
    if packed:
        read = state.decode(state.encode(read.add(linked[:packed])), wires=NAMES)
    return read.add(linked[packed:])


def composed(
    of: Transcript,
    *,
    epoch: Epoch | None = None,
    quirks: Quirks | None = None,
    instruction: str | None = None,
    tail: int | None = None,
    held: int = 0,
) -> Context:
    return compose(
        of,
        wire=WIRE,
        epoch=epoch or Epoch(""),
        quirks=quirks or Quirks(),
        preamble=Preamble(),
        reader="me",
        instruction=instruction,
        tail=len(of) if tail is None else tail,
        held=held,
    )


def sent(context: Context) -> list[dict[str, str]]:
    return json.loads(b"[" + b",".join(context.pieces) + b"]")


@pytest.mark.parametrize("packed", [0, 1, 2])
def test_messages_go_byte_for_byte(packed: int) -> None:
    context = composed(transcript(USER, ANSWER, packed=packed))
    assert b",".join(context.pieces) == USER.native + b"," + ANSWER.native
    assert context.manifest == (Run(0, 1, "sent", "kept"),)


def test_an_unread_conversation_goes_as_one_piece() -> None:
    context = composed(transcript(USER, ANSWER, USER, ANSWER, packed=4))
    assert len(context.pieces) == 1


def test_nothing_makes_an_empty_context() -> None:
    context = composed(Transcript())
    assert (context.pieces, context.manifest, context.mark) == ((), (), 0)


@pytest.mark.parametrize("packed", [0, 2, 5])
def test_events_and_system_messages_are_rendered_in_their_place(packed: int) -> None:
    messages = sent(composed(transcript(EVENT, USER, ANSWER, SYSTEM, USER, packed=packed)))
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "system", "user"]
    assert messages[0]["content"].startswith('<event source="app"')
    assert messages[3]["content"] == "Be brief."


@pytest.mark.parametrize("packed", [0, 3, 5])
def test_an_empty_answer_is_left_out_with_the_reason(packed: int) -> None:
    context = composed(transcript(USER, EMPTY, USER, EMPTY, EMPTY, packed=packed))
    assert [message["role"] for message in sent(context)] == ["user", "user"]
    assert context.manifest == (
        Run(0, 0, "sent", "kept"),
        Run(1, 1, "left_out", "empty answer"),
        Run(2, 2, "sent", "kept"),
        Run(3, 4, "left_out", "empty answer"),
    )


def test_an_answer_that_was_cut_short_is_sent() -> None:
    assert sent(composed(transcript(USER, CUT)))[1]["content"] == "b"


@pytest.mark.parametrize("packed", [0, 1, 3])
def test_what_a_policy_leaves_out_is_not_sent_and_is_in_the_manifest(packed: int) -> None:
    context = composed(transcript(USER, ANSWER, USER, packed=packed), epoch=since(2))
    assert b",".join(context.pieces) == USER.native
    assert context.manifest == (Run(0, 1, "left_out", "policy"), Run(2, 2, "sent", "kept"))


def test_everything_may_be_left_out() -> None:
    context = composed(transcript(USER, ANSWER), epoch=since(2))
    assert (context.pieces, context.manifest) == ((), (Run(0, 1, "left_out", "policy"),))


@pytest.mark.parametrize("packed", [0, 1, 2, 3])
def test_an_instruction_goes_behind_the_message_and_before_the_work_on_it(packed: int) -> None:
    calling = Entry(role="assistant", wire=WIRE.name, native=b'{"role":"assistant","content":"calls"}', at=0)
    context = composed(transcript(USER, ANSWER, USER, calling, packed=packed), instruction="It is noon.", tail=3)
    assert [message["content"] for message in sent(context)] == ["café", "a", "café", "It is noon.", "calls"]
    assert context.manifest == (Run(0, 3, "sent", "kept"),)


def test_what_a_server_refuses_is_left_out_of_every_message() -> None:
    context = composed(transcript(ANSWER, USER, ANSWER, packed=2), quirks=Quirks(fields=("x",)))
    assert all("x" not in message for message in sent(context))
    assert context.manifest == (Run(0, 2, "sent", "kept"),)


# Blocks that only their provider can read


def bound_to(context: Context) -> Entry:
    native = b'{"output":[{"type":"reasoning","summary":[],"encrypted_content":"gAAA"},%s]}' % SAID
    return Entry(role="assistant", wire=RESPONSES.name, native=native, at=0, bound=context.compute_bound())


RESPONSES = openai_responses.WIRE
SAID = b'{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}'
ASKED = Entry(role="user", wire=RESPONSES.name, native=RESPONSES.write_user("Hi."), at=0)


def read_by(
    of: Transcript,
    reader: str,
    *,
    tail: int = 1,
    words: str = "",
    quirks: Quirks | None = None,
    wire: Wire = RESPONSES,
) -> Context:
    return compose(
        of,
        wire=wire,
        epoch=Epoch(""),
        quirks=quirks or Quirks(),
        preamble=Preamble(words),
        reader=reader,
        instruction=None,
        tail=tail,
    )


@pytest.mark.parametrize("tail", [1, 3, 4])
def test_what_is_bound_to_an_account_and_a_model_is_valid_at_any_place(tail: int) -> None:
    answer = bound_to(read_by(transcript(ASKED), "me"))
    for words in ("", "other"):
        context = read_by(transcript(ASKED, ASKED, answer, ASKED), "me", tail=tail, words=words)
        assert b"gAAA" in b"".join(context.pieces)
        assert context.manifest == (Run(0, 3, "sent", "kept"),)


@pytest.mark.parametrize("tail", [1, 4])
@pytest.mark.parametrize(("reader", "quirks"), [("you", Quirks()), ("me", Quirks(opaque_void=4))])
def test_elsewhere_it_goes_without_and_nothing_else_changes(tail: int, reader: str, quirks: Quirks) -> None:
    answer = bound_to(read_by(transcript(ASKED), "me"))
    context = read_by(transcript(ASKED, ASKED, answer, ASKED), reader, tail=tail, quirks=quirks)
    assert b",".join(context.pieces) == b",".join([ASKED.native, ASKED.native, SAID, ASKED.native])
    assert context.manifest == (Run(0, 3, "sent", "kept"),)


def test_refused_opaque_blocks_are_left_out_even_if_their_origin_is_unknown() -> None:
    answer = msgspec.structs.replace(bound_to(read_by(transcript(ASKED), "me")), bound="")
    assert b"gAAA" in b"".join(read_by(transcript(ASKED, answer), "me").pieces)
    assert b"gAAA" not in b"".join(read_by(transcript(ASKED, answer), "me", quirks=Quirks(opaque_void=2)).pieces)


@pytest.mark.parametrize("packed", [0, 3])
def test_refused_signatures_are_left_out_on_the_gemini_wire(packed: int) -> None:
    wire = gemini.WIRE
    asked = Entry(role="user", wire=wire.name, native=wire.write_user("Hi."), at=0)
    native = b'{"role":"model","parts":[{"text":"a","thoughtSignature":"c2ln"}]}'
    answer = Entry(role="assistant", wire=wire.name, native=native, at=0)
    held = transcript(asked, answer, asked, packed=packed)
    assert b"c2ln" in b"".join(read_by(held, "me", tail=3, wire=wire).pieces)
    void = read_by(held, "me", tail=3, quirks=Quirks(opaque_void=2), wire=wire)
    assert b",".join(void.pieces) == asked.native + b',{"role":"model","parts":[{"text":"a"}]},' + asked.native
    assert void.manifest == (Run(0, 2, "sent", "kept"),)


@pytest.mark.parametrize("reader", ["me", "you"])
def test_the_calls_of_a_running_turn_go_as_calls_and_get_a_stand_in_for_a_signature_of_another(reader: str) -> None:
    wire = gemini.WIRE
    asked = Entry(role="user", wire=wire.name, native=wire.write_user("Hi."), at=0)
    native = b'{"role":"model","parts":[{"functionCall":{"id":"c","name":"look"},"thoughtSignature":"c2ln"}]}'
    bound = read_by(transcript(asked), "me", wire=wire).compute_bound()
    answer = Entry(role="assistant", wire=wire.name, native=native, at=0, bound=bound)
    result = Entry(role="tool", wire=wire.name, native=wire.write_result("c", "ok", error=False, name="look"), at=0)
    sent = b",".join(read_by(transcript(asked, answer, result), reader, wire=wire).pieces)
    assert b'"functionCall":{"id":"c","name":"look"}' in sent
    assert b'"functionResponse":{"id":"c","name":"look"' in sent
    assert (b"c2ln" in sent, b"skip_thought_signature_validator" in sent) == (reader == "me", reader == "you")


def test_an_answer_that_is_nothing_else_is_left_out_and_that_is_said() -> None:
    answer = bound_to(read_by(transcript(ASKED), "me"))
    thought = msgspec.structs.replace(answer, native=answer.native.replace(b"," + SAID, b""))
    context = read_by(transcript(ASKED, thought), "you")
    assert context.manifest[-1] == Run(1, 1, "left_out", "bound to another place")


ENTRIES = st.lists(st.sampled_from([USER, ANSWER, EMPTY, CUT, EVENT, SYSTEM]), min_size=1, max_size=12)


def test_what_the_provider_has_is_as_long_as_it_was_sent() -> None:
    of = transcript(*(msgspec.structs.replace(entry, tokens=100) for entry in (EVENT, USER, ANSWER, USER)))
    cut = Run(0, 0, "sent", "cut to head and tail", tokens=30, keep=50)
    epoch = Epoch("", start=2, runs=(cut, Run(1, 1, "sent", "kept", tokens=100)))
    context = composed(of, epoch=epoch, held=3)
    runs = [(run.last, run.verdict, run.tokens) for run in context.manifest]
    assert runs == [(0, "held", 30), (2, "held", 200), (3, "sent", 100)]


@given(ENTRIES, st.integers(0, 12), st.integers(0, 13), st.integers(0, 13), st.booleans())
def test_every_entry_has_one_verdict_and_the_manifest_tells_the_truth(
    entries: list[Entry], packed: int, first: int, tail: int, odd: bool
) -> None:
    of = transcript(*entries, packed=min(packed, len(entries)))
    first = min(first, len(entries))
    tail = min(max(first, tail, 1), len(entries))
    quirks = Quirks(strict_ids=True) if odd else Quirks()
    context = composed(of, epoch=since(first), quirks=quirks, instruction="Now.", tail=tail)
    covered = [i for run in context.manifest for i in range(run.first, run.last + 1)]
    assert covered == list(range(len(of)))
    reasons = [(run.verdict, run.reason) for run in context.manifest]
    assert all(one != other for one, other in pairwise(reasons))
    kept = [i for run in context.manifest if run.verdict == "sent" for i in range(run.first, run.last + 1)]
    contents = [message["content"] for message in sent(context)]
    contents.remove("Now.")
    assert contents == [json.loads(WIRE.render(of[i], quirks) or b"")["content"] for i in kept]
