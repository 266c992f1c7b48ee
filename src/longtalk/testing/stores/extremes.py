"""Cases about unusual names and times: a store handles them correctly, or refuses them with the right error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from longtalk.errors import LongtalkError
from longtalk.stores.base import MAIN, KeyedRequest
from longtalk.testing.report import assert_equal, assert_raises
from longtalk.testing.stores.harness import Case, ConversationDriver, Harness, add_to

EXTREME_CASES: list[Case] = []
case = add_to(EXTREME_CASES)

_HALF = "half \ud83d"
_EARLY = -86_400_000
"""A day before 1970, in milliseconds."""


def _is_refused(call: Callable[[], Any]) -> bool:
    """Return True if a call raises an error of Longtalk. Any other exception is passed on."""
    try:
        call()
    except LongtalkError:
        return True
    return False


def _use(conversation: ConversationDriver, branch: str = MAIN, key: str = "key") -> None:
    """Write a conversation with these names, and read it back if the store has not refused the names."""
    store, owner, id = conversation.store, conversation.owner, conversation.id  # noqa: A001
    calls: dict[str, Callable[[], Any]] = {
        "head": lambda: store.head(owner, id, branch),
        "read": lambda: store.read(owner, id, branch, 0, 1),
        "turns": lambda: store.turns(owner, id, branch, 0, 1),
        "records": lambda: store.records(owner, id, branch),
        "metas": lambda: store.metas(owner, id, branch, 0, 1),
        "keyed_turn": lambda: store.keyed_turn(owner, id, key),
        "renew": lambda: store.renew(owner, id, branch, 1, 1),
        "branches": lambda: store.branches(owner, id),
        "info": lambda: store.info(owner, id),
        "conversations": lambda: store.conversations(owner),
        "verify": lambda: store.verify(owner, id),
    }
    if _is_refused(lambda: conversation.say("a", branch=branch, request=KeyedRequest(key, "body"))):
        for call in calls.values():
            _is_refused(call)
        return
    for name, call in calls.items():
        assert_equal(_is_refused(call), False, f"whether `{name}` refuses a name that `write` has accepted")
    assert_equal(conversation.texts(branch), ["a"], "the texts")
    assert_equal(conversation.keyed_turn(key).request, KeyedRequest(key, "body"), "the request")
    assert_equal(store.verify(owner, id), [], "the problems that `verify` finds")


@case
def names_with_half_a_surrogate_pair_are_stored_or_refused(harness: Harness) -> None:
    _use(harness.conversation(_HALF))
    _use(harness.conversation(owner=f"{harness.owner} {_HALF}"))
    _use(harness.conversation("branch"), branch=_HALF)
    _use(harness.conversation("key"), key=_HALF)
    fork = harness.conversation("fork")
    fork.say("a", "b")
    if not _is_refused(lambda: fork.say("c", branch=_HALF, source=(MAIN, 1))):
        assert_equal(fork.texts(_HALF), ["a", "c"], "the texts of the fork")
    assert_equal(fork.texts(), ["a", "b"], "the texts of the source")


@case
def times_before_1970_are_refused(harness: Harness) -> None:
    conversation = harness.conversation()
    turn = conversation.make_turn(None, "a")
    early = {**turn, "entries": tuple(msgspec.structs.replace(entry, at=_EARLY) for entry in turn["entries"])}
    assert_raises(ValueError, lambda: conversation.write(**early), "an entry from before 1970")
    assert_raises(ValueError, lambda: conversation.write(**turn, at=_EARLY), "a commit before 1970")
    assert_equal(harness.store.info(harness.owner, conversation.id), None, "the conversation that was refused")
    conversation.write(**turn)
    assert_equal(conversation.texts(), ["a"], "the texts")


_ALIKE = (
    *("resume", "Resume", "r\u00e9sum\u00e9", "re\u0301sume\u0301", "RE\u0301SUME\u0301"),  # case, composed, decomposed
    *("\u0440esume", "r\u0435sume", "resum\u212e", "\uff52esume"),  # Cyrillic, a symbol, full width
    *("resume ", " resume", "resume\u00a0", "resume.", "resume\t"),  # what is often trimmed
    *("res\u200bume", "res\u200dume", "res\u00adume", "\u200fresume", "\ufeffresume"),  # invisible
    *("ss", "\u00df", "\u1e9e", "fi", "\ufb01", "i", "\u0131", "I", "\u0130", "k", "\u212a"),  # case folding
    *("2", "\u00b2", "\u0662", "IV", "\u2163"),  # compatibility forms
    *("\uac00", "\u1100\u1161", "q\u0323\u0307", "q\u0307\u0323"),  # syllables, the order of marks
    *("a/b", "a\u2215b", "a%2fb", "a\\b", "a:b", "..", "con", "CON"),  # what file systems treat in their own way
)
"""Different ids of which many look alike, or become equal if text is normalized, folded, trimmed or escaped."""


@case
def ids_that_look_alike_are_different(harness: Harness) -> None:
    for number, name in enumerate(_ALIKE):
        harness.conversation(name).say(f"in {number}")
        harness.conversation("talk", owner=f"{harness.owner} {name}").say(f"of {number}")
        harness.conversation("branches").say(f"on {number}", branch=name, request=KeyedRequest(name, str(number)))
    for number, name in enumerate(_ALIKE):
        owned = harness.conversation("talk", owner=f"{harness.owner} {name}")
        assert_equal(harness.conversation(name).texts(), [f"in {number}"], f"conversation {name!r}")
        assert_equal(owned.texts(), [f"of {number}"], f"the conversation of owner {name!r}")
        branches = harness.conversation("branches")
        assert_equal(branches.texts(name), [f"on {number}"], f"branch {name!r}")
        assert_equal(branches.keyed_turn(name).request.body, str(number), f"the request with the key {name!r}")
    listed = harness.store.conversations(harness.owner, limit=1_000)
    assert_equal({each.id for each in listed}, {*_ALIKE, "branches"}, "the ids in the list")
