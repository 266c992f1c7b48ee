"""Cases about the profile of an owner, which is made from the records of the owner's conversations."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from longtalk._util import json_bytes
from longtalk._util.checks import PROFILE_ID
from longtalk.archive.profile_reading import (
    change_owner_record,
    change_privacy,
    read_owner_record,
    read_privacy,
    read_profile_lines,
    read_turn_profile,
)
from longtalk.memory.brief.lines import BriefContent, Line, make_line_id, normalize
from longtalk.memory.brief.record import KIND, BriefRecord
from longtalk.memory.profile.config import Profile
from longtalk.memory.profile.lines import OwnerRecord
from longtalk.stores.base import MAIN, PlacedRecord
from longtalk.testing.report import assert_equal, assert_true
from longtalk.testing.stores.harness import Case, ConversationDriver, Harness, add_to
from longtalk.tokens import Estimator
from longtalk.transcript.transcript import Record

PROFILE_CASES: list[Case] = []
case = add_to(PROFILE_CASES)


def _note(conversation: ConversationDriver, text: str, *, branch: str = MAIN) -> None:
    """Commit a brief that contributes a line with this text to the profile, from the last entry of the branch."""
    entries = conversation.entries(branch)
    line = Line(make_line_id("preferences", normalize(text)), "preferences", text, entries[-1].id, seen=1)
    data = json_bytes.encode(BriefRecord(profile=BriefContent((line,))))
    record = PlacedRecord(Record(KIND, entries[-1].id, 1, data), len(entries) - 1)
    conversation.write(branch, records=(record,))


def _list_texts(harness: Harness, owner: str | None = None) -> list[str]:
    """Return the lines of an owner's profile, after checking that turns send the same."""
    owner = harness.owner if owner is None else owner
    texts = sorted(line.text for line in read_profile_lines(harness.store, owner))
    sent = read_turn_profile(harness.store, owner, "any", Profile(), Estimator())
    assert_equal(sorted(line.text for line in sent.lines), [f"prefers: {text}" for text in texts], "what a turn sends")
    return texts


@case
def the_heads_of_several_conversations_are_read_at_once(harness: Harness) -> None:
    for name in ("a", "b", "c"):
        harness.conversation(name).say("a message", "an answer")
    talk = harness.conversation("a")
    for number in range(3):
        talk.write(f"branch {number}", source=(MAIN, 1))
    _note(talk, "tea", branch="branch 1")
    harness.conversation("d", owner=harness.other).say("a message")
    found = harness.store.heads(harness.owner, ["c", "a", "d", "none"], 2)
    assert_equal(sorted(found), ["a", "c"], "the conversations")
    assert_equal([len(found[name]) for name in ("a", "c")], [2, 1], "the number of heads")
    for name, heads in found.items():
        branches = [each.branch for each in harness.store.branches(harness.owner, name)]
        every = [harness.store.head(harness.owner, name, branch) for branch in branches]
        newest = sorted([head for head in every if head], key=lambda head: (-head.updated, head.branch))
        assert_equal(heads, newest[:2], f"the heads of {name!r}")
    assert_equal(harness.store.heads(harness.owner, [], 2), {}, "the heads of no conversation")


@case
def a_profile_has_the_lines_of_all_conversations_of_one_owner(harness: Harness) -> None:
    for name, text in (("a", "tea"), ("b", "coffee"), ("c", "tea")):
        conversation = harness.conversation(name)
        conversation.say("a message", "an answer")
        _note(conversation, text)
    other = harness.conversation("a", owner=harness.other)
    other.say("a message")
    _note(other, "milk")
    assert_equal(_list_texts(harness), ["coffee", "tea"])
    assert_equal(_list_texts(harness, harness.other), ["milk"], "the profile of another owner")
    found = {line.text: line for line in read_profile_lines(harness.store, harness.owner)}
    assert_equal({source.conversation for source in found["tea"].sources}, {"a", "c"}, "the sources of a line")
    harness.store.delete(harness.owner, "a")
    assert_equal(_list_texts(harness), ["coffee", "tea"], "a line that another conversation states too")
    harness.store.delete(harness.owner, "c")
    assert_equal(_list_texts(harness), ["coffee"], "the lines after their last source was deleted")


@case
def a_redaction_takes_lines_out_of_a_profile(harness: Harness) -> None:
    conversation = harness.conversation()
    conversation.say("a secret", "an answer")
    _note(conversation, "secrets")
    assert_equal(_list_texts(harness), ["secrets"])
    assert_true(harness.store.redact(harness.owner, "talk", conversation.entries()[0].id, b"{}"))
    assert_equal(_list_texts(harness), [], "the profile after the redaction")


@case
def a_private_conversation_contributes_nothing(harness: Harness) -> None:
    store, conversation = harness.store, harness.conversation()
    conversation.say("a", "b", "c", "d")
    conversation.write("early", source=(MAIN, 2))
    conversation.write("empty", source=(MAIN, 0))
    for branch in (MAIN, "early"):
        _note(conversation, f"tea on {branch}", branch=branch)
    assert_equal(_list_texts(harness), ["tea on early", "tea on main"])
    change_privacy(store, harness.owner, "talk", private=True)
    assert_true(read_privacy(store, harness.owner, "talk"))
    assert_equal(_list_texts(harness), [], "the profile while the conversation is private")
    conversation.write("later", source=("early", 1))
    _note(conversation, "tea on later", branch="later")
    conversation.write(MAIN, cut=0)
    store.redact(harness.owner, "talk", conversation.entries("early")[0].id, b"{}")
    assert_true(read_privacy(store, harness.owner, "talk"), "a fork, a rewind or a redaction ended the privacy")
    assert_equal(_list_texts(harness), [], "the profile after a fork, a rewind and a redaction")
    change_privacy(store, harness.owner, "talk", private=False)
    assert_true(not read_privacy(store, harness.owner, "talk"))
    _note(conversation, "tea again", branch="early")
    assert_true("tea again" in _list_texts(harness))


@case
def lines_of_the_app_survive_concurrent_writers(harness: Harness) -> None:
    store, owner = harness.store, harness.owner

    def add(number: int) -> None:
        line = Line(f"id{number}", "preferences", f"cup {number}", at=number, seen=number)
        change_owner_record(
            store, owner, lambda record: OwnerRecord((*record.lines, line), (*record.revoked, f"gone{number}"))
        )

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add, range(9)))
    record = read_owner_record(store, owner)
    assert_equal(sorted(line.id for line in record.lines), sorted(f"id{i}" for i in range(9)), "the lines")
    assert_equal(len(record.revoked), 9, "the revoked lines")
    assert_equal(len(_list_texts(harness)), 9)
    assert_equal(read_owner_record(store, harness.other), OwnerRecord(), "the record of another owner")
    store.delete(owner, PROFILE_ID)
    assert_equal(_list_texts(harness), [], "the profile after the conversation that keeps the lines was deleted")
