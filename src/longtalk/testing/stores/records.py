"""Cases about records: on which paths they are visible, which records replace older ones, and their order."""

from __future__ import annotations

from longtalk.stores.base import MAIN, PlacedRecord
from longtalk.testing.report import assert_equal, assert_true
from longtalk.testing.stores.harness import (
    KEPT_WHEN_REPLACED,
    NEWEST_ONLY,
    Case,
    Harness,
    add_to,
)
from longtalk.transcript.record_kinds import KINDS
from longtalk.transcript.transcript import Record

RECORD_CASES: list[Case] = []
DISCARDABLE = tuple(kind.name for kind in KINDS if kind.may_discard_replaced)
case = add_to(RECORD_CASES)


@case
def a_record_is_visible_on_paths_with_its_entry(harness: Harness) -> None:
    conversation = harness.conversation()
    conversation.write(records=(PlacedRecord(Record("quirks", "", 0, b"root"), -1),))
    conversation.say("a", "b")
    conversation.say("c", "d")
    conversation.write(records=(conversation.make_record("brief", "early", 1),))
    conversation.write(records=(conversation.make_record("brief", "late", 3),))
    conversation.say("x", branch="fork", source=(MAIN, 2))
    assert_equal(
        conversation.list_head_records("fork"),
        [("root", -1), ("early", 1)],
        "a fork, without records of entries that it lacks",
    )
    conversation.write("fork", records=(conversation.make_record("brief", "own", 2, branch="fork"),))
    assert_equal(
        conversation.list_head_records(),
        [("root", -1), ("early", 1), ("late", 3)],
        "a branch, without records of a fork's own entry",
    )
    conversation.write("fork", records=(conversation.make_record("brief", "shared", 0, branch="fork"),))
    assert_equal(
        conversation.list_head_records(),
        [("root", -1), ("early", 1), ("late", 3), ("shared", 0)],
        "a branch, with a fork's record of a shared entry",
    )
    conversation.write(cut=3)
    assert_equal(
        conversation.list_head_records(),
        [("root", -1), ("early", 1), ("shared", 0)],
        "a branch, without records of an entry that was cut off",
    )
    assert_equal(conversation.list_head_records("fork"), [("root", -1), ("early", 1), ("own", 2), ("shared", 0)])


@case
def the_newest_record_replaces_older_ones_of_some_kinds(harness: Harness) -> None:
    conversation = harness.conversation()
    conversation.say("a", "b", "c", "d")
    for kind in NEWEST_ONLY:
        conversation.write(
            records=(
                conversation.make_record(kind, f"{kind} 1", 1),
                conversation.make_record("brief", f"brief of {kind}", 1),
            )
        )
        conversation.write(records=(conversation.make_record(kind, f"{kind} 2", 3),))
    seen = [data for data, _ in conversation.list_head_records()]
    assert_equal([data for data in seen if not data.startswith("brief")], [f"{kind} 2" for kind in NEWEST_ONLY])
    assert_equal([data for data in seen if data.startswith("brief")], [f"brief of {kind}" for kind in NEWEST_ONLY])
    conversation.write("fork", source=(MAIN, 2))
    conversation.write(cut=2)
    for branch in (MAIN, "fork"):
        seen = [
            data for data, _ in conversation.list_head_records(branch) if not data.startswith(("brief", *DISCARDABLE))
        ]
        assert_equal(
            seen, [f"{kind} 1" for kind in KEPT_WHEN_REPLACED], "the previous records, without the newest ones"
        )
    conversation.write(records=(conversation.make_record("pins", "pins 3", 0),))
    assert_true(
        ("pins 3", 0) in conversation.list_head_records() and ("pins 1", 1) not in conversation.list_head_records(),
        "the newest record is not the one that was created last",
    )


@case
def records_are_returned_in_creation_order(harness: Harness) -> None:
    """Check the order of records. Older records of some kinds may be missing, since stores may discard them."""
    conversation = harness.conversation()
    conversation.say("a", "b", "c", "d")
    kinds = ("brief", *NEWEST_ONLY)
    for position in (1, 0, 3):
        conversation.write(
            records=tuple(conversation.make_record(kind, f"{kind} {position}", position) for kind in kinds)
        )
        conversation.write(records=(conversation.make_record("brief", f"then {position}", position),))
    seen = [data for data, _ in conversation.list_head_records()]
    wanted = ["brief 1", "then 1", "brief 0", "then 0", "brief 3", *[f"{kind} 3" for kind in NEWEST_ONLY], "then 3"]
    assert_equal(seen, wanted, "the records that the head shows")
    discardable = [f"{kind} {position}" for kind in DISCARDABLE for position in (0, 1)]
    every = [data for position in (1, 0, 3) for data in (*[f"{kind} {position}" for kind in kinds], f"then {position}")]
    seen = [
        placed.record.data.decode() for placed in conversation.store.records(conversation.owner, conversation.id, MAIN)
    ]
    assert_equal(
        [data for data in seen if data not in discardable],
        [data for data in every if data not in discardable],
        "all records",
    )


