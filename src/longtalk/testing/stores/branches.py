"""Cases about commits: unchanged bytes, refused commits, turns, branches and cuts."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import msgspec

from longtalk.stores.base import MAIN, BranchHead, HeadMoved, KeyedRequest, Lease, PlacedRecord
from longtalk.testing.report import assert_equal, assert_present, assert_raises, assert_true
from longtalk.testing.stores.harness import ME, ODD_JSON, Case, Harness, add_to, make_message
from longtalk.transcript.pack import Entry
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import Record, Turn, link_entries, new_id

BRANCH_CASES: list[Case] = []
case = add_to(BRANCH_CASES)


@case
def a_commit_is_stored_completely(harness: Harness) -> None:
    conversation = harness.conversation()
    reports, responses = (b'{"in": 1}', b"\xff not JSON"), (b'{"entry" : 2}', b"\xff not JSON", b"{}")
    turn = Turn("t1", "complete", "test:m", 5, 9, "length", reports, "digest", "an error", responses)
    entries = [
        Entry(role="event", kind="event", wire="longtalk", native=b'{"source":"a","text":"b"}', at=1),
        Entry(role="user", wire="openai-chat", native=b'{"role":"user","content":"hello"}', at=2, tokens=3),
        Entry(role="assistant", wire="anthropic", native=b'{"role":"a"}', at=3, mark="length", bound="b", tokens=9),
        Entry(role="tool", wire="openai-chat", native=b'{"role":"tool"}', at=2**46, mark="error"),
    ]
    entries = list(link_entries(None, "t1", 0, entries))
    record = PlacedRecord(Record("brief", "t1-2", 7, b'{"a" : 1}'), 2)
    lease = Lease(ME, 99, 1)
    head = conversation.write(entries=tuple(entries), turn=turn, records=(record,), lease=lease, at=1234)
    assert_equal(
        head,
        BranchHead(
            branch=MAIN,
            revision=1,
            size=4,
            entry="t1-3",
            token=1,
            lease=lease,
            turn=turn,
            records=(record,),
            created=1234,
            updated=1234,
        ),
        f"the head is {head}",
    )
    assert_equal(conversation.head(), head, "`head` and `write` differ")
    assert_equal(conversation.entries(), entries, "the entries")
    assert_equal(harness.store.turns(harness.owner, "talk", MAIN, 0, 4), [(0, turn)], "the turn")
    second = conversation.say("more", at=5678)
    assert_equal((second.revision, second.size, second.created, second.updated, second.lease), (2, 5, 1234, 5678, None))
    assert_equal(conversation.write(at=5679).revision, 3, "the revision after an empty commit")


@case
def bytes_are_returned_unchanged(harness: Harness) -> None:
    conversation = harness.conversation()
    for number, native in enumerate(ODD_JSON):
        entry = msgspec.structs.replace(make_message(""), native=native)
        turn = Turn(f"t{number}", "complete", "m", 0, usage=(native,), responses=(native, native))
        entries = link_entries(conversation.find_parent() if number else None, turn.id, 0, [entry])
        record = PlacedRecord(Record("brief", entries[0].id, 0, native), number)
        head = conversation.write(entries=entries, turn=turn, records=(record,))
        excerpt = native[:80]
        assert_equal(head.turn, turn, f"usage or a response has changed: {excerpt!r}")
        assert_equal(head.records[-1].record.data, native, f"a record's data has changed: {excerpt!r}")
        assert_equal(conversation.entries(start=number)[0].native, native, f"an entry has changed: {excerpt!r}")
    together = harness.store.read(harness.owner, "talk", MAIN, 0, len(ODD_JSON))
    assert_equal(
        bytes(together.array), b"[" + b",".join(ODD_JSON) + b"]", "entries that were read together have changed"
    )


@case
def any_range_of_a_path_can_be_read(harness: Harness) -> None:
    conversation = harness.conversation()
    for i in range(40):
        conversation.say(f"question {i}", f"answer {i}")
    entries = conversation.entries()
    assert_equal(len(entries), 80)
    for start, stop in ((0, 1), (1, 3), (37, 80), (79, 80), (0, 80), (5, 5), (7, 3)):
        assert_equal(
            conversation.entries(start=start, stop=stop), entries[start:stop], f"the entries {start} … {stop} differ"
        )
    assert_equal(conversation.entries(start=78, stop=100), entries[78:], "entries after the end")
    assert_equal(conversation.entries(start=80, stop=90), [])
    turns = harness.store.turns(harness.owner, "talk", MAIN, 0, 80)
    assert_equal([position for position, _ in turns], list(range(0, 80, 2)), "the positions of the turns")
    assert_equal(harness.store.turns(harness.owner, "talk", MAIN, 3, 8), turns[2:4], "the turns that begin in a range")


@case
def several_ranges_can_be_read_in_one_call(harness: Harness) -> None:
    store, conversation = harness.store, harness.conversation()
    for i in range(20):
        conversation.say(f"question {i}", f"answer {i}")
    conversation.say("x", "y", branch="fork", source=(MAIN, 7))
    conversation.say("z", cut=30)
    for branch in (MAIN, "fork"):
        entries = conversation.entries(branch)
        for ranges in ([(0, 1)], [(1, 3), (3, 4), (6, 9)], [(0, 99)], [(5, 5), (8, 31)], [(4, 2), (40, 50)], []):
            found = store.pick(harness.owner, "talk", branch, ranges)
            assert_equal(
                found, [entries[start:stop] for start, stop in ranges], f"the parts {ranges} of {branch} differ"
            )
    assert_equal(store.pick(harness.owner, "talk", "nowhere", [(0, 1), (2, 3)]), [[], []], "a missing branch")


@case
def reading_what_does_not_exist_returns_nothing(harness: Harness) -> None:
    store, owner = harness.store, harness.owner
    harness.conversation("there").say("hello")
    for id, branch in (("nowhere", MAIN), ("there", "nowhere")):  # noqa: A001
        assert_equal(store.head(owner, id, branch), None)
        assert_equal(len(store.read(owner, id, branch, 0, 9)), 0)
        assert_equal(store.turns(owner, id, branch, 0, 9), [])
        assert_equal(store.records(owner, id, branch, "brief"), [])
        assert_equal(store.metas(owner, id, branch, 0, 9), {})
        assert_equal(store.manifest(owner, id, "t"), b"")
        assert_equal(store.manifests(owner, id, branch, 0, 9), {})
        assert_equal(store.renew(owner, id, branch, 0, 9), False)
        assert_equal(store.renew(owner, id, branch, 1, 9), False)
        assert_equal(store.keyed_turn(owner, id, "k"), None)
        assert_equal(store.keyed_turns(owner, id), [])
        assert_equal(store.redact(owner, id, "t-0", b"{}"), False)
        assert_equal(store.describe(owner, id, {"a": 1}, entry="t-0"), False)
    assert_equal(store.branches(owner, "nowhere"), [])
    assert_equal(store.info(owner, "nowhere"), None)
    assert_equal(store.verify(owner, "nowhere"), [])
    assert_equal(store.delete(owner, "nowhere"), None)
    assert_equal(store.describe(owner, "nowhere", {"a": 1}), False)
    assert_equal(store.head(owner, "nowhere"), None, "`describe` created a conversation")
    assert_equal([found.id for found in store.conversations(owner)], ["there"])


@case
def a_commit_with_a_stale_revision_is_refused(harness: Harness) -> None:
    conversation = harness.conversation()
    moved = assert_raises(HeadMoved, lambda: conversation.write(expect=1), "a revision of a missing branch")
    assert_true(
        isinstance(moved, HeadMoved) and moved.head is None,
        "`HeadMoved.head` is not None although the branch is missing",
    )
    assert_true(harness.store.branches(harness.owner, "talk") == [] and not harness.store.conversations(harness.owner))
    conversation.say("one")
    conversation.write(records=(conversation.make_record("brief", "1", 0),))
    before = conversation.read_all("k")
    for expect in (0, 1, 3):
        fields = conversation.make_turn(conversation.find_parent(), "lost") | {
            "request": KeyedRequest("k", "b"),
            "meta": {"lost": 1},
            "expect": expect,
        }
        fields["records"] = (conversation.make_record("brief", "lost", 0),)
        moved = assert_raises(
            HeadMoved, partial(conversation.write, **fields), f"revision 2, and {expect} was expected"
        )
        assert_true(
            isinstance(moved, HeadMoved) and moved.head == conversation.head(),
            "`HeadMoved.head` is not the head of the branch",
        )
        assert_equal(conversation.read_all("k"), before, "a refused commit has changed something")


@case
def an_invalid_commit_is_refused_and_changes_nothing(harness: Harness) -> None:
    conversation = harness.conversation()
    assert_raises(ValueError, lambda: conversation.write(source=("nowhere", 0)), "a missing source")
    assert_raises(
        ValueError, lambda: conversation.write(**conversation.make_turn("somewhere-0", "a")), "a missing parent"
    )
    assert_true(not harness.store.conversations(harness.owner), "a refused commit has created a conversation")
    conversation.say("one", "two")
    conversation.say("three", "four")
    before = conversation.read_all("k")
    first, last = conversation.entries()[0].id, conversation.find_parent()
    invalid: dict[str, dict[str, Any]] = {
        "no parent": conversation.make_turn(None, "a"),
        "a parent that is not the head": conversation.make_turn(first, "a"),
        "a parent that the same commit cuts off": conversation.make_turn(last, "a") | {"cut": 2},
        "a cut after the end": {"cut": 5},
        "a cut before the beginning": {"cut": -1},
        "a second source": {"source": (MAIN, 1)},
        "a source after the end": {"branch": "b", "source": (MAIN, 5)},
        "a missing source": {"branch": "b", "source": ("c", 0)},
        "a request without its turn": {"request": KeyedRequest("k", "b")},
        "a manifest without its turn": {"manifest": b"{}"},
        "metadata of a missing entry": conversation.make_turn(last, "a") | {"entry_meta": {1: {"a": 1}}},
        "metadata of an entry before the first": conversation.make_turn(last, "a") | {"entry_meta": {-1: {"a": 1}}},
    }
    for label, fields in invalid.items():
        fields |= {"meta": {"lost": 1}}
        assert_raises(ValueError, partial(conversation.write, **fields), label)
        assert_equal(conversation.read_all("k"), before, f"{label}: a refused commit has changed something")


@case
def a_turn_is_returned_in_its_newest_version(harness: Harness) -> None:
    conversation = harness.conversation()
    conversation.say("before")
    running = assert_present(
        conversation.write(**conversation.make_turn(conversation.find_parent(), "hello", status="running")).turn,
        "the running turn",
    )
    assert_equal(running.status, "running", "its status")
    answer = link_entries(conversation.find_parent(), running.id, 1, [make_message("hi", role="assistant")])
    complete = msgspec.structs.replace(running, status="complete", ended=7, usage=(b"{}",))
    assert_equal(conversation.write(entries=answer, turn=complete).turn, complete)
    assert_equal(
        [turn for _, turn in harness.store.turns(harness.owner, "talk", MAIN, 1, 3)],
        [complete],
        "the versions of one turn",
    )
    event = link_entries(conversation.find_parent(), new_id(), 0, [make_message("an event")])
    assert_equal(conversation.write(entries=event).turn, complete, "the turn of the last entry that has one")
    failed = msgspec.structs.replace(complete, status="failed", error="e")
    assert_equal(conversation.write(turn=failed).turn, failed, "a turn without new entries")
    assert_equal(
        conversation.write(cut=1).turn, conversation.store.turns(conversation.owner, conversation.id, MAIN, 0, 1)[0][1]
    )
    assert_equal(conversation.write(cut=0).turn, None, "the turn of a path without entries")


@case
def branches_share_common_entries(harness: Harness) -> None:
    conversation = harness.conversation()
    conversation.say("a", "b")
    conversation.say("c", "d")
    main = conversation.head()
    fork = conversation.say("x", branch="fork", source=(MAIN, 3))
    assert_equal((fork.revision, fork.size, fork.token), (1, 4, 0))
    assert_equal(conversation.texts("fork"), ["a", "b", "c", "x"])
    assert_true(
        conversation.head() == main and conversation.texts() == ["a", "b", "c", "d"], "a fork has changed its source"
    )
    conversation.say("e")
    conversation.say("y", branch="fork")
    conversation.say("z", branch="deep", source=("fork", 2))
    conversation.write("bare", source=("fork", 5))
    conversation.write("empty", source=(MAIN, 0))
    assert_equal(conversation.texts(), ["a", "b", "c", "d", "e"])
    assert_equal(conversation.texts("fork"), ["a", "b", "c", "x", "y"], "the entries of a fork")
    assert_equal(conversation.texts("deep"), ["a", "b", "z"])
    assert_equal(conversation.texts("bare"), conversation.texts("fork"))
    assert_true(conversation.texts("empty") == [] and conversation.head("empty").entry is None)
    assert_equal(conversation.entries("fork")[:3], conversation.entries()[:3], "shared entries")
    store, owner = harness.store, harness.owner
    assert_equal(store.turns(owner, "talk", "fork", 0, 3), store.turns(owner, "talk", MAIN, 0, 3))
    heads = store.branches(owner, "talk")
    assert_equal(
        [head.branch for head in heads], ["bare", "deep", "empty", "fork", MAIN], "branches in the order of their names"
    )
    assert_equal(heads, [msgspec.structs.replace(conversation.head(head.branch), records=()) for head in heads])
    assert_equal(store.conversations(owner)[0].branches, ("bare", "deep", "empty", "fork", MAIN))


@case
def a_fork_is_refused_if_its_source_entry_has_changed(harness: Harness) -> None:
    conversation = harness.conversation()
    conversation.say("a", "b")
    conversation.say("c", "d")
    expected = conversation.entries()[2].id
    conversation.say("x", branch="fork", source=(MAIN, 3), source_entry=expected)
    assert_equal(conversation.texts("fork"), ["a", "b", "c", "x"], "a fork after the expected entry")
    conversation.write(records=(conversation.make_record("brief", "1", 0),))
    conversation.say("other", cut=2)
    before = conversation.read_all("k")
    moved = assert_raises(
        HeadMoved,
        lambda: conversation.say("y", branch="late", source=(MAIN, 3), source_entry=expected),
        "a fork after an entry that was replaced",
    )
    assert_true(
        isinstance(moved, HeadMoved) and moved.head == conversation.head(),
        "`HeadMoved.head` is not the head of the source",
    )
    assert_raises(
        HeadMoved,
        lambda: conversation.write("late", source=(MAIN, 0), source_entry=expected),
        "a fork at the start, after an entry",
    )
    assert_raises(
        HeadMoved,
        lambda: conversation.write("late", source=(MAIN, 99), source_entry=expected),
        "a fork after the end of a source that was cut",
    )
    assert_equal(conversation.read_all("k"), before, "a refused commit has changed something")
    conversation.write("any", source=(MAIN, 3))
    assert_equal(conversation.texts("any"), ["a", "b", "other"], "a fork without an expected entry")


@case
def a_fork_with_a_cut_checks_the_entry_of_its_source(harness: Harness) -> None:
    conversation = harness.conversation()
    conversation.say("a", "b", "c", "d")
    entries = conversation.entries()
    conversation.write("fork", source=(MAIN, 3), source_entry=entries[2].id, cut=1)
    assert_equal(conversation.texts("fork"), ["a"])
    assert_raises(
        HeadMoved,
        lambda: conversation.write("other", source=(MAIN, 3), source_entry=entries[0].id, cut=1),
        "an expected entry that is not the source's",
    )


@case
def a_cut_removes_entries_from_one_branch_only(harness: Harness) -> None:
    conversation = harness.conversation()
    conversation.say("a", "b")
    conversation.say("c", "d")
    conversation.write("kept", source=(MAIN, 4))
    assert_equal(conversation.write(cut=2).size, 2)
    assert_true(
        conversation.texts() == ["a", "b"]
        and len(conversation.store.turns(conversation.owner, conversation.id, MAIN, 0, 9)) == 1
    )
    assert_equal(conversation.texts("kept"), ["a", "b", "c", "d"], "the entries of another branch")
    conversation.say("new", cut=1)
    assert_equal(conversation.texts(), ["a", "new"], "a cut and an entry in one commit")
    conversation.say("more")
    assert_equal(conversation.write(cut=3).size, 3, "a cut at the end")
    assert_equal(conversation.texts(), ["a", "new", "more"])
    assert_equal(conversation.texts("kept"), ["a", "b", "c", "d"])
    conversation.say("first", cut=0)
    assert_true(conversation.texts() == ["first"] and conversation.entries()[0].parent is None)


@case
def many_random_commits_give_the_expected_tree(harness: Harness) -> None:
    """Write random commits, and after each one compare the store with a simple model made of lists and dicts."""
    draw = random.Random(7)
    conversation = harness.conversation()
    paths: dict[str, list[str]] = {}
    written: list[tuple[str, str, str]] = []
    visible_ids: dict[str, set[str]] = {}
    """For each branch, the data of the records written on it or inherited when it was created."""
    data: dict[str, dict[str, Any]] = {}
    for number in range(120):
        name = draw.choice([MAIN, "b", "c", "d"])
        path, fields = list(paths.get(name, ())), dict[str, Any]()
        if name not in paths and paths:
            source = draw.choice(sorted(paths))
            size = draw.randint(0, len(paths[source]))
            path, fields["source"] = paths[source][:size], (source, size)
            visible_ids[name] = set(visible_ids.get(source, ()))
        elif name in paths and draw.random() < 0.3:
            fields["cut"] = draw.randint(max(0, len(path) - 4), len(path))
            path = path[: fields["cut"]]
        texts = [f"{number}-{i}" for i in range(draw.randint(0, 3))]
        added = conversation.make_turn(conversation.find_parent(name, **fields), *texts)
        fields["entry_meta"] = {i: {"of": text} for i, text in enumerate(texts) if draw.random() < 0.4}
        data |= {texts[i]: meta for i, meta in fields["entry_meta"].items()}
        conversation.write(name, **(added if texts else {}), **fields)
        paths[name] = path + texts
        if paths[name] and draw.random() < 0.4:
            kind = draw.choice(["brief", "epoch", "receipt"])
            position = len(paths[name]) - 1 if kind_of(kind).own_branch_only else draw.randrange(len(paths[name]))
            conversation.write(name, records=(conversation.make_record(kind, str(number), position, branch=name),))
            written.append((kind, str(number), paths[name][position]))
            visible_ids.setdefault(name, set()).add(str(number))
        for branch, expected in paths.items():
            assert_equal(conversation.texts(branch), expected, f"after {number} commits, the entries of {branch!r}")
            own = visible_ids.get(branch, ())
            visible = [
                each
                for each in written
                if each[2] in expected and (not kind_of(each[0]).own_branch_only or each[1] in own)
            ]
            newest = {kind: note for kind, note, _ in visible if kind_of(kind).newest_only}
            wanted = [record for record in visible if newest.get(record[0], record[1]) == record[1]]
            assert_equal(
                conversation.list_head_records(branch),
                [(note, expected.index(text)) for _, note, text in wanted],
                f"after {number} commits, the records of {branch!r}",
            )
            if number % 5:
                continue
            for kind in newest:
                every = [(note, expected.index(text)) for each, note, text in visible if each == kind]
                assert_equal(
                    conversation.list_records(kind, branch),
                    every,
                    f"after {number} commits, all {kind!r} records of {branch!r}",
                )
            metas = {position: data[text] for position, text in enumerate(expected) if text in data}
            assert_equal(
                conversation.metas(branch),
                metas,
                f"after {number} commits, the metadata of the entries of {branch!r}",
            )
