"""What a store has to do with one conversation: commits, bytes, branches, records, leases, request keys.

Each case is a function that takes a `Desk` and raises `AssertionError` where the store breaks the contract of
`longtalk.stores.base`. Run them with `longtalk.testing.stores.check_store`, or one by one with pytest.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias, TypeVar

import msgspec

from longtalk import _json
from longtalk.pack import Entry, checksum
from longtalk.stores.base import (
    MAIN,
    REPLACED,
    Asked,
    Commit,
    Head,
    Holder,
    KeyTaken,
    Lease,
    Moved,
    Placed,
    Request,
    Store,
)
from longtalk.transcript import Record, Turn, chain, new_id

T = TypeVar("T")
Reopen: TypeAlias = Callable[[Store], Store]

_clock = count(1_790_000_000_000, 1_000)
ME = Holder("a host", "a boot", 7, 8)

ODD = (
    b"{}",
    b'{"role":"user","content":"a","content":"b","n":1.0,"m":1E+2,"o":-0}',
    b'{ "role" : "user",\n\t"content" : "\\u0041\\/" ,\r\n"x":[ ] }',
    '{"content":"ünï 東京 😀 \u2028 \x7f"}'.encode(),
    b'{"content":"half \\ud83d, a nought \\u0000, \\ude00\\ud83d"}',
    b'{"content":"not unicode \xff\xfe\xc3("}',
    b'{"content":"' + b"\xf0\x9f\x98" + b'"}',
    b'{"sum":"00000000"}',
    b'{"big":123456789012345678901234567890,"small":1e-400}',
    b'{"content":"' + b"x" * 1_000_000 + b'"}',
    b'{"a":' * 200 + b"1" + b"}" * 200,
)
"""JSON as servers and files have it, and what is only almost JSON."""


@dataclass(frozen=True)
class Desk:
    """Where a case works: a fresh store, and two owners that it may hold already but that own nothing."""

    store: Store
    reopen: Reopen | None = None
    owner: str = field(default_factory=lambda: f"owner-{new_id()}")
    other: str = field(default_factory=lambda: f"other-{new_id()}")

    def talk(self, id: str = "talk", *, owner: str | None = None) -> Talk:  # noqa: A002
        return Talk(self.store, self.owner if owner is None else owner, id)


@dataclass(frozen=True)
class Talk:
    """One conversation, and how a case writes and reads it."""

    store: Store
    owner: str
    id: str

    def head(self, branch: str = MAIN) -> Head:
        return there(self.store.head(self.owner, self.id, branch), f"the branch {branch!r}")

    def asked(self, key: str) -> Asked:
        return there(self.store.asked(self.owner, self.id, key), f"the turn of the key {key!r}")

    def write(self, branch: str = MAIN, **fields: Any) -> Head:
        """A commit that expects the branch where it is."""
        if "expect" not in fields:
            head = self.store.head(self.owner, self.id, branch)
            fields["expect"] = head.revision if head else 0
        return self.store.write(self.owner, self.id, Commit(**{"branch": branch, "at": next(_clock), **fields}))

    def say(self, *texts: str, branch: str = MAIN, **fields: Any) -> Head:
        """A whole turn: texts of the user and of the assistant by turns."""
        return self.write(branch, **self.turn(self.tip(branch, **fields), *texts), **fields)

    def turn(self, parent: str | None, *texts: str, status: str = "complete") -> dict[str, Any]:
        """The fields of a commit that adds a turn."""
        at, id = next(_clock), new_id()  # noqa: A001
        roles = ("user", "assistant")
        entries = [message(text, role=roles[i % 2], at=at) for i, text in enumerate(texts)]
        return {"entries": chain(parent, id, 0, entries), "turn": Turn(id, status, "test:model", at)}  # type: ignore[arg-type]

    def tip(
        self, branch: str = MAIN, *, source: tuple[str, int] | None = None, cut: int | None = None, **_: Any
    ) -> str | None:
        """The entry behind which a commit adds."""
        head = self.store.head(self.owner, self.id, branch)
        name, size = (branch, head.size if head else 0) if source is None else source
        size = size if cut is None else cut
        return self.entries(name)[size - 1].id if size else None

    def entries(self, branch: str = MAIN, start: int = 0, stop: int | None = None) -> list[Entry]:
        pack = self.store.read(self.owner, self.id, branch, start, self.head(branch).size if stop is None else stop)
        same(checksum(pack.array), pack.crc, "the checksum of a pack is not that of its array")
        return [pack.entry(i) for i in range(len(pack))]

    def texts(self, branch: str = MAIN) -> list[str]:
        return [_json.value(entry.native)["content"] for entry in self.entries(branch)]

    def records(self, branch: str = MAIN) -> list[tuple[str, int]]:
        """The data and the places of the records on a path."""
        return [(placed.record.data.decode(), placed.place) for placed in self.head(branch).records]

    def note(self, kind: str, data: str, place: int, *, branch: str = MAIN) -> Placed:
        """A record that holds up to a place."""
        entry = self.entries(branch)[place].id if place >= 0 else ""
        return Placed(Record(kind, entry, next(_clock), data.encode()), place)

    def all(self, *keys: str) -> dict[str, Any]:
        """Everything that can be seen of it."""
        store, owner, id = self.store, self.owner, self.id  # noqa: A001
        heads = store.branches(owner, id)
        return {
            "branches": heads,
            "heads": [store.head(owner, id, head.branch) for head in heads],
            "entries": [self.entries(head.branch) for head in heads],
            "turns": [store.turns(owner, id, head.branch, 0, head.size) for head in heads],
            "asked": [store.asked(owner, id, key) for key in keys],
            "summary": [found for found in store.conversations(owner, limit=1_000) if found.id == id],
        }


@dataclass(frozen=True)
class Case:
    """One promise of the contract. `run` raises when a store does not keep it."""

    name: str
    check: Callable[[Desk], None]
    reopens: bool = False
    """Whether it needs a way to close a store and to open it again."""

    def run(self, make: Callable[[], Store], *, reopen: Reopen | None = None) -> None:
        store = make()
        try:
            self.check(Desk(store, reopen))
        finally:
            store.close()

    def __str__(self) -> str:
        return self.name


TREE: list[Case] = []


def case(check: Callable[[Desk], None]) -> Callable[[Desk], None]:
    TREE.append(Case(check.__name__, check))
    return check


def message(text: str, *, role: str = "user", at: int = 0) -> Entry:
    native = _json.encode({"role": role, "content": text})
    return Entry(role=role, wire="openai-chat", native=native, at=at, tokens=len(text))


def holds(condition: object, what: str = "this does not hold") -> None:
    """As `assert`, also where Python leaves those out."""
    if not condition:
        raise AssertionError(what)


def same(found: object, wanted: object, what: str = "found") -> None:
    if found != wanted or isinstance(found, bool) != isinstance(wanted, bool):
        raise AssertionError(f"{what}: {_short(found)} instead of {_short(wanted)}")


def there(value: T | None, what: str) -> T:
    """A value that has to be there."""
    if value is None:
        raise AssertionError(f"{what} is not there")
    return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:300]}…{text[-90:]}"


def raises(kind: type[Exception], call: Callable[[], object], what: str) -> Exception:
    try:
        call()
    except kind as problem:
        return problem
    raise AssertionError(f"{what}: {kind.__name__} was not raised")


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
def what_is_not_there_reads_as_nothing(desk: Desk) -> None:
    store, owner = desk.store, desk.owner
    desk.talk("there").say("hello")
    for id, branch in (("nowhere", MAIN), ("there", "nowhere")):  # noqa: A001
        same(store.head(owner, id, branch), None)
        same(len(store.read(owner, id, branch, 0, 9)), 0)
        same(store.turns(owner, id, branch, 0, 9), [])
        same(store.renew(owner, id, branch, 0, 9), False)
        same(store.renew(owner, id, branch, 1, 9), False)
        same(store.asked(owner, id, "k"), None)
        same(store.redact(owner, id, "t-0", b"{}"), False)
    same(store.branches(owner, "nowhere"), [])
    same(store.delete(owner, "nowhere"), None)
    store.describe(owner, "nowhere", {"a": 1})
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
    kept: dict[str, list[tuple[str, str, str]]] = {}
    for number in range(120):
        name = draw.choice([MAIN, "b", "c", "d"])
        path, fields = list(paths.get(name, ())), dict[str, Any]()
        if name not in paths and paths:
            source = draw.choice(sorted(paths))
            size = draw.randint(0, len(paths[source]))
            path, fields["source"] = paths[source][:size], (source, size)
        elif name in paths and draw.random() < 0.3:
            fields["cut"] = draw.randint(max(0, len(path) - 4), len(path))
            path = path[: fields["cut"]]
        said = [f"{number}-{i}" for i in range(draw.randint(0, 3))]
        added = talk.turn(talk.tip(name, **fields), *said)
        talk.write(name, **(added if said else {}), **fields)
        paths[name] = path + said
        if paths[name] and draw.random() < 0.4:
            place, kind = draw.randrange(len(paths[name])), draw.choice(["brief", REPLACED[0]])
            talk.write(name, records=(talk.note(kind, str(number), place, branch=name),))
            kept[str(number)] = [(kind, str(number), paths[name][place])]
        for branch, expected in paths.items():
            same(talk.texts(branch), expected, f"after {number} commits the branch {branch!r} differs")
            visible = [record for some in kept.values() for record in some if record[2] in expected]
            newest = [record for record in visible if record[0] in REPLACED][-1:]
            wanted = [record for record in visible if record[0] not in REPLACED or record in newest]
            same(
                talk.records(branch),
                [(data, expected.index(text)) for _, data, text in wanted],
                f"after {number} commits the records of {branch!r} differ",
            )


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
        seen = [data for data, _ in talk.records(branch) if not data.startswith("brief")]
        same(seen, [f"{kind} 1" for kind in REPLACED], "without the newest the one before it counts")
    talk.write(records=(talk.note("pins", "pins 3", 0),))
    holds(("pins 3", 0) in talk.records() and ("pins 1", 1) not in talk.records(), "the newest is that made last")


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
    talk.write(cut=0)
    same(talk.asked("key").turn, done, "a cut frees no key")
