"""What a store has to keep beside the entries: records, leases, request keys, manifests and the app's own data."""

from __future__ import annotations

from typing import Any

import msgspec

from longtalk import _json
from longtalk.stores.base import ALONE, BRIEF, MAIN, REPLACED, Holder, KeyTaken, Lease, Placed, Request
from longtalk.testing.report import holds, raises, same, there
from longtalk.testing.store_cases import LASTING, ME, ODD, Case, Desk, into, message
from longtalk.transcript import Record, chain

BESIDE: list[Case] = []
case = into(BESIDE)


@case
def records_are_seen_on_paths_that_have_their_entry(desk: Desk) -> None:
    talk = desk.talk()
    talk.write(records=(Placed(Record("quirks", "", 0, b"root"), -1),))
    talk.say("a", "b")
    talk.say("c", "d")
    talk.write(records=(talk.note("brief", "early", 1),))
    talk.write(records=(talk.note("brief", "late", 3),))
    talk.say("x", branch="fork", source=(MAIN, 2))
    same(talk.records("fork"), [("root", -1), ("early", 1)], "a branch sees records of entries that it has not")
    talk.write("fork", records=(talk.note("brief", "own", 2, branch="fork"),))
    same(talk.records(), [("root", -1), ("early", 1), ("late", 3)], "a branch sees records of its sibling")
    talk.write("fork", records=(talk.note("brief", "shared", 0, branch="fork"),))
    same(talk.records(), [("root", -1), ("early", 1), ("late", 3), ("shared", 0)], "a record of a shared entry")
    talk.write(cut=3)
    same(talk.records(), [("root", -1), ("early", 1), ("shared", 0)], "a record of an entry that was cut off")
    same(talk.records("fork"), [("root", -1), ("early", 1), ("own", 2), ("shared", 0)])


@case
def of_some_kinds_the_newest_record_counts(desk: Desk) -> None:
    talk = desk.talk()
    talk.say("a", "b", "c", "d")
    for kind in REPLACED:
        talk.write(records=(talk.note(kind, f"{kind} 1", 1), talk.note("brief", f"brief of {kind}", 1)))
        talk.write(records=(talk.note(kind, f"{kind} 2", 3),))
    seen = [data for data, _ in talk.records()]
    same([data for data in seen if not data.startswith("brief")], [f"{kind} 2" for kind in REPLACED])
    same([data for data in seen if data.startswith("brief")], [f"brief of {kind}" for kind in REPLACED])
    talk.write("fork", source=(MAIN, 2))
    talk.write(cut=2)
    for branch in (MAIN, "fork"):
        seen = [data for data, _ in talk.records(branch) if not data.startswith(("brief", *BRIEF))]
        same(seen, [f"{kind} 1" for kind in LASTING], "without the newest the one before it counts")
    talk.write(records=(talk.note("pins", "pins 3", 0),))
    holds(("pins 3", 0) in talk.records() and ("pins 1", 1) not in talk.records(), "the newest is that made last")


@case
def records_come_in_the_order_in_which_they_were_made(desk: Desk) -> None:
    """Also where the older one of a kind is not kept."""
    talk = desk.talk()
    talk.say("a", "b", "c", "d")
    kinds = ("brief", *REPLACED)
    for place in (1, 0, 3):
        talk.write(records=tuple(talk.note(kind, f"{kind} {place}", place) for kind in kinds))
        talk.write(records=(talk.note("brief", f"then {place}", place),))
    seen = [data for data, _ in talk.records()]
    wanted = ["brief 1", "then 1", "brief 0", "then 0", "brief 3", *[f"{kind} 3" for kind in REPLACED], "then 3"]
    same(seen, wanted, "those that the head shows")
    gone = [f"{kind} {place}" for kind in BRIEF for place in (0, 1)]
    every = [data for place in (1, 0, 3) for data in (*[f"{kind} {place}" for kind in kinds], f"then {place}")]
    seen = [placed.record.data.decode() for placed in talk.store.records(talk.owner, talk.id, MAIN)]
    same([data for data in seen if data not in gone], [data for data in every if data not in gone], "all of them")


