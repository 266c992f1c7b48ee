"""Cases about deleting, redacting and verifying conversations."""

from __future__ import annotations

from functools import partial

import msgspec

from longtalk.stores.base import MAIN, HeadMoved, KeyedRequest, RequestKeyTaken
from longtalk.testing.report import assert_equal, assert_present, assert_raises, assert_true
from longtalk.testing.stores.harness import WRITTEN_KINDS, Case, Harness, add_to, make_message
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import link_entries

REMOVAL_CASES: list[Case] = []
case = add_to(REMOVAL_CASES)


@case
def a_deleted_conversation_is_gone(harness: Harness) -> None:
    store, conversation, kept = harness.store, harness.conversation(), harness.conversation("kept")
    for each in (conversation, kept):
        each.say(
            "lisbon", "b", request=KeyedRequest("key", "body"), meta={"a": 1}, manifest=b"{}", entry_meta={1: {"b": 2}}
        )
        each.say("c", branch="fork", source=(MAIN, 1))
        each.write(records=(each.make_record("brief", "x", 1), each.make_record("pins", "y", 0)))
    before, turn = kept.read_all("key"), conversation.entries()[0].turn
    receipt = assert_present(store.delete(harness.owner, "talk"), "a receipt")
    counts = (receipt.conversation, receipt.entries, receipt.turns, receipt.records, receipt.branches)
    assert_equal(counts, ("talk", 3, 2, 2, 2), "the counts of the receipt")
    assert_true(receipt.at > 0)
    assert_equal(store.delete(harness.owner, "talk"), None, "the receipt of a second deletion")
    assert_equal(
        conversation.read_all("key"),
        harness.conversation("nowhere").read_all("key"),
        "a deleted conversation, compared with one that never existed",
    )
    assert_equal(
        [hit.conversation for hit in store.candidates(harness.owner, ["lisbon"], 9)], ["kept"], "search results"
    )
    assert_equal(kept.read_all("key"), before, "another conversation")
    head = conversation.say("again", request=KeyedRequest("key", "body"))
    assert_equal(
        (head.revision, head.size, head.token, head.records),
        (1, 1, 0, ()),
        "the head of a new conversation with the same id",
    )
    assert_true(conversation.texts() == ["again"] and len(store.branches(harness.owner, "talk")) == 1)
    assert_equal(store.conversations(harness.owner)[0].meta, {})
    conversation.write(entries=link_entries(conversation.find_parent(), turn, 0, [make_message("x")]))
    assert_equal(
        (store.manifest(harness.owner, "talk", turn), conversation.metas()),
        (b"", {}),
        "the manifest and metadata of a new conversation",
    )


@case
def a_redacted_entry_is_gone(harness: Harness) -> None:
    store, conversation = harness.store, harness.conversation()
    for i in range(10):
        conversation.say(f"question {i}", f"answer {i}")
    conversation.write(
        records=(
            conversation.make_record("brief", "before", 3),
            conversation.make_record("brief", "at", 4),
            conversation.make_record("epoch", "after", 9),
        )
    )
    conversation.write("fork", source=(MAIN, 8))
    conversation.say("other", branch="early", source=(MAIN, 2))
    conversation.write("early", records=(conversation.make_record("brief", "sibling", 2, branch="early"),))
    before, turns = conversation.entries(), store.turns(harness.owner, "talk", MAIN, 0, 20)
    native = b'{ "role":"user","content":"redacted" }'
    assert_equal(store.redact(harness.owner, "talk", "nowhere-0", native), False)
    assert_equal(conversation.entries(), before)
    assert_equal(store.redact(harness.owner, "talk", before[4].id, native), True)
    after = conversation.entries()
    assert_equal(after[4].native, native, "the redacted entry")
    clean = [msgspec.structs.replace(entry, native=b"", tokens=0) for entry in before]
    assert_equal(
        [msgspec.structs.replace(entry, native=b"", tokens=0) for entry in after],
        clean,
        "everything but the JSON of the entries",
    )
    assert_equal(after[:4] + after[5:], before[:4] + before[5:], "the other entries")
    assert_equal(conversation.entries("fork"), after[:8], "the entries of another branch")
    assert_equal(store.turns(harness.owner, "talk", MAIN, 0, 20), turns)
    assert_equal(conversation.list_head_records(), [("before", 3)], "the records before the redacted entry")
    assert_equal(conversation.list_head_records("early"), [("sibling", 2)], "the records of a branch without the entry")
    assert_equal(
        store.candidates(harness.owner, ["2"], 9, conversation="talk"),
        [h for h in store.candidates(harness.owner, ["2"], 9) if h.position != 4],
        "search results",
    )
    assert_true(
        all(hit.position != 4 for hit in store.candidates(harness.owner, ["question"], 99)), "a redacted text is found"
    )
    assert_equal(
        [hit.position for hit in store.candidates(harness.owner, ["redacted"], 9)],
        [4],
        "search results for the new text",
    )
    conversation.say("goes on")
    assert_equal(len(conversation.entries()), 21)
    for odd in (b'{"half":"\\ud800"}', b'{"bad":"\xff"}', b'{\n"content":"x"}'):
        assert_equal(store.redact(harness.owner, "talk", before[0].id, odd), True)
        assert_equal(conversation.entries()[0].native, odd, "the new JSON")


