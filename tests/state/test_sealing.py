"""A sealed state opens only for its owner and conversation, and its holder can neither read nor change it."""

import base64
import random
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Chat, peek
from longtalk.errors import BadState, InputError
from longtalk.state import codec as states
from longtalk.state import sealed_header
from longtalk.state import sealing as seals
from longtalk.state.sealed_header import peek_sealed
from longtalk.state.sealing import Seal
from longtalk.testing import Scripted
from longtalk.transcript.transcript import Entry, Transcript
from longtalk.wires import NAMES
from tests.support.strategies import transcripts

FIXED = struct.Struct("<4sBBIQqqq24s16s16s")
"""The fields: magic, version, sizes of key id and body, revision, created, updated, expires, salt, owner, conversation.
"""
KEY_SIZE, BODY_SIZE, REVISION, EXPIRES, OWNER, CONVERSATION = 2, 3, 4, 7, 9, 10
SALT = struct.calcsize("<4sBBIQqqq")
HEAD = FIXED.size + len("k1")
NOON = 1_700_000_000_000
ALTERED = {"tampered", "truncated", "unknown_key", "too_new"}
"""The only reasons for refusing altered bytes that begin like a sealed state."""

SECRET = "the violin is in the attic"
KEYS = {"k1": Seal.new_key(), "k3": Seal.new_key()}
SEAL = Seal(KEYS)


def noted(*texts: str) -> bytes:
    """Return a state with one revision for each text."""
    chat, state = Chat(Scripted()), None
    for text in texts:
        state = chat.note(text, state=state)
    assert state is not None
    return state


STATE = noted(SECRET)
EMPTY = states.encode(Transcript())


def refused(sealed: bytes, seal: Seal = SEAL, **more: Any) -> str:
    """Return the reason why a sealed state does not open."""
    with pytest.raises(BadState) as caught:
        seal.open(sealed, **more)
    assert caught.value.state == sealed
    assert caught.value.reason in seals.REASONS
    assert str(caught.value).endswith(".")
    return caught.value.reason