@case
def what_is_replaced_on_one_branch_holds_on_another(desk: Desk) -> None:
    talk = desk.talk()
    talk.say("a", "b", "c", "d")
    talk.write(records=tuple(talk.note(kind, f"{kind} 1", 1) for kind in REPLACED))
    talk.write("before", source=(MAIN, 2))
    talk.say("e", branch="beside", source=(MAIN, 3))
    talk.write(records=tuple(talk.note(kind, f"{kind} 3", 3) for kind in REPLACED))
    talk.write("beside", records=tuple(talk.note(kind, f"{kind} e", 3, branch="beside") for kind in REPLACED))
    for branch, newest in (("before", "1"), (MAIN, "3"), ("beside", "e")):
        same([data for data, _ in talk.records(branch)], [f"{kind} {newest}" for kind in REPLACED], f"on {branch!r}")


@case
def a_branch_keeps_records_of_some_kinds_to_itself(desk: Desk) -> None:
    """Whatever entries it shares: others see what was there when they left it."""
    for kind in ALONE:
        talk = desk.talk(kind)
        talk.write(records=(talk.note(kind, "first", -1),))
        talk.write("empty", source=(MAIN, 0))
        talk.write("empty", records=(talk.note(kind, "of the empty one", -1),))
        talk.say("a", "b")
        talk.write(records=(talk.note(kind, "early", 1),))
        talk.write("fork", source=(MAIN, 2))
        talk.write(records=(talk.note(kind, "late", 1),))
        talk.write("fork", records=(talk.note(kind, "own", 1, branch="fork"),))
        talk.write("of the fork", source=("fork", 2))
        talk.write("before", source=("fork", 1))
        talk.write("fork", records=(talk.note(kind, "later", 1, branch="fork"),))
        talk.say("c", "d")
        talk.say("e", branch="fork")
        seen = {
            "empty": ("of the empty one", -1),
            MAIN: ("late", 1),
            "fork": ("later", 1),
            "of the fork": ("own", 1),
            "before": ("first", -1),
        }
        for branch, newest in seen.items():
            same(talk.records(branch), [newest], f"on {branch!r}")
        same(talk.kept(kind), [("first", -1), ("early", 1), ("late", 1)])
        same(talk.kept(kind, "of the fork"), [("first", -1), ("early", 1), ("own", 1)])
        talk.write("fork", cut=2)
        same((talk.records("fork"), talk.texts("fork")), ([("later", 1)], ["a", "b"]), "after a cut")
        talk.write(cut=1)
        same((talk.records(), talk.texts("of the fork")), ([("first", -1)], ["a", "b"]))
        same(desk.store.verify(talk.owner, talk.id), [])


@case
def all_records_of_a_kind_can_be_read(desk: Desk) -> None:
    talk = desk.talk()
    talk.write(records=(Placed(Record("epoch", "", 3, b"root"), -1),))
    talk.say("a", "b", "c", "d")
    placed = talk.note("epoch", "one", 3)
    talk.write(records=(placed, talk.note("brief", "a brief", 0)))
    same(talk.store.records(talk.owner, talk.id, MAIN, "epoch")[1:], [placed], "a record differs")
    talk.write(records=(talk.note("epoch", "two", 1), talk.note("epoch", "three", 2)))
    every = [("root", -1), ("one", 3), ("two", 1), ("three", 2)]
    same(talk.kept("epoch"), every, "those that were replaced are records too")
    same(talk.kept("brief"), [("a brief", 0)])
    same(talk.kept("nowhere"), [])
    talk.say("x", branch="fork", source=(MAIN, 2))
    talk.write("fork", records=(talk.note("epoch", "own", 2, branch="fork"),))
    same(talk.kept("epoch", "fork"), [("root", -1), ("two", 1), ("own", 2)], "those on the path, and no others")
    same(talk.kept("epoch"), every, "those of another branch")
    talk.write(cut=3)
    same(talk.kept("epoch"), [("root", -1), ("two", 1), ("three", 2)], "one of an entry that was cut off")