@case
def a_redaction_removes_the_metadata_of_its_entry(harness: Harness) -> None:
    store, owner, conversation = harness.store, harness.owner, harness.conversation()
    conversation.say("a", "b", "c", meta={"of": "all"}, entry_meta={0: {"n": 0}, 1: {"n": 1}})
    conversation.write("fork", source=(MAIN, 3))
    entries = conversation.entries()
    store.describe(owner, "talk", {"later": 2}, entry=entries[2].id)
    for position, remaining in ((1, {0: {"n": 0}, 2: {"later": 2}}), (2, {0: {"n": 0}})):
        assert_equal(store.redact(owner, "talk", entries[position].id, b"{}"), True)
        for branch in (MAIN, "fork"):
            assert_equal(conversation.metas(branch), remaining, "the remaining metadata")
    assert_equal(store.conversations(owner)[0].meta, {"of": "all"})
    store.describe(owner, "talk", {"again": 1}, entry=entries[1].id)
    assert_equal(conversation.metas(), {0: {"n": 0}, 1: {"again": 1}}, "metadata that was added after the redaction")


@case
def a_redaction_keeps_records_that_quote_no_entries(harness: Harness) -> None:
    store, conversation = harness.store, harness.conversation()
    conversation.say("a", "b", "c", "d")
    for position in (0, 1, 3):
        conversation.write(
            records=tuple(conversation.make_record(kind, f"{kind} {position}", position) for kind in WRITTEN_KINDS)
        )
    conversation.write("fork", source=(MAIN, 4))
    assert_equal(store.redact(harness.owner, "talk", conversation.entries()[1].id, b"{}"), True)
    for branch in (MAIN, "fork"):
        for kind in WRITTEN_KINDS:
            remaining = [
                (f"{kind} {position}", position)
                for position in ((0, 1, 3) if not kind_of(kind).quotes_entries else (0,))
            ]
            assert_equal(conversation.list_records(kind, branch), remaining, f"the remaining {kind!r} records")
            in_head = [each for each in conversation.list_head_records(branch) if each[0].startswith(kind)]
            assert_equal(in_head, remaining[-1:], "the newest remaining record")


@case
def a_redaction_removes_errors_that_may_quote_the_entry(harness: Harness) -> None:
    store, owner, conversation = harness.store, harness.owner, harness.conversation()
    error = "RequestRefused: the model was asked 'the password is swordfish'"
    conversation.say("fine", "answer")
    for branch, source in ((MAIN, None), ("fork", (MAIN, 3))):
        parent = conversation.find_parent(branch, source=source)
        fields = conversation.make_turn(parent, "the password is swordfish", status="failed")
        fields["turn"] = msgspec.structs.replace(fields["turn"], error=error)
        conversation.write(branch, **fields, source=source, request=KeyedRequest(branch, "digest"))
    turns = store.turns(owner, "talk", "fork", 0, 9)
    assert_equal(store.redact(owner, "talk", conversation.entries()[2].id, b"{}"), True)
    stored = store.turns(owner, "talk", "fork", 0, 9)
    found = [turn for _, turn in stored]
    found += [each.turn for each in (conversation.head(), conversation.head("fork")) if each.turn]
    found += [each.turn for each in store.branches(owner, "talk") if each.turn]
    found += [each.turn for each in store.keyed_turns(owner, "talk")]
    assert_equal([turn for turn in found if "swordfish" in turn.error], [], "turns with an error that quotes the entry")
    assert_equal(
        [(position, msgspec.structs.replace(turn, error="")) for position, turn in stored],
        [(position, msgspec.structs.replace(turn, error="")) for position, turn in turns],
        "the turns besides their errors",
    )
    assert_equal([bool(turn.error) for _, turn in stored], [False, True, True], "which turns have an error")