def changed(sealed: bytes, field: int, value: Any) -> bytes:
    """Return a sealed state with another value in one field of its header."""
    fields = list(FIXED.unpack_from(sealed))
    assert fields[field] != value
    fields[field] = value
    return FIXED.pack(*fields) + sealed[FIXED.size :]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets the time."""

    moments = [NOON]
    monkeypatch.setattr(seals, "now", lambda: moments[-1])

    def put(moment: int) -> None:
        moments[:] = [moment]

    return put


# Round trips

names = st.text(st.characters(), max_size=20)


@given(transcripts(), names, names, st.sampled_from([0, 2**62]))
def test_any_state_comes_back_as_it_was(
    transcript: Transcript, owner: str, conversation: str, compress_over: int
) -> None:
    state = states.encode(transcript, compress_over=compress_over)
    sealed = SEAL.close(state, owner=owner, conversation=conversation)
    assert SEAL.open(sealed, owner=owner, conversation=conversation, min_revision=transcript.revision) == state


def test_half_an_emoji_is_a_name() -> None:
    sealed = SEAL.close(STATE, owner="\ud83d", conversation="\ude00")
    assert SEAL.open(sealed, owner="\ud83d", conversation="\ude00") == STATE
    assert refused(sealed, owner="\ud83e", conversation="\ude00") == "wrong_owner"


def test_a_state_of_the_earlier_library_can_be_sealed() -> None:
    state = b'{"version":1,"provider":"openai","processed_length":0,"messages":[]}'
    assert SEAL.open(SEAL.close(state)) == state


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_any_kind_are_sealed_and_opened(kind: Callable[[bytes], bytes]) -> None:
    assert SEAL.open(kind(SEAL.close(kind(STATE)))) == STATE
    assert peek_sealed(kind(SEAL.close(STATE))).revision == 1


# A state that the first release sealed. It has to open forever.
GOLDEN = (
    "iVRMUwEHVAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAACY1E1GBAAAZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7CPRR2DvWzc1GI09ClKpdlsux"
    "ixUQS7m/VtSnj47T1RoyMDIzLTExpPnjER+bWdTOpOEvu9Fez6E07EGypMwPCTHoL4e4U2Na9lycSuZsO9mZkWagivUhXX/zd5phTmo+500LQDv+"
    "C4+g+LwSYU2x8NmYJCF/c88rN6TB"
)


def test_a_state_that_the_first_release_sealed_still_opens(clock: Callable[[int], None]) -> None:
    seal = Seal({"2023-11": bytes(range(32))})
    state = seal.open(base64.b64decode(GOLDEN), owner="ada", conversation="lesson-7")
    assert state == b'{"version":1,"provider":"openai","processed_length":0,"messages":[]}'


def test_opening_parses_nothing_of_the_content(monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = SEAL.close(STATE)
    for name in ("decode", "peek", "_decompress"):
        monkeypatch.setattr(states, name, None)
    monkeypatch.setattr(seals, "peek", None)
    assert SEAL.open(sealed) == STATE


# Secrecy


def pieces(data: bytes) -> set[bytes]:
    """Return all runs of six bytes. Two random texts of this length have none in common."""
    return {data[i : i + 6] for i in range(len(data) - 5)}


def test_two_seals_of_one_state_have_nothing_secret_in_common() -> None:
    one, two = (SEAL.close(STATE, owner="ada", conversation="lesson-7") for _ in range(2))
    assert not pieces(one[SALT:]) & pieces(two[SALT:])


def test_nothing_of_content_owner_or_conversation_shows() -> None:
    owner, conversation = "ada@example.org", "lesson-in-the-attic"
    sealed = SEAL.close(STATE, owner=owner, conversation=conversation)
    for shown in (SECRET, owner, conversation):
        assert not pieces(shown.encode()) & pieces(sealed)
    assert not pieces(STATE) & pieces(sealed[SALT:])


def test_a_state_sealed_without_an_owner_looks_like_one_sealed_for_an_owner() -> None:
    assert len(SEAL.close(STATE)) == len(SEAL.close(STATE, owner="ada", conversation="a long name" * 100))
    assert FIXED.unpack_from(SEAL.close(STATE))[OWNER] != FIXED.unpack_from(SEAL.close(STATE))[OWNER]


def test_no_key_shows() -> None:
    sealed = SEAL.close(STATE)
    for key in KEYS.values():
        assert not pieces(key) & pieces(sealed)


# Owners and conversations


@pytest.mark.parametrize(("sealed_for", "opened_by"), [("ada", "bob"), ("ada", ""), ("", "ada"), ("ada", "Ada")])
def test_another_owner_is_refused(sealed_for: str, opened_by: str) -> None:
    sealed = SEAL.close(STATE, owner=sealed_for, conversation="c")
    assert refused(sealed, owner=opened_by, conversation="c") == "wrong_owner"


@pytest.mark.parametrize(("sealed_for", "opened_by"), [("1", "2"), ("1", ""), ("", "1")])
def test_another_conversation_is_refused(sealed_for: str, opened_by: str) -> None:
    sealed = SEAL.close(STATE, owner="ada", conversation=sealed_for)
    assert refused(sealed, owner="ada", conversation=opened_by) == "wrong_conversation"


def test_owner_and_conversation_can_not_stand_for_each_other() -> None:
    assert refused(SEAL.close(STATE, owner="x"), conversation="x") == "wrong_owner"
    assert refused(SEAL.close(STATE, owner="ab", conversation="c"), owner="a", conversation="bc") == "wrong_owner"


@pytest.mark.parametrize("field", [OWNER, CONVERSATION])
def test_the_owner_of_one_state_can_not_be_put_on_another(field: int) -> None:
    mine = SEAL.close(STATE, owner="ada", conversation="1")
    theirs = SEAL.close(STATE, owner="bob", conversation="2")
    forged = changed(theirs, field, FIXED.unpack_from(mine)[field])
    assert refused(forged, owner="ada", conversation="1") == "tampered"
    assert refused(forged, owner="bob", conversation="2") == "tampered"


def test_a_client_without_the_key_can_not_make_a_state() -> None:
    assert refused(Seal({"k1": Seal.new_key()}).close(STATE)) == "tampered"


# Key rotation


def test_the_first_key_seals_and_all_open() -> None:
    old, both, new = Seal({"a": KEYS["k1"]}), Seal({"b": KEYS["k3"], "a": KEYS["k1"]}), Seal({"b": KEYS["k3"]})
    assert both.open(old.close(STATE)) == STATE
    assert peek_sealed(both.close(STATE)).key == "b"
    assert new.open(both.close(STATE)) == STATE


def test_a_key_that_was_dropped_is_named() -> None:
    with pytest.raises(BadState, match="sealed with the key 'k1', which this Seal does not have") as caught:
        Seal({"k3": KEYS["k3"]}).open(SEAL.close(STATE))
    assert caught.value.reason == "unknown_key"


def test_a_state_can_not_be_passed_off_as_one_of_another_key() -> None:
    sealed = SEAL.close(STATE)
    assert refused(sealed[: FIXED.size] + b"k3" + sealed[HEAD:]) == "tampered"


def test_a_seal_keeps_its_keys_when_the_mapping_changes() -> None:
    keys = dict(KEYS)
    seal = Seal(keys)
    keys.clear()
    assert seal.open(seal.close(STATE)) == STATE


def test_new_keys_differ() -> None:
    assert len({Seal.new_key() for _ in range(100)}) == 100
    assert len(Seal.new_key()) == 32


@pytest.mark.parametrize("key_id", ["a", "a" * 64, "é" * 32, "schlüssel"])
def test_a_key_id_is_any_short_text(key_id: str) -> None:
    seal = Seal({key_id: Seal.new_key()})
    assert seal.open(seal.close(STATE)) == STATE
    assert peek_sealed(seal.close(STATE)).key == key_id


# Expiry


def test_a_state_expires(clock: Callable[[int], None]) -> None:
    sealed = Seal(KEYS, expires_after=1.5).close(STATE)
    clock(NOON + 1_499)
    assert SEAL.open(sealed) == STATE
    clock(NOON + 1_500)
    assert refused(sealed) == "expired"
    assert refused(sealed, Seal(KEYS, expires_after=1e6)) == "expired"


def test_a_state_without_expiry_never_expires(clock: Callable[[int], None]) -> None:
    sealed = SEAL.close(STATE)
    clock(2**62)
    assert SEAL.open(sealed) == STATE


@pytest.mark.parametrize("expires", [0, 1, NOON + 1, 2**63 - 1, -1])
def test_a_forged_expiry_is_found_out(clock: Callable[[int], None], expires: int) -> None:
    sealed = Seal(KEYS, expires_after=1).close(STATE)
    clock(NOON + 5_000)
    assert refused(changed(sealed, EXPIRES, expires)) == "tampered"


def test_an_older_state_opens_unless_a_newer_one_is_asked_for() -> None:
    older, newer = SEAL.close(noted("one")), SEAL.close(noted("one", "two"))
    assert SEAL.open(older) == SEAL.open(older, min_revision=1)
    assert refused(older, min_revision=2) == "rewound"
    assert SEAL.open(newer, min_revision=2)
    assert refused(changed(older, REVISION, 2), min_revision=2) == "tampered"


def test_the_owner_is_checked_before_time_and_revision(clock: Callable[[int], None]) -> None:
    sealed = Seal(KEYS, expires_after=1).close(STATE, owner="ada", conversation="1")
    clock(NOON + 5_000)
    right: dict[str, Any] = {"owner": "ada", "conversation": "1"}
    assert refused(sealed, owner="bob", conversation="2", min_revision=9) == "wrong_owner"
    assert refused(sealed, owner="ada", conversation="2", min_revision=9) == "wrong_conversation"
    assert refused(sealed, **right, min_revision=9) == "expired"
    clock(NOON)
    assert refused(sealed, **right, min_revision=9) == "rewound"


# Bytes that are not a sealed state


@pytest.mark.parametrize(
    "foreign",
    [STATE, EMPTY, b'{"version":1}', b"x", b"\x89PNG", base64.b64encode(STATE)],
    ids=["plain", "empty", "earlier", "text", "picture", "base64"],
)
def test_what_is_not_sealed_is_not_opened(foreign: bytes) -> None:
    assert refused(foreign) == "not_sealed"
    with pytest.raises(BadState, match=r"its first bytes are not|plain state"):
        peek_sealed(foreign)


@pytest.mark.parametrize("other", ["text", None, 7, ["x"]])
def test_what_is_not_bytes_is_not_opened(other: Any) -> None:
    assert refused(other) == "type"


def test_a_newer_seal_is_refused_by_name() -> None:
    sealed = SEAL.close(STATE)
    with pytest.raises(BadState, match=r"version 2, but .* opens only up to 1\. Upgrade") as caught:
        SEAL.open(sealed[:4] + b"\x02" + b"of another form")
    assert caught.value.reason == "too_new"


def unlike_any() -> dict[str, bytes]:
    """Return headers that no seal writes, each wrong in one field only."""
    sealed = SEAL.close(STATE)
    body = sealed[HEAD:]
    sized = {size: changed(sealed, KEY_SIZE, size)[: FIXED.size] + b"k" * size + body for size in (0, 65, 255)}
    return {
        "version 0": sealed[:4] + b"\x00" + sealed[5:],
        **{f"a key id of {size} bytes": wrong for size, wrong in sized.items()},
        "a key id that is not text": sealed[: FIXED.size] + b"\xff\xff" + body,
        "a body without its tag": changed(sealed, BODY_SIZE, 15)[: HEAD + 15],
        "a body of 2 GiB": changed(sealed, BODY_SIZE, 2**31),
        "a byte too many": sealed + b"\x00",
    }


@pytest.mark.parametrize("wrong", unlike_any().values(), ids=unlike_any().keys())
def test_a_header_that_no_seal_writes_is_refused_even_without_a_key(wrong: bytes) -> None:
    assert refused(wrong) == "tampered"
    with pytest.raises(BadState) as caught:
        peek_sealed(wrong)
    assert caught.value.reason == "tampered"


def test_a_size_that_is_not_there_takes_no_memory() -> None:
    assert refused(changed(SEAL.close(STATE), BODY_SIZE, 2**31 - 1)) == "truncated"


# Altered bytes


def test_a_state_that_was_cut_off_is_refused_at_every_length() -> None:
    sealed = SEAL.close(STATE)
    assert {refused(sealed[:length]) for length in range(len(sealed))} == {"truncated"}


def test_a_state_that_was_cut_off_with_its_size_put_right_is_tampered() -> None:
    sealed = SEAL.close(STATE)
    for length in range(HEAD + 16, len(sealed)):
        assert refused(changed(sealed[:length], BODY_SIZE, length - HEAD)) == "tampered"


def test_each_single_bit_counts(clock: Callable[[int], None]) -> None:
    sealed = Seal(KEYS, expires_after=60).close(EMPTY, owner="ada", conversation="1")
    reasons = {}
    for bit in range(8 * len(sealed)):
        flipped = bytearray(sealed)
        flipped[bit // 8] ^= 1 << bit % 8
        reasons[bit // 8, bit % 8] = refused(bytes(flipped), owner="ada", conversation="1")
    assert {reason for (place, _), reason in reasons.items() if place < 4} == {"not_sealed"}
    assert {reason for (place, _), reason in reasons.items() if place >= 4} == ALTERED
    assert {reason for (place, _), reason in reasons.items() if place >= HEAD} == {"tampered"}


def test_pieces_of_two_sealed_states_do_not_fit_together() -> None:
    one = SEAL.close(noted("one"), owner="ada")
    two = SEAL.close(noted("two"), owner="ada")
    assert len(one) == len(two)
    for place in range(len(one)):
        spliced = one[:place] + two[place:]
        if spliced not in (one, two):
            assert refused(spliced, owner="ada") == "tampered"


def mutated(source: random.Random, data: bytes, other: bytes) -> bytes:
    i, j = sorted(source.choices(range(len(data) + 1), k=2))
    match source.randrange(9):
        case 0 | 1:
            out = bytearray(data or b"x")
            for _ in range(source.choice([1, 1, 2, 8])):
                out[source.randrange(len(out))] ^= 1 << source.randrange(8)
            return bytes(out)
        case 2:
            return data[:i] + source.randbytes(j - i) + data[j:]
        case 3:
            return data[:i] + source.randbytes(source.randrange(1, 9)) + data[i:]
        case 4:
            return data[:i] + data[j:]
        case 5:
            return data[:i]
        case 6:
            return data[:i] + other[i:]
        case 7:
            return data[:i] + other[i:j] + data[j:]
        case _:
            if len(data) < FIXED.size:
                return data
            # Change what a client that knows the format could: one field, to another state's or any value, with sizes
            # that fit.
            fields = list(FIXED.unpack_from(data))
            theirs, field = FIXED.unpack_from(other), source.randrange(4, len(fields))
            fields[field] = theirs[field] if field > EXPIRES or source.random() < 0.5 else source.randrange(2**62)
            out = bytearray(FIXED.pack(*fields) + data[FIXED.size :])
            if source.random() < 0.5:
                cut = source.randrange(len(out) + 1)
                out = out[:cut] + source.randbytes(source.randrange(9)) + out[cut + source.randrange(9) :]
                struct.pack_into("<I", out, 6, max(len(out) - HEAD, 0))
            return bytes(out)


@pytest.mark.slow
def test_100_000_altered_states_give_refusals_only(clock: Callable[[int], None]) -> None:
    source = random.Random(7)
    right: dict[str, Any] = {"owner": "ada", "conversation": "1"}
    wrong: dict[str, Any] = {"owner": "eve", "conversation": "2", "min_revision": 9}
    genuine = {
        seal.close(state, **right): state
        for seal in (Seal(KEYS, expires_after=60), Seal({"k3": KEYS["k3"]}, expires_after=60))
        for state in (EMPTY, STATE, noted("one", "two"), noted(*map(str, range(20))))
    }
    met: Counter[str] = Counter()
    for _ in range(100_000):
        altered, other = source.choices(list(genuine), k=2)
        for _ in range(source.choice([1, 1, 1, 2, 5])):
            altered = mutated(source, altered, other)
        # Open half of them for the wrong owner and after the expiry, which the answer must not reveal.
        guest = source.random() < 0.5
        clock(NOON + (1_000_000 if guest else 0))
        state, reason = None, "opened"
        try:
            state = SEAL.open(altered, **(wrong if guest else right))
        except BadState as problem:
            reason = problem.reason
        met[reason] += 1
        if altered in genuine:
            assert (reason, state) == (("wrong_owner", None) if guest else ("opened", genuine[altered]))
        else:
            begins = altered.startswith(b"\x89TLS") or b"\x89TLS".startswith(altered)
            assert reason in (ALTERED if begins else {"not_sealed"})
    assert met["opened"] + met["wrong_owner"] < 20_000
    assert min(met[reason] for reason in ALTERED) > 100


# Peeking without a key


def test_revision_times_size_key_and_expiry_can_be_told_without_a_key(clock: Callable[[int], None]) -> None:
    state = noted("one", "two", "three")
    sealed = Seal(KEYS, expires_after=60).close(state, owner="ada")
    seen, plain = peek_sealed(sealed), peek(state)
    assert (seen.revision, seen.created, seen.updated) == (3, plain.created, plain.updated)
    assert (seen.version, seen.size, seen.key, seen.expires) == (1, len(sealed), "k1", NOON + 60_000)
    assert peek_sealed(SEAL.close(state)).expires == 0


def test_a_damaged_state_tells_why_it_can_not_be_told() -> None:
    with pytest.raises(BadState) as caught:
        peek_sealed(SEAL.close(STATE)[:50])
    assert caught.value.reason == "truncated"


def test_a_seal_adds_little() -> None:
    assert len(SEAL.close(STATE)) - len(STATE) == 114 + len("k1")


# Misuse


@pytest.mark.parametrize("keys", [{}, None, b"x" * 32, [("k", b"x" * 32)]])
def test_a_seal_needs_keys_by_id(keys: Any) -> None:
    with pytest.raises(InputError, match=r"at least one key.*new_key"):
        Seal(keys)


@pytest.mark.parametrize("key", [b"", b"x" * 31, b"x" * 33, "x" * 32, "00" * 32, None, 7])
def test_a_key_is_32_bytes(key: Any) -> None:
    with pytest.raises(InputError, match=r"Key 2 of a Seal must be 32 random bytes.*new_key"):
        Seal({**KEYS, "k3": key})


@pytest.mark.parametrize("key_id", ["", "a" * 65, "é" * 33, "\ud83d", b"k", None, 7])
def test_a_key_id_has_1_to_64_bytes(key_id: Any) -> None:
    with pytest.raises(InputError, match="Key 1 of a Seal: its id must be text of 1 to 64 bytes"):
        Seal({key_id: Seal.new_key()})


@pytest.mark.parametrize("keys", [{"hunter2" * 10: b"k1"}, {"hunter2": b"k1"}, {b"hunter2": "k1"}, {"k1": "hunter2"}])
def test_keys_and_ids_in_the_wrong_places_show_no_key(keys: Any) -> None:
    with pytest.raises(InputError) as caught:
        Seal(keys)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e300, "60"])
def test_an_expiry_is_a_time_to_come(seconds: Any) -> None:
    with pytest.raises(InputError, match="`expires_after` must be a number of seconds above 0"):
        Seal(KEYS, expires_after=seconds)


@pytest.mark.parametrize("what", ["owner", "conversation"])
@pytest.mark.parametrize("name", [None, 7, b"ada"])
def test_owner_and_conversation_are_text(what: str, name: Any) -> None:
    sealed = SEAL.close(STATE)
    for call in (lambda: SEAL.close(STATE, **{what: name}), lambda: SEAL.open(sealed, **{what: name})):
        with pytest.raises(InputError, match=f"`{what}` must be a string"):
            call()


def test_a_sealed_state_is_not_sealed_again() -> None:
    with pytest.raises(InputError, match=r"sealed already\. Pass it on unchanged"):
        SEAL.close(SEAL.close(STATE))


@pytest.mark.parametrize(
    "other",
    [b"hello", STATE[:20], "text", None, 7],
    ids=["text in bytes", "cut off", "text", "none", "number"],
)
def test_only_a_state_is_sealed(other: Any) -> None:
    with pytest.raises(InputError, match=r"Only a state \(`reply.state`\) can be sealed\. "):
        SEAL.close(other)


def test_a_state_that_is_too_large_for_the_cipher_is_not_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "MAX_BODY", len(STATE) + 16)
    sealed = SEAL.close(STATE)
    for module in (seals, sealed_header):
        monkeypatch.setattr(module, "MAX_BODY", len(STATE) + 15)
    with pytest.raises(InputError, match=f"A state of {len(STATE)} bytes can't be sealed"):
        SEAL.close(STATE)
    assert refused(sealed) == "tampered"


# The optional dependency


@pytest.mark.parametrize("module", ["cryptography.exceptions", "cryptography.hazmat.primitives.ciphers.aead"])
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    sealed = SEAL.close(STATE)
    monkeypatch.setitem(sys.modules, module, None)
    for call in (lambda: SEAL.close(STATE), lambda: SEAL.open(sealed)):
        with pytest.raises(InputError, match=r"pip install 'longtalk\[seal\]'"):
            call()
    assert peek_sealed(sealed).revision == 1


def test_the_extra_is_imported_when_it_is_first_used() -> None:
    program = """