@case
def what_is_done_takes_nothing_else_off_a_head(desk: Desk) -> None:
    """Records that are done may be shown or not; all others are."""
    talk = desk.talk()
    talk.say("a", "b", "c", "d")
    first, second, third = (talk.note("brief", text, place) for place, text in enumerate(("first", "second", "third")))
    talk.write(records=(first, second, third, talk.note("pins", "pins", 1)))
    talk.write("fork", source=(MAIN, 4))
    shown = talk.records("fork")
    done = [("first", 0)]
    head = talk.write(done=(first.record,), records=(talk.note("brief", "fourth", 3),))
    same(talk.head(), head, "`head` and `write` differ")
    left = [("second", 1), ("third", 2), ("pins", 1), ("fourth", 3)]
    same([each for each in talk.records() if each not in done], left, "what is not done is gone")
    same(talk.records("fork")[: len(shown)], shown, "what is done on one branch is gone from another")
    done.append(left.pop(1))
    head = talk.write(done=(third.record, Record("brief", "", 0, b"nowhere")))
    same(talk.head(), head, "`head` and `write` differ")
    same([each for each in talk.records() if each not in done], left, "what is not done is gone")


@case
def what_is_done_is_still_a_record(desk: Desk) -> None:
    talk = desk.talk()
    talk.say("a", "b")
    note, pins = talk.note("brief", "note", 0), talk.note("pins", "pins", 1)
    talk.write(records=(note, pins))
    talk.write(done=(note.record, pins.record))
    same((talk.kept("brief"), talk.kept("pins")), ([("note", 0)], [("pins", 1)]))


@case
def a_lease_is_held_by_its_token(desk: Desk) -> None:
    talk, store = desk.talk(), desk.store
    first = Lease(ME, 100, 1)
    head = talk.write(lease=first)
    same((head.lease, head.token), (first, 1))
    same(store.renew(desk.owner, "talk", MAIN, 1, 200), True)
    same(talk.head(), msgspec.structs.replace(head, lease=Lease(ME, 200, 1)), "only the time changes")
    same(store.renew(desk.owner, "talk", MAIN, 2, 300), False, "a token that nobody has")
    same(store.renew(desk.owner, "talk", MAIN, 0, 300), False)
    second = Lease(Holder("b", "", 1, 2), 400, 2)
    same(talk.write(lease=second).lease, second)
    same(store.renew(desk.owner, "talk", MAIN, 1, 500), False, "somebody else has it")
    same(talk.head().lease, second)
    head = talk.write()
    same((head.lease, head.token), (None, 2), "a commit without a lease lets go of it, and its token stays")
    same(store.renew(desk.owner, "talk", MAIN, 2, 500), False, "nobody has it")
    same(talk.write("fork", source=(MAIN, 0), lease=Lease(ME, 1, 1)).token, 1)
    same(talk.head().lease, None, "a lease is one of its branch")