@case
def a_redaction_removes_responses_that_may_quote_the_entry(harness: Harness) -> None:
    store, owner, conversation = harness.store, harness.owner, harness.conversation()
    for text in ("the password is swordfish", "thanks"):
        fields = conversation.make_turn(conversation.find_parent(), text, "answer")
        fields["turn"] = msgspec.structs.replace(
            fields["turn"], usage=(b'{"in":1}',), responses=(b'{"response":{"query":"swordfish"}}',)
        )
        conversation.write(**fields, request=KeyedRequest(text, "digest"))
    turns = store.turns(owner, "talk", MAIN, 0, 9)
    assert_equal(store.redact(owner, "talk", conversation.entries()[0].id, b"{}"), True)
    wanted = [(position, msgspec.structs.replace(turn, responses=())) for position, turn in turns]
    assert_equal(store.turns(owner, "talk", MAIN, 0, 9), wanted, "the turns after a redaction")
    assert_equal(conversation.head().turn, wanted[-1][1], "the turn in the head after a redaction")
    assert_equal(
        [each.turn.responses for each in store.keyed_turns(owner, "talk")], [(), ()], "the responses of keyed turns"
    )


@case
def a_redaction_removes_the_digest_of_the_request(harness: Harness) -> None:
    store, owner, conversation = harness.store, harness.owner, harness.conversation()
    conversation.say("secret", "answer", request=KeyedRequest("redacted", "digest of secret"))
    conversation.say("other", "answer", request=KeyedRequest("kept", "digest of other"))
    turn = conversation.entries()[0].turn
    assert_equal(store.redact(owner, "talk", conversation.entries()[0].id, b"{}"), True)
    asked = assert_present(store.keyed_turn(owner, "talk", "redacted"), "the turn of the request")
    assert_equal((asked.request, asked.turn.id), (KeyedRequest("redacted", ""), turn), "the request after a redaction")
    requests = [each.request for each in store.keyed_turns(owner, "talk")]
    assert_equal(requests, [KeyedRequest("kept", "digest of other"), KeyedRequest("redacted", "")], "all requests")
    again = partial(conversation.say, "again", request=KeyedRequest("redacted", "digest of secret"))
    assert_raises(RequestKeyTaken, again, "a second turn with the key of a redacted request")


@case
def a_redaction_changes_the_revision(harness: Harness) -> None:
    conversation = harness.conversation()
    conversation.say("a", "b")
    conversation.write("fork", source=(MAIN, 2))
    heads = conversation.head(), conversation.head("fork")
    harness.store.redact(harness.owner, "talk", conversation.entries()[0].id, b"{}")
    for head in heads:
        fields = conversation.make_turn(head.entry, "c") | {"expect": head.revision, "branch": head.branch}
        assert_raises(
            HeadMoved, partial(conversation.write, **fields), f"a commit on {head.branch!r} after the redaction"
        )


@case
def verify_finds_no_problems_after_normal_use(harness: Harness) -> None:
    store, owner, conversation = harness.store, harness.owner, harness.conversation()
    for i in range(12):
        conversation.say(f"{i} " + "x" * 30_000, "y", manifest=b"{}", entry_meta={0: {"i": i}})
        assert_equal(store.verify(owner, "talk"), [], "problems in a growing conversation")
    conversation.say("z", branch="fork", source=(MAIN, 11))
    conversation.write("empty", source=(MAIN, 0))
    conversation.say("again", cut=5)
    conversation.write(cut=0)
    assert_equal(store.verify(owner, "talk"), [], "problems after forks and cuts")
    for entry in [conversation.entries("fork")[position].id for position in (0, 7, 11)]:
        store.redact(owner, "talk", entry, b'{"content":"-"}')
        store.describe(owner, "talk", {"a": 1}, entry=entry)
    assert_equal(store.verify(owner, "talk"), [], "problems after redactions")
    store.delete(owner, "talk")
    assert_equal(store.verify(owner, "talk"), [], "problems of a deleted conversation")