@case
def a_record_replaced_on_one_branch_stays_on_others(harness: Harness) -> None:
    conversation = harness.conversation()
    conversation.say("a", "b", "c", "d")
    conversation.write(records=tuple(conversation.make_record(kind, f"{kind} 1", 1) for kind in NEWEST_ONLY))
    conversation.write("before", source=(MAIN, 2))
    conversation.say("e", branch="beside", source=(MAIN, 3))
    conversation.write(records=tuple(conversation.make_record(kind, f"{kind} 3", 3) for kind in NEWEST_ONLY))
    conversation.write(
        "beside", records=tuple(conversation.make_record(kind, f"{kind} e", 3, branch="beside") for kind in NEWEST_ONLY)
    )
    for branch, newest in (("before", "1"), (MAIN, "3"), ("beside", "e")):
        assert_equal(
            [data for data, _ in conversation.list_head_records(branch)],
            [f"{kind} {newest}" for kind in NEWEST_ONLY],
            f"on {branch!r}",
        )


@case
def records_of_some_kinds_stay_on_their_branch(harness: Harness) -> None:
    """Check that a branch sees no records of such kinds that are added to its source after the branch was created."""
    for kind in (kind.name for kind in KINDS if kind.own_branch_only):
        conversation = harness.conversation(kind)
        conversation.write(records=(conversation.make_record(kind, "first", -1),))
        conversation.write("empty", source=(MAIN, 0))
        conversation.write("empty", records=(conversation.make_record(kind, "of the empty one", -1),))
        conversation.say("a", "b")
        conversation.write(records=(conversation.make_record(kind, "early", 1),))
        conversation.write("fork", source=(MAIN, 2))
        conversation.write(records=(conversation.make_record(kind, "late", 1),))
        conversation.write("fork", records=(conversation.make_record(kind, "own", 1, branch="fork"),))
        conversation.write("of the fork", source=("fork", 2))
        conversation.write("before", source=("fork", 1))
        conversation.write("fork", records=(conversation.make_record(kind, "later", 1, branch="fork"),))
        conversation.say("c", "d")
        conversation.say("e", branch="fork")
        seen = {
            "empty": ("of the empty one", -1),
            MAIN: ("late", 1),
            "fork": ("later", 1),
            "of the fork": ("own", 1),
            "before": ("first", -1),
        }
        for branch, newest in seen.items():
            assert_equal(conversation.list_head_records(branch), [newest], f"on {branch!r}")
        assert_equal(conversation.list_records(kind), [("first", -1), ("early", 1), ("late", 1)])
        assert_equal(conversation.list_records(kind, "of the fork"), [("first", -1), ("early", 1), ("own", 1)])
        conversation.write("fork", cut=2)
        assert_equal(
            (conversation.list_head_records("fork"), conversation.texts("fork")),
            ([("later", 1)], ["a", "b"]),
            "after a cut",
        )
        conversation.write(cut=1)
        assert_equal(
            (conversation.list_head_records(), conversation.texts("of the fork")), ([("first", -1)], ["a", "b"])
        )
        assert_equal(harness.store.verify(conversation.owner, conversation.id), [])


@case
def all_records_of_a_kind_can_be_read(harness: Harness) -> None:
    conversation = harness.conversation()
    conversation.write(records=(PlacedRecord(Record("epoch", "", 3, b"root"), -1),))
    conversation.say("a", "b", "c", "d")
    placed = conversation.make_record("epoch", "one", 3)
    conversation.write(records=(placed, conversation.make_record("brief", "a brief", 0)))
    assert_equal(
        conversation.store.records(conversation.owner, conversation.id, MAIN, "epoch")[1:], [placed], "a record"
    )
    conversation.write(
        records=(conversation.make_record("epoch", "two", 1), conversation.make_record("epoch", "three", 2))
    )
    every = [("root", -1), ("one", 3), ("two", 1), ("three", 2)]
    assert_equal(conversation.list_records("epoch"), every, "all records, including replaced ones")
    assert_equal(conversation.list_records("brief"), [("a brief", 0)])
    assert_equal(conversation.list_records("nowhere"), [])
    conversation.say("x", branch="fork", source=(MAIN, 2))
    conversation.write("fork", records=(conversation.make_record("epoch", "own", 2, branch="fork"),))
    assert_equal(
        conversation.list_records("epoch", "fork"),
        [("root", -1), ("two", 1), ("own", 2)],
        "the records on a fork's path",
    )
    assert_equal(conversation.list_records("epoch"), every, "the records of the other branch")
    conversation.write(cut=3)
    assert_equal(
        conversation.list_records("epoch"), [("root", -1), ("two", 1), ("three", 2)], "the records after a cut"
    )