@case
def a_key_makes_one_turn(desk: Desk) -> None:
    talk, store = desk.talk(), desk.store
    talk.say("before", "and")
    request = Request("key", "body")
    begun = talk.turn(talk.tip(), "hello", status="running")
    talk.write(**begun, request=request)
    asked = talk.asked("key")
    same((asked.request, asked.branch, asked.turn, asked.place), (request, MAIN, begun["turn"], 2))
    before = talk.all("key")
    raises(KeyTaken, lambda: talk.say("again", request=request), "the same key again")
    raises(KeyTaken, lambda: talk.say("x", branch="b", source=(MAIN, 1), request=request), "on another branch")
    same(talk.all("key"), before, "a commit that was refused has changed something")
    done = msgspec.structs.replace(begun["turn"], status="complete")
    answer = chain(talk.tip(), done.id, 1, [message("hi", role="assistant")])
    talk.write(entries=answer, turn=done, request=request)
    same(talk.asked("key").turn, done, "the turn of a key is its newest version")
    holds(store.asked(desk.owner, "talk", "KEY") is None and store.asked(desk.owner, "talk", "") is None)
    desk.talk("elsewhere").say("hello", request=request)
    talk.say("y", branch="fork", source=(MAIN, 1), request=Request("other", ""))
    same((talk.asked("other").branch, talk.asked("other").place), ("fork", 1), "where the turn is")
    same(store.requests(desk.owner, "talk"), [talk.asked("key"), talk.asked("other")], "all keys, in order")
    talk.write(cut=0)
    same(talk.asked("key").turn, done, "a cut frees no key")
    same(store.requests(desk.owner, "talk"), [talk.asked("key"), talk.asked("other")], "all keys, after a cut")


@case
def the_turn_of_a_key_is_on_the_branch_that_is_told(desk: Desk) -> None:
    talk = desk.talk()
    talk.say("before")
    begun = talk.turn(talk.tip(), "hello", "hi")
    talk.write(**begun, request=Request("key", "body"))
    talk.write("a", source=(MAIN, 3))
    talk.write("b", source=(MAIN, 2))
    talk.write("other", source=(MAIN, 1))

    def asked() -> tuple[str, int]:
        found = talk.asked("key")
        same((found.request, found.turn), (Request("key", "body"), begun["turn"]))
        return found.branch, found.place

    same(asked(), (MAIN, 1), "the branch that it was made on")
    talk.write(cut=2)
    same(asked(), (MAIN, 1), "the branch that it was made on still has its beginning")
    talk.write(cut=1)
    holds(asked() in (("a", 1), ("b", 1)), f"{asked()} instead of a branch that has it")
    talk.say("else", branch="a", cut=0)
    same(asked(), ("b", 1), "the one branch that has it")
    talk.say("instead")
    same(asked(), ("b", 1), "the branch that it was made on has another turn there")


@case
def a_manifest_is_kept_with_its_turn(desk: Desk) -> None:
    talk, turns = desk.talk(), list[str]()

    def kept(turn: str, id: str = "talk") -> bytes:  # noqa: A002
        return desk.store.manifest(desk.owner, id, turn)

    for native in ODD:
        made = talk.turn(talk.head().entry if turns else None, "x")
        talk.write(**made, manifest=native)
        turns.append(made["turn"].id)
    for turn, native in zip(turns, ODD, strict=True):
        same(kept(turn), native, f"a manifest is changed: {native[:80]!r}")
    talk.say("without")
    same(kept(talk.entries()[-1].turn), b"", "a turn without one")
    same(kept("nowhere"), b"", "a turn that is not there")
    desk.talk("other").write(entries=chain(None, turns[0], 0, [message("x")]))
    same(kept(turns[0], "other"), b"", "a turn of another conversation")
    talk.write(cut=0)
    same(kept(turns[0]), ODD[0], "a turn that was cut off")


@case
def a_manifest_is_replaced_by_another_one_alone(desk: Desk) -> None:
    store, talk = desk.store, desk.talk()
    begun = talk.turn(None, "hello", status="running")
    turn = begun["turn"]
    talk.write(**begun, manifest=b'{"first":1}')
    answer = chain(talk.tip(), turn.id, 1, [message("hi", role="assistant")])
    talk.write(entries=answer, turn=msgspec.structs.replace(turn, status="complete"))
    same(store.manifest(desk.owner, "talk", turn.id), b'{"first":1}', "a commit without one")
    talk.say("another turn", manifest=b"{}")
    same(store.manifest(desk.owner, "talk", turn.id), b'{"first":1}', "that of another turn")
    talk.write(turn=msgspec.structs.replace(turn, status="failed"), manifest=b'{"second":2}')
    same(store.manifest(desk.owner, "talk", turn.id), b'{"second":2}', "the newest one")


