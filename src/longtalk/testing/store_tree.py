"""What a store has to do with commits: entries as bytes, whole or not at all, turns, branches and cuts."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from longtalk.pack import Entry
from longtalk.stores.base import ALONE, MAIN, REPLACED, Head, Lease, Moved, Placed, Request
from longtalk.testing.report import holds, raises, same, there
from longtalk.testing.store_cases import ME, ODD, Case, Desk, into, message
from longtalk.transcript import Record, Turn, chain, new_id

TREE: list[Case] = []
case = into(TREE)


@case
def a_commit_is_there_as_it_was_made(desk: Desk) -> None:
    talk = desk.talk()
    turn = Turn("t1", "complete", "test:m", 5, 9, "length", (b'{"in": 1}', b"\xff not JSON"), "digest", "an error")
    entries = [
        Entry(role="event", kind="event", wire="longtalk", native=b'{"source":"a","text":"b"}', at=1),
        Entry(role="user", wire="openai-chat", native=b'{"role":"user","content":"hello"}', at=2, tokens=3),
        Entry(role="assistant", wire="anthropic", native=b'{"role":"a"}', at=3, mark="length", bound="b", tokens=9),
        Entry(role="tool", wire="openai-chat", native=b'{"role":"tool"}', at=2**46, mark="error"),
    ]
    entries = list(chain(None, "t1", 0, entries))
    record = Placed(Record("brief", "t1-2", 7, b'{"a" : 1}'), 2)
    lease = Lease(ME, 99, 1)
    head = talk.write(entries=tuple(entries), turn=turn, records=(record,), lease=lease, at=1234)
    same(
        head,
        Head(
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
    same(talk.head(), head, "`head` and `write` differ")
    same(talk.entries(), entries, "the entries")
    same(desk.store.turns(desk.owner, "talk", MAIN, 0, 4), [(0, turn)], "the turn differs")
    second = talk.say("more", at=5678)
    same((second.revision, second.size, second.created, second.updated, second.lease), (2, 5, 1234, 5678, None))
    same(talk.write(at=5679).revision, 3, "a commit that changes nothing else is one too")


@case
def bytes_come_back_as_they_went_in(desk: Desk) -> None:
    talk = desk.talk()
    for number, native in enumerate(ODD):
        entry = msgspec.structs.replace(message(""), native=native)
        turn = Turn(f"t{number}", "complete", "m", 0, usage=(native,))
        entries = chain(talk.tip() if number else None, turn.id, 0, [entry])
        record = Placed(Record("brief", entries[0].id, 0, native), number)
        head = talk.write(entries=entries, turn=turn, records=(record,))
        shown = native[:80]
        holds(head.turn is not None and head.turn.usage == (native,), f"usage is changed: {shown!r}")
        same(head.records[-1].record.data, native, f"a record's data is changed: {shown!r}")
        same(talk.entries(start=number)[0].native, native, f"an entry is changed: {shown!r}")
    together = desk.store.read(desk.owner, "talk", MAIN, 0, len(ODD))
    same(bytes(together.array), b"[" + b",".join(ODD) + b"]", "what was read together is changed")


@case
def any_part_of_a_path_can_be_read(desk: Desk) -> None:
    talk = desk.talk()
    for i in range(40):
        talk.say(f"question {i}", f"answer {i}")
    entries = talk.entries()
    same(len(entries), 80)
    for start, stop in ((0, 1), (1, 3), (37, 80), (79, 80), (0, 80), (5, 5), (7, 3)):
        same(talk.entries(start=start, stop=stop), entries[start:stop], f"the entries {start} … {stop} differ")
    same(talk.entries(start=78, stop=100), entries[78:], "what is behind the end is not left out")
    same(talk.entries(start=80, stop=90), [])
    turns = desk.store.turns(desk.owner, "talk", MAIN, 0, 80)
    same([place for place, _ in turns], list(range(0, 80, 2)), "the places of the turns are wrong")
    same(desk.store.turns(desk.owner, "talk", MAIN, 3, 8), turns[2:4], "turns that begin elsewhere are given")


@case
def several_parts_of_a_path_can_be_read_at_once(desk: Desk) -> None:
    store, talk = desk.store, desk.talk()
    for i in range(20):
        talk.say(f"question {i}", f"answer {i}")
    talk.say("x", "y", branch="fork", source=(MAIN, 7))
    talk.say("z", cut=30)
    for branch in (MAIN, "fork"):
        entries = talk.entries(branch)
        for ranges in ([(0, 1)], [(1, 3), (3, 4), (6, 9)], [(0, 99)], [(5, 5), (8, 31)], [(4, 2), (40, 50)], []):
            found = store.pick(desk.owner, "talk", branch, ranges)
            same(found, [entries[start:stop] for start, stop in ranges], f"the parts {ranges} of {branch} differ")
    same(store.pick(desk.owner, "talk", "nowhere", [(0, 1), (2, 3)]), [[], []], "a branch that is not there")


@case
def what_is_not_there_reads_as_nothing(desk: Desk) -> None:
    store, owner = desk.store, desk.owner
    desk.talk("there").say("hello")
    for id, branch in (("nowhere", MAIN), ("there", "nowhere")):  # noqa: A001
        same(store.head(owner, id, branch), None)
        same(len(store.read(owner, id, branch, 0, 9)), 0)
        same(store.turns(owner, id, branch, 0, 9), [])
        same(store.records(owner, id, branch, "brief"), [])
        same(store.metas(owner, id, branch, 0, 9), {})
        same(store.manifest(owner, id, "t"), b"")
        same(store.manifests(owner, id, branch, 0, 9), {})
        same(store.renew(owner, id, branch, 0, 9), False)
        same(store.renew(owner, id, branch, 1, 9), False)
        same(store.asked(owner, id, "k"), None)
        same(store.requests(owner, id), [])
        same(store.redact(owner, id, "t-0", b"{}"), False)
        same(store.describe(owner, id, {"a": 1}, entry="t-0"), False)
    same(store.branches(owner, "nowhere"), [])
    same(store.summary(owner, "nowhere"), None)
    same(store.verify(owner, "nowhere"), [])
    same(store.delete(owner, "nowhere"), None)
    same(store.describe(owner, "nowhere", {"a": 1}), False)
    same(store.head(owner, "nowhere"), None, "`describe` made a conversation")
    same([found.id for found in store.conversations(owner)], ["there"])


@case
def a_commit_that_expects_another_revision_is_refused(desk: Desk) -> None:
    talk = desk.talk()
    moved = raises(Moved, lambda: talk.write(expect=1), "there is no branch yet")
    holds(isinstance(moved, Moved) and moved.head is None, "`Moved.head` is not None without a branch")
    holds(desk.store.branches(desk.owner, "talk") == [] and not desk.store.conversations(desk.owner))
    talk.say("one")
    talk.write(records=(talk.note("brief", "1", 0),))
    before = talk.all("k")
    for expect in (0, 1, 3):
        fields = talk.turn(talk.tip(), "lost") | {"request": Request("k", "b"), "meta": {"lost": 1}, "expect": expect}
        fields["records"] = (talk.note("brief", "lost", 0),)
        moved = raises(Moved, lambda fields=fields: talk.write(**fields), f"revision 2, and {expect} was expected")  # type: ignore[misc]
        holds(isinstance(moved, Moved) and moved.head == talk.head(), "`Moved.head` is not where the branch is")
        same(talk.all("k"), before, "a commit that was refused has changed something")


@case
def a_commit_that_makes_no_sense_is_refused_whole(desk: Desk) -> None:
    talk = desk.talk()
    raises(ValueError, lambda: talk.write(source=("nowhere", 0)), "a source that is not there")
    raises(ValueError, lambda: talk.write(**talk.turn("somewhere-0", "a")), "a parent that is not there")
    holds(not desk.store.conversations(desk.owner), "a commit that was refused made a conversation")
    talk.say("one", "two")
    talk.say("three", "four")
    before = talk.all("k")
    first, last = talk.entries()[0].id, talk.tip()
    wrong: dict[str, dict[str, Any]] = {
        "no parent": talk.turn(None, "a"),
        "a parent that is not the head": talk.turn(first, "a"),
        "a parent that is not the head any more": talk.turn(last, "a") | {"cut": 2},
        "a cut behind the end": {"cut": 5},
        "a cut before the beginning": {"cut": -1},
        "a second source": {"source": (MAIN, 1)},
        "a source behind the end": {"branch": "b", "source": (MAIN, 5)},
        "a source that is not there": {"branch": "b", "source": ("c", 0)},
        "a request without its turn": {"request": Request("k", "b")},
        "a manifest without its turn": {"manifest": b"{}"},
        "data on an entry that is not there": talk.turn(last, "a") | {"entry_meta": {1: {"a": 1}}},
        "data on an entry before the first": talk.turn(last, "a") | {"entry_meta": {-1: {"a": 1}}},
    }
    for what, fields in wrong.items():
        fields |= {"meta": {"lost": 1}}
        raises(ValueError, lambda fields=fields: talk.write(**fields), what)  # type: ignore[misc]
        same(talk.all("k"), before, f"{what}: a commit that was refused has changed something")


@case
def a_turn_has_its_newest_version(desk: Desk) -> None:
    talk = desk.talk()
    talk.say("before")
    begun = there(talk.write(**talk.turn(talk.tip(), "hello", status="running")).turn, "the turn that begins")
    same(begun.status, "running", "its status")
    answer = chain(talk.tip(), begun.id, 1, [message("hi", role="assistant")])
    done = msgspec.structs.replace(begun, status="complete", ended=7, usage=(b"{}",))
    same(talk.write(entries=answer, turn=done).turn, done)
    same([turn for _, turn in desk.store.turns(desk.owner, "talk", MAIN, 1, 3)], [done], "a turn is there twice")
    event = chain(talk.tip(), new_id(), 0, [message("an event")])
    same(talk.write(entries=event).turn, done, "the last turn is not that of the last entry that has one")
    failed = msgspec.structs.replace(done, status="failed", error="e")
    same(talk.write(turn=failed).turn, failed, "a turn without new entries")
    same(talk.write(cut=1).turn, talk.store.turns(talk.owner, talk.id, MAIN, 0, 1)[0][1])
    same(talk.write(cut=0).turn, None, "a path without entries has a turn")


@case
def branches_share_what_they_have_in_common(desk: Desk) -> None:
    talk = desk.talk()
    talk.say("a", "b")
    talk.say("c", "d")
    main = talk.head()
    fork = talk.say("x", branch="fork", source=(MAIN, 3))
    same((fork.revision, fork.size, fork.token), (1, 4, 0))
    same(talk.texts("fork"), ["a", "b", "c", "x"])
    holds(talk.head() == main and talk.texts() == ["a", "b", "c", "d"], "a fork changed its source")
    talk.say("e")
    talk.say("y", branch="fork")
    talk.say("z", branch="deep", source=("fork", 2))
    talk.write("bare", source=("fork", 5))
    talk.write("empty", source=(MAIN, 0))
    same(talk.texts(), ["a", "b", "c", "d", "e"])
    same(talk.texts("fork"), ["a", "b", "c", "x", "y"], "branches see each other's entries")
    same(talk.texts("deep"), ["a", "b", "z"])
    same(talk.texts("bare"), talk.texts("fork"))
    holds(talk.texts("empty") == [] and talk.head("empty").entry is None)
    same(talk.entries("fork")[:3], talk.entries()[:3], "what is shared differs")
    store, owner = desk.store, desk.owner
    same(store.turns(owner, "talk", "fork", 0, 3), store.turns(owner, "talk", MAIN, 0, 3))
    heads = store.branches(owner, "talk")
    same([head.branch for head in heads], ["bare", "deep", "empty", "fork", MAIN], "branches are not by name")
    same(heads, [msgspec.structs.replace(talk.head(head.branch), records=()) for head in heads])
    same(store.conversations(owner)[0].branches, ("bare", "deep", "empty", "fork", MAIN))


@case
def a_branch_begins_behind_the_entry_that_was_meant(desk: Desk) -> None:
    talk = desk.talk()
    talk.say("a", "b")
    talk.say("c", "d")
    meant = talk.entries()[2].id
    talk.say("x", branch="fork", source=(MAIN, 3), behind=meant)
    same(talk.texts("fork"), ["a", "b", "c", "x"], "a branch that begins behind what was meant")
    talk.write(records=(talk.note("brief", "1", 0),))
    talk.say("other", cut=2)
    before = talk.all("k")
    moved = raises(
        Moved, lambda: talk.say("y", branch="late", source=(MAIN, 3), behind=meant), "another entry is there"
    )
    holds(isinstance(moved, Moved) and moved.head == talk.head(), "`Moved.head` is not that of the source")
    raises(Moved, lambda: talk.write("late", source=(MAIN, 0), behind=meant), "there is no entry")
    raises(Moved, lambda: talk.write("late", source=(MAIN, 99), behind=meant), "the source was cut meanwhile")
    same(talk.all("k"), before, "a commit that was refused has changed something")
    talk.write("any", source=(MAIN, 3))
    same(talk.texts("any"), ["a", "b", "other"], "nothing was said of what it is")


@case
def what_was_meant_is_the_sources_entry_also_with_a_cut(desk: Desk) -> None:
    talk = desk.talk()
    talk.say("a", "b", "c", "d")
    entries = talk.entries()
    talk.write("fork", source=(MAIN, 3), behind=entries[2].id, cut=1)
    same(talk.texts("fork"), ["a"])
    raises(Moved, lambda: talk.write("other", source=(MAIN, 3), behind=entries[0].id, cut=1), "that is behind the cut")


@case
def a_cut_takes_entries_off_a_branch_alone(desk: Desk) -> None:
    talk = desk.talk()
    talk.say("a", "b")
    talk.say("c", "d")
    talk.write("kept", source=(MAIN, 4))
    same(talk.write(cut=2).size, 2)
    holds(talk.texts() == ["a", "b"] and len(talk.store.turns(talk.owner, talk.id, MAIN, 0, 9)) == 1)
    same(talk.texts("kept"), ["a", "b", "c", "d"], "another branch lost entries")
    talk.say("new", cut=1)
    same(talk.texts(), ["a", "new"], "a cut and an entry in one commit")
    talk.say("more")
    same(talk.write(cut=3).size, 3, "a cut at the end")
    same(talk.texts(), ["a", "new", "more"])
    same(talk.texts("kept"), ["a", "b", "c", "d"])
    talk.say("first", cut=0)
    holds(talk.texts() == ["first"] and talk.entries()[0].parent is None)


@case
def a_tree_of_many_commits_is_as_it_was_made(desk: Desk) -> None:
    """Drawn commits, against lists that are copied."""
    draw = random.Random(7)
    talk = desk.talk()
    paths: dict[str, list[str]] = {}
    kept: list[tuple[str, str, str]] = []
    seen: dict[str, set[str]] = {}
    """Of the records that a branch keeps to itself, those that each one sees."""
    data: dict[str, dict[str, Any]] = {}
    for number in range(120):
        name = draw.choice([MAIN, "b", "c", "d"])
        path, fields = list(paths.get(name, ())), dict[str, Any]()
        if name not in paths and paths:
            source = draw.choice(sorted(paths))
            size = draw.randint(0, len(paths[source]))
            path, fields["source"] = paths[source][:size], (source, size)
            seen[name] = set(seen.get(source, ()))
        elif name in paths and draw.random() < 0.3:
            fields["cut"] = draw.randint(max(0, len(path) - 4), len(path))
            path = path[: fields["cut"]]
        said = [f"{number}-{i}" for i in range(draw.randint(0, 3))]
        added = talk.turn(talk.tip(name, **fields), *said)
        fields["entry_meta"] = {i: {"of": text} for i, text in enumerate(said) if draw.random() < 0.4}
        data |= {said[i]: meta for i, meta in fields["entry_meta"].items()}
        talk.write(name, **(added if said else {}), **fields)
        paths[name] = path + said
        if paths[name] and draw.random() < 0.4:
            kind = draw.choice(["brief", "epoch", "receipt"])
            place = len(paths[name]) - 1 if kind in ALONE else draw.randrange(len(paths[name]))
            talk.write(name, records=(talk.note(kind, str(number), place, branch=name),))
            kept.append((kind, str(number), paths[name][place]))
            seen.setdefault(name, set()).add(str(number))
        for branch, expected in paths.items():
            same(talk.texts(branch), expected, f"after {number} commits the branch {branch!r} differs")
            own = seen.get(branch, ())
            visible = [each for each in kept if each[2] in expected and (each[0] not in ALONE or each[1] in own)]
            newest = {kind: note for kind, note, _ in visible if kind in REPLACED}
            wanted = [record for record in visible if newest.get(record[0], record[1]) == record[1]]
            same(
                talk.records(branch),
                [(note, expected.index(text)) for _, note, text in wanted],
                f"after {number} commits the records of {branch!r} differ",
            )
            if number % 5:
                continue
            for kind in newest:
                every = [(note, expected.index(text)) for each, note, text in visible if each == kind]
                same(talk.kept(kind, branch), every, f"after {number} commits those of a kind on {branch!r} differ")
            metas = {place: data[text] for place, text in enumerate(expected) if text in data}
            same(talk.metas(branch), metas, f"after {number} commits the data on the entries of {branch!r} differ")