@case
def marking_a_record_obsolete_hides_no_other_record(harness: Harness) -> None:
    """Check that the head still includes every other record. It may also include obsolete ones."""
    conversation = harness.conversation()
    conversation.say("a", "b", "c", "d")
    first, second, third = (
        conversation.make_record("brief", text, position) for position, text in enumerate(("first", "second", "third"))
    )
    conversation.write(records=(first, second, third, conversation.make_record("pins", "pins", 1)))
    conversation.write("fork", source=(MAIN, 4))
    before = conversation.list_head_records("fork")
    obsolete = [("first", 0)]
    head = conversation.write(obsolete=(first.record,), records=(conversation.make_record("brief", "fourth", 3),))
    assert_equal(conversation.head(), head, "`head` and `write` differ")
    current = [("second", 1), ("third", 2), ("pins", 1), ("fourth", 3)]
    assert_equal(
        [each for each in conversation.list_head_records() if each not in obsolete],
        current,
        "the current records",
    )
    assert_equal(conversation.list_head_records("fork")[: len(before)], before, "the records of another branch")
    obsolete.append(current.pop(1))
    head = conversation.write(obsolete=(third.record, Record("brief", "", 0, b"nowhere")))
    assert_equal(conversation.head(), head, "`head` and `write` differ")
    assert_equal(
        [each for each in conversation.list_head_records() if each not in obsolete],
        current,
        "the current records",
    )


@case
def an_obsolete_record_can_still_be_read(harness: Harness) -> None:
    conversation = harness.conversation()
    conversation.say("a", "b")
    note, pins = conversation.make_record("brief", "note", 0), conversation.make_record("pins", "pins", 1)
    conversation.write(records=(note, pins))
    conversation.write(obsolete=(note.record, pins.record))
    assert_equal(
        (conversation.list_records("brief"), conversation.list_records("pins")), ([("note", 0)], [("pins", 1)])
    )


@case
def conversations_are_found_by_the_kinds_of_their_records(harness: Harness) -> None:
    store = harness.store

    def find(kind: str = "app_lines") -> list[str]:
        return sorted(store.conversations_with(harness.owner, kind))

    for name in ("main", "fork", "none", "gone"):
        harness.conversation(name).say("a", "b")
    other = harness.conversation("other", owner=harness.other)
    other.say("a")
    other.write(records=(other.make_record("app_lines", "theirs", 0),))
    main, fork, gone = (harness.conversation(name) for name in ("main", "fork", "gone"))
    for i, each in enumerate((main, gone, main)):
        each.write(records=(each.make_record("app_lines", f"{i}", 1), each.make_record("meter", f"{i}", 1)))
    fork.say("x", branch="x", source=(MAIN, 1))
    fork.write("x", records=(fork.make_record("app_lines", "own", 1, branch="x"),))
    assert_equal(find(), ["fork", "gone", "main"])
    assert_equal(find("meter"), ["gone", "main"], "a kind whose replaced records may be discarded")
    assert_equal(find("unknown"), [])
    assert_equal(main.list_records("app_lines"), [("0", 1), ("2", 1)], "replaced records, which a store keeps")
    store.delete(harness.owner, "gone")
    assert_equal(find(), ["fork", "main"], "the conversations after a deletion")
    fork.write("x", cut=1)
    assert_equal(find(), ["main"], "the conversations after the record's entry was cut off")
    store.redact(harness.owner, "main", main.entries()[0].id, b'{"role":"user","content":"redacted"}')
    assert_equal(find(), [], "the conversations after a redaction")
    assert_equal(find("meter"), ["main"], "a kind that can't quote entries, after a redaction")
    assert_equal(main.list_records("app_lines"), [], "the records after a redaction")