@case
def manifests_are_read_by_where_their_turns_begin(desk: Desk) -> None:
    store, talk, made = desk.store, desk.talk(), list[str]()

    def add(*texts: str, branch: str = MAIN, **fields: Any) -> None:
        made.append(there(talk.say(*texts, branch=branch, **fields).turn, "the turn that was made").id)

    def found(branch: str = MAIN, start: int = 0, stop: int = 10_000) -> dict[int, bytes]:
        manifests = store.manifests(desk.owner, "talk", branch, start, stop)
        return {made.index(turn): manifest for turn, manifest in manifests.items()}

    add("a", "b", manifest=ODD[1])
    add("c", "d")
    add("e", "f", manifest=ODD[2])
    talk.write(entries=chain(talk.tip(), made[0], 2, [message("of the first turn")]))
    add("g", manifest=ODD[5])
    same(found(), {0: ODD[1], 2: ODD[2], 3: ODD[5]}, "those of the turns that have one")
    for start, stop, turns in (
        (0, 1, [0]),
        (1, 4, []),
        (4, 5, [2]),
        (5, 7, []),
        (6, 7, []),
        (3, 9, [2, 3]),
        (5, 2, []),
    ):
        same(sorted(found(start=start, stop=stop)), turns, f"those of the turns that begin at {start} … {stop}")
    add("x", branch="fork", source=(MAIN, 5), manifest=b"{}")
    same(found("fork"), {0: ODD[1], 2: ODD[2], 4: b"{}"}, "those of a branch, and of what it shares with another")
    same(sorted(found("fork", 4, 6)), [2, 4], "those of a part of it")
    same(sorted(found()), [0, 2, 3], "those of another branch")
    store.redact(desk.owner, "talk", talk.entries()[4].id, b'{"role":"user","content":"redacted"}')
    same(found(), {0: ODD[1], 2: ODD[2], 3: ODD[5]}, "that of a turn of which an entry was redacted")
    talk.write(cut=4)
    same((sorted(found()), sorted(found("fork"))), ([0], [0, 2, 4]), "those of turns that were cut off one branch")
    ending = msgspec.structs.replace(talk.turn(None, "z")["turn"], id=made[1])
    talk.write(turn=ending, manifest=ODD[0])
    same(found(), {0: ODD[1], 1: ODD[0]}, "one that came later than its turn")


@case
def the_apps_own_data_is_kept_and_filtered(desk: Desk) -> None:
    store = desk.store
    data: dict[str, Any] = {"lesson": 3, "tags": ["a", {"b": None}], "é": "東", "f": 1.5, "t": True, "n": None}
    talk = desk.talk("one")
    talk.say("a", meta=data)
    kept = _json.value(_json.encode(data))
    data["tags"].append("changed later")
    desk.talk("two").say("a", meta={"lesson": 4, "t": 1})
    desk.talk("three").say("a")

    def listed(**meta: Any) -> list[str]:
        return sorted(found.id for found in store.conversations(desk.owner, meta=meta))

    found = {found.id: found.meta for found in store.conversations(desk.owner)}
    same(found, {"one": kept, "two": {"lesson": 4, "t": 1}, "three": {}}, f"the data is {found}")
    same(found["one"]["t"], True, "true has become a number")
    for meta, wanted in (
        ({"lesson": 3}, ["one"]),
        ({"lesson": 3, "f": 1.5}, ["one"]),
        ({"lesson": 3, "f": 2}, []),
        ({"lesson": "3"}, []),
        ({"tags": ["a", {"b": None}]}, ["one"]),
        ({"tags": "a"}, []),
        ({"t": True}, ["one"]),
        ({"t": 1}, ["two"]),
        ({"n": None}, ["one"]),
        ({"é": "東"}, ["one"]),
        ({"nowhere": 1}, []),
        ({}, ["one", "three", "two"]),
    ):
        same(listed(**meta), wanted, f"the filter {meta}")
    before = talk.head()
    same(store.describe(desk.owner, "one", {"new": 1}), True)
    same(talk.head(), before, "`describe` moves the branch")
    same(listed(lesson=3), [], "data that was replaced")
    same(listed(new=1), ["one"], "data that was replaced")
    talk.say("b")
    same(listed(new=1), ["one"], "a commit without data leaves it")
    talk.say("c", meta={})
    same(listed(new=1), [], "a commit with data replaces it")