import sys
from longtalk.state import codec as states, sealing as seals
from longtalk.transcript.transcript import Entry, Transcript
from longtalk.wires import NAMES
seal = seals.Seal({"k": seals.Seal.new_key()})
assert not [name for name in sys.modules if name.startswith("cryptography")]
seal.close(states.encode(Transcript()))
assert "cryptography" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# What is sealed is trusted


@given(transcripts())
def test_an_authentic_state_is_read_as_any_other(transcript: Transcript) -> None:
    state = states.encode(transcript)
    wires = seals.ANY_WIRE
    assert states.decode(state, wires=wires, is_authentic=True) == states.decode(state, wires=wires)


@pytest.mark.parametrize("native", [b'{"role":"user"},{}', b"[]", b'{"role":"user"'])
def test_a_state_with_content_that_is_refused_is_not_sealed(native: bytes) -> None:
    entry = Entry(role="user", wire="openai-chat", native=native, at=1)
    state = states.encode(Transcript().append_to_turn("t", [entry]))
    with pytest.raises(BadState):
        states.decode(state, wires=NAMES)
    for seal in (SEAL, SEAL.to(owner="ada")):
        with pytest.raises(InputError, match="Only a state"):
            seal.close(state)


def test_an_altered_sealed_state_is_refused_before_it_is_trusted() -> None:
    chat = Chat(Scripted(), seal=SEAL)
    state = chat.note("one")
    for place in (HEAD, HEAD + 40, len(state) - 20, len(state) - 1):
        with pytest.raises(BadState) as caught:
            chat.note("two", state=state[:place] + bytes([state[place] ^ 1]) + state[place + 1 :])
        assert caught.value.reason in ALTERED