@case
def the_apps_own_data_on_entries_is_read_by_place(desk: Desk) -> None:
    talk = desk.talk()
    mail: dict[str, Any] = {"channel": "mail", "é": ["東", None, 1.5, True]}
    talk.say("a", "b", "c", entry_meta={0: mail, 2: {"n": 2}})
    kept = _json.value(_json.encode(mail))
    mail["changed"] = "later"
    same(talk.metas(), {0: kept, 2: {"n": 2}})
    same(talk.store.conversations(talk.owner)[0].meta, {}, "the data on an entry is not that on the conversation")
    talk.say("d", "e", entry_meta={1: {"n": 4}})
    same(talk.metas(), {0: kept, 2: {"n": 2}, 4: {"n": 4}}, "it is counted from the first entry of the commit")
    for start, stop in ((0, 1), (1, 2), (1, 3), (2, 4), (3, 5), (4, 4), (5, 9), (4, 2)):
        wanted = {place: meta for place, meta in talk.metas().items() if start <= place < stop}
        same(talk.metas(start=start, stop=stop), wanted, f"that on the entries {start} … {stop}")


@case
def the_apps_own_data_on_entries_is_seen_on_paths_that_have_them(desk: Desk) -> None:
    talk = desk.talk()
    talk.say("a", "b", "c", entry_meta={0: {"n": 0}, 2: {"n": 2}})
    talk.say("x", branch="fork", source=(MAIN, 1), entry_meta={0: {"x": 1}})
    same(talk.metas("fork"), {0: {"n": 0}, 1: {"x": 1}})
    same(talk.metas(), {0: {"n": 0}, 2: {"n": 2}}, "that on the entries of a sibling")
    talk.say("y", cut=2)
    same(talk.metas(), {0: {"n": 0}}, "that on an entry that was cut off")


@case
def the_apps_own_data_on_an_entry_is_replaced(desk: Desk) -> None:
    store, owner, talk = desk.store, desk.owner, desk.talk()
    talk.say("a", "b", meta={"of": "all"}, entry_meta={0: {"n": 0, "old": 1}})
    talk.write("fork", source=(MAIN, 2))
    desk.talk("other").say("c")
    first, second, elsewhere = talk.entries()[0].id, talk.entries()[1].id, desk.talk("other").entries()[0].id
    before = talk.all()
    meta: dict[str, Any] = {"new": [1]}
    same(store.describe(owner, "talk", meta, entry=first), True)
    meta["new"].append("changed later")
    same(store.describe(owner, "talk", {"n": 1}, entry=second), True, "data where there was none")
    for missing in (elsewhere, "nowhere-0", "nowhere", "", f"{first}0"):
        same(store.describe(owner, "talk", {"lost": 1}, entry=missing), False, f"there is no entry {missing!r}")
    for branch in (MAIN, "fork"):
        same(talk.metas(branch), {0: {"new": [1]}, 1: {"n": 1}})
    after = talk.all()
    for part in before:
        if part != "metas":
            same(after[part], before[part], f"`describe` on an entry changes {part}")
    store.describe(owner, "talk", {"of": "it"})
    same(talk.metas(), {0: {"new": [1]}, 1: {"n": 1}}, "`describe` on the conversation changes that on entries")
    store.describe(owner, "talk", {}, entry=first)
    same(talk.metas().get(0, {}), {}, "data that was taken away")
